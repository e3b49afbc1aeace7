/* tests/unit/test_gate.c - order per key: who starts, who waits, who is told what. By hand; one thread. */
#include "tests/unit/gate_case.h"

#include <stdio.h>
#include <stdlib.h>

static void free_key_starts_at_once(void **state)
{
    struct holder a;
    (void)state;
    assert_int_equal(in_flight(), 0);
    join(&a, 41);
    assert_int_equal(in_flight(), 0); /* joined only */
    assert_int_equal(enter(&a), GATE_ENTERED);
    assert_int_equal(in_flight(), 1); /* connecting counts */
    assert_true(begin(&a));
    assert_int_equal(in_flight(), 1);
    leave(&a);
    assert_int_equal(in_flight(), 0);
    assert_int_equal(told(&a), 0);
    assert_int_equal(a.runs, 0);
}

static void leaves_from_every_state(void **state)
{
    struct holder joined, starting, sending, waiting;
    (void)state;
    start(&sending, 41);
    join(&starting, 41);
    assert_int_equal(enter(&starting), GATE_ENTERED);
    join(&joined, 42);
    join(&waiting, 42);
    assert_int_equal(enter(&waiting), GATE_MUST_WAIT);
    assert_int_equal(told(&starting), GATE_SUPERSEDED);
    leave(&joined);
    leave(&waiting);
    leave(&starting);
    assert_int_equal(in_flight(), 1);
    leave(&sending);
    assert_int_equal(in_flight(), 0);
}

static void newer_waits_for_older(void **state)
{
    struct holder a, b;
    (void)state;
    start(&a, 41);
    join(&b, 42);
    raise_to(42);
    assert_int_equal(enter(&b), GATE_MUST_WAIT);
    assert_int_equal(in_flight(), 1);
    assert_int_equal(told(&b), 0);
    leave(&a);
    assert_int_equal(in_flight(), 1); /* b, before it knows */
    assert_int_equal(told(&b), GATE_MAY_START);
    assert_true(begin(&b));
    leave(&b);
    assert_int_equal(b.runs, 1);
}

static void newer_waits_for_one_that_connects(void **state)
{
    struct holder a, b;
    (void)state;
    join(&a, 41);
    assert_int_equal(enter(&a), GATE_ENTERED);
    join(&b, 42);
    raise_to(42);
    assert_int_equal(enter(&b), GATE_MUST_WAIT);
    assert_int_equal(told(&a), GATE_SUPERSEDED);
    leave(&a);
    assert_int_equal(told(&b), GATE_MAY_START);
    leave(&b);
}

static void would_wait_for_older_on_their_way_in(void **state)
{
    struct holder a, b, newer, side;
    (void)state;
    join(&a, 41);
    join(&b, 41);
    assert_false(gate_would_wait(&b.ticket));
    join(&newer, 42);
    join_as(&side, "default", "order-17", 42, GATE_OVERLAP);
    assert_false(gate_would_wait(&a.ticket));
    assert_true(gate_would_wait(&newer.ticket));
    assert_false(gate_would_wait(&side.ticket));
    leave(&a); /* turned away */
    assert_true(gate_would_wait(&newer.ticket));
    assert_int_equal(enter(&b), GATE_ENTERED);
    assert_true(gate_would_wait(&newer.ticket));
    leave(&b);
    assert_false(gate_would_wait(&newer.ticket));
    leave(&newer);
    leave(&side);
}

static void waiting_are_woken_in_order(void **state)
{
    struct holder a, b[5];
    (void)state;
    start(&a, 41);
    for (size_t i = 0; i < 5; i++) {
        join(&b[i], 42);
        assert_int_equal(enter(&b[i]), GATE_MUST_WAIT);
    }
    assert_false(gate_leave(&b[2].ticket)); /* gives up, from the middle */
    leave(&a);
    inbox_drain(&inbox);
    assert_int_equal(woken_count, 4);
    assert_ptr_equal(woken[0], &b[0]);
    assert_ptr_equal(woken[1], &b[1]);
    assert_ptr_equal(woken[2], &b[3]);
    assert_ptr_equal(woken[3], &b[4]);
    assert_int_equal(in_flight(), 4);
    for (size_t i = 0; i < 5; i++)
        if (i != 2)
            leave(&b[i]);
}

static void woken_only_by_the_last_older(void **state)
{
    struct holder a[3], b;
    (void)state;
    for (size_t i = 0; i < 3; i++)
        start(&a[i], 41);
    join(&b, 42);
    assert_int_equal(enter(&b), GATE_MUST_WAIT);
    leave(&a[1]);
    assert_int_equal(told(&b), 0);
    leave(&a[0]);
    assert_int_equal(told(&b), 0);
    leave(&a[2]);
    assert_int_equal(told(&b), GATE_MAY_START);
    leave(&b);
}

static void equal_tokens_side_by_side(void **state)
{
    struct holder a, b, c;
    (void)state;
    start(&a, 41);
    start(&b, 41);
    raise_to(41); /* told late: no reason to stop an equal */
    start(&c, 41);
    assert_int_equal(in_flight(), 3);
    assert_int_equal(told(&a) | told(&b) | told(&c), 0);
    leave(&b);
    leave(&a);
    leave(&c);
}

static void raise_stops_what_has_not_begun(void **state)
{
    struct holder sending, starting, joined, waiting, newest;
    uint64_t highest = 0;
    (void)state;
    start(&sending, 41);
    join(&starting, 41);
    assert_int_equal(enter(&starting), GATE_ENTERED);
    join(&waiting, 42);
    assert_int_equal(enter(&waiting), GATE_MUST_WAIT);
    join(&joined, 42);
    join(&newest, 43);
    raise_to(43);
    assert_int_equal(told(&sending), 0);
    assert_int_equal(told(&joined), 0); /* learns it at the door */
    assert_int_equal(told(&newest), 0);
    assert_int_equal(told(&starting), GATE_SUPERSEDED);
    assert_int_equal(told(&waiting), GATE_SUPERSEDED);
    assert_int_equal(gate_highest(&waiting.ticket), 43);
    assert_int_equal(gate_enter(&joined.ticket, &highest), GATE_TOO_LATE);
    assert_int_equal(highest, 43);
    highest = 0;
    assert_false(gate_begin_send(&starting.ticket, &highest));
    assert_int_equal(highest, 43);
    leave(&joined);
    leave(&starting);
    leave(&waiting);
    assert_int_equal(enter(&newest), GATE_MUST_WAIT);
    leave(&sending);
    assert_int_equal(told(&newest), GATE_MAY_START);
    leave(&newest);
}

static void superseded_waiting_is_not_woken(void **state)
{
    struct holder a, b, c;
    (void)state;
    start(&a, 41);
    join(&b, 42);
    assert_int_equal(enter(&b), GATE_MUST_WAIT);
    raise_to(43);
    join(&c, 43);
    assert_int_equal(enter(&c), GATE_MUST_WAIT);
    leave(&a); /* b has not yet looked at its notice */
    assert_int_equal(in_flight(), 1);
    assert_int_equal(told(&b), GATE_SUPERSEDED);
    assert_int_equal(told(&c), GATE_MAY_START);
    assert_true(begin(&c));
    leave(&b);
    leave(&c);
}

static void woken_and_then_superseded(void **state)
{
    struct holder a, b;
    (void)state;
    start(&a, 41);
    join(&b, 42);
    assert_int_equal(enter(&b), GATE_MUST_WAIT);
    leave(&a);
    raise_to(43);
    assert_int_equal(told(&b), GATE_MAY_START | GATE_SUPERSEDED); /* one item for both */
    assert_int_equal(b.runs, 1);
    assert_false(begin(&b));
    leave(&b);
}

static void last_look_lets_the_current_pass(void **state)
{
    struct holder a;
    uint64_t highest = 7;
    (void)state;
    join(&a, 42);
    raise_to(41);
    raise_to(42);
    raise_to(40); /* never goes down */
    assert_int_equal(gate_highest(&a.ticket), 42);
    assert_int_equal(enter(&a), GATE_ENTERED);
    assert_true(gate_begin_send(&a.ticket, &highest));
    assert_int_equal(highest, 7);
    leave(&a);
}

/* No byte left: there is another look, and a raise in between stops the call. */
static void retracted_looks_again(void **state)
{
    struct holder a;
    uint64_t highest = 7;
    (void)state;
    start(&a, 42);
    assert_true(gate_retract(&a.ticket, &highest));
    assert_int_equal(highest, 7);
    assert_int_equal(in_flight(), 1); /* a newer one waits for it all the same */
    assert_true(begin(&a));
    raise_to(43);
    assert_int_equal(told(&a), 0); /* it sends */
    assert_false(gate_retract(&a.ticket, &highest));
    assert_int_equal(highest, 43);
    assert_false(gate_begin_send(&a.ticket, &highest));
    leave(&a);
}

static void retracted_is_told_of_a_raise(void **state)
{
    struct holder a;
    uint64_t highest = 0;
    (void)state;
    start(&a, 42);
    assert_true(gate_retract(&a.ticket, &highest));
    raise_to(43);
    assert_int_equal(told(&a), GATE_SUPERSEDED);
    leave(&a);
}

/* An accepted token that found its fence on disk comes to the gate before the writer has told of the raise: it may be
 * the first the gate hears of it. No older call that was read to be current before may start beside or after it. */
static void who_enters_tells_of_the_token(void **state)
{
    struct holder joined, starting, waiting, sending, c;
    uint64_t highest = 0;
    (void)state;
    start(&sending, 40);
    join(&starting, 40);
    assert_int_equal(enter(&starting), GATE_ENTERED);
    join(&joined, 41);
    join(&waiting, 41);
    assert_int_equal(enter(&waiting), GATE_MUST_WAIT);
    assert_int_equal(told(&starting), GATE_SUPERSEDED);
    assert_int_equal(told(&sending), 0);
    assert_false(begin(&starting));
    join(&c, 42); /* read 42 on disk: nothing to submit */
    assert_int_equal(enter(&c), GATE_MUST_WAIT);
    assert_int_equal(told(&waiting), GATE_SUPERSEDED);
    assert_int_equal(gate_enter(&joined.ticket, &highest), GATE_TOO_LATE);
    assert_int_equal(highest, 42);
    leave(&joined);
    leave(&starting);
    leave(&waiting);
    leave(&sending);
    assert_int_equal(told(&c), GATE_MAY_START);
    leave(&c);
}

static void no_start_beside_a_newer_one(void **state)
{
    struct holder a, c;
    (void)state;
    join(&a, 41); /* has read 41 */
    join(&c, 42); /* has read 42: committed, the gate not yet told */
    assert_int_equal(enter(&c), GATE_ENTERED);
    assert_true(begin(&c));
    assert_int_equal(enter(&a), GATE_TOO_LATE);
    leave(&a);
    leave(&c);
}

static void overlap_does_not_wait(void **state)
{
    struct holder a, b, c;
    (void)state;
    start(&a, 41);
    raise_to(42);
    join_as(&b, "default", "order-17", 42, GATE_OVERLAP);
    assert_int_equal(enter(&b), GATE_ENTERED);
    assert_true(begin(&b));
    assert_int_equal(told(&a), 0);
    assert_int_equal(in_flight(), 2);
    raise_to(43);
    join(&c, 43); /* of a route that drains: waits for both */
    assert_int_equal(enter(&c), GATE_MUST_WAIT);
    leave(&a);
    assert_int_equal(told(&c), 0);
    leave(&b);
    assert_int_equal(told(&c), GATE_MAY_START);
    leave(&c);
}

static void overlap_is_no_way_back(void **state)
{
    struct holder a;
    (void)state;
    join_as(&a, "default", "order-17", 41, GATE_OVERLAP);
    raise_to(42);
    assert_int_equal(enter(&a), GATE_TOO_LATE);
    leave(&a);
}

static void abort_cuts_what_sends(void **state)
{
    struct holder a[2], starting, b, equal;
    (void)state;
    start(&a[0], 41);
    start(&a[1], 41);
    join(&starting, 41);
    assert_int_equal(enter(&starting), GATE_ENTERED);
    raise_to(42);
    assert_int_equal(told(&a[0]), 0); /* a raise alone cuts nothing */
    join_as(&b, "default", "order-17", 42, GATE_ABORT);
    assert_int_equal(enter(&b), GATE_MUST_WAIT);
    assert_int_equal(told(&a[0]), GATE_CUT);
    assert_int_equal(told(&a[1]), GATE_CUT);
    assert_int_equal(told(&starting), GATE_SUPERSEDED);
    join_as(&equal, "default", "order-17", 42, GATE_ABORT);
    assert_int_equal(enter(&equal), GATE_MUST_WAIT); /* tells them once more: harmless */
    leave(&starting);
    assert_true(gate_leave(&a[0].ticket));
    assert_true(gate_leave(&a[1].ticket));
    assert_int_equal(told(&a[0]) | told(&a[1]), 0);
    assert_int_equal(told(&b), GATE_MAY_START);
    assert_int_equal(told(&equal), GATE_MAY_START);
    assert_true(begin(&b));
    assert_true(begin(&equal));
    leave(&b);
    leave(&equal);
}

static void abort_leaves_equals_alone(void **state)
{
    struct holder a, b;
    (void)state;
    start(&a, 42);
    join_as(&b, "default", "order-17", 42, GATE_ABORT);
    assert_int_equal(enter(&b), GATE_ENTERED);
    assert_int_equal(told(&a), 0);
    leave(&a);
    leave(&b);
}

static void leave_with_a_notice_under_way(void **state)
{
    struct holder a, b;
    (void)state;
    start(&a, 41);
    join(&b, 42);
    assert_int_equal(enter(&b), GATE_MUST_WAIT);
    raise_to(43);
    assert_true(gate_leave(&b.ticket));
    leave(&a);
    assert_int_equal(told(&b), 0); /* the item ran, and had nothing to say */
    assert_int_equal(b.runs, 1);
    assert_false(b.ticket.posted); /* now its memory may go, or be used again */
    start(&b, 44);
    leave(&b);
}

static void keys_are_apart(void **state)
{
    /* same key elsewhere, and pairs whose joined bytes are alike */
    static const char *const names[][2] = {{"default", "order-17"},
                                           {"other", "order-17"},
                                           {"default", "order-1"},
                                           {"defaulto", "rder-17"},
                                           {"d", "efaultorder-17"}};
    struct holder held[5], late;
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        join_as(&held[i], names[i][0], names[i][1], 50 - i, GATE_DRAIN);
        assert_int_equal(enter(&held[i]), GATE_ENTERED);
    }
    gate_raised(gate, text("other"), text("order-17"), 90);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(gate_in_flight(gate, text(names[i][0]), text(names[i][1])), 1);
        assert_int_equal(told(&held[i]), i == 1 ? GATE_SUPERSEDED : 0);
        assert_true(begin(&held[i]) == (i != 1));
    }
    join_as(&late, "other", "order-17", 50, GATE_DRAIN);
    assert_int_equal(enter(&late), GATE_TOO_LATE);
    leave(&late);
    for (size_t i = 0; i < 5; i++)
        leave(&held[i]);
}

static void keys_of_any_bytes(void **state)
{
    char key[255];
    struct holder a = {.ticket = {.item.run = on_notice, .inbox = &inbox, .token = UINT64_MAX}};
    (void)state;
    memset(key, 0xC3, sizeof key);
    assert_true(gate_join(gate, &a.ticket, text("n"), (struct slice){key, sizeof key}));
    assert_int_equal(enter(&a), GATE_ENTERED);
    gate_raised(gate, text("n"), (struct slice){key, sizeof key}, UINT64_MAX);
    assert_int_equal(gate_in_flight(gate, text("n"), (struct slice){key, sizeof key}), 1);
    assert_int_equal(gate_in_flight(gate, text("n"), (struct slice){key, sizeof key - 1}), 0);
    assert_true(begin(&a));
    leave(&a);
}

/* Memory of an entry that has ended serves another key's, if its name fits: nothing of the first is left in it. */
static void entries_are_used_again(void **state)
{
    struct holder a;
    char key[100];
    (void)state;
    for (unsigned i = 0; i < 20000; i++) { /* all shards many times */
        snprintf(key, sizeof key, "%u-%0*u", i, (int)(i % 3 * 25 + 10), i);
        const char *ns = i % 2 == 0 ? "default" : "another-namespace";
        join_as(&a, ns, key, 50, GATE_DRAIN);
        assert_int_equal(gate_highest(&a.ticket), 0);
        assert_int_equal(enter(&a), GATE_ENTERED);
        gate_raised(gate, text(ns), text(key), 51);
        assert_int_equal(told(&a), GATE_SUPERSEDED);
        assert_int_equal(gate_in_flight(gate, text(ns), text(key)), 1);
        leave(&a);
        assert_int_equal(gate_in_flight(gate, text(ns), text(key)), 0);
    }
}

/* What the gate was told of is forgotten with the last ticket: from then on the store knows. */
static void entry_ends_with_its_last_ticket(void **state)
{
    struct holder a, b;
    (void)state;
    join(&a, 41);
    join(&b, 41);
    raise_to(42);
    leave(&a);
    assert_int_equal(enter(&b), GATE_TOO_LATE);
    leave(&b);
    join(&a, 41);
    assert_int_equal(gate_highest(&a.ticket), 0);
    assert_int_equal(enter(&a), GATE_ENTERED);
    leave(&a);
    raise_to(43); /* of a key that nobody is at */
    join(&a, 41);
    assert_int_equal(gate_highest(&a.ticket), 0);
    leave(&a);
}

static void many_keys_share_chains(void **state)
{
    enum { KEYS = 40000 };
    struct holder *held = calloc(KEYS, sizeof *held);
    char key[24];
    (void)state;
    assert_non_null(held);
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "key-%zu", i);
        join_as(&held[i], "default", key, i + 1, GATE_DRAIN);
        assert_int_equal(enter(&held[i]), GATE_ENTERED);
    }
    for (size_t i = 0; i < KEYS; i += 3) {
        snprintf(key, sizeof key, "key-%zu", i);
        gate_raised(gate, text("default"), text(key), i + 2);
    }
    for (size_t i = 0; i < KEYS; i++) { /* each told of its own raise only; entries go from the middle of chains */
        snprintf(key, sizeof key, "key-%zu", (i * 7919) % KEYS);
        struct holder *one = &held[(i * 7919) % KEYS];
        assert_int_equal(gate_in_flight(gate, text("default"), text(key)), 1);
        assert_true(begin(one) == ((one - held) % 3 != 0));
        assert_true(gate_leave(&one->ticket) == ((one - held) % 3 == 0));
        assert_int_equal(gate_in_flight(gate, text("default"), text(key)), 0);
    }
    inbox_drain(&inbox);
    free(held);
}

static void tokens_that_run_and_wait(void **state)
{
    struct holder runs[3], waits[2], joined, other;
    struct gate_token out[4];
    (void)state;
    start(&runs[0], 5);
    start(&runs[1], 5);
    join_as(&runs[2], "default", "order-17", 6, GATE_OVERLAP);
    assert_int_equal(enter(&runs[2]), GATE_ENTERED);
    for (size_t i = 0; i < 2; i++) {
        join(&waits[i], 7);
        assert_int_equal(enter(&waits[i]), GATE_MUST_WAIT);
    }
    join(&joined, 8); /* not decided yet: it does neither */
    join_as(&other, "default", "order-18", 9, GATE_DRAIN);
    assert_int_equal(enter(&other), GATE_ENTERED);
    assert_int_equal(gate_tokens(gate, text("default"), text("order-17"), out, 4), 3);
    const struct gate_token expected[] = {{5, 2, 0}, {6, 1, 0}, {7, 0, 2}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(out[i].token, expected[i].token);
        assert_int_equal(out[i].in_flight, expected[i].in_flight);
        assert_int_equal(out[i].waiting, expected[i].waiting);
    }
    assert_int_equal(gate_tokens(gate, text("default"), text("order-17"), out, 1), 1);
    assert_int_equal(out[0].in_flight, 2);
    assert_int_equal(gate_tokens(gate, text("default"), text("nobody's"), out, 4), 0);
    inbox_drain(&inbox); /* 6 was superseded by 7 */
    leave(&other);
    leave(&joined);
    for (size_t i = 0; i < 2; i++)
        leave(&waits[i]);
    for (size_t i = 0; i < 3; i++)
        leave(&runs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(free_key_starts_at_once),
        CASE(leaves_from_every_state),
        CASE(newer_waits_for_older),
        CASE(newer_waits_for_one_that_connects),
        CASE(would_wait_for_older_on_their_way_in),
        CASE(waiting_are_woken_in_order),
        CASE(woken_only_by_the_last_older),
        CASE(equal_tokens_side_by_side),
        CASE(raise_stops_what_has_not_begun),
        CASE(superseded_waiting_is_not_woken),
        CASE(woken_and_then_superseded),
        CASE(last_look_lets_the_current_pass),
        CASE(retracted_looks_again),
        CASE(retracted_is_told_of_a_raise),
        CASE(who_enters_tells_of_the_token),
        CASE(no_start_beside_a_newer_one),
        CASE(overlap_does_not_wait),
        CASE(overlap_is_no_way_back),
        CASE(abort_cuts_what_sends),
        CASE(abort_leaves_equals_alone),
        CASE(leave_with_a_notice_under_way),
        CASE(tokens_that_run_and_wait),
        CASE(keys_are_apart),
        CASE(keys_of_any_bytes),
        CASE(entries_are_used_again),
        CASE(entry_ends_with_its_last_ticket),
        CASE(many_keys_share_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
