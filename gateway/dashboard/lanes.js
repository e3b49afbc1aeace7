/*
 * A key's records as a picture: a lane for each token, time from left to right in the order of writing. The token that
 * holds the fence has the thick line; a takeover steps down to the next lane, and a late call stands out above it.
 */

import {el, svg} from "./dom.js";
import {kindMark} from "./records.js";
import {higher, KINDS} from "./words.js";

const EVENTS_MAX = 60;
const LANES_MAX = 8;
const STEP_MIN = 30;
const STEP_MAX = 84;
const WIDE = 960;
const DIGIT = 7.6;
const LANE = 34;
const TOP = 20;

const ACCEPTED = new Set(["sent", "unknown", "not-sent", "raised"]);
const accepted = (record) => ACCEPTED.has(record.kind) && (!record.would_drop || record.reason === "superseded");

function choose(records) {
	const tokens = new Set();
	const events = [];
	for (const record of records.toReversed()) {
		const known = record.token === undefined || tokens.has(record.token);
		if (record.kind === "resolved" || (record.token === undefined && record.kind !== "reset")) {
			continue;
		}
		if (events.length === EVENTS_MAX || (!known && tokens.size === LANES_MAX)) {
			break;
		}
		if (record.token !== undefined && record.kind !== "reset") {
			tokens.add(record.token);
		}
		events.unshift(record);
	}
	return { events, tokens: [...tokens].sort((left, right) => (higher(left, right) ? 1 : -1)) };
}

/* For each event the token that held the fence after it; undefined after a reset. */
function holders(events) {
	let holder;
	return events.map((record) => {
		if (record.kind === "reset") {
			holder = undefined;
		} else {
			const shown = accepted(record) ? record.token : record.highest;
			holder = shown !== undefined && (holder === undefined || higher(shown, holder)) ? shown : holder;
		}
		return holder;
	});
}

function scale(events, tokens) {
	const left = 34 + DIGIT * Math.max(...tokens.map((text) => text.length));
	const step = Math.min(STEP_MAX, Math.max(STEP_MIN, WIDE / events.length));
	return { left, width: left + (events.length + 0.5) * step, across: (at) => left + at * step + STEP_MIN / 2 };
}

const line = (name, x1, x2, y1, y2) => svg(`line.${name}`, { x1, x2, y1, y2 });

const down = (lane) => TOP + lane * LANE + LANE / 2;

function laneLines(events, tokens, held, lane, across) {
	const own = events.map((record, at) => (record.token === tokens[lane] && record.kind !== "reset" ? at : -1))
								.filter((at) => at >= 0);
	const y = down(lane);
	return [
		line("seen", across(own[0]), across(own.at(-1)), y, y),
		held.map((token, at) => token === tokens[lane] && line("holds", across(at), across(at + 1), y, y))
	];
}

function takeovers(tokens, held, height, across) {
	return held.flatMap((holder, at) => {
		const earlier = held[at - 1];
		if (at === 0 || holder === earlier) {
			return [];
		}
		if (holder === undefined) {
			return line("reset", across(at), across(at), TOP, height);
		}
		const from = tokens.indexOf(earlier);
		const to = tokens.indexOf(holder);
		return from < 0 || to < 0 ? [] : line("takeover", across(at), across(at), down(from), down(to));
	});
}

function mark(record, at, tokens, across) {
	const lane = record.kind === "reset" ? -0.5 : tokens.indexOf(record.token);
	return svg("g", { class: `mark is-${record.kind}`, transform: `translate(${across(at)} ${down(lane)})` },
		svg("title",
			[record.time, KINDS[record.kind]?.label ?? record.kind, record.reason, record.method, record.path].join(" ")),
		svg("circle", { r: 10 }), svg("text", { "text-anchor": "middle", y: 4 }, KINDS[record.kind]?.glyph ?? "·"));
}

/* `records` oldest first. Nothing where there are fewer than two events. */
export function lanes(records, highest) {
	const { events, tokens } = choose(records);
	if (events.length < 2 || tokens.length === 0) {
		return [];
	}
	const held = holders(events);
	const { left, width, across } = scale(events, tokens);
	const height = TOP + tokens.length * LANE + 8;
	const labels = tokens.map((text, lane) => svg("text", {
		class: text === highest ? "lane-name highest" : "lane-name",
		x: left - 10,
		y: down(lane) + 4,
		"text-anchor": "end"
	},
															text));
	const picture = svg("svg.lanes", {
		role: "img",
		width,
		height,
		viewBox: `0 0 ${width} ${height}`,
		"aria-label":
			`Lanes of ${tokens.length === 1 ? "token" : "tokens"} ${tokens.join(", ")}; the lists below say the same`
	},
		tokens.map((_, lane) => laneLines(events, tokens, held, lane, across)), takeovers(tokens, held, height, across),
		labels, events.map((record, at) => mark(record, at, tokens, across)));
	const shown = new Set(events.map((record) => record.kind));
	return [
		el("div.scroll.picture", { tabindex: "0", role: "region", "aria-label": "Tokens in the order of their calls" },
			picture),
		el("p.legend.faint", Object.keys(KINDS).filter((kind) => shown.has(kind)).map((kind) => kindMark(kind)),
			el("span.key-holds", "holds the fence"), " oldest on the left")
	];
}
