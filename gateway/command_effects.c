/*
 * gateway/command_effects.c - `fencegate effects`: what is in doubt, in flight or unknown, and resolve; and how such an
 * effect looks as JSON.
 *
 * Arguments and output. Where the store is, and who changes it, is command_store.c's.
 */
#include "gateway/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/admin_body.h"
#include "gateway/admin_query.h"
#include "gateway/command_options.h"
#include "gateway/command_store.h"
#include "gateway/command_table.h"
#include "gateway/token.h"
#include "gateway/utf8.h"

#define PAGE 1000

enum { ACTION_IN_DOUBT, ACTION_IN_FLIGHT, ACTION_UNKNOWN, ACTION_RESOLVE };

struct arguments {
    struct command_line line;
    uint64_t id;
    struct slice outcome, note; /* point into argv */
};

void effect_write(struct jsonout *out, const struct audit_record *effect, enum effects_state state)
{
    jsonout_object_begin(out);
    jsonout_member_id(out, "id", state == EFFECTS_UNKNOWN ? effect->effect_id : effect->id);
    jsonout_name(out, "time");
    jsonout_time_ms(out, audit_accepted_ms(effect));
    jsonout_member_string(out, "route", effect->route.data, effect->route.len);
    jsonout_member_string(out, "namespace", effect->ns.data, effect->ns.len);
    jsonout_member_string(out, "key", effect->key.data, effect->key.len);
    if (effect->token != 0)
        jsonout_member_id(out, "token", effect->token);
    jsonout_member_string(out, "method", effect->method.data, effect->method.len);
    jsonout_member_string(out, "path", effect->path.data, effect->path.len);
    jsonout_member_string(out, "target", effect->target.data, effect->target.len);
    jsonout_member_string(out, "client", effect->client.data, effect->client.len);
    if (state == EFFECTS_UNKNOWN) {
        jsonout_member_string(out, "reason", effect->reason.data, effect->reason.len);
        jsonout_member_id(out, "audit_id", effect->id);
    }
    jsonout_object_end(out);
}

/* ---- lists ---- */

static const char *const titles[] = {"TIME",    "ID",     "ROUTE",  "NAMESPACE", "KEY",   "TOKEN",
                                     "REQUEST", "TARGET", "CLIENT", "REASON",    "RECORD"};

static const char *const nothing[] = {
    [EFFECTS_IN_DOUBT] = "nothing is in doubt",
    [EFFECTS_RUNNING] = "nothing is in flight on a route with \"ledger\": \"effects\"",
    [EFFECTS_UNKNOWN] = "nothing that was recorded as unknown waits to be resolved",
};

struct listing {
    struct table table;
    struct effects_filter filter;
};

static bool add_effect(void *arg, const struct audit_record *effect)
{
    struct listing *listing = arg;
    struct table *table = &listing->table;
    struct jsonout *out = &table->text;
    bool unknown = listing->filter.state == EFFECTS_UNKNOWN;
    if (!table_row_begin(table))
        return false;
    if (table->json) {
        effect_write(out, effect, listing->filter.state);
    } else {
        cell_time(out, audit_accepted_ms(effect));
        cell_number(out, unknown ? effect->effect_id : effect->id);
        cell_slice(out, effect->route);
        cell_slice(out, effect->ns);
        cell_slice(out, effect->key);
        cell_number(out, effect->token);
        cell_request(out, effect->method, effect->path);
        cell_slice(out, effect->target);
        cell_slice(out, effect->client);
        cell_slice(out, effect->reason);
        cell_number(out, unknown ? effect->id : 0);
    }
    return table_row_end(table);
}

static enum store_error collect(struct store_reader *reader, void *arg)
{
    struct listing *listing = arg;
    enum store_error error;
    do
        error = store_effects_query(reader, &listing->filter, add_effect, listing, &listing->filter.after);
    while (error == STORE_OK && listing->filter.after != 0 && !listing->table.failed);
    return error;
}

static int show(const struct arguments *arguments, enum effects_state state)
{
    struct listing listing = {
        .table = {titles, sizeof titles / sizeof titles[0], .json = arguments->line.json},
        .filter = {.state = state, .ns = arguments->line.ns, .limit = PAGE},
    };
    struct table *table = &listing.table;
    int status = place_read(&arguments->line.place, collect, &listing);
    if (status == COMMAND_DONE && table->failed) {
        command_complain("effects", "out of memory");
        status = COMMAND_STORE;
    } else if (status == COMMAND_DONE && table->count == 0 && !arguments->line.json && !command_behind()) {
        command_complain("effects", nothing[state]);
    }
    if (status == COMMAND_DONE && !table_print(table, "effects", false))
        status = COMMAND_STORE;
    table_free(table);
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

static const char *take_namespace(void *arguments, struct slice value)
{
    (void)arguments;
    return admin_namespace_valid(value) ? NULL : "1 to 64 of A-Z a-z 0-9 . _ -";
}

#define LISTS ACTION(ACTION_IN_DOUBT) | ACTION(ACTION_IN_FLIGHT) | ACTION(ACTION_UNKNOWN)
#define RESOLVES .actions = ACTION(ACTION_RESOLVE), .needed = ACTION(ACTION_RESOLVE)

static const struct command_option options[] = {
    {"namespace", "N", "effects of keys in this namespace", .at = offsetof(struct arguments, line.ns),
     .take = take_namespace, .actions = LISTS},
    {"outcome", "OUTCOME", "what the partner says became of it: sent or not-sent",
     .at = offsetof(struct arguments, outcome), .choices = outcomes, RESOLVES},
    {"note", "NOTE", "how it is known; goes into the audit", .at = offsetof(struct arguments, note), .take = take_note,
     RESOLVES},
};

static const struct command_action actions[] = {
    [ACTION_IN_DOUBT] = {"in-doubt", .help = "effects that a crash left without an outcome, oldest first"},
    [ACTION_IN_FLIGHT] = {"in-flight", .help = "effects that a running gateway has under way or waiting, oldest first"},
    [ACTION_UNKNOWN] = {"unknown", .help = "effects that were recorded as unknown and not resolved yet, oldest first"},
    [ACTION_RESOLVE] = {"resolve",
                        {{"ID", .take = take_id}},
                        "write down what became of one that is in doubt, or `unknown` in the audit (its effect_id)"},
};

static int run(struct command_line *line)
{
    static const enum effects_state states[] = {
        [ACTION_IN_DOUBT] = EFFECTS_IN_DOUBT, [ACTION_IN_FLIGHT] = EFFECTS_RUNNING, [ACTION_UNKNOWN] = EFFECTS_UNKNOWN};
    const struct arguments *arguments = (const struct arguments *)line;
    return line->action == ACTION_RESOLVE ? resolve(arguments) : show(arguments, states[line->action]);
}

const struct command command_effects = {
    .name = "effects",
    .summary = "calls under way, calls whose outcome is not known, and what became of them",
    .place = PLACE_STORE,
    .json = true,
    .actions = actions,
    .action_count = sizeof actions / sizeof actions[0],
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .size = sizeof(struct arguments),
    .run = run,
};
