/*
 * gateway/command_audit.c - `fencegate audit`: shows the audit of a store, and how a record looks as JSON.
 *
 * Reads only, beside a running gateway or without one. Which records match is the store's work; the order (newest N,
 * oldest of them first) is made here. Opening the store is command_store.c's, the table command_table.c's.
 */
#include "gateway/command.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gateway/admin_query.h"
#include "gateway/command_follow.h"
#include "gateway/command_hint.h"
#include "gateway/command_options.h"
#include "gateway/command_store.h"
#include "gateway/command_table.h"
#include "gateway/jsonout.h"
#include "gateway/reason.h"
#include "gateway/timeparse.h"
#include "gateway/token.h"
#include "store/store.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 1000000

struct arguments {
    struct command_line line;
    struct audit_filter filter; /* slices point into argv */
    bool follow;
};

static void member_slice(struct jsonout *out, const char *name, struct slice text)
{
    if (text.len > 0)
        jsonout_member_string(out, name, text.data, text.len);
}

static void member_id(struct jsonout *out, const char *name, uint64_t value)
{
    if (value != 0)
        jsonout_member_id(out, name, value);
}

static void member_status(struct jsonout *out, const char *name, uint32_t value)
{
    if (value != 0)
        jsonout_member_number(out, name, value);
}

void audit_record_write(struct jsonout *out, const struct audit_record *record)
{
    jsonout_object_begin(out);
    member_id(out, "id", record->id);
    jsonout_name(out, "time");
    jsonout_time_ms(out, record->time_ms);
    if (record->kind != 0)
        jsonout_member_cstring(out, "kind", audit_kind_name(record->kind));
    member_slice(out, "reason", record->reason);
    member_id(out, "effect_id", record->effect_id);
    member_slice(out, "route", record->route);
    member_slice(out, "namespace", record->ns);
    member_slice(out, "key", record->key);
    member_id(out, "token", record->token);
    member_id(out, "highest", record->highest);
    member_slice(out, "method", record->method);
    member_slice(out, "path", record->path);
    member_slice(out, "client", record->client);
    member_status(out, "status", record->status);
    member_status(out, "upstream_status", record->upstream_status);
    if (record->has_bytes) {
        jsonout_member_number(out, "request_bytes", record->request_bytes);
        jsonout_member_number(out, "response_bytes", record->response_bytes);
        jsonout_member_number(out, "duration_ms", record->duration_ms);
    }
    member_slice(out, "target", record->target);
    if (record->would_drop) {
        jsonout_name(out, "would_drop");
        jsonout_bool(out, true);
    }
    member_slice(out, "note", record->note);
    jsonout_object_end(out);
}

/* Records come newest first and are shown in reverse. */
struct listing {
    struct table table;
    const struct audit_filter *filter;
    bool dropped; /* one of them at least */
};

enum column {
    COLUMN_TIME,
    COLUMN_ID,
    COLUMN_KIND,
    COLUMN_REASON,
    COLUMN_ROUTE,
    COLUMN_NAMESPACE,
    COLUMN_KEY,
    COLUMN_TOKEN,
    COLUMN_HIGHEST,
    COLUMN_STATUS,
    COLUMN_UPSTREAM,
    COLUMN_REQUEST,
    COLUMN_TARGET,
    COLUMN_CLIENT,
    COLUMN_EFFECT,
    COLUMN_NOTE,
    COLUMN_COUNT,
};

static const char *const column_title[COLUMN_COUNT] = {"TIME",   "ID",     "KIND",    "REASON", "ROUTE",    "NAMESPACE",
                                                       "KEY",    "TOKEN",  "HIGHEST", "STATUS", "UPSTREAM", "REQUEST",
                                                       "TARGET", "CLIENT", "EFFECT",  "NOTE"};

static void cell_kind(struct jsonout *out, const struct audit_record *record)
{
    static const char would_drop[] = " (would drop)";
    const char *kind = audit_kind_name(record->kind);
    jsonout_raw(out, kind, strlen(kind));
    if (record->would_drop)
        jsonout_raw(out, would_drop, sizeof would_drop - 1);
    cell_end(out);
}

/* In the order of enum column. */
static void write_cells(struct jsonout *out, const struct audit_record *record)
{
    cell_time(out, record->time_ms);
    cell_number(out, record->id);
    cell_kind(out, record);
    cell_slice(out, record->reason);
    cell_slice(out, record->route);
    cell_slice(out, record->ns);
    cell_slice(out, record->key);
    cell_number(out, record->token);
    cell_number(out, record->highest);
    cell_number(out, record->status);
    cell_number(out, record->upstream_status);
    cell_request(out, record->method, record->path);
    cell_slice(out, record->target);
    cell_slice(out, record->client);
    cell_number(out, record->effect_id);
    cell_slice(out, record->note);
}

static bool add_record(void *arg, const struct audit_record *record)
{
    struct listing *listing = arg;
    struct table *table = &listing->table;
    if (!table_row_begin(table))
        return false;
    listing->dropped |= record->kind == AUDIT_DROPPED;
    if (table->json)
        audit_record_write(&table->text, record);
    else
        write_cells(&table->text, record);
    return table_row_end(table); /* the query ends by itself at its limit */
}

static enum store_error collect(struct store_reader *reader, void *arg)
{
    struct listing *listing = arg;
    struct audit_filter filter = *listing->filter;
    do { /* a page may end early: one look at a large store is bounded */
        uint64_t next = 0;
        filter.limit = listing->filter->limit - listing->table.count;
        enum store_error error = store_audit_query(reader, &filter, add_record, listing, &next);
        if (error != STORE_OK)
            return error;
        filter.after = next;
    } while (filter.after != 0 && listing->table.count < listing->filter->limit && !listing->table.failed);
    return STORE_OK;
}

static int show_once(const struct store_place *place, struct listing *listing)
{
    struct table *table = &listing->table;
    int status = place_read(place, collect, listing);
    if (status == COMMAND_DONE && table->failed) {
        command_complain("audit", "out of memory, try a smaller --limit");
        status = COMMAND_STORE;
    }
    if (status == COMMAND_DONE && table->count == 0 && !table->json && !command_behind())
        hint_complain(place, "no record matches", listing->filter, hint_records);
    if (status == COMMAND_DONE && !table_print(table, "audit", listing->filter->descending))
        status = COMMAND_STORE;
    if (status == COMMAND_DONE && listing->dropped && !table->json && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO))
        command_complain("audit", "`fencegate history KEY` tells which lease a dropped call lost to");
    return status;
}

/* What somebody has to look at stands out. */
static const char *colour(size_t column, const char *cell)
{
    static const struct {
        const char *kind, *colour;
    } colours[] = {{"dropped", "31"}, {"rejected", "33"}, {"unknown", "1;35"}, {"not-sent", "33"},
                   {"raised", "36"},  {"reset", "1;36"},  {"resolved", "36"}};
    for (size_t i = 0; column == COLUMN_KIND && i < sizeof colours / sizeof colours[0]; i++)
        if (strcmp(cell, colours[i].kind) == 0)
            return colours[i].colour;
    return NULL;
}

static int run(struct command_line *line)
{
    struct arguments *arguments = (struct arguments *)line;
    struct audit_filter *filter = &arguments->filter;
    struct listing listing = {.table = {column_title, COLUMN_COUNT, .json = line->json,
                                        .soft = 1u << COLUMN_REQUEST | 1u << COLUMN_TARGET | 1u << COLUMN_NOTE,
                                        .colour = colour},
                              .filter = filter};
    const struct follow follow = {&line->place, filter, &listing.table, add_record, &listing};
    filter->ns = line->ns;
    filter->descending = filter->effect_id == 0; /* an effect's few records are found from its id on */
    if (filter->limit == 0)
        filter->limit = LIMIT_DEFAULT;
    int status = arguments->follow ? follow_run(&follow) : show_once(&line->place, &listing);
    table_free(&listing.table);
    return status;
}

/* ---- arguments ---- */

static const char *const kinds[] = {"dropped", "rejected", "sent",     "not-sent", "unknown",
                                    "raised",  "reset",    "resolved", NULL};

static const char *take_key(void *arguments, struct slice value)
{
    (void)arguments;
    return key_valid(value.data, value.len) ? NULL : "a key is 1 to 255 bytes of UTF-8 without control characters";
}

static const char *take_route(void *arguments, struct slice value)
{
    (void)arguments;
    return admin_namespace_valid(value) ? NULL : "a route's name is 1 to 64 of A-Z a-z 0-9 . _ -";
}

static const char *take_kind(void *arguments, struct slice value)
{
    return audit_kind_parse(value, &((struct arguments *)arguments)->filter.kind) ? NULL : "not a kind";
}

static const char *take_limit(void *arguments, struct slice value)
{
    uint64_t limit;
    if (!token_parse(value.data, value.len, &limit) || limit > LIMIT_MAX)
        return "not 1 to 1000000";
    ((struct arguments *)arguments)->filter.limit = (size_t)limit;
    return NULL;
}

static const char *take_id(void *arguments, struct slice value)
{
    return token_parse(value.data, value.len, &((struct arguments *)arguments)->filter.id)
               ? NULL
               : "a record's id is decimal digits";
}

static const char *take_effect(void *arguments, struct slice value)
{
    return token_parse(value.data, value.len, &((struct arguments *)arguments)->filter.effect_id)
               ? NULL
               : "an effect's id is decimal digits";
}

static const char *take_time(struct slice value, uint64_t *out)
{
    uint64_t now_ms = (uint64_t)time(NULL) * 1000;
    return time_parse(value, now_ms, out) ? NULL : "not a time like 2026-11-30T01:02:03Z, 2026-11-30 or 15m";
}

static const char *take_since(void *arguments, struct slice value)
{
    return take_time(value, &((struct arguments *)arguments)->filter.since_ms);
}

static const char *take_until(void *arguments, struct slice value)
{
    uint64_t *until_ms = &((struct arguments *)arguments)->filter.until_ms;
    const char *wrong = take_time(value, until_ms);
    if (wrong == NULL && *until_ms == 0) /* 1970 or before: nothing, where 0 would mean no limit */
        *until_ms = 1;
    return wrong;
}

#define FILTER(member) offsetof(struct arguments, filter.member)

static const struct command_option options[] = {
    {"key", "K", "records of this workflow key", .at = FILTER(key), .take = take_key},
    {"kind", "KIND", "dropped, rejected, sent, not-sent, unknown, raised, reset or resolved", .choices = kinds,
     .take = take_kind},
    {"reason", "R", "as in the answer that the worker got, e.g. stale-token", .at = FILTER(reason)},
    {"route", "ROUTE", "calls of this route", .at = FILTER(route), .take = take_route},
    {"id", "ID", "this record (the `audit_id` of an answer)", .take = take_id},
    {"effect", "ID", "records of this effect (`Fencegate-Effect-Id`)", .take = take_effect},
    {"since", "TIME", "not before; 2026-11-30T01:02:03Z, as in the table, a date (UTC), or an age: 90s, 15m, 2h, 1d",
     .take = take_since},
    {"until", "TIME", "before", .take = take_until},
    {"limit", "N", "the newest N, oldest of them first; 1 to 1000000, 100 unless given", .take = take_limit},
    {"follow", .letter = 'f', .help = "then new records as they come, until Ctrl-C",
     .at = offsetof(struct arguments, follow)},
};

/* The reasons that records have: those of calls, and that of what a crash leaves. */
#define REASON(id, slug, status, kind, retry_after, title) REASON_OF_##kind(slug, title)
#define REASON_OF_NONE(slug, title)
#define REASON_OF_REJECTED(slug, title) "  " slug ": " title "\n"
#define REASON_OF_DROPPED(slug, title) "  " slug ": " title "\n"
#define REASON_OF_NOT_SENT(slug, title) "  " slug ": " title "\n"
#define REASON_OF_UNKNOWN(slug, title) "  " slug ": " title "\n"
#define REASON_OF_SENT(slug, title) "  " slug ": " title "\n"
static const char notes[] =
    "Reasons:\n"
#include "gateway/reason.def"
    "  gateway-crash: The gateway ended with the call under way, or (not-sent) waiting for its turn\n"
    "  restored: A backup took the store's place\n"
    "  audit-full: The oldest records made room for new ones\n";
#undef REASON

static bool complain(struct jsonout *complaint, const char *text)
{
    jsonout_raw(complaint, text, strlen(text));
    return false;
}

static bool judge(const struct command_line *line, struct jsonout *complaint)
{
    const struct arguments *arguments = (const struct arguments *)line;
    const struct audit_filter *filter = &arguments->filter;
    bool words = filter->kind == AUDIT_RAISED || filter->kind == AUDIT_RESET || filter->reason.data == NULL;
    if (!words && !reason_filter_plausible(filter->reason.data, filter->reason.len)) {
        command_complain_choice("reason", filter->reason, reason_slugs, complaint);
        return complain(complaint, " (an operator's words go with --kind raised or --kind reset)");
    }
    if (arguments->follow && (filter->id != 0 || filter->effect_id != 0))
        return complain(complaint, "--id and --effect do not go with --follow");
    if (arguments->follow && filter->until_ms != 0)
        return complain(complaint, "--until does not go with --follow");
    return true;
}

const struct command command_audit = {
    .name = "audit",
    .summary = "what went out, what was dropped, and why",
    .notes = notes,
    .place = PLACE_STORE,
    .json = true,
    .ns = true,
    .actions = command_no_words,
    .action_count = 1,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .size = sizeof(struct arguments),
    .judge = judge,
    .run = run,
};
