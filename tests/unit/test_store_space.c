/*
 * Tests of store/writer_room.c over a long time, in short: a store is filled and emptied again and again, and takes as
 * much as at first in a file that does not grow.
 */
#include "tests/unit/store_fixture.h"

#include <sys/stat.h>

enum { ROUNDS = 10, GROUP = 50 };
#define AGE_MS 86400000 /* what retention takes is as old as the epoch */

static off_t file_size(const struct fixture *fx)
{
    char file[128];
    struct stat st;
    (void)snprintf(file, sizeof file, "%s/data.mdb", fx->path);
    assert_int_equal(stat(file, &st), 0);
    return st.st_size;
}

/* GROUP records at once, under many keys. Returns how many were taken. */
static size_t write_group(struct store *store, uint64_t time_ms, enum store_error *error)
{
    static uint64_t number;
    static char path[1500]; /* long ones, so that fewer fill it */
    memset(path, 'p', sizeof path);
    struct call calls[GROUP];
    char keys[GROUP][32];
    size_t taken = 0;
    for (size_t i = 0; i < GROUP; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "key-%u", (unsigned)(number++ * 7919 % 1009));
        call_init(&calls[i]);
        calls[i].op.kind = STORE_RECORD;
        calls[i].op.record = (struct audit_record){.kind = AUDIT_DROPPED,
                                                   .ns = text("default"),
                                                   .key = text(keys[i]),
                                                   .path = {path, sizeof path},
                                                   .time_ms = time_ms};
        store_submit(store, &calls[i].op);
    }
    *error = STORE_OK;
    for (size_t i = 0; i < GROUP; i++) {
        assert_true(call_wait(&calls[i], 30000));
        taken += calls[i].op.error == STORE_OK ? 1 : 0;
        if (calls[i].op.error != STORE_OK)
            *error = calls[i].op.error;
    }
    return taken;
}

static uint64_t records(struct store *store)
{
    struct store_contents contents;
    struct store_checker checker = {0};
    uint64_t findings;
    assert_int_equal(store_verify(store, &checker, &contents, &findings), STORE_OK);
    assert_int_equal(findings, 0);
    return contents.records;
}

/* Retention takes all that is old. Records of its own make room for it to ride on as soon as there is any. */
static void age_out(struct fixture *fx)
{
    struct timespec pause = {0, 10000000};
    enum store_error error;
    store_retention(fx->store, AGE_MS, false, 0);
    for (int i = 0; i < 3000 && records(fx->store) > GROUP; i++) {
        if (write_group(fx->store, 1000, &error) == 0)
            nanosleep(&pause, NULL);
    }
    store_retention(fx->store, 0, false, 0);
    assert_true(records(fx->store) <= GROUP);
}

/* `refuse`: full, aged, full, aged ... */
static void test_refuse(void **state)
{
    struct fixture *fx = *state;
    size_t first = 0;
    for (int round = 0; round < ROUNDS; round++) {
        enum store_error error = STORE_OK;
        size_t taken = 0;
        while (error == STORE_OK)
            taken += write_group(fx->store, 1000, &error);
        assert_int_equal(error, STORE_FULL);
        first = round == 0 ? taken : first;
        assert_true(first > 200);
        if (taken < first * 8 / 10)
            fail_msg("round %d took %zu records, the first one %zu", round, taken, first);
        age_out(fx);
    }
    assert_true(file_size(fx) <= (off_t)MIB);
}

/* A few calls at a time, each of which takes room for its intent and gives some back with its end. A store that was
 * full must not have room again for one of them now and then: without anything removed it stays full. */
static void test_full_stays_full(void **state)
{
    struct fixture *fx = *state;
    enum { SIDE_BY_SIDE = 6 };
    static char path[1500];
    struct timespec pause = {0, 10000000};
    struct audit_record end = {
        .kind = AUDIT_SENT, .ns = text("default"), .key = text("k"), .path = {path, sizeof path}};
    struct call calls[SIDE_BY_SIDE];
    size_t taken = SIDE_BY_SIDE;
    memset(path, 'p', sizeof path);
    while (taken == SIDE_BY_SIDE) {
        taken = 0;
        for (size_t i = 0; i < SIDE_BY_SIDE; i++) {
            admit_init(&calls[i], "k", 1);
            calls[i].op.admit.intent = calls[i].op.admit.equal_allowed = true;
            calls[i].op.record.path = (struct slice){path, sizeof path};
            call_run(fx->store, &calls[i]);
            taken += calls[i].op.error == STORE_OK ? 1 : 0;
        }
        for (size_t i = 0; i < SIDE_BY_SIDE; i++) {
            end.effect_id = calls[i].op.effect_id;
            if (end.effect_id != 0)
                assert_int_equal(record(fx->store, &end).error, STORE_OK);
        }
    }
    for (int i = 0; i < 250; i++) { /* two ticks */
        assert_int_equal(admit(fx->store, "k", 2).error, STORE_FULL);
        nanosleep(&pause, NULL);
    }
    assert_false(health(fx->store).writable);
}

/* The same with a store that never comes near its end: the file must not creep towards it. */
static void test_half_full(void **state)
{
    struct fixture *fx = *state;
    off_t settled = 0;
    store_close(&fx->store);
    fx->options.max_size = 64 * MIB;
    open_store(fx);
    for (int round = 0; round < ROUNDS; round++) {
        enum store_error error = STORE_OK;
        for (int i = 0; i < 20 && error == STORE_OK; i++)
            (void)write_group(fx->store, 1000, &error);
        assert_int_equal(error, STORE_OK);
        age_out(fx);
        if (round == 3)
            settled = file_size(fx);
    }
    off_t size = file_size(fx);
    if (size > settled + settled / 10)
        fail_msg("%ld bytes after four rounds, %ld after %d", (long)settled, (long)size, ROUNDS);
}

/* `drop-oldest`: ten times as much as it holds, and nothing is refused. Room is made with the commits that are there
 * anyway. */
static void test_drop_oldest(void **state)
{
    struct fixture *fx = *state;
    enum store_error error = STORE_OK;
    size_t fits = 0, written = 0;
    while (error == STORE_OK)
        fits += write_group(fx->store, 0, &error);
    store_retention(fx->store, 0, true, 0);
    while (write_group(fx->store, 0, &error) == 0)
        continue; /* the last look at the room was before */
    uint64_t kept = records(fx->store);
    while (written < ROUNDS * fits) {
        written += write_group(fx->store, 0, &error);
        assert_int_equal(error, STORE_OK);
    }
    struct timespec pause = {0, 10000000};
    for (int i = 0; i < 3000 && !health(fx->store).writable; i++)
        nanosleep(&pause, NULL); /* told once a second */
    assert_true(health(fx->store).writable);
    assert_true(records(fx->store) > kept / 2);
    assert_true(file_size(fx) <= (off_t)MIB);
    assert_int_equal(
        query(fx->store, &(struct audit_filter){.reason = text("audit-full"), .limit = 1, .descending = true}).count,
        1);
}

/* One call after the other, each with its own commit: no commit is there for dropping alone. */
static void test_dropping_rides_along(void **state)
{
    struct fixture *fx = *state;
    enum { CALLS = 1500 };
    enum store_error error = STORE_OK;
    store_close(&fx->store);
    fx->options.max_size = 8 * MIB;
    fx->options.drop_oldest = true;
    open_store(fx);
    while (!noticed(fx, "oldest audit records make room")) {
        (void)write_group(fx->store, 0, &error);
        assert_int_equal(error, STORE_OK);
    }
    uint64_t commits = health(fx->store).commits;
    for (uint64_t i = 0; i < CALLS; i++)
        assert_int_equal(admit(fx->store, "k", i + 1).verdict, VERDICT_ACCEPTED);
    assert_in_range(health(fx->store).commits - commits, CALLS, CALLS + 1);
    assert_int_equal(fence_of(fx->store, "k"), CALLS);
}

static int set_up(void **state)
{
    if (fixture_folder(state) != 0)
        return -1;
    struct fixture *fx = *state;
    fx->options.max_size = MIB;
    open_store(fx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refuse, set_up, fixture_close),
        cmocka_unit_test_setup_teardown(test_full_stays_full, set_up, fixture_close),
        cmocka_unit_test_setup_teardown(test_half_full, set_up, fixture_close),
        cmocka_unit_test_setup_teardown(test_drop_oldest, set_up, fixture_close),
        cmocka_unit_test_setup_teardown(test_dropping_rides_along, set_up, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
