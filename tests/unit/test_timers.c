/* tests/unit/test_timers.c - deadlines of a loop: order, moving, clearing, and what a firing timer may do. */
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/timers.h"

static struct timers timers;
static struct timer *fired[4096];
static size_t fired_count;

static void on_fire(struct timer *timer)
{
    assert_int_equal(timer->place, 0); /* no longer set when it fires */
    assert_true(fired_count < sizeof fired / sizeof fired[0]);
    fired[fired_count++] = timer;
}

static int set_up(void **state)
{
    (void)state;
    fired_count = 0;
    timers = (struct timers){0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    timers_free(&timers);
    return timers.heap == NULL && timers.promised == 0 ? 0 : -1;
}

static void promise(size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_true(timers_promise(&timers));
}

static void nothing_set(void **state)
{
    struct timer timer = {.fire = on_fire};
    (void)state;
    assert_int_equal(timers_wait_ms(&timers, 1000), -1);
    timers_run(&timers, UINT64_MAX);
    timer_clear(&timers, &timer);
    promise(1);
    assert_int_equal(timers_wait_ms(&timers, 1000), -1);
}

static void fires_when_due(void **state)
{
    struct timer timer = {.fire = on_fire};
    (void)state;
    promise(1);
    timer_set(&timers, &timer, 1000);
    assert_int_equal(timers_wait_ms(&timers, 400), 600);
    timers_run(&timers, 999);
    assert_int_equal(fired_count, 0);
    assert_int_equal(timers_wait_ms(&timers, 1000), 0);
    assert_int_equal(timers_wait_ms(&timers, 5000), 0);
    timers_run(&timers, 1000);
    assert_int_equal(fired_count, 1);
    timers_run(&timers, 2000); /* once */
    assert_int_equal(fired_count, 1);
    assert_int_equal(timers_wait_ms(&timers, 1000), -1);
}

static void far_away(void **state)
{
    struct timer timer = {.fire = on_fire};
    (void)state;
    promise(1);
    timer_set(&timers, &timer, UINT64_MAX);
    assert_int_equal(timers_wait_ms(&timers, 0), INT_MAX);
    timer_set(&timers, &timer, (uint64_t)INT_MAX + 10);
    assert_int_equal(timers_wait_ms(&timers, 9), INT_MAX);
    assert_int_equal(timers_wait_ms(&timers, 11), INT_MAX - 1);
    timer_clear(&timers, &timer);
}

static void moved_and_cleared(void **state)
{
    struct timer a = {.fire = on_fire}, b = {.fire = on_fire}, c = {.fire = on_fire};
    (void)state;
    promise(3);
    timer_set(&timers, &a, 100);
    timer_set(&timers, &b, 200);
    timer_set(&timers, &c, 300);
    timer_set(&timers, &a, 400); /* later */
    timer_set(&timers, &c, 50);  /* sooner */
    timer_clear(&timers, &b);
    timer_clear(&timers, &b);
    assert_int_equal(timers_wait_ms(&timers, 0), 50);
    timers_run(&timers, 1000);
    assert_int_equal(fired_count, 2);
    assert_ptr_equal(fired[0], &c);
    assert_ptr_equal(fired[1], &a);
}

static struct timer *victim;

static void on_fire_clearing(struct timer *timer)
{
    on_fire(timer);
    timer_clear(&timers, victim);
}

static void on_fire_again(struct timer *timer)
{
    on_fire(timer);
    if (fired_count < 3)
        timer_set(&timers, timer, timer->due_ms + 10);
}

static void a_firing_timer_may_change_others_and_itself(void **state)
{
    struct timer a = {.fire = on_fire_clearing}, b = {.fire = on_fire}, again = {.fire = on_fire_again};
    (void)state;
    promise(3);
    victim = &b; /* due too, cleared just before */
    timer_set(&timers, &a, 10);
    timer_set(&timers, &b, 11);
    timers_run(&timers, 20);
    assert_int_equal(fired_count, 1);
    fired_count = 0;
    timer_set(&timers, &again, 100);
    timers_run(&timers, 110); /* its next time is due as well */
    assert_int_equal(fired_count, 2);
    timers_run(&timers, 119);
    assert_int_equal(fired_count, 2);
    timers_run(&timers, 120);
    assert_int_equal(fired_count, 3);
}

/* Owners come and go; each that took a promise can set its timer without asking for memory. */
static void promises(void **state)
{
    enum { OWNERS = 1000 };
    static struct timer owner[OWNERS];
    (void)state;
    promise(OWNERS);
    struct timer **heap = timers.heap;
    for (size_t i = 0; i < OWNERS; i++) {
        owner[i] = (struct timer){.fire = on_fire};
        timer_set(&timers, &owner[i], 5000 - i);
    }
    assert_ptr_equal(timers.heap, heap);
    assert_in_range(timers.count, OWNERS, timers.cap - 1);
    for (size_t i = 0; i < OWNERS / 2; i++) {
        timer_clear(&timers, &owner[i]);
        timers_release(&timers);
    }
    promise(OWNERS / 2); /* the room of those who left */
    for (size_t i = 0; i < OWNERS / 2; i++)
        timer_set(&timers, &owner[i], 5000 - i);
    timers_run(&timers, 5000);
    assert_int_equal(fired_count, OWNERS);
    for (size_t i = 1; i < OWNERS; i++)
        assert_true(fired[i - 1]->due_ms <= fired[i]->due_ms);
}

/* A timer without a promise is a mistake in the program: no silent loss of a deadline. */
static void no_promise_no_timer(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct timer timer = {.fire = on_fire};
        signal(SIGABRT, SIG_DFL);
        timer_set(&timers, &timer, 1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void random_steps_beside_a_model(void **state)
{
    enum { TIMERS = 200, STEPS = 40000 };
    static struct timer timer[TIMERS];
    static uint64_t due[TIMERS]; /* 0: not set */
    uint64_t random = UINT64_C(88172645463325252), now = 1;
    (void)state;
    promise(TIMERS);
    memset(due, 0, sizeof due);
    for (size_t i = 0; i < TIMERS; i++)
        timer[i] = (struct timer){.fire = on_fire};
    for (int step = 0; step < STEPS; step++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        size_t i = (random >> 8) % TIMERS;
        if (random % 16 < 10) {
            due[i] = now + 1 + (random >> 32) % 500;
            timer_set(&timers, &timer[i], due[i]);
        } else if (random % 16 < 13) {
            due[i] = 0;
            timer_clear(&timers, &timer[i]);
        } else {
            now += (random >> 32) % 100;
            size_t expected = 0;
            for (size_t j = 0; j < TIMERS; j++)
                expected += due[j] != 0 && due[j] <= now ? 1 : 0;
            fired_count = 0;
            timers_run(&timers, now);
            assert_int_equal(fired_count, expected);
            for (size_t j = 0; j < fired_count; j++) {
                size_t which = (size_t)(fired[j] - timer);
                assert_in_range(due[which], 1, now);
                assert_true(j == 0 || fired[j - 1]->due_ms <= fired[j]->due_ms);
                due[which] = 0;
            }
        }
        uint64_t next = UINT64_MAX;
        for (size_t j = 0; j < TIMERS; j++)
            next = due[j] != 0 && due[j] < next ? due[j] : next;
        assert_int_equal(timers_wait_ms(&timers, now), next == UINT64_MAX ? -1 : (int)(next - now));
    }
}

static void clocks(void **state)
{
    (void)state;
    uint64_t before = monotonic_ms();
    assert_in_range(monotonic_ms(), before, before + 60000);
    assert_in_range(realtime_ms(), UINT64_C(1700000000000), UINT64_C(9999999999999)); /* milliseconds of Unix time */
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(nothing_set),
        CASE(fires_when_due),
        CASE(far_away),
        CASE(moved_and_cleared),
        CASE(a_firing_timer_may_change_others_and_itself),
        CASE(promises),
        CASE(no_promise_no_timer),
        CASE(random_steps_beside_a_model),
        CASE(clocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
