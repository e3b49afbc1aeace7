/*
 * The story of one key: who held it, who took over from whom, which late calls were dropped, and what may be done.
 */

import * as api from "./api.js";
import {raise, reset} from "./change.js";
import {el, isBusy, outside, storyLink, timeOf, token} from "./dom.js";
import {lanes} from "./lanes.js";
import {kindMark, RecordTable} from "./records.js";
import {before, count, grouped, higher, KINDS, lasting} from "./words.js";

const TOKENS = 100;
const RECORDS = 200;
const TAKEOVERS_TOLD = 5;
const LOOK_MS = 5000;

const COUNTS = [
  ["sent", "sent"], ["dropped", "dropped"], ["unknown", "unknown"], ["not_sent", "not-sent"], ["rejected", "rejected"],
  ["resolved", "resolved"]
];

const late = (entry) => (entry.reasons?.["stale-token"] ?? 0) + (entry.reasons?.superseded ?? 0);

/* How many resets came after this token: tokens on two sides of a reset have nothing to do with each other. */
const era = (entry) => entry.resets_since ?? 0;

/* Each accepted token with the one that it took over from, newest first. */
function takeoversOf(history) {
  const accepted = history.tokens.filter((entry) => entry.accepted !== undefined);
  return accepted.slice(1)
    .map((entry, at) => ({ entry, from: accepted[at] }))
    .filter(({ entry, from }) => era(entry) === era(from))
    .reverse();
}

function did(entry) {
  const parts = [
    ...COUNTS.map(([name, kind]) => [entry[name], KINDS[kind].label]), [entry.in_flight, "in flight"],
    [entry.waiting, "waiting"]
  ];
  const said = parts.filter(([number]) => number > 0).map(([number, word]) => `${count(number, "call")} ${word}`);
  return said.length === 0 ? "no call" : said.join(", ");
}

function takeoverItem({ entry, from }) {
  const drops = late(from);
  return el("li", {}, "Token ", token(entry.token), " took over from ", token(from.token),
    entry.accepted.by === undefined ? " before " : " at ", timeOf(entry.accepted.time),
    entry.accepted.by === "raise" ? " by a raise" : "", "; ",
    drops === 0 ? ["no call of token ", token(from.token), " was dropped after that. "] :
                  el("strong", { class: "is-dropped" }, `${count(drops, "call")} of token `, token(from.token),
                    ` ${drops === 1 ? "was" : "were"} dropped after that. `),
    "Token ", token(entry.token), ": ", did(entry), ".");
}

function resetItem(reset) {
  return el("li", {}, "The fence was reset at ", timeOf(reset.time), ", when it stood at ", token(reset.highest),
    reset.reason === undefined ? "." : [": ", outside(reset.reason)]);
}

function summary(history) {
  const told = takeoversOf(history);
  const items = [...told.slice(0, TAKEOVERS_TOLD).map(takeoverItem), ...history.resets.map(resetItem)];
  if (told.length > TAKEOVERS_TOLD) {
    items.push(el("li", { class: "faint" }, `${count(told.length - TAKEOVERS_TOLD, "earlier takeover")} below.`));
  }
  if (items.length === 0) {
    items.push(el("li", {}, "No token has taken over from another here."));
  }
  return el("ul", { class: "summary" }, items);
}

function acceptedWords(accepted) {
  if (accepted === undefined) {
    return "no acceptance on record";
  }
  const by = { call: " by a call", raise: " by a raise" }[accepted.by] ?? " or before";
  return [
    "accepted ", timeOf(accepted.time), by, accepted.client === undefined ? "" : ` from ${accepted.client}`,
    accepted.by === "raise" && accepted.reason !== undefined ? [": ", outside(accepted.reason)] : ""
  ];
}

function countMarks(entry) {
  const marks = COUNTS.filter(([name]) => entry[name] > 0).map(([name, kind]) => kindMark(kind, entry[name]));
  const live = [[entry.in_flight, "in flight"], [entry.waiting, "waiting"], [entry.in_doubt, "in doubt"]]
                 .filter(([number]) => number > 0)
                 .map(([number, word]) => el("span", {}, el("strong", {}, grouped(number)), ` ${word}`));
  return el("div", { class: "counts" }, marks, live);
}

function tokenItem(entry, history, at) {
  const holds = entry.token === history.highest && era(entry) === 0;
  const next = history.tokens.slice(at + 1).find((other) => other.accepted !== undefined && era(other) === era(entry));
  const reasons =
    Object.entries(entry.reasons ?? {}).map(([reason, number]) => `${grouped(number)} ${reason}`).join(", ");
  return el("li", { class: holds ? "holds" : "passed" },
    el("div", { class: "token-head" },
      el("a", {
        class: "token",
        href: storyLink(history.namespace, history.key, { token: entry.token }),
        title: "Its records"
      },
        entry.token),
      holds ? el("span", { class: "badge" }, "holds the fence") : "", countMarks(entry)),
    el("div", { class: "faint" }, acceptedWords(entry.accepted),
      entry.last_seen === null ? "" : ["; last seen ", timeOf(entry.last_seen)],
      late(entry) > 0 && next !== undefined && entry.last_seen !== null &&
          Date.parse(entry.last_seen) > Date.parse(next.accepted.time) ?
        `, ${lasting(Date.parse(entry.last_seen) - Date.parse(next.accepted.time))} after ${next.token} took over` :
        "",
      reasons === "" ? "" : ` (${reasons})`,
      era(entry) > 0 ? `; before ${era(entry) === 1 ? "a reset" : `${era(entry)} resets`}` : ""));
}

export class StoryView {
  constructor({ onResolve }) {
    this.onResolve = onResolve;
    this.root = el("section", { class: "story", "aria-labelledby": "story-head" });
    this.turn = 0;
  }

  async open(parameters, [namespace, key]) {
    const sameKey = this.namespace === namespace && this.key === key;
    this.namespace = namespace;
    this.key = key;
    this.only = { token: parameters.get("token"), effect: parameters.get("effect") };
    if (sameKey && this.history !== undefined) {
      this.#show();
    } else {
      this.history = undefined;
      this.#render(this.#head(), el("p", { class: "faint" }, "Looking it up\u2026"));
    }
    await this.load();
  }

  async load() {
    const turn = ++this.turn;
    this.due = Date.now() + LOOK_MS;
    try {
      const history = await api.history(this.namespace, this.key, TOKENS);
      const page = await api.audit({ namespace: this.namespace, key: this.key, order: "desc", limit: RECORDS });
      if (turn === this.turn) {
        this.history = history;
        this.records = page.records;
        this.next = page.next_after;
        this.#show();
      }
    } catch (error) {
      if (turn !== this.turn) {
        return;
      }
      if (!(error instanceof api.Refusal) || error.status === 401) {
        throw error;
      }
      this.history = error.status === 404 ? null : undefined;
      this.refused = true;
      this.#render(this.#head(),
        error.status === 404 ?
          el("p", { class: "empty" }, "This key has neither a fence nor a record nor a call in flight. ",
            el("button", { type: "button", onclick: () => this.load() }, "Look again")) :
          el("p", { class: "problem", role: "alert" }, api.inWords(error)));
    }
  }

  /* What is new is offered, not pushed in: somebody may be reading. */
  async tick() {
    if (this.history === undefined && !this.refused) {
      await this.load();
    } else if (this.history && Date.now() >= this.due) {
      this.due = Date.now() + LOOK_MS;
      const turn = this.turn;
      const history = await api.history(this.namespace, this.key, TOKENS);
      if (turn === this.turn && JSON.stringify(history) !== JSON.stringify(this.history)) {
        this.news.hidden = false;
      }
    }
  }

  /* Whoever was in what is replaced is taken to the head of the new. */
  #render(...parts) {
    const inside = isBusy(this.root);
    this.root.replaceChildren(...parts);
    if (inside) {
      this.root.querySelector("h2").focus({ preventScroll: true });
    }
  }

  #head() {
    const again = () => this.load();
    return el("div", { class: "section-head" },
      el("h2", { id: "story-head", tabindex: "-1" }, el("span", { class: "faint" }, "Key "),
        outside(this.key, "bdi", { class: "key" }),
        this.namespace === "default" ? "" : el("span", { class: "faint" }, ` in ${this.namespace}`)),
      el("button", { type: "button", onclick: () => raise(this.namespace, this.key, again) }, "Raise\u2026"),
      el("button", { type: "button", onclick: () => reset(this.namespace, this.key, again) }, "Reset\u2026"));
  }

  #show() {
    const { history } = this;
    this.refused = false;
    this.news = el("p", { class: "news", role: "status", hidden: true }, "This key has changed since. ",
      el("button", { type: "button", onclick: () => this.load() }, "Show"));
    const facts = el("p", { class: "facts" },
      history.highest === null ? "No fence. " :
                                 [
                                   "Fence at ", el("strong", {}, token(history.highest)),
                                   history.updated_at !== null ? [" since ", timeOf(history.updated_at)] : "", ". "
                                 ],
      history.in_flight > 0 ? `${count(history.in_flight, "call")} in flight. ` : "",
      `${count(history.records, "record")}.`,
      history.complete ? "" : ` Records before ${history.oldest_audit_id} were not looked at.`);
    const story = [
      el("section", { "aria-label": "What happened" }, summary(history),
        lanes(this.records.toReversed(), history.highest)),
      el("section", { "aria-labelledby": "tokens-head" }, el("h3", { id: "tokens-head" }, "Tokens, newest first"),
        history.more_tokens ?
          el("p", { class: "faint" },
            `Only the ${count(history.tokens.length, "highest token", "highest tokens")} are shown.`) :
          "",
        el("ol", { class: "tokens", role: "list" },
          history.tokens.map((entry, at) => tokenItem(entry, history, at)).reverse()))
    ];
    const records = this.#recordSection();
    const chosen = this.only.token !== null || this.only.effect !== null;
    this.#render(this.#head(), this.news, facts, ...(chosen ? [records, ...story] : [...story, records]));
  }

  #recordSection() {
    const { token: only, effect } = this.only;
    const fits = (record) =>
      (only === null || record.token === only) && (effect === null || record.effect_id === effect);
    const head = only !== null ? ["What token ", token(only), " did"] :
      effect !== null          ? ["Effect ", token(effect)] :
                                 "Records";
    const table =
      new RecordTable({ caption: "Records of this key, newest first", withKey: false, onResolve: this.onResolve });
    table.append(this.records.filter(fits));
    const note = el("p", { class: "empty" }, "No such record among those looked at.");
    note.hidden = table.rows.length > 0;
    const doubt = el("p", { class: "doubt" });
    if (effect !== null) {
      this.#showDoubt(effect, doubt);
    }
    const older =
      el("button", { type: "button", onclick: () => this.#older(table, fits, older, note) }, "Older records");
    older.hidden = this.next === null;
    return el("section", { "aria-labelledby": "records-head" },
      el("div", { class: "section-head" }, el("h3", { id: "records-head" }, head),
        only === null && effect === null ? "" : el("a", { href: storyLink(this.namespace, this.key) }, "All records")),
      doubt, table.root, note, older);
  }

  /* Is the effect in doubt? The list of those can be asked for one alone. */
  async #showDoubt(effect, place) {
    try {
      const found = (await api.effects({ after: before(effect), limit: 1 })).effects[0];
      if (found?.id === effect) {
        place.append("This effect is in doubt: the gateway stopped while it was under way. ",
          el("button", { type: "button", onclick: () => this.onResolve({...found, effect_id: found.id }) },
            "Resolve\u2026"));
      }
    } catch (error) {
      place.append(api.inWords(error));
    }
  }

  async #older(table, fits, button, note) {
    button.disabled = true;
    try {
      const page =
        await api.audit({ namespace: this.namespace, key: this.key, order: "desc", after: this.next, limit: RECORDS });
      table.append(page.records.filter(fits));
      this.next = page.next_after;
      button.hidden = this.next === null;
      note.hidden = table.rows.length > 0;
    } catch (error) {
      note.hidden = false;
      note.textContent = api.inWords(error);
    } finally {
      button.disabled = false;
    }
  }
}
