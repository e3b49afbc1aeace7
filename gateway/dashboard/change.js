/*
 * What an operator may change: raise, reset, resolve. Each is a dialog of two steps, the second of which says what is
 * about to happen, with the fence as it stands then.
 */

import * as api from "./api.js";
import {announce, el, outside, textField, timeOf, token} from "./dom.js";
import {count, higher} from "./words.js";

const TOKEN_MAX = "18446744073709551615";

const shownKey =
  (namespace, key) => [outside(key, "bdi", { class: "key" }), namespace === "default" ? "" : ` in ${namespace}`];

/* Opens a dialog.
 *   fields    what to fill in
 *   check()   a sentence when something is missing or wrong
 *   confirm() what will happen; may ask the gateway
 *   act()     does it; a Refusal keeps the dialog open
 *   done()    after it was done and the dialog is closed */
function ask({ title, fields, check, confirm, act, label, said, done }) {
  const problem = el("p", { class: "problem", role: "alert" });
  const cancel = () => el("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const second = el("div", { class: "consequences" });
  const go = el("button", { class: "danger" }, label);
  const back = el("button", { type: "button", onclick: () => turn(false) }, "Back");
  const next = el("button", { class: "main" }, "Continue\u2026");
  const firstForm = el("form", {
    novalidate: true,
    onsubmit: (event) => {
      event.preventDefault();
      busy(next, review);
    }
  },
    fields, el("div", { class: "buttons" }, next, cancel()));
  const secondForm = el("form", {
    onsubmit: (event) => {
      event.preventDefault();
      busy(go, carryOut);
    }
  },
    second, el("div", { class: "buttons" }, go, back, cancel()));
  const dialog = el("dialog", { "aria-labelledby": "dialog-head", onclose: () => dialog.remove() },
    el("h2", { id: "dialog-head" }, title), problem, firstForm, secondForm);

  function turn(toSecond) {
    firstForm.hidden = toSecond;
    secondForm.hidden = !toSecond;
    problem.textContent = "";
    (toSecond ? go : firstForm.querySelector("input, select, button")).focus();
  }
  async function busy(button, work) {
    button.disabled = true;
    problem.textContent = "";
    try {
      await work();
    } catch (error) {
      problem.textContent = api.inWords(error);
    } finally {
      button.disabled = false;
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

function field(label, input, hint) {
  return el("label", {}, el("span", {}, label), input, hint === undefined ? "" : el("span", { class: "faint" }, hint));
}

/* undefined: there is no fence. */
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
  return el("p", {}, fence === undefined ? "There is no fence now." : [
    "The fence now: ", el("strong", {}, token(fence.highest)), ", ", count(fence.in_flight, "call"), " in flight."
  ]);
}

/* The fence is shown in the first step too, as soon as it is known. */
function fenceLine(namespace, key) {
  const place = el("div", { class: "fence-now" }, el("p", {}, "The fence now: \u2026"));
  fenceNow(namespace, key)
    .then((fence) => place.replaceChildren(fenceWords(fence)), (error) => place.replaceChildren(api.inWords(error)));
  return place;
}

export function raise(namespace, key, done) {
  const number = textField("token", { inputmode: "numeric", maxlength: "20", required: true });
  const reason = textField("reason", { maxlength: "255", required: true });
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
      return reason.value.trim() === "" ? "Say why: the audit keeps it." : undefined;
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
          el("p", {}, "It stands at this token already: nothing will change.") :
          el("ul", {}, el("li", {}, "The fence goes to ", el("strong", {}, token(value())), "."),
            el("li", {},
              "Calls with a lower token that wait or connect are stopped at once, and later ones are dropped."),
            el("li", {}, "Calls in flight run to their end."), el("li", {}, "Only a reset takes it back."))
      ];
    },
    act: () => api.raise(namespace, key, { token: value(), reason: reason.value.trim() }),
    label: ["Raise to ", "this token"],
    said: "The fence was raised.",
    done,
  });
}

export function reset(namespace, key, done) {
  const reason = textField("reason", { maxlength: "255", required: true });
  const typed = textField("key", { required: true, dir: "auto" });
  ask({
    title: ["Reset the fence of ", shownKey(namespace, key)],
    fields: [
      fenceLine(namespace, key),
      el("p", { class: "warning" },
        "A reset forgets the fence: the next token, whatever it is, is taken as the first. Do it only when no stale worker can be alive: it would be let through."),
      field("Reason", reason, "It goes into the audit."), field("Type the key to confirm", typed)
    ],
    check: () => {
      if (reason.value.trim() === "") {
        return "Say why: the audit keeps it.";
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
        el("ul", {}, el("li", {}, "The fence at ", el("strong", {}, token(fence.highest)), " is forgotten."),
          el("li", {},
            "What waits or connects is stopped; what comes later waits until all that is in flight has ended."),
          el("li", {}, "A stale worker that is still alive gets through with its next call."))
      ];
    },
    act: () => api.reset(namespace, key, reason.value.trim()),
    label: "Forget the fence",
    said: "The fence was reset.",
    done,
  });
}

/* `effect` has effect_id and what is known of the call. */
export function resolve(effect, done) {
  const choice = (value, words) =>
    el("label", { class: "choice" }, el("input", { type: "radio", name: "outcome", value, required: true }), words);
  const outcome = el("fieldset", {}, el("legend", {}, "What does the partner say?"),
    choice("sent", "It was done (sent)"), choice("not-sent", "It was not done (not sent)"));
  const note =
    textField("note", { maxlength: "255", required: true, placeholder: "receipt 4711 in the partner's console" });
  const chosen = () => outcome.querySelector("input:checked")?.value;
  ask({
    title: ["Resolve effect ", token(effect.effect_id)],
    fields: [
      el("p", {}, `${effect.method ?? ""} `, outside(effect.path ?? ""), " on ", outside(effect.route ?? "?"), ", key ",
        shownKey(effect.namespace ?? "default", effect.key ?? ""), ", token ", token(effect.token ?? "?"), ", ",
        timeOf(effect.time)),
      el(
        "p", { class: "warning" }, "Ask the partner first. Its bytes may have arrived or not; only the partner knows."),
      outcome, field("Note", note, "How you know; it goes into the audit.")
    ],
    check: () => {
      if (chosen() === undefined) {
        return "Choose an outcome.";
      }
      return note.value.trim() === "" ? "Say how you know: the audit keeps it." : undefined;
    },
    confirm: async () => [el("ul", {},
      el("li", {}, "Effect ", token(effect.effect_id), " will be on record as ",
        el("strong", {}, chosen() === "sent" ? "sent" : "not sent"), ", with the note: ", outside(note.value.trim())),
      el("li", {}, "Nothing is sent, and no other record changes."),
      el("li", {}, "An effect can be resolved once. This can't be changed."))],
    act: () => api.resolve(effect.effect_id, { outcome: chosen(), note: note.value.trim() }),
    label: "Put it on record",
    said: "The effect was resolved.",
    done,
  });
}
