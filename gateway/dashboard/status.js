/*
 * How the gateway is: ready or not, what is wrong, and how near it is to its limits.
 */

import {el, timeOf} from "./dom.js";
import {bytes, grouped, lasting} from "./words.js";

const STATES = {
  "ready": { text: "Ready", glyph: "\u25CF" },
  "not-ready": { text: "Not ready", glyph: "\u25B2" },
  "shutting-down": { text: "Shutting down", glyph: "\u25BC" },
};
const NEARLY = 0.8;

/* Where to look further. */
function alarmLink(alarm) {
  const route = alarm.route === undefined ? {} : { route: alarm.route };
  const links = {
    "in-doubt": ["#/in-doubt", "Effects in doubt"],
    "token-regression": [`#/?${new URLSearchParams({...route, reason: "stale-token" })}`, "Stale calls"],
    "clock-like-token": [`#/?${new URLSearchParams(route)}`, "Records"],
  };
  const link = links[alarm.name];
  return link === undefined ? [] : [" ", el("a", { href: link[0] }, link[1])];
}

function alarmItem(alarm) {
  const place = alarm.route === undefined ? "" : ` on ${alarm.route}`;
  return el("li", {}, el("strong", {}, alarm.name.replaceAll("-", " ")), `${place}: ${alarm.text}`, alarmLink(alarm),
    el("span", { class: "faint" }, " since ", timeOf(alarm.since, false)));
}

class Gauge {
  constructor(name, href) {
    this.value = el(href === undefined ? "span" : "a", { class: "value", href });
    this.note = el("span", { class: "faint" });
    this.level = el("div", { class: "level" });
    this.root = el("div", { class: "gauge" }, el("dt", {}, name),
      el("dd", {}, this.value, this.note, el("div", { class: "bar", "aria-hidden": "true" }, this.level)));
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
    this.gauges = {
      inFlight: new Gauge("Calls in flight"),
      connections: new Gauge("Connections"),
      buffered: new Gauge("Bodies held"),
      store: new Gauge("Store"),
      keys: new Gauge("Keys"),
      inDoubt: new Gauge("In doubt", "#/in-doubt"),
    };
    this.alarms = el("ul", { class: "alarms", "aria-label": "Alarms", role: "list" });
    this.root = el("section", { "aria-label": "State and limits" }, this.alarms,
      el("dl", { class: "gauges" }, Object.values(this.gauges).map((gauge) => gauge.root)));
  }

  update(stats) {
    const state = STATES[stats.state] ?? { text: stats.state, glyph: "\u25B2" };
    this.#showPill(stats.state, state.glyph, stats.reason ? `${state.text}: ${stats.reason}` : state.text);
    document.getElementById("version").textContent =
      `${stats.version}, up ${lasting(Date.parse(stats.time) - Date.parse(stats.started_at))}`;
    const { limits, store } = stats;
    this.gauges.inFlight.show(limits.in_flight.now, limits.in_flight.max);
    this.gauges.connections.show(limits.connections.now, limits.connections.max);
    this.gauges.buffered.show(limits.buffered_bytes.now, limits.buffered_bytes.max, bytes);
    this.gauges.store.show(store.used_bytes, store.max_bytes, bytes);
    this.gauges.keys.show(store.keys);
    this.gauges.inDoubt.show(store.in_doubt);
    this.gauges.inDoubt.root.classList.toggle("nearly", store.in_doubt > 0);
    this.#showAlarms(stats);
  }

  /* Rebuilt only when something about them changed. */
  #showAlarms(stats) {
    const seen = JSON.stringify(stats.alarms);
    if (seen !== this.seen) {
      this.seen = seen;
      this.alarms.replaceChildren(...stats.alarms.map(alarmItem));
    }
  }

  #showPill(name, glyph, text) {
    this.pill.className = `pill is-${name}`;
    if (this.pill.textContent !== glyph + text) {
      this.pill.replaceChildren(el("span", { "aria-hidden": "true" }, glyph), text);
    }
  }

  lost(words) { this.#showPill("lost", "\u25CB", words); }
}
