/*
 * The audit: filtered by what stands in the page's URL, newest first, followed as it grows.
 *
 * Following asks for ids above the last one seen. A filter that nothing matches would make the gateway look through the
 * whole audit each time, so the newest id of all is asked for first and the next look starts there.
 */

import * as api from "./api.js";
import {announce, el, textField} from "./dom.js";
import {RecordTable} from "./records.js";
import {count, higher, KINDS, REASONS} from "./words.js";

const PAGE = 100;
const ROWS_MAX = 500;
const ANNOUNCE_MS = 15000;
const FILTERS = ["key", "namespace", "kind", "reason", "route", "since", "until"];
const LABELS = {
  key: "Key",
  namespace: "Namespace",
  kind: "What",
  reason: "Reason",
  route: "Route",
  since: "From",
  until: "Until"
};

function kindChoice() {
  return el("select", { name: "kind" }, el("option", { value: "" }, "all"),
    Object.entries(KINDS).map(([value, kind]) => el("option", { value }, `${kind.glyph} ${kind.label}`)));
}

/* The filter as a form. apply(filter) is called with the fields that are filled in. */
function filterForm(apply) {
  const routes = el("datalist", { id: "routes" });
  const fields = {
    key: textField("key", { placeholder: "whole key", dir: "auto" }),
    namespace: textField("namespace", { placeholder: "any" }),
    kind: kindChoice(),
    reason: textField("reason", { placeholder: "any", list: "reasons" }),
    route: textField("route", { placeholder: "any", list: "routes" }),
    since: textField("since", { placeholder: "15m, 2h, 2026-11-30T10:00Z", list: "ages" }),
    until: textField("until", { placeholder: "now", list: "ages" }),
  };
  const labels =
    FILTERS.map((name) => el("label", { class: `for-${name}` }, el("span", {}, LABELS[name]), fields[name]));
  const form = el("form", {
    class: "filter",
    role: "search",
    "aria-label": "Filter the audit",
    onsubmit: (event) => {
      event.preventDefault();
      apply(Object.fromEntries(FILTERS.map((name) => [name, fields[name].value]).filter(([, value]) => value !== "")));
    }
  },
    labels,
    el("div", { class: "buttons" }, el("button", { class: "main" }, "Filter"),
      el("button", { type: "button", onclick: () => apply({}) }, "Clear")),
    el("datalist", { id: "reasons" }, REASONS.map((value) => el("option", { value }))),
    el("datalist", { id: "ages" }, ["15m", "1h", "6h", "1d", "7d"].map((value) => el("option", { value }))), routes);
  fields.kind.addEventListener("change", () => form.requestSubmit());
  return { form, fields, routes };
}

export class AuditView {
  /* go(filter) changes the page's URL, which comes back as open(). */
  constructor({ go, onResolve }) {
    this.filterForm = filterForm(go);
    this.table = new RecordTable({ caption: "Audit records, newest first", withKey: true, onResolve });
    this.state = el("span", { class: "state", role: "status" });
    this.pauseButton =
      el("button", { type: "button", "aria-pressed": "false", onclick: () => this.#pause(!this.paused) }, "Pause");
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.empty = el("p", { class: "empty", hidden: true });
    this.olderButton = el("button", { type: "button", hidden: true, onclick: () => this.#older() }, "Older records");
    this.root = el("section", { "aria-labelledby": "audit-head" },
      el("div", { class: "section-head" }, el("h2", { id: "audit-head", tabindex: "-1" }, "Audit"), this.state,
        this.pauseButton),
      this.filterForm.form, this.problem, this.table.root, this.empty, this.olderButton);
    this.paused = false;
    this.turn = 0; /* what came for an older filter is thrown away */
    this.announced = 0;
    this.unheard = 0;
  }

  setRoutes(names) {
    const { routes } = this.filterForm;
    if (names.join("\n") !== this.routeNames) {
      this.routeNames = names.join("\n");
      routes.replaceChildren(...names.map((value) => el("option", { value })));
    }
  }

  async open(parameters) {
    const turn = ++this.turn;
    this.filter =
      Object.fromEntries(FILTERS.filter((name) => parameters.has(name)).map((name) => [name, parameters.get(name)]));
    FILTERS.forEach((name) => {
      this.filterForm.fields[name].value = this.filter[name] ?? "";
    });
    this.after = undefined;
    this.#showPaused(false);
    await this.#load(turn);
  }

  async #load(turn) {
    try {
      const newest = await api.audit({ order: "desc", limit: 1 });
      const page = await api.audit({...this.filter, order: "desc", limit: PAGE });
      if (turn !== this.turn) {
        return;
      }
      this.table.clear();
      this.table.append(page.records);
      this.#advance(newest.records[0]?.id ?? "0", page.records[0]?.id);
      this.olderButton.hidden = page.next_after === null;
      this.#showProblem(undefined);
    } catch (error) {
      this.#failed(error, turn);
    }
  }

  #advance(...ids) {
    ids.filter((id) => id !== undefined).forEach((id) => {
      this.after = this.after === undefined || higher(id, this.after) ? id : this.after;
    });
    this.#showState();
  }

  /* A refused filter is shown here; a lost or forbidden connection is the page's affair. */
  #failed(error, turn) {
    if (turn !== this.turn) {
      return;
    }
    if (!(error instanceof api.Refusal) || error.status === 401) {
      throw error;
    }
    this.table.clear();
    this.olderButton.hidden = true;
    this.#showProblem(error);
  }

  /* Called every second while the page is seen. */
  async tick() {
    if (this.paused || this.refused) {
      return;
    }
    const turn = this.turn;
    if (this.after === undefined) { /* the first look failed */
      await this.#load(turn);
      return;
    }
    const newest = (await api.audit({ order: "desc", limit: 1 })).records[0]?.id;
    if (newest === undefined || turn !== this.turn || !higher(newest, this.after)) {
      return;
    }
    const page = await api.audit({...this.filter, order: "asc", after: this.after, limit: PAGE });
    if (turn !== this.turn || this.paused) {
      return;
    }
    this.table.prepend(page.records.toReversed());
    if (this.table.trim(ROWS_MAX)) {
      this.olderButton.hidden = false;
    }
    this.#advance(page.records.at(-1)?.id, page.next_after === null ? newest : undefined);
    this.#announceDrops(page.records.filter((record) => record.kind === "dropped").length);
  }

  /* Drops are told to screen readers, gathered so that a storm of them is one sentence now and then. */
  #announceDrops(drops) {
    this.unheard += drops;
    if (this.unheard > 0 && Date.now() - this.announced > ANNOUNCE_MS) {
      announce(`${count(this.unheard, "new dropped call")}.`);
      this.announced = Date.now();
      this.unheard = 0;
    }
  }

  async #older() {
    const turn = this.turn;
    this.olderButton.disabled = true;
    try {
      const page = await api.audit({...this.filter, order: "desc", after: this.table.oldest.id, limit: PAGE });
      if (turn === this.turn) {
        this.table.append(page.records);
        this.olderButton.hidden = page.next_after === null;
        if (this.table.trim(ROWS_MAX, true)) { /* what is on the page has left the newest behind */
          this.cut = true;
          this.#pause(true);
        }
        this.#showState();
      }
    } catch (error) {
      this.#showProblem(error);
    } finally {
      this.olderButton.disabled = false;
    }
  }

  #pause(paused) {
    if (!paused && this.cut) {
      this.open(new URLSearchParams(this.filter)).catch((error) => this.#showProblem(error));
      return;
    }
    this.#showPaused(paused);
    this.#showState();
  }

  #showPaused(paused) {
    this.paused = paused;
    this.cut = paused && this.cut;
    this.pauseButton.textContent = this.cut ? "Back to the newest" : paused ? "Follow" : "Pause";
    this.pauseButton.setAttribute("aria-pressed", String(paused));
  }

  #showState() {
    const rows = this.table.rows.length;
    this.state.textContent = `${this.paused ? "paused" : "following"}, ${count(rows, "record")} shown`;
    this.state.classList.toggle("live", !this.paused);
    this.empty.hidden = rows > 0;
    this.empty.textContent = Object.keys(this.filter).length > 0 ?
      "No record matches this filter." :
      "Nothing is on record yet. The first fenced call will show here.";
  }

  #showProblem(error) {
    this.refused = error instanceof api.Refusal;
    this.problem.hidden = error === undefined;
    this.problem.textContent = error === undefined ? "" : api.inWords(error);
    this.empty.hidden = this.empty.hidden || error !== undefined;
  }
}
