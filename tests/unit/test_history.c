/* tests/unit/test_history.c - gateway/history.c: tokens, eras and counts out of records that come newest first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/history.h"
#include "tests/unit/store_fixture.h"

#define T0 UINT64_C(1700000000000)

/* Oldest first, as they were written. */
static void feed(struct history *history, const struct audit_record *records, size_t count)
{
    do {
        for (size_t i = count; i > 0; i--) {
            struct audit_record record = records[i - 1];
            record.time_ms = record.time_ms != 0 ? record.time_ms : T0 + record.id;
            if (!history_add(history, &record))
                break;
        }
    } while (history_again(history));
    assert_false(history->failed);
}

#define FEED(history, ...)                                                                                             \
    do {                                                                                                               \
        const struct audit_record records[] = {__VA_ARGS__};                                                           \
        feed(history, records, sizeof records / sizeof records[0]);                                                    \
    } while (0)

static struct audit_record call(uint64_t id, enum audit_kind kind, uint64_t token, uint64_t effect, uint64_t highest)
{
    return (struct audit_record){.id = id,
                                 .kind = kind,
                                 .token = token,
                                 .effect_id = effect,
                                 .highest = highest,
                                 .route = text("payments"),
                                 .client = text("10.0.0.1:9")};
}

static struct audit_record because(struct audit_record record, const char *reason)
{
    record.reason = text(reason);
    return record;
}

/* The token of the row `back` rows from the newest. */
static const struct history_token *row(const struct history *history, size_t back, uint64_t token)
{
    assert_true(back < history->token_count);
    assert_int_equal(history->tokens[back]->token, token);
    return history->tokens[back];
}

static void test_a_late_call_of_an_old_lease(void **state)
{
    struct history history = {.limit = 100};
    (void)state;
    FEED(&history, call(2, AUDIT_SENT, 41, 1, 41), call(4, AUDIT_SENT, 42, 3, 42),
         because(call(5, AUDIT_DROPPED, 41, 0, 42), "stale-token"));
    history_set_fence(&history, &(struct fence){.token = 42, .updated_ms = T0 + 3});
    assert_int_equal(history.token_count, 2);
    assert_int_equal(history.records, 3);
    const struct history_token *new = row(&history, 0, 42), *old = row(&history, 1, 41);
    assert_int_equal(new->count[HISTORY_SENT], 1);
    assert_int_equal(new->accepted.by, HISTORY_BY_CALL);
    assert_int_equal(new->accepted.time_ms, T0 + 3);
    assert_int_equal(new->accepted.audit_id, 4);
    assert_int_equal(new->last_id, 4); /* the drop that names it as the highest is no call of its own */
    assert_int_equal(old->count[HISTORY_SENT], 1);
    assert_int_equal(old->count[HISTORY_DROPPED], 1);
    assert_int_equal(old->first_id, 2);
    assert_int_equal(old->last_id, 5);
    assert_int_equal(old->accepted.audit_id, 2);
    assert_string_equal(old->reasons[0].text, "stale-token");
    assert_int_equal(old->reasons[0].count, 1);
    assert_null(old->reasons[1].text);
    assert_string_equal(old->routes[0].text, "payments");
    history_free(&history);
}

static void test_the_first_call_came_late(void **state)
{
    struct history history = {.limit = 100};
    (void)state;
    FEED(&history, call(2, AUDIT_SENT, 42, 1, 42), because(call(3, AUDIT_DROPPED, 41, 0, 42), "stale-token"));
    const struct history_token *late = row(&history, 1, 41);
    assert_int_equal(late->accepted.by, HISTORY_BY_NONE);
    assert_int_equal(late->count[HISTORY_DROPPED], 1);
    history_free(&history);
}

static void test_a_drop_proves_that_its_fence_was_accepted(void **state)
{
    struct history history = {.limit = 100};
    (void)state;
    FEED(&history, because(call(7, AUDIT_DROPPED, 41, 0, 42), "stale-token"),
         because(call(8, AUDIT_DROPPED, 41, 0, 42), "stale-token"));
    const struct history_token *fence = row(&history, 0, 42);
    assert_int_equal(fence->accepted.by, HISTORY_BY_EVIDENCE);
    assert_int_equal(fence->accepted.audit_id, 7);
    assert_null(fence->accepted.client);
    assert_int_equal(fence->count[HISTORY_DROPPED], 0);
    assert_int_equal(fence->first_id, 7);
    assert_int_equal(fence->last_id, 8);
    assert_null(history_by_name(fence->accepted.by));
    history_free(&history);
}

static void test_a_fence_without_any_record(void **state)
{
    struct history history = {.limit = 100};
    (void)state;
    history_set_fence(&history, &(struct fence){.token = UINT64_MAX, .updated_ms = T0});
    const struct history_token *fence = row(&history, 0, UINT64_MAX);
    assert_int_equal(fence->accepted.by, HISTORY_BY_EVIDENCE);
    assert_int_equal(fence->accepted.time_ms, T0);
    assert_int_equal(fence->first_ms, T0);
    assert_int_equal(fence->first_id, 0);
    history_free(&history);
}

static void test_the_floor_of_a_restored_store_is_no_token(void **state)
{
    struct history history = {.limit = 100};
    (void)state;
    history_set_fence(&history, &(struct fence){.token = 1000, .updated_ms = T0, .floor = true});
    assert_int_equal(history.token_count, 0);
    assert_int_equal(history.fence.token, 1000);
    history_free(&history);
}

static void test_the_floor_of_a_restored_store_tells_who_made_it_the_fence(void **state)
{
    const struct fence floor = {.token = 1000, .updated_ms = T0 + 100, .floor = true};
    struct history history = {.limit = 100};
    (void)state;
    FEED(&history, call(200, AUDIT_SENT, 1000, 199, 1000)); /* later: equal to the fence that was there */
    history_set_fence(&history, &floor);
    assert_true(history_needs_floor(&history, &floor));
    history_set_floor(&history, &floor, 150);
    assert_int_equal(row(&history, 0, 1000)->accepted.by, HISTORY_BY_RESTORE);
    assert_int_equal(row(&history, 0, 1000)->accepted.time_ms, T0 + 100);
    assert_int_equal(row(&history, 0, 1000)->accepted.audit_id, 150);
    assert_null(row(&history, 0, 1000)->accepted.client);
    history_free(&history);

    history = (struct history){.limit = 100}; /* a key that nobody has used */
    history_set_fence(&history, &floor);
    assert_true(history_needs_floor(&history, &floor));
    history_set_floor(&history, &floor, 0);
    assert_int_equal(row(&history, 0, 1000)->accepted.by, HISTORY_BY_RESTORE);
    assert_int_equal(row(&history, 0, 1000)->last_ms, 0);
    history_free(&history);

    history = (struct history){.limit = 100}; /* it was there before the restore, by a call */
    FEED(&history, call(20, AUDIT_SENT, 1000, 19, 1000));
    history_set_fence(&history, &(struct fence){.token = 1000, .updated_ms = T0 + 20, .floor = true});
    assert_false(history_needs_floor(&history, &floor));
    history_free(&history);

    history = (struct history){.limit = 100}; /* it went on above it without a trace of it */
    FEED(&history, call(200, AUDIT_SENT, 1001, 199, 1001));
    history_set_fence(&history, &(struct fence){.token = 1001, .updated_ms = T0 + 200});
    assert_false(history_needs_floor(&history, &floor));
    history_free(&history);
}

/* The record of a call comes late: after a wait that ended as superseded, or at the start after a crash. */
static void test_a_call_was_accepted_when_its_intent_was_written(void **state)
{
    struct history history = {.limit = 100};
    struct audit_record crashed = because(call(9, AUDIT_UNKNOWN, 51, 1, 51), "gateway-crash");
    struct audit_record superseded = because(call(8, AUDIT_DROPPED, 52, 2, 53), "superseded");
    (void)state;
    crashed.accepted_ms = T0 + 1;
    superseded.accepted_ms = T0 + 3;
    FEED(&history, superseded, crashed, because(call(10, AUDIT_RESOLVED, 51, 1, 0), "sent"));
    assert_int_equal(row(&history, 1, 52)->accepted.time_ms, T0 + 3);
    assert_int_equal(row(&history, 2, 51)->accepted.time_ms, T0 + 1);
    assert_int_equal(row(&history, 2, 51)->accepted.audit_id, 9);
    history_free(&history);
}

static void test_a_token_was_last_seen_in_a_call(void **state)
{
    struct history history = {.limit = 100};
    (void)state;
    FEED(&history, because(call(3, AUDIT_UNKNOWN, 7, 2, 7), "aborted"), call(4, AUDIT_DROPPED, 6, 0, 7),
         because(call(8, AUDIT_RESOLVED, 7, 2, 0), "sent"), call(9, AUDIT_RAISED, 8, 0, 8));
    assert_int_equal(row(&history, 0, 8)->last_ms, 0);
    assert_int_equal(row(&history, 0, 8)->first_ms, T0 + 9);
    assert_int_equal(row(&history, 1, 7)->last_ms, T0 + 3);
    assert_int_equal(row(&history, 1, 7)->last_id, 8);
    assert_int_equal(row(&history, 2, 6)->last_ms, T0 + 4);
    history_free(&history);
}

static void test_what_runs_was_accepted(void **state)
{
    struct history history = {.limit = 100};
    struct audit_record intent = {
        .id = 5, .time_ms = T0 + 5, .token = 43, .route = text("payments"), .client = text("10.0.0.1:9")};
    (void)state;
    FEED(&history, because(call(7, AUDIT_DROPPED, 42, 0, 43), "stale-token"));
    history_add_intent(&history, &intent, false);
    const struct history_token *token = row(&history, 0, 43);
    assert_int_equal(token->accepted.by, HISTORY_BY_CALL);
    assert_int_equal(token->accepted.time_ms, T0 + 5);
    assert_int_equal(token->accepted.audit_id, 0);
    assert_string_equal(token->accepted.client, "10.0.0.1:9");
    assert_string_equal(token->routes[0].text, "payments");
    assert_int_equal(token->in_doubt, 0);
    assert_int_equal(token->last_ms, T0 + 5);
    history_free(&history);
}

static void test_a_raise_comes_before_every_call_of_its_token(void **state)
{
    struct history history = {.limit = 100};
    struct audit_record raise = because(call(3, AUDIT_RAISED, 43, 0, 43), "handed over");
    (void)state;
    raise.route = (struct slice){0};
    FEED(&history, raise, call(5, AUDIT_SENT, 43, 4, 43));
    const struct history_token *token = row(&history, 0, 43);
    assert_int_equal(token->accepted.by, HISTORY_BY_RAISE);
    assert_string_equal(token->accepted.reason, "handed over");
    assert_string_equal(token->accepted.client, "10.0.0.1:9");
    assert_null(token->accepted.route);
    assert_int_equal(token->accepted.audit_id, 3);
    assert_int_equal(token->count[HISTORY_SENT], 1);
    assert_null(token->reasons[0].text);
    history_free(&history);
}

/* The first to be accepted is not the first to end; its record says when it had come. */
static void test_the_earliest_call_is_the_one_that_was_accepted_first(void **state)
{
    struct history history = {.limit = 100};
    struct audit_record slow = call(9, AUDIT_SENT, 5, 1, 5);
    (void)state;
    slow.has_bytes = true;
    slow.duration_ms = 4;
    FEED(&history, call(3, AUDIT_SENT, 5, 2, 5), slow);
    assert_int_equal(row(&history, 0, 5)->accepted.audit_id, 9);
    assert_int_equal(row(&history, 0, 5)->accepted.time_ms, T0 + 9 - 4);
    history_free(&history);
}

static void test_tokens_begin_anew_after_a_reset(void **state)
{
    struct history history = {.limit = 100};
    struct audit_record reset = because(call(6, AUDIT_RESET, 0, 0, 50), "restored");
    (void)state;
    /* 50's second call ended after the reset and lay before it. */
    FEED(&history, call(2, AUDIT_SENT, 50, 1, 50), reset, call(8, AUDIT_SENT, 41, 7, 41),
         call(9, AUDIT_SENT, 50, 3, 50), call(11, AUDIT_SENT, 50, 10, 50));
    assert_int_equal(history.reset_count, 1);
    assert_int_equal(history.resets[0].highest, 50);
    assert_string_equal(history.resets[0].reason, "restored");
    assert_int_equal(history.token_count, 3);
    assert_int_equal(history.records, 5);
    assert_int_equal(row(&history, 0, 50)->era, 0);
    assert_int_equal(row(&history, 0, 50)->count[HISTORY_SENT], 1);
    assert_int_equal(row(&history, 1, 41)->era, 0);
    assert_int_equal(row(&history, 2, 50)->era, 1);
    assert_int_equal(row(&history, 2, 50)->count[HISTORY_SENT], 2);
    assert_int_equal(row(&history, 2, 50)->last_id, 9);
    history_free(&history);
}

static void test_a_reset_names_the_fence_that_went(void **state)
{
    struct history history = {.limit = 100};
    (void)state;
    FEED(&history, call(3, AUDIT_RESET, 0, 0, 7));
    assert_int_equal(row(&history, 0, 7)->era, 1);
    assert_int_equal(row(&history, 0, 7)->accepted.by, HISTORY_BY_EVIDENCE);
    history_free(&history);
}

static void test_more_resets_than_are_kept(void **state)
{
    struct history history = {.limit = 10};
    (void)state;
    for (uint64_t id = HISTORY_LIMIT_MAX + 1; id > 1; id--) {
        struct audit_record reset = call(id, AUDIT_RESET, 0, 0, id);
        assert_true(history_add(&history, &reset));
    }
    struct audit_record reset = call(1, AUDIT_RESET, 0, 0, 1);
    assert_false(history_add(&history, &reset));
    assert_true(history.cut);
    assert_true(history_again(&history));
    assert_false(history_add(&history, &reset)); /* nor the second time */
    assert_int_equal(history.oldest_audit_id, 2);
    history_free(&history);
}

static void test_only_the_newest_tokens_are_kept(void **state)
{
    struct history history = {.limit = 3};
    (void)state;
    for (uint64_t i = 1000; i > 0; i--) {
        uint64_t token = (i * 7919) % 1009 + 1; /* in no order, all different */
        struct audit_record record = call(i, AUDIT_SENT, token, 0, 0);
        assert_true(history_add(&history, &record));
    }
    uint64_t best = UINT64_MAX;
    assert_int_equal(history.token_count, 3);
    assert_true(history.more_tokens);
    assert_int_equal(history.records, 1000);
    for (size_t i = 0; i < 3; i++) {
        uint64_t token = 0;
        for (uint64_t j = 1; j <= 1000; j++) {
            uint64_t other = (j * 7919) % 1009 + 1;
            token = other < best && other > token ? other : token;
        }
        assert_int_equal(row(&history, i, token)->count[HISTORY_SENT], 1);
        best = token;
    }
    history_free(&history);
}

static void test_what_an_observing_route_let_through_was_not_accepted(void **state)
{
    struct history history = {.limit = 100};
    struct audit_record stale = because(call(4, AUDIT_SENT, 41, 3, 42), "stale-token");
    struct audit_record superseded = because(call(6, AUDIT_SENT, 40, 5, 0), "superseded");
    (void)state;
    stale.would_drop = superseded.would_drop = true;
    FEED(&history, stale, superseded);
    assert_int_equal(row(&history, 0, 42)->accepted.by, HISTORY_BY_EVIDENCE);
    assert_int_equal(row(&history, 1, 41)->accepted.by, HISTORY_BY_NONE);
    assert_int_equal(row(&history, 1, 41)->count[HISTORY_SENT], 1);
    assert_int_equal(row(&history, 1, 41)->count[HISTORY_WOULD_DROP], 1);
    assert_int_equal(row(&history, 2, 40)->accepted.by, HISTORY_BY_CALL);
    history_free(&history);
}

static void test_in_doubt_and_resolved(void **state)
{
    struct history history = {.limit = 100};
    struct audit_record intent = {
        .id = 1, .time_ms = T0 - 500, .token = 7, .route = text("payments"), .client = text("10.0.0.1:9")};
    (void)state;
    FEED(&history, because(call(3, AUDIT_UNKNOWN, 7, 1, 0), "gateway-crash"),
         because(call(4, AUDIT_UNKNOWN, 7, 2, 0), "gateway-crash"), because(call(5, AUDIT_RESOLVED, 7, 2, 0), "sent"));
    history_add_intent(&history, &intent, true);
    const struct history_token *token = row(&history, 0, 7);
    assert_int_equal(token->count[HISTORY_UNKNOWN], 2);
    assert_int_equal(token->count[HISTORY_RESOLVED], 1);
    assert_int_equal(token->in_doubt, 1);
    assert_int_equal(token->accepted.time_ms, T0 - 500); /* the intent's, not that of the restart */
    assert_int_equal(token->accepted.audit_id, 3);
    assert_int_equal(token->reasons[0].count, 2);
    assert_null(token->reasons[1].text);
    history_free(&history);
}

static void test_more_names_than_are_told(void **state)
{
    struct history history = {.limit = 1};
    (void)state;
    for (uint64_t id = 40; id > 0; id--) {
        char reason[16];
        (void)snprintf(reason, sizeof reason, "reason-%d", (int)id);
        struct audit_record record = because(call(id, AUDIT_DROPPED, 7, 0, 0), reason);
        assert_true(history_add(&history, &record));
    }
    assert_string_equal(row(&history, 0, 7)->reasons[0].text, "reason-40");
    assert_string_equal(row(&history, 0, 7)->reasons[HISTORY_NAMES - 1].text, "reason-29");
    history_free(&history);
}

static void test_what_runs_now(void **state)
{
    struct history history = {.limit = 100};
    (void)state;
    FEED(&history, call(2, AUDIT_SENT, 50, 1, 50), call(6, AUDIT_RESET, 0, 0, 50));
    history_set_live(&history, 50, 1, 0); /* outlived the reset */
    history_set_live(&history, 42, 0, 3);
    assert_int_equal(history.token_count, 2);
    assert_int_equal(row(&history, 0, 42)->waiting, 3);
    assert_int_equal(row(&history, 1, 50)->in_flight, 1);
    assert_true(history.live);
    history_free(&history);
}

static void expect_json(struct history *history, const char *key, const char *json)
{
    struct jsonout out = {0};
    history_write(&out, text("default"), text(key), history);
    assert_string_equal(out.text, json);
    jsonout_free(&out);
    history_free(history);
}

static void test_json_of_a_story(void **state)
{
    struct history history = {.limit = 100, .complete = true};
    (void)state;
    FEED(&history, call(2, AUDIT_SENT, 42, 1, 42), because(call(3, AUDIT_DROPPED, 41, 0, 42), "stale-token"));
    history_set_fence(&history, &(struct fence){.token = 42, .updated_ms = T0 + 1});
    history_set_live(&history, 42, 2, 0);
    history.in_flight = 2;
    expect_json(&history, "order\x1b",
                "{\"namespace\":\"default\",\"key\":\"order\\u001b\",\"highest\":\"42\","
                "\"updated_at\":\"2023-11-14T22:13:20.001Z\",\"in_flight\":2,\"tokens\":["
                "{\"token\":\"41\",\"first_seen\":\"2023-11-14T22:13:20.003Z\","
                "\"last_seen\":\"2023-11-14T22:13:20.003Z\",\"sent\":0,\"not_sent\":0,\"dropped\":1,\"rejected\":0,"
                "\"unknown\":0,\"resolved\":0,\"in_flight\":0,\"waiting\":0,\"in_doubt\":0,\"first_audit_id\":\"3\","
                "\"last_audit_id\":\"3\",\"routes\":[\"payments\"],\"reasons\":{\"stale-token\":1}},"
                "{\"token\":\"42\",\"first_seen\":\"2023-11-14T22:13:20.002Z\","
                "\"last_seen\":\"2023-11-14T22:13:20.002Z\",\"sent\":1,\"not_sent\":0,\"dropped\":0,\"rejected\":0,"
                "\"unknown\":0,\"resolved\":0,\"in_flight\":2,\"waiting\":0,\"in_doubt\":0,"
                "\"accepted\":{\"time\":\"2023-11-14T22:13:20.001Z\",\"by\":\"call\",\"client\":\"10.0.0.1:9\","
                "\"route\":\"payments\",\"audit_id\":\"2\"},\"first_audit_id\":\"2\",\"last_audit_id\":\"2\","
                "\"routes\":[\"payments\"],\"reasons\":{}}],\"more_tokens\":false,\"resets\":[],\"records\":2,"
                "\"complete\":true}");
}

static void test_json_without_a_gate(void **state)
{
    struct history history = {.limit = 100};
    (void)state;
    FEED(&history, because(call(3, AUDIT_RESET, 0, 0, 7), "restored"));
    expect_json(&history, "k",
                "{\"namespace\":\"default\",\"key\":\"k\",\"highest\":null,\"updated_at\":null,\"tokens\":["
                "{\"token\":\"7\",\"first_seen\":\"2023-11-14T22:13:20.003Z\","
                "\"last_seen\":null,\"sent\":0,\"not_sent\":0,\"dropped\":0,\"rejected\":0,"
                "\"unknown\":0,\"resolved\":0,\"in_doubt\":0,\"accepted\":{\"time\":\"2023-11-14T22:13:20.003Z\","
                "\"audit_id\":\"3\"},\"first_audit_id\":\"3\",\"last_audit_id\":\"3\",\"resets_since\":1,"
                "\"routes\":[],\"reasons\":{}}],\"more_tokens\":false,\"resets\":["
                "{\"time\":\"2023-11-14T22:13:20.003Z\",\"highest\":\"7\",\"client\":\"10.0.0.1:9\","
                "\"reason\":\"restored\",\"audit_id\":\"3\"}],\"records\":1,\"complete\":false,"
                "\"oldest_audit_id\":\"3\"}");
}

static void test_json_says_that_records_are_gone(void **state)
{
    struct history history = {.limit = 100, .complete = true, .removed_id = 17};
    struct jsonout out = {0};
    (void)state;
    history_write(&out, text("default"), text("k"), &history);
    assert_non_null(strstr(out.text, "\"complete\":false,\"removed_audit_id\":\"17\"}"));
    jsonout_free(&out);
    history_free(&history);
}

/* ---- out of a store ---- */

static enum store_error collect(struct fixture *fx, const char *key, struct history *out)
{
    struct store_reader *reader;
    assert_int_equal(store_reader_open(fx->store, &reader), STORE_OK);
    enum store_error error = history_collect(reader, text("default"), text(key), 100, 0, out);
    store_reader_close(&reader);
    return error;
}

static void outcome(struct fixture *fx, const struct store_op *admitted, const char *key, enum audit_kind kind)
{
    struct audit_record subject = {.kind = kind,
                                   .effect_id = admitted->effect_id,
                                   .ns = text("default"),
                                   .key = text(key),
                                   .token = admitted->highest,
                                   .route = text("payments")};
    assert_int_equal(record(fx->store, &subject).error, STORE_OK);
}

static void test_out_of_a_store(void **state)
{
    struct fixture *fx = *state;
    struct history history;
    struct call call;
    for (uint64_t token = 41; token <= 42; token++) {
        struct store_op op = admit_effect(fx->store, "k", token);
        outcome(fx, &op, "k", AUDIT_SENT);
        op = admit_effect(fx->store, "other", token);
        outcome(fx, &op, "other", AUDIT_SENT);
    }
    assert_int_equal(admit(fx->store, "k", 41).verdict, VERDICT_STALE);
    assert_int_equal(collect(fx, "k", &history), STORE_OK);
    assert_true(history.complete);
    assert_int_equal(history.records, 3);
    assert_int_equal(history.fence.token, 42);
    assert_int_equal(row(&history, 0, 42)->accepted.time_ms, history.fence.updated_ms);
    assert_int_equal(row(&history, 1, 41)->count[HISTORY_DROPPED], 1);
    history_free(&history);

    call_init(&call);
    call.op.kind = STORE_RESET;
    call.op.record = (struct audit_record){.ns = text("default"), .key = text("k"), .reason = text("restored")};
    call_run(fx->store, &call);
    assert_int_equal(call.op.error, STORE_OK);
    struct store_op op = admit_effect(fx->store, "k", 7);
    outcome(fx, &op, "k", AUDIT_SENT);
    assert_int_equal(collect(fx, "k", &history), STORE_OK);
    assert_int_equal(history.records, 5);
    assert_int_equal(history.reset_count, 1);
    assert_int_equal(row(&history, 0, 7)->era, 0);
    assert_int_equal(row(&history, 1, 42)->era, 1);
    assert_int_equal(history.fence.token, 7);
    history_free(&history);
    assert_int_equal(collect(fx, "nobody's", &history), STORE_NOT_FOUND);
    history_free(&history);
}

static void leave_open(struct fixture *fx)
{
    open_store(fx);
    (void)admit_effect(fx->store, "k", 7);
    (void)admit_effect(fx->store, "k", 7);
    (void)admit_effect(fx->store, "other", 7);
}

static void test_left_in_doubt_by_a_crash(void **state)
{
    struct fixture *fx = *state;
    struct history history;
    in_child(fx, leave_open);
    open_store(fx);
    assert_int_equal(collect(fx, "k", &history), STORE_OK);
    assert_int_equal(row(&history, 0, 7)->in_doubt, 2);
    assert_int_equal(row(&history, 0, 7)->count[HISTORY_UNKNOWN], 2);
    assert_int_equal(row(&history, 0, 7)->accepted.by, HISTORY_BY_CALL);
    assert_int_equal(row(&history, 0, 7)->accepted.time_ms, history.fence.updated_ms);
    history_free(&history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_late_call_of_an_old_lease),
        cmocka_unit_test(test_the_first_call_came_late),
        cmocka_unit_test(test_a_drop_proves_that_its_fence_was_accepted),
        cmocka_unit_test(test_a_fence_without_any_record),
        cmocka_unit_test(test_the_floor_of_a_restored_store_is_no_token),
        cmocka_unit_test(test_the_floor_of_a_restored_store_tells_who_made_it_the_fence),
        cmocka_unit_test(test_a_call_was_accepted_when_its_intent_was_written),
        cmocka_unit_test(test_a_token_was_last_seen_in_a_call),
        cmocka_unit_test(test_what_runs_was_accepted),
        cmocka_unit_test(test_a_raise_comes_before_every_call_of_its_token),
        cmocka_unit_test(test_the_earliest_call_is_the_one_that_was_accepted_first),
        cmocka_unit_test(test_tokens_begin_anew_after_a_reset),
        cmocka_unit_test(test_a_reset_names_the_fence_that_went),
        cmocka_unit_test(test_more_resets_than_are_kept),
        cmocka_unit_test(test_only_the_newest_tokens_are_kept),
        cmocka_unit_test(test_what_an_observing_route_let_through_was_not_accepted),
        cmocka_unit_test(test_in_doubt_and_resolved),
        cmocka_unit_test(test_more_names_than_are_told),
        cmocka_unit_test(test_what_runs_now),
        cmocka_unit_test(test_json_of_a_story),
        cmocka_unit_test(test_json_without_a_gate),
        cmocka_unit_test(test_json_says_that_records_are_gone),
        cmocka_unit_test_setup_teardown(test_out_of_a_store, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_left_in_doubt_by_a_crash, fixture_folder, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
