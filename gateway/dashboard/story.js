/*
 * The story of one key: who held it, who took over from whom, which late calls were dropped, and what may be done.
 */

import * as api from "./api.js";
import {raise, reset} from "./change.js";
import {button, el, faint, isBusy, outside, storyLink, timeOf, token} from "./dom.js";
import {lanes} from "./lanes.js";
import {kindMark, RecordTable} from "./records.js";
import {before, count, grouped, higher, KINDS, lasting} from "./words.js";

const TOKENS = 100;
const RECORDS = 200;
const TAKEOVERS_TOLD = 5;
const LOOK_MS = 5000;
const DROPS = 5;

/* [kind, number], of those that there are. */
const countsOf = (entry) => ["sent", "dropped", "unknown", "not-sent", "rejected", "resolved"]
															.map((kind) => [kind, entry[kind.replace("-", "_")]])
															.filter(([, number]) => number > 0);

const OPEN = {
	"in-doubt": "This effect is in doubt: the gateway stopped while it was under way. ",
	"unknown": "This effect's outcome is not known. ",
	"in-flight": "This effect is under way.",
};

const late = (entry) => (entry.reasons?.["stale-token"] ?? 0) + (entry.reasons?.superseded ?? 0);

/* How many resets came after this token: tokens on two sides of a reset have nothing to do with each other. */
const era = (entry) => entry.resets_since ?? 0;

function takeoversOf(history) {
	const accepted = history.tokens.filter((entry) => entry.accepted !== undefined);
	return accepted.slice(1)
		.map((entry, at) => ({ entry, from: accepted[at] }))
		.filter(({ entry, from }) => era(entry) === era(from))
		.reverse();
}

function did(entry) {
	const parts = [
		...countsOf(entry).map(([kind, number]) => [KINDS[kind].label, number]), ["in flight", entry.in_flight],
		["waiting", entry.waiting]
	];
	const said = parts.filter(([, number]) => number > 0);
	return said.map(([word, number]) => `${count(number, "call")} ${word}`).join(", ") || "no call";
}

const BY = {
	call: " by a call",
	raise: " by a raise",
	restore: " by a restore"
};

function takeoverItem({ entry, from }) {
	const drops = late(from);
	return el("li", "Token ", token(entry.token), " took over from ", token(from.token),
		entry.accepted.by === undefined ? " before " : " at ", timeOf(entry.accepted.time),
		BY[entry.accepted.by === "call" ? undefined : entry.accepted.by] ?? "", "; ",
		drops === 0 ? ["no call of token ", token(from.token), " was dropped after that. "] :
									el("strong.is-dropped", `${count(drops, "call")} of token `, token(from.token),
										` ${drops === 1 ? "was" : "were"} dropped after that. `),
		"Token ", token(entry.token), ": ", did(entry), ".");
}

function resetItem(reset) {
	return el("li", "The fence was reset at ", timeOf(reset.time), ", when it stood at ", token(reset.highest),
		reset.reason === undefined ? "." : [": ", outside(reset.reason)]);
}

function summary(history) {
	const told = takeoversOf(history);
	const parts = [
		...told.slice(0, TAKEOVERS_TOLD).map((takeover) => [era(takeover.entry), takeoverItem(takeover)]),
		...history.resets.toReversed().map((reset, at) => [at + 0.5, resetItem(reset)])
	];
	const items = parts.sort(([left], [right]) => left - right).map(([, item]) => item); /* newest first */
	if (told.length > TAKEOVERS_TOLD) {
		items.push(el("li.faint", `${count(told.length - TAKEOVERS_TOLD, "earlier takeover")} below.`));
	}
	if (items.length === 0) {
		items.push(el("li", "No token has taken over from another here."));
	}
	return el("ul.summary", items);
}

function acceptedWords({ accepted, in_flight, waiting }) {
	if (accepted === undefined) {
		return in_flight > 0 || waiting > 0 ? "under way" : "no acceptance on record";
	}
	return [
		"accepted ", timeOf(accepted.time), BY[accepted.by] ?? " or before",
		accepted.client === undefined ? "" : ` from ${accepted.client}`,
		accepted.by === "raise" && accepted.reason !== undefined ? [": ", outside(accepted.reason)] : ""
	];
}

function countMarks(entry) {
	const others = [
		[entry.in_flight, "in flight"], [entry.waiting, "waiting"], [entry.in_doubt, "in doubt"],
		[entry.would_drop, "would have been refused"]
	];
	return el("div.counts", countsOf(entry).map(([kind, number]) => kindMark(kind, number)),
		others.filter(([number]) => number > 0).map(([number,
			word]) => el("span", el("strong", grouped(number)), ` ${word}`)));
}

function tokenItem(entry, history, at) {
	const holds = entry.token === history.highest && era(entry) === 0;
	const next = history.tokens.slice(at + 1).find((other) => other.accepted !== undefined && era(other) === era(entry));
	const reasons = Object.entries(entry.reasons).map(([reason, number]) => `${grouped(number)} ${reason}`).join(", ");
	const after =
		late(entry) > 0 && next !== undefined ? Date.parse(entry.last_seen) - Date.parse(next.accepted.time) : 0;
	return el("li", { class: holds ? "holds" : "passed" },
		el("div.token-head",
			el("a.token", { href: storyLink(history.namespace, history.key, { token: entry.token }) }, entry.token),
			holds ? el("span.badge", "holds the fence") : "", countMarks(entry)),
		el("div.faint", acceptedWords(entry), entry.last_seen === null ? "" : ["; last seen ", timeOf(entry.last_seen)],
			after > 0 ? `, ${lasting(after)} after ${next.token} took over` : "", reasons === "" ? "" : ` (${reasons})`,
			era(entry) > 0 ? `; before ${era(entry) === 1 ? "a reset" : `${era(entry)} resets`}` : ""));
}

export class StoryView {
	constructor({ offer }) {
		this.offer = offer;
		this.root = el("section.story", { "aria-labelledby": "story-head" });
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
			this.#render(this.#head(), el("p.faint", "Looking it up…"));
		}
		await this.load();
	}

	#query(after) { return { namespace: this.namespace, key: this.key, order: "desc", after, limit: RECORDS }; }

	async load() {
		const turn = ++this.turn;
		this.due = Date.now() + LOOK_MS;
		try {
			const history = await api.history(this.namespace, this.key, TOKENS);
			const page = await api.audit(this.#query());
			const drops = await api.audit({...this.#query(), kind: "dropped", limit: DROPS });
			if (turn === this.turn) {
				this.history = history;
				this.records = page.records;
				this.next = page.next_after;
				this.drops = drops.records;
				this.#show();
			}
		} catch (error) {
			if (turn !== this.turn) {
				return;
			}
			api.passOn(error);
			this.history = error.status === 404 ? null : undefined;
			this.refused = true;
			this.#render(this.#head(),
				error.status === 404 ? el("p.empty", "This key has neither a fence nor a record nor a call in flight. ",
																 button("Look again", () => this.load())) :
															 el("p.problem", { role: "alert" }, api.inWords(error)));
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
		return el("div.section-head",
			el("h2", { id: "story-head", tabindex: "-1" }, faint("Key "), outside(this.key, "bdi", { class: "key" }),
				this.namespace === "default" ? "" : faint(` in ${this.namespace}`)),
			api.canAsk(this.namespace, this.key) && [
				button("Raise…", () => raise(this.namespace, this.key, again)),
				button("Reset…", () => reset(this.namespace, this.key, again))
			]);
	}

	#show() {
		const { history } = this;
		this.refused = false;
		this.news =
			el("p.news", { role: "status", hidden: true }, "This key has changed since. ", button("Show", () => this.load()));
		const facts = el("p.facts",
			history.highest === null ? "No fence. " :
																 [
																	 "Fence at ", el("strong", token(history.highest)),
																	 history.updated_at !== null ? [" since ", timeOf(history.updated_at)] : "", ". "
																 ],
			history.in_flight > 0 ? `${count(history.in_flight, "call")} in flight. ` : "",
			`${count(history.records, "record")}.`,
			history.oldest_audit_id === undefined ? "" : ` Records before ${history.oldest_audit_id} were not looked at.`,
			history.removed_audit_id === undefined ? "" : ` Records up to ${history.removed_audit_id} are no longer kept.`);
		const chosen = this.only.token !== null || this.only.effect !== null;
		const story = [
			el("section", { "aria-label": "What happened" }, summary(history), chosen ? "" : this.#newestDrops(),
				lanes(this.records.toReversed(), history.highest)),
			el("section", { "aria-labelledby": "tokens-head" }, el("h3", { id: "tokens-head" }, "Tokens, newest first"),
				history.more_tokens ?
					el("p.faint", `Only the ${count(history.tokens.length, "highest token", "highest tokens")} are shown.`) :
					"",
				el("ol.tokens", { role: "list" }, history.tokens.map((entry, at) => tokenItem(entry, history, at)).reverse()))
		];
		const records = this.#recordSection();
		this.#render(this.#head(), this.news, facts, ...(chosen ? [records, ...story] : [...story, records]));
		this.root.querySelector(".picture")?.scrollTo(1e6, 0); /* the newest are on the right */
	}

	#newestDrops() {
		const query = new URLSearchParams({ key: this.key, namespace: this.namespace, kind: "dropped" });
		return this.drops.length === 0 ?
			"" :
			el("section", { "aria-label": "Newest drops" },
				el("div.section-head", el("h3", "Newest drops"), el("a", { href: `#/?${query}` }, "All drops of this key")),
				el("ol.summary.drops", { role: "list" },
					this.drops.map((record) => el("li", timeOf(record.time), " ",
													 el("a.is-dropped", { href: `#/?id=${record.id}` }, record.reason), " ", token(record.token),
													 record.highest === undefined ? "" : [faint(" < "), token(record.highest)],
													 ` ${record.method} `, outside(record.path ?? ""), faint(` from ${record.client}`)))));
	}

	#recordSection() {
		const { token: only, effect } = this.only;
		const fits = (record) =>
			(only === null || record.token === only) && (effect === null || record.effect_id === effect);
		const head = only !== null ? ["What token ", token(only), " did"] :
			effect !== null					 ? ["Effect ", token(effect)] :
																 "Records";
		const table = new RecordTable({ caption: "Records of this key, newest first", withKey: false, offer: this.offer });
		table.append(this.records.filter(fits));
		const note = el("p.empty", head === "Records" ? "No record." : "No such record among those looked at; see below.");
		note.hidden = table.rows.length > 0;
		const doubt = el("p.doubt");
		if (effect !== null) {
			this.#showDoubt(effect, doubt);
		}
		const older = button("Older records", () => this.#older(table, fits, older, note));
		older.hidden = this.next === null;
		return el("section", { "aria-labelledby": "records-head" },
			el("div.section-head", el("h3", { id: "records-head" }, head),
				only === null && effect === null ? "" : el("a", { href: storyLink(this.namespace, this.key) }, "All records")),
			doubt, table.root, note, older);
	}

	/* Is something open about the effect? Each list can be asked for one alone. */
	async #showDoubt(effect, place) {
		try {
			for (const [state, words] of Object.entries(OPEN)) {
				const found = (await api.effects(state, { after: before(effect), limit: 1 })).effects[0];
				if (found?.id === effect) {
					place.append(words, state === "in-flight" ? "" : this.offer({...found, effect_id: found.id }));
					return;
				}
			}
		} catch (error) {
			place.append(api.inWords(error));
		}
	}

	async #older(table, fits, pressed, note) {
		pressed.disabled = true;
		try {
			const page = await api.audit(this.#query(this.next));
			table.append(page.records.filter(fits));
			this.next = page.next_after;
			pressed.hidden = this.next === null;
			note.hidden = table.rows.length > 0;
		} catch (error) {
			note.hidden = false;
			note.textContent = api.inWords(error);
		} finally {
			pressed.disabled = false;
		}
	}
}
