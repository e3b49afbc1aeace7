/*
 * Tests of store/verify.c: every kind of damage is found and named, what is right is not, and no damage to the file
 * makes it crash unheard or run for ever.
 */
#include "tests/unit/store_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "store/lmdb.h"
#include "store/record.h"

struct findings {
    char text[8192];
    uint64_t count;
};

static void keep_finding(void *arg, const struct store_finding *finding)
{
    struct findings *findings = arg;
    size_t len = strlen(findings->text);
    (void)snprintf(findings->text + len, sizeof findings->text - len, "%s %.*s %lu: %s\n", finding->table,
                   (int)finding->key.len, finding->key.data ? finding->key.data : "", (unsigned long)finding->id,
                   finding->text);
    findings->count++;
}

static struct findings check(const char *path, struct store_contents *contents)
{
    struct findings findings = {.count = 0};
    struct store_checker checker = {.finding = keep_finding, .arg = &findings};
    struct store *store;
    uint64_t count;
    char why[512] = "";
    if (store_open_readonly(path, &store, why, sizeof why) != STORE_OK)
        fail_msg("%s", why);
    assert_int_equal(store_verify(store, &checker, contents, &count), STORE_OK);
    assert_int_equal(count, findings.count);
    store_close(&store);
    return findings;
}

static uint64_t outcome(struct store *store, uint64_t effect_id, enum audit_kind kind, const char *key, uint64_t token)
{
    struct audit_record subject = {
        .kind = kind, .effect_id = effect_id, .ns = text("default"), .key = text(key), .token = token};
    return record(store, &subject).audit_id;
}

static void change(struct store *store, enum store_op_kind kind, const struct audit_record *subject)
{
    struct call call;
    call_init(&call);
    call.op.kind = kind;
    call.op.record = *subject;
    call_run(store, &call);
    assert_int_equal(call.op.error, STORE_OK);
}

static void reset_fence(struct store *store, const char *key)
{
    change(store, STORE_RESET, &(struct audit_record){.ns = text("default"), .key = text(key), .reason = text("r")});
}

/* Ids: effect 1, sent 2; effect 3, unknown 4, resolved 5; effect 6, unknown 7; drop 8; effect 9 runs; raised 10. */
static void populate(struct store *store)
{
    assert_int_equal(outcome(store, admit_effect(store, "a", 41).effect_id, AUDIT_SENT, "a", 41), 2);
    assert_int_equal(outcome(store, admit_effect(store, "a", 42).effect_id, AUDIT_UNKNOWN, "a", 42), 4);
    change(store, STORE_RESOLVE, &(struct audit_record){.effect_id = 3, .reason = text("sent"), .note = text("n")});
    assert_int_equal(outcome(store, admit_effect(store, "b", 7).effect_id, AUDIT_UNKNOWN, "b", 7), 7);
    assert_int_equal(admit(store, "a", 41).audit_id, 8);
    assert_int_equal(admit_effect(store, "b", 8).effect_id, 9);
    change(store, STORE_RAISE, &(struct audit_record){.ns = text("default"), .key = text("c"), .token = 5});
}

static void test_a_sound_store(void **state)
{
    struct fixture *fx = *state;
    struct store_contents contents;
    populate(fx->store);
    store_close(&fx->store);
    struct findings findings = check(fx->path, &contents);
    assert_string_equal(findings.text, "");
    assert_int_equal(contents.fences, 3);
    assert_int_equal(contents.records, 6);
    assert_int_equal(contents.effects, 1);
    assert_int_equal(contents.newest_id, 10);
    open_store(fx); /* effect 9 is in doubt now */
    store_close(&fx->store);
    assert_string_equal(check(fx->path, &contents).text, "");
    assert_int_equal(contents.effects, 1);
    assert_int_equal(contents.records, 7);
}

/* Tokens that a reset has taken back, on records that come after it too, say nothing. */
static void test_resets_count(void **state)
{
    struct fixture *fx = *state;
    struct store_contents contents;
    uint64_t early = admit_effect(fx->store, "a", 100).effect_id;
    uint64_t open = admit_effect(fx->store, "b", 100).effect_id;
    reset_fence(fx->store, "a");
    reset_fence(fx->store, "b");
    (void)admit(fx->store, "a", 3);
    (void)outcome(fx->store, early, AUDIT_UNKNOWN, "a", 100); /* it was running */
    change(fx->store, STORE_RESOLVE, &(struct audit_record){.effect_id = early, .reason = text("sent")});
    assert_int_not_equal(open, 0);
    store_close(&fx->store);
    assert_string_equal(check(fx->path, &contents).text, "");
    open_store(fx);
    (void)outcome(fx->store, admit_effect(fx->store, "a", 4).effect_id, AUDIT_SENT, "a", 4);
    struct audit_record observed = {
        .kind = AUDIT_SENT, .effect_id = 1, .ns = text("default"), .key = text("a"), .token = 900, .would_drop = true};
    (void)record(fx->store, &observed);
    store_close(&fx->store);
    assert_string_equal(check(fx->path, &contents).text, "");
}

/* Damage. */

struct damage {
    enum db_table table;
    struct slice key, value; /* value.data NULL: the entry is removed */
    const char *found;       /* part of what must be said */
};

#define BYTES(literal) ((struct slice){(literal), sizeof(literal) - 1})

static void do_damage(const struct fixture *fx, const struct damage *damage)
{
    char why[512];
    struct db *db;
    struct db_txn txn;
    assert_int_equal(db_open(fx->path, 64 * MIB, false, &db, why, sizeof why), STORE_OK);
    db_begin(db, &txn);
    if (damage->value.data)
        db_put(&txn, damage->table, damage->key, damage->value);
    else
        db_delete(&txn, damage->table, damage->key);
    assert_int_equal(db_commit(&txn), STORE_OK);
    db_close(&db);
}

#define ID(number) BYTES("\0\0\0\0\0\0\0" number)
#define TIMES(min, max) BYTES("\0\0\0\0\0\0\0" min "\0\0\0\0\0\0\0" max)
#define FENCE(token) BYTES("\0\0\0\0\0\0\0" token "\0\0\1\x8c\0\0\0\0")

static const struct damage damages[] = {
    {DB_FENCES, BYTES("default\0a"), BYTES("short"), "fences a 0: a value of 5 bytes is no fence"},
    {DB_FENCES, BYTES("default\0a"), FENCE("\0"), "fences a 0: a value of 16 bytes is no fence"},
    {DB_FENCES, BYTES("nothing"), FENCE("\1"), "fences  0: an entry of 7 bytes is no namespace and key"},
    {DB_FENCES, BYTES("default\0a"), FENCE("\x29"), "the fence is at 41, but token 42 is on record as accepted"},
    {DB_FENCES, BYTES("default\0a"), {0}, "the fence is at 0, but token 42 is on record as accepted"},
    {DB_FENCES, BYTES("default\0c"), {0}, "the fence is at 0, but token 5 is on record as accepted"},
    {DB_FENCES, BYTES("default\0b"), FENCE("\7"), "effects b 9: the fence is at 7, below this open effect's token 8"},
    {DB_EFFECTS, ID("\x09"), BYTES("\7junk"), "effects  9: a value of 5 bytes is no open effect"},
    {DB_EFFECTS, ID("\x09"), BYTES("\0junk"), "effects  9: a value of 5 bytes is no open effect"},
    {DB_EFFECTS, BYTES("bad"), BYTES("\0"), "effects  0: a key of 3 bytes is no id"},
    {DB_EFFECTS, ID("\1"), BYTES("\0\1\0\0\0\0\0\0\0\0\0"), "effect 1 has this outcome and is open all the same"},
    {DB_AUDIT, ID("\2"), BYTES("no record"), "audit  2: a value of 9 bytes is no audit record"},
    {DB_AUDIT, ID("\2"), {0}, "audit_by_key a 2: the audit does not have this record"},
    {DB_AUDIT, ID("\4"), {0}, "audit_by_key a 4: the audit does not have this record"},
    {DB_AUDIT, ID("\7"), {0}, "unknown  6: record 7 should say that it is unknown, and does not"},
    {DB_AUDIT, ID("\5"), {0}, "unknown  3: record 5 should say that it is resolved, and does not"},
    {DB_AUDIT, ID("\x77"), BYTES("\1\1\0\0\0\0\0\0\0\0"), "audit  119: this id has not been given out yet"},
    {DB_AUDIT_BY_KEY, BYTES("default\0a\0\0\0\0\0\0\0\0\2"), {0}, "the index by key does not have this record"},
    {DB_AUDIT_BY_KEY, BYTES("default\0z\0\0\0\0\0\0\0\0\2"), BYTES(""), "the audit has this record under another key"},
    {DB_AUDIT_BY_KEY, BYTES("default\0a\0\0\0\0\0\0\0\0\2"), BYTES("\4"),
     "the audit has this record with another kind"},
    {DB_AUDIT_BY_KEY, BYTES("default\0a\0\0\0\0\0\0\0\0\2"), BYTES("\3x"),
     "the audit has this record with another kind"},
    {DB_AUDIT_TIME, ID("\0"), TIMES("\5", "\7"), "audit a 2: the times of its block leave it out"},
    {DB_AUDIT_TIME, ID("\0"), TIMES("\7", "\5"), "audit_time  0: block 0 ends before it begins"},
    {DB_AUDIT_TIME, ID("\0"), BYTES("junk"), "audit_time  0: a value of 4 bytes has no times of a block"},
    {DB_AUDIT_BY_KEY, BYTES("junk"), BYTES(""), "an entry of 4 bytes is no namespace, key and id"},
    {DB_UNKNOWN, ID("\6"), {0}, "effect 6 is neither in doubt nor can it be resolved"},
    {DB_UNKNOWN, ID("\3"), {0}, "effect 3 could be resolved a second time"},
    {DB_UNKNOWN, ID("\6"), BYTES("junk"), "unknown  6: a value of 4 bytes is no pointer to a record"},
    {DB_META, BYTES("next_id"), ID("\5"), "this id has not been given out yet, the next one is 5"},
    {DB_META, BYTES("next_id"), BYTES("junk"), "next_id is no id"},
    {DB_META, BYTES("next_id"), {0}, "next_id is missing"},
};

static void test_each_damage_is_found(void **state)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct store_contents contents;
        void *one = NULL;
        assert_int_equal(fixture_open(&one), 0);
        struct fixture *fx = one;
        populate(fx->store);
        store_close(&fx->store);
        do_damage(fx, &damages[i]);
        struct findings findings = check(fx->path, &contents);
        if (!strstr(findings.text, damages[i].found))
            fail_msg("damage %zu: wanted \"%s\", got:\n%s", i, damages[i].found, findings.text);
        (void)fixture_close(&one);
    }
    (void)state;
}

/* A file that a disk has changed. */

static void on_fault(int number)
{
    (void)number;
    _exit(3);
}

/* 0 sound, 1 findings, 3 could not be read; in a process of its own, as the command does it. */
static int check_apart(const char *path)
{
    (void)fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE};
        struct store *store;
        struct store_contents contents;
        struct store_checker checker = {0};
        uint64_t findings;
        char why[512];
        int null = open("/dev/null", O_WRONLY);
        (void)dup2(null, STDERR_FILENO);
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
            (void)signal(faults[i], on_fault);
        (void)alarm(60); /* not handled: ends the process */
        if (store_open_readonly(path, &store, why, sizeof why) != STORE_OK ||
            store_verify(store, &checker, &contents, &findings) != STORE_OK)
            _exit(3);
        _exit(findings > 0 ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void write_at(int fd, const char *bytes, size_t len, off_t at)
{
    assert_int_equal(pwrite(fd, bytes, len, at), (ssize_t)len);
}

static int open_file(const struct fixture *fx, off_t *size)
{
    char file[128];
    struct stat st;
    (void)snprintf(file, sizeof file, "%s/data.mdb", fx->path);
    int fd = open(file, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    *size = st.st_size;
    return fd;
}

static void fill_some(struct store *store)
{
    for (uint64_t i = 0; i < 400; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "key-%u", (unsigned)(i % 90));
        (void)outcome(store, admit_effect(store, key, i + 1).effect_id, AUDIT_SENT, key, i + 1);
    }
}

static void test_flipped_bits(void **state)
{
    enum { FLIPS = 400 };
    struct fixture *fx = *state;
    off_t size;
    fill_some(fx->store);
    store_close(&fx->store);
    int fd = open_file(fx, &size);
    int seen[4] = {0};
    uint64_t random = 12345;
    for (int i = 0; i < FLIPS; i++) {
        char byte;
        random = random * 6364136223846793005u + 1442695040888963407u;
        off_t at = (off_t)((random >> 20) % (uint64_t)size);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        char flipped = (char)(byte ^ (1 << (i % 8)));
        write_at(fd, &flipped, 1, at);
        int status = check_apart(fx->path);
        if (status != 0 && status != 1 && status != 3)
            fail_msg("flip %d of the byte at %ld: status %d", i, (long)at, status);
        seen[status]++;
        write_at(fd, &byte, 1, at);
    }
    close(fd);
    assert_int_equal(check_apart(fx->path), 0);
    assert_true(seen[1] > 0 && seen[3] > 0);
}

/* Whole pages that are zero, or another page's. */
static void test_wrong_pages(void **state)
{
    struct fixture *fx = *state;
    off_t size;
    char page[4096], other[4096];
    static const char zero[4096];
    int bad = 0, count = 0;
    fill_some(fx->store);
    store_close(&fx->store);
    int fd = open_file(fx, &size);
    for (off_t at = 0; at + 8192 <= size; at += 4096, count++) {
        assert_int_equal(pread(fd, page, sizeof page, at), sizeof page);
        assert_int_equal(pread(fd, other, sizeof other, at + 4096), sizeof other);
        write_at(fd, zero, sizeof zero, at);
        bad += check_apart(fx->path) != 0;
        write_at(fd, other, sizeof other, at);
        bad += check_apart(fx->path) != 0;
        write_at(fd, page, sizeof page, at);
    }
    close(fd);
    assert_int_equal(check_apart(fx->path), 0);
    assert_true(bad > count / 2); /* the others are free pages */
}

/* A file that was cut off is refused when it is opened, wherever the cut is, unless only free pages went. */
static void test_cut_file(void **state)
{
    struct fixture *fx = *state;
    struct store *store;
    char why[512];
    off_t size;
    int refused = 0;
    fill_some(fx->store);
    store_close(&fx->store);
    int fd = open_file(fx, &size);
    char *bytes = malloc((size_t)size);
    assert_non_null(bytes);
    assert_int_equal(pread(fd, bytes, (size_t)size, 0), size);
    for (off_t cut = size - 1; cut > 0; cut -= size / 17) {
        assert_int_equal(ftruncate(fd, cut), 0);
        enum store_error error = store_open_readonly(fx->path, &store, why, sizeof why);
        store_close(&store);
        if (error == STORE_OK) { /* all that counts is there */
            assert_int_equal(check_apart(fx->path), 0);
        } else {
            assert_int_equal(error, STORE_FORMAT);
            if (cut > 8192)
                assert_non_null(strstr(why, "cut short"));
            assert_int_equal(store_open(&fx->options, &store, why, sizeof why), STORE_FORMAT);
            assert_null(store);
            refused++;
        }
        assert_int_equal(ftruncate(fd, 0), 0);
        write_at(fd, bytes, (size_t)size, 0);
    }
    assert_true(refused > 12);
    close(fd);
    free(bytes);
    assert_int_equal(check_apart(fx->path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_sound_store, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_resets_count, fixture_open, fixture_close),
        cmocka_unit_test(test_each_damage_is_found),
        cmocka_unit_test_setup_teardown(test_flipped_bits, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_wrong_pages, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_cut_file, fixture_open, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
