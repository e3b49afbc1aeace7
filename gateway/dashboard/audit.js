/*
 * The audit: filtered by what stands in the page's URL, newest first, followed as it grows.
 *
 * Following asks for ids above the last one seen. A filter that nothing matches would make the gateway look through the
 * whole audit each time, so the newest id of all is asked for first and the next look starts there.
 *
 * Rows never move under somebody who reads or aims at them: new records wait behind a button meanwhile.
 */

import * as api from "./api.js";
import {announce, button, el, section, submit, textField} from "./dom.js";
import {RecordTable} from "./records.js";
import {count, grouped, higher, KINDS, REASONS} from "./words.js";

const PAGE = 100;
const ROWS_MAX = 500;
const ANNOUNCE_MS = 15000;
const HAND_MS = 3000;

const FIELDS = {
	key: ["Key", { placeholder: "whole key", dir: "auto" }],
	namespace: ["Namespace", { placeholder: "any" }],
	kind: ["What"],
	reason: ["Reason", { placeholder: "any", list: "reasons" }],
	route: ["Route", { placeholder: "any", list: "routes" }],
	since: ["From", { placeholder: "15m, 2h, 2026-11-30T10:00Z", list: "ages" }],
	until: ["Until", { placeholder: "now", list: "ages" }],
	id: ["Record or effect", { placeholder: "id", inputmode: "numeric" }],
};
const NAMES = Object.keys(FIELDS);
const FILTERS = [...NAMES, "effect_id"];

const options = (values) => values.map((value) => el("option", { value }));

function kindChoice() {
	return el("select", { name: "kind" }, el("option", { value: "" }, "all"),
		Object.entries(KINDS).map(([value, kind]) => el("option", { value }, `${kind.label} ${kind.glyph}`)));
}

function filterForm(apply) {
	const routes = el("datalist", { id: "routes" });
	const fields = Object.fromEntries(
		Object.entries(FIELDS).map(([name, [, more]]) => [name, name === "kind" ? kindChoice() : textField(name, more)]));
	const labels = Object.entries(FIELDS).map(
		([name, [label]]) => el("label", { class: `for-${name}` }, el("span", label), fields[name]));
	const form = el("form.filter", {
		role: "search",
		"aria-label": "Filter the audit",
		onsubmit: submit(() => {
			fields.id.value = fields.id.value.trim();
			apply(Object.fromEntries(NAMES.map((name) => [name, fields[name].value])));
		})
	},
		labels, el("div.buttons", el("button.main", "Filter"), button("Clear", () => apply({}))),
		el("datalist", { id: "reasons" }, options(REASONS)),
		el("datalist", { id: "ages" }, options(["15m", "1h", "6h", "1d", "7d"])), routes);
	fields.kind.addEventListener("change", () => form.requestSubmit());
	return { form, fields, routes };
}

export class AuditView {
	/* go(filter) changes the page's URL, which comes back as open(). */
	constructor({ go, offer }) {
		this.filterForm = filterForm(go);
		this.table = new RecordTable({ caption: "Audit records, newest first", withKey: true, offer });
		this.table.root.addEventListener("pointermove", () => {
			this.moved = Date.now();
		});
		this.waiting = []; /* newest first */
		this.waitingButton = button("", () => this.#showWaiting(true), { class: "main", hidden: true });
		this.state = el("span.state", { role: "status" });
		this.pauseButton = button("Pause", () => this.#pause(!this.paused), { "aria-pressed": "false" });
		this.problem = el("p.problem", { role: "alert", hidden: true });
		this.empty = el("p.empty", { hidden: true });
		this.olderButton = button("Older records", () => this.#older(), { hidden: true });
		this.root = section("audit-head", "Audit", [this.state, this.pauseButton], this.filterForm.form, this.problem,
			el("div.waiting", this.waitingButton), this.table.root, this.empty, this.olderButton);
		this.paused = false;
		this.turn = 0; /* what came for an older filter is thrown away */
		this.announced = 0;
		this.unheard = 0;
	}

	setRoutes(names) {
		const { routes } = this.filterForm;
		if (names.join("\n") !== this.routeNames) {
			this.routeNames = names.join("\n");
			routes.replaceChildren(...options(names));
		}
	}

	async open(parameters) {
		const turn = ++this.turn;
		this.filter =
			Object.fromEntries(FILTERS.filter((name) => parameters.has(name)).map((name) => [name, parameters.get(name)]));
		NAMES.forEach((name) => {
			this.filterForm.fields[name].value = this.filter[name] ?? "";
		});
		this.filterForm.fields.id.value ||= this.filter.effect_id ?? "";
		this.after = undefined;
		this.#showPaused(this.paused && !this.cut);
		await this.#load(turn);
	}

	async #load(turn) {
		try {
			const newest = await api.audit({ order: "desc", limit: 1 });
			let page = await this.#page();
			if (turn === this.turn && this.filter.id !== undefined && page.records.length === 0) {
				const { id: effect_id, ...others } = this.filter; /* records and effects are counted as one */
				this.filter = {...others, effect_id };
				history.replaceState(null, "", `#/?${new URLSearchParams(this.filter)}`);
				page = await this.#page();
			}
			if (turn !== this.turn) {
				return;
			}
			this.#clear();
			this.table.append(page.records);
			if (this.filter.id !== undefined || (this.filter.effect_id !== undefined && page.records.length === 1)) {
				this.table.open();
			}
			this.#advance(newest.records[0]?.id ?? "0", page.records[0]?.id);
			this.#showOlder(page.next_after);
			this.#showProblem(undefined);
		} catch (error) {
			this.#failed(error, turn);
		}
	}

	/* Few records are of an effect: the gateway may stop looking before it comes to them. */
	async #page() {
		const filter = {...this.filter, order: "desc", limit: PAGE };
		let page = await api.audit(filter);
		while (filter.effect_id !== undefined && page.records.length === 0 && page.next_after !== null) {
			page = await api.audit({...filter, after: page.next_after });
		}
		return page;
	}

	#advance(...ids) {
		ids.filter((id) => id !== undefined).forEach((id) => {
			this.after = this.after === undefined || higher(id, this.after) ? id : this.after;
		});
		this.#showState();
	}

	#failed(error, turn) {
		if (turn !== this.turn) {
			return;
		}
		api.passOn(error);
		this.#clear();
		this.#showOlder(null);
		this.#showProblem(error);
	}

	async tick() {
		if (this.paused || this.refused) {
			return;
		}
		const turn = this.turn;
		if (this.after === undefined) {
			await this.#load(turn);
			return;
		}
		if (this.waiting.length > 0 && this.#mayMove()) {
			this.#showWaiting();
		}
		if (this.waiting.length >= ROWS_MAX) {
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
		this.waiting.unshift(...page.records.toReversed());
		if (this.#mayMove()) {
			this.#showWaiting();
		} else {
			this.#showPill();
		}
		this.#advance(page.records.at(-1)?.id, page.next_after === null ? newest : undefined);
		this.#announceDrops(page.records.filter((record) => record.kind === "dropped").length);
	}

	/* At the page's top the hand is on its way, or rests; further down a pointer that rests on a row is about to press.
	 */
	#mayMove() {
		const { root } = this.table;
		const hand = root.matches(":hover") && (scrollY > 0 || Date.now() - this.moved < HAND_MS);
		const selected = !getSelection().isCollapsed && root.contains(getSelection().anchorNode);
		return !hand && !selected && (scrollY === 0 || root.getBoundingClientRect().top >= 0);
	}

	#showPill() {
		const most = this.waiting.length >= ROWS_MAX;
		this.waitingButton.textContent = `${grouped(most ? ROWS_MAX : this.waiting.length)}${most ? "+" : ""} new`;
		this.waitingButton.hidden = this.waiting.length === 0;
	}

	#showWaiting(asked) {
		if (this.waiting.length >= ROWS_MAX) {
			this.#again();
		} else {
			this.table.prepend(this.waiting.splice(0));
			if (this.table.trim(ROWS_MAX)) {
				this.#showOlder(this.table.oldest.id);
			}
		}
		if (asked) {
			this.root.scrollIntoView();
		}
		this.#showPill();
		this.#showState();
	}

	#clear() {
		this.waiting = [];
		this.#showPill();
		this.table.clear();
	}

	#again() { this.open(new URLSearchParams(this.filter)).catch((error) => this.#showProblem(error)); }

	/* To screen readers a storm of drops is one sentence now and then. */
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
			const page = await api.audit({...this.filter, order: "desc", after: this.next, limit: PAGE });
			if (turn === this.turn) {
				this.table.append(page.records);
				this.#showOlder(page.next_after);
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

	#showOlder(next) {
		this.next = next;
		this.olderButton.hidden = next === null;
	}

	#pause(paused) {
		if (!paused && this.cut) {
			this.#again();
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
		this.empty.textContent = this.filter.effect_id !== undefined ?
			"No record has this id or is about an effect with it. What is under way stands among the effects." :
			Object.keys(this.filter).length > 0 ? "No record matches this filter." :
																						"Nothing is on record yet. The first fenced call will show here.";
	}

	#showProblem(error) {
		this.refused = error instanceof api.Refusal;
		this.problem.hidden = error === undefined;
		this.problem.textContent = error === undefined ? "" : api.inWords(error);
		this.empty.hidden = this.empty.hidden || error !== undefined;
	}
}
