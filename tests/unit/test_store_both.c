/*
 * A store with a journal and one without, and the same operations in the same chunks: the same results, the same
 * contents, and the same after crashes in between.
 */
#include "tests/unit/tail_case.h"

enum { KEYS = 6, MOST = 24, ROUNDS = 40, SEEDS = 3, EFFECTS = 4096 };

struct both {
    struct tail_case *with, *without;
    uint64_t seed, effect[EFFECTS];
    size_t effects, crashes, came_back;
};

static int both_folders(void **state)
{
    struct both *both = calloc(1, sizeof *both);
    if (both == NULL || tail_case_folder((void **)&both->with) != 0 || tail_case_folder((void **)&both->without) != 0)
        return -1;
    both->without->fx.options.journal = both->without->copy.options.journal = false;
    open_store(&both->with->fx);
    open_store(&both->without->fx);
    *state = both;
    return 0;
}

static int both_close(void **state)
{
    struct both *both = *state;
    int rc = tail_case_close((void **)&both->with) | tail_case_close((void **)&both->without);
    free(both);
    return rc;
}

static uint64_t draw(struct both *both, uint64_t below)
{
    both->seed = both->seed * 6364136223846793005u + 1442695040888963407u;
    return (both->seed >> 33) % below;
}

static uint64_t some_effect(struct both *both)
{
    return both->effects == 0 || draw(both, 16) == 0 ? draw(both, 1000) : both->effect[draw(both, both->effects)];
}

static void init_record(struct both *both, struct store_op *op)
{
    static const enum audit_kind kinds[] = {AUDIT_SENT, AUDIT_NOT_SENT, AUDIT_UNKNOWN};
    op->kind = STORE_RECORD;
    op->record.kind = draw(both, 4) == 0 ? AUDIT_REJECTED : kinds[draw(both, 3)];
    op->record.effect_id = op->record.kind == AUDIT_REJECTED ? 0 : some_effect(both);
    op->record.reason = text("why");
}

static void init_operator(struct both *both, struct store_op *op)
{
    static const enum store_op_kind kinds[] = {STORE_RAISE, STORE_RESET, STORE_RESOLVE};
    op->kind = kinds[draw(both, 3)];
    op->record.effect_id = op->kind == STORE_RESOLVE ? some_effect(both) : 0;
    op->record.reason = text(op->kind == STORE_RESOLVE ? "sent" : "an operator's");
    op->record.note = text("note");
}

/* The same in both calls. */
static void init_random(struct both *both, struct call *one, struct call *other)
{
    static const char *const keys[KEYS] = {"a", "b", "order-17", "order-18", "\xc3\xa9", "z"};
    admit_init(one, keys[draw(both, KEYS)], 1 + draw(both, 30));
    struct store_op *op = &one->op;
    op->record.ns = text(draw(both, 4) == 0 ? "other" : "default");
    op->record.time_ms = 1700000000000 + draw(both, 1000000);
    op->admit.intent = draw(both, 2) == 0;
    op->admit.equal_allowed = draw(both, 2) == 0;
    op->admit.max_jump = draw(both, 3) == 0 ? 5 : 0;
    op->admit.observe = draw(both, 6) == 0;
    op->admit.undecided = draw(both, 12) == 0;
    uint64_t kind = draw(both, 10);
    if (kind >= 8)
        init_operator(both, op);
    else if (kind >= 5)
        init_record(both, op);
    if (draw(both, 40) == 0)
        op->record.key = text(""); /* no valid one */
    call_init(other);
    other->op = one->op;
}

static void assert_same_result(const struct store_op *one, const struct store_op *other)
{
    assert_int_equal(one->error, other->error);
    assert_int_equal(one->verdict, other->verdict);
    assert_int_equal(one->highest, other->highest);
    assert_int_equal(one->effect_id, other->effect_id);
    assert_int_equal(one->audit_id, other->audit_id);
}

static void assert_same_contents(struct store *one, struct store *other)
{
    char *left = contents(one), *right = contents(other);
    assert_string_equal(left, right);
    free(left);
    free(right);
}

static void pass_over(void *arg, const struct store_finding *finding)
{
    (void)arg;
    (void)finding;
}

/* There are some: outcomes of effects that never were. */
static uint64_t findings(struct store *store)
{
    struct store_contents out;
    struct store_checker checker = {.finding = pass_over};
    uint64_t count;
    assert_int_equal(store_verify(store, &checker, &out, &count), STORE_OK);
    return count;
}

static void take_copy_without(void *arg)
{
    const struct tail_case *at = arg;
    remove_from(at->crashed, "lock.mdb");
    remove_from(at->crashed, "gateway.lock");
    copy_file(at->fx.path, at->crashed, "data.mdb");
}

/* Both have crashed at the same moment: what commands see, what the next start makes of it, and how ids go on. */
static void compare_crashed(struct both *both)
{
    bool readonly = draw(both, 2) == 0; /* the first one brings back what is in the journal */
    for (size_t i = 0; i < 2; i++, readonly = !readonly) {
        assert_int_equal(open_copy(both->with, readonly), STORE_OK);
        assert_int_equal(open_copy(both->without, readonly), STORE_OK);
        struct store *one = both->with->copy.store, *other = both->without->copy.store;
        assert_same_contents(one, other);
        assert_int_equal(findings(one), findings(other));
        both->came_back += noticed(&both->with->copy, "came back") ? 1 : 0;
        if (!readonly) {
            assert_int_equal(health(one).in_doubt, health(other).in_doubt);
            struct store_op next = admit_effect(one, "a", 1000), same = admit_effect(other, "a", 1000);
            assert_same_result(&next, &same);
        }
        store_close(&both->with->copy.store);
        store_close(&both->without->copy.store);
    }
    both->crashes++;
}

static void run_both(struct both *both)
{
    struct call one[MOST], other[MOST];
    struct call *ones[MOST], *others[MOST];
    size_t count = 1 + draw(both, MOST);
    bool crash = draw(both, 4) == 0;
    for (size_t i = 0; i < count; i++) {
        init_random(both, &one[i], &other[i]);
        ones[i] = &one[i];
        others[i] = &other[i];
    }
    run_chunk(both->with->fx.store, ones, count, crash ? take_copy : NULL, both->with);
    run_chunk(both->without->fx.store, others, count, crash ? take_copy_without : NULL, both->without);
    for (size_t i = 0; i < count; i++) {
        assert_same_result(&one[i].op, &other[i].op);
        if (one[i].op.effect_id != 0 && both->effects < EFFECTS)
            both->effect[both->effects++] = one[i].op.effect_id;
    }
    if (crash)
        compare_crashed(both);
}

static void test_same(void **state)
{
    struct both *both = *state;
    const char *told = getenv("STORE_BOTH_SEED"); /* another run than the usual ones */
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        both->seed = told == NULL ? seed : strtoull(told, NULL, 10) * SEEDS + seed;
        for (int round = 0; round < ROUNDS; round++) {
            run_both(both);
            if (draw(both, 12) == 0)
                assert_same_contents(both->with->fx.store, both->without->fx.store);
            if (draw(both, 30) == 0) {
                reopen(&both->with->fx);
                reopen(&both->without->fx);
            }
        }
    }
    assert_same_contents(both->with->fx.store, both->without->fx.store);
    assert_true(both->crashes > SEEDS * ROUNDS / 8);
    assert_true(both->came_back > both->crashes / 4); /* else data.mdb had it all, and nothing was tried here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same, both_folders, both_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
