/* tests/unit/test_forward.c - the head of the call: which fields pass, in which order, what the route adds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"
#include "gateway/arena.h"
#include "gateway/forward.h"
#include "gateway/headers.h"
#include "gateway/route.h"

static struct arena arena;
static struct forward forward;
static struct config_route route;

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena);
    route = (struct config_route){
        .path = "/pay",
        .upstream_origin = "https://api.example",
        .upstream_path = "",
        .strip_path = true,
        .token_header = "Fencing-Token",
        .key_header = "Workflow-Key",
    };
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

/* Fields are given as "Name: value", split as they stand. */
static enum forward_error build_with(const char *raw_target, const char *const *lines)
{
    struct header_field field[64];
    struct target target;
    size_t count = 0;
    for (; lines[count] != NULL; count++) {
        const char *colon = strstr(lines[count], ": ");
        assert_non_null(colon);
        assert_true(count < sizeof field / sizeof field[0]);
        field[count] =
            (struct header_field){lines[count], (size_t)(colon - lines[count]), colon + 2, strlen(colon + 2)};
    }
    assert_int_equal(target_split(raw_target, strlen(raw_target), &target), TARGET_OK);
    return forward_build(&arena, &route, field, count, &target, "1.1 fencegate-0000002a", &forward);
}
#define BUILD(...) assert_int_equal(build_with("/pay/x", (const char *const[]){__VA_ARGS__, NULL}), FORWARD_OK)

static void expect_lines(const char *const *lines)
{
    static char expected[16384];
    size_t len = 0;
    for (; *lines != NULL; lines++)
        len += (size_t)snprintf(expected + len, sizeof expected - len, "%s\r\n", *lines);
    assert_true(len < sizeof expected);
    if (forward.lines_len != len || memcmp(forward.lines, expected, len) != 0)
        fail_msg("got\n%.*s instead of\n%s", (int)forward.lines_len, forward.lines, expected);
}
#define EXPECT(...) expect_lines((const char *const[]){__VA_ARGS__, NULL})

static void order_and_repeats_stay(void **state)
{
    (void)state;
    BUILD("X-B: 2", "Accept: */*", "X-A: 1", "X-B: 1", "content-TYPE: text/plain", "Cookie: a=b; c");
    EXPECT("X-B: 2", "Accept: */*", "X-A: 1", "X-B: 1", "content-TYPE: text/plain", "Cookie: a=b; c",
           "Via: 1.1 fencegate-0000002a");
}

static void a_client_s_via_stays_before_ours(void **state)
{
    (void)state;
    BUILD("Via: 1.0 other");
    EXPECT("Via: 1.0 other", "Via: 1.1 fencegate-0000002a");
}

static void nothing_but_via(void **state)
{
    (void)state;
    assert_int_equal(build_with("/pay", (const char *const[]){NULL}), FORWARD_OK);
    EXPECT("Via: 1.1 fencegate-0000002a");
}

static void hop_by_hop_fields_go(void **state)
{
    (void)state;
    BUILD("Host: gw", "Connection: close", "keep-alive: 5", "Proxy-Connection: x", "Proxy-Authenticate: x",
          "Proxy-Authorization: x", "TE: trailers", "Trailer: X", "Transfer-Encoding: chunked", "UPGRADE: h2c",
          "Content-Length: 5", "Expect: 100-continue", "X-Stays: 1", "Hosts: 1", "T: 1");
    EXPECT("X-Stays: 1", "Hosts: 1", "T: 1", "Via: 1.1 fencegate-0000002a");
}

static void fields_that_connection_names_go(void **state)
{
    (void)state;
    BUILD("X-One: 1", "X-Two: 2", "Connection: keep-alive, x-one ,, X-Three", "X-Three: 3", "connection: X-Four",
          "X-Four: 4", "X-One-More: 5", "X-One: again");
    EXPECT("X-Two: 2", "X-One-More: 5", "Via: 1.1 fencegate-0000002a");
}

static void connection_names_too_much(void **state)
{
    char value[400] = "Connection: a";
    (void)state;
    for (int i = 0; i < 31; i++)
        strcat(value, ",b");
    assert_int_equal(build_with("/pay", (const char *const[]){value, NULL}), FORWARD_OK);
    strcat(value, ",c");
    assert_int_equal(build_with("/pay", (const char *const[]){value, NULL}), FORWARD_MALFORMED);
}

static void fencing_headers_go_unless_let_through(void **state)
{
    (void)state;
    BUILD("Fencing-Token: 42", "workflow-key: order-17", "Fencing-Tokens: 1", "X-A: 1");
    EXPECT("Fencing-Tokens: 1", "X-A: 1", "Via: 1.1 fencegate-0000002a");
    route.forward_fencing_headers = true;
    BUILD("Fencing-Token: 042", "workflow-key: order-17");
    EXPECT("Fencing-Token: 042", "workflow-key: order-17", "Via: 1.1 fencegate-0000002a");
    route.forward_fencing_headers = false;
    route.token_header = "X-Lease";
    BUILD("Fencing-Token: 42", "x-lease: 42");
    EXPECT("Fencing-Token: 42", "Via: 1.1 fencegate-0000002a");
}

static void the_route_sets_and_removes(void **state)
{
    static const struct config_header set[] = {{"Authorization", "Bearer secret"}, {"X-Team", "billing"}};
    static const char *const remove[] = {"Cookie", "X-Team", NULL};
    (void)state;
    route.set_headers = set;
    route.set_header_count = 2;
    route.remove_headers = remove;
    BUILD("authorization: Bearer of-the-worker", "cookie: a", "X-A: 1", "Cookies: 1", "Authorization: again");
    EXPECT("X-A: 1", "Cookies: 1", "Authorization: Bearer secret", "X-Team: billing", "Via: 1.1 fencegate-0000002a");
}

static void a_set_type_replaces_the_given(void **state)
{
    static const struct config_header set[] = {{"content-type", "application/json"}, {"accept", "text/html"}};
    (void)state;
    route.set_headers = set;
    route.set_header_count = 2;
    BUILD("Accept: */*");
    EXPECT("content-type: application/json", "accept: text/html", "Via: 1.1 fencegate-0000002a");
}

static void a_removed_accept_is_gone(void **state)
{
    static const char *const remove[] = {"Accept", NULL};
    (void)state;
    route.remove_headers = remove;
    BUILD("Accept: */*");
    EXPECT("Via: 1.1 fencegate-0000002a");
}

static void empty_values(void **state)
{
    (void)state;
    BUILD("X-Empty: ", "X-Semicolon: ;", "X-Colon: :");
    EXPECT("X-Empty:", "X-Semicolon: ;", "X-Colon: :", "Via: 1.1 fencegate-0000002a");
}

static void targets(void **state)
{
    static const struct {
        const char *target, *upstream_path;
        bool strip;
        const char *expected;
    } cases[] = {
        {"/pay/v1/charges?x=1", "", true, "/v1/charges?x=1"},
        {"/pay/v1/charges?x=1", "", false, "/pay/v1/charges?x=1"},
        {"/pay/v1", "/base", true, "/base/v1"},
        {"/pay/v1", "/base", false, "/base/pay/v1"},
        {"/pay", "", true, "/"},
        {"/pay", "/base", true, "/base"},
        {"/pay/", "/base", true, "/base/"},
        {"/pay?x", "", true, "/?x"},
        {"/pay/%7ea%2Fb//c;d?q=%20&&=?", "", true, "/%7ea%2Fb//c;d?q=%20&&=?"},
        {"http://api.example/pay/x?y", "", true, "/x?y"},
    };
    static const char *const none[] = {NULL};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        route.upstream_path = cases[i].upstream_path;
        route.strip_path = cases[i].strip;
        assert_int_equal(build_with(cases[i].target, none), FORWARD_OK);
        assert_string_equal(forward.target, cases[i].expected);
    }
}

/* The client may leave at any time, its memory with it. */
static void everything_is_copied(void **state)
{
    char name[] = "X-Name", value[] = "value", raw[] = "/pay/path?q";
    struct header_field field = {name, 6, value, 5};
    struct target target;
    (void)state;
    assert_int_equal(target_split(raw, strlen(raw), &target), TARGET_OK);
    assert_int_equal(forward_build(&arena, &route, &field, 1, &target, "1.1 fencegate-0000002a", &forward), FORWARD_OK);
    memset(name, '#', sizeof name);
    memset(value, '#', sizeof value);
    memset(raw, '#', sizeof raw);
    EXPECT("X-Name: value", "Via: 1.1 fencegate-0000002a");
    assert_string_equal(forward.target, "/path?q");
}

/* More than the arena's first piece holds. */
static void many_large_fields(void **state)
{
    enum { FIELDS = 300 };
    struct header_field field[FIELDS];
    static char value[2000];
    struct target target;
    (void)state;
    memset(value, 'v', sizeof value);
    for (size_t i = 0; i < FIELDS; i++)
        field[i] = (struct header_field){"X-Many", 6, value, i * 6};
    assert_int_equal(target_split("/pay", 4, &target), TARGET_OK);
    assert_int_equal(forward_build(&arena, &route, field, FIELDS, &target, "1.1 fencegate-0000002a", &forward),
                     FORWARD_OK);
    const char *at = forward.lines;
    for (size_t i = 0; i < FIELDS; i++) {
        size_t len = i == 0 ? 7 : 8 + i * 6; /* "X-Many:", "X-Many: v..." */
        assert_memory_equal(at, i == 0 ? "X-Many:" : "X-Many: ", i == 0 ? 7 : 8);
        if (i > 0)
            assert_memory_equal(at + 8, value, i * 6);
        assert_memory_equal(at + len, "\r\n", 2);
        at += len + 2;
    }
    assert_int_equal(forward.lines_len, (size_t)(at - forward.lines) + strlen("Via: 1.1 fencegate-0000002a\r\n"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(order_and_repeats_stay),
        CASE(a_client_s_via_stays_before_ours),
        CASE(nothing_but_via),
        CASE(hop_by_hop_fields_go),
        CASE(fields_that_connection_names_go),
        CASE(connection_names_too_much),
        CASE(fencing_headers_go_unless_let_through),
        CASE(the_route_sets_and_removes),
        CASE(a_set_type_replaces_the_given),
        CASE(a_removed_accept_is_gone),
        CASE(empty_values),
        CASE(targets),
        CASE(everything_is_copied),
        CASE(many_large_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
