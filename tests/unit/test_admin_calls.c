/* tests/unit/test_admin_calls.c - gateway/admin_calls.c: who is let in, what is found. Answers out of a store are
 * tested end to end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/admin_calls.h"

/* No store: a call that got as far as one without leave would crash here. */
static const char *const hosts[] = {"fencegate.ops.example", NULL};
static struct admin_context context = {
    .options = {.hosts = hosts}, .hint = "The proxy is at 127.0.0.1:8080.", .token = {.text = "right", .len = 5}};
static char target_copy[128];

static struct admin_answer ask(struct admin_request request, const char *target)
{
    struct admin_answer answer = {0};
    assert_true(strlen(target) < sizeof target_copy);
    strcpy(target_copy, target);
    request.target = target_copy;
    admin_call(&context, &request, &answer);
    assert_false(answer.body.failed);
    assert_true(answer.body.len > 0);
    return answer;
}

static void expect(struct admin_request request, const char *target, unsigned status, const char *reason)
{
    struct admin_answer answer = ask(request, target);
    char member[64];
    snprintf(member, sizeof member, "\"reason\":\"%s\"", reason);
    if (answer.status != status || strstr(answer.body.text, member) == NULL) {
        fail_msg("%s %s: %u %s", request.method, target, answer.status, answer.body.text);
    }
    assert_string_equal(answer.content_type, "application/problem+json; charset=utf-8");
    assert_int_equal(answer.challenge, status == 401);
    assert_int_equal(answer.allow[0] != '\0', status == 405);
    jsonout_free(&answer.body);
}

static void test_problem_shape(void **state)
{
    struct admin_answer answer = {0};
    (void)state;
    admin_problem(&answer, ADMIN_NOT_FOUND, "Say \"what\".");
    assert_int_equal(answer.status, 404);
    assert_string_equal(answer.body.text, "{\"type\":\"urn:fencegate:problem:not-found\",\"title\":\"Not found\","
                                          "\"status\":404,\"detail\":\"Say \\\"what\\\".\",\"reason\":\"not-found\","
                                          "\"message\":\"Not found\",\"Message\":\"Not found\",\"ErrorCode\":0,"
                                          "\"error\":{\"type\":\"fencegate_error\",\"code\":\"not-found\","
                                          "\"message\":\"Say \\\"what\\\".\"}}");
    jsonout_free(&answer.body);
}

static void test_a_problem_replaces_what_was_begun(void **state)
{
    struct admin_answer answer = {0};
    (void)state;
    jsonout_object_begin(&answer.body);
    jsonout_name(&answer.body, "records");
    jsonout_array_begin(&answer.body);
    admin_problem(&answer, ADMIN_STORE, "x");
    assert_memory_equal(answer.body.text, "{\"type\":", 8);
    assert_int_equal(answer.retry_after, 1);
    jsonout_free(&answer.body);
}

static void test_health_is_open(void **state)
{
    struct admin_request request = {.method = "GET", .host = "probe.example"};
    (void)state;
    struct admin_answer answer = ask(request, "/healthz?now=1");
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer.body.text, "{\"status\":\"ok\"}");
    jsonout_free(&answer.body);
}

static void test_a_token_is_needed(void **state)
{
    static const char *const guarded[] = {"/v1/audit", "/v1/fences/default/k/history", "/v1/nothing", "/v1/"};
    static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE"};
    struct admin_request request = {.host = "localhost"};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 4; j++) {
            request.method = methods[j];
            request.authorization = NULL;
            expect(request, guarded[i], 401, "unauthorized");
            request.authorization = "Bearer wrong";
            expect(request, guarded[i], 401, "unauthorized");
        }
    }
}

static void test_strangers_are_refused_whatever_the_token(void **state)
{
    struct admin_request request = {.method = "GET", .host = "evil.example", .authorization = "Bearer right"};
    (void)state;
    expect(request, "/v1/audit", 400, "malformed-request");
    request.authorization = "Bearer wrong";
    expect(request, "/v1/audit", 400, "malformed-request");
    request.host = "localhost:8081";
    request.origin = "http://evil.example";
    expect(request, "/v1/audit", 400, "malformed-request");
}

static void test_a_target_that_names_a_stranger_is_refused_too(void **state)
{
    static const char *const foreign[] = {"http://evil.example/v1/x",
                                          "http://evil.example:8081/v1/x",
                                          "HTTP://evil.example./v1/x",
                                          "http://localhost@evil.example/v1/x",
                                          "http://localhost:1@evil.example/v1/x",
                                          "http://[::1].evil.example/v1/x",
                                          "http:///v1/x"};
    struct admin_request request = {.method = "GET", .host = "localhost", .authorization = "Bearer right"};
    (void)state;
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        expect(request, foreign[i], 400, "malformed-request");
    expect(request, "http://localhost/v1/x", 404, "not-found");
    expect(request, "http://[::1]:8081/v1/x", 404, "not-found");
    request.origin = "http://localhost";
    expect(request, "http://localhost/v1/x", 404, "not-found");
    expect(request, "http://gateway/v1/x", 400, "malformed-request");
    request.host = "evil.example";
    request.origin = NULL;
    expect(request, "http://localhost/v1/x", 400, "malformed-request");
}

static void test_hosts_of_the_settings_are_no_strangers(void **state)
{
    struct admin_request request = {
        .method = "GET", .host = "Fencegate.Ops.Example.:8443", .authorization = "Bearer right"};
    (void)state;
    expect(request, "/v1/x", 404, "not-found");
    expect(request, "http://fencegate.ops.example/v1/x", 404, "not-found");
    expect(request, "http://evil.example/v1/x", 400, "malformed-request");
    request.origin = "https://fencegate.ops.example";
    request.host = "fencegate.ops.example";
    expect(request, "/v1/x", 404, "not-found");
    request.host = "x.fencegate.ops.example";
    expect(request, "/v1/x", 400, "malformed-request");
}

static bool hints(const char *method, const char *target, const char *authorization)
{
    struct admin_answer answer =
        ask((struct admin_request){.method = method, .host = "localhost", .authorization = authorization}, target);
    bool effect = strstr(answer.body.text, "\"effect\":\"not-sent\"") != NULL;
    bool told = strstr(answer.body.text, " The proxy is at 127.0.0.1:8080.\"") != NULL;
    assert_int_equal(effect, told);
    assert_int_equal(answer.hint != NULL, told);
    jsonout_free(&answer.body);
    return told;
}

/* Whatever it is that a worker with the wrong port may have meant, and nothing that is an operator's. */
static void test_a_workers_call_gets_the_proxys_address(void **state)
{
    static const char *const paths[] = {"/", "/pay/v1/charges", "/v1/charges", "/v1/fences/default/k", "/healthz", "*"};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_true(hints("POST", paths[i], NULL));
        assert_true(hints("PATCH", paths[i], "Bearer sk_live_x"));
    }
    assert_true(hints("DELETE", "/v1/fences/default/k?reason=r", NULL));
    assert_false(hints("DELETE", "/v1/fences/default/k", "Bearer right"));
    assert_false(hints("GET", "/pay/v1/charges", NULL));
    assert_false(hints("GET", "/v1/audit", NULL));
    assert_false(hints("GET", "/healthz", NULL));
}

static void test_not_found_and_not_allowed(void **state)
{
    struct admin_request request = {.method = "GET", .host = "localhost", .authorization = "Bearer right"};
    (void)state;
    expect(request, "/nothing", 404, "not-found");
    expect(request, "/v1/nothing", 404, "not-found");
    expect(request, "/v1/fences/default/a/b", 404, "not-found");
    expect(request, "/healthz/", 404, "not-found");
    request.method = "POST";
    expect(request, "/v1/audit", 405, "method-not-allowed");
    expect(request, "/healthz", 405, "method-not-allowed");
    request.method = "get";
    expect(request, "/healthz", 405, "method-not-allowed");
    request.authorization = NULL;
    expect(request, "/nothing", 404, "not-found");
}

/* Bodies and queries of changes are judged before the store is asked. */
static void test_malformed_changes(void **state)
{
    static const struct {
        const char *method, *target, *body, *content_type;
    } bad[] = {
        {"PUT", "/v1/fences/default/k", "{\"token\":43}", NULL},
        {"PUT", "/v1/fences/default/k", "{\"token\":\"43\"}", "text/plain"},
        {"PUT", "/v1/fences/default/k?token=43", "{\"token\":\"43\"}", NULL},
        {"PUT", "/v1/fences/default/%ff", "{\"token\":\"43\"}", NULL},
        {"PUT", "/v1/fences/default/k", NULL, NULL},
        {"DELETE", "/v1/fences/default/k", NULL, NULL},
        {"DELETE", "/v1/fences/default/k?reason=", NULL, NULL},
        {"DELETE", "/v1/fences/default/k?reason=a%07", NULL, NULL},
        {"POST", "/v1/effects/1/resolve", "{\"outcome\":\"sent\"}", NULL},
        {"POST", "/v1/effects/0/resolve", "{\"outcome\":\"sent\",\"note\":\"x\"}", NULL},
        {"POST", "/v1/effects//resolve", "{\"outcome\":\"sent\",\"note\":\"x\"}", NULL},
        {"GET", "/v1/fences?cursor=x", NULL, NULL},
        {"GET", "/v1/effects?state=running", NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct admin_request request = {.method = bad[i].method,
                                        .host = "localhost",
                                        .authorization = "Bearer right",
                                        .content_type = bad[i].content_type,
                                        .body = {bad[i].body, bad[i].body == NULL ? 0 : strlen(bad[i].body)}};
        expect(request, bad[i].target, 400, "malformed-request");
    }
}

static void test_no_change_once_it_ends(void **state)
{
    static const char body[] = "{\"token\":\"43\"}";
    struct admin_request request = {
        .method = "PUT", .host = "localhost", .authorization = "Bearer right", .body = {body, sizeof body - 1}};
    (void)state;
    context.ending = true;
    expect(request, "/v1/fences/default/k", 503, "store-unavailable");
    context.ending = false;
}

static void test_malformed(void **state)
{
    static const char *const bad[] = {"*",
                                      "nothing",
                                      "/v1/audit?kye=a",
                                      "/v1/audit?limit=0",
                                      "/v1/fences/default/k?x=1",
                                      "/v1/fences/default/",
                                      "/v1/fences//k",
                                      "/v1/fences/de%20fault/k",
                                      "/v1/fences/default/%zz",
                                      "/v1/fences/default/a%00b",
                                      "/v1/fences/default/%ff"};
    struct admin_request request = {.method = "GET", .host = "localhost", .authorization = "Bearer right"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        expect(request, bad[i], 400, "malformed-request");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_problem_shape),
        cmocka_unit_test(test_a_problem_replaces_what_was_begun),
        cmocka_unit_test(test_health_is_open),
        cmocka_unit_test(test_a_token_is_needed),
        cmocka_unit_test(test_strangers_are_refused_whatever_the_token),
        cmocka_unit_test(test_a_target_that_names_a_stranger_is_refused_too),
        cmocka_unit_test(test_hosts_of_the_settings_are_no_strangers),
        cmocka_unit_test(test_a_workers_call_gets_the_proxys_address),
        cmocka_unit_test(test_not_found_and_not_allowed),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_malformed_changes),
        cmocka_unit_test(test_no_change_once_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
