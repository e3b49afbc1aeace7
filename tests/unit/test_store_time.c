/* Tests of store/block.c and of queries by time: what is passed over, and that nothing is hidden by it. */
#include "tests/unit/store_fixture.h"

#include <lmdb.h>

#include "store/apply.h"
#include "store/block.h"
#include "store/lmdb.h"
#include "store/record.h"

enum { COUNT = 20000 };

/* Ids are 1 to COUNT. The clock went back, and was wrong for a while, twice. */
static uint64_t time_of(uint64_t id)
{
    uint64_t time_ms = 1000000 + 10 * id;
    if (id > 7000)
        time_ms -= 20000;
    if (id > 9000 && id <= 9100)
        time_ms += 5000000;
    if (id > 15000 && id <= 15010)
        time_ms = 5;
    return time_ms;
}

static const char *key_of(uint64_t id)
{
    if (BLOCK_OF(id) != BLOCK_OF(id + 1) || BLOCK_OF(id) != BLOCK_OF(id - 1))
        return "edge"; /* the last of a block and the first */
    return id % 50 == 0 ? "rare" : "often";
}

static enum audit_kind kind_of(uint64_t id)
{
    return id % 7 == 0 ? AUDIT_DROPPED : AUDIT_SENT;
}

static void write_all(struct fixture *fx, uint64_t count)
{
    struct call *calls = calloc(count, sizeof *calls);
    assert_non_null(calls);
    for (uint64_t i = 0; i < count; i++) {
        call_init(&calls[i]);
        calls[i].op.kind = STORE_RECORD;
        calls[i].op.record.kind = kind_of(i + 1);
        calls[i].op.record.time_ms = time_of(i + 1);
        calls[i].op.record.ns = text("default");
        calls[i].op.record.key = text(key_of(i + 1));
        store_submit(fx->store, &calls[i].op);
    }
    assert_true(call_wait(&calls[count - 1], 60000));
    free(calls);
}

static int setup_all(void **state)
{
    if (fixture_open(state) != 0)
        return -1;
    write_all(*state, COUNT);
    return 0;
}

/* Ids in the order of a query, against the plainest reading of its filter. */
struct check {
    const struct audit_filter *filter;
    uint64_t at; /* the last id that was looked at, here */
    size_t seen;
};

static bool wanted(const struct audit_filter *filter, uint64_t id)
{
    uint64_t time_ms = time_of(id);
    bool in_time = time_ms >= filter->since_ms && (filter->until_ms == 0 || time_ms < filter->until_ms);
    bool key = filter->key.data == NULL || strcmp(filter->key.data, key_of(id)) == 0;
    return in_time && key && (filter->kind == 0 || filter->kind == kind_of(id));
}

static uint64_t step(const struct check *check)
{
    return check->filter->descending ? check->at - 1 : check->at + 1;
}

static bool take(void *arg, const struct audit_record *record)
{
    struct check *check = arg;
    do
        check->at = step(check);
    while (check->at >= 1 && check->at <= COUNT && !wanted(check->filter, check->at));
    assert_int_equal(record->id, check->at);
    assert_int_equal(record->time_ms, time_of(record->id));
    check->seen++;
    return true;
}

/* Returns how many pages it took. */
static size_t check_query(struct store *store, struct audit_filter filter)
{
    struct store_reader *reader;
    struct check check = {.filter = &filter, .at = filter.descending ? COUNT + 1 : 0};
    size_t pages = 0;
    uint64_t next = 0;
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    do {
        filter.after = next;
        assert_int_equal(store_audit_query(reader, &filter, take, &check, &next), STORE_OK);
        pages++;
    } while (next != 0);
    store_reader_close(&reader);
    for (check.at = step(&check); check.at >= 1 && check.at <= COUNT; check.at = step(&check))
        assert_false(wanted(&filter, check.at));
    return pages;
}

static void check_all_queries(struct store *store)
{
    static const uint64_t times[] = {0,       1,       5,       6,       1000010, 1051200, 1060000,   1070000,
                                     1100000, 1180000, 1179900, 6070010, 6071000, 9000000, UINT64_MAX};
    static const size_t bounds[][2] = {{SIZE_MAX, 0}, {70, 0}, {1000, 700}};
    static const char *const keys[] = {NULL, NULL, "rare", "often", "edge"};
    enum { TIMES = sizeof times / sizeof times[0] };
    size_t number = 0;
    for (size_t i = 0; i < TIMES * TIMES * 2; i++) {
        for (size_t form = 0; form < 5; form++) {
            const size_t *bound = bounds[number % 3];
            struct audit_filter filter = {.since_ms = times[i / 2 % TIMES],
                                          .until_ms = times[i / 2 / TIMES],
                                          .descending = i % 2 == 1,
                                          .limit = bound[0],
                                          .looks = bound[1],
                                          .kind = form % 2 == 1 ? AUDIT_DROPPED : 0};
            if (keys[form])
                filter.key = text(keys[form]);
            if (form == 2)
                filter.ns = text("default");
            if (++number % 7 == 0 || form == 4) /* that one is cheap */
                (void)check_query(store, filter);
        }
    }
}

static void test_nothing_is_hidden(void **state)
{
    struct fixture *fx = *state;
    check_all_queries(fx->store);
}

/* Going on behind a block, where its last id was the only one that the query came to. */
static void test_the_ends_of_a_block(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    const uint64_t first = UINT64_C(5) << BLOCK_SHIFT;
    struct audit_filter filter = {.key = text("edge"), .limit = 1, .since_ms = time_of(first), .after = first - 100};
    assert_int_equal(query(store, &filter).item[0].id, first);
    filter = (struct audit_filter){
        .key = text("edge"), .limit = 1, .until_ms = time_of(first), .after = first + 100, .descending = true};
    assert_int_equal(query(store, &filter).item[0].id, first - 1);
}

/* Twenty blocks: without passing over them these would take several pages. */
static void test_blocks_are_passed_over(void **state)
{
    struct fixture *fx = *state;
    struct audit_filter filter = {.since_ms = time_of(COUNT - 300), .limit = SIZE_MAX, .looks = 3000};
    for (int form = 0; form < 4; form++) {
        filter.descending = form % 2 == 1;
        if (form == 2) {
            filter.ns = text("default");
            filter.key = text("often");
        }
        /* The newest block, and the one in which the clock was wrong. */
        assert_int_equal(check_query(fx->store, filter), 1);
    }
    filter = (struct audit_filter){.until_ms = 6, .limit = SIZE_MAX, .looks = 1200};
    assert_true(check_query(fx->store, filter) <= 2);
    filter = (struct audit_filter){.since_ms = 9000000, .limit = SIZE_MAX, .looks = 2000};
    assert_int_equal(check_query(fx->store, filter), 1);
}

static size_t entries(const char *path)
{
    char why[256];
    struct db *db;
    struct db_txn txn;
    struct db_cursor cursor;
    size_t count = 0;
    assert_int_equal(db_open(path, 0, true, &db, why, sizeof why), STORE_OK);
    assert_int_equal(db_read_open(db, &txn), STORE_OK);
    db_read_begin(&txn);
    db_cursor_open(&txn, DB_AUDIT_TIME, &cursor);
    while (db_cursor_next(&cursor)) {
        struct block_times times;
        uint64_t block;
        assert_true(block_read(&cursor, &block, &times));
        for (uint64_t id = block << BLOCK_SHIFT; BLOCK_OF(id) == block; id++) {
            assert_true(id == 0 || (time_of(id) >= times.min_ms && time_of(id) <= times.max_ms));
        }
        count++;
    }
    db_cursor_close(&cursor);
    assert_int_equal(db_read_end(&txn), STORE_OK);
    db_read_close(&txn);
    db_close(&db);
    return count;
}

static void test_an_entry_for_every_block_that_ended(void **state)
{
    struct fixture *fx = *state;
    store_close(&fx->store);
    assert_int_equal(entries(fx->path), BLOCK_OF(COUNT + 1));
}

/* What `audit_time` is for a store from before: empty, or not there. */
static void drop_entries(struct fixture *fx, int table_too)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi table;
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, 8), 0);
    assert_int_equal(mdb_env_set_mapsize(env, 64 * MIB), 0);
    assert_int_equal(mdb_env_open(env, fx->path, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "audit_time", 0, &table), 0);
    assert_int_equal(mdb_drop(txn, table, table_too), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

static void test_a_store_from_before(void **state)
{
    struct fixture *fx = *state;
    char why[256];
    struct store *store;
    store_close(&fx->store);
    drop_entries(fx, 1);
    assert_int_equal(store_open_readonly(fx->path, &store, why, sizeof why), STORE_OK);
    check_all_queries(store);
    store_close(&store);
    open_store(fx); /* makes the table; the blocks that had ended stay without an entry */
    check_all_queries(fx->store);
    store_close(&fx->store);
    assert_int_equal(entries(fx->path), 0);
}

/* Some stay: they are from the future, or of the block that is half emptied. */
static void test_entries_go_with_their_records(void **state)
{
    struct fixture *fx = *state;
    struct buffer scratch = {0};
    struct batch batch;
    struct db *db;
    char why[256];
    store_close(&fx->store);
    assert_int_equal(db_open(fx->path, 64 * MIB, false, &db, why, sizeof why), STORE_OK);
    for (int step = 0; step < 2; step++) {
        static const size_t limits[] = {3000, COUNT};
        batch_begin(&batch, db, &scratch);
        batch.now_ms = 2000000; /* the records of the wrong clock are not due */
        assert_int_equal(batch_expire(&batch, 2000000, limits[step]), step == 0 ? 3000 : COUNT - 3000 - 100);
        assert_int_equal(batch_commit(&batch), STORE_OK);
        db_close(&db);
        assert_int_equal(entries(fx->path), step == 0 ? BLOCK_OF(COUNT + 1) - BLOCK_OF(3001) : 1);
        assert_int_equal(db_open(fx->path, 64 * MIB, false, &db, why, sizeof why), STORE_OK);
    }
    batch_begin(&batch, db, &scratch);
    assert_int_equal(batch_drop_oldest(&batch, 100), 100);
    assert_int_equal(batch_commit(&batch), STORE_OK);
    db_close(&db);
    assert_int_equal(entries(fx->path), 0);
    buffer_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_hidden, setup_all, fixture_close),
        cmocka_unit_test_setup_teardown(test_the_ends_of_a_block, setup_all, fixture_close),
        cmocka_unit_test_setup_teardown(test_blocks_are_passed_over, setup_all, fixture_close),
        cmocka_unit_test_setup_teardown(test_an_entry_for_every_block_that_ended, setup_all, fixture_close),
        cmocka_unit_test_setup_teardown(test_a_store_from_before, setup_all, fixture_close),
        cmocka_unit_test_setup_teardown(test_entries_go_with_their_records, setup_all, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
