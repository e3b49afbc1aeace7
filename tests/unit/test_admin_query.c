/* tests/unit/test_admin_query.c - gateway/admin_query.c: targets, escapes, parameters of admin calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/admin_query.h"

#define NOW 1800000000000u
#define TEXT(literal)                                                                                                  \
    (struct slice)                                                                                                     \
    {                                                                                                                  \
        literal, sizeof literal - 1                                                                                    \
    }

static void assert_slice(struct slice got, const char *expected)
{
    assert_int_equal(got.len, strlen(expected));
    assert_memory_equal(got.data, expected, got.len);
}

static void assert_span(struct admin_span got, const char *expected)
{
    assert_slice((struct slice){got.data, got.len}, expected);
}

static void test_target_split(void **state)
{
    struct admin_span path, query;
    char plain[] = "/v1/audit?key=a?b", bare[] = "/v1/audit", empty[] = "/?", absolute[] = "HTTP://host:81/v1/audit?x";
    (void)state;
    assert_true(admin_target_split(plain, &path, &query));
    assert_span(path, "/v1/audit");
    assert_span(query, "key=a?b");
    assert_true(admin_target_split(bare, &path, &query));
    assert_span(path, "/v1/audit");
    assert_int_equal(query.len, 0);
    assert_true(admin_target_split(empty, &path, &query));
    assert_span(path, "/");
    assert_int_equal(query.len, 0);
    assert_true(admin_target_split(absolute, &path, &query));
    assert_span(path, "/v1/audit");
    assert_span(query, "x");
}

static void test_target_refused(void **state)
{
    static const char *const bad[] = {"",     "*",     "v1/audit", "http://host", "http://host?/x",
                                      "/a b", "/a\tb", "/\x7f",    "/\xc3\xa4"};
    struct admin_span path, query;
    char copy[32];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcpy(copy, bad[i]);
        if (admin_target_split(copy, &path, &query)) {
            fail_msg("taken: %s", bad[i]);
        }
    }
}

/* Decoded text, or NULL for a broken escape. On the heap without a NUL, so that a sanitizer sees a read past its end.
 */
static bool decodes(const char *text, bool form, const char *expected, size_t expected_len)
{
    size_t len = strlen(text);
    char *copy = malloc(len + (len == 0));
    assert_non_null(copy);
    memcpy(copy, text, len);
    struct admin_span span = {copy, len};
    bool ok = admin_decode(&span, form);
    bool same = ok && expected != NULL && span.len == expected_len && memcmp(span.data, expected, expected_len) == 0;
    free(copy);
    return expected == NULL ? !ok : same;
}

static void test_decode(void **state)
{
    (void)state;
    assert_true(decodes("", false, "", 0));
    assert_true(decodes("a%2Fb%2fc", false, "a/b/c", 5));
    assert_true(decodes("%41", false, "A", 1));
    assert_true(decodes("%c3%A4", false, "\xc3\xa4", 2));
    assert_true(decodes("a%00b", false, "a\0b", 3));
    assert_true(decodes("%2541", false, "%41", 3));
    assert_true(decodes("a+b", false, "a+b", 3));
    assert_true(decodes("a+b%2B", true, "a b+", 4));
    assert_true(decodes("%", false, NULL, 0));
    assert_true(decodes("%4", false, NULL, 0));
    assert_true(decodes("a%zz", false, NULL, 0));
    assert_true(decodes("%4g", false, NULL, 0));
    assert_true(decodes("% 1", false, NULL, 0));
    assert_true(decodes("%-1", false, NULL, 0));
}

static bool matches(const char *pattern, char *path, struct admin_span captured[ADMIN_CAPTURES])
{
    return admin_path_match(pattern, (struct admin_span){path, strlen(path)}, captured);
}

static void test_path_match(void **state)
{
    struct admin_span captured[ADMIN_CAPTURES];
    (void)state;
    assert_true(matches("/v1/audit", (char[]){"/v1/audit"}, captured));
    assert_false(matches("/v1/audit", (char[]){"/v1/audit/"}, captured));
    assert_false(matches("/v1/audit", (char[]){"/v1/audi"}, captured));
    assert_false(matches("/v1/audit", (char[]){"/v1/%61udit"}, captured));
    char fence[] = "/v1/fences/default/a%2Fb";
    assert_true(matches("/v1/fences/{}/{}", fence, captured));
    assert_span(captured[0], "default");
    assert_span(captured[1], "a%2Fb");
    assert_false(matches("/v1/fences/{}/{}", (char[]){"/v1/fences/default/a/b"}, captured));
    assert_false(matches("/v1/fences/{}/{}", (char[]){"/v1/fences/default"}, captured));
    char hollow[] = "/v1/fences//";
    assert_true(matches("/v1/fences/{}/{}", hollow, captured));
    assert_int_equal(captured[0].len, 0);
    assert_int_equal(captured[1].len, 0);
    char resolve[] = "/v1/effects/17/resolve";
    assert_true(matches("/v1/effects/{}/resolve", resolve, captured));
    assert_span(captured[0], "17");
    assert_false(matches("/v1/effects/{}/resolve", (char[]){"/v1/effects/17/resolved"}, captured));
}

static char query_copy[512]; /* the filter's slices point into it */

static bool filter_of(const char *query, struct audit_filter *filter, char why[ADMIN_WHY_CAP])
{
    assert_true(strlen(query) < sizeof query_copy);
    strcpy(query_copy, query);
    return admin_audit_filter((struct admin_span){query_copy, strlen(query)}, NOW, filter, why, ADMIN_WHY_CAP);
}

static void test_filter_defaults(void **state)
{
    struct audit_filter filter;
    char why[ADMIN_WHY_CAP];
    (void)state;
    assert_true(filter_of("", &filter, why));
    assert_null(filter.ns.data);
    assert_null(filter.key.data);
    assert_null(filter.reason.data);
    assert_null(filter.route.data);
    assert_int_equal(filter.kind, 0);
    assert_int_equal(filter.since_ms, 0);
    assert_int_equal(filter.until_ms, 0);
    assert_int_equal(filter.after, 0);
    assert_false(filter.descending);
    assert_int_equal(filter.limit, 100);
}

static void test_filter_of_everything(void **state)
{
    struct audit_filter filter;
    char why[ADMIN_WHY_CAP];
    (void)state;
    assert_true(filter_of("namespace=n-1&key=order%2F17+%C3%A4&kind=not-sent&reason=stale-token&route=pay&since=15m&"
                          "until=2026-11-30T03:02:03%2B02:00&after=18446744073709551615&order=desc&limit=1000",
                          &filter, why));
    assert_slice(filter.ns, "n-1");
    assert_slice(filter.key, "order/17 \xc3\xa4");
    assert_int_equal(filter.kind, AUDIT_NOT_SENT);
    assert_slice(filter.reason, "stale-token");
    assert_slice(filter.route, "pay");
    assert_int_equal(filter.since_ms, NOW - 900000);
    assert_int_equal(filter.until_ms, 1796000523000);
    assert_true(filter.after == UINT64_MAX);
    assert_true(filter.descending);
    assert_int_equal(filter.limit, 1000);
}

static void test_filter_edges(void **state)
{
    struct audit_filter filter;
    char why[ADMIN_WHY_CAP];
    (void)state;
    assert_true(filter_of("id=18446744073709551615&effect_id=8", &filter, why));
    assert_true(filter.id == UINT64_MAX && filter.effect_id == 8);
    assert_true(filter_of("after=0&order=asc&limit=1", &filter, why));
    assert_true(filter.id == 0 && filter.effect_id == 0);
    assert_int_equal(filter.after, 0);
    assert_false(filter.descending);
    assert_int_equal(filter.limit, 1);
    assert_true(filter_of("until=1970-01-01T00:00:00Z", &filter, why));
    assert_int_equal(filter.until_ms, 1); /* nothing, not everything */
}

/* A reason of the gateway's own must be one that there is; an operator's words are any. */
static void test_filter_reasons(void **state)
{
    static const char *const good[] = {
        "reason=missing-key",      "reason=gateway-crash", "reason=audit-full",           "reason=not-sent",
        "reason=worker+3+is+gone", "reason=Handover",      "kind=raised&reason=handover", "reason=handover&kind=reset"};
    static const char *const bad[] = {"reason=stale-tokn",  "reason=stale",      "reason=token",
                                      "reason=a-,",         "reason=handover",   "kind=dropped&reason=stale_token-",
                                      "reason=Stale_Token", "reason=stale+token"};
    struct audit_filter filter;
    char why[ADMIN_WHY_CAP];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (!filter_of(good[i], &filter, why))
            fail_msg("%s: %s", good[i], why);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_false(filter_of(bad[i], &filter, why));
        assert_non_null(strstr(why, "stale-token, "));
        assert_non_null(strstr(why, "gateway-crash"));
        assert_non_null(strstr(why, "kind=raised"));
        assert_int_equal(why[strlen(why) - 1], '.'); /* not cut */
    }
    assert_false(filter_of(bad[4], &filter, why));
    assert_true(filter_of(bad[3], &filter, why)); /* a comma is in no reason of ours: words */
    assert_true(filter_of(bad[5], &filter, why));
    assert_false(filter_of(bad[6], &filter, why)); /* another spelling of a slug */
    assert_false(filter_of(bad[7], &filter, why));
}

static void refuses(const char *query, const char *named)
{
    struct audit_filter filter;
    char why[ADMIN_WHY_CAP] = "";
    if (filter_of(query, &filter, why)) {
        fail_msg("taken: %s", query);
    }
    if (strstr(why, named) == NULL) {
        fail_msg("%s: \"%s\" does not name %s", query, why, named);
    }
}

static void test_filter_refusals(void **state)
{
    (void)state;
    refuses("kye=a", "\"kye\"");
    refuses("Key=a", "\"Key\"");
    refuses("k%65y=a", "\"k%65y\"");
    refuses("key=a&key=a", "\"key\"");
    refuses("key", "\"key\"");
    refuses("key=", "\"key\"");
    refuses("key=a&", "\"\"");
    refuses("&key=a", "\"\"");
    refuses("=a", "\"\"");
    refuses("key=a%0Ab", "key");
    refuses("key=a%00", "key");
    refuses("key=%ff", "key");
    refuses("key=%4", "\"key\"");
    refuses("namespace=a/b", "namespace");
    refuses("kind=Dropped", "kind");
    refuses("kind=drop", "kind");
    refuses("since=yesterday", "since");
    refuses("until=2026-11-30T03:02:03+02:00", "until");
    refuses("after=-1", "after");
    refuses("id=0", "id");
    refuses("id=x", "id");
    refuses("effect_id=18446744073709551616", "effect_id");
    refuses("after=18446744073709551616", "after");
    refuses("after=1e3", "after");
    refuses("order=down", "order");
    refuses("order=descend", "order");
    refuses("limit=0", "limit");
    refuses("limit=1001", "limit");
    refuses("limit=+5", "limit");
    refuses("limit=5.0", "limit");
    refuses("limit=18446744073709551617", "limit");
}

static void test_long_names_are_cut(void **state)
{
    struct audit_filter filter;
    char why[ADMIN_WHY_CAP], query[400];
    (void)state;
    memset(query, 'x', sizeof query);
    query[sizeof query - 1] = '\0';
    assert_false(filter_of(query, &filter, why));
    assert_true(strlen(why) < 100);
}

static void test_namespace(void **state)
{
    char longest[65];
    (void)state;
    memset(longest, 'n', sizeof longest);
    assert_true(admin_namespace_valid(TEXT("AZaz09._-")));
    assert_true(admin_namespace_valid((struct slice){longest, 64}));
    assert_false(admin_namespace_valid((struct slice){longest, 65}));
    assert_false(admin_namespace_valid(TEXT("")));
    assert_false(admin_namespace_valid(TEXT("a b")));
    assert_false(admin_namespace_valid(TEXT("a\0b")));
    assert_false(admin_namespace_valid(TEXT("\xc3\xa4")));
}

static bool fence_filter(const char *query, struct fence_filter *out, struct admin_cursor *cursor)
{
    static char copy[2048];
    char why[ADMIN_WHY_CAP] = "";
    assert_true(strlen(query) < sizeof copy);
    strcpy(copy, query);
    bool ok = admin_fence_filter((struct admin_span){copy, strlen(copy)}, out, cursor, why, sizeof why);
    assert_int_equal(why[0] == '\0', ok);
    return ok;
}

static void test_fence_filter(void **state)
{
    struct fence_filter filter;
    struct admin_cursor cursor;
    char query[2 * ADMIN_CURSOR_CAP], text[ADMIN_CURSOR_CAP], ns[65], key[256];
    (void)state;
    assert_true(fence_filter("", &filter, &cursor));
    assert_null(filter.ns.data);
    assert_null(filter.prefix.data);
    assert_null(filter.after_key.data);
    assert_int_equal(filter.limit, 100);
    assert_true(fence_filter("namespace=a.b&prefix=order%2F&limit=7", &filter, &cursor));
    assert_slice(filter.ns, "a.b");
    assert_slice(filter.prefix, "order/");
    assert_int_equal(filter.limit, 7);
    memset(ns, 'n', 64);
    memset(key, 'k', 255);
    ns[64] = key[255] = '\0';
    for (size_t len = 1; len <= 255; len += 127) { /* 1, 128, 255 */
        admin_cursor_format((struct slice){ns, (len + 3) / 4}, (struct slice){key, len}, text);
        snprintf(query, sizeof query, "cursor=%s", text);
        assert_true(fence_filter(query, &filter, &cursor));
        assert_int_equal(filter.after_ns.len, (len + 3) / 4);
        assert_int_equal(filter.after_key.len, len);
        assert_memory_equal(filter.after_key.data, key, len);
    }
    static const char *const bad[] = {"cursor=6",    "cursor=6x",      "cursor=6161",     "cursor=00",
                                      "cursor=6100", "cursor=0061",    "cursor=2f0061",   "cursor=6100ff",
                                      "limit=0",     "limit=1001",     "namespace=a%2Fb", "prefix=a%0A",
                                      "after=1",     "limit=1&limit=1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (fence_filter(bad[i], &filter, &cursor)) {
            fail_msg("taken: %s", bad[i]);
        }
    }
    memset(query, '6', sizeof query);
    memcpy(query, "cursor=", 7);
    query[7 + 2 * ADMIN_CURSOR_BYTES + 2] = '\0';
    assert_false(fence_filter(query, &filter, &cursor));
}

static bool effects_filter(const char *query, struct effects_filter *out)
{
    static char copy[128];
    char why[ADMIN_WHY_CAP];
    (void)snprintf(copy, sizeof copy, "%s", query);
    return admin_effects_filter((struct admin_span){copy, strlen(copy)}, out, why, sizeof why);
}

static void test_effects_filter(void **state)
{
    static const char *const bad[] = {"state=open", "state=", "after=-1",      "after=x",       "limit=0",
                                      "limit=1e3",  "key=k",  "state=running", "namespace=a/b", "state=in-doubt2"};
    struct effects_filter filter;
    (void)state;
    assert_true(effects_filter("", &filter));
    assert_int_equal(filter.state, EFFECTS_IN_DOUBT);
    assert_int_equal(filter.after, 0);
    assert_int_equal(filter.limit, 100);
    assert_null(filter.ns.data);
    assert_true(effects_filter("state=in-doubt&after=18446744073709551615&limit=1000", &filter));
    assert_true(filter.after == UINT64_MAX);
    assert_int_equal(filter.limit, 1000);
    assert_true(effects_filter("state=in-flight&namespace=mail", &filter));
    assert_int_equal(filter.state, EFFECTS_RUNNING);
    assert_memory_equal(filter.ns.data, "mail", filter.ns.len);
    assert_true(effects_filter("state=unknown", &filter));
    assert_int_equal(filter.state, EFFECTS_UNKNOWN);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (effects_filter(bad[i], &filter))
            fail_msg("taken: %s", bad[i]);
}

static void test_history_filter(void **state)
{
    static const char *const bad[] = {"limit=0", "limit=1001", "limit=", "limit=1&limit=1", "order=desc", "&"};
    size_t limit = 0;
    char why[ADMIN_WHY_CAP], none[] = "", all[] = "limit=1000", copy[32];
    (void)state;
    assert_true(admin_history_filter((struct admin_span){none, 0}, &limit, why, sizeof why));
    assert_int_equal(limit, 100);
    assert_true(admin_history_filter((struct admin_span){all, strlen(all)}, &limit, why, sizeof why));
    assert_int_equal(limit, 1000);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcpy(copy, bad[i]);
        assert_false(admin_history_filter((struct admin_span){copy, strlen(copy)}, &limit, why, sizeof why));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_target_split),    cmocka_unit_test(test_target_refused),
        cmocka_unit_test(test_decode),          cmocka_unit_test(test_path_match),
        cmocka_unit_test(test_filter_defaults), cmocka_unit_test(test_filter_of_everything),
        cmocka_unit_test(test_filter_edges),    cmocka_unit_test(test_filter_reasons),
        cmocka_unit_test(test_filter_refusals), cmocka_unit_test(test_long_names_are_cut),
        cmocka_unit_test(test_namespace),       cmocka_unit_test(test_fence_filter),
        cmocka_unit_test(test_effects_filter),  cmocka_unit_test(test_history_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
