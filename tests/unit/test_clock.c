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
    bool leapt;
    for (uint64_t at = 0; at < 100 * (uint64_t)DAY; at += HOUR) {
        uint64_t drift = at / 100000; /* a clock that is slewed */
        assert_int_equal(trusted_ms(&clock, start + at + drift, at, &leapt), start + at + drift);
        assert_false(leapt);
    }
}

static void a_leap_that_returns_is_never_believed(void **state)
{
    (void)state;
    struct trusted_clock clock = {0};
    bool leapt;
    (void)trusted_ms(&clock, start, 1000, &leapt);
    assert_int_equal(trusted_ms(&clock, start + 400 * (uint64_t)DAY, 2000, &leapt), start + 1000);
    assert_true(leapt);
    assert_int_equal(trusted_ms(&clock, start + 400 * (uint64_t)DAY + 5000, 7000, &leapt), start + 6000);
    assert_false(leapt); /* told once */
    assert_int_equal(trusted_ms(&clock, start + HOUR, 1000 + HOUR, &leapt), start + HOUR);
    assert_false(leapt);
    assert_int_equal(trusted_ms(&clock, start + 400 * (uint64_t)DAY, 2000 + HOUR, &leapt), start + HOUR + 1000);
    assert_true(leapt); /* another one */
}

static void a_leap_that_lasts_a_day_is(void **state)
{
    (void)state;
    struct trusted_clock clock = {0};
    bool leapt;
    uint64_t ahead = 400 * (uint64_t)DAY;
    (void)trusted_ms(&clock, start, 1, &leapt);
    (void)trusted_ms(&clock, start + ahead + 10, 11, &leapt);
    assert_int_equal(trusted_ms(&clock, start + ahead + DAY, 1 + DAY, &leapt), start + DAY);
    assert_int_equal(trusted_ms(&clock, start + ahead + DAY + HOUR, 1 + DAY + HOUR, &leapt),
                     start + ahead + DAY + HOUR);
    assert_false(leapt);
}

static void a_step_back_is_followed_at_once(void **state)
{
    (void)state;
    struct trusted_clock clock = {0};
    bool leapt;
    (void)trusted_ms(&clock, start, 0, &leapt);
    assert_int_equal(trusted_ms(&clock, start - DAY, 1000, &leapt), start - DAY);
    assert_false(leapt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_with_the_wall_clock),
        cmocka_unit_test(a_leap_that_returns_is_never_believed),
        cmocka_unit_test(a_leap_that_lasts_a_day_is),
        cmocka_unit_test(a_step_back_is_followed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
