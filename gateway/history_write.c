/* gateway/history_write.c - the story of a key as JSON: tokens and resets oldest first. What is in it is history.c's.
 */
#include <string.h>

#include "gateway/history.h"

const char *history_by_name(enum history_by by)
{
    switch (by) {
    case HISTORY_BY_CALL: return "call";
    case HISTORY_BY_RESTORE: return "restore";
    case HISTORY_BY_RAISE: return "raise";
    case HISTORY_BY_NONE:
    case HISTORY_BY_EVIDENCE: break;
    }
    return NULL;
}

static void member_time(struct jsonout *out, const char *name, uint64_t time_ms)
{
    jsonout_name(out, name);
    if (time_ms != 0)
        jsonout_time_ms(out, time_ms);
    else
        jsonout_null(out);
}

static void member_audit_id(struct jsonout *out, const char *name, uint64_t id)
{
    if (id != 0)
        jsonout_member_id(out, name, id);
}

static void write_counts(struct jsonout *out, const struct history_token *token, bool live)
{
    static const char *const names[] = {
        [HISTORY_SENT] = "sent",         [HISTORY_NOT_SENT] = "not_sent", [HISTORY_DROPPED] = "dropped",
        [HISTORY_REJECTED] = "rejected", [HISTORY_UNKNOWN] = "unknown",   [HISTORY_RESOLVED] = "resolved",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        jsonout_member_number(out, names[i], token->count[i]);
    if (token->count[HISTORY_WOULD_DROP] != 0)
        jsonout_member_number(out, "would_drop", token->count[HISTORY_WOULD_DROP]);
    if (live) {
        jsonout_member_number(out, "in_flight", token->in_flight);
        jsonout_member_number(out, "waiting", token->waiting);
    }
    jsonout_member_number(out, "in_doubt", token->in_doubt);
}

static void write_accepted(struct jsonout *out, const struct history_token *token)
{
    if (token->accepted.by == HISTORY_BY_NONE)
        return;
    jsonout_name(out, "accepted");
    jsonout_object_begin(out);
    member_time(out, "time", token->accepted.time_ms);
    jsonout_member_cstring(out, "by", history_by_name(token->accepted.by));
    jsonout_member_cstring(out, "client", token->accepted.client);
    jsonout_member_cstring(out, "route", token->accepted.route);
    jsonout_member_cstring(out, "reason", token->accepted.reason);
    member_audit_id(out, "audit_id", token->accepted.audit_id);
    jsonout_object_end(out);
}

static void write_names(struct jsonout *out, const struct history_token *token)
{
    jsonout_name(out, "routes");
    jsonout_array_begin(out);
    for (size_t i = 0; i < HISTORY_NAMES && token->routes[i].text != NULL; i++)
        jsonout_cstring(out, token->routes[i].text);
    jsonout_array_end(out);
    jsonout_name(out, "reasons");
    jsonout_object_begin(out);
    for (size_t i = 0; i < HISTORY_NAMES && token->reasons[i].text != NULL; i++) {
        const char *reason = token->reasons[i].text;
        jsonout_string(out, reason, strlen(reason));
        jsonout_raw(out, ":", 1);
        jsonout_number(out, token->reasons[i].count);
    }
    jsonout_object_end(out);
}

static void write_token(struct jsonout *out, const struct history_token *token, bool live)
{
    jsonout_object_begin(out);
    jsonout_member_id(out, "token", token->token);
    member_time(out, "first_seen", token->first_ms);
    member_time(out, "last_seen", token->last_ms);
    write_counts(out, token, live);
    write_accepted(out, token);
    member_audit_id(out, "first_audit_id", token->first_id);
    member_audit_id(out, "last_audit_id", token->last_id);
    if (token->era != 0)
        jsonout_member_number(out, "resets_since", token->era);
    write_names(out, token);
    jsonout_object_end(out);
}

static void write_reset(struct jsonout *out, const struct history_reset *reset)
{
    jsonout_object_begin(out);
    member_time(out, "time", reset->time_ms);
    jsonout_member_id(out, "highest", reset->highest);
    jsonout_member_cstring(out, "client", reset->client);
    jsonout_member_cstring(out, "reason", reset->reason);
    jsonout_member_id(out, "audit_id", reset->id);
    jsonout_object_end(out);
}

static void write_fence(struct jsonout *out, const struct fence *fence)
{
    jsonout_name(out, "highest");
    if (fence->token != 0)
        jsonout_id(out, fence->token);
    else
        jsonout_null(out);
    member_time(out, "updated_at", fence->updated_ms);
}

void history_write(struct jsonout *out, struct slice ns, struct slice key, const struct history *history)
{
    jsonout_object_begin(out);
    jsonout_member_string(out, "namespace", ns.data, ns.len);
    jsonout_member_string(out, "key", key.data, key.len);
    write_fence(out, &history->fence);
    if (history->live)
        jsonout_member_number(out, "in_flight", history->in_flight);
    jsonout_name(out, "tokens");
    jsonout_array_begin(out);
    for (size_t i = history->token_count; i > 0; i--)
        write_token(out, history->tokens[i - 1], history->live);
    jsonout_array_end(out);
    jsonout_name(out, "more_tokens");
    jsonout_bool(out, history->more_tokens);
    jsonout_name(out, "resets");
    jsonout_array_begin(out);
    for (size_t i = history->reset_count; i > 0; i--)
        write_reset(out, &history->resets[i - 1]);
    jsonout_array_end(out);
    jsonout_member_number(out, "records", history->records);
    jsonout_name(out, "complete");
    jsonout_bool(out, history->complete && history->removed_id == 0);
    if (!history->complete)
        member_audit_id(out, "oldest_audit_id", history->oldest_audit_id);
    member_audit_id(out, "removed_audit_id", history->removed_id);
    jsonout_object_end(out);
}
