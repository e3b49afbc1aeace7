/* Tests of the room that is kept for known keys: new ones are refused first, and what goes on is recorded. */
#include "tests/unit/store_fixture.h"

enum { GROUP = 100, GROUPS_MAX = 1000 };

/* New keys of 240 bytes, token 1. Returns how many were taken. */
static size_t new_keys(struct store *store)
{
    static unsigned number;
    struct call calls[GROUP];
    char keys[GROUP][256];
    size_t taken = 0;
    for (size_t i = 0; i < GROUP; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "%0240u", number++ * 7919 % 1000003);
        admit_init(&calls[i], keys[i], 1);
        store_submit(store, &calls[i].op);
    }
    for (size_t i = 0; i < GROUP; i++) {
        assert_true(call_wait(&calls[i], 30000));
        taken += calls[i].op.error == STORE_OK ? 1 : 0;
        assert_true(calls[i].op.error == STORE_OK || calls[i].op.error == STORE_FULL);
    }
    return taken;
}

/* A call of a key with its outcome, recorded. */
static enum store_error whole_call(struct store *store, const char *key, uint64_t token)
{
    struct call call;
    admit_init(&call, key, token);
    call.op.admit.intent = call.op.admit.equal_allowed = true;
    call_run(store, &call);
    if (call.op.error != STORE_OK)
        return call.op.error;
    struct audit_record end = {
        .kind = AUDIT_SENT, .ns = text("default"), .key = text(key), .effect_id = call.op.effect_id};
    assert_int_equal(record(store, &end).error, STORE_OK);
    return STORE_OK;
}

static void fill(struct store *store)
{
    int groups = 0;
    while (new_keys(store) == GROUP)
        assert_true(++groups < GROUPS_MAX);
}

static void test_known_keys_go_on(void **state)
{
    struct fixture *fx = *state;
    assert_int_equal(whole_call(fx->store, "known", 1), STORE_OK);
    fill(fx->store);
    assert_true(noticed(fx, "calls that would make a new key and stale ones are store-unavailable"));
    for (uint64_t token = 1; token < 50; token++)
        assert_int_equal(whole_call(fx->store, "known", token), STORE_OK);
    assert_int_equal(whole_call(fx->store, "new", 1), STORE_FULL);
    assert_int_equal(new_keys(fx->store), 0);
    assert_true(store_writable(fx->store));
    reopen(fx);
    assert_int_equal(whole_call(fx->store, "known", 50), STORE_OK);
    assert_int_equal(whole_call(fx->store, "new", 1), STORE_FULL);
}

/* A stale worker in a loop: its drops end where the rest is for known keys, and their current calls go on. */
static void test_drops_leave_the_rest(void **state)
{
    struct fixture *fx = *state;
    struct call call;
    static char path[1024];
    int drops = 0;
    memset(path, 'p', sizeof path);
    assert_int_equal(whole_call(fx->store, "known", 9), STORE_OK);
    do {
        admit_init(&call, "known", 1);
        call.op.record.path = (struct slice){path, sizeof path};
        call_run(fx->store, &call);
        assert_true(call.op.error == STORE_FULL || call.op.verdict == VERDICT_STALE);
        assert_true(++drops < 10000);
    } while (call.op.error == STORE_OK);
    assert_int_equal(call.op.audit_id, 0);
    assert_false(store_roomy(fx->store));
    assert_true(store_writable(fx->store));
    struct audit_record drop = {.kind = AUDIT_DROPPED, .ns = text("default"), .key = text("known"), .token = 1};
    assert_int_equal(record(fx->store, &drop).error, STORE_FULL);
    admit_init(&call, "", 0);
    call.op.admit.undecided = call.op.admit.intent = true;
    call_run(fx->store, &call);
    assert_int_equal(call.op.error, STORE_FULL);
    for (uint64_t token = 9; token < 60; token++)
        assert_int_equal(whole_call(fx->store, "known", token), STORE_OK);
    fx->options.max_size *= 2;
    reopen(fx);
    assert_true(store_roomy(fx->store));
    assert_int_equal(record(fx->store, &drop).error, STORE_OK);
}

/* Where the oldest records go, new keys find room for as long as there are old records. */
static void test_drop_oldest(void **state)
{
    struct fixture *fx = *state;
    static char path[1024];
    struct audit_record old = {.kind = AUDIT_DROPPED, .ns = text("default"), .key = text("k"), .path = {path, 1024}};
    memset(path, 'p', sizeof path);
    store_retention(fx->store, 0, true, 0);
    for (int i = 0; i < 4000; i++)
        assert_int_equal(record(fx->store, &old).error, STORE_OK);
    size_t taken = 0;
    for (int i = 0; i < 20; i++)
        taken += new_keys(fx->store);
    assert_true(taken > 18 * GROUP);
    fill(fx->store);
    assert_int_equal(whole_call(fx->store, "k", 1), STORE_FULL);
    assert_true(store_writable(fx->store));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_known_keys_go_on, fixture_small, fixture_close),
        cmocka_unit_test_setup_teardown(test_drops_leave_the_rest, fixture_small, fixture_close),
        cmocka_unit_test_setup_teardown(test_drop_oldest, fixture_small, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
