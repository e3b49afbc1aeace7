/*
 * gateway/command_audit.c - `fencegate audit`: shows the audit of a store, and how a record looks as JSON.
 *
 * Reads only, beside a running gateway or without one. Which records match is the store's work; the order (newest N,
 * oldest of them first) is made here. Opening the store is command_store.c's, the table command_table.c's.
 */
#include "gateway/command.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gateway/command_store.h"
#include "gateway/command_table.h"
#include "gateway/jsonout.h"
#include "gateway/timeparse.h"
#include "gateway/token.h"
#include "store/store.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 1000000

struct arguments {
    struct store_place place;
    bool json, help;
    struct audit_filter filter; /* slices point into argv */
};

static const char usage[] =
    "usage: fencegate audit (-c FILE | --store DIR) [--key K] [--namespace N] [--kind KIND] [--reason REASON]\n"
    "                       [--route ROUTE] [--since TIME] [--until TIME] [--limit N] [--json]\n"
    "  KIND  dropped, rejected, sent, not-sent, unknown, raised, reset or resolved\n"
    "  TIME  2026-11-30T01:02:03Z or an age: 90s, 15m, 2h, 1d\n"
    "  N     the newest N records, oldest of them first; 1 to 1000000, 100 unless given\n";

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
    if (table->json)
        audit_record_write(&table->text, record);
    else
        write_cells(&table->text, record);
    return table_row_end(table) && table->count < listing->filter->limit;
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

static int show(struct store_place *place, const struct arguments *arguments)
{
    struct listing listing = {.table = {column_title, COLUMN_COUNT, .json = arguments->json},
                              .filter = &arguments->filter};
    int status = place_read(place, collect, &listing);
    if (status == COMMAND_DONE && listing.table.failed) {
        fprintf(stderr, "fencegate audit: out of memory, try a smaller --limit\n");
        status = COMMAND_STORE;
    }
    if (status == COMMAND_DONE && listing.table.count == 0 && !arguments->json)
        fprintf(stderr, "fencegate audit: no record matches\n");
    if (status == COMMAND_DONE && !table_print(&listing.table, "audit", true))
        status = COMMAND_STORE;
    table_free(&listing.table);
    return status;
}

static bool complain(const char *what, const char *name)
{
    fprintf(stderr, "fencegate audit: %s%s\n%s", what, name, usage);
    return false;
}

static bool parse_limit(struct slice text, size_t *out)
{
    uint64_t value;
    if (!token_parse(text.data, text.len, &value) || value > LIMIT_MAX)
        return false;
    *out = (size_t)value;
    return true;
}

enum option_code {
    OPTION_KEY = 256,
    OPTION_KIND,
    OPTION_REASON,
    OPTION_ROUTE,
    OPTION_SINCE,
    OPTION_UNTIL,
    OPTION_LIMIT,
    OPTION_JSON,
    OPTION_NAMESPACE,
    OPTION_STORE,
    OPTION_HELP,
};

static const struct option options[] = {
    {"key", required_argument, NULL, OPTION_KEY},
    {"kind", required_argument, NULL, OPTION_KIND},
    {"reason", required_argument, NULL, OPTION_REASON},
    {"route", required_argument, NULL, OPTION_ROUTE},
    {"since", required_argument, NULL, OPTION_SINCE},
    {"until", required_argument, NULL, OPTION_UNTIL},
    {"limit", required_argument, NULL, OPTION_LIMIT},
    {"json", no_argument, NULL, OPTION_JSON},
    {"namespace", required_argument, NULL, OPTION_NAMESPACE},
    {"store", required_argument, NULL, OPTION_STORE},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

/* An option with a value. An empty one is refused: it would not filter, and show everything. */
static bool take_value(struct arguments *out, int code, const char *value)
{
    struct audit_filter *filter = &out->filter;
    struct slice text = {.data = value, .len = strlen(value)};
    uint64_t now_ms = (uint64_t)time(NULL) * 1000;
    if (text.len == 0)
        return complain("an option has an empty value", "");
    switch (code) {
    case 'c': out->place.config_file = value; return true;
    case OPTION_STORE: out->place.store_path = value; return true;
    case OPTION_KEY: filter->key = text; return true;
    case OPTION_REASON: filter->reason = text; return true;
    case OPTION_ROUTE: filter->route = text; return true;
    case OPTION_NAMESPACE: filter->ns = text; return true;
    case OPTION_KIND: return audit_kind_parse(text, &filter->kind) || complain("unknown kind: ", value);
    case OPTION_LIMIT: return parse_limit(text, &filter->limit) || complain("--limit is not 1 to 1000000: ", value);
    case OPTION_SINCE: return time_parse(text, now_ms, &filter->since_ms) || complain("--since is not a time: ", value);
    case OPTION_UNTIL:
        if (!time_parse(text, now_ms, &filter->until_ms))
            return complain("--until is not a time: ", value);
        if (filter->until_ms == 0) /* 1970 or before: nothing, where 0 would mean no limit */
            filter->until_ms = 1;
        return true;
    default: return false;
    }
}

static bool complain_option(int code, int argc, char **argv)
{
    const char short_name[] = {'-', (char)optopt, '\0'};
    bool is_short = optopt > 0 && optopt < 256;
    const char *name = is_short ? short_name : (optind <= argc ? argv[optind - 1] : "");
    return complain(code == ':' ? "a value is missing after " : "unknown option or misplaced value: ", name);
}

static bool parse_arguments(int argc, char **argv, struct arguments *out)
{
    int code;
    *out = (struct arguments){.place.command = "audit", .filter = {.descending = true, .limit = LIMIT_DEFAULT}};
    opterr = 0;
    optind = 0; /* glibc: start over */
    while ((code = getopt_long(argc, argv, "+:c:", options, NULL)) != -1) {
        if (code == '?' || code == ':')
            return complain_option(code, argc, argv);
        if (code == OPTION_JSON)
            out->json = true;
        else if (code == OPTION_HELP)
            out->help = true;
        else if (!take_value(out, code, optarg))
            return false;
    }
    if (optind < argc)
        return complain("unexpected argument: ", argv[optind]);
    if (!out->help && (out->place.config_file == NULL) == (out->place.store_path == NULL))
        return complain("give either -c FILE or --store DIR", "");
    return true;
}

int command_audit(int argc, char **argv)
{
    struct arguments arguments;
    if (!parse_arguments(argc, argv, &arguments))
        return COMMAND_USAGE;
    if (arguments.help) {
        fputs(usage, stdout);
        return COMMAND_DONE;
    }
    int status = place_find(&arguments.place);
    if (status == COMMAND_DONE)
        status = show(&arguments.place, &arguments);
    place_free(&arguments.place);
    return status;
}
