/*
 * gateway/command_options.c - reads a command line by its command's table, see command_options.h. What a command does
 * is its own; the usage text is command_usage.c's.
 */
#include "gateway/command_options.h"

#include <string.h>

#include "gateway/admin_query.h"

#define NAME_MAX_LEN 24 /* longer ones are not guessed at */
#define NAMES_MAX 32

const struct command_action command_no_words[1] = {{.name = NULL}};

static const char *take_namespace(void *arguments, struct slice value)
{
    (void)arguments;
    return admin_namespace_valid(value) ? NULL : "a namespace is 1 to 64 of A-Z a-z 0-9 . _ -";
}

#define IN_LINE(member) offsetof(struct command_line, member)

static const struct command_option option_config = {
    .name = "config", .letter = 'c', .value = "FILE", .help = "the gateway's configuration"};
static const struct command_option option_store = {
    .name = "store", .value = "DIR", .help = "the store's folder, in place of -c"};
static const struct command_option option_namespace = {
    .name = "namespace", .value = "N", .help = "the key's namespace", .at = IN_LINE(ns), .take = take_namespace};
static const struct command_option option_json = {
    .name = "json", .help = "one JSON object a line", .at = IN_LINE(json)};
static const struct command_option option_help = {
    .name = "help", .letter = 'h', .help = "this text", .at = IN_LINE(help)};

const struct command_option *command_option_at(const struct command *command, size_t index)
{
    if (index < command->option_count)
        return &command->options[index];
    const struct command_option *common[6] = {NULL};
    size_t count = 0;
    if (command->ns)
        common[count++] = &option_namespace;
    if (command->place != PLACE_NONE)
        common[count++] = &option_config;
    if (command->place == PLACE_STORE)
        common[count++] = &option_store;
    if (command->json)
        common[count++] = &option_json;
    common[count++] = &option_help;
    index -= command->option_count;
    return index < count ? common[index] : NULL;
}

bool command_option_fits(const struct command_option *option, size_t action)
{
    return option->actions == 0 || (option->actions & ACTION(action)) != 0;
}

/* ---- what was probably meant ---- */

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters to add, take away, replace, or neighbours to swap. Neither text is longer than NAME_MAX_LEN. */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][NAME_MAX_LEN + 1];
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t *row = rows[i % 3];
        const size_t *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            row[j] = least_of(least_of(last[j], row[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least_of(row[j], before[j - 2] + 1);
        }
    }
    return rows[a_len % 3][b_len];
}

/* One letter of a short name may be wrong, two of a longer one; the same beginning counts as much. */
const char *command_nearest(const char *name, size_t len, const char *const *names)
{
    const char *nearest = NULL;
    size_t least = len <= 3 ? 2 : 3;
    if (len == 0 || len > NAME_MAX_LEN)
        return NULL;
    for (size_t i = 0; names[i] != NULL; i++) {
        size_t candidate = strlen(names[i]), same = 0;
        if (candidate > NAME_MAX_LEN)
            continue;
        while (same < len && same < candidate && name[same] == names[i][same])
            same++;
        size_t far = distance(name, len, names[i], candidate);
        if (same >= 4 || (same >= 2 && same == len))
            far = least_of(far, 2 - (same == len));
        if (far < least) {
            least = far;
            nearest = names[i];
        }
    }
    return nearest;
}

/* ---- complaints ---- */

static void say(struct jsonout *out, const char *text)
{
    jsonout_raw(out, text, strlen(text));
}

static bool complain(struct jsonout *out, const char *before, const char *name, const char *after)
{
    say(out, before);
    jsonout_escaped(out, name, strlen(name));
    say(out, after);
    return false;
}

static bool complain_option(struct jsonout *out, const struct command_option *option, const char *after)
{
    return complain(out, "--", option->name, after);
}

static bool complain_value(struct jsonout *out, const char *dashes, const char *name, struct slice value,
                           const char *why)
{
    say(out, dashes);
    say(out, name);
    say(out, " ");
    jsonout_escaped(out, value.data, value.len);
    say(out, ": ");
    say(out, why);
    return false;
}

static void say_nearest(struct jsonout *out, const char *dashes, const char *nearest)
{
    if (nearest != NULL) {
        say(out, ", did you mean ");
        say(out, dashes);
        say(out, nearest);
        say(out, "?");
    }
}

static bool complain_unknown(const struct command *command, const char *name, size_t len, struct jsonout *out)
{
    const char *names[NAMES_MAX + 1] = {NULL};
    const struct command_option *option;
    for (size_t i = 0; i < NAMES_MAX && (option = command_option_at(command, i)) != NULL; i++)
        names[i] = option->name;
    say(out, "unknown option --");
    jsonout_escaped(out, name, len);
    say_nearest(out, "--", command_nearest(name, len, names));
    return false;
}

static bool complain_action(const struct command *command, const char *word, struct jsonout *out)
{
    const char *names[NAMES_MAX + 1] = {NULL};
    for (size_t i = 0; i < command->action_count && i < NAMES_MAX; i++)
        names[i] = command->actions[i].name;
    if (word != NULL) {
        complain(out, "unknown action \"", word, "\": ");
        const char *nearest = command_nearest(word, strlen(word), names);
        if (nearest != NULL)
            return complain(out, "did you mean ", nearest, "?");
    }
    for (size_t i = 0; names[i] != NULL; i++) {
        say(out, i == 0 ? "" : names[i + 1] == NULL ? " or " : ", ");
        say(out, names[i]);
    }
    say(out, "?");
    return false;
}

/* "--reason goes with raise and reset" */
static bool complain_place(const struct command *command, const struct command_option *option, struct jsonout *out)
{
    const char *before = " goes with ";
    complain_option(out, option, "");
    for (size_t i = 0; i < command->action_count; i++)
        if (command_option_fits(option, i)) {
            complain(out, before, command->actions[i].name, "");
            before = " and ";
        }
    return false;
}

bool command_complain_choice(const char *option, struct slice value, const char *const *choices, struct jsonout *out)
{
    complain_value(out, "--", option, value, "not one of ");
    for (size_t i = 0; choices[i] != NULL; i++) {
        say(out, i == 0 ? "" : ", ");
        say(out, choices[i]);
    }
    const char *nearest = command_nearest(value.data, value.len, choices);
    if (nearest != NULL)
        complain(out, "; did you mean ", nearest, "?");
    return false;
}

/* ---- parsing ---- */

struct parse {
    const struct command *command;
    struct command_line *line;
    struct jsonout *complaint;
    int argc, next; /* the argument to look at */
    char **argv;
    const char *words[COMMAND_WORDS_MAX + 2]; /* the action's name among them */
    size_t word_count;
    unsigned seen; /* options, by index */
};

static bool is_choice(const struct command_option *option, struct slice value)
{
    bool found = option->choices == NULL;
    for (size_t i = 0; !found && option->choices[i] != NULL; i++)
        found = strcmp(option->choices[i], value.data) == 0;
    return found;
}

/* An empty value is refused: an empty filter would not filter, and show everything. Another value for the same option
 * is refused too: which of them counts would be a guess. */
static bool take_value(struct parse *parse, const struct command_option *option, size_t index, const char *text)
{
    struct slice value = {text, strlen(text)};
    char *arguments = (char *)parse->line;
    if (value.len == 0)
        return complain_option(parse->complaint, option, " has an empty value");
    if ((parse->seen & 1u << index) != 0)
        return complain_option(parse->complaint, option, " is given twice");
    if (!is_choice(option, value))
        return command_complain_choice(option->name, value, option->choices, parse->complaint);
    const char *wrong = option->take == NULL ? NULL : option->take(arguments, value);
    if (wrong != NULL)
        return complain_value(parse->complaint, "--", option->name, value, wrong);
    if (option == &option_config)
        parse->line->place.config_file = text;
    else if (option == &option_store)
        parse->line->place.store_path = text;
    else if (option->at != 0)
        memcpy(arguments + option->at, &value, sizeof value);
    return true;
}

static bool take_option(struct parse *parse, const struct command_option *option, size_t index, const char *attached)
{
    if (option->value == NULL) {
        bool *flag = (bool *)((char *)parse->line + option->at);
        if (attached != NULL)
            return complain_option(parse->complaint, option, " takes no value");
        *flag = true;
    } else {
        if (attached == NULL && parse->next == parse->argc)
            return complain(parse->complaint, "a value is missing after ", parse->argv[parse->next - 1], "");
        if (!take_value(parse, option, index, attached != NULL ? attached : parse->argv[parse->next++]))
            return false;
    }
    parse->seen |= 1u << index;
    return true;
}

static bool take_long(struct parse *parse, const char *text)
{
    const struct command_option *option;
    const char *equals = strchr(text, '=');
    size_t len = equals == NULL ? strlen(text) : (size_t)(equals - text);
    for (size_t i = 0; (option = command_option_at(parse->command, i)) != NULL; i++)
        if (strlen(option->name) == len && memcmp(option->name, text, len) == 0)
            return take_option(parse, option, i, equals == NULL ? NULL : equals + 1);
    return complain_unknown(parse->command, text, len, parse->complaint);
}

/* `-c FILE`, `-cFILE`; a flag's letter stands alone. */
static bool take_short(struct parse *parse, const char *text)
{
    const struct command_option *option;
    for (size_t i = 0; (option = command_option_at(parse->command, i)) != NULL; i++)
        if (option->letter != 0 && option->letter == text[1] && (option->value != NULL || text[2] == '\0'))
            return take_option(parse, option, i, text[2] == '\0' ? NULL : text + 2);
    return complain(parse->complaint, "unknown option ", text, "");
}

static bool take_word(struct parse *parse, const char *text)
{
    if (parse->word_count == sizeof parse->words / sizeof parse->words[0])
        return complain(parse->complaint, "unexpected argument: ", text, "");
    parse->words[parse->word_count++] = text;
    return true;
}

static bool take_all(struct parse *parse)
{
    bool options = true, ok = true;
    while (ok && parse->next < parse->argc) {
        const char *text = parse->argv[parse->next++];
        if (!options || text[0] != '-' || text[1] == '\0')
            ok = take_word(parse, text);
        else if (strcmp(text, "--") == 0)
            options = false;
        else
            ok = text[1] == '-' ? take_long(parse, text + 2) : take_short(parse, text);
    }
    return ok;
}

/* Which action, and its words. */
static bool judge_words(struct parse *parse)
{
    const struct command *command = parse->command;
    size_t used = 0, action = 0;
    if (command->actions[0].name != NULL) {
        const char *name = parse->word_count == 0 ? NULL : parse->words[used++];
        while (action < command->action_count && (name == NULL || strcmp(name, command->actions[action].name) != 0))
            action++;
        if (action == command->action_count)
            return complain_action(command, name, parse->complaint);
    }
    parse->line->action = action;
    for (size_t i = 0; i < COMMAND_WORDS_MAX && command->actions[action].words[i].name != NULL; i++) {
        const struct command_word *word = &command->actions[action].words[i];
        if (used == parse->word_count && word->optional)
            break;
        if (used == parse->word_count)
            return complain(parse->complaint, "", word->name, " is missing");
        struct slice value = {parse->words[used], strlen(parse->words[used])};
        const char *wrong = word->take == NULL ? NULL : word->take(parse->line, value);
        if (wrong != NULL)
            return complain_value(parse->complaint, "", word->name, value, wrong);
        if (word->at != 0)
            memcpy((char *)parse->line + word->at, &value, sizeof value);
        used++;
    }
    return used == parse->word_count || complain(parse->complaint, "unexpected argument: ", parse->words[used], "");
}

static bool judge_options(struct parse *parse)
{
    const struct command *command = parse->command;
    const struct store_place *place = &parse->line->place;
    const struct command_option *option;
    for (size_t i = 0; (option = command_option_at(command, i)) != NULL; i++) {
        bool given = (parse->seen & 1u << i) != 0;
        if (given && !command_option_fits(option, parse->line->action))
            return complain_place(command, option, parse->complaint);
        if (!given && (option->needed & ACTION(parse->line->action)) != 0)
            return complain_option(parse->complaint, option, " is missing");
    }
    if (command->place == PLACE_CONFIG && place->config_file == NULL)
        return complain(parse->complaint, "takes -c FILE", "", "");
    if (command->place == PLACE_STORE && (place->config_file == NULL) == (place->store_path == NULL))
        return complain(parse->complaint, "give either -c FILE or --store DIR", "", "");
    return command->judge == NULL || command->judge(parse->line, parse->complaint);
}

bool command_parse(const struct command *command, int argc, char **argv, struct command_line *line,
                   struct jsonout *complaint)
{
    struct parse parse = {
        .command = command, .line = line, .complaint = complaint, .argc = argc, .next = 1, .argv = argv};
    line->command = command;
    line->place.command = command->name;
    if (!take_all(&parse))
        return false;
    return line->help || (judge_words(&parse) && judge_options(&parse));
}
