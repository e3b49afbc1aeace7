/* tests/unit/test_log_queue.c - the thread that writes the log: lines wait for others, a warning for none. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/log_queue.h"

static int saved_stderr, reading; /* the end that standard error is read from */

static int set_up(void **state)
{
    int ends[2];
    (void)state;
    saved_stderr = dup(STDERR_FILENO);
    if (saved_stderr < 0 || pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0 || close(ends[1]) != 0)
        return -1;
    reading = ends[0];
    return log_queue_start() ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    log_queue_stop(20000);
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    return close(reading);
}

static void put(const char *line, bool hurry)
{
    assert_true(log_queue_put(line, strlen(line), hurry));
}

/* What one reading brings. */
static const char *take(void)
{
    static char text[4096];
    struct pollfd ready = {.fd = reading, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 20000), 1);
    ssize_t got = read(reading, text, sizeof text - 1);
    assert_true(got > 0);
    text[got] = '\0';
    return text;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* How long a line took, at best of some. */
static double best_ms(bool hurry)
{
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        double began = now_ms();
        put("a line\n", hurry);
        assert_string_equal(take(), "a line\n");
        double took = now_ms() - began;
        best = took < best ? took : best;
    }
    return best;
}

static void a_line_waits_for_others(void **state)
{
    (void)state;
    assert_true(best_ms(false) >= 5);
}

static void a_warning_does_not(void **state)
{
    (void)state;
    assert_true(best_ms(true) < 5);
}

/* Unless we are held up meanwhile, each time. */
static void one_write_for_what_has_come(void **state)
{
    static const char all[] = "first\nsecond\nthird\n";
    unsigned in_one = 0;
    (void)state;
    for (int round = 0; round < 20; round++) {
        char got[sizeof all] = "";
        put("first\n", false);
        put("second\n", false);
        put("third\n", true);
        for (unsigned reads = 1; strlen(got) < strlen(all); reads++) {
            const char *some = take();
            assert_true(strlen(got) + strlen(some) <= strlen(all));
            strcat(got, some);
            in_one += reads == 1 && strlen(got) == strlen(all) ? 1 : 0;
        }
        assert_string_equal(got, all);
    }
    assert_true(in_one > 0);
}

/* The other buffer may still be at the reader's: half a full one is enough to go on with. */
static void much_does_not_wait(void **state)
{
    static char block[64 * 1024];
    size_t taken = 0;
    (void)state;
    memset(block, 'x', sizeof block);
    double best = 1e9;
    for (int round = 0; round < 10; round++) {
        double began = now_ms();
        for (int i = 0; i < 9; i++) /* more than half a MiB */
            assert_true(log_queue_put(block, sizeof block, false));
        taken = strlen(take());
        double took = now_ms() - began;
        best = took < best ? took : best;
        while (taken < 9 * sizeof block)
            taken += strlen(take());
    }
    assert_true(best < 5);
}

static void all_is_written_at_the_end(void **state)
{
    (void)state;
    put("the last one\n", false);
    log_queue_stop(20000);
    assert_string_equal(take(), "the last one\n");
    assert_false(log_queue_put("late\n", 5, false));
    assert_true(log_queue_start());
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_line_waits_for_others), CASE(a_warning_does_not),        CASE(one_write_for_what_has_come),
        CASE(much_does_not_wait),      CASE(all_is_written_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
