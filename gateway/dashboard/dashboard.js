/*
 * The page: which view is seen, the token, and the beat that keeps all of it up to date while the gateway is there and
 * while somebody looks. What is seen stands in the URL's fragment, so that it can be shared; the token never does.
 */

import * as api from "./dashboard/api.js";
import {AuditView} from "./dashboard/audit.js";
import {resolve, resolveOffer} from "./dashboard/change.js";
import {Chart} from "./dashboard/chart.js";
import {submit, timeOf} from "./dashboard/dom.js";
import {EffectsView, KeysView} from "./dashboard/lists.js";
import {Status} from "./dashboard/status.js";
import {StoryView} from "./dashboard/story.js";

const BEAT_MS = 1000;
const STATS_MS = 4000;
const BEAT_MAX_MS = 15000;

const place = document.getElementById("view");
const banner = document.getElementById("banner");
const login = document.getElementById("login");
const nav = document.querySelector("nav");
const forgetButton = document.getElementById("forget");

const status = new Status();
const chart = new Chart();
const goTo = (path) => (filter) => {
	const query = new URLSearchParams(Object.entries(filter).filter(([, value]) => value !== "")).toString();
	const hash = `#/${path}${query === "" ? "" : "?" + query}`;
	if (location.hash === hash) {
		show();
	} else {
		location.hash = hash;
	}
};
const onResolve = (effect) => resolve(effect, () => show());
const offer = (effect) => resolveOffer(effect, () => show());
const audit = new AuditView({ go: goTo(""), offer });
const views = {
	"": { view: audit, parts: [chart.root, audit.root], title: "Audit" },
	"key": { view: new StoryView({ offer }), title: "Key" },
	"keys": { view: new KeysView({ go: goTo("keys") }), title: "Keys" },
	"effects": { view: new EffectsView({ onResolve }), title: "Effects" },
};

let current;
let opened = false; /* the view was told what to show: it may be kept up to date ... */
let opening = 0;		/* ... while none is just being told */
let timer;
let failures = 0;
let statsDue = 0;
let lostSince;

/* "#/key/default/order-17?token=42": the view's name, what follows it, and the filter. */
function readHash() {
	const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
	const [name, ...rest] = path.split("/");
	try {
		const parts = rest.map(decodeURIComponent);
		const known =
			name === "key" ? parts.length === 2 && parts.every((part) => part !== "") : name in views && parts.length === 0;
		return { name: known ? name : "", parts: known ? parts : [], parameters: new URLSearchParams(query) };
	} catch {
		return { name: "", parts: [], parameters: new URLSearchParams() };
	}
}

function showParts(name) {
	const entry = views[name];
	if (current !== entry) {
		current = entry;
		place.replaceChildren(status.root, ...(entry.parts ?? [entry.view.root]));
	}
	nav.querySelectorAll("a").forEach((link) => {
		if (link.getAttribute("href") === `#/${name}`) {
			link.setAttribute("aria-current", "page");
		} else {
			link.removeAttribute("aria-current");
		}
	});
}

async function show() {
	if (!login.hidden) {
		return;
	}
	const { name, parts, parameters } = readHash();
	showParts(name);
	opened = true;
	opening++;
	document.title = `${name === "key" ? parts[1] : current.title} · Fencegate`;
	try {
		await current.view.open(parameters, parts);
	} catch (error) {
		failed(error);
	} finally {
		opening--;
	}
}

async function beat() {
	clearTimeout(timer);
	if (document.hidden || !login.hidden) {
		return;
	}
	try {
		if (Date.now() >= statsDue || failures > 0) {
			const stats = await api.stats();
			statsDue = Date.now() + STATS_MS;
			status.update(stats);
			chart.update(stats);
			audit.setRoutes(stats.routes.map((route) => route.name));
		}
		reached();
		if (opened && opening === 0) {
			await current.view.tick();
		}
	} catch (error) {
		failed(error);
	}
	again();
}

function again() {
	clearTimeout(timer);
	timer = setTimeout(beat, Math.min(BEAT_MS * 2 ** failures, BEAT_MAX_MS));
}

function reached() {
	failures = 0;
	lostSince = undefined;
	banner.hidden = true;
}

function failed(error) {
	failures = Math.min(failures + 1, 8);
	if (error instanceof api.Refusal && error.status === 401) {
		askToken(api.token.get() !== null);
		return;
	}
	if (error instanceof api.Unreachable) {
		lostSince ??= new Date().toISOString();
		banner.replaceChildren("The gateway is not reachable since ", timeOf(lostSince, false),
			". Trying again; what is shown is from before that.");
		status.lost("Not reachable");
	} else if (error instanceof api.Refusal) {
		banner.replaceChildren(`The gateway refuses to give data to this page: ${error.message}`);
		status.lost("No data");
	} else {
		banner.replaceChildren(api.inWords(error));
		console.error(error);
	}
	banner.hidden = false;
}

const closeDialogs = () => document.querySelectorAll("dialog").forEach((dialog) => dialog.close());

function showLogin(asked) {
	login.hidden = !asked;
	[place, nav, forgetButton, status.pill].forEach((part) => {
		part.hidden = asked;
	});
}

function askToken(wrong) {
	api.token.forget();
	clearTimeout(timer);
	closeDialogs();
	showLogin(true);
	banner.hidden = true;
	document.getElementById("version").textContent = "";
	document.getElementById("wrong-token").hidden = !wrong;
	document.getElementById("token").focus();
}

/* A token that no header can carry is wrong without being asked about. */
function takeToken() {
	const input = document.getElementById("token");
	const text = input.value.trim();
	input.value = "";
	if (!/^[!-~]+$/.test(text)) {
		askToken(true);
		return;
	}
	api.token.set(text);
	enter().then(focusHead);
}

function focusHead() { document.querySelector("#view > :last-child h2")?.focus({ preventScroll: true }); }

async function enter() {
	showLogin(false);
	failures = 0;
	statsDue = 0;
	opened = false;
	current = undefined;
	showParts(readHash().name);
	await beat();
	if (login.hidden) {
		await show();
	}
}

function forget() {
	askToken(false);
	place.replaceChildren();
	location.reload(); /* nothing of what was seen stays in memory */
}

/* Names that a page on the internet can't have; the gateway's own rule, which its data calls enforce. */
function isPrivate(host) {
	return host.startsWith("[") || !host.includes(".") || /^[0-9.]+$/.test(host) ||
		/\.(localhost|local|internal|svc)$/.test(host);
}

/* Under any other name the gateway is asked whether it would listen before the token is: who lent this page their name
 * could read what is kept under it. */
async function begin() {
	if (api.token.get() !== null) {
		enter();
		return;
	}
	if (!isPrivate(location.hostname.replace(/\.$/, ""))) {
		try {
			await api.stats();
		} catch (error) {
			if (!(error instanceof api.Refusal) || error.status !== 401) {
				failed(error);
				return;
			}
		}
	}
	askToken(false);
}

window.addEventListener("hashchange", async () => {
	closeDialogs();
	await show();
	focusHead();
});
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : beat()));
document.querySelector("#login form").addEventListener("submit", submit(takeToken));
document.querySelector(".skip").addEventListener("click", submit(() => document.getElementById("main").focus()));
forgetButton.addEventListener("click", forget);
document.getElementById("start").remove();
begin();
