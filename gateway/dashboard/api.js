/*
 * The admin listener's calls. The token stays in this tab's session storage and goes into one header, never into a URL.
 */

const STORED = "fencegate-admin-token";
const PATIENCE_MS = 20000;

/* The gateway answered, and refused: status, reason and a detail that is a sentence for people. */
export class Refusal extends Error {
	constructor(status, problem) {
		super(problem?.detail ?? `The gateway answered ${status} without saying why.`);
		this.status = status;
	}
}

/* No answer came, or one that is not the gateway's. */
export class Unreachable extends Error {}

export const token = {
	get: () => sessionStorage.getItem(STORED),
	set: (text) => sessionStorage.setItem(STORED, text),
	forget: () => sessionStorage.removeItem(STORED),
};

async function read(answer) {
	const text = await answer.text();
	try {
		return text === "" ? undefined : JSON.parse(text);
	} catch {
		throw new Unreachable("Something that is not the gateway answered.");
	}
}

/* Paths are relative, so that the page also works behind a proxy that mounts it elsewhere. */
async function call(method, path, { query = {}, body, patience = PATIENCE_MS } = {}) {
	const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== ""));
	const url = words.size === 0 ? path : `${path}?${words}`;
	const headers = { "Authorization": `Bearer ${token.get() ?? ""}` };
	if (body !== undefined) {
		headers["Content-Type"] = "application/json";
	}
	let answer;
	let content;
	try {
		answer = await fetch(url, {
			method,
			headers,
			body: body === undefined ? undefined : JSON.stringify(body),
			cache: "no-store",
			credentials: "omit",
			redirect: "error",
			signal: AbortSignal.timeout(patience)
		});
		content = await read(answer);
	} catch (error) {
		throw error instanceof Unreachable ? error : new Unreachable("The gateway did not answer.");
	}
	if (!answer.ok) {
		throw new Refusal(answer.status, content);
	}
	return content;
}

/* A browser takes the segments "." and ".." out of every URL, also when they are percent-encoded. */
export const canAsk = (...parts) => !parts.some((part) => part === "." || part === "..");

function fencePath(namespace, key) {
	if (!canAsk(namespace, key)) {
		throw new Refusal(400, {
			detail:
				"A browser can't ask for \".\" or \"..\" in a path. Use fencegate history, fencegate fences raise, fencegate fences reset."
		});
	}
	return `v1/fences/${encodeURIComponent(namespace)}/${encodeURIComponent(key)}`;
}

export const stats = () => call("GET", "v1/stats");
export const audit = (query) => call("GET", "v1/audit", {query});
export const fences = (query) => call("GET", "v1/fences", {query});
export const effects = (state, query) => call("GET", "v1/effects", {query: {state, ...query}});
export const fence = async (namespace, key) => call("GET", fencePath(namespace, key));
export const history = async (namespace, key, limit) =>
	call("GET", fencePath(namespace, key) + "/history", {query: {limit}});
export const raise = async (namespace, key, body) => call("PUT", fencePath(namespace, key), {body});
export const reset = async (namespace, key, reason) => call("DELETE", fencePath(namespace, key), {query: {reason}});
export const resolve = (id, body) => call("POST", `v1/effects/${encodeURIComponent(id)}/resolve`, {body});

/* A refusal is shown where it was met; a lost or forbidden connection is the page's affair. */
export function passOn(error) {
	if (!(error instanceof Refusal) || error.status === 401) {
		throw error;
	}
}

export function inWords(error) {
	if (error instanceof Refusal && error.status === 401) {
		return "The admin token is not the right one.";
	}
	return error instanceof Refusal || error instanceof Unreachable ? error.message :
																																		`The page made a mistake: ${error.message}`;
}
