/* Tests of store/: admission, records, opening and closing, crash leftovers, retention. */
#include "tests/unit/store_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "store/folder.h"
#include "store/lmdb.h"
#include "store/record.h"

/* Admission. */

static void test_admit_table(void **state)
{
    struct fixture *fx = *state;
    static const struct {
        uint64_t fence, token;
        bool equal_allowed;
        uint64_t max_jump;
        enum store_verdict verdict;
        uint64_t after;
    } rows[] = {
        {0, 1, true, 0, VERDICT_ACCEPTED, 1},
        {0, UINT64_MAX, true, 0, VERDICT_ACCEPTED, UINT64_MAX},
        {0, 1700000000000, true, 10, VERDICT_ACCEPTED, 1700000000000}, /* a key's first token has no jump */
        {42, 43, true, 0, VERDICT_ACCEPTED, 43},
        {42, UINT64_MAX, true, 0, VERDICT_ACCEPTED, UINT64_MAX},
        {42, 42, true, 0, VERDICT_ACCEPTED, 42},
        {42, 42, false, 0, VERDICT_USED, 42},
        {42, 42, true, 1, VERDICT_ACCEPTED, 42},
        {42, 41, true, 0, VERDICT_STALE, 42},
        {42, 41, false, 5, VERDICT_STALE, 42},
        {42, 1, true, 0, VERDICT_STALE, 42},
        {9, 10, true, 0, VERDICT_ACCEPTED, 10},
        {10, 9, true, 0, VERDICT_STALE, 10},
        {42, 52, true, 10, VERDICT_ACCEPTED, 52},
        {42, 53, true, 10, VERDICT_IMPLAUSIBLE, 42},
        {42, UINT64_MAX, true, 10, VERDICT_IMPLAUSIBLE, 42},
        {UINT64_MAX, UINT64_MAX - 1, true, 10, VERDICT_STALE, UINT64_MAX},
        {((uint64_t)1 << 53) + 1, (uint64_t)1 << 53, true, 0, VERDICT_STALE, ((uint64_t)1 << 53) + 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "row-%zu", i);
        if (rows[i].fence)
            assert_int_equal(admit(fx->store, key, rows[i].fence).verdict, VERDICT_ACCEPTED);
        struct call call;
        admit_init(&call, key, rows[i].token);
        call.op.admit.equal_allowed = rows[i].equal_allowed;
        call.op.admit.max_jump = rows[i].max_jump;
        call_run(fx->store, &call);
        assert_int_equal(call.op.error, STORE_OK);
        assert_int_equal(call.op.verdict, rows[i].verdict);
        assert_true(call.op.highest == rows[i].after);
        assert_true(fence_of(fx->store, key) == rows[i].after);
        assert_int_equal(call.op.effect_id, 0);
        assert_int_equal(call.op.audit_id != 0, rows[i].verdict != VERDICT_ACCEPTED);
    }
}

static void test_bad_subjects_are_refused(void **state)
{
    struct fixture *fx = *state;
    struct call call;
    admit_init(&call, "k", 0);
    call_run(fx->store, &call);
    assert_int_equal(call.op.error, STORE_FORMAT);
    admit_init(&call, "k", 7);
    call.op.record.key = (struct slice){"a\0b", 3};
    call_run(fx->store, &call);
    assert_int_equal(call.op.error, STORE_FORMAT);
    admit_init(&call, "", 7);
    call_run(fx->store, &call);
    assert_int_equal(call.op.error, STORE_FORMAT);
    assert_int_equal(record(fx->store, &(struct audit_record){.note = text("no kind")}).error, STORE_FORMAT);
    assert_int_equal(all_records(fx->store).count, 0);
    assert_true(health(fx->store).writable);
}

static void test_drop_record(void **state)
{
    struct fixture *fx = *state;
    (void)admit(fx->store, "order-17", 42);
    struct store_op op = admit(fx->store, "order-17", 41);
    struct page page = all_records(fx->store);
    assert_int_equal(page.count, 1);
    const struct seen *seen = &page.item[0];
    assert_int_equal(seen->id, op.audit_id);
    assert_int_equal(seen->kind, AUDIT_DROPPED);
    assert_string_equal(seen->reason, "stale-token");
    assert_int_equal(seen->status, 412);
    assert_int_equal(seen->token, 41);
    assert_int_equal(seen->highest, 42);
    assert_string_equal(seen->key, "order-17");
    assert_string_equal(seen->route, "payments");
    assert_string_equal(seen->method, "POST");
    assert_string_equal(seen->path, "/v1/charges");
    assert_int_equal(seen->effect_id, 0);
    assert_false(seen->would_drop);
    assert_true(seen->time_ms > 1600000000000);
}

static void test_each_refusal_has_its_reason(void **state)
{
    struct fixture *fx = *state;
    (void)admit(fx->store, "k", 42);
    struct call call;
    admit_init(&call, "k", 42);
    call.op.admit.equal_allowed = false;
    call_run(fx->store, &call);
    admit_init(&call, "k", 50);
    call.op.admit.max_jump = 7;
    call_run(fx->store, &call);
    struct page page = all_records(fx->store);
    assert_int_equal(page.count, 2);
    assert_string_equal(page.item[0].reason, "token-used");
    assert_int_equal(page.item[0].status, 413);
    assert_string_equal(page.item[1].reason, "implausible-token");
    assert_int_equal(page.item[1].status, 422);
    assert_int_equal(page.item[1].token, 50);
    assert_int_equal(page.item[1].highest, 42);
}

/* A refused call with an intent leaves its marks in what a crash would show of it. */
static void test_observe(void **state)
{
    struct fixture *fx = *state;
    struct call call;
    admit_init(&call, "k", 42);
    call.op.admit.observe = true;
    call_run(fx->store, &call);
    assert_int_equal(call.op.verdict, VERDICT_ACCEPTED);
    assert_int_equal(fence_of(fx->store, "k"), 42);
    admit_init(&call, "k", 41);
    call.op.admit.observe = true;
    call_run(fx->store, &call);
    assert_int_equal(call.op.verdict, VERDICT_STALE);
    assert_int_equal(call.op.audit_id, 0);
    assert_int_equal(call.op.effect_id, 0);
    admit_init(&call, "k", 40);
    call.op.admit.observe = call.op.admit.intent = true;
    call_run(fx->store, &call);
    assert_int_equal(call.op.verdict, VERDICT_STALE);
    assert_int_equal(call.op.highest, 42);
    assert_int_equal(call.op.audit_id, 0);
    assert_int_not_equal(call.op.effect_id, 0);
    assert_int_equal(all_records(fx->store).count, 0);
    assert_int_equal(fence_of(fx->store, "k"), 42);
    uint64_t id = store_id(fx->store);
    reopen(fx);
    assert_int_equal(store_id(fx->store), id);
    struct page page = all_records(fx->store);
    assert_int_equal(page.count, 1);
    assert_int_equal(page.item[0].effect_id, call.op.effect_id);
    assert_true(page.item[0].would_drop);
    assert_int_equal(page.item[0].token, 40);
}

/* Effects and records. */

static void test_outcome_closes_its_effect(void **state)
{
    struct fixture *fx = *state;
    struct store_op first = admit_effect(fx->store, "k", 1);
    struct store_op second = admit_effect(fx->store, "k", 1); /* equal: nothing raised, an intent all the same */
    assert_int_not_equal(first.effect_id, 0);
    assert_true(second.effect_id > first.effect_id);
    struct audit_record outcome = {.kind = AUDIT_SENT,
                                   .effect_id = first.effect_id,
                                   .ns = text("default"),
                                   .key = text("k"),
                                   .token = 1,
                                   .time_ms = 1700000000000};
    struct store_op op = record(fx->store, &outcome);
    assert_int_equal(op.error, STORE_OK);
    assert_true(op.audit_id > second.effect_id);
    reopen(fx);
    assert_int_equal(health(fx->store).in_doubt, 1);
    struct page page = all_records(fx->store);
    assert_int_equal(page.count, 2);
    assert_int_equal(page.item[0].kind, AUDIT_SENT);
    assert_int_equal(page.item[0].time_ms, 1700000000000); /* a given time is kept */
    assert_int_equal(page.item[1].kind, AUDIT_UNKNOWN);
    assert_int_equal(page.item[1].effect_id, second.effect_id);
}

static void begin_effects_and_crash(struct fixture *fx)
{
    open_store(fx);
    (void)admit(fx->store, "k", 6);
    (void)admit_effect(fx->store, "k", 7);
    for (int i = 0; i < 600; i++) /* more than one commit's worth of leftovers */
        (void)admit_effect(fx->store, "many", 9);
    _exit(0);
}

static void test_crash_leftovers(void **state)
{
    struct fixture *fx = *state;
    in_child(fx, begin_effects_and_crash);
    for (int start = 0; start < 3; start++) {
        open_store(fx);
        assert_int_equal(fence_of(fx->store, "k"), 7);
        assert_int_equal(health(fx->store).in_doubt, 601);
        struct page page = query(fx->store, &(struct audit_filter){.key = text("k"), .limit = 10});
        assert_int_equal(page.count, 1); /* however often it starts */
        assert_int_equal(page.item[0].kind, AUDIT_UNKNOWN);
        assert_string_equal(page.item[0].reason, "gateway-crash");
        assert_string_equal(page.item[0].path, "/v1/charges");
        assert_string_equal(page.item[0].route, "payments");
        assert_int_equal(page.item[0].token, 7);
        assert_int_not_equal(page.item[0].effect_id, 0);
        assert_true(page.item[0].id > page.item[0].effect_id);
        page = query(fx->store, &(struct audit_filter){.reason = text("gateway-crash"), .limit = 255});
        assert_int_equal(page.count, 255);
        assert_int_equal(noticed(fx, "601 effects had no recorded outcome"), true);
        store_close(&fx->store);
    }
    open_store(fx);
    struct page page = query(fx->store, &(struct audit_filter){.key = text("k"), .limit = 10});
    struct audit_record resolution = {.kind = AUDIT_RESOLVED, .effect_id = page.item[0].effect_id};
    assert_int_equal(record(fx->store, &resolution).error, STORE_OK);
    assert_int_equal(health(fx->store).in_doubt, 600);
    reopen(fx);
    assert_int_equal(health(fx->store).in_doubt, 600);
}

static struct store_op turn(struct store *store, uint64_t effect_id, bool waits)
{
    struct call call;
    call_init(&call);
    call.op.kind = STORE_TURN;
    call.op.record.effect_id = effect_id;
    call.op.admit.waits = waits;
    call_run(store, &call);
    return call.op;
}

static struct store_op admit_waiting(struct store *store, const char *key, uint64_t token)
{
    struct call call;
    admit_init(&call, key, token);
    call.op.admit.intent = call.op.admit.waits = true;
    call_run(store, &call);
    return call.op;
}

static void wait_and_crash(struct fixture *fx)
{
    open_store(fx);
    (void)admit_waiting(fx->store, "waits", 7);
    uint64_t id = admit_waiting(fx->store, "started", 8).effect_id;
    assert_int_equal(turn(fx->store, id, false).error, STORE_OK);
    id = admit_effect(fx->store, "parked", 9).effect_id;
    assert_int_equal(turn(fx->store, id, true).error, STORE_OK);
    id = admit_waiting(fx->store, "ended", 10).effect_id;
    struct audit_record outcome = {.kind = AUDIT_DROPPED, .effect_id = id};
    assert_int_equal(record(fx->store, &outcome).error, STORE_OK);
    assert_int_equal(turn(fx->store, id, false).error, STORE_NOT_FOUND);
    _exit(0);
}

/* Only the one whose turn had come is in doubt. */
static void test_crash_while_waiting(void **state)
{
    static const char *const keys[] = {"waits", "parked"};
    struct fixture *fx = *state;
    in_child(fx, wait_and_crash);
    for (int start = 0; start < 2; start++) {
        open_store(fx);
        assert_int_equal(health(fx->store).in_doubt, 1);
        struct page page = all_records(fx->store);
        assert_int_equal(page.count, 4);
        page = query(fx->store, &(struct audit_filter){.key = text("started"), .limit = 10});
        assert_int_equal(page.count, 1);
        assert_int_equal(page.item[0].kind, AUDIT_UNKNOWN);
        assert_int_equal(turn(fx->store, page.item[0].effect_id, true).error, STORE_NOT_FOUND); /* it is in doubt */
        for (size_t i = 0; i < 2; i++) {
            page = query(fx->store, &(struct audit_filter){.key = text(keys[i]), .limit = 10});
            assert_int_equal(page.count, 1);
            assert_int_equal(page.item[0].kind, AUDIT_NOT_SENT);
            assert_string_equal(page.item[0].reason, "gateway-crash");
            assert_string_equal(page.item[0].path, "/v1/charges");
            assert_int_not_equal(page.item[0].effect_id, 0);
        }
        store_close(&fx->store);
    }
    open_store(fx);
}

/* An intent with damaged bytes must neither stop the start nor vanish. */
static void test_damaged_intent(void **state)
{
    struct fixture *fx = *state;
    uint64_t id = admit_effect(fx->store, "k", 1).effect_id;
    store_close(&fx->store);
    char why[256], key[8];
    struct db *db;
    struct db_txn txn;
    put_u64(key, id);
    assert_int_equal(db_open(fx->path, MIB, false, &db, why, sizeof why), STORE_OK);
    db_begin(db, &txn);
    db_put(&txn, DB_EFFECTS, (struct slice){key, 8}, (struct slice){"\0\x01\0\0", 4});
    assert_int_equal(db_commit(&txn), STORE_OK);
    db_close(&db);
    open_store(fx);
    struct page page = all_records(fx->store);
    assert_int_equal(page.count, 1);
    assert_int_equal(page.item[0].effect_id, id);
    assert_string_equal(page.item[0].reason, "gateway-crash");
    assert_string_equal(page.item[0].note, "the intent record could not be read");
    assert_int_equal(health(fx->store).in_doubt, 1);
}

static bool table_empty(const struct fixture *fx, enum db_table table)
{
    char why[256];
    struct db *db;
    struct db_txn txn;
    struct db_cursor cursor;
    assert_int_equal(db_open(fx->path, MIB, false, &db, why, sizeof why), STORE_OK);
    db_begin(db, &txn);
    db_cursor_open(&txn, table, &cursor);
    bool empty = !db_cursor_next(&cursor);
    db_cursor_close(&cursor);
    db_abort(&txn);
    db_close(&db);
    return empty;
}

/* Records that retention takes away must not make their ids free. */
static void test_retention_and_ids(void **state)
{
    struct fixture *fx = *state;
    struct audit_record old = {.kind = AUDIT_REJECTED, .ns = text("default"), .key = text("k"), .time_ms = 1000};
    uint64_t last = 0;
    for (int i = 0; i < 200; i++)
        last = record(fx->store, &old).audit_id;
    assert_int_equal(last, 200);
    store_close(&fx->store);
    fx->options.retain_ms = 86400000;
    open_store(fx);
    struct timespec pause = {0, 20000000};
    for (int i = 0; i < 500 && all_records(fx->store).count > 0; i++)
        nanosleep(&pause, NULL);
    assert_int_equal(all_records(fx->store).count, 0);
    struct audit_filter by_key = {.ns = text("default"), .key = text("k"), .limit = 10};
    assert_int_equal(query(fx->store, &by_key).count, 0);
    store_close(&fx->store);
    assert_true(table_empty(fx, DB_AUDIT_BY_KEY));
    open_store(fx);
    assert_int_equal(record(fx->store, &(struct audit_record){.kind = AUDIT_RESET}).audit_id, last + 1);
}

/* A record of a wrong clock must not hold up retention; a young one stays, behind it everything stays. */
static void test_retention_and_clock(void **state)
{
    struct fixture *fx = *state;
    static const uint64_t times[] = {(uint64_t)1 << 45, 1000, 0, 1000}; /* far future, old, now, old */
    for (size_t i = 0; i < 4; i++)
        (void)record(fx->store, &(struct audit_record){.kind = AUDIT_RESET, .time_ms = times[i]});
    store_close(&fx->store);
    fx->options.retain_ms = 86400000;
    open_store(fx);
    (void)record(fx->store, &(struct audit_record){.kind = AUDIT_SENT}); /* retention rides on it */
    struct page page = all_records(fx->store);
    assert_int_equal(page.count, 4);
    assert_int_equal(page.item[0].id, 1);
    assert_int_equal(page.item[1].id, 3);
}

/* Opening. */

static enum store_error try_open(const struct fixture *fx, const char *path, char why[256])
{
    struct store_options options = fx->options;
    struct store *store = NULL;
    options.path = path;
    why[0] = '\0';
    enum store_error error = store_open(&options, &store, why, 256);
    if (error == STORE_OK)
        store_close(&store);
    else
        assert_non_null(strstr(why, path));
    assert_null(store);
    return error;
}

static void open_in_child(struct fixture *fx)
{
    char why[256];
    if (try_open(fx, fx->path, why) != STORE_BUSY || !strstr(why, "in use by another process"))
        _exit(1);
}

static void test_one_owner(void **state)
{
    struct fixture *fx = *state;
    char why[256], other_name[80];
    struct store *second = NULL;
    assert_int_equal(try_open(fx, fx->path, why), STORE_BUSY);
    assert_int_equal(store_open_readonly(fx->path, &second, why, sizeof why), STORE_BUSY);
    (void)snprintf(other_name, sizeof other_name, "%s/../%s", fx->path, fx->path + 5);
    assert_int_equal(try_open(fx, other_name, why), STORE_BUSY);
    assert_int_equal(admit(fx->store, "k", 1).error, STORE_OK); /* and the first is none the worse */
    store_close(&fx->store);
    assert_int_equal(try_open(fx, fx->path, why), STORE_OK);
}

/* The lock must not be one that a fork shares, so the store is opened by the parent of another process. */
static void test_one_owner_across_processes(void **state)
{
    struct fixture *fx = *state;
    int ready[2], leave[2];
    char byte = 'x';
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(leave), 0);
    pid_t owner = fork();
    if (owner == 0) {
        open_store(fx);
        _exit(write(ready[1], &byte, 1) == 1 && read(leave[0], &byte, 1) == 1 ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    in_child(fx, open_in_child);
    assert_int_equal(write(leave[1], &byte, 1), 1);
    int status;
    assert_int_equal(waitpid(owner, &status, 0), owner);
    assert_int_equal(status, 0);
    char why[256];
    assert_int_equal(try_open(fx, fx->path, why), STORE_OK); /* the lock went with its owner */
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(leave[i]);
    }
}

static void test_makes_the_folder(void **state)
{
    struct fixture *fx = *state;
    char path[128], file[160], why[256];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/a/b", fx->path);
    assert_int_equal(try_open(fx, path, why), STORE_FORMAT);
    assert_non_null(strstr(why, "the folder above it"));
    (void)snprintf(path, sizeof path, "%s/a", fx->path);
    assert_int_not_equal(stat(path, &st), 0);
    assert_int_equal(try_open(fx, path, why), STORE_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    static const char *const files[] = {"data.mdb", "lock.mdb", "gateway.lock"};
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(file, sizeof file, "%s/%s", path, files[i]);
        assert_int_equal(stat(file, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(unlink(file), 0);
    }
    assert_int_equal(rmdir(path), 0);
}

static void write_file(const struct fixture *fx, const char *name, const char *bytes, size_t len)
{
    char file[128];
    (void)snprintf(file, sizeof file, "%s/%s", fx->path, name);
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    close(fd);
}

static void test_bad_folders(void **state)
{
    struct fixture *fx = *state;
    char why[256], path[128];
    struct store *store = NULL;
    assert_int_equal(try_open(fx, "/proc/no-store", why), STORE_IO); /* a place where nothing can be made */
    assert_int_equal(try_open(fx, "", why), STORE_IO);
    write_file(fx, "data.mdb", "not a store", 11);
    (void)snprintf(path, sizeof path, "%s/data.mdb/x", fx->path);
    assert_int_equal(try_open(fx, path, why), STORE_IO);
    assert_int_equal(try_open(fx, fx->path, why), STORE_FORMAT);
    assert_int_equal(store_open_readonly(fx->path, &store, why, sizeof why), STORE_FORMAT);
    assert_null(store);
    (void)snprintf(path, sizeof path, "%s/missing", fx->path);
    assert_int_equal(store_open_readonly(path, &store, why, sizeof why), STORE_NOT_FOUND);
    assert_non_null(strstr(why, "no store in this folder"));
    assert_int_equal(access(path, F_OK), -1);
}

static void test_empty_folder_readonly(void **state)
{
    struct fixture *fx = *state;
    char why[256], file[128];
    struct store *store = NULL;
    assert_int_equal(store_open_readonly(fx->path, &store, why, sizeof why), STORE_NOT_FOUND);
    assert_non_null(strstr(why, "no store in this folder"));
    (void)snprintf(file, sizeof file, "%s/data.mdb", fx->path);
    assert_int_equal(access(file, F_OK), -1);
}

static void set_format(const struct fixture *fx, uint64_t version)
{
    char why[256], value[8];
    struct db *db;
    struct db_txn txn;
    put_u64(value, version);
    assert_int_equal(db_open(fx->path, MIB, false, &db, why, sizeof why), STORE_OK);
    db_begin(db, &txn);
    db_put(&txn, DB_META, text("format"), (struct slice){value, sizeof value});
    assert_int_equal(db_commit(&txn), STORE_OK);
    db_close(&db);
}

static void test_unknown_format(void **state)
{
    struct fixture *fx = *state;
    char why[256];
    struct store *store = NULL;
    store_close(&fx->store);
    set_format(fx, 99);
    assert_int_equal(try_open(fx, fx->path, why), STORE_FORMAT);
    assert_non_null(strstr(why, "format version 99"));
    assert_int_equal(store_open_readonly(fx->path, &store, why, sizeof why), STORE_FORMAT);
    assert_null(store);
}

/* A journal that is not named must not be taken for none. */
static void test_format_of_a_journal_without_one(void **state)
{
    struct fixture *fx = *state;
    char why[256];
    struct store *store = NULL;
    store_close(&fx->store);
    set_format(fx, 3);
    assert_int_equal(try_open(fx, fx->path, why), STORE_FORMAT);
    assert_int_equal(store_open_readonly(fx->path, &store, why, sizeof why), STORE_FORMAT);
}

static void test_remote_file_systems(void **state)
{
    (void)state;
    assert_string_equal(folder_remote_type(0x6969), "NFS");
    assert_string_equal(folder_remote_type(0xff534d42), "CIFS");
    assert_null(folder_remote_type(0xef53));
    assert_null(folder_remote_type(0x01021994));
}

/* Closing. */

static void test_close_finishes_what_came_before(void **state)
{
    struct fixture *fx = *state;
    enum { COUNT = 3000 };
    struct call *calls = calloc(COUNT, sizeof *calls);
    assert_non_null(calls);
    for (size_t i = 0; i < COUNT; i++) {
        admit_init(&calls[i], "k", i + 1);
        store_submit(fx->store, &calls[i].op);
    }
    store_close(&fx->store);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(calls[i].done, 1);
        assert_int_equal(calls[i].op.error, STORE_OK);
        assert_int_equal(calls[i].op.verdict, VERDICT_ACCEPTED);
    }
    struct call late;
    admit_init(&late, "k", 1);
    store_submit(fx->store, &late.op);
    assert_int_equal(late.done, 1);
    assert_int_equal(late.op.error, STORE_CLOSED);
    free(calls);
    open_store(fx);
    assert_int_equal(fence_of(fx->store, "k"), COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_admit_table, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_bad_subjects_are_refused, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_drop_record, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_each_refusal_has_its_reason, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_observe, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_outcome_closes_its_effect, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_crash_leftovers, fixture_folder, fixture_close),
        cmocka_unit_test_setup_teardown(test_crash_while_waiting, fixture_folder, fixture_close),
        cmocka_unit_test_setup_teardown(test_damaged_intent, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_retention_and_ids, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_retention_and_clock, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_one_owner, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_one_owner_across_processes, fixture_folder, fixture_close),
        cmocka_unit_test_setup_teardown(test_makes_the_folder, fixture_folder, fixture_close),
        cmocka_unit_test_setup_teardown(test_bad_folders, fixture_folder, fixture_close),
        cmocka_unit_test_setup_teardown(test_empty_folder_readonly, fixture_folder, fixture_close),
        cmocka_unit_test_setup_teardown(test_unknown_format, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_format_of_a_journal_without_one, fixture_open, fixture_close),
        cmocka_unit_test(test_remote_file_systems),
        cmocka_unit_test_setup_teardown(test_close_finishes_what_came_before, fixture_open, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
