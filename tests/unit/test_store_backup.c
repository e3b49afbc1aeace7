/*
 * Tests of store/backup.c, restore.c, part.c and fence.c: copies beside a writer, what a restore does to fences and
 * ids, and what a floor means to every operation.
 */
#include "tests/unit/store_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "store/lmdb.h"

struct places {
    struct fixture store; /* the one that is backed up */
    char backup[64], restored[64];
};

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    if (!folder)
        return;
    while ((entry = readdir(folder)) != NULL)
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    (void)rmdir(path);
}

static int set_up(void **state)
{
    if (fixture_open(state) != 0)
        return -1;
    struct fixture *fx = *state;
    struct places *at = calloc(1, sizeof *at);
    assert_non_null(at);
    at->store = *fx;
    at->store.options.path = at->store.path;
    at->store.options.notice = NULL;
    free(fx);
    (void)snprintf(at->backup, sizeof at->backup, "%.40s.backup", at->store.path);
    (void)snprintf(at->restored, sizeof at->restored, "%.40s.restored", at->store.path);
    *state = at;
    return 0;
}

static int tear_down(void **state)
{
    struct places *at = *state;
    store_close(&at->store.store);
    remove_folder(at->backup);
    remove_folder(at->restored);
    remove_folder(at->store.path);
    free(at);
    return 0;
}

static struct store_contents back_up(struct places *at)
{
    struct store_contents contents;
    char why[512] = "";
    if (store_backup(at->store.store, at->backup, &contents, why, sizeof why) != STORE_OK)
        fail_msg("%s", why);
    return contents;
}

static enum store_error try_restore(struct places *at, uint64_t min_token, struct store_contents *contents,
                                    char why[512])
{
    struct store_restore restore = {.from = at->backup, .path = at->restored, .min_token = min_token};
    return store_restore(&restore, contents, why, 512);
}

static struct store_contents restore_to(struct places *at, uint64_t min_token)
{
    struct store_contents contents;
    char why[512] = "";
    if (try_restore(at, min_token, &contents, why) != STORE_OK)
        fail_msg("%s", why);
    return contents;
}

/* Goes on with the restored store in the fixture's place. */
static struct store *open_restored(struct places *at)
{
    store_close(&at->store.store);
    at->store.options.path = at->restored;
    open_store(&at->store);
    return at->store.store;
}

static bool there(const char *folder, const char *name)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static struct store_op change(struct store *store, enum store_op_kind kind, const char *key, uint64_t token)
{
    struct call call;
    call_init(&call);
    call.op.kind = kind;
    call.op.record =
        (struct audit_record){.ns = text("default"), .key = text(key), .token = token, .reason = text("by hand")};
    call_run(store, &call);
    return call.op;
}

static void expect_sound(struct store *store)
{
    struct store_contents contents;
    struct store_checker checker = {0};
    uint64_t findings;
    assert_int_equal(store_verify(store, &checker, &contents, &findings), STORE_OK);
    assert_int_equal(findings, 0);
}

/* Backup. */

static void test_backup_is_whole(void **state)
{
    struct places *at = *state;
    struct stat st;
    (void)admit(at->store.store, "a", 41);
    (void)admit(at->store.store, "b", 7);
    (void)admit(at->store.store, "a", 40); /* dropped: the newest record */
    uint64_t effect = admit_effect(at->store.store, "b", 8).effect_id;
    struct store_contents contents = back_up(at);
    assert_int_equal(contents.fences, 2);
    assert_int_equal(contents.records, 1);
    assert_int_equal(contents.effects, 1);
    assert_int_equal(contents.newest_id, effect - 1);
    assert_true(contents.newest_ms > 1600000000000);
    assert_int_equal(contents.floor, 0);
    assert_int_equal(stat(at->backup, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    char file[160];
    (void)snprintf(file, sizeof file, "%s/data.mdb", at->backup);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, contents.bytes);
    assert_false(there(at->backup, "data.mdb.part"));
    (void)admit(at->store.store, "a", 1000); /* not in it any more */
    struct store *copy;
    char why[512];
    assert_int_equal(store_open_readonly(at->backup, &copy, why, sizeof why), STORE_OK);
    assert_int_equal(fence_of(copy, "a"), 41);
    expect_sound(copy);
    store_close(&copy);
}

static void test_backup_refuses_what_is_not_empty(void **state)
{
    struct places *at = *state;
    struct store_contents contents;
    char why[512], file[160];
    (void)admit(at->store.store, "a", 41);
    (void)back_up(at);
    assert_int_equal(store_backup(at->store.store, at->backup, &contents, why, sizeof why), STORE_ALREADY);
    assert_non_null(strstr(why, "there is a store in this folder"));
    (void)snprintf(file, sizeof file, "%s/data.mdb", at->backup);
    assert_int_equal(unlink(file), 0);
    (void)snprintf(file, sizeof file, "%s/notes", at->backup);
    int fd = open(file, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(store_backup(at->store.store, at->backup, &contents, why, sizeof why), STORE_ALREADY);
    assert_non_null(strstr(why, "not empty (notes)"));
    assert_false(there(at->backup, "data.mdb.part"));
    assert_int_equal(unlink(file), 0);
    /* What a killed backup left is written over; what another one is writing is not. */
    (void)snprintf(file, sizeof file, "%s/data.mdb.part", at->backup);
    fd = open(file, O_RDWR | O_CREAT, 0600);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(write(fd, "half", 4), 4);
    assert_int_equal(store_backup(at->store.store, at->backup, &contents, why, sizeof why), STORE_BUSY);
    close(fd);
    assert_int_equal(store_backup(at->store.store, at->backup, &contents, why, sizeof why), STORE_OK);
    assert_true(there(at->backup, "data.mdb"));
}

struct churn {
    struct store *store;
    pthread_mutex_t lock;
    pthread_cond_t went_on;
    bool stop;
    uint64_t last;
};

static void *churn_main(void *arg)
{
    struct churn *churn = arg;
    for (uint64_t token = 1;; token++) {
        pthread_mutex_lock(&churn->lock);
        bool stop = churn->stop;
        pthread_mutex_unlock(&churn->lock);
        if (stop)
            return NULL;
        char key[32];
        (void)snprintf(key, sizeof key, "key-%u", (unsigned)(token % 97));
        struct store_op op = admit_effect(churn->store, key, token);
        struct audit_record sent = {.kind = token % 7 == 0 ? AUDIT_UNKNOWN : AUDIT_SENT,
                                    .effect_id = op.effect_id,
                                    .ns = text("default"),
                                    .key = text(key),
                                    .token = token};
        (void)record(churn->store, &sent);
        if (token % 50 == 0)
            (void)change(churn->store, STORE_RESET, key, 0);
        pthread_mutex_lock(&churn->lock);
        churn->last = token;
        pthread_cond_signal(&churn->went_on);
        pthread_mutex_unlock(&churn->lock);
    }
}

static void wait_for_writes(struct churn *churn, uint64_t count)
{
    pthread_mutex_lock(&churn->lock);
    for (uint64_t from = churn->last; churn->last < from + count;)
        pthread_cond_wait(&churn->went_on, &churn->lock);
    pthread_mutex_unlock(&churn->lock);
}

/* Backups and checks beside a writer: every one is sound. The check runs in the same environment. */
static void test_beside_a_writer(void **state)
{
    struct places *at = *state;
    struct churn churn = {.store = at->store.store};
    pthread_t thread;
    pthread_mutex_init(&churn.lock, NULL);
    pthread_cond_init(&churn.went_on, NULL);
    assert_int_equal(pthread_create(&thread, NULL, churn_main, &churn), 0);
    for (int i = 0; i < 5; i++) {
        struct store *copy;
        char why[512];
        wait_for_writes(&churn, 3);
        expect_sound(at->store.store);
        (void)back_up(at);
        assert_int_equal(store_open_readonly(at->backup, &copy, why, sizeof why), STORE_OK);
        expect_sound(copy);
        store_close(&copy);
        remove_folder(at->backup);
    }
    pthread_mutex_lock(&churn.lock);
    churn.stop = true;
    pthread_mutex_unlock(&churn.lock);
    pthread_join(thread, NULL);
    expect_sound(at->store.store);
}

/* Restore. */

static void test_restore_without_a_floor(void **state)
{
    struct places *at = *state;
    (void)admit(at->store.store, "a", 41);
    uint64_t effect = admit_effect(at->store.store, "a", 41).effect_id;
    (void)back_up(at);
    uint64_t later = admit_effect(at->store.store, "a", 99).effect_id;
    struct store_contents contents = restore_to(at, 0);
    assert_int_equal(contents.fences, 1);
    assert_int_equal(contents.effects, 1);
    assert_int_equal(contents.floor, 0);
    assert_int_equal(contents.raised, 0);
    uint64_t id = store_id(at->store.store);
    assert_int_not_equal(id, 0);
    struct store *store = open_restored(at);
    assert_int_not_equal(store_id(store), 0);
    assert_int_not_equal(store_id(store), id); /* both gateways may run */
    assert_int_equal(fence_of(store, "a"), 41);
    assert_int_equal(fence_of(store, "new"), 0);
    assert_int_equal(health(store).in_doubt, 1);
    struct page page = all_records(store);
    assert_int_equal(page.count, 2);
    assert_int_equal(page.item[0].kind, AUDIT_UNKNOWN);
    assert_int_equal(page.item[0].effect_id, effect);
    assert_int_equal(page.item[1].kind, AUDIT_RESET);
    assert_string_equal(page.item[1].reason, "restored");
    assert_string_equal(page.item[1].key, "");
    assert_true(page.item[0].id > later); /* no id comes twice */
    expect_sound(store);
}

static void test_restore_refuses(void **state)
{
    struct places *at = *state;
    struct store_contents contents;
    char why[512];
    assert_int_equal(try_restore(at, 0, &contents, why), STORE_NOT_FOUND);
    assert_non_null(strstr(why, "no backup in this folder"));
    assert_false(there(at->restored, "data.mdb"));
    assert_false(there(at->restored, "data.mdb.part"));
    (void)admit(at->store.store, "a", 41);
    (void)back_up(at);
    struct store_restore onto = {.from = at->backup, .path = at->store.path};
    assert_int_equal(store_restore(&onto, &contents, why, sizeof why), STORE_ALREADY);
    assert_non_null(strstr(why, "there is a store in this folder"));
    struct store_restore live = {.from = at->store.path, .path = at->restored};
    assert_int_equal(store_restore(&live, &contents, why, sizeof why), STORE_BUSY);
    assert_non_null(strstr(why, "not a backup"));
    (void)restore_to(at, 0);
    assert_int_equal(try_restore(at, 0, &contents, why), STORE_ALREADY);
    /* A folder with other things in it stays as it is. */
    remove_folder(at->restored);
    assert_int_equal(mkdir(at->restored, 0700), 0);
    char file[160];
    (void)snprintf(file, sizeof file, "%s/letters", at->restored);
    close(open(file, O_WRONLY | O_CREAT, 0600));
    assert_int_equal(try_restore(at, 0, &contents, why), STORE_ALREADY);
    assert_false(there(at->restored, "gateway.lock"));
}

static void test_restore_of_a_damaged_backup(void **state)
{
    struct places *at = *state;
    struct store_contents contents;
    struct db *db;
    struct db_txn txn;
    char why[512], file[160];
    (void)admit(at->store.store, "a", 41);
    (void)back_up(at);
    (void)snprintf(file, sizeof file, "%s/data.mdb", at->backup);
    assert_int_equal(db_open_file(file, MIB, &db, why, sizeof why), STORE_OK);
    db_begin(db, &txn);
    db_put(&txn, DB_AUDIT, (struct slice){"\0\0\0\0\0\0\0\1", 8}, text("no record"));
    assert_int_equal(db_commit(&txn), STORE_OK);
    db_close(&db);
    assert_int_equal(try_restore(at, 0, &contents, why), STORE_DAMAGED);
    assert_non_null(strstr(why, "nothing was restored"));
    assert_false(there(at->restored, "data.mdb"));
    assert_int_equal(truncate(file, 3 * 4096), 0);
    assert_int_equal(try_restore(at, 0, &contents, why), STORE_FORMAT);
    assert_false(there(at->restored, "data.mdb"));
    assert_false(there(at->restored, "data.mdb.part"));
}

/* The floor. */

static struct store *with_floor(struct places *at, uint64_t floor)
{
    (void)admit(at->store.store, "low", 41);
    (void)admit(at->store.store, "high", 5000);
    (void)back_up(at);
    (void)admit(at->store.store, "low", 900); /* what the backup has never seen */
    (void)admit(at->store.store, "lost", 800);
    struct store_contents contents = restore_to(at, floor);
    assert_int_equal(contents.floor, floor);
    assert_int_equal(contents.raised, 1);
    return open_restored(at);
}

static void test_floor_holds_for_every_key(void **state)
{
    struct store *store = with_floor(*state, 1000);
    static const char *const keys[] = {"low", "lost", "never-seen"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(fence_of(store, keys[i]), 1000);
        struct store_op op = admit(store, keys[i], 999);
        assert_int_equal(op.verdict, VERDICT_STALE);
        assert_int_equal(op.highest, 1000);
        assert_int_equal(admit(store, keys[i], 1000).verdict, VERDICT_ACCEPTED);
        assert_int_equal(admit(store, keys[i], 1001).verdict, VERDICT_ACCEPTED);
        assert_int_equal(admit(store, keys[i], 1000).verdict, VERDICT_STALE);
        assert_int_equal(fence_of(store, keys[i]), 1001);
    }
    assert_int_equal(fence_of(store, "high"), 5000);
    assert_int_equal(admit(store, "high", 4999).verdict, VERDICT_STALE);
    struct page page = query(store, &(struct audit_filter){.kind = AUDIT_RAISED, .limit = 9});
    assert_int_equal(page.count, 1);
    assert_int_equal(page.item[0].token, 1000);
    assert_string_equal(page.item[0].reason, "restored");
    expect_sound(store);
}

static void test_floor_and_the_rules(void **state)
{
    struct store *store = with_floor(*state, 1000);
    struct call call;
    admit_init(&call, "used", 1000);
    call.op.admit.equal_allowed = false; /* nobody knows whether it was used */
    call_run(store, &call);
    assert_int_equal(call.op.verdict, VERDICT_USED);
    admit_init(&call, "jump", 900000); /* a key's first token has no jump, and the floor is no token of it */
    call.op.admit.max_jump = 10;
    call_run(store, &call);
    assert_int_equal(call.op.verdict, VERDICT_ACCEPTED);
    call.op.record.token = 900011;
    call_run(store, &call);
    assert_int_equal(call.op.verdict, VERDICT_IMPLAUSIBLE);
    call.op.record.token = 900010;
    call_run(store, &call);
    assert_int_equal(call.op.verdict, VERDICT_ACCEPTED);
    admit_init(&call, "low", 900000); /* it was lifted to the floor: that is none of its tokens either */
    call.op.admit.max_jump = 10;
    call_run(store, &call);
    assert_int_equal(call.op.verdict, VERDICT_ACCEPTED);
    admit_init(&call, "seen", 999);
    call.op.admit.observe = call.op.admit.intent = true;
    call_run(store, &call);
    assert_int_equal(call.op.verdict, VERDICT_STALE);
    assert_int_equal(call.op.highest, 1000);
    assert_int_not_equal(call.op.effect_id, 0);
    struct store_op op = change(store, STORE_RAISE, "raised", 999);
    assert_int_equal(op.verdict, VERDICT_STALE);
    assert_int_equal(op.highest, 1000);
    op = change(store, STORE_RAISE, "raised", 1000);
    assert_int_equal(op.verdict, VERDICT_ACCEPTED);
    assert_int_equal(op.audit_id, 0); /* there already */
    op = change(store, STORE_RAISE, "raised", 1002);
    assert_int_equal(op.verdict, VERDICT_ACCEPTED);
    assert_int_equal(fence_of(store, "raised"), 1002);
    expect_sound(store);
}

struct names {
    char text[256];
};

static bool keep_name(void *arg, const struct fence_entry *entry)
{
    struct names *names = arg;
    size_t len = strlen(names->text);
    (void)snprintf(names->text + len, sizeof names->text - len, "%.*s=%lu ", (int)entry->key.len, entry->key.data,
                   (unsigned long)entry->fence.token);
    return true;
}

static void expect_list(struct store *store, const char *wanted)
{
    struct store_reader *reader;
    struct names names = {""};
    bool more;
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    struct fence_filter filter = {.limit = 100};
    assert_int_equal(store_fences_query(reader, &filter, keep_name, &names, &more), STORE_OK);
    assert_false(more);
    store_reader_close(&reader);
    assert_string_equal(names.text, wanted);
}

/* After a reset the next token is the key's first, be it below the floor. */
static void test_reset_below_the_floor(void **state)
{
    struct places *at = *state;
    struct store *store = with_floor(at, 1000);
    static const char *const keys[] = {"low", "never-seen", "high"};
    for (size_t i = 0; i < 3; i++) {
        struct store_op op = change(store, STORE_RESET, keys[i], 0);
        assert_int_equal(op.error, STORE_OK);
        assert_int_equal(op.highest, i == 2 ? 5000 : 1000);
        assert_int_equal(fence_of(store, keys[i]), 0);
        assert_int_equal(change(store, STORE_RESET, keys[i], 0).error, STORE_NOT_FOUND);
    }
    expect_list(store, "");
    at->store.options.path = at->restored;
    reopen(&at->store);
    store = at->store.store;
    assert_int_equal(fence_of(store, "low"), 0);
    assert_int_equal(admit(store, "low", 3).verdict, VERDICT_ACCEPTED);
    assert_int_equal(admit(store, "low", 2).verdict, VERDICT_STALE);
    assert_int_equal(admit(store, "low", 4).verdict, VERDICT_ACCEPTED);
    assert_int_equal(change(store, STORE_RAISE, "high", 7).verdict, VERDICT_ACCEPTED);
    expect_list(store, "high=7 low=4 ");
    expect_sound(store);
}

/* A backup of a store with a floor has it too; a restore of that one can lift it, never lower it. */
static void test_floor_of_a_floor(void **state)
{
    struct places *at = *state;
    struct store *store = with_floor(at, 1000);
    (void)change(store, STORE_RESET, "low", 0);
    (void)admit(store, "low", 3);
    (void)change(store, STORE_RESET, "gone", 0);
    remove_folder(at->backup);
    struct store_contents contents = back_up(at);
    assert_int_equal(contents.floor, 1000);
    assert_int_equal(contents.fences, 2); /* "gone" has none */
    store_close(&at->store.store);
    remove_folder(at->restored);
    contents = restore_to(at, 500);
    assert_int_equal(contents.floor, 1000);
    assert_int_equal(contents.raised, 2);
    store = open_restored(at);
    assert_int_equal(fence_of(store, "low"), 500);
    assert_int_equal(fence_of(store, "gone"), 500);
    assert_int_equal(fence_of(store, "never-seen"), 1000);
    assert_int_equal(fence_of(store, "high"), 5000);
    expect_sound(store);
}

static void set_meta(const char *folder, const char *key, struct slice value)
{
    char why[512], file[160];
    struct db *db;
    struct db_txn txn;
    (void)snprintf(file, sizeof file, "%s/data.mdb", folder);
    assert_int_equal(db_open_file(file, 64 * MIB, &db, why, sizeof why), STORE_OK);
    db_begin(db, &txn);
    db_put(&txn, DB_META, text(key), value);
    assert_int_equal(db_commit(&txn), STORE_OK);
    db_close(&db);
}

static uint64_t format_of(const char *folder)
{
    char why[512];
    struct db *db;
    struct db_txn txn;
    struct slice value = {0};
    uint64_t format = 0;
    assert_int_equal(db_open(folder, 0, true, &db, why, sizeof why), STORE_OK);
    assert_int_equal(db_read_open(db, &txn), STORE_OK);
    db_read_begin(&txn);
    if (db_get(&txn, DB_META, text("format"), &value))
        format = (unsigned char)value.data[7];
    assert_int_equal(db_read_end(&txn), STORE_OK);
    db_read_close(&txn);
    db_close(&db);
    return format;
}

/* A program that does not know of floors refuses such a store; a floor that does not decode is not taken for none. */
static void test_format(void **state)
{
    struct places *at = *state;
    struct store *store;
    char why[512];
    (void)with_floor(at, 1000);
    store_close(&at->store.store);
    assert_int_equal(format_of(at->store.path), 1);
    assert_int_equal(format_of(at->backup), 1);
    assert_int_equal(format_of(at->restored), 2);
    set_meta(at->restored, "floor", text("short"));
    assert_int_equal(store_open(&at->store.options, &store, why, sizeof why), STORE_FORMAT);
    assert_int_equal(store_open_readonly(at->restored, &store, why, sizeof why), STORE_FORMAT);
    set_meta(at->backup, "format", (struct slice){"\0\0\0\0\0\0\0\2", 8});
    assert_int_equal(store_open_readonly(at->backup, &store, why, sizeof why), STORE_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_backup_is_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_backup_refuses_what_is_not_empty, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_beside_a_writer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_restore_without_a_floor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_restore_refuses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_restore_of_a_damaged_backup, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_floor_holds_for_every_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_floor_and_the_rules, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reset_below_the_floor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_floor_of_a_floor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_format, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
