/*
 * gateway/command_fences.c - `fencegate fences`: list, get, raise, reset; and how a fence looks as JSON.
 *
 * Arguments and output. Where the store is, and who changes it, is command_store.c's.
 */
#include "gateway/command.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "gateway/admin_query.h"
#include "gateway/command_store.h"
#include "gateway/command_table.h"
#include "gateway/token.h"

#define PAGE 1000

static const char usage[] =
    "usage: fencegate fences list (-c FILE | --store DIR) [--namespace N] [--prefix P] [--json]\n"
    "       fencegate fences get KEY (-c FILE | --store DIR) [--namespace N] [--json]\n"
    "       fencegate fences raise KEY TOKEN --reason R (-c FILE | --store DIR) [--namespace N] [--json]\n"
    "       fencegate fences reset KEY --reason R (-c FILE | --store DIR) [--namespace N] [--json]\n"
    "  N  the namespace, `default` unless given (list: all)\n"
    "  R  goes into the audit: 1 to 255 bytes of UTF-8 without control characters\n";

enum action { ACTION_LIST, ACTION_GET, ACTION_RAISE, ACTION_RESET };

struct arguments {
    struct store_place place;
    enum action action;
    bool json, help;
    struct slice ns, prefix, key, reason; /* point into argv */
    uint64_t token;
};

void fence_write(struct jsonout *out, const struct fence_entry *entry, const uint64_t *in_flight)
{
    jsonout_object_begin(out);
    jsonout_member_string(out, "namespace", entry->ns.data, entry->ns.len);
    jsonout_member_string(out, "key", entry->key.data, entry->key.len);
    jsonout_member_id(out, "highest", entry->fence.token);
    jsonout_name(out, "updated_at");
    jsonout_time_ms(out, entry->fence.updated_ms);
    if (in_flight != NULL)
        jsonout_member_number(out, "in_flight", *in_flight);
    jsonout_object_end(out);
}

/* ---- list and get ---- */

static const char *const titles[] = {"NAMESPACE", "KEY", "HIGHEST", "UPDATED"};

struct listing {
    struct table table;
    struct fence_filter filter;
    char last_ns[64], last_key[KEY_BYTES_MAX]; /* where the next page goes on */
    bool found;
};

static bool add_fence(void *arg, const struct fence_entry *entry)
{
    struct listing *listing = arg;
    struct table *table = &listing->table;
    if (!table_row_begin(table))
        return false;
    if (table->json) {
        fence_write(&table->text, entry, NULL);
    } else {
        cell_slice(&table->text, entry->ns);
        cell_slice(&table->text, entry->key);
        cell_number(&table->text, entry->fence.token);
        cell_time(&table->text, entry->fence.updated_ms);
    }
    if (entry->ns.len <= sizeof listing->last_ns && entry->key.len <= sizeof listing->last_key) {
        memcpy(listing->last_ns, entry->ns.data, entry->ns.len);
        memcpy(listing->last_key, entry->key.data, entry->key.len);
        listing->filter.after_ns = (struct slice){listing->last_ns, entry->ns.len};
        listing->filter.after_key = (struct slice){listing->last_key, entry->key.len};
    }
    return table_row_end(table);
}

static enum store_error collect(struct store_reader *reader, void *arg)
{
    struct listing *listing = arg;
    bool more = true;
    enum store_error error = STORE_OK;
    while (more && error == STORE_OK && !listing->table.failed)
        error = store_fences_query(reader, &listing->filter, add_fence, listing, &more);
    return error;
}

static enum store_error look_up(struct store_reader *reader, void *arg)
{
    struct listing *listing = arg;
    struct fence_entry entry = {.ns = listing->filter.ns, .key = listing->filter.prefix};
    enum store_error error = store_fence_get(reader, entry.ns, entry.key, &entry.fence);
    if (error == STORE_OK)
        (void)add_fence(listing, &entry);
    return error == STORE_NOT_FOUND ? STORE_OK : error;
}

static int show(const struct arguments *arguments)
{
    bool one = arguments->action == ACTION_GET;
    struct listing listing = {
        .table = {titles, sizeof titles / sizeof titles[0], .json = arguments->json},
        .filter = {.ns = arguments->ns, .prefix = one ? arguments->key : arguments->prefix, .limit = PAGE}};
    int status = place_read(&arguments->place, one ? look_up : collect, &listing);
    if (status == COMMAND_DONE && listing.table.failed) {
        command_complain("fences", "out of memory");
        status = COMMAND_STORE;
    } else if (status == COMMAND_DONE && one && listing.table.count == 0) {
        command_complain("fences", "No token has been accepted for this key.");
        status = COMMAND_REFUSED;
    } else if (status == COMMAND_DONE && listing.table.count == 0 && !arguments->json) {
        command_complain("fences", "no fence matches");
    }
    if (status == COMMAND_DONE && !table_print(&listing.table, "fences", false))
        status = COMMAND_STORE;
    table_free(&listing.table);
    return status;
}

/* ---- raise and reset ---- */

/* One line; `answer` is the JSON object of a raise, empty for a reset. */
static void print_change(const struct arguments *arguments, const struct jsonout *answer)
{
    struct jsonout line = {0};
    if (arguments->json && arguments->action == ACTION_RESET) {
        jsonout_object_begin(&line);
        jsonout_member_string(&line, "namespace", arguments->ns.data, arguments->ns.len);
        jsonout_member_string(&line, "key", arguments->key.data, arguments->key.len);
        jsonout_name(&line, "highest");
        jsonout_null(&line);
        jsonout_object_end(&line);
    } else if (arguments->json) {
        jsonout_raw(&line, answer->text, answer->len);
    } else {
        jsonout_escaped(&line, arguments->ns.data, arguments->ns.len);
        jsonout_raw(&line, " ", 1);
        jsonout_escaped(&line, arguments->key.data, arguments->key.len);
    }
    printf("%.*s", (int)line.len, line.text == NULL ? "" : line.text);
    jsonout_free(&line);
    if (arguments->json) {
        putchar('\n');
    } else if (arguments->action == ACTION_RESET) {
        printf(": reset\n");
    } else {
        json_t *fence = json_loadb(answer->text, answer->len, 0, NULL);
        const char *highest = json_string_value(json_object_get(fence, "highest"));
        json_int_t in_flight = json_integer_value(json_object_get(fence, "in_flight"));
        printf(": the fence is at %s", highest == NULL ? "?" : highest);
        if (in_flight > 0)
            printf(", %lld call%s with lower tokens still in flight", (long long)in_flight, in_flight == 1 ? "" : "s");
        putchar('\n');
        json_decref(fence);
    }
}

static int change(const struct arguments *arguments)
{
    struct jsonout answer = {0};
    struct audit_record record = {
        .ns = arguments->ns, .key = arguments->key, .token = arguments->token, .reason = arguments->reason};
    int status = place_change(&arguments->place, arguments->action == ACTION_RAISE ? STORE_RAISE : STORE_RESET, &record,
                              &answer);
    if (status == COMMAND_DONE) {
        print_change(arguments, &answer);
        if (!command_flush("fences"))
            status = COMMAND_STORE;
    }
    jsonout_free(&answer);
    return status;
}

/* ---- arguments ---- */

enum option_code {
    OPTION_NAMESPACE = 256,
    OPTION_PREFIX,
    OPTION_REASON,
    OPTION_JSON,
    OPTION_STORE,
    OPTION_HELP,
};

static const struct option options[] = {
    {"config", required_argument, NULL, 'c'},           {"namespace", required_argument, NULL, OPTION_NAMESPACE},
    {"prefix", required_argument, NULL, OPTION_PREFIX}, {"reason", required_argument, NULL, OPTION_REASON},
    {"store", required_argument, NULL, OPTION_STORE},   {"json", no_argument, NULL, OPTION_JSON},
    {"help", no_argument, NULL, OPTION_HELP},           {NULL, 0, NULL, 0},
};

static bool complain(const char *what)
{
    fprintf(stderr, "fencegate fences: %s\n%s", what, usage);
    return false;
}

static struct slice of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

static bool take_option(struct arguments *out, int code, const char *value)
{
    switch (code) {
    case 'c': out->place.config_file = value; return true;
    case OPTION_STORE: out->place.store_path = value; return true;
    case OPTION_NAMESPACE: out->ns = of(value); return admin_namespace_valid(out->ns) || complain("not a namespace");
    case OPTION_PREFIX:
        out->prefix = of(value);
        return key_valid(value, out->prefix.len) || complain("not what a key can begin with");
    case OPTION_REASON: out->reason = of(value); return key_valid(value, out->reason.len) || complain("not a reason");
    case OPTION_JSON: out->json = true; return true;
    case OPTION_HELP: out->help = true; return true;
    default: return complain(code == ':' ? "an option lacks its value" : "unknown option");
    }
}

static bool take_words(struct arguments *out, char **words, int count)
{
    static const struct {
        const char *name;
        enum action action;
        int words;
    } actions[] = {
        {"list", ACTION_LIST, 1}, {"get", ACTION_GET, 2}, {"raise", ACTION_RAISE, 3}, {"reset", ACTION_RESET, 2}};
    int found = -1;
    for (int i = 0; count > 0 && i < (int)(sizeof actions / sizeof actions[0]); i++)
        if (strcmp(words[0], actions[i].name) == 0)
            found = i;
    if (found < 0)
        return complain("list, get, raise or reset?");
    out->action = actions[found].action;
    if (count != actions[found].words)
        return complain("wrong number of arguments");
    if (count > 1)
        out->key = of(words[1]);
    if (count > 1 && !key_valid(words[1], out->key.len))
        return complain("a key is 1 to 255 bytes of UTF-8 without control characters");
    if (out->action == ACTION_RAISE && !token_parse(words[2], strlen(words[2]), &out->token))
        return complain("a token is 1 to 20 digits with a value from 1 to 18446744073709551615");
    return true;
}

static bool parse_arguments(int argc, char **argv, struct arguments *out)
{
    int code;
    *out = (struct arguments){.place.command = "fences"};
    opterr = 0;
    optind = 0; /* glibc: start over */
    while ((code = getopt_long(argc, argv, ":c:", options, NULL)) != -1)
        if (!take_option(out, code, optarg))
            return false;
    if (out->help)
        return true;
    if (!take_words(out, argv + optind, argc - optind))
        return false;
    bool changes = out->action == ACTION_RAISE || out->action == ACTION_RESET;
    if (changes != (out->reason.data != NULL))
        return complain(changes ? "--reason is missing" : "--reason goes with raise and reset");
    if (out->prefix.data != NULL && out->action != ACTION_LIST)
        return complain("--prefix goes with list");
    if (out->ns.data == NULL && out->action != ACTION_LIST)
        out->ns = of("default");
    if ((out->place.config_file == NULL) == (out->place.store_path == NULL))
        return complain("give either -c FILE or --store DIR");
    return true;
}

int command_fences(int argc, char **argv)
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
        status = arguments.action == ACTION_RAISE || arguments.action == ACTION_RESET ? change(&arguments)
                                                                                      : show(&arguments);
    place_free(&arguments.place);
    return status;
}
