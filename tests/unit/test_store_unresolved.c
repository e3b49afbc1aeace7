/* tests/unit/test_store_unresolved.c - how many effects wait for a resolution: by route, across starts and failures. */
#include "store_fixture.h"

#include <poll.h>

struct counts {
    struct store_unresolved of[8];
    char names[8][32];
    size_t routes;
    uint64_t total;
};

static void keep_count(void *arg, const struct store_unresolved *route)
{
    struct counts *counts = arg;
    assert_true(counts->routes < 8);
    counts->of[counts->routes] = *route;
    (void)snprintf(counts->names[counts->routes++], 32, "%s", route->route);
    counts->total += route->count;
}

static struct counts counts_of(struct store *store)
{
    struct counts counts = {.routes = 0};
    store_unresolved(store, keep_count, &counts);
    return counts;
}

static uint64_t count_of(struct store *store, const char *route)
{
    struct counts counts = counts_of(store);
    for (size_t i = 0; i < counts.routes; i++)
        if (strcmp(counts.names[i], route) == 0)
            return counts.of[i].count;
    return 0;
}

static bool count_one(void *arg, const struct audit_record *effect)
{
    (void)effect;
    ++*(uint64_t *)arg;
    return true;
}

/* What a query finds in the tables, which must be the same number. */
static uint64_t listed(struct store *store)
{
    uint64_t count = 0, next;
    struct store_reader *reader;
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    for (int i = 0; i < 2; i++) {
        const struct effects_filter filter = {.state = i == 0 ? EFFECTS_IN_DOUBT : EFFECTS_UNKNOWN, .limit = 1000};
        assert_int_equal(store_effects_query(reader, &filter, count_one, &count, &next), STORE_OK);
    }
    store_reader_close(&reader);
    return count;
}

static uint64_t begin(struct store *store, const char *route, uint64_t token)
{
    struct call call;
    admit_init(&call, "k", token);
    call.op.record.route = text(route);
    call.op.admit.intent = true;
    call_run(store, &call);
    assert_int_equal(call.op.error, STORE_OK);
    return call.op.effect_id;
}

static void end(struct store *store, const char *route, uint64_t effect, enum audit_kind kind, uint64_t time_ms)
{
    const struct audit_record outcome = {.kind = kind,
                                         .time_ms = time_ms,
                                         .effect_id = effect,
                                         .route = text(route),
                                         .ns = text("default"),
                                         .key = text("k"),
                                         .token = 7};
    assert_int_equal(record(store, &outcome).error, STORE_OK);
}

static enum store_error resolve(struct store *store, uint64_t effect)
{
    struct call call;
    call_init(&call);
    call.op.kind = STORE_RESOLVE;
    call.op.record = (struct audit_record){.effect_id = effect, .reason = text("sent")};
    call_run(store, &call);
    return call.op.error;
}

static void test_counted_by_route_until_resolved(void **state)
{
    struct fixture *fx = *state;
    uint64_t id[4];
    assert_int_equal(counts_of(fx->store).routes, 0);
    for (size_t i = 0; i < 4; i++)
        id[i] = begin(fx->store, i < 3 ? "pay" : "mail", 7 + i);
    assert_int_equal(counts_of(fx->store).total, 0); /* they run */
    end(fx->store, "pay", id[0], AUDIT_UNKNOWN, 0);
    end(fx->store, "pay", id[1], AUDIT_UNKNOWN, 0);
    end(fx->store, "pay", id[2], AUDIT_SENT, 0);
    end(fx->store, "mail", id[3], AUDIT_UNKNOWN, 0);
    assert_int_equal(count_of(fx->store, "pay"), 2);
    assert_int_equal(count_of(fx->store, "mail"), 1);
    struct counts counts = counts_of(fx->store);
    assert_int_equal(counts.of[0].since_ms, 0); /* newer than the start */
    assert_string_equal(counts.names[0], "mail");
    reopen(fx);
    counts = counts_of(fx->store);
    assert_int_equal(counts.total, 3);
    assert_int_equal(counts.total, listed(fx->store));
    assert_true(counts.of[0].since_ms > 1600000000000 && counts.of[1].since_ms <= counts.of[0].since_ms);
    assert_int_equal(resolve(fx->store, id[0]), STORE_OK);
    assert_int_equal(resolve(fx->store, id[0]), STORE_ALREADY);
    assert_int_equal(resolve(fx->store, id[2]), STORE_NOT_FOUND);
    assert_int_equal(count_of(fx->store, "pay"), 1);
    assert_int_equal(resolve(fx->store, id[3]), STORE_OK);
    counts = counts_of(fx->store);
    assert_int_equal(counts.routes, 2); /* with 0: who shows it takes the old number away */
    assert_int_equal(counts.total, 1);
    assert_int_equal(counts.of[0].since_ms, 0);
    reopen(fx);
    counts = counts_of(fx->store);
    assert_int_equal(counts.routes, 1);
    assert_string_equal(counts.names[0], "pay");
    assert_int_equal(counts.total, 1);
}

static void begin_and_crash(struct fixture *fx)
{
    fx->options.journal = true;
    open_store(fx);
    for (uint64_t i = 0; i < 3; i++)
        (void)begin(fx->store, i == 0 ? "mail" : "pay", 7 + i);
    end(fx->store, "pay", begin(fx->store, "pay", 20), AUDIT_UNKNOWN, 0);
    _exit(0);
}

static void test_what_a_crash_left_counts(void **state)
{
    struct fixture *fx = *state;
    in_child(fx, begin_and_crash);
    for (int start = 0; start < 2; start++) {
        open_store(fx);
        assert_int_equal(count_of(fx->store, "mail"), 1);
        assert_int_equal(count_of(fx->store, "pay"), 3);
        assert_int_equal(listed(fx->store), 4);
        assert_int_equal(health(fx->store).in_doubt, 3);
        store_close(&fx->store);
    }
    open_store(fx);
    struct page page = query(fx->store, &(struct audit_filter){.kind = AUDIT_UNKNOWN, .limit = 9});
    assert_int_equal(page.count, 4);
    for (size_t i = 0; i < page.count; i++)
        assert_int_equal(resolve(fx->store, page.item[i].effect_id), STORE_OK);
    assert_int_equal(counts_of(fx->store).total, 0);
    assert_int_equal(health(fx->store).in_doubt, 0);
    reopen(fx);
    assert_int_equal(counts_of(fx->store).routes, 0);
}

/* Retention passes over what waits for a resolution, and takes it afterwards. */
static void test_the_number_outlives_retention(void **state)
{
    struct fixture *fx = *state;
    uint64_t old_ms = (uint64_t)time(NULL) * 1000 - 7200000;
    fx->options.journal = true;
    fx->options.retain_ms = 3600000;
    reopen(fx);
    for (uint64_t i = 0; i < 20; i++)
        end(fx->store, "pay", begin(fx->store, "pay", 7 + i), i % 2 == 0 ? AUDIT_UNKNOWN : AUDIT_SENT, old_ms);
    for (int i = 0; i < 1000 && query(fx->store, &(struct audit_filter){.kind = AUDIT_SENT, .limit = 20}).count > 0;
         i++)
        (void)poll(NULL, 0, 10);
    assert_int_equal(query(fx->store, &(struct audit_filter){.kind = AUDIT_SENT, .limit = 20}).count, 0);
    assert_int_equal(counts_of(fx->store).total, listed(fx->store));
    assert_int_equal(counts_of(fx->store).total, 10);
    struct page page = query(fx->store, &(struct audit_filter){.kind = AUDIT_UNKNOWN, .limit = 20});
    assert_int_equal(page.count, 10);
    reopen(fx);
    assert_int_equal(counts_of(fx->store).total, 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(resolve(fx->store, page.item[i].effect_id), STORE_OK);
    assert_int_equal(counts_of(fx->store).total, 0);
}

/* Many in one batch, with routes that are new to it. */
static void test_many_routes_in_a_batch(void **state)
{
    enum { MANY = 6 };
    struct fixture *fx = *state;
    static const char *const names[MANY] = {"b", "a", "bb", "c", "", "ab"};
    static const char *const sorted[MANY] = {"", "a", "ab", "b", "bb", "c"};
    struct call calls[MANY * 4];
    size_t done = 0;
    fx->options.journal = true;
    reopen(fx);
    for (size_t i = 0; i < MANY * 4; i++) {
        call_init(&calls[i]);
        calls[i].op.kind = STORE_RECORD;
        calls[i].op.record = (struct audit_record){.kind = AUDIT_UNKNOWN,
                                                   .effect_id = begin(fx->store, names[i % MANY], 7 + i),
                                                   .route = text(names[i % MANY]),
                                                   .ns = text("default"),
                                                   .key = text("k")};
    }
    assert_int_equal(calls_run(fx->store, calls, MANY * 4, &done), STORE_OK);
    for (int start = 0; start < 2; start++) {
        struct counts counts = counts_of(fx->store);
        assert_int_equal(counts.routes, MANY);
        for (size_t i = 0; i < MANY; i++) {
            assert_string_equal(counts.names[i], sorted[i]);
            assert_int_equal(counts.of[i].count, 4);
        }
        reopen(fx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_counted_by_route_until_resolved, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_what_a_crash_left_counts, fixture_folder, fixture_close),
        cmocka_unit_test_setup_teardown(test_the_number_outlives_retention, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_many_routes_in_a_batch, fixture_open, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
