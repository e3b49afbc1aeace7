/* tests/unit/test_gate_reset.c - what a reset of the fence does to those who are there; and counts by token. One
 * thread. */
#include "tests/unit/gate_case.h"

static void reset(void)
{
    gate_reset(gate, text("default"), text("order-17"));
}

static uint64_t below(uint64_t token)
{
    return gate_in_flight_below(gate, text("default"), text("order-17"), token);
}

static void counts_those_below(void **state)
{
    struct holder a, b, c, newer;
    (void)state;
    assert_int_equal(below(UINT64_MAX), 0);
    start(&a, 41);
    join_as(&b, "default", "order-17", 42, GATE_OVERLAP);
    assert_int_equal(enter(&b), GATE_ENTERED);
    assert_true(begin(&b));
    join(&c, 41);
    join(&newer, 43);
    assert_int_equal(enter(&newer), GATE_MUST_WAIT);
    assert_int_equal(below(41), 0);
    assert_int_equal(below(42), 1);
    assert_int_equal(below(43), 2); /* neither who only joined nor who waits */
    assert_int_equal(gate_in_flight_below(gate, text("other"), text("order-17"), 43), 0);
    leave(&c);
    leave(&a);
    assert_int_equal(below(43), 1);
    leave(&b);
    assert_int_equal(below(44), 1); /* newer has started */
    assert_int_equal(told(&newer), GATE_MAY_START);
    leave(&newer);
}

static void lower_tokens_work_but_wait_for_all(void **state)
{
    struct holder old[2], lower, equal, latest;
    (void)state;
    start(&old[0], 41);
    start(&old[1], 41);
    reset();
    assert_int_equal(told(&old[0]) | told(&old[1]), 0); /* they have begun to send */
    assert_int_equal(below(1), 2);
    join(&lower, 3);
    raise_to(3);
    assert_int_equal(enter(&lower), GATE_MUST_WAIT);
    join(&equal, 3);
    assert_int_equal(enter(&equal), GATE_MUST_WAIT);
    leave(&old[1]);
    assert_int_equal(told(&lower), 0);
    leave(&old[0]);
    assert_int_equal(told(&lower), GATE_MAY_START);
    assert_int_equal(told(&equal), GATE_MAY_START);
    assert_true(begin(&lower));
    assert_true(begin(&equal));
    join(&latest, 4); /* among the new the tokens count again */
    assert_int_equal(enter(&latest), GATE_MUST_WAIT);
    leave(&lower);
    leave(&equal);
    assert_int_equal(told(&latest), GATE_MAY_START);
    leave(&latest);
}

static void an_equal_token_waits_too(void **state)
{
    struct holder old, again;
    (void)state;
    start(&old, 41);
    reset();
    join(&again, 41);
    assert_int_equal(enter(&again), GATE_MUST_WAIT);
    leave(&old);
    assert_int_equal(told(&again), GATE_MAY_START);
    assert_true(begin(&again));
    leave(&again);
}

static void what_has_not_begun_is_stopped(void **state)
{
    struct holder sending, starting, waiting, joined, late;
    uint64_t highest = 9;
    (void)state;
    start(&sending, 41);
    join(&starting, 41);
    assert_int_equal(enter(&starting), GATE_ENTERED);
    join(&waiting, 42);
    assert_int_equal(enter(&waiting), GATE_MUST_WAIT);
    join(&joined, 42);
    assert_int_equal(told(&starting), GATE_SUPERSEDED);
    reset();
    assert_int_equal(told(&sending), 0);
    assert_int_equal(told(&joined), 0);
    assert_int_equal(told(&starting), GATE_SUPERSEDED);
    assert_int_equal(told(&waiting), GATE_SUPERSEDED);
    assert_int_equal(gate_highest(&waiting.ticket), 0);
    assert_int_equal(gate_enter(&joined.ticket, &highest), GATE_TOO_LATE);
    assert_int_equal(highest, 0); /* there is none to tell of */
    highest = 9;
    assert_false(gate_begin_send(&starting.ticket, &highest));
    assert_int_equal(highest, 0);
    raise_to(7); /* below theirs: nothing to tell of either */
    assert_int_equal(gate_highest(&waiting.ticket), 0);
    raise_to(50);
    assert_int_equal(gate_highest(&waiting.ticket), 50);
    assert_int_equal(told(&starting) & told(&waiting), GATE_SUPERSEDED); /* once more: harmless */
    join(&late, 50);
    assert_int_equal(enter(&late), GATE_MUST_WAIT);
    leave(&joined);
    leave(&starting);
    leave(&sending);
    assert_int_equal(told(&waiting), 0); /* not woken in spite of a free way */
    leave(&waiting);
    assert_int_equal(told(&late), GATE_MAY_START);
    leave(&late);
}

/* One who was judged by the fence that is gone must not bring its token back into the gate. */
static void who_comes_from_before_raises_nothing(void **state)
{
    struct holder before, after;
    (void)state;
    join(&before, 41);
    reset();
    join(&after, 3);
    assert_int_equal(enter(&before), GATE_TOO_LATE);
    assert_int_equal(gate_highest(&after.ticket), 0);
    assert_int_equal(enter(&after), GATE_ENTERED);
    assert_true(begin(&after));
    leave(&before);
    leave(&after);
}

static void abort_cuts_whatever_the_token(void **state)
{
    struct holder old, lower;
    (void)state;
    start(&old, 41);
    reset();
    join_as(&lower, "default", "order-17", 3, GATE_ABORT);
    assert_int_equal(enter(&lower), GATE_MUST_WAIT);
    assert_int_equal(told(&old), GATE_CUT);
    leave(&old);
    assert_int_equal(told(&lower), GATE_MAY_START);
    leave(&lower);
}

static void resets_add_up_and_keep_to_their_key(void **state)
{
    struct holder first, second, other, last;
    (void)state;
    start(&first, 41);
    join_as(&other, "default", "order-18", 41, GATE_DRAIN);
    assert_int_equal(enter(&other), GATE_ENTERED);
    reset();
    join_as(&second, "default", "order-17", 3, GATE_OVERLAP);
    assert_int_equal(enter(&second), GATE_ENTERED);
    assert_true(begin(&second));
    reset();
    assert_int_equal(below(1), 2);
    join(&last, 1);
    assert_int_equal(enter(&last), GATE_MUST_WAIT);
    leave(&first);
    assert_int_equal(told(&last), 0);
    leave(&second);
    assert_int_equal(told(&last), GATE_MAY_START);
    leave(&last);
    assert_int_equal(told(&other), 0);
    assert_true(begin(&other));
    leave(&other);
    reset(); /* of a key that nobody is at */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(counts_those_below),
        CASE(lower_tokens_work_but_wait_for_all),
        CASE(an_equal_token_waits_too),
        CASE(what_has_not_begun_is_stopped),
        CASE(who_comes_from_before_raises_nothing),
        CASE(abort_cuts_whatever_the_token),
        CASE(resets_add_up_and_keep_to_their_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
