/* gateway/command_usage.c - usage texts and the way into a command, see command_usage.h. */
#include "gateway/command_usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/command_store.h"

#define LINE_WIDTH 90
#define NAME_WIDTH 10 /* of the list of commands */

static void say(struct jsonout *out, const char *text)
{
    jsonout_raw(out, text, strlen(text));
}

static void blanks(struct jsonout *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        jsonout_raw(out, " ", 1);
}

/* ---- the lines with every word and option ---- */

struct flow {
    struct jsonout *out;
    size_t begin;  /* of this line in `out` */
    size_t indent; /* of the lines that go on */
};

/* `part` is never broken over two lines. */
static void put(struct flow *flow, const char *part)
{
    if (flow->out->len - flow->begin + 1 + strlen(part) > LINE_WIDTH) {
        say(flow->out, "\n");
        flow->begin = flow->out->len;
        blanks(flow->out, flow->indent);
    }
    say(flow->out, " ");
    say(flow->out, part);
}

static void put_option(struct flow *flow, const struct command_option *option, bool needed)
{
    char text[96];
    snprintf(text, sizeof text, "%s--%s%s%s%s", needed ? "" : "[", option->name, option->value == NULL ? "" : " ",
             option->value == NULL ? "" : option->value, needed ? "" : "]");
    put(flow, text);
}

static void action_line(const struct command *command, size_t action, struct jsonout *out)
{
    const struct command_action *this = &command->actions[action];
    const struct command_option *option;
    struct flow flow = {.out = out, .begin = out->len};
    say(out, action == 0 ? "usage: fencegate " : "       fencegate ");
    say(out, command->name);
    flow.indent = out->len - flow.begin;
    if (this->name != NULL)
        put(&flow, this->name);
    for (size_t i = 0; i < COMMAND_WORDS_MAX && this->words[i].name != NULL; i++) {
        char text[32];
        bool optional = this->words[i].optional;
        snprintf(text, sizeof text, "%s%s%s", optional ? "[" : "", this->words[i].name, optional ? "]" : "");
        put(&flow, text);
    }
    for (size_t i = 0; (option = command_option_at(command, i)) != NULL; i++)
        if ((option->needed & ACTION(action)) != 0)
            put_option(&flow, option, true);
    if (command->place != PLACE_NONE)
        put(&flow, command->place == PLACE_CONFIG ? "-c FILE" : "(-c FILE | --store DIR)");
    for (size_t i = 0; (option = command_option_at(command, i)) != NULL; i++) {
        bool said = strcmp(option->name, "config") == 0 || strcmp(option->name, "store") == 0 ||
                    strcmp(option->name, "help") == 0 || (option->needed & ACTION(action)) != 0;
        if (!said && command_option_fits(option, action))
            put_option(&flow, option, false);
    }
    say(out, "\n");
}

/* ---- a row for each ---- */

static void row(struct jsonout *out, const char *left, size_t width, const char *right)
{
    say(out, "  ");
    say(out, left);
    blanks(out, (strlen(left) < width ? width - strlen(left) : 0) + 2);
    say(out, right);
    say(out, "\n");
}

static void option_name(const struct command_option *option, char text[64])
{
    char letter[5] = "    ";
    if (option->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(text, 64, "%s--%s%s%s", letter, option->name, option->value == NULL ? "" : " ",
             option->value == NULL ? "" : option->value);
}

static void option_rows(const struct command *command, struct jsonout *out)
{
    const struct command_option *option;
    char text[64];
    size_t width = 0;
    for (size_t i = 0; (option = command_option_at(command, i)) != NULL; i++) {
        option_name(option, text);
        if (strlen(text) > width)
            width = strlen(text);
    }
    for (size_t i = 0; (option = command_option_at(command, i)) != NULL; i++) {
        option_name(option, text);
        row(out, text, width, option->help);
    }
}

void command_usage(const struct command *command, struct jsonout *out)
{
    for (size_t i = 0; i < command->action_count; i++)
        action_line(command, i, out);
    say(out, "\n");
    say(out, command->summary);
    say(out, "\n\n");
    if (command->actions[0].name != NULL) {
        for (size_t i = 0; i < command->action_count; i++)
            row(out, command->actions[i].name, NAME_WIDTH, command->actions[i].help);
        say(out, "\n");
    }
    option_rows(command, out);
    if (command->notes != NULL) {
        say(out, "\n");
        say(out, command->notes);
    }
}

void command_summary(const struct command *command, struct jsonout *out)
{
    row(out, command->name, NAME_WIDTH, command->summary);
}

/* ---- running ---- */

static int print_usage(const struct command *command)
{
    struct jsonout text = {0};
    command_usage(command, &text);
    fwrite(text.text, 1, text.failed ? 0 : text.len, stdout);
    jsonout_free(&text);
    return command_flush(command->name) ? COMMAND_DONE : COMMAND_STORE;
}

static int run_parsed(const struct command *command, struct command_line *line)
{
    if (line->help)
        return print_usage(command);
    int status = command->place == PLACE_STORE ? place_find(&line->place) : COMMAND_DONE;
    if (status == COMMAND_DONE)
        status = command_status(command->run(line));
    place_free(&line->place);
    return status;
}

int command_run(const struct command *command, int argc, char **argv)
{
    struct jsonout complaint = {0};
    struct command_line *line = calloc(1, command->size);
    int status = COMMAND_USAGE;
    if (line == NULL) {
        command_complain(command->name, "out of memory");
        status = COMMAND_STORE;
    } else if (command_parse(command, argc, argv, line, &complaint)) {
        status = run_parsed(command, line);
    } else {
        fprintf(stderr, "fencegate %s: %.*s\nTry 'fencegate help %s'.\n", command->name, (int)complaint.len,
                complaint.text == NULL ? "" : complaint.text, command->name);
    }
    jsonout_free(&complaint);
    free(line);
    return status;
}
