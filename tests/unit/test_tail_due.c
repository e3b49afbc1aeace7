/* Tests of tail_due() in store/tail.c: when data.mdb is settled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/writer_int.h"

struct fixture {
    char folder[64];
    struct writer w;
};

static int make(void **state)
{
    struct fixture *fx = calloc(1, sizeof *fx);
    if (fx == NULL)
        return -1;
    (void)snprintf(fx->folder, sizeof fx->folder, "/tmp/tail-due-XXXXXX");
    if (mkdtemp(fx->folder) == NULL || pthread_mutex_init(&fx->w.queue_lock, NULL) != 0 ||
        journal_make(fx->folder, &fx->w.tail.journal, &fx->w.tail.id) != STORE_OK)
        return -1;
    fx->w.tail.held = true;
    fx->w.tail.room = SIZE_MAX;
    fx->w.tail.since_ms = 10000;
    *state = fx;
    return 0;
}

static int drop(void **state)
{
    struct fixture *fx = *state;
    journal_remove(fx->w.tail.journal);
    journal_close(&fx->w.tail.journal);
    pthread_mutex_destroy(&fx->w.queue_lock);
    int failed = rmdir(fx->folder);
    free(fx);
    return failed;
}

/* When it is due, as seen right after the last batch was kept. */
static uint64_t due_after(struct writer *w, uint64_t kept_ms)
{
    uint64_t until_ms = UINT64_MAX;
    w->tail.kept_ms = kept_ms;
    if (tail_due(w, kept_ms, &until_ms))
        return kept_ms;
    assert_true(until_ms > kept_ms);
    uint64_t at = until_ms;
    assert_false(tail_due(w, at - 1, &until_ms));
    assert_true(tail_due(w, at, &until_ms));
    return at;
}

static void test_nothing_more_comes(void **state)
{
    struct fixture *fx = *state;
    assert_int_equal(due_after(&fx->w, 10000), 10050);
    assert_int_equal(due_after(&fx->w, 10040), 10050);
}

/* Those who had their answers ask again a moment later: the queue is empty, and nobody is idle. */
static void test_batch_after_batch(void **state)
{
    struct fixture *fx = *state;
    for (uint64_t at = 10046; at <= 10245; at++)
        assert_int_equal(due_after(&fx->w, at), at + 5 < 10250 ? at + 5 : 10250);
    assert_int_equal(due_after(&fx->w, 10249), 10250);
    assert_int_equal(due_after(&fx->w, 10300), 10300);
}

static void test_something_waits(void **state)
{
    struct fixture *fx = *state;
    struct store_op op = {0};
    fx->w.queue = &op;
    assert_int_equal(due_after(&fx->w, 10000), 10250);
    assert_int_equal(due_after(&fx->w, 10249), 10250);
}

static void test_somebody_asks(void **state)
{
    struct fixture *fx = *state;
    fx->w.settle_asked = true;
    assert_int_equal(due_after(&fx->w, 10001), 10001);
}

static void test_nothing_is_held(void **state)
{
    struct fixture *fx = *state;
    uint64_t until_ms = 7;
    fx->w.tail.held = false;
    assert_false(tail_due(&fx->w, 20000, &until_ms));
    assert_int_equal(until_ms, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_more_comes, make, drop),
        cmocka_unit_test_setup_teardown(test_batch_after_batch, make, drop),
        cmocka_unit_test_setup_teardown(test_something_waits, make, drop),
        cmocka_unit_test_setup_teardown(test_somebody_asks, make, drop),
        cmocka_unit_test_setup_teardown(test_nothing_is_held, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
