/* tests/unit/test_admin_body.c - gateway/admin_body.c: bodies of raises and resolutions, strictly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/admin_body.h"

static struct slice of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

static void test_raise(void **state)
{
    struct admin_raise raise;
    char why[256] = "";
    (void)state;
    assert_true(admin_body_raise(of("{\"token\":\"43\"}"), &raise, why, sizeof why));
    assert_int_equal(raise.token, 43);
    assert_int_equal(raise.wait_ms, 0);
    assert_string_equal(raise.reason, "");
    assert_true(admin_body_raise(
        of(" {\"wait\":\"30s\",\"reason\":\"handed \\u00fcber\",\"token\":\"18446744073709551615\"}\n"), &raise, why,
        sizeof why));
    assert_true(raise.token == UINT64_MAX);
    assert_int_equal(raise.wait_ms, 30000);
    assert_string_equal(raise.reason, "handed \xc3\xbc"
                                      "ber");
    assert_true(admin_body_raise(of("{\"token\":\"0007\",\"wait\":\"1h\"}"), &raise, why, sizeof why));
    assert_int_equal(raise.token, 7);
    assert_int_equal(raise.wait_ms, ADMIN_WAIT_MAX_MS);
}

static void test_what_is_no_raise(void **state)
{
    static const struct {
        const char *body, *why;
    } bad[] = {
        {"", "not valid JSON"},
        {"{", "not valid JSON"},
        {"{} {}", "not valid JSON"},
        {"[]", "must be a JSON object"},
        {"\"43\"", "not valid JSON"},
        {"{}", "token must be a string"},
        {"{\"token\":43}", "token must be a JSON string of digits"},
        {"{\"token\":43.0}", "token must be a JSON string of digits"},
        {"{\"token\":99999999999999999999}", "not valid JSON"},
        {"{\"token\":null}", "token must be a JSON string"},
        {"{\"token\":\"43\",\"token\":\"44\"}", "not valid JSON"},
        {"{\"token\":\"43\",\"Token\":\"43\"}", "\"Token\" is not known"},
        {"{\"token\":\"0\"}", "token must be a string"},
        {"{\"token\":\"-1\"}", "token must be a string"},
        {"{\"token\":\" 43\"}", "token must be a string"},
        {"{\"token\":\"18446744073709551616\"}", "token must be a string"},
        {"{\"token\":\"43\",\"reason\":\"\"}", "reason must be"},
        {"{\"token\":\"43\",\"reason\":\"a\\nb\"}", "reason must be"},
        {"{\"token\":\"43\",\"reason\":\"a\\u0000b\"}", "has a NUL (\\u0000)"},
        {"{\"token\":\"43\",\"reason\":null}", "reason must be a JSON string"},
        {"{\"token\":\"43\",\"wait\":30}", "wait must be a JSON string"},
        {"{\"token\":\"43\",\"wait\":\"30\"}", "wait must be a duration"},
        {"{\"token\":\"43\",\"wait\":\"61m\"}", "wait must be a duration"},
        {"{\"token\":\"43\",\"wait\":\"\"}", "wait must be a duration"},
        {"{\"token\":\"43\",\"force\":\"yes\"}", "\"force\" is not known"},
        {"{\"token\":\"\xff\"}", "not valid JSON"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct admin_raise raise;
        char why[256] = "";
        assert_false(admin_body_raise(of(bad[i].body), &raise, why, sizeof why));
        if (strstr(why, bad[i].why) == NULL) {
            fail_msg("%s: %s", bad[i].body, why);
        }
    }
}

static void test_long_texts(void **state)
{
    char body[8192], text[5000], why[256];
    struct admin_raise raise;
    struct admin_resolution resolution;
    (void)state;
    for (size_t len = 254; len <= 257; len++) {
        memset(text, 'r', sizeof text);
        text[len] = '\0';
        snprintf(body, sizeof body, "{\"token\":\"1\",\"reason\":\"%s\"}", text);
        assert_int_equal(admin_body_raise(of(body), &raise, why, sizeof why), len <= ADMIN_REASON_MAX);
    }
    for (size_t len = 4095; len <= 4098; len++) {
        memset(text, 'n', sizeof text);
        text[len] = '\0';
        snprintf(body, sizeof body, "{\"outcome\":\"sent\",\"note\":\"%s\"}", text);
        assert_int_equal(admin_body_resolve(of(body), &resolution, why, sizeof why), len <= ADMIN_NOTE_MAX);
    }
}

static void test_resolve(void **state)
{
    struct admin_resolution resolution;
    char why[256];
    (void)state;
    assert_true(admin_body_resolve(of("{\"outcome\":\"sent\",\"note\":\"a\\nb\"}"), &resolution, why, sizeof why));
    assert_true(resolution.sent);
    assert_string_equal(resolution.note, "a\nb");
    assert_true(admin_body_resolve(of("{\"outcome\":\"not-sent\",\"note\":\"x\"}"), &resolution, why, sizeof why));
    assert_false(resolution.sent);
    static const char *const bad[] = {"{\"outcome\":\"sent\"}",
                                      "{\"note\":\"x\"}",
                                      "{\"outcome\":\"sent\",\"note\":\"\"}",
                                      "{\"outcome\":\"Sent\",\"note\":\"x\"}",
                                      "{\"outcome\":\"unknown\",\"note\":\"x\"}",
                                      "{\"outcome\":true,\"note\":\"x\"}",
                                      "{\"outcome\":\"sent\",\"note\":\"x\",\"by\":\"me\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(admin_body_resolve(of(bad[i]), &resolution, why, sizeof why));
    }
}

static void test_content_type(void **state)
{
    static const char *const good[] = {NULL, "application/json", "Application/JSON", "application/json; charset=utf-8"};
    static const char *const bad[] = {"", "text/plain", "application/jsonx", "application/problem+json",
                                      "application/x-www-form-urlencoded"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(admin_content_type_json(good[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(admin_content_type_json(bad[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_raise),   cmocka_unit_test(test_what_is_no_raise), cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_resolve), cmocka_unit_test(test_content_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
