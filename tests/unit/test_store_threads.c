/*
 * Tests of store/writer.c with many threads, meant to run under ThreadSanitizer too.
 *
 * Results come on one thread, in the order in which operations were applied: a model that replays the rule in that
 * order must agree with every verdict.
 */
#include "tests/unit/store_fixture.h"

#include <stdatomic.h>

#define KEYS 3
#define THREADS 4
#define WINDOW 16
#define ROUNDS 60

static const char *const keys[KEYS] = {"alpha", "beta", "gamma"};

/* Written by the writer's thread alone, read after it has ended. */
static struct {
    uint64_t fence[KEYS], raised[KEYS], last_id;
    unsigned accepted, refused, raises, effects;
    char wrong[128];
} model;

static atomic_uint_fast64_t next_token[KEYS];
static atomic_bool over;

static size_t key_index(struct slice key)
{
    size_t i = 0;
    while (i < KEYS - 1 && (key.len != strlen(keys[i]) || memcmp(key.data, keys[i], key.len) != 0))
        i++;
    return i;
}

static void wrong(const char *what, uint64_t token)
{
    if (!model.wrong[0])
        (void)snprintf(model.wrong, sizeof model.wrong, "%s at token %lu", what, (unsigned long)token);
}

static void on_raised(void *arg, struct slice ns, struct slice key, uint64_t token)
{
    (void)arg;
    (void)ns;
    size_t k = key_index(key);
    if (token <= model.raised[k])
        wrong("raise that does not rise", token);
    model.raised[k] = token;
    model.raises++;
}

static void check_id(uint64_t id, uint64_t token)
{
    if (id <= model.last_id)
        wrong("id that does not rise", token);
    model.last_id = id;
}

static void on_admitted(struct store_op *op)
{
    size_t k = key_index(op->record.key);
    uint64_t token = op->record.token;
    enum store_verdict verdict = token > model.fence[k] ? VERDICT_ACCEPTED : VERDICT_STALE;
    if (token == model.fence[k])
        verdict = VERDICT_USED;
    if (op->error != STORE_OK || op->verdict != verdict)
        wrong("verdict", token);
    if (verdict == VERDICT_ACCEPTED) {
        model.accepted++;
        model.effects++;
        model.fence[k] = token;
        if (model.raised[k] < token)
            wrong("result before its raise", token);
        check_id(op->effect_id, token);
    } else {
        model.refused++;
        check_id(op->audit_id, token);
    }
    if (op->highest != model.fence[k])
        wrong("highest", token);
    call_done(op);
}

static void on_recorded(struct store_op *op)
{
    if (op->error != STORE_OK)
        wrong("outcome", op->record.token);
    check_id(op->audit_id, op->record.token);
    model.effects--;
    call_done(op);
}

/* Tokens near the counter: fresh ones, ones that others have used, and ones that are behind. */
static uint64_t pick_token(size_t k, unsigned *seed)
{
    uint64_t fresh = atomic_fetch_add(&next_token[k], 1) + 10;
    return fresh - (uint64_t)(rand_r(seed) % 8);
}

static void settle(struct store *store, struct call *admitted)
{
    static const struct audit_record outcome = {.kind = AUDIT_SENT};
    struct call call;
    call_init(&call);
    call.op.kind = STORE_RECORD;
    call.op.done = on_recorded;
    call.op.record = outcome;
    call.op.record.effect_id = admitted->op.effect_id;
    call.op.record.ns = admitted->op.record.ns;
    call.op.record.key = admitted->op.record.key;
    call_run(store, &call);
}

static void *admit_and_settle(void *arg)
{
    struct fixture *fx = arg;
    unsigned seed = (unsigned)(uintptr_t)&seed;
    struct call calls[WINDOW];
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < WINDOW; i++) {
            size_t k = (size_t)rand_r(&seed) % KEYS;
            admit_init(&calls[i], keys[k], pick_token(k, &seed));
            calls[i].op.done = on_admitted;
            calls[i].op.admit.equal_allowed = false;
            calls[i].op.admit.intent = true;
            store_submit(fx->store, &calls[i].op);
        }
        for (size_t i = 0; i < WINDOW; i++) {
            if (!call_wait(&calls[i], 60000))
                return fx;
        }
        for (size_t i = 0; i < WINDOW; i++) {
            if (calls[i].op.verdict == VERDICT_ACCEPTED)
                settle(fx->store, &calls[i]);
        }
    }
    return NULL;
}

/* What readers see of a fence never goes down. */
static void *watch_fences(void *arg)
{
    struct fixture *fx = arg;
    uint64_t last[KEYS] = {0};
    struct store_reader *reader;
    if (store_reader_open(fx->store, &reader) != STORE_OK)
        return fx;
    bool good = true;
    while (!atomic_load(&over) && good) {
        for (size_t k = 0; k < KEYS; k++) {
            struct fence fence = {0};
            enum store_error error = store_fence_get(reader, text("default"), text(keys[k]), &fence);
            good = good && (error == STORE_OK || error == STORE_NOT_FOUND) && fence.token >= last[k];
            last[k] = fence.token;
        }
        struct store_health is;
        store_health(fx->store, &is);
        good = good && is.writable;
    }
    store_reader_close(&reader);
    return good ? NULL : fx;
}

static void test_many_threads(void **state)
{
    struct fixture *fx = *state;
    pthread_t writers[THREADS], watcher;
    void *failed;
    fx->options.raised = on_raised;
    open_store(fx);
    assert_int_equal(pthread_create(&watcher, NULL, watch_fences, fx), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, admit_and_settle, fx), 0);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(writers[i], &failed), 0);
        assert_null(failed);
    }
    atomic_store(&over, true);
    assert_int_equal(pthread_join(watcher, &failed), 0);
    assert_null(failed);
    struct store_health after = health(fx->store);
    reopen(fx);
    assert_string_equal(model.wrong, "");
    assert_int_equal(model.accepted + model.refused, THREADS * ROUNDS * WINDOW);
    assert_int_equal(model.raises, model.accepted); /* equal tokens are refused: every acceptance is a raise */
    assert_true(model.accepted > 100 && model.refused > 100);
    assert_int_equal(model.effects, 0);
    assert_int_equal(health(fx->store).in_doubt, 0);
    assert_true(after.commits * 2 < after.operations); /* they shared commits */
    for (size_t k = 0; k < KEYS; k++)
        assert_int_equal(fence_of(fx->store, keys[k]), model.fence[k]);
}

/* Closing while others submit: every operation gets its one result, done or refused. */
static atomic_uint results;

static void count_result(struct store_op *op)
{
    if (op->error != STORE_OK && op->error != STORE_CLOSED)
        atomic_fetch_add(&results, 1000000);
    atomic_fetch_add(&results, 1);
}

struct burst {
    struct fixture *fx;
    struct call calls[2000];
    pthread_barrier_t *leave; /* the store may be freed once nobody submits any more */
};

static void *submit_burst(void *arg)
{
    struct burst *burst = arg;
    for (size_t i = 0; i < 2000; i++) {
        admit_init(&burst->calls[i], "k", i + 1);
        burst->calls[i].op.done = count_result;
        store_submit(burst->fx->store, &burst->calls[i].op);
    }
    pthread_barrier_wait(burst->leave);
    return NULL;
}

struct stopper {
    struct store_op op;
    pthread_barrier_t *leave;
};

static void wait_for_burst(struct store_op *op)
{
    pthread_barrier_wait(((struct stopper *)op)->leave);
}

static void test_submit_while_closing(void **state)
{
    struct fixture *fx = *state;
    struct burst *burst = calloc(1, sizeof *burst);
    assert_non_null(burst);
    pthread_barrier_t leave;
    pthread_barrier_init(&leave, NULL, 2);
    burst->fx = fx;
    burst->leave = &leave;
    /* The first operation holds the writer until the last one was submitted, so the close can't overtake. */
    struct stopper stopper = {.op = {.kind = STORE_RECORD, .done = wait_for_burst, .record = {.kind = AUDIT_RESET}},
                              .leave = &leave};
    store_submit(fx->store, &stopper.op);
    pthread_t thread;
    struct store *store = fx->store;
    assert_int_equal(pthread_create(&thread, NULL, submit_burst, burst), 0);
    store_close(&store);
    assert_int_equal(pthread_join(thread, NULL), 0);
    fx->store = NULL;
    assert_int_equal(atomic_load(&results), 2000);
    pthread_barrier_destroy(&leave);
    free(burst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many_threads, fixture_folder, fixture_close),
        cmocka_unit_test_setup_teardown(test_submit_while_closing, fixture_open, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
