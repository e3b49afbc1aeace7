/*
 * Tests of store/tail.c when writing fails: the journal, data.mdb, or both; before, while and after changes are in the
 * journal that data.mdb does not have.
 *
 * The system calls are taken over here: the program's own fdatasync and pwrite come before libc's.
 */
#include "tests/unit/tail_case.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum victim { JOURNAL_SYNC, JOURNAL_WRITE, DATA_SYNC, DATA_WRITE, ROOT_WRITE, VICTIMS };
static atomic_int failures[VICTIMS]; /* how many are to come */

#define FOR_EVER 1000000

static bool is_due(enum victim victim)
{
    int is = atomic_load(&failures[victim]);
    while (is > 0 && !atomic_compare_exchange_weak(&failures[victim], &is, is - 1))
        continue;
    return is > 0;
}

static bool is_journal(int fd)
{
    char link[64], path[256];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    return len > 8 && memcmp(path + len - 8, "/journal", 8) == 0;
}

static int fails(int number)
{
    errno = number;
    return -1;
}

int fdatasync(int fd)
{
    if (is_due(is_journal(fd) ? JOURNAL_SYNC : DATA_SYNC))
        return fails(EIO);
    return (int)syscall(SYS_fdatasync, fd);
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t offset)
{
    bool root = offset < 8192;
    if (is_journal(fd) ? is_due(JOURNAL_WRITE) : root && is_due(ROOT_WRITE))
        return fails(EIO);
    if (!root && !is_journal(fd) && is_due(DATA_WRITE))
        return fails(ENOSPC);
    return syscall(SYS_pwrite64, fd, data, len, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    return is_due(DATA_WRITE) ? fails(ENOSPC) : syscall(SYS_writev, fd, parts, count);
}

static void heal(void)
{
    for (int i = 0; i < VICTIMS; i++)
        atomic_store(&failures[i], 0);
}

static int heal_and_close(void **state)
{
    heal();
    return tail_case_close(state);
}

/* The crash comes after the failure, when the store has gone on: what failed must not come back over it. */
static void go_on_and_crash(struct tail_case *at, uint64_t token)
{
    assert_true(noticed(&at->fx, "writing the journal failed"));
    assert_true(health(at->fx.store).writable);
    assert_int_equal(fence_of(at->fx.store, "one"), token);
    struct call call;
    for (uint64_t next = token + 1; next <= token + 3; next++)
        admit_two(at, next, NULL);
    admit_init(&call, "two", 0);
    call.op.kind = STORE_RESET;
    call_run(at->fx.store, &call);
    assert_int_equal(call.op.error, STORE_OK);
    uint64_t effect = admit_effect(at->fx.store, "three", 1).effect_id;
    admit_two(at, token + 4, take_copy);
    assert_int_equal(open_copy(at, false), STORE_OK);
    assert_int_equal(fence_of(at->copy.store, "one"), token + 4);
    assert_int_equal(fence_of(at->copy.store, "two"), token + 4);
    assert_int_equal(fence_of(at->copy.store, "three"), 1);
    assert_true(admit_effect(at->copy.store, "three", 1).effect_id > effect + 2);
    assert_sound(at->copy.store);
}

static void test_journal_fails_at_first(void **state)
{
    struct tail_case *at = *state;
    for (int write = 0; write < 2; write++) {
        atomic_store(&failures[write ? JOURNAL_WRITE : JOURNAL_SYNC], 1);
        admit_two(at, 10, NULL);
        go_on_and_crash(at, 10);
        store_close(&at->copy.store);
        at->fx.notices[0] = '\0';
        reopen(&at->fx);
        assert_int_equal(admit(at->fx.store, "one", 14).verdict, VERDICT_ACCEPTED);
        struct call call;
        for (int i = 0; i < 2; i++) { /* from the start again */
            admit_init(&call, i ? "one" : "two", 0);
            call.op.kind = STORE_RESET;
            call_run(at->fx.store, &call);
        }
    }
}

/* data.mdb was settled before, and nothing in the journal is newer: then the batch that failed. */
static void test_journal_fails_after_a_settling(void **state)
{
    struct tail_case *at = *state;
    admit_two(at, 1, NULL);
    free(contents(at->fx.store));
    atomic_store(&failures[JOURNAL_SYNC], 1);
    admit_two(at, 2, NULL);
    go_on_and_crash(at, 2);
}

/* The same with nothing but fences in it, which could be made again at any time: with the old ones. */
static void test_no_fence_goes_back(void **state)
{
    struct tail_case *at = *state;
    struct call one, two;
    for (uint64_t token = 1; token <= 4; token++) {
        admit_init(&one, "one", token);
        admit_init(&two, "two", token);
        atomic_store(&failures[JOURNAL_SYNC], token == 1 ? 1 : 0);
        run_chunk(at->fx.store, (struct call *[]){&one, &two}, 2, take_copy, at);
        assert_int_equal(two.op.verdict, VERDICT_ACCEPTED);
        assert_int_equal(open_copy(at, false), STORE_OK);
        assert_int_equal(fence_of(at->copy.store, "one"), token);
        assert_int_equal(fence_of(at->copy.store, "two"), token);
        store_close(&at->copy.store);
    }
}

struct two_calls {
    struct call one, two;
};

static void init_two(struct two_calls *calls, uint64_t token)
{
    admit_init(&calls->one, "one", token);
    admit_init(&calls->two, "two", token);
}

/* With changes in it that data.mdb does not have: they are settled, and the batch that failed with them, once. */
static void test_journal_fails_on_the_way(void **state)
{
    struct tail_case *at = *state;
    struct holder holder;
    struct two_calls first, second;
    init_two(&first, 1);
    init_two(&second, 2);
    run_chunk(at->fx.store, (struct call *[]){&first.one, &first.two}, 2, NULL, NULL);
    atomic_store(&failures[JOURNAL_SYNC], 1);
    hold_writer(at->fx.store, &holder);
    store_submit(at->fx.store, &second.one.op);
    store_submit(at->fx.store, &second.two.op);
    let_go(&holder);
    assert_true(call_wait(&second.two, 30000));
    assert_int_equal(second.two.op.error, STORE_OK);
    go_on_and_crash(at, 2);
}

/* Neither can be synced: what was refused is not there after a crash. */
static void test_both_fail(void **state)
{
    struct tail_case *at = *state;
    struct two_calls calls;
    admit_two(at, 1, NULL);
    atomic_store(&failures[JOURNAL_SYNC], FOR_EVER);
    atomic_store(&failures[DATA_SYNC], FOR_EVER);
    init_two(&calls, 2);
    run_chunk(at->fx.store, (struct call *[]){&calls.one, &calls.two}, 2, take_copy, at);
    assert_int_equal(calls.one.op.error, STORE_IO);
    assert_int_equal(calls.two.op.error, STORE_IO);
    heal();
    assert_int_equal(open_copy(at, false), STORE_OK);
    assert_int_equal(fence_of(at->copy.store, "one"), 1);
    assert_int_equal(fence_of(at->copy.store, "two"), 1);
    assert_int_equal(health(at->copy.store).in_doubt, 2);
    assert_sound(at->copy.store);
}

/* data.mdb can't be written: what was told stands, nothing new is decided, and when it can be again all goes on. */
static void settling_fails(struct tail_case *at, enum victim victim)
{
    struct store_reader *reader;
    struct fence fence;
    struct two_calls calls;
    assert_int_equal(store_reader_open(at->fx.store, &reader), STORE_OK);
    init_two(&calls, 1);
    run_chunk(at->fx.store, (struct call *[]){&calls.one, &calls.two}, 2, NULL, NULL);
    atomic_store(&failures[victim], FOR_EVER);
    init_two(&calls, 2);
    run_chunk(at->fx.store, (struct call *[]){&calls.one, &calls.two}, 2, NULL, NULL);
    free(contents(at->fx.store)); /* tries to settle */
    assert_false(health(at->fx.store).writable);
    bool told = calls.one.op.error == STORE_OK; /* else the settling came before it */
    uint64_t highest = told ? 2 : 1;
    assert_int_equal(store_fence_get(reader, text("default"), text("one"), &fence), STORE_OK);
    assert_int_equal(fence.token, highest);
    init_two(&calls, 3);
    run_chunk(at->fx.store, (struct call *[]){&calls.one, &calls.two}, 2, take_copy, at);
    assert_int_not_equal(calls.one.op.error, STORE_OK);
    assert_int_equal(calls.one.op.verdict, 0);
    assert_int_equal(store_fence_get(reader, text("default"), text("one"), &fence), STORE_OK);
    assert_int_equal(fence.token, highest);
    store_reader_close(&reader);
    heal();
    assert_int_equal(open_copy(at, false), STORE_OK); /* killed meanwhile */
    assert_int_equal(fence_of(at->copy.store, "one"), highest);
    assert_sound(at->copy.store);
    store_close(&at->copy.store);
}

static bool becomes_writable(struct store *store)
{
    struct timespec pause = {0, 10000000};
    for (int i = 0; i < 3000 && !health(store).writable; i++)
        nanosleep(&pause, NULL);
    return health(store).writable;
}

static void settles_again(struct tail_case *at)
{
    assert_true(becomes_writable(at->fx.store));
    admit_two(at, 5, take_copy);
    assert_int_equal(open_copy(at, false), STORE_OK);
    assert_int_equal(fence_of(at->copy.store, "one"), 5);
    assert_sound(at->copy.store);
    assert_sound(at->fx.store);
}

static void test_data_sync_fails(void **state)
{
    settling_fails(*state, DATA_SYNC);
    settles_again(*state);
}

static void test_data_disk_is_full(void **state)
{
    settling_fails(*state, DATA_WRITE);
    settles_again(*state);
}

/* The engine gives up for good; the journal has it all, and the next start, whichever root page it finds. */
static void test_root_write_fails(void **state)
{
    struct tail_case *at = *state;
    struct two_calls calls;
    admit_two(at, 1, NULL);
    atomic_store(&failures[ROOT_WRITE], 1);
    init_two(&calls, 2);
    run_chunk(at->fx.store, (struct call *[]){&calls.one, &calls.two}, 2, NULL, NULL);
    uint64_t least = calls.one.op.error == STORE_OK ? 2 : 1;
    struct timespec pause = {0, 10000000};
    for (int i = 0; i < 300 && health(at->fx.store).writable; i++)
        nanosleep(&pause, NULL);
    assert_false(health(at->fx.store).writable);
    init_two(&calls, 3);
    run_chunk(at->fx.store, (struct call *[]){&calls.one, &calls.two}, 2, take_copy, at);
    assert_int_equal(calls.one.op.error, STORE_IO);
    assert_int_equal(open_copy(at, false), STORE_OK);
    assert_in_range(fence_of(at->copy.store, "one"), least, 2);
    assert_sound(at->copy.store);
    store_close(&at->copy.store);
    reopen(&at->fx);
    assert_in_range(fence_of(at->fx.store, "one"), least, 2);
    assert_sound(at->fx.store);
}

/* An outcome that comes while data.mdb can't be written waits, and is there then, once. */
static void test_an_outcome_waits(void **state)
{
    struct tail_case *at = *state;
    uint64_t effect = admit_effect(at->fx.store, "one", 1).effect_id;
    struct call outcome;
    admit_two(at, 2, NULL);
    atomic_store(&failures[DATA_SYNC], FOR_EVER);
    free(contents(at->fx.store));
    call_init(&outcome);
    outcome.op.kind = STORE_RECORD;
    outcome.op.record = (struct audit_record){.kind = AUDIT_SENT, .effect_id = effect};
    store_submit(at->fx.store, &outcome.op);
    assert_false(call_wait(&outcome, 1500));
    heal();
    assert_true(call_wait(&outcome, 30000));
    assert_int_equal(outcome.op.error, STORE_OK);
    assert_int_equal(all_records(at->fx.store).count, 1);
    reopen(&at->fx);
    assert_int_equal(health(at->fx.store).in_doubt, 2);
}

static void test_close_with_a_failing_disk(void **state)
{
    struct tail_case *at = *state;
    admit_two(at, 7, NULL);
    atomic_store(&failures[DATA_SYNC], FOR_EVER);
    admit_two(at, 8, NULL);
    store_close(&at->fx.store);
    heal();
    open_store(&at->fx);
    assert_int_equal(fence_of(at->fx.store, "one"), 8);
    assert_int_equal(fence_of(at->fx.store, "two"), 8);
    assert_int_equal(health(at->fx.store).in_doubt, 4);
    assert_sound(at->fx.store);
}

/* No journal can be made: all goes on without. */
static void test_no_journal_can_be_made(void **state)
{
    struct tail_case *at = *state;
    char path[128];
    path_in(path, at->fx.path, JOURNAL_NAME);
    assert_int_equal(mkdir(path, 0700), 0);
    open_store(&at->fx);
    assert_true(noticed(&at->fx, "cannot make a journal"));
    admit_two(at, 3, NULL);
    reopen(&at->fx);
    assert_int_equal(fence_of(at->fx.store, "one"), 3);
    store_close(&at->fx.store);
    assert_int_equal(rmdir(path), 0);
    atomic_store(&failures[JOURNAL_WRITE], 1);
    at->fx.notices[0] = '\0';
    open_store(&at->fx);
    assert_true(noticed(&at->fx, "cannot make a journal"));
    admit_two(at, 4, NULL);
    reopen(&at->fx);
    assert_int_equal(fence_of(at->fx.store, "one"), 4);
}

/* Somebody removes it under a gateway: that is told, data.mdb does without, and so does a start after a kill. */
static void test_journal_is_removed(void **state)
{
    struct tail_case *at = *state;
    admit_two(at, 1, NULL);
    remove_from(at->fx.path, JOURNAL_NAME);
    struct timespec pause = {0, 10000000};
    for (int i = 0; i < 500 && !noticed(&at->fx, "removed or replaced"); i++)
        nanosleep(&pause, NULL);
    assert_true(noticed(&at->fx, "removed or replaced"));
    admit_two(at, 2, NULL);
    admit_two(at, 3, NULL);
    copy_file(at->fx.path, at->crashed, "data.mdb");
    assert_int_equal(open_copy(at, false), STORE_OK);
    assert_int_equal(fence_of(at->copy.store, "one"), 3);
    reopen(&at->fx);
    assert_int_equal(fence_of(at->fx.store, "one"), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_journal_fails_at_first, tail_case_open, heal_and_close),
        cmocka_unit_test_setup_teardown(test_journal_fails_after_a_settling, tail_case_open, heal_and_close),
        cmocka_unit_test_setup_teardown(test_no_fence_goes_back, tail_case_open, heal_and_close),
        cmocka_unit_test_setup_teardown(test_journal_fails_on_the_way, tail_case_open, heal_and_close),
        cmocka_unit_test_setup_teardown(test_both_fail, tail_case_open, heal_and_close),
        cmocka_unit_test_setup_teardown(test_data_sync_fails, tail_case_open, heal_and_close),
        cmocka_unit_test_setup_teardown(test_data_disk_is_full, tail_case_open, heal_and_close),
        cmocka_unit_test_setup_teardown(test_root_write_fails, tail_case_open, heal_and_close),
        cmocka_unit_test_setup_teardown(test_an_outcome_waits, tail_case_open, heal_and_close),
        cmocka_unit_test_setup_teardown(test_close_with_a_failing_disk, tail_case_open, heal_and_close),
        cmocka_unit_test_setup_teardown(test_no_journal_can_be_made, tail_case_folder, heal_and_close),
        cmocka_unit_test_setup_teardown(test_journal_is_removed, tail_case_open, heal_and_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
