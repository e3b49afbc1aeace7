/* tests/unit/test_histogram.c - bounds, sums, threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/histogram.h"

static void scales_ascend_and_say_what_they_are(void **state)
{
    const struct histogram_scale *const scales[] = {&histogram_time, &histogram_batch};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_in_range(scales[i]->count, 2, HISTOGRAM_BOUNDS_MAX);
        for (unsigned b = 0; b < scales[i]->count; b++) {
            double shown = strtod(scales[i]->bounds[b].label, NULL) * (double)scales[i]->unit;
            double off = shown - (double)scales[i]->bounds[b].upto;
            assert_true(off < 0.01 && off > -0.01);
            assert_true(b == 0 || scales[i]->bounds[b].upto > scales[i]->bounds[b - 1].upto);
        }
    }
    assert_int_equal(histogram_time.bounds[0].upto, 100);
    assert_int_equal(histogram_time.bounds[histogram_time.count - 1].upto, 60 * 1000 * 1000);
}

static void a_value_at_a_bound_is_within_it(void **state)
{
    struct histogram histogram = {0};
    struct histogram_reading read;
    (void)state;
    histogram_read(&histogram, &histogram_time, &read);
    assert_int_equal(read.count, 0);
    histogram_add(&histogram, &histogram_time, 0);
    histogram_add(&histogram, &histogram_time, 100);
    histogram_add(&histogram, &histogram_time, 101);
    histogram_add(&histogram, &histogram_time, 60000000);
    histogram_add(&histogram, &histogram_time, 60000001);
    histogram_read(&histogram, &histogram_time, &read);
    assert_int_equal(read.upto[0], 2);
    assert_int_equal(read.upto[1], 3);
    assert_int_equal(read.upto[16], 3);
    assert_int_equal(read.upto[17], 4);
    assert_int_equal(read.upto[18], 5);
    assert_int_equal(read.count, 5);
    assert_int_equal(read.sum, 120000202);
}

static void small_scales_use_their_own_last_cell(void **state)
{
    struct histogram histogram = {0};
    struct histogram_reading read;
    (void)state;
    histogram_add(&histogram, &histogram_batch, 1);
    histogram_add(&histogram, &histogram_batch, 1024);
    histogram_add(&histogram, &histogram_batch, 5000);
    histogram_read(&histogram, &histogram_batch, &read);
    assert_int_equal(read.upto[0], 1);
    assert_int_equal(read.upto[9], 1);
    assert_int_equal(read.upto[10], 2);
    assert_int_equal(read.upto[11], 3);
    assert_int_equal(read.count, 3);
    assert_int_equal(read.sum, 6025);
}

static struct histogram shared;

static void *add_many(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; i < 50000; i++)
        histogram_add(&shared, &histogram_time, i % 300);
    return NULL;
}

static void threads_lose_nothing(void **state)
{
    pthread_t threads[4];
    struct histogram_reading read;
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, NULL), 0);
    histogram_read(&shared, &histogram_time, &read); /* meanwhile: whatever it is, it ascends */
    for (unsigned cell = 1; cell <= histogram_time.count; cell++)
        assert_true(read.upto[cell] >= read.upto[cell - 1]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    uint64_t sum = 0, low = 0;
    for (uint64_t i = 0; i < 50000; i++) {
        sum += 4 * (i % 300);
        low += i % 300 <= 100 ? 4 : 0;
    }
    histogram_read(&shared, &histogram_time, &read);
    assert_int_equal(read.count, 200000);
    assert_int_equal(read.sum, sum);
    assert_int_equal(read.upto[0], low);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_ascend_and_say_what_they_are),
        cmocka_unit_test(a_value_at_a_bound_is_within_it),
        cmocka_unit_test(small_scales_use_their_own_last_cell),
        cmocka_unit_test(threads_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
