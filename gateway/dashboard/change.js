/*
 * What an operator may change: raise, reset, resolve. Each is a dialog of two steps, the second of which says what is
 * about to happen, with the fence as it stands then.
 */

import * as api from "./api.js";
import {announce, button, el, faint, outside, submit, textField, timeOf, token} from "./dom.js";
import {count, higher} from "./words.js";

const TOKEN_MAX = "18446744073709551615";

const shownKey =
	(namespace, key) => [outside(key, "bdi", { class: "key" }), namespace === "default" ? "" : ` in ${namespace}`];

/* Opens a dialog.
 *   check()   a sentence when something is missing or wrong
 *   confirm() what will happen; may ask the gateway
 *   act()     does it; an error keeps the dialog open, one with `words` ends it */
function ask({ title, fields, check, confirm, act, label, said, done }) {
	const problem = el("p.problem", { role: "alert" });
	const cancel = () => button("Cancel", () => dialog.close());
	const second = el("div.consequences");
	const go = el("button.danger", label);
	const back = button("Back", () => turn(false));
	const next = el("button.main", "Continue…");
	const form = (work, content, main, ...others) => el("form",
		{ novalidate: true, onsubmit: submit(() => busy(main, work)) }, content, el("div.buttons", main, others, cancel()));
	const firstForm = form(review, fields, next);
	const secondForm = form(carryOut, second, go, back);
	const dialog = el("dialog", { "aria-labelledby": "dialog-head", onclose: () => dialog.remove() },
		el("h2", { id: "dialog-head" }, title), problem, firstForm, secondForm);

	function turn(toSecond) {
		firstForm.hidden = toSecond;
		secondForm.hidden = !toSecond;
		problem.textContent = "";
		(toSecond ? go : firstForm.querySelector("input, select, button")).focus();
	}
	async function busy(pressed, work) {
		pressed.disabled = true;
		problem.textContent = "";
		try {
			await work();
		} catch (error) {
			problem.replaceChildren(...(error.words ?? [api.inWords(error)]));
			if (error.words !== undefined) { /* there is nothing to be done any more */
				firstForm.hidden = secondForm.hidden = true;
				dialog.append(button("Close", () => dialog.close()));
				await done();
			}
		} finally {
			pressed.disabled = false;
		}
	}
	async function review() {
		const wrong = check();
		if (wrong !== undefined) {
			problem.textContent = wrong;
			return;
		}
		second.replaceChildren(...await confirm());
		turn(true);
	}
	async function carryOut() {
		await act();
		dialog.close();
		announce(said);
		await done();
	}

	document.body.append(dialog);
	dialog.showModal();
	turn(false);
}

const field = (label, input, hint) => el("label", el("span", label), input, hint && faint(hint));

const sentence = (name, placeholder) => textField(name, { maxlength: "255", required: true, placeholder });
const SAY_WHY = "Say why: the audit keeps it.";

async function fenceNow(namespace, key) {
	try {
		return await api.fence(namespace, key);
	} catch (error) {
		if (error instanceof api.Refusal && error.status === 404) {
			return undefined;
		}
		throw error;
	}
}

function fenceWords(fence) {
	return el("p", fence === undefined ? "There is no fence now." : [
		"The fence now: ", el("strong", token(fence.highest)), ", ", count(fence.in_flight, "call"), " in flight."
	]);
}

function fenceLine(namespace, key) {
	const place = el("div.fence-now", el("p", "The fence now: …"));
	fenceNow(namespace, key)
		.then((fence) => place.replaceChildren(fenceWords(fence)), (error) => place.replaceChildren(api.inWords(error)));
	return place;
}

export function raise(namespace, key, done) {
	const number = textField("token", { inputmode: "numeric", maxlength: "20", required: true });
	const reason = sentence("reason");
	const value = () => number.value.trim().replace(/^0+(?=.)/, "");
	ask({
		title: ["Raise the fence of ", shownKey(namespace, key)],
		fields: [
			fenceLine(namespace, key), field("New token", number, "Calls with a lower token are refused from then on."),
			field("Reason", reason, "It goes into the audit.")
		],
		check: () => {
			if (!/^[0-9]{1,20}$/.test(value()) || value() === "0" || higher(value(), TOKEN_MAX)) {
				return `A token is a whole number from 1 to ${TOKEN_MAX}.`;
			}
			return reason.value.trim() === "" ? SAY_WHY : undefined;
		},
		confirm: async () => {
			const fence = await fenceNow(namespace, key);
			if (fence !== undefined && higher(fence.highest, value())) {
				throw new api.Refusal(409, {
					detail: `Token ${value()} is below ${
						fence.highest}, where the fence stands. A fence never goes down but by a reset.`
				});
			}
			return [
				fenceWords(fence),
				fence?.highest === value() ?
					el("p", "It stands at this token already: nothing will change.") :
					el("ul", el("li", "The fence goes to ", el("strong", token(value())), "."),
						el("li", "Calls with a lower token that wait or connect are stopped at once, and later ones are dropped."),
						el("li", "Calls in flight run to their end."), el("li", "Only a reset takes it back."))
			];
		},
		act: () => api.raise(namespace, key, { token: value(), reason: reason.value.trim() }),
		label: ["Raise to ", "this token"],
		said: "The fence was raised.",
		done,
	});
}

export function reset(namespace, key, done) {
	const reason = sentence("reason");
	const typed = textField("key", { required: true, dir: "auto" });
	ask({
		title: ["Reset the fence of ", shownKey(namespace, key)],
		fields: [
			fenceLine(namespace, key),
			el("p.warning",
				"A reset forgets the fence: the next token, whatever it is, is taken as the first. Do it only when no stale worker can be alive: it would be let through."),
			field("Reason", reason, "It goes into the audit."), field("Type the key to confirm", typed)
		],
		check: () => {
			if (reason.value.trim() === "") {
				return SAY_WHY;
			}
			return typed.value === key ? undefined : "What was typed is not this key.";
		},
		confirm: async () => {
			const fence = await fenceNow(namespace, key);
			if (fence === undefined) {
				throw new api.Refusal(404, { detail: "There is no fence to reset." });
			}
			return [
				fenceWords(fence),
				el("ul", el("li", "The fence at ", el("strong", token(fence.highest)), " is forgotten."),
					el("li", "What waits or connects is stopped; what comes later waits until all that is in flight has ended."),
					el("li", "A stale worker that is still alive gets through with its next call."))
			];
		},
		act: () => api.reset(namespace, key, reason.value.trim()),
		label: "Forget the fence",
		said: "The fence was reset.",
		done,
	});
}

/* What was written down about the effect; undefined: nothing. */
async function resolution({ effect_id, namespace, key }) {
	let page = { records: [], next_after: undefined };
	do {
		page = await api.audit({ effect_id, namespace, key, kind: "resolved", after: page.next_after, limit: 1 });
	} while (page.records.length === 0 && page.next_after !== null);
	return page.records[0];
}

const resolvedWords = ({ reason, time, client, note }) => [`Resolved as ${reason} at `, timeOf(time),
	client === undefined ? "" : ` from ${client}`, ": ", outside(note ?? "")];

/* Throws what is known when somebody was quicker. */
async function stillOpen(effect) {
	const found = await resolution(effect);
	if (found !== undefined) {
		throw Object.assign(new Error(), { words: resolvedWords(found) });
	}
}

/* Offers to resolve the effect of an `unknown` record, or says how that was done. */
export function resolveOffer(effect, done) {
	const place = el("span", "…");
	const open = [button("Resolve…", () => resolve(effect, done))];
	resolution(effect).then((found) => place.replaceChildren(...(found === undefined ? open : resolvedWords(found))),
		(error) => place.replaceChildren(api.inWords(error)));
	return place;
}

/* `effect` has effect_id and what is known of the call. */
export function resolve(effect, done) {
	const choice = (value, words) =>
		el("label.choice", el("input", { type: "radio", name: "outcome", value, required: true }), words);
	const outcome = el("fieldset", el("legend", "What does the partner say?"), choice("sent", "It was done (sent)"),
		choice("not-sent", "It was not done (not sent)"));
	const note = sentence("note", "receipt 4711 in the partner's console");
	const chosen = () => outcome.querySelector("input:checked")?.value;
	ask({
		title: ["Resolve effect ", token(effect.effect_id)],
		fields: [
			el("p", `${effect.method ?? ""} `, outside(effect.path ?? ""), " on ", outside(effect.route ?? "?"), ", key ",
				shownKey(effect.namespace ?? "default", effect.key ?? ""), ", token ", token(effect.token ?? "?"), ", ",
				timeOf(effect.time)),
			el("p.warning", "Ask the partner first. Its bytes may have arrived or not; only the partner knows."), outcome,
			field("Note", note, "How you know; it goes into the audit.")
		],
		check: () => {
			if (chosen() === undefined) {
				return "Choose an outcome.";
			}
			return note.value.trim() === "" ? "Say how you know: the audit keeps it." : undefined;
		},
		confirm: async () => {
			await stillOpen(effect);
			return [el("ul",
				el("li", "Effect ", token(effect.effect_id), " will be on record as ",
					el("strong", chosen() === "sent" ? "sent" : "not sent"), ", with the note: ", outside(note.value.trim())),
				el("li", "Nothing is sent, and no other record changes."),
				el("li", "An effect can be resolved once. This can't be changed."))];
		},
		act: async () => {
			try {
				await api.resolve(effect.effect_id, { outcome: chosen(), note: note.value.trim() });
			} catch (error) {
				await stillOpen(effect);
				throw error;
			}
		},
		label: "Put it on record",
		said: "The effect was resolved.",
		done,
	});
}
