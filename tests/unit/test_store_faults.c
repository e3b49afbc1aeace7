/*
 * Tests of store/writer.c under failing disks and full maps, and of the order of sync, raises and results.
 *
 * LMDB's system calls are taken over here: the program's own fdatasync, pwrite and writev come before libc's.
 */
#include "tests/unit/store_fixture.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static atomic_int syncs;           /* that succeeded */
static atomic_int fail_syncs;      /* how many are to fail */
static atomic_int fail_writes;     /* page writes that are to fail, with ENOSPC */
static atomic_int fail_root_write; /* root page writes that are to fail, with EIO */

static bool take_one(atomic_int *count)
{
    int is = atomic_load(count);
    while (is > 0 && !atomic_compare_exchange_weak(count, &is, is - 1))
        continue;
    return is > 0;
}

int fdatasync(int fd)
{
    if (take_one(&fail_syncs)) {
        errno = EIO;
        return -1;
    }
    int rc = (int)syscall(SYS_fdatasync, fd);
    atomic_fetch_add(&syncs, 1);
    return rc;
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t offset)
{
    bool root = offset < 8192; /* the two root pages */
    if (root && take_one(&fail_root_write)) {
        errno = EIO;
        return -1;
    }
    if (!root && take_one(&fail_writes)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, data, len, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    if (take_one(&fail_writes)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_writev, fd, parts, count);
}

static int reset_faults(void **state)
{
    atomic_store(&fail_syncs, 0);
    atomic_store(&fail_writes, 0);
    atomic_store(&fail_root_write, 0);
    return fixture_close(state);
}

static bool becomes_writable(struct store *store)
{
    struct timespec pause = {0, 10000000};
    for (int i = 0; i < 3000 && !health(store).writable; i++)
        nanosleep(&pause, NULL);
    return health(store).writable;
}

/* Failing commits. */

static void test_failed_sync(void **state)
{
    struct fixture *fx = *state;
    (void)admit(fx->store, "k", 42);
    assert_true(health(fx->store).writable);
    atomic_store(&fail_syncs, 1000000);
    struct store_op op = admit_effect(fx->store, "k", 43);
    assert_int_equal(op.error, STORE_IO);
    assert_int_equal(op.verdict, 0);
    assert_int_equal(op.effect_id, 0);
    assert_int_equal(op.highest, 0);
    op = admit(fx->store, "k", 41);
    assert_int_equal(op.error, STORE_IO);
    assert_int_equal(op.audit_id, 0);
    assert_int_equal(fence_of(fx->store, "k"), 42);
    assert_false(health(fx->store).writable);
    assert_non_null(health(fx->store).reason);
    assert_true(noticed(fx, "write failed"));
    struct timespec pause = {0, 50000000};
    for (int i = 0; i < 60; i++) { /* three ticks */
        nanosleep(&pause, NULL);
        assert_false(health(fx->store).writable); /* no call came, and still it is known to fail */
    }
    atomic_store(&fail_syncs, 0);
    assert_true(becomes_writable(fx->store)); /* without a call that would try */
    assert_true(noticed(fx, "works again"));
    assert_null(health(fx->store).reason);
    assert_int_equal(admit(fx->store, "k", 43).verdict, VERDICT_ACCEPTED);
    assert_int_equal(admit(fx->store, "k", 42).verdict, VERDICT_STALE);
    reopen(fx);
    assert_int_equal(fence_of(fx->store, "k"), 43);
    assert_int_equal(health(fx->store).in_doubt, 0);
}

static void test_full_disk(void **state)
{
    struct fixture *fx = *state;
    (void)admit(fx->store, "k", 1);
    atomic_store(&fail_writes, 1000000);
    assert_int_equal(admit(fx->store, "k", 2).error, STORE_FULL);
    assert_false(health(fx->store).writable);
    atomic_store(&fail_writes, 0);
    assert_true(becomes_writable(fx->store));
    assert_int_equal(fence_of(fx->store, "k"), 1);
    assert_int_equal(admit(fx->store, "k", 2).verdict, VERDICT_ACCEPTED);
}

/* The root page's write decides; when it fails nobody knows what is on the disk. */
static void test_failed_root_write(void **state)
{
    struct fixture *fx = *state;
    (void)admit(fx->store, "k", 42);
    uint64_t effect = admit_effect(fx->store, "k", 42).effect_id;
    atomic_store(&fail_root_write, 1);
    assert_int_equal(admit(fx->store, "k", 43).error, STORE_IO);
    for (uint64_t token = 42; token < 50; token++)
        assert_int_equal(admit(fx->store, "k", token).error, STORE_IO);
    struct audit_record outcome = {.kind = AUDIT_SENT, .effect_id = effect};
    assert_int_equal(record(fx->store, &outcome).error, STORE_IO); /* not kept: it could never be written */
    struct store_reader *reader = NULL;
    assert_int_equal(store_reader_open(fx->store, &reader), STORE_IO);
    assert_null(reader);
    assert_false(health(fx->store).writable);
    assert_non_null(strstr(health(fx->store).reason, "restart"));
    reopen(fx);
    assert_in_range(fence_of(fx->store, "k"), 42, 43);
    assert_int_equal(health(fx->store).in_doubt, 1);
    assert_int_equal(admit(fx->store, "k", 43).verdict, VERDICT_ACCEPTED);
}

/* Holds the writer in a `done` call, so that what is submitted meanwhile becomes one chunk. */
struct stopper {
    struct store_op op;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopped, go;
};

static void stop_here(struct store_op *op)
{
    struct stopper *stopper = (struct stopper *)op;
    pthread_mutex_lock(&stopper->lock);
    stopper->stopped = true;
    pthread_cond_broadcast(&stopper->changed);
    while (!stopper->go)
        pthread_cond_wait(&stopper->changed, &stopper->lock);
    stopper->stopped = false;
    pthread_cond_broadcast(&stopper->changed);
    pthread_mutex_unlock(&stopper->lock);
}

static void stop_writer(struct store *store, struct stopper *stopper)
{
    *stopper = (struct stopper){.op = {.kind = STORE_RECORD, .done = stop_here, .record = {.kind = AUDIT_RESET}}};
    pthread_mutex_init(&stopper->lock, NULL);
    pthread_cond_init(&stopper->changed, NULL);
    store_submit(store, &stopper->op);
    pthread_mutex_lock(&stopper->lock);
    while (!stopper->stopped)
        pthread_cond_wait(&stopper->changed, &stopper->lock);
    pthread_mutex_unlock(&stopper->lock);
}

static void free_writer(struct stopper *stopper)
{
    pthread_mutex_lock(&stopper->lock);
    stopper->go = true;
    pthread_cond_broadcast(&stopper->changed);
    while (stopper->stopped)
        pthread_cond_wait(&stopper->changed, &stopper->lock);
    pthread_mutex_unlock(&stopper->lock);
}

static void outcome_init(struct call *call, uint64_t effect_id)
{
    call_init(call);
    call->op.kind = STORE_RECORD;
    call->op.record = (struct audit_record){
        .kind = AUDIT_SENT, .effect_id = effect_id, .ns = text("default"), .key = text("k"), .token = 1};
}

/* The chunk fails once: the outcome goes through in the second transaction, the new work is refused. */
static void test_outcome_is_tried_alone(void **state)
{
    struct fixture *fx = *state;
    uint64_t effect = admit_effect(fx->store, "k", 1).effect_id;
    struct stopper stopper;
    struct call fresh, outcome;
    stop_writer(fx->store, &stopper);
    admit_init(&fresh, "k", 2);
    outcome_init(&outcome, effect);
    store_submit(fx->store, &outcome.op);
    store_submit(fx->store, &fresh.op);
    atomic_store(&fail_syncs, 1);
    free_writer(&stopper);
    assert_true(call_wait(&fresh, 30000));
    assert_true(call_wait(&outcome, 0)); /* in the same turn, not a second later */
    assert_int_equal(fresh.op.error, STORE_IO);
    assert_int_equal(fence_of(fx->store, "k"), 1);
    assert_int_equal(outcome.op.error, STORE_OK);
    assert_int_not_equal(outcome.op.audit_id, 0);
    reopen(fx);
    assert_int_equal(health(fx->store).in_doubt, 0);
}

/* The disk fails for a while: the outcome waits, and is there afterwards. */
static void test_outcome_waits_for_the_disk(void **state)
{
    struct fixture *fx = *state;
    uint64_t effect = admit_effect(fx->store, "k", 1).effect_id;
    struct call outcome;
    outcome_init(&outcome, effect);
    atomic_store(&fail_syncs, 1000000);
    store_submit(fx->store, &outcome.op);
    assert_int_equal(admit(fx->store, "k", 2).error, STORE_IO); /* so the outcome was tried by now */
    assert_int_equal(admit(fx->store, "k", 2).error, STORE_IO);
    assert_false(call_wait(&outcome, 50));
    atomic_store(&fail_syncs, 0);
    assert_true(call_wait(&outcome, 30000));
    assert_int_equal(outcome.op.error, STORE_OK);
    struct page page = all_records(fx->store);
    assert_int_equal(page.count, 1);
    assert_int_equal(page.item[0].effect_id, effect);
    reopen(fx);
    assert_int_equal(health(fx->store).in_doubt, 0);
}

static void add_up(void *arg, const struct store_unresolved *route)
{
    *(uint64_t *)arg += route->count;
}

static uint64_t unresolved(struct store *store)
{
    uint64_t total = 0;
    store_unresolved(store, add_up, &total);
    return total;
}

/* The disk fails for a while: an `unknown` outcome, and later its resolution, count when they are kept, and once. */
static void test_unresolved_counts_what_is_kept(void **state)
{
    struct fixture *fx = *state;
    struct call outcome, resolution;
    outcome_init(&outcome, admit_effect(fx->store, "k", 1).effect_id);
    outcome.op.record.kind = AUDIT_UNKNOWN;
    atomic_store(&fail_syncs, 1000000);
    store_submit(fx->store, &outcome.op);
    assert_int_equal(admit(fx->store, "k", 2).error, STORE_IO); /* so the outcome was tried by now */
    assert_int_equal(unresolved(fx->store), 0);
    atomic_store(&fail_syncs, 0);
    assert_true(call_wait(&outcome, 30000));
    assert_int_equal(unresolved(fx->store), 1);
    assert_true(becomes_writable(fx->store));
    call_init(&resolution);
    resolution.op.kind = STORE_RESOLVE;
    resolution.op.record = (struct audit_record){.effect_id = outcome.op.record.effect_id, .reason = text("sent")};
    atomic_store(&fail_syncs, 1000000);
    call_run(fx->store, &resolution);
    assert_int_equal(resolution.op.error, STORE_IO);
    assert_int_equal(unresolved(fx->store), 1);
    atomic_store(&fail_syncs, 0);
    assert_true(becomes_writable(fx->store));
    call_run(fx->store, &resolution);
    assert_int_equal(resolution.op.error, STORE_OK);
    assert_int_equal(unresolved(fx->store), 0);
}

static void test_close_with_a_failed_disk(void **state)
{
    struct fixture *fx = *state;
    uint64_t effect = admit_effect(fx->store, "k", 1).effect_id;
    struct call outcome;
    outcome_init(&outcome, effect);
    atomic_store(&fail_syncs, 1000000);
    store_submit(fx->store, &outcome.op);
    assert_false(call_wait(&outcome, 50));
    store_close(&fx->store);
    assert_int_equal(outcome.done, 1);
    assert_int_equal(outcome.op.error, STORE_IO);
    atomic_store(&fail_syncs, 0);
    open_store(fx);
    assert_int_equal(health(fx->store).in_doubt, 1); /* nothing is lost: it is in doubt now */
    assert_int_equal(all_records(fx->store).item[0].effect_id, effect);
}

/* Order. */

struct order {
    int done, raises, syncs_before;
    uint64_t last_raised;
    bool wrong;
};
static struct order order; /* writer's thread between submit and result */

static void order_raised(void *arg, struct slice ns, struct slice key, uint64_t token)
{
    (void)arg;
    order.wrong = order.wrong || order.done > 0 || atomic_load(&syncs) <= order.syncs_before;
    order.wrong = order.wrong || ns.len != 7 || key.len != 1 || token <= order.last_raised;
    order.last_raised = token;
    order.raises++;
}

static void order_done(struct store_op *op)
{
    order.wrong = order.wrong || order.raises != 2 || atomic_load(&syncs) <= order.syncs_before;
    order.done++;
    call_done(op);
}

static int setup_order(void **state)
{
    order = (struct order){0};
    if (fixture_folder(state) != 0)
        return -1;
    struct fixture *fx = *state;
    fx->options.raised = order_raised;
    open_store(fx);
    return 0;
}

/* One chunk: raise to 5, drop of 4, equal 5, raise to 7. Sync, then both raises, then the results in order. */
static void test_order_within_a_chunk(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t tokens[] = {5, 4, 5, 7};
    static const enum store_verdict verdicts[] = {VERDICT_ACCEPTED, VERDICT_STALE, VERDICT_ACCEPTED, VERDICT_ACCEPTED};
    static const uint64_t highest[] = {5, 5, 5, 7};
    struct stopper stopper;
    struct call calls[4];
    stop_writer(fx->store, &stopper);
    uint64_t commits = health(fx->store).commits;
    for (size_t i = 0; i < 4; i++) {
        admit_init(&calls[i], "k", tokens[i]);
        calls[i].op.done = order_done;
        store_submit(fx->store, &calls[i].op);
    }
    order.syncs_before = atomic_load(&syncs);
    free_writer(&stopper);
    assert_true(call_wait(&calls[3], 30000));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(calls[i].done, 1);
        assert_int_equal(calls[i].op.verdict, verdicts[i]);
        assert_int_equal(calls[i].op.highest, highest[i]);
    }
    assert_false(order.wrong);
    assert_int_equal(order.raises, 2);
    assert_int_equal(order.last_raised, 7);
    assert_int_equal(health(fx->store).commits, commits + 1);
    assert_int_equal(atomic_load(&syncs), order.syncs_before + 1);
}

static void test_no_raise_without_commit(void **state)
{
    struct fixture *fx = *state;
    atomic_store(&fail_syncs, 1);
    assert_int_equal(admit(fx->store, "k", 5).error, STORE_IO);
    assert_int_equal(order.raises, 0);
}

/* A full map. */

static int setup_small(void **state)
{
    if (fixture_folder(state) != 0)
        return -1;
    struct fixture *fx = *state;
    fx->options.max_size = MIB;
    return 0;
}

/* Effects until there is no room. Returns how many; their ids in `ids`. */
static size_t fill(struct store *store, uint64_t *ids, size_t cap)
{
    size_t count = 0;
    for (size_t i = 0; i < cap; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "key-%zu", (i * 7919) % 97); /* new ones are refused earlier */
        struct store_op op = admit_effect(store, key, i + 1);
        if (op.error == STORE_FULL)
            return count;
        assert_int_equal(op.error, STORE_OK);
        ids[count++] = op.effect_id;
    }
    fail_msg("never full");
    return 0;
}

static void test_full_map_keeps_room_for_outcomes(void **state)
{
    struct fixture *fx = *state;
    enum { CAP = 20000, IN_FLIGHT = 300 };
    uint64_t *ids = calloc(CAP, sizeof *ids);
    struct call *calls = calloc(IN_FLIGHT, sizeof *calls);
    assert_non_null(ids);
    assert_non_null(calls);
    open_store(fx);
    size_t count = fill(fx->store, ids, CAP);
    assert_in_range(count, IN_FLIGHT, CAP);
    assert_false(health(fx->store).writable);
    assert_string_equal(health(fx->store).reason, "the store is full");
    assert_true(health(fx->store).used_bytes <= health(fx->store).max_bytes);
    for (size_t i = 0; i < IN_FLIGHT; i++) { /* all at once, among new work */
        outcome_init(&calls[i], ids[count - 1 - i]);
        store_submit(fx->store, &calls[i].op);
        if (i % 50 == 0)
            (void)admit(fx->store, "more", i + 1);
    }
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        assert_true(call_wait(&calls[i], 30000));
        assert_int_equal(calls[i].op.error, STORE_OK);
    }
    store_close(&fx->store);
    fx->options.max_size = 8 * MIB; /* takes hold at the next start */
    open_store(fx);
    assert_int_equal(health(fx->store).in_doubt, count - IN_FLIGHT);
    assert_true(health(fx->store).writable);
    assert_int_equal(admit(fx->store, "more", 1000).error, STORE_OK);
    free(ids);
    free(calls);
}

static void fill_with_records(struct store *store, const struct audit_record *subject)
{
    enum { COUNT = 100 };
    struct call calls[COUNT];
    enum store_error error = STORE_OK;
    while (error == STORE_OK) {
        for (size_t i = 0; i < COUNT; i++) {
            call_init(&calls[i]);
            calls[i].op.kind = STORE_RECORD;
            calls[i].op.record = *subject;
            store_submit(store, &calls[i].op);
        }
        for (size_t i = 0; i < COUNT; i++) {
            assert_true(call_wait(&calls[i], 30000));
            error = calls[i].op.error;
        }
    }
    assert_int_equal(error, STORE_FULL);
}

enum { LEFT_OPEN = 1200 };

static void fill_and_crash(struct fixture *fx)
{
    struct audit_record subject = {.kind = AUDIT_DROPPED, .ns = text("default"), .key = text("k")};
    open_store(fx);
    for (size_t i = 0; i < LEFT_OPEN; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "key-%zu", i * 7919 % LEFT_OPEN);
        if (admit_effect(fx->store, key, 1).error != STORE_OK)
            _exit(1);
    }
    fill_with_records(fx->store, &subject);
    if (admit_effect(fx->store, "k", 1).error != STORE_FULL)
        _exit(2);
    _exit(0);
}

/* Leftovers of a crash are recorded out of the reserve that admissions left alone. */
static void test_full_map_at_start(void **state)
{
    struct fixture *fx = *state;
    in_child(fx, fill_and_crash);
    open_store(fx);
    uint64_t in_doubt = health(fx->store).in_doubt;
    assert_int_equal(in_doubt, LEFT_OPEN);
    reopen(fx);
    assert_int_equal(health(fx->store).in_doubt, in_doubt);
}

/* Full of old records; retention makes room without anybody's help. */
static void test_full_map_recovers(void **state)
{
    struct fixture *fx = *state;
    struct audit_record old = {.kind = AUDIT_SENT, .ns = text("default"), .key = text("k"), .time_ms = 1000};
    open_store(fx);
    assert_int_equal(admit(fx->store, "k", 1).error, STORE_OK);
    fill_with_records(fx->store, &old);
    assert_int_equal(admit(fx->store, "k", 2).error, STORE_FULL);
    assert_int_equal(fence_of(fx->store, "k"), 1);
    store_close(&fx->store);
    fx->options.retain_ms = 86400000;
    open_store(fx);
    assert_false(health(fx->store).writable);
    assert_true(becomes_writable(fx->store));
    assert_int_equal(admit(fx->store, "k", 2).verdict, VERDICT_ACCEPTED);
}

static void test_drop_oldest(void **state)
{
    struct fixture *fx = *state;
    fx->options.drop_oldest = true;
    open_store(fx);
    (void)admit(fx->store, "k", 1000000);
    enum { COUNT = 20000 };
    struct call *calls = calloc(COUNT, sizeof *calls);
    assert_non_null(calls);
    for (size_t i = 0; i < COUNT; i++) {
        admit_init(&calls[i], "k", i + 1);
        store_submit(fx->store, &calls[i].op);
    }
    uint64_t last = 0;
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(call_wait(&calls[i], 30000));
        assert_int_equal(calls[i].op.error, STORE_OK);
        assert_true(calls[i].op.audit_id > last);
        last = calls[i].op.audit_id;
    }
    free(calls);
    assert_true(health(fx->store).writable);
    struct page page =
        query(fx->store, &(struct audit_filter){.reason = text("audit-full"), .limit = 1, .descending = true});
    assert_int_equal(page.count, 1);
    assert_int_equal(page.item[0].kind, AUDIT_RESET);
    assert_string_equal(page.item[0].key, "");
    unsigned long removed = 0, first = 0, end = 0;
    assert_int_equal(
        sscanf(page.item[0].note, "removed the %lu oldest audit records, ids %lu to %lu", &removed, &first, &end), 3);
    struct page oldest = query(fx->store, &(struct audit_filter){.limit = 1});
    assert_int_equal(oldest.item[0].id, end + 1); /* just those went */
    assert_true(removed > 0 && first <= end);
    struct audit_filter by_key = {.ns = text("default"), .key = text("k"), .limit = 1};
    assert_true(query(fx->store, &by_key).item[0].id > end); /* the index went with them */
    assert_int_equal(fence_of(fx->store, "k"), 1000000);
    assert_true(noticed(fx, "oldest audit records make room"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_failed_sync, fixture_open, reset_faults),
        cmocka_unit_test_setup_teardown(test_full_disk, fixture_open, reset_faults),
        cmocka_unit_test_setup_teardown(test_failed_root_write, fixture_open, reset_faults),
        cmocka_unit_test_setup_teardown(test_outcome_is_tried_alone, fixture_open, reset_faults),
        cmocka_unit_test_setup_teardown(test_outcome_waits_for_the_disk, fixture_open, reset_faults),
        cmocka_unit_test_setup_teardown(test_unresolved_counts_what_is_kept, fixture_open, reset_faults),
        cmocka_unit_test_setup_teardown(test_close_with_a_failed_disk, fixture_open, reset_faults),
        cmocka_unit_test_setup_teardown(test_order_within_a_chunk, setup_order, reset_faults),
        cmocka_unit_test_setup_teardown(test_no_raise_without_commit, setup_order, reset_faults),
        cmocka_unit_test_setup_teardown(test_full_map_keeps_room_for_outcomes, setup_small, reset_faults),
        cmocka_unit_test_setup_teardown(test_full_map_at_start, setup_small, reset_faults),
        cmocka_unit_test_setup_teardown(test_full_map_recovers, setup_small, reset_faults),
        cmocka_unit_test_setup_teardown(test_drop_oldest, setup_small, reset_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
