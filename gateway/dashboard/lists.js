/*
 * The two lists beside the audit: keys with their fences, and effects in doubt. Each is a page at a time.
 */

import * as api from "./api.js";
import {el, keyLink, outside, storyLink, textField, timeOf, token} from "./dom.js";
import {grouped} from "./words.js";

const PAGE = 100;

function table(caption, heads, body) {
  return el("table", { class: "list" }, el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), body);
}

function row(heads, cells) {
  return el("tr", {}, cells.map((cell, at) => el("td", { "data-head": heads[at] }, el("div", {}, cell))));
}

/* What the two have in common: pages that are appended, words where there is nothing, problems in words. */
class Paged {
  constructor(caption, heads, nothing) {
    this.heads = heads;
    this.nothing = nothing;
    this.body = el("tbody");
    this.note = el("p", { class: "empty", role: "status" });
    this.moreButton = el("button", { type: "button", hidden: true, onclick: () => this.more() }, "More");
    this.table = table(caption, heads, this.body);
    this.parts = [this.table, this.note, this.moreButton];
    this.turn = 0;
  }

  /* look(cursor) gives { cells: [[...]], next }. */
  async start(look) {
    this.look = look;
    this.next = undefined;
    this.loaded = false;
    await this.more();
  }

  async more() {
    const turn = ++this.turn;
    try {
      const page = await this.look(this.next);
      if (turn !== this.turn) {
        return;
      }
      const rows = page.cells.map((cells) => row(this.heads, cells));
      if (this.next === undefined) {
        this.body.replaceChildren(...rows);
      } else {
        this.body.append(...rows);
      }
      this.loaded = true;
      this.next = page.next ?? undefined;
      this.moreButton.hidden = this.next === undefined;
      this.note.textContent = this.body.children.length === 0 ? this.nothing : "";
      this.table.hidden = this.body.children.length === 0;
    } catch (error) {
      if (turn !== this.turn) {
        return;
      }
      if (!(error instanceof api.Refusal) || error.status === 401) {
        throw error;
      }
      this.loaded = true;
      this.note.textContent = api.inWords(error);
    }
  }
}

export class KeysView {
  constructor({ go }) {
    this.key = textField("key", { dir: "auto", placeholder: "order-17" });
    this.namespace = textField("namespace", { placeholder: "default" });
    this.paged =
      new Paged("Keys with a fence", ["Key", "Fence", "Since", "In flight"], "No key with a fence begins like this.");
    const form = el("form", {
      class: "filter",
      role: "search",
      "aria-label": "Find a key",
      onsubmit: (event) => {
        event.preventDefault();
        if (event.submitter?.name === "open" && this.key.value !== "") {
          location.hash = storyLink(this.namespace.value || "default", this.key.value);
        } else {
          go({ prefix: this.key.value, namespace: this.namespace.value });
        }
      }
    },
      el("label", { class: "for-key" }, el("span", {}, "Key, or how it begins"), this.key),
      el("label", {}, el("span", {}, "Namespace"), this.namespace),
      el("div", { class: "buttons" }, el("button", { class: "main", name: "list" }, "List"),
        el("button", { name: "open" }, "Open this key")));
    this.root = el("section", { "aria-labelledby": "keys-head" },
      el("div", { class: "section-head" }, el("h2", { id: "keys-head", tabindex: "-1" }, "Keys")), form,
      this.paged.parts);
  }

  async open(parameters) {
    const filter = { prefix: parameters.get("prefix") ?? "", namespace: parameters.get("namespace") ?? "" };
    this.key.value = filter.prefix;
    this.namespace.value = filter.namespace;
    await this.paged.start(async (cursor) => {
      const page = await api.fences({...filter, cursor, limit: PAGE });
      return {
        next: page.next_cursor,
        cells: page.fences.map((fence) => [keyLink(fence.namespace, fence.key), token(fence.highest),
                                 timeOf(fence.updated_at), grouped(fence.in_flight)])
      };
    });
  }

  async tick() {
    if (!this.paged.loaded) {
      await this.paged.more();
    }
  }
}

export class DoubtView {
  constructor({ onResolve }) {
    this.paged = new Paged("Effects in doubt, oldest first", ["Time", "Effect", "Key", "Token", "Request", "Route", ""],
      "No effect is in doubt.");
    this.onResolve = onResolve;
    this.root = el("section", { "aria-labelledby": "doubt-head" },
      el("div", { class: "section-head" }, el("h2", { id: "doubt-head", tabindex: "-1" }, "In doubt")),
      el("p", { class: "faint" },
        "Calls that were under way when the gateway died or was forced to stop. Their bytes may have reached the partner: ask it, then write down what it says."),
      this.paged.parts);
  }

  async open() {
    await this.paged.start(async (after) => {
      const page = await api.effects({ after, limit: PAGE });
      return { next: page.next_after, cells: page.effects.map((effect) => this.#cells(effect)) };
    });
  }

  #cells(effect) {
    const link =
      el("a", { class: "token", href: storyLink(effect.namespace, effect.key, { effect: effect.id }) }, effect.id);
    const button = el("button", {
      type: "button",
      "aria-label": `Resolve effect ${effect.id}`,
      onclick: () => this.onResolve({...effect, effect_id: effect.id })
    },
      "Resolve\u2026");
    return [
      timeOf(effect.time), link, keyLink(effect.namespace, effect.key), token(effect.token),
      [`${effect.method} `, outside(effect.path)], outside(effect.route), button
    ];
  }

  async tick() {
    if (!this.paged.loaded) {
      await this.open();
    }
  }
}
