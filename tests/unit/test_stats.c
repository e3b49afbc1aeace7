/* tests/unit/test_stats.c - the ring of minutes: idle minutes, clocks that jump, threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/stats.h"

static struct stats_ring ring;

static uint32_t at(uint32_t minute, int back)
{
    uint32_t out[STATS_MINUTES];
    stats_read(&ring, STATS_SENT, minute, out);
    return out[STATS_MINUTES - 1 - back];
}

static uint32_t sum(enum stats_kind kind, uint32_t minute)
{
    uint32_t out[STATS_MINUTES], total = 0;
    stats_read(&ring, kind, minute, out);
    for (int i = 0; i < STATS_MINUTES; i++)
        total += out[i];
    return total;
}

static int empty_ring(void **state)
{
    (void)state;
    memset(&ring, 0, sizeof ring);
    return 0;
}

static void minutes_keep_apart(void **state)
{
    (void)state;
    stats_count(&ring, STATS_SENT, 1000);
    stats_count(&ring, STATS_SENT, 1000);
    stats_count(&ring, STATS_SENT, 1001);
    stats_count(&ring, STATS_DROPPED, 1001);
    assert_int_equal(at(1001, 0), 1);
    assert_int_equal(at(1001, 1), 2);
    assert_int_equal(at(1001, 2), 0);
    assert_int_equal(sum(STATS_SENT, 1001), 3);
    assert_int_equal(sum(STATS_DROPPED, 1001), 1);
    assert_int_equal(sum(STATS_UNKNOWN, 1001), 0);
}

static void old_minutes_leave(void **state)
{
    (void)state;
    stats_count(&ring, STATS_SENT, 1000);
    assert_int_equal(at(1059, 59), 1); /* the oldest shown */
    assert_int_equal(sum(STATS_SENT, 1060), 0);
    stats_count(&ring, STATS_SENT, 1000 + STATS_SLOTS); /* the same slot: what was there is gone */
    assert_int_equal(at(1000 + STATS_SLOTS, 0), 1);
    assert_int_equal(sum(STATS_SENT, 1000 + STATS_SLOTS), 1);
}

/* Hours without a request: nothing clears the slots meanwhile, and nothing old may show. */
static void idle_hours_show_nothing(void **state)
{
    (void)state;
    for (uint32_t minute = 1000; minute < 1060; minute++)
        stats_count(&ring, STATS_SENT, minute);
    assert_int_equal(sum(STATS_SENT, 1059), 60);
    assert_int_equal(sum(STATS_SENT, 1060 + 29), 30);
    for (uint32_t minute = 1119; minute < 1119 + 200; minute++)
        assert_int_equal(sum(STATS_SENT, minute), 0);
    stats_count(&ring, STATS_SENT, 5000);
    assert_int_equal(sum(STATS_SENT, 5000), 1);
}

static void a_late_count_harms_no_newer_minute(void **state)
{
    (void)state;
    stats_count(&ring, STATS_SENT, 1000 + STATS_SLOTS);
    stats_count(&ring, STATS_SENT, 1000); /* by a thread that was away for an hour */
    assert_int_equal(at(1000 + STATS_SLOTS, 0), 1);
    stats_count(&ring, STATS_SENT, 999 + STATS_SLOTS); /* a minute late is in time */
    assert_int_equal(at(1000 + STATS_SLOTS, 1), 1);
}

/* One who reads a moment before the minute turns still sees its oldest one. */
static void the_next_minute_takes_no_shown_place(void **state)
{
    (void)state;
    stats_count(&ring, STATS_SENT, 1000);
    stats_count(&ring, STATS_SENT, 1060);
    assert_int_equal(at(1059, 59), 1);
}

static void an_untouched_ring_is_empty_from_the_first_minute(void **state)
{
    (void)state;
    for (uint64_t boot_ms = 0; boot_ms < 10 * 60000; boot_ms += 30000)
        for (int kind = 0; kind < STATS_KINDS; kind++)
            assert_int_equal(sum((enum stats_kind)kind, stats_minute(boot_ms, 0)), 0);
    stats_count(&ring, STATS_SENT, stats_minute(0, 0));
    assert_int_equal(at(stats_minute(59999, 0), 0), 1);
    assert_int_equal(at(stats_minute(60000, 0), 1), 1);
}

static void minutes_begin_with_the_wall_clocks(void **state)
{
    const uint64_t boot = 7654321, wall = 1796051627890; /* 13:53:47.890 */
    uint64_t offset = stats_offset(boot, wall), left = 60000 - wall % 60000;
    (void)state;
    assert_true(offset < 60000);
    assert_int_equal(stats_minute(boot + left - 1, offset), stats_minute(boot, offset));
    assert_int_equal(stats_minute(boot + left, offset), stats_minute(boot, offset) + 1);
    assert_int_equal(stats_window_start(boot, offset, wall), wall - wall % 60000 - 59 * 60000);
    assert_int_equal(stats_window_start(boot, offset, wall + 1), wall - wall % 60000 - 59 * 60000);
    assert_int_equal(stats_window_start(boot, offset, wall - 1), wall - wall % 60000 - 59 * 60000);
    assert_int_equal(stats_window_start(boot + left, offset, wall + left), wall + left - 59 * 60000);
}

/* The wall clock is set by an hour: where minutes are shown to lie moves with it, their counts don't. */
static void a_wall_clock_that_is_set_moves_no_count(void **state)
{
    const uint64_t boot = 7654321, wall = 1796051627890;
    uint64_t offset = stats_offset(boot, wall);
    (void)state;
    stats_count(&ring, STATS_SENT, stats_minute(boot, offset));
    uint64_t before = stats_window_start(boot, offset, wall);
    assert_int_equal(stats_window_start(boot, offset, wall - 3600000), before - 3600000);
    assert_int_equal(stats_window_start(boot, offset, wall + 3600000), before + 3600000);
    assert_int_equal(at(stats_minute(boot, offset), 0), 1);
    assert_int_equal(stats_window_start(boot, offset, 1000), 0);
}

static void kinds_of_ends(void **state)
{
    (void)state;
    assert_int_equal(stats_kind_of(EFFECT_SENT, REASON_NONE), STATS_SENT);
    assert_int_equal(stats_kind_of(EFFECT_UNFENCED, REASON_NONE), STATS_SENT);
    assert_int_equal(stats_kind_of(EFFECT_UNKNOWN, REASON_UPSTREAM_FAILED), STATS_UNKNOWN);
    assert_int_equal(stats_kind_of(EFFECT_UNKNOWN, REASON_UPSTREAM_TIMEOUT), STATS_UNKNOWN);
    static const enum reason dropped[] = {REASON_STALE_TOKEN, REASON_SUPERSEDED, REASON_TOKEN_USED,
                                          REASON_IMPLAUSIBLE_TOKEN};
    static const enum reason rejected[] = {REASON_MISSING_TOKEN, REASON_MISSING_KEY, REASON_MALFORMED_TOKEN,
                                           REASON_MALFORMED_KEY};
    static const enum reason other[] = {REASON_PREDECESSOR_IN_FLIGHT, REASON_OVERLOADED, REASON_STORE_UNAVAILABLE,
                                        REASON_UPSTREAM_UNREACHABLE,  REASON_NO_ROUTE,   REASON_UPSTREAM_TIMEOUT};
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
        assert_int_equal(stats_kind_of(EFFECT_NOT_SENT, dropped[i]), STATS_DROPPED);
    for (size_t i = 0; i < sizeof rejected / sizeof rejected[0]; i++)
        assert_int_equal(stats_kind_of(EFFECT_NOT_SENT, rejected[i]), STATS_REJECTED);
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        assert_int_equal(stats_kind_of(EFFECT_NOT_SENT, other[i]), STATS_NOT_SENT);
}

static void *count_many(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < 40000; i++)
        stats_count(&ring, STATS_SENT, 1000 + i / 1000); /* all threads turn the minute, some of them late */
    return NULL;
}

static void threads_lose_nothing(void **state)
{
    pthread_t threads[4];
    (void)state;
    for (uint32_t minute = 1000 - STATS_SLOTS; minute < 1000; minute++)
        stats_count(&ring, STATS_SENT, minute); /* every slot has to be cleared by the first of its new minute */
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_many, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int back = 0; back < 40; back++)
        assert_int_equal(at(1039, back), 4000);
}

/* The window moves over the minute of the start, which stays where it lay. */
static void the_counting_begins_in_the_minute_of_the_start(void **state)
{
    (void)state;
    const uint64_t boot = 987654321, wall = 1796051627890;
    uint64_t offset = stats_offset(boot, wall), begun = wall / 1000 * 1000;
    for (uint64_t later = 0; later < 59 * 60000; later += 999)
        assert_int_equal(
            stats_counted_from(boot, boot + later, offset, stats_window_start(boot + later, offset, wall + later)),
            begun);
    uint64_t later = 61 * 60000, start = stats_window_start(boot + later, offset, wall + later);
    assert_int_equal(stats_counted_from(boot, boot + later, offset, start), start);
}

#define CASE(name) cmocka_unit_test_setup(name, empty_ring)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(minutes_keep_apart),
        CASE(old_minutes_leave),
        CASE(idle_hours_show_nothing),
        CASE(a_late_count_harms_no_newer_minute),
        CASE(the_next_minute_takes_no_shown_place),
        CASE(an_untouched_ring_is_empty_from_the_first_minute),
        CASE(minutes_begin_with_the_wall_clocks),
        CASE(a_wall_clock_that_is_set_moves_no_count),
        CASE(the_counting_begins_in_the_minute_of_the_start),
        CASE(kinds_of_ends),
        CASE(threads_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
