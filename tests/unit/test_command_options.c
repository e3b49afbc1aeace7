/* tests/unit/test_command_options.c - command lines read by a table: what is taken, what is refused and how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/command.h"
#include "gateway/command_options.h"
#include "gateway/command_usage.h"

struct arguments {
    struct command_line line;
    struct slice key, word, other, colour;
    size_t number;
    bool loud;
};

static const char *take_number(void *arguments, struct slice value)
{
    ((struct arguments *)arguments)->number = value.len;
    return value.data[0] == 'x' ? "no x" : NULL;
}

static int run(struct command_line *line)
{
    (void)line;
    return 0;
}

enum { MAKE, BREAK };
#define AT(member) offsetof(struct arguments, member)

static const char *const colours[] = {"red", "yellow", "magenta", NULL};
static const struct command_option options[] = {
    {"key", "K", "a key", .at = AT(key)},
    {"number", "N", "a number", .take = take_number, .actions = ACTION(MAKE), .needed = ACTION(MAKE)},
    {"colour", "C", "a colour", .at = AT(colour), .choices = colours, .actions = ACTION(BREAK)},
    {"loud", .help = "be loud", .at = AT(loud), .letter = 'l'},
};
static const struct command_action actions[] = {
    [MAKE] = {"make", {{"WORD", .at = AT(word)}, {"OTHER", AT(other), .optional = true}}, "makes it"},
    [BREAK] = {"break", .help = "breaks it"},
};
static const struct command command = {
    .name = "thing",
    .summary = "things",
    .notes = "Notes.\n",
    .place = PLACE_STORE,
    .json = true,
    .ns = true,
    .actions = actions,
    .action_count = 2,
    .options = options,
    .option_count = 4,
    .size = sizeof(struct arguments),
    .run = run,
};

static struct arguments got;
static struct jsonout complaint;

static bool parse(const struct command *of, const char *const *words)
{
    char *argv[16] = {(char *)"thing"};
    int argc = 1;
    for (; words[argc - 1] != NULL; argc++)
        argv[argc] = (char *)words[argc - 1];
    jsonout_reset(&complaint);
    memset(&got, 0, sizeof got);
    bool ok = command_parse(of, argc, argv, &got.line, &complaint);
    jsonout_raw(&complaint, "", 1);
    return ok;
}

#define PARSE(...) parse(&command, (const char *const[]){__VA_ARGS__, NULL})

static void refused(const char *text)
{
    assert_string_equal(complaint.text, text);
}

static void taken(void **state)
{
    (void)state;
    assert_true(PARSE("make", "w", "--number", "12", "--store", "/s"));
    assert_int_equal(got.line.action, MAKE);
    assert_string_equal(got.word.data, "w");
    assert_null(got.other.data);
    assert_int_equal(got.number, 2);
    assert_string_equal(got.line.place.store_path, "/s");
    assert_string_equal(got.line.place.command, "thing");
    assert_false(got.loud || got.line.json || got.line.help);
    assert_true(PARSE("-c/f", "--number=-1", "make", "--json", "w", "-l", "o", "--namespace=n.1", "--key=a=b"));
    assert_string_equal(got.line.place.config_file, "/f");
    assert_string_equal(got.word.data, "w");
    assert_string_equal(got.other.data, "o");
    assert_string_equal(got.key.data, "a=b");
    assert_int_equal(got.key.len, 3);
    assert_string_equal(got.line.ns.data, "n.1");
    assert_true(got.loud && got.line.json);
    assert_true(PARSE("--config", "/f", "--key", "--json", "break", "--colour", "red"));
    assert_int_equal(got.line.action, BREAK);
    assert_string_equal(got.key.data, "--json"); /* a value, whatever it looks like */
    assert_false(got.line.json);
}

static void words_after_two_dashes(void **state)
{
    (void)state;
    assert_true(PARSE("make", "--number", "1", "-c", "/f", "--", "--key", "-l"));
    assert_string_equal(got.word.data, "--key");
    assert_string_equal(got.other.data, "-l");
    assert_false(got.loud);
    assert_true(PARSE("make", "-", "--number", "1", "-c", "/f"));
    assert_string_equal(got.word.data, "-");
}

static void wrong_options(void **state)
{
    (void)state;
    assert_false(PARSE("break", "--kye", "x"));
    refused("unknown option --kye, did you mean --key?");
    assert_false(PARSE("break", "--nam", "x")); /* an abbreviation is no name */
    refused("unknown option --nam, did you mean --namespace?");
    assert_false(PARSE("break", "--entirely=x"));
    refused("unknown option --entirely");
    assert_false(PARSE("break", "-x"));
    refused("unknown option -x");
    assert_false(PARSE("break", "-lx"));
    refused("unknown option -lx");
    assert_false(PARSE("break", "--loud=yes"));
    refused("--loud takes no value");
    assert_false(PARSE("break", "--key"));
    refused("a value is missing after --key");
    assert_false(PARSE("break", "--key", ""));
    refused("--key has an empty value");
    assert_false(PARSE("break", "--key="));
    refused("--key has an empty value");
    assert_false(PARSE("break", "--key", "a", "--key=a"));
    refused("--key is given twice");
    assert_false(PARSE("break", "-c", "/f", "--colour", "yelow"));
    refused("--colour yelow: not one of red, yellow, magenta; did you mean yellow?");
    assert_false(PARSE("make", "w", "-c", "/f", "--number", "x\033[2J"));
    refused("--number x\\u001b[2J: no x");
    assert_false(PARSE("break", "-c", "/f", "--namespace", "a/b"));
    refused("--namespace a/b: a namespace is 1 to 64 of A-Z a-z 0-9 . _ -");
}

static void wrong_words(void **state)
{
    (void)state;
    assert_false(PARSE("-c", "/f"));
    refused("make or break?");
    assert_false(PARSE("mkae", "-c", "/f"));
    refused("unknown action \"mkae\": did you mean make?");
    assert_false(PARSE("destroy", "-c", "/f"));
    refused("unknown action \"destroy\": make or break?");
    assert_false(PARSE("make", "--number", "1", "-c", "/f"));
    refused("WORD is missing");
    assert_false(PARSE("make", "a", "b", "c", "--number", "1", "-c", "/f"));
    refused("unexpected argument: c");
    assert_false(PARSE("make", "a", "b", "c", "d", "e", "--number", "1", "-c", "/f"));
    refused("unexpected argument: d");
    assert_false(PARSE("break", "a", "-c", "/f"));
    refused("unexpected argument: a");
}

static void what_goes_together(void **state)
{
    (void)state;
    assert_false(PARSE("make", "w", "-c", "/f"));
    refused("--number is missing");
    assert_false(PARSE("break", "--number", "1", "-c", "/f"));
    refused("--number goes with make");
    assert_false(PARSE("break"));
    refused("give either -c FILE or --store DIR");
    assert_false(PARSE("break", "-c", "/f", "--store", "/s"));
    refused("give either -c FILE or --store DIR");
    assert_true(PARSE("--help")); /* and nothing else is asked for */
    assert_true(PARSE("-h", "whatever"));
    assert_true(got.line.help);
}

static void nearest(void **state)
{
    static const char *const names[] = {"serve", "check", "audit", "fences", "effects", NULL};
    static const struct {
        const char *name, *meant;
    } cases[] = {{"serv", "serve"},
                 {"srve", "serve"},
                 {"auidt", "audit"},
                 {"fence", "fences"},
                 {"effect", "effects"},
                 {"au", "audit"},
                 {"fencing", "fences"},
                 {"", NULL},
                 {"x", NULL},
                 {"list", NULL},
                 {"an-endless-name-that-nobody-could-mean", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *found = command_nearest(cases[i].name, strlen(cases[i].name), names);
        if (cases[i].meant == NULL)
            assert_null(found);
        else
            assert_string_equal(found, cases[i].meant);
    }
}

static void usage(void **state)
{
    struct jsonout out = {0};
    (void)state;
    command_usage(&command, &out);
    jsonout_raw(&out, "", 1);
    assert_string_equal(out.text,
                        "usage: fencegate thing make WORD [OTHER] --number N (-c FILE | --store DIR) [--key K]\n"
                        "                       [--loud] [--namespace N] [--json]\n"
                        "       fencegate thing break (-c FILE | --store DIR) [--key K] [--colour C] [--loud]\n"
                        "                       [--namespace N] [--json]\n"
                        "\n"
                        "things\n"
                        "\n"
                        "  make        makes it\n"
                        "  break       breaks it\n"
                        "\n"
                        "      --key K        a key\n"
                        "      --number N     a number\n"
                        "      --colour C     a colour\n"
                        "  -l, --loud         be loud\n"
                        "      --namespace N  the key's namespace\n"
                        "  -c, --config FILE  the gateway's configuration\n"
                        "      --store DIR    the store's folder, in place of -c\n"
                        "      --json         one JSON object a line\n"
                        "  -h, --help         this text\n"
                        "\n"
                        "Notes.\n");
    jsonout_free(&out);
}

/* Twenty-odd options fit into the mask; every one has a help text, and no name or letter is there twice. */
static void tables(void **state)
{
    static const struct command *const all[] = {&command_audit, &command_fences, &command_effects};
    (void)state;
    for (size_t c = 0; c < sizeof all / sizeof all[0]; c++) {
        const struct command_option *option, *other;
        size_t count = 0;
        for (; (option = command_option_at(all[c], count)) != NULL; count++) {
            assert_non_null(option->help);
            assert_true(option->value == NULL ? option->at != 0 : true);
            for (size_t i = 0; i < count; i++) {
                other = command_option_at(all[c], i);
                assert_string_not_equal(other->name, option->name);
                assert_true(option->letter == 0 || option->letter != other->letter);
            }
        }
        assert_in_range(count, 1, 31);
        assert_true(all[c]->size >= sizeof(struct command_line));
    }
}

static int teardown(void **state)
{
    (void)state;
    jsonout_free(&complaint);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taken),       cmocka_unit_test(words_after_two_dashes),
        cmocka_unit_test(wrong_words), cmocka_unit_test(wrong_options),
        cmocka_unit_test(nearest),     cmocka_unit_test(what_goes_together),
        cmocka_unit_test(usage),       cmocka_unit_test(tables),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
