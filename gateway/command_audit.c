/*
 * gateway/command_audit.c - `fencegate audit`: shows the audit of a store, and how a record looks as JSON.
 *
 * Reads only, beside a running gateway or without one. Which records match is the store's work; the order (newest N,
 * oldest of them first) and the two forms, a table for people and JSON lines for programs, are made here.
 */
#include "gateway/command.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/config.h"
#include "gateway/jsonout.h"
#include "gateway/timeparse.h"
#include "gateway/token.h"
#include "store/store.h"

#define EXIT_DONE 0
#define EXIT_USAGE 2
#define EXIT_STORE 3

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 1000000
#define PAD_MAX 40 /* one long path must not push every row's next column off the screen */
#define WHY_CAP 1024

struct arguments {
    const char *config_file, *store_path;
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

/* Records come newest first and are only valid within the call: each becomes a row here, shown in reverse after. */
struct listing {
    struct jsonout text; /* the rows: a JSON line each, or a cell after the other, each with a NUL behind it */
    size_t *rows;        /* where each begins */
    size_t count, cap, limit;
    bool json, failed;
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

static void cell_end(struct jsonout *out)
{
    jsonout_raw(out, "", 1);
}

/* Bytes from outside, made safe: a key with an escape sequence must not write on the operator's terminal. */
static void cell_slice(struct jsonout *out, struct slice text)
{
    jsonout_escaped(out, text.data, text.len);
    cell_end(out);
}

static void cell_number(struct jsonout *out, uint64_t value)
{
    if (value != 0) {
        char digits[TOKEN_DIGITS_MAX + 1];
        jsonout_raw(out, digits, token_format(value, digits));
    }
    cell_end(out);
}

/* Local time with its offset, since people compare it with their own logs and clocks change twice a year. */
static void cell_time(struct jsonout *out, uint64_t unix_ms)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm local;
    char date[32], offset[8], text[64];
    if (localtime_r(&seconds, &local) == NULL || strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local) == 0 ||
        strftime(offset, sizeof offset, "%z", &local) == 0) {
        format_time_ms(unix_ms, text);
    } else {
        snprintf(text, sizeof text, "%s.%03u %s", date, (unsigned)(unix_ms % 1000), offset);
    }
    jsonout_raw(out, text, strlen(text));
    cell_end(out);
}

static void cell_kind(struct jsonout *out, const struct audit_record *record)
{
    static const char would_drop[] = " (would drop)";
    const char *kind = audit_kind_name(record->kind);
    jsonout_raw(out, kind, strlen(kind));
    if (record->would_drop)
        jsonout_raw(out, would_drop, sizeof would_drop - 1);
    cell_end(out);
}

static void cell_request(struct jsonout *out, const struct audit_record *record)
{
    jsonout_escaped(out, record->method.data, record->method.len);
    if (record->method.len > 0 && record->path.len > 0)
        jsonout_raw(out, " ", 1);
    cell_slice(out, record->path);
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
    cell_request(out, record);
    cell_slice(out, record->target);
    cell_slice(out, record->client);
    cell_number(out, record->effect_id);
    cell_slice(out, record->note);
}

static bool row_begin(struct listing *listing)
{
    if (listing->count == listing->cap) {
        size_t cap = listing->cap == 0 ? 128 : listing->cap * 2;
        size_t *rows = realloc(listing->rows, cap * sizeof *rows);
        if (rows == NULL)
            return false;
        listing->rows = rows;
        listing->cap = cap;
    }
    listing->rows[listing->count++] = listing->text.len;
    return true;
}

static bool add_record(void *arg, const struct audit_record *record)
{
    struct listing *listing = arg;
    if (!row_begin(listing)) {
        listing->failed = true;
        return false;
    }
    if (listing->json) {
        audit_record_write(&listing->text, record);
        jsonout_raw(&listing->text, "\n", 1);
    } else {
        write_cells(&listing->text, record);
    }
    listing->failed = listing->text.failed;
    return !listing->failed && listing->count < listing->limit;
}

/* Places that UTF-8 text takes on a terminal, near enough: code points. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++)
        width += (*text & 0xC0) != 0x80;
    return width;
}

static void measure(const struct listing *listing, size_t width[COLUMN_COUNT])
{
    memset(width, 0, COLUMN_COUNT * sizeof *width);
    for (size_t row = 0; row < listing->count; row++) {
        const char *cell = listing->text.text + listing->rows[row];
        for (int column = 0; column < COLUMN_COUNT; column++, cell += strlen(cell) + 1) {
            size_t cell_width = width_of(cell);
            if (cell_width > width[column])
                width[column] = cell_width;
        }
    }
    for (int column = 0; column < COLUMN_COUNT; column++) {
        size_t title_width = strlen(column_title[column]);
        if (width[column] > 0 && width[column] < title_width)
            width[column] = title_width;
        if (width[column] > PAD_MAX)
            width[column] = PAD_MAX;
    }
}

/* Blanks are written only before a further cell, so that no row ends in them. */
static void print_cell(const char *cell, size_t width, size_t *owed)
{
    if (width == 0) /* empty in every row: the column is left out */
        return;
    if (*cell == '\0')
        cell = "-";
    size_t used = width_of(cell);
    printf("%*s%s", (int)*owed, "", cell);
    *owed = (used < width ? width - used : 0) + 2;
}

static void print_table(const struct listing *listing)
{
    size_t width[COLUMN_COUNT], owed = 0;
    measure(listing, width);
    for (int column = 0; column < COLUMN_COUNT; column++)
        print_cell(column_title[column], width[column], &owed);
    putchar('\n');
    for (size_t row = listing->count; row > 0; row--) {
        const char *cell = listing->text.text + listing->rows[row - 1];
        owed = 0;
        for (int column = 0; column < COLUMN_COUNT; column++, cell += strlen(cell) + 1)
            print_cell(cell, width[column], &owed);
        putchar('\n');
    }
}

static void print_lines(const struct listing *listing)
{
    size_t end = listing->text.len;
    for (size_t row = listing->count; row > 0; row--) {
        size_t begin = listing->rows[row - 1];
        fwrite(listing->text.text + begin, 1, end - begin, stdout);
        end = begin;
    }
}

static int print_listing(const struct listing *listing)
{
    if (listing->json)
        print_lines(listing);
    else if (listing->count > 0)
        print_table(listing);
    else
        fprintf(stderr, "fencegate audit: no record matches\n");
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("fencegate audit: standard output");
        return EXIT_STORE;
    }
    return EXIT_DONE;
}

static enum store_error collect(struct store_reader *reader, struct audit_filter filter, struct listing *listing)
{
    do { /* a page may end early: one look at a large store is bounded */
        uint64_t next = 0;
        filter.limit = listing->limit - listing->count;
        enum store_error error = store_audit_query(reader, &filter, add_record, listing, &next);
        if (error != STORE_OK)
            return error;
        filter.after = next;
    } while (filter.after != 0 && listing->count < listing->limit && !listing->failed);
    return STORE_OK;
}

static int show(const char *path, const struct arguments *arguments)
{
    struct listing listing = {.json = arguments->json, .limit = arguments->filter.limit};
    struct store *store = NULL;
    struct store_reader *reader = NULL;
    char why[WHY_CAP] = "";
    int status = EXIT_STORE;
    if (store_open_readonly(path, &store, why, sizeof why) != STORE_OK) {
        fprintf(stderr, "fencegate audit: %s\n", why);
        return EXIT_STORE;
    }
    enum store_error error = store_reader_open(store, &reader);
    if (error == STORE_OK)
        error = collect(reader, arguments->filter, &listing);
    if (error == STORE_FORMAT)
        fprintf(stderr, "fencegate audit: %s: a record does not decode\n", path);
    else if (error != STORE_OK)
        fprintf(stderr, "fencegate audit: %s: the store can't be read\n", path);
    else if (listing.failed)
        fprintf(stderr, "fencegate audit: out of memory, try a smaller --limit\n");
    else
        status = print_listing(&listing);
    if (reader != NULL)
        store_reader_close(&reader);
    store_close(&store);
    free(listing.rows);
    jsonout_free(&listing.text);
    return status;
}

static int show_from_config(const struct arguments *arguments)
{
    char error[WHY_CAP] = "";
    const struct config *config = config_load(arguments->config_file, error, sizeof error);
    if (config == NULL) {
        fprintf(stderr, "fencegate audit: %s\n", error);
        return EXIT_USAGE;
    }
    int status = show(config->store_path, arguments);
    config_unref(&config);
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
    case 'c': out->config_file = value; return true;
    case OPTION_STORE: out->store_path = value; return true;
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
    *out = (struct arguments){.filter = {.descending = true, .limit = LIMIT_DEFAULT}};
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
    if (!out->help && (out->config_file == NULL) == (out->store_path == NULL))
        return complain("give either -c FILE or --store DIR", "");
    return true;
}

int command_audit(int argc, char **argv)
{
    struct arguments arguments;
    if (!parse_arguments(argc, argv, &arguments))
        return EXIT_USAGE;
    if (arguments.help) {
        fputs(usage, stdout);
        return EXIT_DONE;
    }
    if (arguments.store_path != NULL)
        return show(arguments.store_path, &arguments);
    return show_from_config(&arguments);
}
