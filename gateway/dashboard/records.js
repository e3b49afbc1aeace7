/*
 * Audit records as a table: newest first, each with its details on demand.
 */

import {effectLink, el, faint, keyLink, outside, storyLink, table, timeOf, token} from "./dom.js";
import {bytes, explain, grouped, KINDS, ofStore} from "./words.js";

export function kindMark(kind, number, means = KINDS[kind]?.means) {
	const known = KINDS[kind];
	return el("span", { class: `kind ${known === undefined ? "" : "is-" + kind}`, title: means },
		el("span.glyph", { "aria-hidden": "true" }, known?.glyph ?? "·"), number === undefined ? "" : grouped(number) + " ",
		known?.label ?? kind);
}

const meaning = (record) => (ofStore(record) ? "all fences of the store" : KINDS[record.kind]?.means);

function what(record) {
	return [
		kindMark(record.kind, undefined, meaning(record)), " ", outside(record.reason ?? "", "bdi", { class: "faint" }),
		record.would_drop ? faint(" (observed)") : ""
	];
}

function tokenAndFence(record) {
	if (record.token === undefined) {
		return "";
	}
	const higherFence = record.highest !== undefined && record.highest !== record.token;
	return [token(record.token), higherFence ? [faint(" < "), token(record.highest)] : ""];
}

function request(record) {
	const target = record.target === undefined ? [] : [" to ", outside(record.target)];
	return record.path === undefined ? outside(record.note ?? "") : [record.method + " ", outside(record.path), target];
}

/* Column heads and what stands below them. On a narrow screen the head goes before each value. */
const COLUMNS = [
	{ head: "Time", show: (r) => timeOf(r.time) },
	{ head: "What", show: what },
	{
		head: "Key",
		show: (r) => (r.key === undefined ? "" : keyLink(r.namespace ?? "default", r.key)),
		class: "wide one-line",
		key: true
	},
	{ head: "Token", show: tokenAndFence },
	{ head: "Request", show: request, class: "wide request" },
	{ head: "Status", show: (r) => String(r.status ?? ""), class: "number" },
	{ head: "Route", show: (r) => outside(r.route ?? "") },
	{ head: "Client", show: (r) => r.client ?? "", class: "client" },
];

const NAMES = {
	id: "Record",
	kind: "What",
	effect_id: "Effect",
	highest: "Fence then",
	status: "Status to the client",
	upstream_status: "Status of the partner",
	request_bytes: "Request body",
	response_bytes: "Answer's body",
	duration_ms: "Took",
};
const SHOWN = {
	time: (value) => timeOf(value),
	kind: (value, record) => [kindMark(value), `: ${meaning(record) ?? ""}`],
	effect_id: (value, record) => effectLink(record, value),
	token,
	highest: token,
	id: token,
	request_bytes: bytes,
	response_bytes: bytes,
	duration_ms: (value) => `${grouped(value)} ms`,
};

function fieldList(record) {
	return el("dl.fields", Object.entries(record).map(([name, value]) => {
		const words = name.replaceAll("_", " ");
		return el("div", el("dt", NAMES[name] ?? words[0].toUpperCase() + words.slice(1)),
			el("dd", SHOWN[name]?.(value, record) ?? outside(String(value))));
	}));
}

function onward(record, offer) {
	const links = [];
	const namespace = record.namespace ?? "default";
	if (record.kind === "dropped" && record.highest !== undefined && record.highest !== record.token) {
		links.push(el("a.button", { href: storyLink(namespace, record.key, { token: record.highest }) }, "What token ",
			token(record.highest), " did"));
	}
	if (record.key !== undefined) {
		links.push(el("a.button", { href: storyLink(namespace, record.key) }, "Story of this key"));
	}
	if (record.kind === "unknown" && record.effect_id !== undefined) {
		links.push(offer(record));
	}
	return el("p.onward", links);
}

export class RecordTable {
	/* offer(record) gives what can be done about an `unknown` record's effect. */
	constructor({ caption, withKey, offer }) {
		this.columns = COLUMNS.filter((column) => withKey || column.key !== true);
		this.offer = offer;
		this.rows = []; /* newest first: { record, row, details } */
		this.body = el("tbody");
		this.root = table("table.records", caption,
			[
				...this.columns.map((column) => el("th", { scope: "col", class: column.class }, column.head)),
				el("th", { scope: "col" }, el("span.unseen", "Details"))
			],
			this.body);
	}

	/* Shows the details of the newest. */
	open() { this.rows[0]?.row.querySelector(".more").click(); }

	get oldest() { return this.rows.at(-1)?.record; }

	clear() {
		this.rows = [];
		this.body.replaceChildren();
	}

	append(records) {
		const entries = records.map((record) => this.#entry(record));
		this.rows.push(...entries);
		this.body.append(...entries.map((entry) => entry.row));
	}

	/* Records newest first, put above what is there and lit up for a moment. */
	prepend(records) {
		const entries = records.map((record) => this.#entry(record));
		entries.forEach((entry) => entry.row.classList.add("fresh"));
		this.rows.unshift(...entries);
		this.body.prepend(...entries.map((entry) => entry.row));
	}

	/* Lets go of the rows beyond `most`, at the bottom unless told otherwise. */
	trim(most, atTop = false) {
		const surplus = this.rows.length - most;
		if (surplus > 0) {
			const gone = atTop ? this.rows.splice(0, surplus) : this.rows.splice(most);
			gone.forEach((entry) => {
				entry.row.remove();
				entry.details?.remove();
			});
		}
		return surplus > 0;
	}

	#entry(record) {
		const entry = { record };
		const button = el("button", {
			type: "button",
			class: "more",
			"aria-expanded": "false",
			"aria-label": `Details of record ${record.id}`,
			onclick: () => this.#toggle(entry, button)
		},
			"⋯");
		const cells = this.columns.map(
			(column) => el("td", { class: column.class, "data-head": column.head }, el("div", column.show(record))));
		entry.row = el("tr", {
			class: `row is-${record.kind}`,
			"data-id": record.id,
			onclick: (event) => this.#rowClicked(event, entry, button)
		},
			cells, el("td.last", button));
		return entry;
	}

	/* The whole row opens with the mouse; selecting text in it, or following a link, does not. */
	#rowClicked(event, entry, button) {
		if (event.target.closest("a, button") === null && getSelection().isCollapsed) {
			this.#toggle(entry, button);
		}
	}

	#toggle(entry, button) {
		const open = entry.details === undefined;
		if (open) {
			entry.details = el("tr.details",
				el("td", { colspan: String(this.columns.length + 1) }, el("p.why", explain(entry.record)),
					onward(entry.record, this.offer), fieldList(entry.record)));
			entry.row.after(entry.details);
		} else {
			entry.details.remove();
			entry.details = undefined;
		}
		entry.row.classList.toggle("open", open);
		button.setAttribute("aria-expanded", String(open));
	}
}
