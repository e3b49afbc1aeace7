/* tests/unit/test_token_watch.c - runs of stale tokens, tokens that are clock readings, and the alarms they give. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/jsonout.h"
#include "gateway/log.h"
#include "gateway/timers.h"
#include "gateway/token_watch.h"

#define HOUR 3600000u

static const uint64_t wall = 1796051627890; /* November 2026 */

static void ten_keys_in_a_row_are_a_regression(void **state)
{
    struct token_run run = {0};
    (void)state;
    for (uint64_t key = 1; key < 10; key++)
        assert_false(token_run_stale(&run, key, 1000));
    assert_true(token_run_stale(&run, 10, 1000));
    assert_false(token_run_stale(&run, 11, 1000)); /* told once */
    token_run_end(&run);
    for (uint64_t key = 1; key < 10; key++)
        assert_false(token_run_stale(&run, key, 1000));
    assert_true(token_run_stale(&run, 10, 1000));
}

static void the_same_key_again_is_no_more_news(void **state)
{
    struct token_run run = {0};
    (void)state;
    for (int i = 0; i < 1000; i++)
        for (uint64_t key = 1; key < 10; key++)
            assert_false(token_run_stale(&run, key, 1000));
}

static void an_acceptance_starts_the_count_anew(void **state)
{
    struct token_run run = {0};
    (void)state;
    for (uint64_t key = 0; key < 1000; key++) {
        assert_false(token_run_stale(&run, key, 1000));
        if (key % 9 == 8)
            token_run_end(&run);
    }
}

static void late_calls_of_many_days_are_no_run(void **state)
{
    struct token_run run = {0};
    (void)state;
    for (uint64_t key = 1; key < 100; key++)
        assert_false(token_run_stale(&run, key, key * (HOUR + 1)));
    assert_false(token_run_stale(&run, 100, 99 * (HOUR + 1) - 5)); /* another worker's clock is a little behind */
    for (uint64_t key = 101; key < 109; key++)
        assert_int_equal(token_run_stale(&run, key, 99 * (HOUR + 1) + 1000), key == 108);
}

static void clock_readings_are_known_in_every_unit(void **state)
{
    const uint64_t day = 24 * HOUR;
    (void)state;
    assert_string_equal(token_clock_unit(wall / 1000, wall), "seconds");
    assert_string_equal(token_clock_unit(wall, wall), "milliseconds");
    assert_string_equal(token_clock_unit(wall * 1000 + 123, wall), "microseconds");
    assert_string_equal(token_clock_unit(wall * 1000000 + 123456, wall), "nanoseconds");
    assert_string_equal(token_clock_unit(wall - 29 * day, wall), "milliseconds");
    assert_string_equal(token_clock_unit(wall + day, wall), "milliseconds");
    assert_null(token_clock_unit(wall - 31 * day, wall));
    assert_null(token_clock_unit(wall + day + 1, wall));
    assert_null(token_clock_unit((wall + day) / 1000 + 1, wall));
    assert_null(token_clock_unit((wall + day + 1) * 1000000, wall));
}

static void counters_are_no_clocks(void **state)
{
    (void)state;
    static const uint64_t tokens[] = {1, 41, 1000000, 999999999, 4294967296, 100000000000, 18446744073709551615u};
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        assert_null(token_clock_unit(tokens[i], wall));
}

/* ---- alarms ---- */

static struct token_watch watch;
static struct jsonout alarms;

static const char *shown(void)
{
    jsonout_reset(&alarms);
    jsonout_array_begin(&alarms);
    alarms_write(&alarms);
    jsonout_array_end(&alarms);
    return alarms.text;
}

static struct slice text(const char *chars)
{
    return (struct slice){chars, strlen(chars)};
}

static void stale(int first, int count)
{
    char key[16];
    for (int i = first; i < first + count; i++) {
        snprintf(key, sizeof key, "key-%d", i);
        token_watch_stale(&watch, text("default"), text(key), 1000);
    }
}

static void a_regression_is_an_alarm_until_a_token_is_accepted(void **state)
{
    (void)state;
    token_watch_raised(&watch); /* nothing to end */
    stale(1, 9);
    stale(1, 9);
    assert_string_equal(shown(), "[]");
    stale(10, 1);
    assert_true(alarm_is_on(&watch.regression));
    assert_non_null(strstr(shown(), "{\"name\":\"token-regression\",\"route\":\"pay\",\"since\":\"20"));
    assert_null(strstr(shown(), "key-"));
    stale(11, 50);
    token_watch_raised(&watch);
    assert_false(alarm_is_on(&watch.regression));
    assert_string_equal(shown(), "[]");
    stale(1, 9);
    assert_string_equal(shown(), "[]");
    token_watch_raised(&watch);
    stale(10, 9);
    assert_string_equal(shown(), "[]");
    token_watch_raised(&watch);
}

static void namespaces_keep_keys_apart(void **state)
{
    (void)state;
    char ns[16];
    for (int i = 0; i < 10; i++) {
        snprintf(ns, sizeof ns, "ns-%d", i);
        token_watch_stale(&watch, text(ns), text("key"), 1000);
        assert_int_equal(alarm_is_on(&watch.regression), i == 9);
    }
    token_watch_raised(&watch);
}

static void a_clock_is_told_once(void **state)
{
    (void)state;
    token_watch_arrived(&watch, text("default"), text("key"), 42);
    token_watch_arrived(&watch, text("default"), text("key"), realtime_ms() * 1000000 * 5 / 3);
    assert_string_equal(shown(), "[]");
    token_watch_arrived(&watch, text("default"), text("key"), realtime_ms());
    assert_true(alarm_is_on(&watch.clock_like));
    assert_non_null(strstr(shown(), "milliseconds since 1970 (first seen for key key, namespace default)"));
    assert_non_null(strstr(shown(), "max_jump"));
    token_watch_arrived(&watch, text("default"), text("key"), realtime_ms() / 1000);
    assert_null(strstr(shown(), " seconds since 1970")); /* what was seen first stays */
    token_watch_raised(&watch);
    assert_true(alarm_is_on(&watch.clock_like)); /* until restart */
    alarm_off(&watch.clock_like);
}

static void *many_stale(void *arg)
{
    for (int i = 0; i < 300; i++) {
        stale(1, 12);
        if (arg != NULL)
            token_watch_raised(&watch);
        struct jsonout out = {0};
        alarms_write(&out);
        jsonout_free(&out);
    }
    return NULL;
}

/* Whatever order it comes in: when all is quiet, alarm and run agree. */
static void threads_agree_in_the_end(void **state)
{
    pthread_t threads[4];
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_stale, i % 2 == 0 ? &watch : NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    token_watch_raised(&watch);
    assert_false(alarm_is_on(&watch.regression));
    assert_string_equal(shown(), "[]");
    stale(1, 10);
    assert_true(alarm_is_on(&watch.regression));
    token_watch_raised(&watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_keys_in_a_row_are_a_regression),
        cmocka_unit_test(the_same_key_again_is_no_more_news),
        cmocka_unit_test(an_acceptance_starts_the_count_anew),
        cmocka_unit_test(late_calls_of_many_days_are_no_run),
        cmocka_unit_test(clock_readings_are_known_in_every_unit),
        cmocka_unit_test(counters_are_no_clocks),
        cmocka_unit_test(a_regression_is_an_alarm_until_a_token_is_accepted),
        cmocka_unit_test(namespaces_keep_keys_apart),
        cmocka_unit_test(a_clock_is_told_once),
        cmocka_unit_test(threads_agree_in_the_end),
    };
    log_set_level(LOG_ERROR); /* alarms are warnings */
    token_watch_init(&watch, "pay");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    jsonout_free(&alarms);
    return failed;
}
