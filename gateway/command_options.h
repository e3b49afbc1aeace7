/*
 * gateway/command_options.h - a subcommand as a table: its actions, words and options. Pure but for the pointers into
 * argv.
 *
 * One table serves parsing, complaints and the usage text, so that the three can't disagree. Options may stand before,
 * between and after the words, as `--name VALUE` or `--name=VALUE`; `--` ends them. Names are taken whole: an
 * abbreviation that is clear today would change its meaning with the next option.
 */
#ifndef FENCEGATE_COMMAND_OPTIONS_H
#define FENCEGATE_COMMAND_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/command_store.h"
#include "gateway/jsonout.h"
#include "store/store.h"

#define COMMAND_WORDS_MAX 2
#define ACTION(index) (1u << (index)) /* for the masks below */

/* What every command line has; the first member of a command's own arguments. Slices point into argv and have a NUL
 * behind them; data NULL: not given. */
struct command_line {
    const struct command *command;
    struct store_place place;
    size_t action; /* index into the command's actions */
    struct slice ns;
    bool json, help;
};

struct command_option {
    const char *name;           /* without its dashes */
    const char *value;          /* what the usage text calls it; NULL: a flag */
    const char *help;           /* a few words */
    size_t at;                  /* where it goes in the arguments: a struct slice, a bool for a flag; 0: nowhere */
    char letter;                /* the short form, 0: none */
    unsigned actions, needed;   /* the actions that it goes with (0: all), and those that need it */
    const char *const *choices; /* the values it may have, NULL at the end; NULL: any */
    /* Judges a value, and may keep it in another form. What is wrong with it, or NULL. */
    const char *(*take)(void *arguments, struct slice value);
};

struct command_word {
    const char *name; /* "KEY" */
    size_t at;
    bool optional;
    const char *(*take)(void *arguments, struct slice value);
};

struct command_action {
    const char *name; /* NULL: the only one, without a name */
    struct command_word words[COMMAND_WORDS_MAX];
    const char *help; /* NULL: the command's summary says it */
};

/* `actions` of a command that has neither actions nor words; their number is 1. */
extern const struct command_action command_no_words[1];

enum command_place {
    PLACE_NONE,
    PLACE_CONFIG, /* -c FILE; the command reads it */
    PLACE_STORE,  /* -c FILE or --store DIR; a file was read before `run` */
};

struct command {
    const char *name;
    const char *summary; /* one line */
    const char *notes;   /* lines under the options; NULL: none */
    enum command_place place;
    bool json, ns; /* takes --json, --namespace */
    const struct command_action *actions;
    size_t action_count;
    const struct command_option *options;
    size_t option_count;
    size_t size; /* of its arguments, which are zero before they are filled */
    /* Does all go together, each being right? If not, says why. May be NULL. */
    bool (*judge)(const struct command_line *line, struct jsonout *complaint);
    int (*run)(struct command_line *line);
};

/* Fills `line`, the first member of zeroed arguments of the command's size. False with what is wrong, one line without
 * its end, in `complaint`. With line->help set nothing else was asked for. */
bool command_parse(const struct command *command, int argc, char **argv, struct command_line *line,
                   struct jsonout *complaint) __attribute__((warn_unused_result));

/* The command's own options, then those that several have; NULL behind the last. */
const struct command_option *command_option_at(const struct command *command, size_t index);
bool command_option_fits(const struct command_option *option, size_t action);

/* "--option value: not one of ...", with the one that was probably meant, if any; always false. `choices` ends with
 * NULL. */
bool command_complain_choice(const char *option, struct slice value, const char *const *choices, struct jsonout *out);
/* The one of `names` (NULL at the end) that was probably meant, or NULL. */
const char *command_nearest(const char *name, size_t len, const char *const *names);

#endif
