/* tests/unit/test_timeparse.c - gateway/timeparse.c: what is a time, what is an age, and what is neither. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/timeparse.h"

#define NOW 1800000000000u

/* The text is copied to the heap without a NUL, so that a sanitizer sees a read past its end. */
static bool parse(const char *text, uint64_t now_ms, uint64_t *out)
{
    size_t len = strlen(text);
    char *copy = malloc(len + (len == 0));
    assert_non_null(copy);
    memcpy(copy, text, len);
    bool ok = time_parse((struct slice){copy, len}, now_ms, out);
    free(copy);
    return ok;
}

static void takes(const char *text, uint64_t expected)
{
    uint64_t out = 77;
    if (!parse(text, NOW, &out)) {
        fail_msg("refused: %s", text);
    }
    if (out != expected) {
        fail_msg("%s gave %llu", text, (unsigned long long)out);
    }
}

static void refuses(const char *text)
{
    uint64_t out = 77;
    if (parse(text, NOW, &out)) {
        fail_msg("taken: %s", text);
    }
    assert_int_equal(out, 77);
}

static void test_rfc3339(void **state)
{
    (void)state;
    takes("1970-01-01T00:00:00Z", 0);
    takes("1970-01-01T00:00:00.001Z", 1);
    takes("2026-11-30T01:02:03.004Z", 1796000523004);
    takes("2026-11-30t01:02:03.004z", 1796000523004);
    takes("2024-02-29T23:59:59Z", 1709251199000);
    takes("2000-02-29T00:00:00Z", 951782400000);
    takes("2100-03-01T00:00:00Z", 4107542400000);
    takes("9999-12-31T23:59:59.999Z", 253402300799999);
    takes("2016-12-31T23:59:60Z", 1483228800000);
}

static void test_offsets(void **state)
{
    (void)state;
    takes("2026-11-30T03:02:03+02:00", 1796000523000);
    takes("2026-11-29T19:32:03-05:30", 1796000523000);
    takes("2026-11-30T01:02:03-00:00", 1796000523000);
    refuses("2026-11-30T01:02:03+24:00");
    refuses("2026-11-30T01:02:03+02:60");
    refuses("2026-11-30T01:02:03 02:00");
    refuses("2026-11-30T01:02:03");
}

static void test_as_the_commands_print_it(void **state)
{
    (void)state;
    takes("2026-11-30 01:02:03.004 +0000", 1796000523004);
    takes("2026-11-30 03:02:03.004 +0200", 1796000523004);
    takes("2026-11-29 19:32:03 -0530", 1796000523000);
    takes("2026-11-30 01:02:03Z", 1796000523000);
    takes("2026-11-30T03:02:03+0200", 1796000523000);
    takes("2026-11-30", 1795996800000);
    takes("1970-01-01", 0);
    refuses("2026-11-30 ");
    refuses("2026-11-30 01:02:03");
    refuses("2026-11-30 01:02:03.004  +0000");
    refuses("2026-11-30  01:02:03.004 +0000");
    refuses("2026-11-30T01:02:03.004 +0000");
    refuses("2026-11-30 01:02:03.004 0000");
    refuses("2026-11-30 01:02:03 +02:0");
    refuses("2026-11-31");
    refuses("2026-11-30T");
    refuses("2026-11");
}

static void test_fractions_round_up(void **state)
{
    (void)state;
    takes("1970-01-01T00:00:01.5Z", 1500);
    takes("1970-01-01T00:00:01.05Z", 1050);
    takes("1970-01-01T00:00:01.0010000Z", 1001);
    takes("1970-01-01T00:00:01.0010001Z", 1002);
    takes("1970-01-01T00:00:01.9999Z", 2000);
    refuses("1970-01-01T00:00:01.Z");
    refuses("1970-01-01T00:00:01,5Z");
}

static void test_before_1970_is_the_beginning(void **state)
{
    (void)state;
    takes("1969-12-31T23:59:59Z", 0);
    takes("0001-01-01T00:00:00Z", 0);
    takes("0000-01-01T00:00:00Z", 0);
    takes("0000-02-29T00:00:00Z", 0);
    takes("1970-01-01T00:00:00+01:00", 0);
    takes("1969-12-31T23:00:00-02:00", 3600000);
}

static void test_dates_that_do_not_exist(void **state)
{
    (void)state;
    refuses("2026-02-29T00:00:00Z");
    refuses("2100-02-29T00:00:00Z");
    refuses("2026-00-10T00:00:00Z");
    refuses("2026-13-10T00:00:00Z");
    refuses("2026-04-31T00:00:00Z");
    refuses("2026-04-00T00:00:00Z");
    refuses("2026-04-10T24:00:00Z");
    refuses("2026-04-10T23:60:00Z");
    refuses("2026-04-10T23:59:61Z");
}

static void test_nonsense(void **state)
{
    (void)state;
    refuses("");
    refuses("Z");
    refuses("2026");
    refuses("2026-4-10T00:00:00Z");
    refuses("+026-04-10T00:00:00Z");
    refuses("2026-04-10T00:00Z");
    refuses("2026-04-10T00:00:00ZZ");
    refuses("2026-04-10T00:00:00Z ");
    refuses(" 2026-04-10T00:00:00Z");
    refuses("2026-04-10T00:00:0");
    refuses("1700000000");
    refuses("yesterday");
}

static void test_ages(void **state)
{
    (void)state;
    takes("0s", NOW);
    takes("90s", NOW - 90000);
    takes("15m", NOW - 900000);
    takes("2h", NOW - 7200000);
    takes("007d", NOW - 604800000);
    takes("99999999d", 0);
    takes("18446744073709551615d", 0);
    refuses("18446744073709551616d");
    refuses("99999999999999999999s");
    refuses("s");
    refuses("-5m");
    refuses("+5m");
    refuses("5 m");
    refuses("5M");
    refuses("5ms");
    refuses("1h30m");
    refuses("1.5h");
}

static void test_age_older_than_the_clock(void **state)
{
    uint64_t out = 77;
    (void)state;
    assert_true(parse("2s", 1999, &out));
    assert_int_equal(out, 0);
    assert_true(parse("1s", 1999, &out));
    assert_int_equal(out, 999);
}

static void test_every_day_follows_the_one_before(void **state)
{
    static const unsigned days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    uint64_t expected = 0;
    char text[40];
    (void)state;
    for (unsigned year = 1970; year < 2410; year++) {
        bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        for (unsigned month = 1; month <= 12; month++) {
            unsigned last = days[month - 1] + (month == 2 && leap);
            for (unsigned day = 1; day <= last; day++, expected += 86400000) {
                snprintf(text, sizeof text, "%04u-%02u-%02uT00:00:00Z", year, month, day);
                takes(text, expected);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rfc3339),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_as_the_commands_print_it),
        cmocka_unit_test(test_fractions_round_up),
        cmocka_unit_test(test_before_1970_is_the_beginning),
        cmocka_unit_test(test_dates_that_do_not_exist),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_ages),
        cmocka_unit_test(test_age_older_than_the_clock),
        cmocka_unit_test(test_every_day_follows_the_one_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
