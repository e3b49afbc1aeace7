/*
 * How the gateway is: ready or not, what is wrong, and how near it is to its limits.
 */

import {el, faint, timeOf} from "./dom.js";
import {bytes, grouped, lasting} from "./words.js";

const STATES = {
	"ready": { text: "Ready", glyph: "●" },
	"not-ready": { text: "Not ready", glyph: "▲" },
	"shutting-down": { text: "Shutting down", glyph: "▼" },
};
const NEARLY = 0.8;
const ROUTES_NAMED = 4;

function alarmLink(alarm) {
	const route = alarm.route === undefined ? {} : { route: alarm.route };
	const links = {
		"in-doubt": ["#/effects", "Effects in doubt"],
		"token-regression": [`#/?${new URLSearchParams({...route, reason: "stale-token" })}`, "Stale calls"],
		"clock-like-token": [`#/?${new URLSearchParams(route)}`, "Records"],
	};
	const link = links[alarm.name];
	return link === undefined ? [] : [" ", el("a", { href: link[0] }, link[1])];
}

const words = (alarm) => [alarm.text, alarmLink(alarm), faint(" since ", timeOf(alarm.since, false))];

/* The same alarm of several routes is one item, which says more on demand. */
function alarmItem(alarms) {
	const name = el("strong", alarms[0].name.replaceAll("-", " "));
	const place = (alarm) => alarm.route === undefined ? ": " : ` on ${alarm.route}: `;
	if (alarms.length === 1) {
		return el("li", name, place(alarms[0]), words(alarms[0]));
	}
	const routes = alarms.map((alarm) => alarm.route);
	const more = routes.length > ROUTES_NAMED ? [` and ${routes.length - ROUTES_NAMED} more`] : [];
	return el("li",
		el("details", el("summary", name, ` on ${routes.slice(0, ROUTES_NAMED).join(", ")}`, more),
			alarms.map((alarm) => el("p", alarm.route, ": ", words(alarm)))));
}

class Gauge {
	constructor(name, href) {
		this.value = el(href === undefined ? "span" : "a", { class: "value", href });
		this.note = el("span.faint");
		this.level = el("div.level");
		this.root = el("div.gauge", el("dt", name),
			el("dd", this.value, this.note, el("div.bar", { "aria-hidden": "true" }, this.level)));
	}

	/* Without `most` it has no bar. */
	show(now, most, write = grouped) {
		this.value.textContent = write(now);
		this.note.textContent = most === undefined ? "" : ` of ${write(most)}`;
		const part = most > 0 ? Math.min(1, now / most) : 0;
		this.level.style.width = `${part * 100}%`;
		this.root.classList.toggle("nearly", part >= NEARLY);
	}
}

export class Status {
	constructor() {
		this.pill = document.getElementById("state");
		this.gauges = ["Calls in flight", "Connections", "Bodies held", "Store", "Keys"].map((name) => new Gauge(name));
		this.doubt = new Gauge("In doubt", "#/effects");
		this.unknown = new Gauge("Unresolved unknown", "#/effects?state=unknown");
		this.alarms = el("ul.alarms", { "aria-label": "Alarms", role: "list" });
		this.root = el("section", { "aria-label": "State and limits" }, this.alarms,
			el("dl.gauges", [...this.gauges, this.doubt, this.unknown].map((gauge) => gauge.root)));
	}

	update(stats) {
		const state = STATES[stats.state] ?? { text: stats.state, glyph: "▲" };
		this.#showPill(stats.state, state.glyph, stats.reason ? `${state.text}: ${stats.reason}` : state.text);
		document.getElementById("version").textContent =
			`${stats.version}, up ${lasting(Date.parse(stats.time) - Date.parse(stats.started_at))}`;
		const { limits, store } = stats;
		const [inFlight, connections, bodies, room, keys] = this.gauges;
		inFlight.show(limits.in_flight.now, limits.in_flight.max);
		connections.show(limits.connections.now, limits.connections.max);
		bodies.show(limits.buffered_bytes.now, limits.buffered_bytes.max, bytes);
		room.show(store.used_bytes, store.max_bytes, bytes);
		keys.show(store.keys);
		this.doubt.show(store.in_doubt);
		this.doubt.root.classList.toggle("nearly", store.in_doubt > 0);
		const unknown = Math.max(0, store.unresolved - store.in_doubt); /* those in doubt have a tile of their own */
		this.unknown.show(unknown);
		this.unknown.root.classList.toggle("nearly", unknown > 0);
		this.#showAlarms(stats);
	}

	#showAlarms(stats) {
		const seen = JSON.stringify(stats.alarms);
		if (seen !== this.seen) {
			this.seen = seen;
			const names = [...new Set(stats.alarms.map((alarm) => alarm.name))];
			this.alarms.replaceChildren(
				...names.map((name) => alarmItem(stats.alarms.filter((alarm) => alarm.name === name))));
		}
	}

	#showPill(name, glyph, text) {
		this.pill.className = `pill is-${name}`;
		if (this.pill.textContent !== glyph + text) {
			this.pill.replaceChildren(el("span", { "aria-hidden": "true" }, glyph), text);
		}
	}

	lost(words) { this.#showPill("lost", "○", words); }
}
