/* tests/unit/test_phrase.c - statuses and their words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/phrase.h"
#include "gateway/reason.h"

static void words_of_statuses(void **state)
{
    (void)state;
    assert_string_equal(status_phrase(200), "OK");
    assert_string_equal(status_phrase(204), "No Content");
    assert_string_equal(status_phrase(226), "IM Used");
    assert_string_equal(status_phrase(308), "Permanent Redirect");
    assert_string_equal(status_phrase(412), "Precondition Failed");
    assert_string_equal(status_phrase(431), "Request Header Fields Too Large");
    assert_string_equal(status_phrase(451), "Unavailable For Legal Reasons");
    assert_string_equal(status_phrase(505), "HTTP Version Not Supported");
    assert_string_equal(status_phrase(511), "Network Authentication Required");
}

static void others_have_none(void **state)
{
    (void)state;
    static const unsigned none[] = {0, 99, 100, 199, 219, 299, 399, 420, 499, 599, 600, 999, 4294967295u};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_string_equal(status_phrase(none[i]), "");
}

static void every_refusal_has_words(void **state)
{
    (void)state;
    for (int reason = REASON_NONE + 1; reason < REASON_COUNT; reason++)
        assert_string_not_equal(status_phrase(reason_table[reason].status), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_statuses),
        cmocka_unit_test(others_have_none),
        cmocka_unit_test(every_refusal_has_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
