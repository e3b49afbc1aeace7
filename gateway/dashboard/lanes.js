/*
 * A key's records as a picture: a lane for each token, time from left to right in the order of writing. The token that
 * holds the fence has the thick line; a takeover steps down to the next lane, and a late call stands out above it.
 *
 * For the eye only: the words above it and the lists below it say the same.
 */

import {el, svg} from "./dom.js";
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

/* The newest events of at most LANES_MAX tokens, oldest first. */
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
    } else if (ACCEPTED.has(record.kind) && (holder === undefined || higher(record.token, holder))) {
      holder = record.token;
    } else if (record.kind === "dropped" && holder === undefined && record.highest !== undefined) {
      holder = record.highest;
    }
    return holder;
  });
}

/* Where the at-th event stands; few events are set further apart. */
function scale(events, tokens) {
  const left = 34 + DIGIT * Math.max(...tokens.map((text) => text.length));
  const step = Math.min(STEP_MAX, Math.max(STEP_MIN, WIDE / events.length));
  return { left, width: left + (events.length + 0.5) * step, across: (at) => left + at * step + STEP_MIN / 2 };
}

const down = (lane) => TOP + lane * LANE + LANE / 2;

function laneLines(events, tokens, held, lane, across) {
  const own = events.map((record, at) => (record.token === tokens[lane] && record.kind !== "reset" ? at : -1))
                .filter((at) => at >= 0);
  const lines =
    [svg("line", { class: "seen", x1: across(own[0]), x2: across(own.at(-1)), y1: down(lane), y2: down(lane) })];
  for (let at = 0; at < held.length; at++) {
    if (held[at] === tokens[lane]) {
      lines.push(svg("line", { class: "holds", x1: across(at), x2: across(at + 1), y1: down(lane), y2: down(lane) }));
    }
  }
  return lines;
}

function takeovers(tokens, held, height, across) {
  return held.flatMap((holder, at) => {
    const earlier = held[at - 1];
    if (at === 0 || holder === earlier) {
      return [];
    }
    if (holder === undefined) {
      return [svg("line", { class: "reset", x1: across(at), x2: across(at), y1: TOP, y2: height })];
    }
    const from = tokens.indexOf(earlier);
    const to = tokens.indexOf(holder);
    return from < 0 || to < 0 ?
      [] :
      [svg("line", { class: "takeover", x1: across(at), x2: across(at), y1: down(from), y2: down(to) })];
  });
}

function mark(record, at, tokens, across) {
  const lane = record.kind === "reset" ? -0.5 : tokens.indexOf(record.token);
  return svg("g", { class: `mark is-${record.kind}`, transform: `translate(${across(at)} ${down(lane)})` },
    svg("title", {},
      `${record.time} ${KINDS[record.kind]?.label ?? record.kind} ${record.reason ?? ""} ${record.method ?? ""} ${
        record.path ?? ""}`),
    svg("circle", { r: 10 }), svg("text", { "text-anchor": "middle", y: 4 }, KINDS[record.kind]?.glyph ?? "\u00B7"));
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
  const picture = svg("svg", {
    class: "lanes",
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
    el("div",
      { class: "scroll picture", tabindex: "0", role: "region", "aria-label": "Tokens in the order of their calls" },
      picture),
    el("p", { class: "legend faint" }, Object.entries(KINDS).filter(([kind]) => shown.has(kind)).map(([kind,
      words]) => el("span", { class: `kind is-${kind}` }, el("span", { class: "glyph" }, words.glyph), words.label)),
      el("span", { class: "key-holds" }, "holds the fence"), " oldest on the left")
  ];
}
