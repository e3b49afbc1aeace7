/*
 * gateway/command_history.c - `fencegate history`: the story of one key, a row for each token, oldest lease first.
 *
 * A running gateway is asked first: it also knows what is in flight. Without one, or when it does not answer, the store
 * tells the same but for that. Either way the story comes as the JSON object that the admin listener gives, and the
 * table is made of it. What is in it is history.c's.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "gateway/command.h"
#include "gateway/command_hint.h"
#include "gateway/command_options.h"
#include "gateway/command_store.h"
#include "gateway/command_table.h"
#include "gateway/history.h"
#include "gateway/timeparse.h"
#include "gateway/token.h"

struct arguments {
    struct command_line line;
    struct slice key;
    size_t limit;
};

enum column {
    COLUMN_TOKEN,
    COLUMN_ACCEPTED,
    COLUMN_BY,
    COLUMN_SENT,
    COLUMN_DROPPED,
    COLUMN_WOULD_DROP,
    COLUMN_UNKNOWN,
    COLUMN_NOT_SENT,
    COLUMN_REJECTED,
    COLUMN_RESOLVED,
    COLUMN_IN_FLIGHT,
    COLUMN_WAITING,
    COLUMN_IN_DOUBT,
    COLUMN_REASONS,
    COLUMN_LAST_SEEN,
    COLUMN_COUNT,
};

static const struct {
    const char *title, *count; /* count: the member that holds it */
} columns[COLUMN_COUNT] = {
    [COLUMN_TOKEN] = {"TOKEN", NULL},
    [COLUMN_ACCEPTED] = {"ACCEPTED", NULL},
    [COLUMN_BY] = {"BY", NULL},
    [COLUMN_SENT] = {"SENT", "sent"},
    [COLUMN_DROPPED] = {"DROPPED", "dropped"},
    [COLUMN_WOULD_DROP] = {"WOULD-DROP", "would_drop"}, /* of those sent, ... */
    [COLUMN_UNKNOWN] = {"UNKNOWN", "unknown"},
    [COLUMN_NOT_SENT] = {"NOT-SENT", "not_sent"},
    [COLUMN_REJECTED] = {"REJECTED", "rejected"},
    [COLUMN_RESOLVED] = {"RESOLVED", "resolved"},
    [COLUMN_IN_FLIGHT] = {"IN-FLIGHT", "in_flight"},
    [COLUMN_WAITING] = {"WAITING", "waiting"},
    [COLUMN_IN_DOUBT] = {"IN-DOUBT", "in_doubt"},
    [COLUMN_REASONS] = {"REASONS", NULL},
    [COLUMN_LAST_SEEN] = {"LAST SEEN", NULL},
};

static struct slice text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return (struct slice){text, text == NULL ? 0 : strlen(text)};
}

static uint64_t count_of(const json_t *object, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(object, name));
    return value < 0 ? 0 : (uint64_t)value;
}

static void cell_moment(struct jsonout *out, struct slice time)
{
    uint64_t time_ms;
    if (time.data != NULL && time_parse(time, 0, &time_ms))
        cell_time(out, time_ms);
    else
        cell_end(out);
}

static void say(struct jsonout *out, const char *text)
{
    jsonout_raw(out, text, strlen(text));
}

static void words(struct jsonout *out, const char *before, struct slice text)
{
    if (text.len == 0)
        return;
    say(out, before);
    jsonout_escaped(out, text.data, text.len);
}

/* A cut BY keeps the client: what is cut off is the reason that somebody gave. */
static void keep_client(struct table *table, size_t before, const json_t *who)
{
    size_t len = before + text_of(who, "client").len + 1; /* the "…" */
    if (len > table->soft_least)
        table->soft_least = len;
}

static void cell_accepted(struct table *table, const json_t *accepted)
{
    struct jsonout *out = &table->text;
    keep_client(table, text_of(accepted, "by").len + 1, accepted);
    cell_moment(out, text_of(accepted, "time"));
    words(out, "", text_of(accepted, "by"));
    words(out, " ", text_of(accepted, "client"));
    words(out, ": ", text_of(accepted, "reason"));
    cell_end(out);
}

/* "stale-token 2, superseded 1" */
static void cell_reasons(struct jsonout *out, json_t *reasons)
{
    const char *reason, *before = "";
    json_t *count;
    json_object_foreach(reasons, reason, count)
    {
        char number[32];
        snprintf(number, sizeof number, " %lld", (long long)json_integer_value(count));
        words(out, before, (struct slice){reason, strlen(reason)});
        say(out, number);
        before = ", ";
    }
    cell_end(out);
}

static void add_token(struct table *table, const json_t *token)
{
    struct jsonout *out = &table->text;
    if (!table_row_begin(table))
        return;
    cell_slice(out, text_of(token, "token"));
    cell_accepted(table, json_object_get(token, "accepted"));
    for (size_t i = COLUMN_SENT; i < COLUMN_REASONS; i++)
        cell_number(out, count_of(token, columns[i].count));
    cell_reasons(out, json_object_get(token, "reasons"));
    cell_moment(out, text_of(token, "last_seen"));
    table->failed |= !table_row_end(table);
}

static void add_reset(struct table *table, const json_t *reset)
{
    struct jsonout *out = &table->text;
    if (!table_row_begin(table))
        return;
    words(out, "reset of ", text_of(reset, "highest"));
    cell_end(out);
    keep_client(table, 0, reset);
    cell_moment(out, text_of(reset, "time"));
    words(out, "", text_of(reset, "client"));
    words(out, ": ", text_of(reset, "reason"));
    cell_end(out);
    for (size_t i = COLUMN_SENT; i < COLUMN_COUNT; i++)
        cell_end(out);
    table->failed |= !table_row_end(table);
}

/* Tokens and resets in the order in which they came. */
static void add_rows(struct table *table, const json_t *story)
{
    const json_t *tokens = json_object_get(story, "tokens"), *resets = json_object_get(story, "resets");
    size_t reset = 0, count = json_array_size(resets);
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *token = json_array_get(tokens, i);
        for (uint64_t since = count_of(token, "resets_since"); reset + since < count; reset++)
            add_reset(table, json_array_get(resets, reset));
        add_token(table, token);
    }
    for (; reset < count; reset++)
        add_reset(table, json_array_get(resets, reset));
}

static void add_end(struct jsonout *out, const json_t *story)
{
    struct slice highest = text_of(story, "highest"), oldest = text_of(story, "oldest_audit_id");
    struct slice removed = text_of(story, "removed_audit_id");
    uint64_t in_flight = count_of(story, "in_flight");
    char number[64];
    words(out, "The fence is at ", highest);
    if (highest.len == 0)
        say(out, "There is no fence");
    snprintf(number, sizeof number, ", %llu call%s in flight", (unsigned long long)in_flight,
             in_flight == 1 ? "" : "s");
    if (in_flight > 0)
        say(out, number);
    say(out, ".\n");
    if (json_is_true(json_object_get(story, "more_tokens")))
        say(out, "Older tokens were left out: see --limit.\n");
    if (oldest.len > 0) {
        words(out, "Records older than ", oldest);
        say(out, " were not looked at.\n");
    }
    if (removed.len > 0) {
        words(out, "Records up to ", removed);
        say(out, " are no longer kept (audit.retain, audit.when_full); some may have been of this key.\n");
    }
}

static int print_story(const json_t *story)
{
    const char *titles[COLUMN_COUNT];
    struct jsonout end = {0};
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        titles[i] = columns[i].title;
    struct table table = {titles, COLUMN_COUNT, .json = false, .soft = 1u << COLUMN_BY};
    add_rows(&table, story);
    add_end(&end, story);
    int status = COMMAND_DONE;
    if (table.failed || end.failed) {
        command_complain("history", "out of memory");
        status = COMMAND_STORE;
    } else if (!table_print(&table, "history", false)) {
        status = COMMAND_STORE;
    } else {
        fwrite(end.text, 1, end.len, stdout);
        status = command_flush("history") ? COMMAND_DONE : COMMAND_STORE;
    }
    table_free(&table);
    jsonout_free(&end);
    return status;
}

struct reading {
    const struct arguments *arguments;
    struct jsonout *out;
};

static enum store_error read_story(struct store_reader *reader, void *arg)
{
    const struct reading *reading = arg;
    struct slice ns = reading->arguments->line.ns, key = reading->arguments->key;
    struct history history;
    enum store_error error = history_collect(reader, ns, key, reading->arguments->limit, 0, &history);
    if (error == STORE_OK)
        history_write(reading->out, ns, key, &history);
    history_free(&history);
    return error == STORE_NOT_FOUND ? STORE_OK : error;
}

static int print(const struct arguments *arguments, struct jsonout *story)
{
    if (arguments->line.json) {
        jsonout_raw(story, "\n", 1);
        fwrite(story->text, 1, story->len, stdout);
        return command_flush("history") ? COMMAND_DONE : COMMAND_STORE;
    }
    json_t *parsed = json_loadb(story->text, story->len, 0, NULL);
    if (parsed == NULL) {
        command_complain("history", "the running gateway's answer is not understood");
        return COMMAND_STORE;
    }
    int status = print_story(parsed);
    json_decref(parsed);
    return status;
}

static int run(struct command_line *line)
{
    struct arguments *arguments = (struct arguments *)line;
    struct jsonout story = {0};
    char rest[48];
    int status = COMMAND_DONE;
    if (line->ns.data == NULL)
        line->ns = (struct slice){"default", 7};
    if (arguments->limit == 0)
        arguments->limit = HISTORY_LIMIT_DEFAULT;
    snprintf(rest, sizeof rest, "/history?limit=%zu", arguments->limit);
    struct reading reading = {arguments, &story};
    if (!place_ask(&line->place, line->ns, arguments->key, rest, &story))
        status = place_read(&line->place, read_story, &reading);
    if (status == COMMAND_DONE && story.failed) {
        command_complain("history", "out of memory, try a smaller --limit");
        status = COMMAND_STORE;
    } else if (status == COMMAND_DONE && story.len == 0 && command_behind()) {
        status = COMMAND_STORE;
    } else if (status == COMMAND_DONE && story.len == 0) {
        const struct audit_filter key = {.ns = line->ns, .key = arguments->key};
        hint_complain(&line->place, "Nothing is known of this key: no token was accepted, no call recorded", &key,
                      hint_key);
        status = COMMAND_REFUSED;
    } else if (status == COMMAND_DONE) {
        status = print(arguments, &story);
    }
    jsonout_free(&story);
    return status;
}

/* ---- arguments ---- */

static const char *take_key(void *arguments, struct slice value)
{
    (void)arguments;
    return key_valid(value.data, value.len) ? NULL : "a key is 1 to 255 bytes of UTF-8 without control characters";
}

static const char *take_limit(void *arguments, struct slice value)
{
    uint64_t limit;
    if (!token_parse(value.data, value.len, &limit) || limit > HISTORY_LIMIT_MAX)
        return "not a number from 1 to 1000";
    ((struct arguments *)arguments)->limit = (size_t)limit;
    return NULL;
}

static const struct command_option options[] = {
    {"limit", "N", "the newest N tokens; 1 to 1000, 100 unless given", .take = take_limit},
};

static const struct command_action actions[] = {
    {.words = {{"KEY", offsetof(struct arguments, key), .take = take_key}}},
};

const struct command command_history = {
    .name = "history",
    .summary = "the story of one key: which lease did what, what was dropped, and what was reset",
    .notes = "The namespace is `default` unless given. A running gateway also tells what is in flight.\n",
    .place = PLACE_STORE,
    .json = true,
    .ns = true,
    .actions = actions,
    .action_count = 1,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .size = sizeof(struct arguments),
    .run = run,
};
