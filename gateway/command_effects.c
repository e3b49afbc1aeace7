/*
 * gateway/command_effects.c - `fencegate effects`: what is in doubt, and resolve; and how such an effect looks as JSON.
 *
 * Arguments and output. Where the store is, and who changes it, is command_store.c's.
 */
#include "gateway/command.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/admin_body.h"
#include "gateway/command_store.h"
#include "gateway/command_table.h"
#include "gateway/token.h"
#include "gateway/utf8.h"

#define PAGE 1000

static const char usage[] =
    "usage: fencegate effects in-doubt (-c FILE | --store DIR) [--json]\n"
    "       fencegate effects resolve ID --outcome sent|not-sent --note NOTE (-c FILE | --store DIR) [--json]\n"
    "  ID    an effect in doubt, or one that the audit has as `unknown` (its effect_id)\n"
    "  NOTE  how it is known; goes into the audit: 1 to 4096 bytes of UTF-8\n";

struct arguments {
    struct store_place place;
    bool resolve, json, help;
    uint64_t id;
    struct slice outcome, note; /* point into argv */
};

void effect_write(struct jsonout *out, const struct audit_record *intent)
{
    jsonout_object_begin(out);
    jsonout_member_id(out, "id", intent->id);
    jsonout_name(out, "time");
    jsonout_time_ms(out, intent->time_ms);
    jsonout_member_string(out, "route", intent->route.data, intent->route.len);
    jsonout_member_string(out, "namespace", intent->ns.data, intent->ns.len);
    jsonout_member_string(out, "key", intent->key.data, intent->key.len);
    if (intent->token != 0)
        jsonout_member_id(out, "token", intent->token);
    jsonout_member_string(out, "method", intent->method.data, intent->method.len);
    jsonout_member_string(out, "path", intent->path.data, intent->path.len);
    jsonout_member_string(out, "target", intent->target.data, intent->target.len);
    jsonout_object_end(out);
}

/* ---- in-doubt ---- */

static const char *const titles[] = {"TIME", "ID", "ROUTE", "NAMESPACE", "KEY", "TOKEN", "REQUEST", "TARGET"};

static bool add_effect(void *arg, const struct audit_record *intent)
{
    struct table *table = arg;
    struct jsonout *out = &table->text;
    if (!table_row_begin(table))
        return false;
    if (table->json) {
        effect_write(out, intent);
    } else {
        cell_time(out, intent->time_ms);
        cell_number(out, intent->id);
        cell_slice(out, intent->route);
        cell_slice(out, intent->ns);
        cell_slice(out, intent->key);
        cell_number(out, intent->token);
        cell_request(out, intent->method, intent->path);
        cell_slice(out, intent->target);
    }
    return table_row_end(table);
}

static enum store_error collect(struct store_reader *reader, void *arg)
{
    struct table *table = arg;
    uint64_t after = 0;
    enum store_error error;
    do
        error = store_effects_query(reader, after, PAGE, add_effect, table, &after);
    while (error == STORE_OK && after != 0 && !table->failed);
    return error;
}

static int show(const struct arguments *arguments)
{
    struct table table = {titles, sizeof titles / sizeof titles[0], .json = arguments->json};
    int status = place_read(&arguments->place, collect, &table);
    if (status == COMMAND_DONE && table.failed) {
        command_complain("effects", "out of memory");
        status = COMMAND_STORE;
    } else if (status == COMMAND_DONE && table.count == 0 && !arguments->json) {
        command_complain("effects", "nothing is in doubt");
    }
    if (status == COMMAND_DONE && !table_print(&table, "effects", false))
        status = COMMAND_STORE;
    table_free(&table);
    return status;
}

/* ---- resolve ---- */

static int resolve(const struct arguments *arguments)
{
    struct jsonout answer = {0};
    struct audit_record record = {.effect_id = arguments->id, .reason = arguments->outcome, .note = arguments->note};
    int status = place_change(&arguments->place, STORE_RESOLVE, &record, &answer);
    if (status == COMMAND_DONE) {
        if (arguments->json)
            printf("%.*s\n", (int)answer.len, answer.text);
        else
            printf("effect %" PRIu64 ": resolved, %.*s\n", arguments->id, (int)arguments->outcome.len,
                   arguments->outcome.data);
        if (!command_flush("effects"))
            status = COMMAND_STORE;
    }
    jsonout_free(&answer);
    return status;
}

/* ---- arguments ---- */

enum option_code { OPTION_OUTCOME = 256, OPTION_NOTE, OPTION_JSON, OPTION_STORE, OPTION_HELP };

static const struct option options[] = {
    {"config", required_argument, NULL, 'c'},
    {"outcome", required_argument, NULL, OPTION_OUTCOME},
    {"note", required_argument, NULL, OPTION_NOTE},
    {"store", required_argument, NULL, OPTION_STORE},
    {"json", no_argument, NULL, OPTION_JSON},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

static bool complain(const char *what)
{
    fprintf(stderr, "fencegate effects: %s\n%s", what, usage);
    return false;
}

static bool note_valid(struct slice text)
{
    uint32_t code;
    size_t at = 0, step = 1;
    while (at < text.len && step > 0) {
        step = utf8_next(text.data + at, text.len - at, &code);
        at += step;
    }
    return text.len > 0 && text.len <= ADMIN_NOTE_MAX && step > 0;
}

static bool take_option(struct arguments *out, int code, const char *value)
{
    struct slice text = {value, value == NULL ? 0 : strlen(value)};
    switch (code) {
    case 'c': out->place.config_file = value; return true;
    case OPTION_STORE: out->place.store_path = value; return true;
    case OPTION_OUTCOME:
        out->outcome = text;
        return strcmp(value, "sent") == 0 || strcmp(value, "not-sent") == 0 ||
               complain("--outcome is sent or not-sent");
    case OPTION_NOTE: out->note = text; return note_valid(text) || complain("not a note");
    case OPTION_JSON: out->json = true; return true;
    case OPTION_HELP: out->help = true; return true;
    default: return complain(code == ':' ? "an option lacks its value" : "unknown option");
    }
}

static bool take_words(struct arguments *out, char **words, int count)
{
    out->resolve = count > 0 && strcmp(words[0], "resolve") == 0;
    if (!out->resolve && (count == 0 || strcmp(words[0], "in-doubt") != 0))
        return complain("in-doubt or resolve?");
    if (count != (out->resolve ? 2 : 1))
        return complain("wrong number of arguments");
    if (out->resolve && !token_parse(words[1], strlen(words[1]), &out->id))
        return complain("an effect's id is decimal digits");
    if (out->resolve && (out->outcome.data == NULL || out->note.data == NULL))
        return complain("--outcome and --note are needed");
    if (!out->resolve && (out->outcome.data != NULL || out->note.data != NULL))
        return complain("--outcome and --note go with resolve");
    return true;
}

static bool parse_arguments(int argc, char **argv, struct arguments *out)
{
    int code;
    *out = (struct arguments){.place.command = "effects"};
    opterr = 0;
    optind = 0; /* glibc: start over */
    while ((code = getopt_long(argc, argv, ":c:", options, NULL)) != -1)
        if (!take_option(out, code, optarg))
            return false;
    if (out->help)
        return true;
    if (!take_words(out, argv + optind, argc - optind))
        return false;
    if ((out->place.config_file == NULL) == (out->place.store_path == NULL))
        return complain("give either -c FILE or --store DIR");
    return true;
}

int command_effects(int argc, char **argv)
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
        status = arguments.resolve ? resolve(&arguments) : show(&arguments);
    place_free(&arguments.place);
    return status;
}
