/* tests/unit/test_command_terminal.c - places that text takes, and where it is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/command_terminal.h"

static void widths(void **state)
{
    static const struct {
        const char *text;
        size_t width;
    } cases[] = {{"", 0},
                 {"order-17", 8},
                 {"caf\u00e9", 4},
                 {"cafe\u0301", 4},   /* the accent combines */
                 {"\u6ce8\u6587", 4}, /* wide */
                 {"\uff21", 2},       /* full width A */
                 {"\U0001F600", 2},   /* an emoji */
                 {"a\u200bb", 2},     /* zero width space */
                 {"\u00fc\xFF"
                  "a",
                  3}}; /* a byte that is no UTF-8 */
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(display_width(cases[i].text, strlen(cases[i].text)), cases[i].width);
}

static void cuts(void **state)
{
    static const struct {
        const char *text;
        size_t width, bytes, used;
    } cases[] = {{"abc", 2, 2, 2},     {"abc", 3, 3, 3},          {"abc", 9, 3, 3},
                 {"abc", 0, 0, 0},     {"\u6ce8\u6587", 3, 3, 2}, /* half a wide character is none */
                 {"e\u0301x", 1, 3, 1}};                          /* the accent stays with its letter */
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t used = 99;
        assert_int_equal(display_fit(cases[i].text, strlen(cases[i].text), cases[i].width, &used), cases[i].bytes);
        assert_int_equal(used, cases[i].used);
    }
}

static void colours(void **state)
{
    (void)state;
    assert_true(terminal_takes_colours("xterm", NULL));
    assert_true(terminal_takes_colours("xterm", ""));
    assert_false(terminal_takes_colours("xterm", "1"));
    assert_false(terminal_takes_colours("dumb", NULL));
    assert_false(terminal_takes_colours("", NULL));
    assert_false(terminal_takes_colours(NULL, NULL));
    struct terminal none = terminal_of(-1);
    assert_true(none.width == 0 && !none.colours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(widths), cmocka_unit_test(cuts), cmocka_unit_test(colours)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
