/* Tests of store/tail.c, recover.c and what readers see: a change is durable, seen and not doubled before data.mdb has
 * it. What fails on the way is in test_store_tail_faults.c. */
#include "tests/unit/tail_case.h"

#include <stdatomic.h>

enum { CHUNKS = 4 };

/* A chunk that submits the next one before the writer has nothing to do: then it does not settle in between. */
struct step {
    struct moment end; /* first */
    struct call one, two;
    struct tail_case *at;
    struct step *next;
};

static void submit_step(struct step *step)
{
    store_submit(step->at->fx.store, &step->one.op);
    store_submit(step->at->fx.store, &step->two.op);
    store_submit(step->at->fx.store, &step->end.last.op);
}

static void go_on(void *arg)
{
    struct step *step = arg;
    if (step->next != NULL)
        submit_step(step->next);
    else
        copy_crashed(step->at);
}

static void init_step(struct step *step, struct tail_case *at, uint64_t token, struct step *next)
{
    *step = (struct step){.end = {.act = go_on, .arg = step}, .at = at, .next = next};
    call_init(&step->end.last);
    step->end.last.op.kind = STORE_RESOLVE;
    step->end.last.op.done = moment_done;
    admit_init(&step->one, "one", token);
    admit_init(&step->two, "two", token);
    step->one.op.admit.intent = step->two.op.admit.intent = true;
}

/* A store of whose chunks data.mdb has none yet, and its copy: tokens 1 to `chunks` of two keys, an effect each. */
static void crash_after(struct tail_case *at, uint64_t chunks)
{
    static struct step steps[CHUNKS];
    struct holder holder;
    for (uint64_t i = 0; i < chunks; i++)
        init_step(&steps[i], at, i + 1, i + 1 < chunks ? &steps[i + 1] : NULL);
    hold_writer(at->fx.store, &holder);
    submit_step(steps);
    let_go(&holder);
    for (uint64_t i = 0; i < chunks; i++) {
        assert_true(call_wait(&steps[i].end.last, 30000));
        assert_int_equal(steps[i].two.op.error, STORE_OK);
    }
}

static void test_a_crash_loses_nothing(void **state)
{
    struct tail_case *at = *state;
    crash_after(at, 3);
    assert_int_equal(open_copy(at, false), STORE_OK);
    assert_true(noticed(&at->copy, "came back from the journal"));
    assert_int_equal(fence_of(at->copy.store, "one"), 3);
    assert_int_equal(fence_of(at->copy.store, "two"), 3);
    assert_int_equal(health(at->copy.store).in_doubt, 6);
    assert_int_equal(all_records(at->copy.store).count, 6); /* once each: `unknown` of what was open */
    assert_sound(at->copy.store);
    uint64_t id = admit_effect(at->copy.store, "one", 4).effect_id;
    assert_int_equal(id, 13); /* 6 effects, 6 records: none is given out again */
    store_close(&at->copy.store);
    assert_int_equal(open_copy(at, false), STORE_OK); /* closed in good order: nothing to bring back */
    assert_false(noticed(&at->copy, "came back"));
    assert_int_equal(fence_of(at->copy.store, "one"), 4);
}

/* A crash right after a start that brought changes back, and once more. */
static void test_a_crash_of_the_recovery(void **state)
{
    struct tail_case *at = *state;
    crash_after(at, 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(open_copy(at, true), STORE_OK);
        assert_int_equal(fence_of(at->copy.store, "two"), 2);
        store_close(&at->copy.store);
    }
    assert_int_equal(open_copy(at, false), STORE_OK);
    assert_false(noticed(&at->copy, "came back"));
    assert_int_equal(health(at->copy.store).in_doubt, 4);
}

/* A chunk that was settled, one that was not, and again: what the journal has from before is passed over. */
static void test_after_settlings(void **state)
{
    struct tail_case *at = *state;
    for (uint64_t token = 1; token <= 12; token += 3) {
        admit_two(at, token, NULL);
        admit_two(at, token + 1, NULL);
        char *all = contents(at->fx.store); /* settles */
        free(all);
        admit_two(at, token + 2, take_copy);
        all = contents(at->fx.store);
        assert_int_equal(open_copy(at, true), STORE_OK);
        assert_int_equal(fence_of(at->copy.store, "one"), token + 2);
        assert_sound(at->copy.store);
        store_close(&at->copy.store);
        free(all);
    }
}

struct fence_look {
    struct tail_case *at;
    struct store_reader *reader;
    uint64_t one, two;
    enum store_error error;
};

static void look_at_fences(void *arg)
{
    struct fence_look *look = arg;
    struct fence fence;
    look->error = store_fence_get(look->reader, text("default"), text("one"), &fence);
    look->one = fence.token;
    if (store_fence_get(look->reader, text("default"), text("two"), &fence) != STORE_OK)
        look->error = STORE_IO;
    look->two = fence.token;
    copy_crashed(look->at);
}

/* On the writer's thread: nobody can have settled. */
static void test_a_fence_is_seen_at_once(void **state)
{
    struct tail_case *at = *state;
    struct fence_look look = {.at = at};
    struct call one, two, reset, raise;
    assert_int_equal(store_reader_open(at->fx.store, &look.reader), STORE_OK);
    admit_two(at, 5, NULL);
    admit_init(&one, "one", 7);
    admit_init(&two, "two", 6);
    run_chunk(at->fx.store, (struct call *[]){&one, &two}, 2, look_at_fences, &look);
    assert_int_equal(look.error, STORE_OK);
    assert_int_equal(look.one, 7);
    assert_int_equal(look.two, 6);
    admit_init(&reset, "one", 0);
    reset.op.kind = STORE_RESET;
    admit_init(&raise, "two", 9);
    raise.op.kind = STORE_RAISE;
    run_chunk(at->fx.store, (struct call *[]){&reset, &raise}, 2, look_at_fences, &look);
    assert_int_equal(look.error, STORE_NOT_FOUND);
    assert_int_equal(look.one, 0);
    assert_int_equal(look.two, 9);
    store_reader_close(&look.reader);
    assert_int_equal(open_copy(at, true), STORE_OK); /* so it was durable, and a reset stays one */
    assert_int_equal(fence_of(at->copy.store, "one"), 0);
    assert_int_equal(fence_of(at->copy.store, "two"), 9);
}

/* All other looks, each the first one after a chunk. */
static void test_queries_see_what_was_told(void **state)
{
    struct tail_case *at = *state;
    struct store_reader *reader;
    struct store_stats stats;
    struct effects_filter running = {.state = EFFECTS_RUNNING, .limit = 250};
    assert_int_equal(store_reader_open(at->fx.store, &reader), STORE_OK);
    for (uint64_t round = 1; round <= 10; round++) {
        struct page page = {.count = 0};
        struct call first, second;
        admit_two(at, round + 1, NULL);
        assert_int_equal(store_effects_query(reader, &running, keep_record, &page, &page.next_after), STORE_OK);
        assert_int_equal(page.count, 2 * round);
        admit_init(&first, "one", 1);
        admit_init(&second, "two", 1);
        run_chunk(at->fx.store, (struct call *[]){&first, &second}, 2, NULL, NULL);
        assert_int_equal(second.op.verdict, VERDICT_STALE);
        assert_int_equal(all_records(at->fx.store).count, 2 * round);
        char keys[2][48];
        for (int i = 0; i < 2; i++)
            (void)snprintf(keys[i], sizeof keys[i], "more %d %d", (int)round, i);
        admit_init(&first, keys[0], 1);
        admit_init(&second, keys[1], 1);
        run_chunk(at->fx.store, (struct call *[]){&first, &second}, 2, NULL, NULL);
        assert_int_equal(store_stats(reader, &stats), STORE_OK);
        assert_int_equal(stats.fences, 2 + 2 * round);
    }
    store_reader_close(&reader);
}

static bool last_fence(void *arg, const struct fence_entry *entry)
{
    *(uint64_t *)arg = entry->fence.token;
    return true;
}

static void test_a_list_of_fences_sees_what_was_told(void **state)
{
    struct tail_case *at = *state;
    struct store_reader *reader;
    struct fence_filter filter = {.ns = text("default"), .prefix = text("two"), .limit = 1};
    bool more;
    assert_int_equal(store_reader_open(at->fx.store, &reader), STORE_OK);
    for (uint64_t token = 1; token <= 20; token++) {
        uint64_t seen = 0;
        admit_two(at, token, NULL);
        assert_int_equal(store_fences_query(reader, &filter, last_fence, &seen, &more), STORE_OK);
        assert_int_equal(seen, token);
    }
    store_reader_close(&reader);
}

/* The crashed folder again as it was copied. */
static void copy_again(const struct tail_case *at, const char *kept)
{
    remove_from(at->crashed, "lock.mdb");
    remove_from(at->crashed, "gateway.lock");
    copy_file(kept, at->crashed, "data.mdb");
    copy_file(kept, at->crashed, JOURNAL_NAME);
}

static void keep(const struct tail_case *at, char kept[32])
{
    (void)snprintf(kept, 32, "/tmp/store-kept-XXXXXX");
    assert_non_null(mkdtemp(kept));
    copy_file(at->crashed, kept, "data.mdb");
    copy_file(at->crashed, kept, JOURNAL_NAME);
}

static void drop_kept(const char *kept)
{
    remove_from(kept, "data.mdb");
    remove_from(kept, JOURNAL_NAME);
    (void)rmdir(kept);
}

/* What was written last was not written whole: a byte of it is another, or the file ends there. All before it is there,
 * and nothing of it. */
static void test_a_torn_batch(void **state)
{
    static const off_t bytes[] = {0, 4, 8, 15, 16, 23, 24, 31, 32, 33, 40, 100, 300};
    struct tail_case *at = *state;
    char kept[32];
    const off_t third = FIRST_BLOCK + 2 * 4096; /* each batch is smaller than a block */
    crash_after(at, 3);
    keep(at, kept);
    for (size_t i = 0; i < 2 * sizeof bytes / sizeof *bytes; i++) {
        off_t place = third + bytes[i / 2];
        copy_again(at, kept);
        spoil_copy(at, i % 2 ? place : 0, place);
        at->copy.notices[0] = '\0';
        assert_int_equal(open_copy(at, false), STORE_OK);
        bool says_whose = bytes[i / 2] > 23 || (i % 2 == 0 && bytes[i / 2] < 4); /* its head names journal and number */
        assert_int_equal(noticed(&at->copy, "one more is not whole"), says_whose);
        assert_int_equal(fence_of(at->copy.store, "one"), 2);
        assert_int_equal(fence_of(at->copy.store, "two"), 2);
        assert_int_equal(health(at->copy.store).in_doubt, 4);
        assert_sound(at->copy.store);
        store_close(&at->copy.store);
    }
    drop_kept(kept);
}

/* A batch that others follow was synced: when it can't be read the disk has lost it, and with it a fence. */
static void test_a_hole_in_the_journal(void **state)
{
    struct tail_case *at = *state;
    crash_after(at, 4);
    char kept[32];
    keep(at, kept);
    for (off_t batch = 0; batch < 3; batch++) {
        copy_again(at, kept);
        spoil_copy(at, 0, FIRST_BLOCK + batch * 4096 + 50);
        assert_int_equal(open_copy(at, false), STORE_FORMAT);
        assert_int_equal(open_copy(at, true), STORE_FORMAT);
    }
    drop_kept(kept);
}

/* data.mdb is older than the journal that it names: what was between is gone. */
static void test_an_older_data_file(void **state)
{
    struct tail_case *at = *state;
    char kept[32];
    crash_after(at, 2);
    keep(at, kept);
    char *all = contents(at->fx.store); /* settles */
    free(all);
    admit_two(at, 3, take_copy);
    copy_file(kept, at->crashed, "data.mdb");
    assert_int_equal(open_copy(at, false), STORE_FORMAT);
    drop_kept(kept);
}

/* The journal is older than data.mdb, which names a later batch: what came after that one is gone. */
static void test_an_older_journal(void **state)
{
    struct tail_case *at = *state;
    char kept[32];
    crash_after(at, 2);
    keep(at, kept);
    for (uint64_t token = 3; token <= 5; token++) {
        admit_two(at, token, take_copy);
        char *all = contents(at->fx.store); /* settles */
        free(all);
        if (token == 3) /* data.mdb still has none of it, and the first journal is a prefix of what there was */
            continue;
        copy_file(kept, at->crashed, JOURNAL_NAME);
        assert_int_equal(open_copy(at, false), STORE_FORMAT);
        assert_int_equal(open_copy(at, true), STORE_FORMAT);
    }
    drop_kept(kept);
}

static void test_no_start_without_the_journal(void **state)
{
    struct tail_case *at = *state;
    char kept[32];
    crash_after(at, 2);
    keep(at, kept);
    remove_from(at->crashed, JOURNAL_NAME);
    assert_int_equal(open_copy(at, false), STORE_FORMAT);
    assert_int_equal(open_copy(at, true), STORE_FORMAT);
    copy_again(at, kept);
    spoil_copy(at, 12, 0); /* in the middle of what says whose it is */
    assert_int_equal(open_copy(at, false), STORE_FORMAT);
    copy_again(at, kept);
    spoil_copy(at, 0, 12); /* the journal of another store */
    assert_int_equal(open_copy(at, false), STORE_FORMAT);
    assert_int_equal(open_copy(at, true), STORE_FORMAT);
    copy_again(at, kept);
    assert_int_equal(open_copy(at, false), STORE_OK);
    drop_kept(kept);
}

/* A file of data.mdb's tells that it lacks something, to those who take it for a backup as to programs of before. */
static void test_the_file_alone_is_no_backup(void **state)
{
    struct tail_case *at = *state;
    struct store_contents out;
    char why[512];
    crash_after(at, 2);
    char folder[] = "/tmp/store-restored-XXXXXX";
    assert_non_null(mkdtemp(folder));
    struct store_restore restore = {.from = at->crashed, .path = folder, .checker = {.finding = count_finding}};
    assert_int_equal(store_restore(&restore, &out, why, sizeof why), STORE_FORMAT);
    assert_int_equal(open_copy(at, false), STORE_OK);
    store_close(&at->copy.store);
    assert_int_equal(store_restore(&restore, &out, why, sizeof why), STORE_OK); /* closed in good order it is one */
    assert_int_equal(out.fences, 2);
    remove_from(restore.path, "data.mdb");
    remove_from(restore.path, "gateway.lock");
    assert_int_equal(rmdir(restore.path), 0);
}

/* Retention within chunks that go to the journal. */
static void test_retention_in_the_tail(void **state)
{
    struct tail_case *at = *state;
    enum { OLD = 400 };
    static struct call old[OLD];
    struct call *chunk[OLD];
    store_retention(at->fx.store, 3600000, false, 0);
    for (size_t i = 0; i < OLD; i++) {
        admit_init(&old[i], i % 2 ? "odd" : "even", 1);
        old[i].op.kind = STORE_RECORD;
        old[i].op.record.kind = AUDIT_DROPPED;
        old[i].op.record.time_ms = 1700000000000 + i;
        chunk[i] = &old[i];
    }
    run_chunk(at->fx.store, chunk, OLD, NULL, NULL);
    for (uint64_t token = 1; token <= 4; token++)
        admit_two(at, token, NULL);
    admit_two(at, 5, take_copy);
    assert_int_equal(open_copy(at, true), STORE_OK);
    assert_sound(at->copy.store);
    assert_int_equal(all_records(at->copy.store).count, 0); /* 64 and more go with each chunk */
    assert_int_equal(fence_of(at->copy.store, "one"), 5);
}

/* Two that read while others write: what each has been told is seen, and the fence of a key never falls. */
struct looker {
    pthread_t thread;
    struct store *store;
    uint64_t falls, looks;
};
static atomic_bool enough;

static void *look_on(void *arg)
{
    struct looker *looker = arg;
    struct store_reader *reader;
    struct fence fence;
    struct store_stats stats;
    uint64_t last = 0;
    if (store_reader_open(looker->store, &reader) != STORE_OK)
        return NULL;
    while (!atomic_load(&enough)) {
        fence.token = 0;
        (void)!store_fence_get(reader, text("default"), text("one"), &fence);
        looker->falls += fence.token < last ? 1 : 0;
        last = fence.token;
        if (looker->looks++ % 64 == 0 && store_stats(reader, &stats) != STORE_OK)
            looker->falls++;
    }
    store_reader_close(&reader);
    return NULL;
}

static void test_readers_beside_the_writer(void **state)
{
    struct tail_case *at = *state;
    struct looker lookers[2];
    atomic_store(&enough, false);
    for (int i = 0; i < 2; i++) {
        lookers[i] = (struct looker){.store = at->fx.store};
        assert_int_equal(pthread_create(&lookers[i].thread, NULL, look_on, &lookers[i]), 0);
    }
    for (uint64_t token = 1; token <= 400; token++) {
        admit_two(at, token, NULL);
        if (token % 5 == 0)
            assert_int_equal(fence_of(at->fx.store, "two"), token);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(lookers[i].thread, NULL);
        assert_int_equal(lookers[i].falls, 0);
        assert_true(lookers[i].looks > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_crash_loses_nothing, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_a_crash_of_the_recovery, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_after_settlings, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_a_fence_is_seen_at_once, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_queries_see_what_was_told, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_a_list_of_fences_sees_what_was_told, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_a_torn_batch, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_a_hole_in_the_journal, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_an_older_data_file, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_an_older_journal, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_no_start_without_the_journal, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_the_file_alone_is_no_backup, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_retention_in_the_tail, tail_case_open, tail_case_close),
        cmocka_unit_test_setup_teardown(test_readers_beside_the_writer, tail_case_open, tail_case_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
