/*
 * gateway/admin_operate.c - raise, reset, resolve: from the request to the store's operation, and from its result to
 * the answer. How the operation travels is admin_change.c's.
 */
#include "gateway/admin_operate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gateway/admin_body.h"
#include "gateway/admin_change.h"
#include "gateway/command.h"
#include "gateway/log.h"
#include "gateway/timers.h"
#include "gateway/token.h"

static struct slice of(const char *text)
{
    return text == NULL || *text == '\0' ? (struct slice){NULL, 0} : (struct slice){text, strlen(text)};
}

static struct admin_change *leave_change(struct admin_context *context, struct call_input *in, enum store_op_kind kind,
                                         struct audit_record *record, struct admin_answer *answer)
{
    record->client = of(in->request->client);
    if (context->ending) {
        admin_problem(answer, ADMIN_STORE, "The gateway is shutting down; nothing was changed.");
        return NULL;
    }
    in->change = admin_change_new(context, kind, record);
    if (in->change == NULL) {
        admin_problem(answer, ADMIN_STORE, "The gateway is out of memory; nothing was changed.");
    }
    return in->change;
}

static bool no_params(struct call_input *in, struct admin_answer *answer)
{
    char why[160];
    if (admin_params_parse(in->query, NULL, 0, why, sizeof why)) {
        return true;
    }
    admin_problem(answer, ADMIN_MALFORMED, why);
    return false;
}

static bool json_body(const struct call_input *in, struct admin_answer *answer)
{
    if (admin_content_type_json(in->request->content_type)) {
        return true;
    }
    admin_problem(answer, ADMIN_MALFORMED, "Content-Type must be application/json.");
    return false;
}

void admin_answer_raise(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct slice ns, key;
    struct admin_raise raise;
    char why[256];
    if (!no_params(in, answer) || !admin_fence_path(in, &ns, &key, answer) || !json_body(in, answer)) {
        return;
    }
    if (!admin_body_raise(in->request->body, &raise, why, sizeof why)) {
        admin_problem(answer, ADMIN_MALFORMED, why);
        return;
    }
    struct audit_record record = {.ns = ns, .key = key, .token = raise.token, .reason = of(raise.reason)};
    struct admin_change *change = leave_change(context, in, STORE_RAISE, &record, answer);
    if (change != NULL) {
        change->wait_ms = raise.wait_ms;
    }
}

void admin_answer_reset(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct slice ns, key;
    struct admin_param reason = {.name = "reason"};
    char why[160];
    if (!admin_fence_path(in, &ns, &key, answer)) {
        return;
    }
    if (!admin_params_parse(in->query, &reason, 1, why, sizeof why)) {
        admin_problem(answer, ADMIN_MALFORMED, why);
        return;
    }
    if (reason.value.data == NULL || !key_valid(reason.value.data, reason.value.len)) {
        admin_problem(answer, ADMIN_MALFORMED,
                      "A reset needs a reason: ?reason= with 1 to 255 bytes of UTF-8 without control characters.");
        return;
    }
    struct audit_record record = {.ns = ns, .key = key, .reason = reason.value};
    (void)leave_change(context, in, STORE_RESET, &record, answer);
}

void admin_answer_resolve(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct admin_resolution resolution;
    struct audit_record record = {.effect_id = 0};
    char why[256];
    if (!no_params(in, answer) || !json_body(in, answer)) {
        return;
    }
    if (!token_parse(in->captured[0].data, in->captured[0].len, &record.effect_id)) {
        admin_problem(answer, ADMIN_MALFORMED, "The effect's id must be decimal digits.");
        return;
    }
    if (!admin_body_resolve(in->request->body, &resolution, why, sizeof why)) {
        admin_problem(answer, ADMIN_MALFORMED, why);
        return;
    }
    record.reason = of(resolution.sent ? "sent" : "not-sent");
    record.note = of(resolution.note);
    (void)leave_change(context, in, STORE_RESOLVE, &record, answer);
}

/* ---- the store has answered ---- */

static const char *result_name(const struct store_op *op)
{
    switch (op->error) {
    case STORE_OK: break;
    case STORE_NOT_FOUND: return "not-found";
    case STORE_ALREADY: return "already-resolved";
    default: return "store-unavailable";
    }
    if (op->verdict == VERDICT_STALE && op->kind == STORE_RAISE)
        return "would-lower";
    return op->audit_id != 0 ? "done" : "no-change";
}

void admin_operate_log(const struct admin_change *change)
{
    const struct store_op *op = &change->op;
    const struct audit_record *record = &op->record;
    struct log_line line;
    /* A reset takes a protection away: that stands out. */
    if (!log_begin(&line, op->kind == STORE_RESET && op->error == STORE_OK ? LOG_WARN : LOG_INFO, "admin-change"))
        return;
    log_cstring(&line, "change", op->kind == STORE_RAISE ? "raise" : op->kind == STORE_RESET ? "reset" : "resolve");
    log_cstring(&line, "result", result_name(op));
    log_string(&line, "client", record->client.data, record->client.len);
    log_string(&line, "namespace", record->ns.data, record->ns.len);
    log_string(&line, "key", record->key.data, record->key.len);
    log_id(&line, "token", record->token);
    log_id(&line, "highest", op->error == STORE_OK ? op->highest : 0);
    log_id(&line, "effect_id", record->effect_id);
    log_string(&line, "reason", record->reason.data, record->reason.len);
    log_string(&line, "note", record->note.data, record->note.len);
    log_id(&line, "audit_id", op->audit_id);
    log_end(&line);
}

static uint64_t in_flight_below(const struct admin_change *change)
{
    const struct admin_options *options = &change->context->options;
    const struct audit_record *record = &change->op.record;
    return options->in_flight_below(options->arg, record->ns, record->key, record->token);
}

bool admin_operate_must_wait(const struct admin_change *change)
{
    return change->op.kind == STORE_RAISE && change->op.error == STORE_OK && change->op.verdict == VERDICT_ACCEPTED &&
           in_flight_below(change) > 0;
}

/* The fence as it is by now: somebody may have raised it further meanwhile. */
static void answer_raised(struct admin_change *change, struct admin_answer *answer)
{
    const struct store_op *op = &change->op;
    struct fence_entry entry = {op->record.ns, op->record.key, {.token = op->highest, .updated_ms = realtime_ms()}};
    struct fence now;
    if (op->verdict == VERDICT_STALE) {
        char detail[160];
        snprintf(detail, sizeof detail, "Token %" PRIu64 " is below %" PRIu64 ", the highest accepted for this key.",
                 op->record.token, op->highest);
        struct admin_subject subject = {op->record.ns, op->record.key, op->record.token, op->highest};
        admin_problem_about(answer, ADMIN_WOULD_LOWER, detail, &subject);
        return;
    }
    if (!admin_have_reader(change->context, answer)) {
        jsonout_reset(&answer->body); /* it was raised all the same */
    } else if (store_fence_get(change->context->reader, entry.ns, entry.key, &now) == STORE_OK) {
        entry.fence = now;
    }
    uint64_t below = in_flight_below(change);
    fence_write(&answer->body, &entry, &below);
    admin_json_answer(answer, 200);
}

static bool copy_record(void *arg, const struct audit_record *record)
{
    audit_record_write(arg, record);
    return false;
}

/* The record as the audit has it. */
static void answer_resolved(struct admin_change *change, struct admin_answer *answer)
{
    const struct store_op *op = &change->op;
    struct audit_filter filter = {.after = op->audit_id - 1, .limit = 1};
    uint64_t next;
    if (!admin_have_reader(change->context, answer) ||
        store_audit_query(change->context->reader, &filter, copy_record, &answer->body, &next) != STORE_OK ||
        answer->body.len == 0) {
        struct audit_record record = op->record; /* what of it is known without the store: it was kept */
        record.id = op->audit_id;
        record.kind = AUDIT_RESOLVED;
        record.time_ms = realtime_ms();
        jsonout_reset(&answer->body);
        audit_record_write(&answer->body, &record);
    }
    admin_json_answer(answer, 200);
}

static void answer_error(const struct admin_change *change, struct admin_answer *answer)
{
    switch (change->op.error) {
    case STORE_NOT_FOUND:
        admin_problem(answer, ADMIN_NOT_FOUND,
                      change->op.kind == STORE_RESET
                          ? "No token has been accepted for this key."
                          : "No effect with this id is in doubt or recorded as unknown in the audit.");
        return;
    case STORE_ALREADY: admin_problem(answer, ADMIN_RESOLVED, "This effect has been resolved before."); return;
    case STORE_FULL: admin_problem(answer, ADMIN_STORE, "The store is full; nothing was changed."); return;
    default: admin_problem(answer, ADMIN_STORE, "The store can't be written; nothing was changed."); return;
    }
}

void admin_operate_answer(struct admin_change *change)
{
    struct admin_answer *answer = &change->answer;
    if (change->op.error != STORE_OK) {
        answer_error(change, answer);
    } else if (change->op.kind == STORE_RAISE) {
        answer_raised(change, answer);
    } else if (change->op.kind == STORE_RESOLVE) {
        answer_resolved(change, answer);
    } else {
        answer->status = 204;
    }
}
