/* Tests of the ring of rejected records: it stays within its room, and nothing else makes room for it. */
#include "tests/unit/store_fixture.h"

enum { GROUP = 100, GROUPS = 100 };

static enum store_error write_group(struct store *store)
{
    static unsigned number;
    static char path[1024];
    struct call calls[GROUP];
    char keys[GROUP][32];
    enum store_error error = STORE_OK;
    memset(path, 'p', sizeof path);
    for (size_t i = 0; i < GROUP; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "key-%u", number++ * 7919 % 100003);
        call_init(&calls[i]);
        calls[i].op.kind = STORE_RECORD;
        calls[i].op.record = (struct audit_record){.kind = AUDIT_REJECTED,
                                                   .reason = text("malformed-token"),
                                                   .ns = text("default"),
                                                   .key = text(keys[i]),
                                                   .path = {path, sizeof path}};
        store_submit(store, &calls[i].op);
    }
    for (size_t i = 0; i < GROUP; i++) {
        assert_true(call_wait(&calls[i], 30000));
        if (calls[i].op.error != STORE_OK)
            error = calls[i].op.error;
    }
    return error;
}

struct tally {
    uint64_t last, rejected, others;
    bool ordered;
};

static bool count(void *arg, const struct audit_record *record)
{
    struct tally *tally = arg;
    tally->ordered = tally->ordered && record->id > tally->last;
    tally->last = record->id;
    if (record->kind == AUDIT_REJECTED)
        tally->rejected++;
    else
        tally->others++;
    return true;
}

static struct tally read_all(struct store *store, struct audit_filter filter)
{
    struct store_reader *reader;
    struct tally tally = {.ordered = true};
    uint64_t next = 0;
    filter.limit = 1000;
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    do {
        filter.after = next;
        assert_int_equal(store_audit_query(reader, &filter, count, &tally, &next), STORE_OK);
    } while (next != 0);
    store_reader_close(&reader);
    return tally;
}

static void verify(struct store *store)
{
    struct store_contents contents;
    struct store_checker checker = {0};
    uint64_t findings;
    assert_int_equal(store_verify(store, &checker, &contents, &findings), STORE_OK);
    assert_int_equal(findings, 0);
}

static void drop_one(struct store *store)
{
    struct audit_record dropped = {.kind = AUDIT_DROPPED, .ns = text("default"), .key = text("known")};
    assert_int_equal(record(store, &dropped).error, STORE_OK);
}

static enum store_error admit_key(struct store *store, const char *key)
{
    struct call call;
    admit_init(&call, key, 7);
    call.op.admit.equal_allowed = true;
    call_run(store, &call);
    return call.op.error;
}

/* Several times the store's size of what needs no token. */
static void test_flood(void **state)
{
    struct fixture *fx = *state;
    assert_int_equal(admit_key(fx->store, "known"), STORE_OK);
    for (int group = 0; group < GROUPS; group++) {
        assert_int_equal(write_group(fx->store), STORE_OK);
        drop_one(fx->store);
    }
    assert_int_equal(admit_key(fx->store, "known"), STORE_OK);
    assert_int_equal(admit_key(fx->store, "new"), STORE_OK);
    assert_true(store_writable(fx->store));
    assert_true(noticed(fx, "rejected records make room"));
    struct tally all = read_all(fx->store, (struct audit_filter){0});
    assert_true(all.ordered);
    assert_int_equal(all.others, GROUPS);
    assert_true(all.rejected > 100 && all.rejected < 1000); /* an eighth of 4 MiB in records above 1 KiB */
    assert_int_equal(read_all(fx->store, (struct audit_filter){.kind = AUDIT_REJECTED}).rejected, all.rejected);
    struct tally key = read_all(fx->store, (struct audit_filter){.ns = text("default"), .key = text("known")});
    assert_int_equal(key.others, GROUPS);
    verify(fx->store);
    reopen(fx);
    assert_int_equal(read_all(fx->store, (struct audit_filter){0}).rejected, all.rejected);
    verify(fx->store);
}

static uint64_t rejected_now(struct store *store)
{
    return read_all(store, (struct audit_filter){.kind = AUDIT_REJECTED}).rejected;
}

/* A key's records and those of a time are merged out of both tables, in order. */
static void test_merged(void **state)
{
    struct fixture *fx = *state;
    struct audit_record rejected = {
        .kind = AUDIT_REJECTED, .ns = text("default"), .key = text("known"), .time_ms = 5000};
    for (int i = 0; i < 2000; i++) {
        rejected.time_ms = i == 700 ? 9000 : 5000;
        assert_int_equal(record(fx->store, &rejected).error, STORE_OK);
        if (i % 100 == 0)
            drop_one(fx->store);
    }
    const struct audit_filter by_key = {.ns = text("default"), .key = text("known")}, any = {.key = text("known")},
                              by_time = {.since_ms = 8000, .until_ms = 10000};
    struct tally one = read_all(fx->store, by_key), merged = read_all(fx->store, any);
    assert_true(one.ordered && merged.ordered);
    assert_int_equal(one.rejected, 2000);
    assert_int_equal(one.others, 20);
    assert_int_equal(merged.rejected, 2000);
    assert_int_equal(merged.others, 20);
    assert_int_equal(read_all(fx->store, by_time).rejected, 1); /* a whole block is none of those passed over */
}

/* Less room, and an age: both take hold in a store that runs. */
static void test_settings(void **state)
{
    struct fixture *fx = *state;
    struct timespec pause = {0, 10000000};
    for (int group = 0; group < 3; group++)
        assert_int_equal(write_group(fx->store), STORE_OK);
    uint64_t before = rejected_now(fx->store);
    assert_int_equal(before, 3 * GROUP);
    store_retention(fx->store, 0, false, 64 << 10);
    for (int i = 0; i < 3000 && rejected_now(fx->store) > before / 3; i++)
        nanosleep(&pause, NULL);
    assert_true(rejected_now(fx->store) <= before / 3);
    store_retention(fx->store, 1, false, 64 << 10);
    for (int i = 0; i < 3000 && rejected_now(fx->store) > 0; i++)
        nanosleep(&pause, NULL);
    assert_int_equal(rejected_now(fx->store), 0);
    verify(fx->store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_flood, fixture_small, fixture_close),
        cmocka_unit_test_setup_teardown(test_merged, fixture_small, fixture_close),
        cmocka_unit_test_setup_teardown(test_settings, fixture_small, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
