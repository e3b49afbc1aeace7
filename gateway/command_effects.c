/*
 * gateway/command_effects.c - `fencegate effects`: what is in doubt, and resolve; and how such an effect looks as JSON.
 *
 * Arguments and output. Where the store is, and who changes it, is command_store.c's.
 */
#include "gateway/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/admin_body.h"
#include "gateway/command_options.h"
#include "gateway/command_store.h"
#include "gateway/command_table.h"
#include "gateway/token.h"
#include "gateway/utf8.h"

#define PAGE 1000

enum { ACTION_IN_DOUBT, ACTION_RESOLVE };

struct arguments {
    struct command_line line;
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
    struct table table = {titles, sizeof titles / sizeof titles[0], .json = arguments->line.json};
    int status = place_read(&arguments->line.place, collect, &table);
    if (status == COMMAND_DONE && table.failed) {
        command_complain("effects", "out of memory");
        status = COMMAND_STORE;
    } else if (status == COMMAND_DONE && table.count == 0 && !arguments->line.json) {
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
    int status = place_change(&arguments->line.place, STORE_RESOLVE, &record, &answer);
    if (status == COMMAND_DONE) {
        if (arguments->line.json)
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

static const char *take_id(void *arguments, struct slice value)
{
    return token_parse(value.data, value.len, &((struct arguments *)arguments)->id)
               ? NULL
               : "an effect's id is decimal digits";
}

static const char *take_note(void *arguments, struct slice value)
{
    uint32_t code;
    size_t at = 0, step = 1;
    (void)arguments;
    while (at < value.len && step > 0) {
        step = utf8_next(value.data + at, value.len - at, &code);
        at += step;
    }
    return value.len <= ADMIN_NOTE_MAX && step > 0 ? NULL : "a note is 1 to 4096 bytes of UTF-8";
}

static const char *const outcomes[] = {"sent", "not-sent", NULL};

#define RESOLVES .actions = ACTION(ACTION_RESOLVE), .needed = ACTION(ACTION_RESOLVE)

static const struct command_option options[] = {
    {"outcome", "OUTCOME", "what the partner says became of it: sent or not-sent",
     .at = offsetof(struct arguments, outcome), .choices = outcomes, RESOLVES},
    {"note", "NOTE", "how it is known; goes into the audit", .at = offsetof(struct arguments, note), .take = take_note,
     RESOLVES},
};

static const struct command_action actions[] = {
    [ACTION_IN_DOUBT] = {"in-doubt", .help = "effects whose outcome nobody recorded, oldest first"},
    [ACTION_RESOLVE] = {"resolve",
                        {{"ID", .take = take_id}},
                        "write down what became of one that is in doubt, or `unknown` in the audit (its effect_id)"},
};

static int run(struct command_line *line)
{
    const struct arguments *arguments = (const struct arguments *)line;
    return line->action == ACTION_RESOLVE ? resolve(arguments) : show(arguments);
}

const struct command command_effects = {
    .name = "effects",
    .summary = "calls whose outcome nobody recorded, and what became of them",
    .place = PLACE_STORE,
    .json = true,
    .actions = actions,
    .action_count = sizeof actions / sizeof actions[0],
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .size = sizeof(struct arguments),
    .run = run,
};
