/*
 * Elements, and how times, keys and tokens look everywhere. Whatever comes from outside becomes a text node: no
 * function here takes markup.
 */

function fill(create, name, first, ...others) {
	const [tag, ...classes] = name.split(".");
	const node = create(tag);
	const attributes = first?.constructor === Object ? first : {};
	const children = first === attributes ? others : [first, ...others];
	if (classes.length > 0) {
		node.setAttribute("class", classes.join(" "));
	}
	for (const [key, value] of Object.entries(attributes)) {
		if (value === undefined || value === null || value === false) {
			continue;
		}
		if (key.startsWith("on")) {
			node.addEventListener(key.slice(2), value);
		} else {
			node.setAttribute(key, value === true ? "" : value);
		}
	}
	node.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
	return node;
}

/* el("a.button.main", { href: "#/" }, "text", node, [more]): absent children and attributes are left out. */
export const el = (...parts) => fill((tag) => document.createElement(tag), ...parts);

export const svg = (...parts) => fill((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag), ...parts);

/* A head is text, or a cell of its own. */
export const table = (name, caption, heads, body) => el(name, el("caption.unseen", caption),
	el("thead", el("tr", heads.map((head) => (head instanceof Node ? head : el("th", {scope: "col"}, head))))), body);

export const section = (id, name, beside, ...content) =>
	el("section", {"aria-labelledby": id}, el("div.section-head", el("h2", {id, tabindex: "-1"}, name), beside), content);

export const submit = (work) => (event) => {
	event.preventDefault();
	work(event);
};

const two = (number) => String(number).padStart(2, "0");

function offsetOf(date) {
	const minutes = -date.getTimezoneOffset();
	const size = Math.abs(minutes);
	return (minutes < 0 ? "\u2212" : "+") + two(Math.floor(size / 60)) + ":" + two(size % 60);
}

/* Local time with its offset; the title has UTC, as the API and the command's --json say it. */
export function timeOf(text, milliseconds = true) {
	const date = new Date(text);
	if (Number.isNaN(date.getTime())) {
		return el("span", text);
	}
	const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
	const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
	const rest = milliseconds ? "." + String(date.getMilliseconds()).padStart(3, "0") : "";
	return el(
		"time", { datetime: text, title: `${text} (UTC)` }, faint(day + " "), clock + rest, faint(" " + offsetOf(date)));
}

/* Characters that don't show, or that turn the direction of what follows. A joiner inside an emoji is none of them. */
const GHOST = new RegExp(
	[
		"(?<![\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\uFE0F])\\u200D",
		"[[\\p{Cf}\\p{Zl}\\p{Zp}]--[\\u200D\\u{E0020}-\\u{E007F}]]",
		"[\\p{Zs}--[ ]]",
		"^ | $",
	].join("|"),
	"gv");

/* Text from outside: set apart from the direction of its surroundings, its ghosts labelled by their code point. What is
 * copied from it are the very same characters, since the labels are the style sheet's. */
export function outside(text, name = "bdi", attributes = {}) {
	const node = el(name, attributes);
	let done = 0;
	for (const found of text.matchAll(GHOST)) {
		const code = "U+" + found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
		node.append(text.slice(done, found.index), el("span", { class: "ghost", "data-code": code }, found[0]));
		done = found.index + found[0].length;
	}
	node.append(text.slice(done));
	return node;
}

export function storyLink(namespace, key, parameters = {}) {
	const query = new URLSearchParams(parameters).toString();
	return `#/key/${encodeURIComponent(namespace)}/${encodeURIComponent(key)}${query === "" ? "" : "?" + query}`;
}

export const effectLink = ({namespace = "default", key}, id) =>
	el("a.token", {href: key === undefined ? `#/?effect_id=${id}` : storyLink(namespace, key, {effect: id})}, id);

/* A key as a link to its story. Namespaces other than the default are shown before it. */
export function keyLink(namespace, key) {
	const link =
		outside(key, "a", { class: "key", dir: "auto", href: storyLink(namespace, key), title: "The story of this key" });
	return namespace === "default" ? link : [faint(namespace + " / "), link];
}

export function textField(name, attributes) {
	return el(
		"input", { name, type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off", ...attributes });
}

export const token = (text) => el("span.token", text);

export const faint = (...children) => el("span.faint", ...children);

export const button = (words, onclick, more) => el("button", {type: "button", onclick, ...more}, words);

/* Is somebody at work inside `node`? Then it must not be rebuilt. */
export function isBusy(node) {
	return node.contains(document.activeElement) && document.activeElement !== document.body;
}

export function announce(text) { document.getElementById("announce").textContent = text; }
