/* tests/unit/test_problem.c - the bodies that partners' SDKs and people read. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "gateway/jsonout.h"
#include "gateway/problem.h"

#define SLICE(text) ((struct slice){(text), sizeof(text) - 1})

static void stale_in_full(void **state)
{
    struct jsonout out = {0};
    struct problem problem = {
        .reason = REASON_STALE_TOKEN,
        .effect = EFFECT_NOT_SENT,
        .ns = SLICE("default"),
        .key = SLICE("order-17"),
        .token = 41,
        .highest = 42,
        .audit_id = 1093,
    };
    (void)state;
    problem_write(&out, &problem);
    assert_string_equal(
        out.text,
        "{\"type\":\"urn:fencegate:problem:stale-token\",\"title\":\"Stale fencing token\",\"status\":412,"
        "\"detail\":\"Token 41 is below 42, the highest accepted for this key.\",\"reason\":\"stale-token\","
        "\"effect\":\"not-sent\",\"namespace\":\"default\",\"key\":\"order-17\",\"token\":\"41\",\"highest\":\"42\","
        "\"audit_id\":\"1093\",\"message\":\"Stale fencing token\",\"Message\":\"Stale fencing token\","
        "\"ErrorCode\":0,\"error\":{\"type\":\"fencegate_error\",\"code\":\"stale-token\","
        "\"message\":\"Token 41 is below 42, the highest accepted for this key.\"}}");
    jsonout_free(&out);
}

static json_t *body(const struct problem *problem)
{
    struct jsonout out = {0};
    problem_write(&out, problem);
    json_t *root = json_loadb(out.text, out.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    jsonout_free(&out);
    return root;
}

static const char *member(const json_t *root, const char *name)
{
    return json_string_value(json_object_get(root, name));
}

/* Every reason has its own status, a sentence of its own, and the members that the SDKs look for. */
static void every_reason(void **state)
{
    (void)state;
    for (int reason = REASON_NONE + 1; reason < REASON_COUNT; reason++) {
        const struct reason_info *info = &reason_table[reason];
        struct problem problem = {.reason = (enum reason)reason, .effect = EFFECT_NOT_SENT};
        json_t *root = body(&problem);
        assert_int_equal(json_integer_value(json_object_get(root, "status")), info->status);
        assert_string_equal(member(root, "reason"), info->slug);
        assert_string_equal(member(root, "title"), info->title);
        assert_string_equal(member(root, "message"), info->title);
        assert_string_equal(member(root, "Message"), info->title);
        assert_true(strlen(member(root, "detail")) > 20);
        assert_int_equal(strncmp(member(root, "type"), "urn:fencegate:problem:", 22), 0);
        assert_string_equal(member(root, "type") + 22, info->slug);
        assert_int_equal(json_integer_value(json_object_get(root, "ErrorCode")), 0);
        const json_t *error = json_object_get(root, "error");
        assert_string_equal(member(error, "type"), "fencegate_error");
        assert_string_equal(member(error, "code"), info->slug);
        assert_string_equal(member(error, "message"), member(root, "detail"));
        static const char *const absent[] = {"namespace", "key", "token", "highest", "audit_id"};
        for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
            assert_null(json_object_get(root, absent[i]));
        json_decref(root);
    }
}

static void numbers_in_the_sentence(void **state)
{
    static const enum reason with_numbers[] = {REASON_STALE_TOKEN, REASON_SUPERSEDED, REASON_TOKEN_USED,
                                               REASON_IMPLAUSIBLE_TOKEN};
    (void)state;
    for (size_t i = 0; i < sizeof with_numbers / sizeof with_numbers[0]; i++) {
        struct problem problem = {.reason = with_numbers[i], .token = UINT64_MAX, .highest = UINT64_MAX};
        json_t *root = body(&problem);
        const char *detail = member(root, "detail");
        assert_non_null(strstr(detail, "18446744073709551615"));
        assert_true(detail[strlen(detail) - 1] == '.'); /* not cut */
        json_decref(root);
    }
}

static void unknown_is_said_aloud(void **state)
{
    struct problem problem = {.reason = REASON_UPSTREAM_TIMEOUT, .effect = EFFECT_NOT_SENT};
    (void)state;
    json_t *root = body(&problem);
    assert_non_null(strstr(member(root, "detail"), "Nothing was sent"));
    json_decref(root);
    problem.effect = EFFECT_UNKNOWN;
    root = body(&problem);
    assert_string_equal(member(root, "effect"), "unknown");
    assert_null(strstr(member(root, "detail"), "Nothing was sent"));
    assert_non_null(strstr(member(root, "detail"), "may have taken effect"));
    json_decref(root);
}

static void callers_detail_and_status(void **state)
{
    struct problem problem = {
        .reason = REASON_STALE_TOKEN, .status = 460, .detail = "so it is", .key = SLICE("k\x1b\xFF\n"), .token = 3};
    (void)state;
    json_t *root = body(&problem);
    assert_int_equal(json_integer_value(json_object_get(root, "status")), 460);
    assert_int_equal(problem_status(&problem), 460);
    assert_string_equal(member(root, "detail"), "so it is");
    assert_string_equal(member(json_object_get(root, "error"), "message"), "so it is");
    assert_string_equal(member(root, "key"), "k\x1b\xEF\xBF\xBD\n");
    assert_string_equal(member(root, "token"), "3");
    json_decref(root);
}

static void who_must_not_repeat(void **state)
{
    (void)state;
    for (int reason = REASON_NONE + 1; reason < REASON_COUNT; reason++) {
        struct problem problem = {.reason = (enum reason)reason, .effect = EFFECT_NOT_SENT};
        bool is_4xx = reason_table[reason].status / 100 == 4;
        assert_int_equal(problem_no_retry(&problem), is_4xx);
        problem.effect = EFFECT_UNKNOWN;
        assert_true(problem_no_retry(&problem));
    }
    assert_true(problem_no_retry(&(struct problem){.reason = REASON_STALE_TOKEN, .status = 499}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stale_in_full),
        cmocka_unit_test(every_reason),
        cmocka_unit_test(numbers_in_the_sentence),
        cmocka_unit_test(unknown_is_said_aloud),
        cmocka_unit_test(callers_detail_and_status),
        cmocka_unit_test(who_must_not_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
