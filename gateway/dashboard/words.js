/*
 * What kinds, reasons and numbers mean, in words. Pure: no elements, no requests.
 */

/* The order is that of the filter's list. The glyph stands beside the colour, never the colour alone. */
export const KINDS = {
	"dropped": {glyph: "✕", label: "dropped", means: "refused by the fence; nothing was sent"},
	"sent": {glyph: "→", label: "sent", means: "went out, and the partner answered"},
	"unknown": {glyph: "?", label: "unknown", means: "may have gone out; its outcome was not known"},
	"not-sent": {glyph: "○", label: "not sent", means: "accepted, and not sent"},
	"rejected": {glyph: "!", label: "rejected", means: "token or key missing or malformed; nothing was sent"},
	"raised": {glyph: "▲", label: "raised", means: "the fence was raised without a call"},
	"reset": {glyph: "↺", label: "reset", means: "the fence was forgotten"},
	"resolved": {glyph: "✓", label: "resolved", means: "somebody wrote down what became of an effect"},
};

const REASON_WORDS = {
	"stale-token": (r) => `Token ${r.token} is below ${r.highest}, where the fence of this key stood.`,
	"superseded": (r) => (r.highest === undefined ?
			"The fence was reset while this call waited to be sent." :
			`The fence went to ${r.highest} while this call with token ${r.token} waited to be sent.`),
	"token-used": (r) => `Token ${r.token} had been used before, and on this route each token works once.`,
	"implausible-token": (r) =>
		`Token ${r.token} is further above ${r.highest ?? "the fence"} than max_jump allows; the fence stayed.`,
	"missing-token": "The call carried no fencing token.",
	"missing-key": "The call carried no workflow key.",
	"malformed-token": "The fencing token was none: empty, doubled, not 1 to 20 digits, 0 or too large.",
	"malformed-key": "The workflow key was none: empty, doubled, too long or not UTF-8 without control characters.",
	"malformed-message": "The message was none that can be sent.",
	"method-not-allowed": "This route takes no call with that method.",
	"message-refused": "The relay refused the message, its sender or every recipient.",
	"relay-busy": "The relay could not take the message for now.",
	"target-refused": "The target is not one that this route may call.",
	"predecessor-in-flight": "An older call for this key did not end within drain_timeout.",
	"upstream-unreachable": "The partner could not be reached: name, connection or TLS failed.",
	"upstream-timeout": (r) =>
		(r.kind === "unknown" ? "The partner did not answer in time." : "No connection came about in time."),
	"answer-too-large":
		"The partner answered; the head of its answer was above limits.answer_headers and was not passed on.",
	"upstream-failed": "The connection was lost, or the answer was nonsense, after bytes were sent.",
	"aborted": "It was cut for a newer token (on_supersede: abort) after bytes were sent.",
	"shutdown-cut": "It still ran when the gateway's shutdown_grace ended.",
	"gateway-crash": "The gateway died while this call was under way, or waited for its turn (not sent).",
};

export const REASONS = Object.keys(REASON_WORDS);

const KIND_WORDS = {
	"sent": (r) => `It went out under token ${r.token}, and the partner answered ${r.upstream_status ?? r.status}.`,
	"unknown": "Only the partner knows whether it was done.",
	"not-sent": "Nothing was sent.",
	"dropped": "Nothing was sent.",
	"rejected": "Nothing was sent.",
	"raised": (r) => (ofStore(r) ? `The store was restored from a backup, every fence to at least ${r.token}.` :
																 `The fence was raised to ${r.highest ?? r.token} without a call.`),
	"reset": (r) => (ofStore(r) ?
			STORE_WORDS[r.reason] :
			`The fence${
				r.highest === undefined ? "" : `, then ${r.highest},`} was forgotten: the next token is taken as the first.`),
	"resolved": (r) => `Effect ${r.effect_id} was written down as ${r.reason}.`,
};

const STORE_WORDS = {
	"audit-full": "Older audit records made room for newer ones.",
	"restored": "The store was restored from a backup: the fences stand where they stood when it was made.",
};

/* About the whole store, not about one key's fence. */
export const ofStore = (record) => record.key === undefined && (record.kind === "raised" || record.kind === "reset");

const say = (words, record) => (typeof words === "function" ? words(record) : words);

export function explain(record) {
	const byOperator = ["raised", "reset", "resolved"].includes(record.kind); /* then the reason is theirs */
	return [
		byOperator ? undefined : say(REASON_WORDS[record.reason], record),
		record.would_drop && "On this route the fence only observes: it was forwarded although it would have been refused.",
		say(KIND_WORDS[record.kind], record)
	].filter(Boolean)
		.join(" ");
}

export function count(number, one, many = one + "s") { return `${grouped(number)} ${number === 1 ? one : many}`; }

export function grouped(number) { return number.toLocaleString("en"); }

export function bytes(number) {
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	const at = number < 1024 ? 0 : Math.min(Math.floor(Math.log2(number) / 10), units.length - 1);
	const value = number / 1024 ** at;
	return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

export function lasting(milliseconds) {
	const seconds = Math.floor(milliseconds / 1000);
	for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
		if (seconds >= size) {
			return `${Math.floor(seconds / size)} ${unit}`;
		}
	}
	return milliseconds < 1000 ? `${Math.max(0, Math.round(milliseconds))} ms` : `${seconds} s`;
}

/* Tokens and ids have up to 64 bits, which a Number would round. */
export function higher(left, right) { return BigInt(left) > BigInt(right); }

export function before(id) { return String(BigInt(id) - 1n); }
