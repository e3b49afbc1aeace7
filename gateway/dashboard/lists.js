/*
 * The lists beside the audit: keys with their fences, and effects of which something is open. Each is a page at a time.
 */

import * as api from "./api.js";
import {button, effectLink, el, isBusy, keyLink, outside, section, storyLink, submit, table, textField, timeOf, token} from "./dom.js";
import {grouped} from "./words.js";

const PAGE = 100;
const LOOK_MS = 5000;

function row(heads, cells) {
	return el("tr", cells.map((cell, at) => el("td", { "data-head": heads[at] }, el("div", cell))));
}

class Paged {
	constructor(caption, heads, nothing) {
		this.heads = heads;
		this.nothing = nothing;
		this.body = el("tbody");
		this.note = el("p.empty", { role: "status" });
		this.moreButton = button("More", () => this.more(), { hidden: true });
		this.table = table("table.list", caption, heads, this.body);
		this.parts = [this.table, this.note, this.moreButton];
		this.turn = 0;
	}

	/* look(cursor) gives { cells: [[...]], next }. */
	async start(look) {
		this.look = look;
		this.next = undefined;
		this.loaded = false;
		this.first = true;
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
				this.first = false;
				this.body.append(...rows);
			}
			this.loaded = true;
			this.next = page.next ?? undefined;
			this.moreButton.hidden = this.next === undefined;
			this.note.textContent = this.body.children.length === 0 && page.next === null ? this.nothing : "";
			this.table.hidden = this.body.children.length === 0;
		} catch (error) {
			if (turn !== this.turn) {
				return;
			}
			api.passOn(error);
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
		const form = el("form.filter", {
			role: "search",
			"aria-label": "Find a key",
			onsubmit: submit(({ submitter }) => {
				if (submitter?.name === "open" && this.key.value !== "") {
					location.hash = storyLink(this.namespace.value || "default", this.key.value);
				} else {
					go({ prefix: this.key.value, namespace: this.namespace.value });
				}
			})
		},
			el("label.for-key", el("span", "Key, or how it begins"), this.key),
			el("label", el("span", "Namespace"), this.namespace),
			el("div.buttons", el("button.main", { name: "list" }, "List"), el("button", { name: "open" }, "Open this key")));
		this.root = section("keys-head", "Keys", [], form, this.paged.parts);
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

const EFFECTS = {
	"in-doubt": {
		head: "In doubt",
		words: "Under way when the gateway died or was forced to stop. Ask the partner, then write down what it says.",
		nothing: "No effect is in doubt.",
	},
	"unknown": {
		head: "Unknown",
		words: "Recorded as unknown, not resolved since. Here too only the partner knows.",
		nothing: "No other outcome is unknown.",
		more: "Reason",
	},
	"in-flight": {
		head: "Under way",
		words: "At the partner or waiting for their turn, on routes with ledger: effects.",
		nothing: "No such call is under way.",
		more: "Client",
	},
};

export class EffectsView {
	constructor({ onResolve }) {
		this.onResolve = onResolve;
		this.lists = Object.entries(EFFECTS).map(([state, list]) => ({
			state,
			...list,
			paged: new Paged(`${list.head}, oldest first`,
				["Since", "Effect", "Key", "Token", "Request", "Route", list.more ?? [], ""].flat(), list.nothing)
		}));
		this.root = section("effects-head", "Effects", [],
			this.lists.map(({ head, words, paged }) => el("section", { "aria-label": head },
											 el("h3", { tabindex: "-1" }, head), el("p.faint", words), paged.parts)));
	}

	/* `state` names the list to begin with. */
	async open(parameters) {
		await this.#load();
		const at = Object.keys(EFFECTS).indexOf(parameters.get("state"));
		this.root.querySelectorAll("h3")[at]?.scrollIntoView();
	}

	async #load() {
		this.due = Date.now() + LOOK_MS;
		for (const list of this.lists) {
			await list.paged.start(async (after) => {
				const page = await api.effects(list.state, { after, limit: PAGE });
				const effects = page.effects.filter((effect) => effect.reason !== "gateway-crash"); /* those are in doubt */
				return { next: page.next_after, cells: effects.map((effect) => this.#cells(effect, list)) };
			});
		}
	}

	#cells(effect, { state, more }) {
		const { id, namespace, key } = effect;
		return [
			timeOf(effect.time), effectLink(effect, id), key === undefined ? "" : keyLink(namespace, key),
			token(effect.token), [`${effect.method} `, outside(effect.path ?? "")], outside(effect.route ?? ""),
			...(more === undefined ? [] : [effect[more.toLowerCase()]]),
			state === "in-flight" ?
				"" :
				button("Resolve…", () => this.onResolve({...effect, effect_id: id }), { "aria-label": `Resolve effect ${id}` })
		];
	}

	/* Not while somebody is in a list, or has gone on to its next page. */
	async tick() {
		const free = ({ paged }) => paged.first && !isBusy(paged.table);
		if (Date.now() >= this.due && getSelection().isCollapsed && this.lists.every(free)) {
			await this.#load();
		}
	}
}
