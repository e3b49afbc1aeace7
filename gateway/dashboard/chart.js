/*
 * The last hour, minute by minute: one row a route, one strip of bars each for what was sent, dropped and unknown.
 * Every strip has a scale of its own, so that three drops among ten thousand calls are seen.
 */

import {el, isBusy, section, svg, table, timeOf} from "./dom.js";
import {kindMark} from "./records.js";
import {count, grouped} from "./words.js";

const STRIPS = ["sent", "dropped", "unknown"];
const MINUTE_MS = 60000;
const BAR = 5;
const HEIGHT = 34;

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

function minuteFilter(start, minute, route, kind) {
	const from = new Date(start + minute * MINUTE_MS);
	const words = new URLSearchParams(
		{ kind, route, since: from.toISOString(), until: new Date(from.getTime() + MINUTE_MS).toISOString() });
	return `#/?${words}`;
}

class Strip {
	constructor(kind, minutes, readout) {
		this.kind = kind;
		this.bars = Array.from(
			{ length: minutes }, (_, at) => svg("rect", { x: at * BAR + 0.5, width: BAR - 1, y: HEIGHT, height: 0 }));
		this.picture = svg("svg", {
			class: `strip is-${kind}`,
			role: "img",
			viewBox: `0 0 ${minutes * BAR} ${HEIGHT}`,
			preserveAspectRatio: "none",
			onpointermove: (event) => readout(this.#at(event), this),
			onpointerleave: () => readout(undefined, this),
			onclick: (event) => this.#clicked(event)
		},
			this.unknown = svg("rect.uncounted", { height: HEIGHT }),
			svg("line", { x1: 0, x2: minutes * BAR, y1: HEIGHT, y2: HEIGHT }), this.bars);
		this.total = el("span.total");
		this.peak = el("span.faint");
		this.root = el("td", { "data-head": kind }, el("div.flow", el("div", this.total, this.peak), this.picture));
	}

	#at(event) {
		const box = this.picture.getBoundingClientRect();
		const at = Math.floor((event.clientX - box.left) / box.width * this.bars.length);
		return Math.min(Math.max(at, 0), this.bars.length - 1);
	}

	#clicked(event) {
		const at = this.#at(event);
		if (this.data.numbers[at] > 0) {
			location.hash = minuteFilter(this.data.start, at, this.data.route, this.kind);
		}
	}

	update(data) {
		this.data = data;
		this.unknown.setAttribute("width", data.uncounted * BAR);
		const most = Math.max(...data.numbers);
		this.bars.forEach((bar, at) => {
			const number = data.numbers[at] ?? 0;
			const size = number === 0 ? 0 : Math.max(3, number / most * (HEIGHT - 1));
			bar.setAttribute("y", HEIGHT - size);
			bar.setAttribute("height", size);
		});
		this.total.textContent = grouped(sum(data.numbers));
		this.peak.textContent = most === 0 ? "" : `peak ${grouped(most)}`;
		this.root.classList.toggle("none", most === 0);
		this.picture.setAttribute("aria-label",
			`${data.route}, ${this.kind}: ${grouped(sum(data.numbers))} in the ` +
				(data.uncounted === 0 ? "last hour" : `last ${count(this.bars.length - data.uncounted, "minute")}`) +
				(most === 0 ? "" : `, at most ${grouped(most)} in a minute`));
	}
}

export class Chart {
	constructor() {
		this.body = el("tbody");
		this.readout = el("p.readout.faint", { "aria-hidden": "true" }, "\u00A0");
		this.since = el("span.faint");
		this.minutesBody = el("tbody");
		this.minutes = el("details.minutes", { ontoggle: () => this.#fillMinutes() }, el("summary", "Numbers by minute"),
			el("div.scroll", { tabindex: "0", role: "region", "aria-label": "Numbers by minute" },
				table("table", "Calls by minute and route, newest first",
					[
						"Minute", "Route",
						...["Sent", "Dropped", "Unknown", "Not sent", "Rejected"].map(
							(head) => el("th.number", { scope: "col" }, head))
					],
					this.minutesBody)));
		this.root = section("hour-head", "Last hour", [this.since, this.readout],
			table("table.flows", "Calls by route in the last hour",
				[
					"Route", "Now",
					...STRIPS.map((kind) => el("th", { scope: "col" }, kindMark(kind), el("span.faint.axis", "−60 min → now")))
				],
				this.body),
			this.minutes);
		this.rows = new Map();
	}

	update(stats) {
		this.stats = stats;
		const names = stats.routes.map((route) => route.name);
		const length = stats.minutes.count;
		if (names.join("\n") !== [...this.rows.keys()].join("\n") || length !== this.length) {
			this.length = length;
			this.rows = new Map(names.map((name) => [name, this.#row(name, length)]));
			this.body.replaceChildren(...[...this.rows.values()].map((row) => row.root));
		}
		const start = Date.parse(stats.minutes.start);
		this.from = stats.minutes.counted_from;
		this.uncounted = Math.floor((Date.parse(this.from) - start) / MINUTE_MS);
		const whole = this.from === stats.minutes.start;
		this.since.replaceChildren(...(whole ? [] : ["counted since ", timeOf(this.from, false)]));
		for (const route of stats.routes) {
			const row = this.rows.get(route.name);
			row.now.replaceChildren(...this.#now(route));
			row.strips.forEach(
				(strip) => strip.update({ start, route: route.name, numbers: route[strip.kind], uncounted: this.uncounted }));
		}
		this.#fillMinutes();
	}

	#row(name, length) {
		const strips = STRIPS.map((kind) => new Strip(kind, length, (at, strip) => this.#read(at, strip)));
		const now = el("td.now", { "data-head": "Now" });
		const link = el("a", { href: `#/?${new URLSearchParams({ route: name })}`, title: "Its records" }, name);
		return { root: el("tr", el("th", { scope: "row" }, link), now, strips.map((strip) => strip.root)), strips, now };
	}

	#now(route) {
		const others =
			[["not sent", sum(route.not_sent)], ["rejected", sum(route.rejected)]].filter(([, number]) => number > 0);
		return [
			el(
				"div", `${grouped(route.in_flight)} in flight`, route.waiting > 0 ? `, ${grouped(route.waiting)} waiting` : ""),
			el("div.faint", others.map(([word, number]) => `${grouped(number)} ${word}`).join(", ")),
		];
	}

	#read(at, strip) {
		if (at === undefined) {
			this.readout.textContent = "\u00A0";
			return;
		}
		const { start, route, numbers, uncounted } = strip.data;
		this.readout.replaceChildren(timeOf(new Date(start + at * MINUTE_MS).toISOString(), false),
			at < uncounted ? "  not counted" : `  ${route}: ${grouped(numbers[at])} ${strip.kind}`);
	}

	#fillMinutes() {
		if (!this.minutes.open || this.stats === undefined || isBusy(this.minutesBody)) {
			return;
		}
		const rows = [];
		const start = Date.parse(this.stats.minutes.start);
		for (let at = this.stats.minutes.count - 1; at >= 0; at--) {
			for (const route of this.stats.routes) {
				const cells = ["sent", "dropped", "unknown", "not_sent", "rejected"].map(
					(kind) => [kind.replace("_", "-"), route[kind][at]]);
				if (cells.some(([, number]) => number > 0)) {
					rows.push(this.#minuteRow(start, at, route.name, cells));
				}
			}
		}
		if (rows.length === 0) {
			rows.push(el("tr", el("td", { colspan: "7" }, "No call.")));
		}
		if (this.from !== this.stats.minutes.start) {
			rows.push(el("tr", el("td", { colspan: "7", class: "faint" }, "Not counted before ", timeOf(this.from, false))));
		}
		this.minutesBody.replaceChildren(...rows);
	}

	#minuteRow(start, at, route, cells) {
		return el("tr", el("td", timeOf(new Date(start + at * MINUTE_MS).toISOString(), false)), el("td", route),
			cells.map(([kind, number]) => el("td.number",
									number === 0 ? "0" : el("a", { href: minuteFilter(start, at, route, kind) }, grouped(number)))));
	}
}
