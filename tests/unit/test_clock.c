/* Tests for store/clock.c: what retention believes of the wall clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/clock.h"

enum { HOUR = 3600 * 1000, DAY = 24 * HOUR };
static const uint64_t start = UINT64_C(1800000000000);

static void goes_with_the_wall_clock(void **state)
{
    (void)state;
    struct trusted_clock clock = {0};
    uint64_t leapt;
    for (uint64_t at = 0; at < 100 * (uint64_t)DAY; at += HOUR) {
        uint64_t drift = at / 100000; /* a clock that is slewed */
        assert_int_equal(trusted_ms(&clock, start + at + drift, at, &leapt), start + at + drift);
        assert_int_equal(leapt, 0);
    }
}

static void a_leap_that_returns_is_never_believed(void **state)
{
    (void)state;
    struct trusted_clock clock = {0};
    uint64_t leapt;
    (void)trusted_ms(&clock, start, 1000, &leapt);
    assert_int_equal(trusted_ms(&clock, start + 400 * (uint64_t)DAY, 2000, &leapt), start + 1000);
    assert_true(leapt > 0);
    assert_int_equal(trusted_ms(&clock, start + 400 * (uint64_t)DAY + 5000, 7000, &leapt), start + 6000);
    assert_int_equal(leapt, 0); /* told once */
    assert_int_equal(trusted_ms(&clock, start + HOUR, 1000 + HOUR, &leapt), start + HOUR);
    assert_int_equal(leapt, 0);
    assert_int_equal(trusted_ms(&clock, start + 400 * (uint64_t)DAY, 2000 + HOUR, &leapt), start + HOUR + 1000);
    assert_true(leapt > 0); /* another one */
}

static void a_leap_that_lasts_a_day_is(void **state)
{
    (void)state;
    struct trusted_clock clock = {0};
    uint64_t leapt;
    uint64_t ahead = 400 * (uint64_t)DAY;
    (void)trusted_ms(&clock, start, 1, &leapt);
    (void)trusted_ms(&clock, start + ahead + 10, 11, &leapt);
    assert_int_equal(trusted_ms(&clock, start + ahead + DAY, 1 + DAY, &leapt), start + DAY);
    assert_int_equal(trusted_ms(&clock, start + ahead + DAY + HOUR, 1 + DAY + HOUR, &leapt),
                     start + ahead + DAY + HOUR);
    assert_int_equal(leapt, 0);
}

static void a_step_back_is_followed_at_once(void **state)
{
    (void)state;
    struct trusted_clock clock = {0};
    uint64_t leapt;
    (void)trusted_ms(&clock, start, 0, &leapt);
    assert_int_equal(trusted_ms(&clock, start - DAY, 1000, &leapt), start - DAY);
    assert_int_equal(leapt, 0);
}

static void the_first_reading_is_held_against_what_was_trusted(void **state)
{
    (void)state;
    struct trusted_clock clock;
    uint64_t leapt, ahead = 400 * (uint64_t)DAY;
    trusted_from(&clock, start, 0);
    assert_int_equal(trusted_ms(&clock, start + ahead, 5, &leapt), start);
    assert_int_equal(leapt, ahead);
    assert_int_equal(trusted_ms(&clock, start + ahead + HOUR, 5 + HOUR, &leapt), start + HOUR);
    assert_int_equal(leapt, 0);
    assert_int_equal(trusted_lasted_ms(&clock, 5 + HOUR), HOUR);
    assert_int_equal(trusted_ms(&clock, start + ahead + DAY + HOUR, 5 + DAY + HOUR, &leapt),
                     start + ahead + DAY + HOUR);
    assert_int_equal(trusted_lasted_ms(&clock, 5 + DAY + HOUR), 0);

    trusted_from(&clock, start, 0); /* hardly any time has passed, or the clock went back */
    assert_int_equal(trusted_ms(&clock, start + 30000, 5, &leapt), start + 30000);
    trusted_from(&clock, start, 0);
    assert_int_equal(trusted_ms(&clock, start - DAY, 5, &leapt), start - DAY);
    assert_int_equal(leapt, 0);
}

/* A gateway that is started anew each hour comes to believe a clock, too, and not before. */
static void a_leap_goes_on_over_starts(void **state)
{
    (void)state;
    uint64_t leapt, ahead = 400 * (uint64_t)DAY, trusted = start, lasted = 0;
    for (uint64_t hour = 0; hour < 26; hour++) {
        struct trusted_clock clock;
        trusted_from(&clock, trusted, lasted);
        uint64_t at = start + ahead + hour * HOUR;
        (void)trusted_ms(&clock, at, 7, &leapt); /* booted each time, at that */
        trusted = trusted_ms(&clock, at + HOUR, 7 + HOUR, &leapt);
        lasted = trusted_lasted_ms(&clock, 7 + HOUR);
        assert_int_equal(trusted, hour < 24 ? start + (hour + 1) * HOUR : at + HOUR);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_reading_is_held_against_what_was_trusted),
        cmocka_unit_test(a_leap_goes_on_over_starts),
        cmocka_unit_test(goes_with_the_wall_clock),
        cmocka_unit_test(a_leap_that_returns_is_never_believed),
        cmocka_unit_test(a_leap_that_lasts_a_day_is),
        cmocka_unit_test(a_step_back_is_followed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
