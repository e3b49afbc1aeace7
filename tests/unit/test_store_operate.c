/* Tests of store/: what operators do. Raise, reset, resolve; lists of fences and of effects in doubt. */
#include "tests/unit/store_fixture.h"

#include <poll.h>

static struct store_op operate(struct store *store, enum store_op_kind kind, const struct audit_record *subject)
{
    struct call call;
    call_init(&call);
    call.op.kind = kind;
    call.op.record = *subject;
    call_run(store, &call);
    return call.op;
}

static struct store_op raise_fence(struct store *store, const char *key, uint64_t token)
{
    return operate(store, STORE_RAISE,
                   &(struct audit_record){.ns = text("default"),
                                          .key = text(key),
                                          .token = token,
                                          .reason = text("by hand"),
                                          .client = text("127.0.0.1:7")});
}

static struct store_op reset_fence(struct store *store, const char *key)
{
    return operate(
        store, STORE_RESET,
        &(struct audit_record){.ns = text("default"), .key = text(key), .reason = text("lock service lost")});
}

static struct store_op resolve(struct store *store, uint64_t effect_id, const char *outcome)
{
    return operate(store, STORE_RESOLVE,
                   &(struct audit_record){.effect_id = effect_id, .reason = text(outcome), .note = text("asked them")});
}

static struct store_op close_effect(struct store *store, uint64_t effect_id, enum audit_kind kind)
{
    return record(store, &(struct audit_record){.kind = kind,
                                                .reason = text("upstream-failed"),
                                                .effect_id = effect_id,
                                                .route = text("payments"),
                                                .ns = text("default"),
                                                .key = text("k"),
                                                .token = 7,
                                                .method = text("POST"),
                                                .path = text("/v1/charges")});
}

/* Raise and reset. */

static void test_raise(void **state)
{
    struct fixture *fx = *state;
    struct store_op op = raise_fence(fx->store, "k", 40); /* a key's first */
    assert_int_equal(op.error, STORE_OK);
    assert_int_equal(op.verdict, VERDICT_ACCEPTED);
    assert_int_equal(op.highest, 40);
    assert_int_not_equal(op.audit_id, 0);
    op = raise_fence(fx->store, "k", UINT64_MAX - 1);
    assert_true(op.highest == UINT64_MAX - 1);
    op = raise_fence(fx->store, "k", UINT64_MAX - 1); /* there already */
    assert_int_equal(op.error, STORE_OK);
    assert_int_equal(op.verdict, VERDICT_ACCEPTED);
    assert_int_equal(op.audit_id, 0);
    op = raise_fence(fx->store, "k", 41);
    assert_int_equal(op.error, STORE_OK);
    assert_int_equal(op.verdict, VERDICT_STALE);
    assert_true(op.highest == UINT64_MAX - 1);
    assert_int_equal(op.audit_id, 0);
    reopen(fx);
    assert_true(fence_of(fx->store, "k") == UINT64_MAX - 1);
    assert_int_equal(admit(fx->store, "k", UINT64_MAX - 2).verdict, VERDICT_STALE);
    struct page page = query(fx->store, &(struct audit_filter){.kind = AUDIT_RAISED, .limit = 9});
    assert_int_equal(page.count, 2);
    assert_string_equal(page.item[0].reason, "by hand");
    assert_string_equal(page.item[0].key, "k");
    assert_int_equal(page.item[0].token, 40);
    assert_int_equal(page.item[0].highest, 40);
    assert_true(page.item[1].token == UINT64_MAX - 1);
}

static void test_reset(void **state)
{
    struct fixture *fx = *state;
    assert_int_equal(reset_fence(fx->store, "k").error, STORE_NOT_FOUND);
    assert_int_equal(admit(fx->store, "k", 42).verdict, VERDICT_ACCEPTED);
    struct store_op op = reset_fence(fx->store, "k");
    assert_int_equal(op.error, STORE_OK);
    assert_int_equal(op.highest, 42);
    assert_int_not_equal(op.audit_id, 0);
    assert_int_equal(fence_of(fx->store, "k"), 0);
    assert_int_equal(reset_fence(fx->store, "k").error, STORE_NOT_FOUND);
    assert_int_equal(admit(fx->store, "k", 3).verdict, VERDICT_ACCEPTED); /* anything is a key's first token now */
    struct page page = all_records(fx->store);
    assert_int_equal(page.count, 1);
    assert_int_equal(page.item[0].kind, AUDIT_RESET);
    assert_int_equal(page.item[0].highest, 42);
    assert_int_equal(page.item[0].token, 0);
    assert_string_equal(page.item[0].reason, "lock service lost");
}

static void test_bad_subjects(void **state)
{
    struct fixture *fx = *state;
    assert_int_equal(raise_fence(fx->store, "", 4).error, STORE_FORMAT);
    assert_int_equal(raise_fence(fx->store, "k", 0).error, STORE_FORMAT);
    assert_int_equal(reset_fence(fx->store, "").error, STORE_NOT_FOUND);
    assert_int_equal(resolve(fx->store, 0, "sent").error, STORE_NOT_FOUND);
    assert_int_equal(all_records(fx->store).count, 0);
}

/* The order in which the gate hears of it. */

struct hearing {
    char text[256]; /* the writer's thread between submit and result */
};
static struct hearing heard;

static void hear_raised(void *arg, struct slice ns, struct slice key, uint64_t token)
{
    (void)arg, (void)ns;
    size_t len = strlen(heard.text);
    (void)snprintf(heard.text + len, sizeof heard.text - len, "%.*s=%d ", (int)key.len, key.data, (int)token);
}

static void hear_reset(void *arg, struct slice ns, struct slice key)
{
    (void)arg, (void)ns;
    size_t len = strlen(heard.text);
    (void)snprintf(heard.text + len, sizeof heard.text - len, "%.*s- ", (int)key.len, key.data);
}

static void hear_done(struct store_op *op)
{
    size_t len = strlen(heard.text);
    (void)snprintf(heard.text + len, sizeof heard.text - len, ".");
    call_done(op);
}

static int setup_hearing(void **state)
{
    heard.text[0] = '\0';
    if (fixture_folder(state) != 0)
        return -1;
    struct fixture *fx = *state;
    fx->options.raised = hear_raised;
    fx->options.reset = hear_reset;
    open_store(fx);
    return 0;
}

struct stopper {
    struct call call;
    pthread_mutex_t go;
};

static void stop_here(struct store_op *op)
{
    struct stopper *stopper = (struct stopper *)op;
    call_done(op);
    pthread_mutex_lock(&stopper->go);
    pthread_mutex_unlock(&stopper->go);
}

/* In one batch, each op sees what those before it did. */
static void test_order_within_a_batch(void **state)
{
    struct fixture *fx = *state;
    static const struct {
        enum store_op_kind kind;
        uint64_t token, highest;
        enum store_verdict verdict;
    } rows[] = {
        {STORE_ADMIT, 9, 9, VERDICT_ACCEPTED},
        {STORE_RAISE, 9, 9, VERDICT_ACCEPTED},
        {STORE_RAISE, 12, 12, VERDICT_ACCEPTED},
        {STORE_ADMIT, 11, 12, VERDICT_STALE},
        {STORE_RESET, 0, 12, 0},
        {STORE_RAISE, 2, 2, VERDICT_ACCEPTED},
        {STORE_ADMIT, 3, 3, VERDICT_ACCEPTED},
        {STORE_RAISE, 2, 3, VERDICT_STALE},
    };
    enum { COUNT = sizeof rows / sizeof *rows };
    struct call calls[COUNT];
    struct stopper stopper;
    admit_init(&stopper.call, "stop", 1);
    stopper.call.op.done = stop_here;
    pthread_mutex_init(&stopper.go, NULL);
    pthread_mutex_lock(&stopper.go);
    store_submit(fx->store, &stopper.call.op);
    assert_true(call_wait(&stopper.call, 30000));
    heard.text[0] = '\0';
    for (size_t i = 0; i < COUNT; i++) {
        admit_init(&calls[i], "k", rows[i].token);
        calls[i].op.kind = rows[i].kind;
        calls[i].op.done = hear_done;
        store_submit(fx->store, &calls[i].op);
    }
    pthread_mutex_unlock(&stopper.go);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(call_wait(&calls[i], 30000));
        assert_int_equal(calls[i].op.error, STORE_OK);
        assert_int_equal(calls[i].op.verdict, rows[i].verdict);
        assert_int_equal(calls[i].op.highest, rows[i].highest);
    }
    assert_string_equal(heard.text, "k=9 k=12 k- k=2 k=3 ........");
    assert_int_equal(fence_of(fx->store, "k"), 3);
    pthread_mutex_destroy(&stopper.go);
}

/* Resolve. */

struct effects {
    uint64_t id[64];
    char key[64][16], path[64][32];
    size_t count, stop_at;
};

static bool keep_effect(void *arg, const struct audit_record *intent)
{
    struct effects *effects = arg;
    assert_true(effects->count < 64);
    assert_true(intent->time_ms > 1600000000000);
    assert_int_equal(intent->kind, 0);
    effects->id[effects->count] = intent->id;
    keep_text(effects->key[effects->count], 16, intent->key);
    keep_text(effects->path[effects->count++], 32, intent->path);
    return effects->count != effects->stop_at;
}

static struct effects in_doubt(struct store *store, uint64_t after, size_t limit, uint64_t *next)
{
    struct effects effects = {.count = 0};
    struct store_reader *reader;
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    const struct effects_filter filter = {.state = EFFECTS_IN_DOUBT, .after = after, .limit = limit};
    assert_int_equal(store_effects_query(reader, &filter, keep_effect, &effects, next), STORE_OK);
    store_reader_close(&reader);
    return effects;
}

struct kept {
    struct audit_record item[8];
    size_t count;
};

static bool keep_numbers(void *arg, const struct audit_record *effect)
{
    struct kept *kept = arg;
    assert_true(kept->count < 8);
    kept->item[kept->count++] = (struct audit_record){
        .id = effect->id, .effect_id = effect->effect_id, .kind = effect->kind, .token = effect->token};
    return true;
}

static struct kept effects_of(struct store *store, const struct effects_filter *filter, uint64_t *next)
{
    struct kept kept = {.count = 0};
    struct store_reader *reader;
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    assert_int_equal(store_effects_query(reader, filter, keep_numbers, &kept, next), STORE_OK);
    store_reader_close(&reader);
    return kept;
}

#define EFFECTS(store, most, ...) effects_of((store), &(struct effects_filter){.limit = (most), __VA_ARGS__}, &next)

static void begin_and_crash(struct fixture *fx)
{
    open_store(fx);
    for (uint64_t i = 0; i < 5; i++) {
        char key[8];
        (void)snprintf(key, sizeof key, "k%d", (int)i);
        (void)admit_effect(fx->store, key, 7 + i);
    }
    _exit(0);
}

static void test_resolve_what_is_in_doubt(void **state)
{
    struct fixture *fx = *state;
    uint64_t next;
    in_child(fx, begin_and_crash);
    open_store(fx);
    struct effects effects = in_doubt(fx->store, 0, 9, &next);
    assert_int_equal(effects.count, 5);
    assert_int_equal(next, 0);
    assert_string_equal(effects.key[0], "k0");
    assert_string_equal(effects.path[4], "/v1/charges");
    struct store_op op = resolve(fx->store, effects.id[1], "sent");
    assert_int_equal(op.error, STORE_OK);
    assert_int_equal(health(fx->store).in_doubt, 4);
    assert_int_equal(resolve(fx->store, effects.id[1], "not-sent").error, STORE_ALREADY);
    assert_int_equal(health(fx->store).in_doubt, 4);
    reopen(fx);
    assert_int_equal(health(fx->store).in_doubt, 4);
    assert_int_equal(in_doubt(fx->store, 0, 9, &next).count, 4);
    assert_int_equal(resolve(fx->store, effects.id[1], "sent").error, STORE_ALREADY);
    struct page page = query(fx->store, &(struct audit_filter){.kind = AUDIT_RESOLVED, .limit = 9});
    assert_int_equal(page.count, 1);
    assert_int_equal(page.item[0].id, op.audit_id);
    assert_int_equal(page.item[0].effect_id, effects.id[1]);
    assert_string_equal(page.item[0].reason, "sent");
    assert_string_equal(page.item[0].note, "asked them");
    assert_string_equal(page.item[0].key, "k1");
    assert_string_equal(page.item[0].route, "payments");
    assert_string_equal(page.item[0].method, "POST");
    assert_string_equal(page.item[0].path, "/v1/charges");
    assert_int_equal(page.item[0].token, 8);
    page = query(fx->store, &(struct audit_filter){.ns = text("default"), .key = text("k1"), .limit = 9});
    assert_int_equal(page.count, 2); /* by key too: unknown, resolved */
}

static void test_what_runs_and_what_is_unknown(void **state)
{
    struct fixture *fx = *state;
    struct store_op op[4];
    uint64_t next, record_id[4];
    for (size_t i = 0; i < 4; i++)
        op[i] = admit_effect(fx->store, "k", 7 + i);
    for (size_t i = 0; i < 3; i++) {
        struct audit_record end = {.kind = i == 0 ? AUDIT_SENT : AUDIT_UNKNOWN,
                                   .effect_id = op[i].effect_id,
                                   .ns = text("default"),
                                   .key = text("k"),
                                   .token = 7 + i};
        record_id[i] = record(fx->store, &end).audit_id;
    }
    struct kept kept = EFFECTS(fx->store, 8, .state = EFFECTS_RUNNING);
    assert_int_equal(kept.count, 1);
    assert_int_equal(kept.item[0].id, op[3].effect_id);
    assert_int_equal(EFFECTS(fx->store, 8, .state = EFFECTS_IN_DOUBT).count, 0);
    kept = EFFECTS(fx->store, 8, .state = EFFECTS_UNKNOWN);
    assert_int_equal(kept.count, 2);
    assert_int_equal(kept.item[0].effect_id, op[1].effect_id);
    assert_int_equal(kept.item[0].id, record_id[1]);
    assert_int_equal(kept.item[1].effect_id, op[2].effect_id);
    kept = EFFECTS(fx->store, 1, .state = EFFECTS_UNKNOWN);
    assert_int_equal(next, op[1].effect_id);
    kept = EFFECTS(fx->store, 8, .state = EFFECTS_UNKNOWN, .after = next);
    assert_int_equal(kept.count, 1);
    assert_int_equal(kept.item[0].id, record_id[2]);
    assert_int_equal(EFFECTS(fx->store, 8, .state = EFFECTS_UNKNOWN, .ns = text("other")).count, 0);
    assert_int_equal(EFFECTS(fx->store, 8, .state = EFFECTS_RUNNING, .key = text("j")).count, 0);
    assert_int_equal(resolve(fx->store, op[1].effect_id, "sent").error, STORE_OK);
    kept = EFFECTS(fx->store, 8, .state = EFFECTS_UNKNOWN);
    assert_int_equal(kept.count, 1);
    assert_int_equal(kept.item[0].effect_id, op[2].effect_id);
}

/* Nobody serves the store yet: no record says so, but nothing can be running. */
static void test_what_a_crash_left_is_in_doubt_before_the_next_start(void **state)
{
    struct fixture *fx = *state;
    struct store *look;
    uint64_t next;
    char why[256];
    in_child(fx, begin_and_crash);
    assert_int_equal(store_open_readonly(fx->path, &look, why, sizeof why), STORE_OK);
    struct kept kept = EFFECTS(look, 8, .state = EFFECTS_IN_DOUBT);
    assert_int_equal(kept.count, 5);
    assert_int_equal(kept.item[4].token, 11);
    assert_int_equal(EFFECTS(look, 8, .state = EFFECTS_RUNNING).count, 0);
    store_close(&look);

    char lock[128]; /* one that can't be looked at: it may be served */
    (void)snprintf(lock, sizeof lock, "%s/gateway.lock", fx->path);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(symlink("gateway.lock", lock), 0);
    assert_int_equal(store_open_readonly(fx->path, &look, why, sizeof why), STORE_OK);
    assert_int_equal(EFFECTS(look, 8, .state = EFFECTS_IN_DOUBT).count, 0);
    assert_int_equal(EFFECTS(look, 8, .state = EFFECTS_RUNNING).count, 5);
    store_close(&look);
}

static void test_pages_of_effects(void **state)
{
    struct fixture *fx = *state;
    uint64_t next = 0;
    in_child(fx, begin_and_crash);
    open_store(fx);
    uint64_t running = admit_effect(fx->store, "k", 50).effect_id; /* is not in doubt */
    struct effects first = in_doubt(fx->store, 0, 3, &next);
    assert_int_equal(first.count, 3);
    assert_int_equal(next, first.id[2]);
    struct effects second = in_doubt(fx->store, next, 3, &next);
    assert_int_equal(second.count, 2);
    assert_int_equal(next, 0);
    assert_string_equal(second.key[0], "k3");
    assert_int_equal(resolve(fx->store, running, "sent").error, STORE_NOT_FOUND);
    assert_int_equal(close_effect(fx->store, running, AUDIT_SENT).error, STORE_OK);
    assert_int_equal(resolve(fx->store, running, "sent").error, STORE_NOT_FOUND);
    assert_int_equal(resolve(fx->store, UINT64_MAX, "sent").error, STORE_NOT_FOUND);
}

/* Recorded `unknown` by a gateway that lived: not in doubt, to be resolved once all the same. */
static void test_resolve_what_is_unknown(void **state)
{
    struct fixture *fx = *state;
    uint64_t next, id = admit_effect(fx->store, "k", 7).effect_id;
    assert_int_equal(close_effect(fx->store, id, AUDIT_UNKNOWN).error, STORE_OK);
    assert_int_equal(in_doubt(fx->store, 0, 9, &next).count, 0);
    reopen(fx);
    assert_int_equal(health(fx->store).in_doubt, 0);
    assert_int_equal(all_records(fx->store).count, 1); /* no leftover of a crash */
    assert_int_equal(resolve(fx->store, id, "not-sent").error, STORE_OK);
    assert_int_equal(resolve(fx->store, id, "not-sent").error, STORE_ALREADY);
    assert_int_equal(health(fx->store).in_doubt, 0);
    struct page page = query(fx->store, &(struct audit_filter){.kind = AUDIT_RESOLVED, .limit = 9});
    assert_int_equal(page.count, 1);
    assert_string_equal(page.item[0].reason, "not-sent");
    assert_string_equal(page.item[0].key, "k");
    assert_string_equal(page.item[0].path, "/v1/charges");
    assert_int_equal(page.item[0].effect_id, id);
}

/* One batch: closed, resolved, resolved again. What the second finds lies on a page of the same transaction. */
static void test_resolve_within_a_batch(void **state)
{
    struct fixture *fx = *state;
    uint64_t id = admit_effect(fx->store, "k", 7).effect_id;
    struct call calls[3];
    struct stopper stopper;
    admit_init(&stopper.call, "stop", 1);
    stopper.call.op.done = stop_here;
    pthread_mutex_init(&stopper.go, NULL);
    pthread_mutex_lock(&stopper.go);
    store_submit(fx->store, &stopper.call.op);
    assert_true(call_wait(&stopper.call, 30000));
    for (size_t i = 0; i < 3; i++) {
        call_init(&calls[i]);
        calls[i].op.kind = i == 0 ? STORE_RECORD : STORE_RESOLVE;
        calls[i].op.record = (struct audit_record){.kind = i == 0 ? AUDIT_UNKNOWN : (enum audit_kind)0,
                                                   .effect_id = id,
                                                   .ns = text("default"),
                                                   .key = text("k"),
                                                   .path = text("/x"),
                                                   .reason = text("sent")};
        store_submit(fx->store, &calls[i].op);
    }
    pthread_mutex_unlock(&stopper.go);
    for (size_t i = 0; i < 3; i++)
        assert_true(call_wait(&calls[i], 30000));
    assert_int_equal(calls[0].op.error, STORE_OK);
    assert_int_equal(calls[1].op.error, STORE_OK);
    assert_int_equal(calls[2].op.error, STORE_ALREADY);
    struct page page = all_records(fx->store);
    assert_int_equal(page.count, 2);
    assert_string_equal(page.item[1].path, "/x");
    pthread_mutex_destroy(&stopper.go);
}

/* Retention. */

static void age(struct store *store, struct audit_record *subject, uint64_t ms)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    subject->time_ms = (uint64_t)now.tv_sec * 1000 - ms;
    assert_int_equal(record(store, subject).error, STORE_OK);
}

static void wait_for_count(struct store *store, size_t count)
{
    for (int i = 0; i < 3000 && all_records(store).count != count; i++)
        (void)poll(NULL, 0, 10);
    assert_int_equal(all_records(store).count, count);
}

/* The possibility to resolve goes with the record, the memory of a resolution with the resolution's record. */
static uint64_t removed(struct store *store)
{
    struct store_reader *reader;
    uint64_t id = 77;
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    assert_int_equal(store_removed(reader, &id), STORE_OK);
    store_reader_close(&reader);
    return id;
}

static void test_retention_of_what_is_unknown(void **state)
{
    struct fixture *fx = *state;
    enum { HOUR = 3600 * 1000 };
    struct audit_record subject = {.kind = AUDIT_UNKNOWN, .ns = text("default"), .key = text("k")};
    uint64_t open = admit_effect(fx->store, "k", 7).effect_id, resolved = admit_effect(fx->store, "k", 7).effect_id;
    subject.effect_id = open;
    age(fx->store, &subject, 2 * HOUR);
    subject.effect_id = resolved;
    age(fx->store, &subject, 2 * HOUR);
    assert_int_equal(resolve(fx->store, resolved, "sent").error, STORE_OK);
    assert_int_equal(removed(fx->store), 0);
    store_retention(fx->store, HOUR, false, 0);
    wait_for_count(fx->store, 2); /* the one that is not resolved, and the resolution of the other */
    assert_int_equal(all_records(fx->store).item[0].effect_id, open);
    assert_int_equal(removed(fx->store), all_records(fx->store).item[1].id - 1);
    reopen(fx);
    store_retention(fx->store, HOUR, false, 0);
    assert_int_equal(resolve(fx->store, open, "sent").error, STORE_OK);
    wait_for_count(fx->store, 2); /* both resolutions: the record went with its resolution */
    assert_int_equal(resolve(fx->store, open, "sent").error, STORE_ALREADY);
    assert_int_equal(resolve(fx->store, resolved, "sent").error, STORE_ALREADY);
    store_retention(fx->store, 1, false, 0);
    wait_for_count(fx->store, 0);
    assert_int_equal(resolve(fx->store, resolved, "sent").error, STORE_NOT_FOUND);
}

static void test_retention_leaves_what_is_in_doubt(void **state)
{
    struct fixture *fx = *state;
    uint64_t next;
    in_child(fx, begin_and_crash);
    fx->options.retain_ms = 1;
    open_store(fx);
    wait_for_count(fx->store, 5); /* their own */
    assert_int_equal(in_doubt(fx->store, 0, 9, &next).count, 5);
    reopen(fx);
    struct effects effects = in_doubt(fx->store, 0, 9, &next);
    assert_int_equal(effects.count, 5);
    store_retention(fx->store, 0, false, 0);
    assert_int_equal(resolve(fx->store, effects.id[0], "sent").error, STORE_OK);
    assert_int_equal(resolve(fx->store, effects.id[0], "sent").error, STORE_ALREADY);
    assert_int_equal(health(fx->store).in_doubt, 4);
}

/* A full store. */

static int setup_small(void **state)
{
    if (fixture_folder(state) != 0)
        return -1;
    ((struct fixture *)*state)->options.max_size = 2 * MIB;
    open_store(*state);
    return 0;
}

enum { GROUP = 64, LIMIT = 100000 };

static enum store_error fill_with_fences(struct store *store)
{
    enum store_error error = STORE_OK;
    for (size_t fences = 0; fences < LIMIT && error == STORE_OK;) {
        struct call calls[GROUP];
        char keys[GROUP][32];
        for (size_t i = 0; i < GROUP; i++) {
            (void)snprintf(keys[i], sizeof keys[i], "fence-%zu", ((fences + i) * 7919) % LIMIT);
            admit_init(&calls[i], keys[i], 1);
        }
        error = calls_run(store, calls, GROUP, &fences);
    }
    return error;
}

/* From token 2 on. *highest: of those that were taken. */
static enum store_error raise_without_end(struct store *store, const char *key, uint64_t *highest)
{
    enum store_error error = STORE_OK;
    uint64_t token = 2;
    for (size_t raises = 0; raises < LIMIT && error == STORE_OK;) {
        struct call calls[GROUP];
        for (size_t i = 0; i < GROUP; i++) {
            call_init(&calls[i]);
            calls[i].op.kind = STORE_RAISE;
            calls[i].op.record = (struct audit_record){
                .ns = text("default"), .key = text(key), .token = token++, .client = text("127.0.0.1:7")};
        }
        error = calls_run(store, calls, GROUP, &raises);
        for (size_t i = 0; i < GROUP; i++)
            *highest = calls[i].op.error == STORE_OK ? calls[i].op.record.token : *highest;
    }
    return error;
}

static void test_full_store_takes_operators(void **state)
{
    struct fixture *fx = *state;
    enum { EFFECTS = 40 };
    uint64_t ids[EFFECTS];
    char key[32];
    for (size_t i = 0; i < EFFECTS; i++) {
        (void)snprintf(key, sizeof key, "effect-%zu", i);
        ids[i] = admit_effect(fx->store, key, 7).effect_id;
    }
    assert_int_equal(close_effect(fx->store, ids[0], AUDIT_UNKNOWN).error, STORE_OK);
    assert_int_equal(fill_with_fences(fx->store), STORE_FULL);
    assert_int_equal(raise_fence(fx->store, "fence-0", 9).error, STORE_OK);
    assert_int_equal(reset_fence(fx->store, "fence-0").error, STORE_OK);
    assert_int_equal(resolve(fx->store, ids[0], "sent").error, STORE_OK);
    uint64_t highest = 0; /* raises without end don't eat what outcomes need */
    assert_int_equal(raise_without_end(fx->store, "fence-7919", &highest), STORE_FULL);
    assert_true(fence_of(fx->store, "fence-7919") == highest);
    for (size_t i = 1; i < EFFECTS; i++)
        assert_int_equal(close_effect(fx->store, ids[i], AUDIT_UNKNOWN).error, STORE_OK);
    assert_int_equal(reset_fence(fx->store, "fence-7919").error, STORE_OK);
    assert_int_equal(resolve(fx->store, ids[1], "sent").error, STORE_OK);
}

/* Fences. */

struct fences {
    char line[64][48]; /* namespace/key=token */
    size_t count;
    char last_ns[64], last_key[255];
    size_t last_ns_len, last_key_len;
};

static bool keep_fence(void *arg, const struct fence_entry *entry)
{
    struct fences *fences = arg;
    assert_true(fences->count < 64);
    assert_true(entry->fence.updated_ms > 1600000000000);
    (void)snprintf(fences->line[fences->count++], 48, "%.*s/%.*s=%d", (int)entry->ns.len, entry->ns.data,
                   (int)entry->key.len, entry->key.data, (int)entry->fence.token);
    memcpy(fences->last_ns, entry->ns.data, entry->ns.len);
    memcpy(fences->last_key, entry->key.data, entry->key.len);
    fences->last_ns_len = entry->ns.len;
    fences->last_key_len = entry->key.len;
    return true;
}

static void expect_fences(struct store *store, const char *ns, const char *prefix, const char *expected)
{
    for (size_t limit = 1; limit < 12; limit++) {
        struct fences fences = {.count = 0};
        struct fence_filter filter = {.limit = limit};
        struct store_reader *reader;
        bool more = true;
        char all[1024] = "";
        if (ns)
            filter.ns = text(ns);
        if (prefix)
            filter.prefix = text(prefix);
        assert_int_equal(store_reader_open(store, &reader), STORE_OK);
        for (size_t before = 0; more; before = fences.count) {
            assert_int_equal(store_fences_query(reader, &filter, keep_fence, &fences, &more), STORE_OK);
            assert_in_range(fences.count - before, more ? limit : 0, limit);
            filter.after_ns = (struct slice){fences.last_ns, fences.last_ns_len};
            filter.after_key = (struct slice){fences.last_key, fences.last_key_len};
        }
        store_reader_close(&reader);
        for (size_t i = 0; i < fences.count; i++) {
            (void)strcat(all, i > 0 ? " " : "");
            (void)strcat(all, fences.line[i]);
        }
        assert_string_equal(all, expected);
    }
}

static void put_fence(struct store *store, const char *ns, const char *key, uint64_t token)
{
    struct call call;
    admit_init(&call, key, token);
    call.op.record.ns = text(ns);
    call_run(store, &call);
    assert_int_equal(call.op.error, STORE_OK);
}

static void test_list_of_fences(void **state)
{
    struct fixture *fx = *state;
    expect_fences(fx->store, NULL, NULL, "");
    expect_fences(fx->store, "a", "x", "");
    static const char *const names[] = {"a", "a-b", "a.b", "b", "A"};
    static const char *const keys[] = {"order", "order-1", "order-10", "order-2", "z"};
    uint64_t token = 1;
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 5; j += i + 1)
            put_fence(fx->store, names[i], keys[j], token++);
    expect_fences(fx->store, NULL, NULL,
                  "A/order=13 a/order=1 a/order-1=2 a/order-10=3 a/order-2=4 a/z=5 a-b/order=6 a-b/order-10=7 a-b/z=8 "
                  "a.b/order=9 a.b/order-2=10 b/order=11 b/z=12");
    expect_fences(fx->store, "a", NULL, "a/order=1 a/order-1=2 a/order-10=3 a/order-2=4 a/z=5");
    expect_fences(fx->store, "a", "order-1", "a/order-1=2 a/order-10=3");
    expect_fences(fx->store, "a", "order-1000", "");
    expect_fences(fx->store, "a", "zz", "");
    expect_fences(fx->store, NULL, "order-1", "a/order-1=2 a/order-10=3 a-b/order-10=7");
    expect_fences(fx->store, NULL, "z", "a/z=5 a-b/z=8 b/z=12");
    expect_fences(fx->store, NULL, "y", "");
    expect_fences(fx->store, "a-", NULL, "");
    expect_fences(fx->store, "c", NULL, "");
    expect_fences(fx->store, "b", "order", "b/order=11");
}

/* More than one slice, and the longest names there can be. */
static void test_long_list_of_fences(void **state)
{
    struct fixture *fx = *state;
    char ns[65], key[256], shown[16];
    memset(ns, 'n', 64);
    ns[64] = '\0';
    memset(key, '\xff', 255);
    key[255] = '\0';
    put_fence(fx->store, ns, key, 1);
    for (int i = 0; i < 300; i++) {
        (void)snprintf(shown, sizeof shown, "key-%03d", i);
        put_fence(fx->store, "default", shown, 1);
    }
    struct fence_filter filter = {.limit = 60};
    struct store_reader *reader;
    size_t total = 0;
    struct fences fences;
    bool more = true;
    assert_int_equal(store_reader_open(fx->store, &reader), STORE_OK);
    while (more) {
        fences.count = 0;
        assert_int_equal(store_fences_query(reader, &filter, keep_fence, &fences, &more), STORE_OK);
        total += fences.count;
        filter.after_ns = (struct slice){fences.last_ns, fences.last_ns_len};
        filter.after_key = (struct slice){fences.last_key, fences.last_key_len};
    }
    store_reader_close(&reader);
    assert_int_equal(total, 301);
    assert_int_equal(fences.last_key_len, 255);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)
#define FOLDER(test) cmocka_unit_test_setup_teardown(test, fixture_folder, fixture_close)
    const struct CMUnitTest tests[] = {
        FRESH(test_raise),
        FRESH(test_reset),
        FRESH(test_bad_subjects),
        cmocka_unit_test_setup_teardown(test_order_within_a_batch, setup_hearing, fixture_close),
        FOLDER(test_resolve_what_is_in_doubt),
        FOLDER(test_pages_of_effects),
        FOLDER(test_what_a_crash_left_is_in_doubt_before_the_next_start),
        FRESH(test_what_runs_and_what_is_unknown),
        FRESH(test_resolve_what_is_unknown),
        FRESH(test_resolve_within_a_batch),
        FRESH(test_retention_of_what_is_unknown),
        FOLDER(test_retention_leaves_what_is_in_doubt),
        cmocka_unit_test_setup_teardown(test_full_store_takes_operators, setup_small, fixture_close),
        FRESH(test_list_of_fences),
        FRESH(test_long_list_of_fences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
