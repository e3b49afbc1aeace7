/* tests/unit/test_route.c - which route a target takes, what is sent on, and that no spelling slips past. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"
#include "gateway/route.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct config_route routes[] = {
    {.name = "pay", .path = "/pay", .upstream_path = "", .strip_path = true},
    {.name = "refunds", .path = "/pay/refunds", .upstream_path = "/v1", .strip_path = true},
    {.name = "whole", .path = "/v1", .upstream_path = "/api", .strip_path = false},
    {.name = "host-root", .path = "", .host = "stripe.internal", .upstream_path = "", .strip_path = true},
    {.name = "host-v1", .path = "/v1", .host = "stripe.internal", .upstream_path = "", .strip_path = false},
    {.name = "host-port", .path = "/v1", .host = "stripe.internal:8443", .upstream_path = "", .strip_path = false},
    {.name = "six", .path = "", .host = "[::1]:9000", .upstream_path = "", .strip_path = false},
    {.name = "eighty", .path = "", .host = "eighty.test:80", .upstream_path = "", .strip_path = false},
};

/* A table with a way around: everything below "/" is another route. */
static const struct config_route open_routes[] = {
    {.name = "rest", .path = "", .upstream_path = "", .strip_path = true},
    {.name = "pay", .path = "/pay", .upstream_path = "", .strip_path = true},
};

static bool malformed_bytes(const char *raw, size_t len)
{
    struct target target;
    return target_split(raw, len, &target) == TARGET_MALFORMED;
}

/* The route's name, or what else came out. */
static const char *in_table(const struct config_route *table, size_t count, const char *host, const char *raw)
{
    struct target target;
    const struct config_route *route = NULL;
    if (target_split(raw, strlen(raw), &target) != TARGET_OK)
        return "malformed";
    if (target.host != NULL) {
        char *copy = strndup(target.host, target.host_len);
        enum route_verdict verdict = route_match(table, count, copy, target.host_len, &target, &route);
        free(copy);
        if (verdict == ROUTE_OK)
            return route->name;
        return verdict == ROUTE_NONE ? "none" : "ambiguous";
    }
    switch (route_match(table, count, host, host == NULL ? 0 : strlen(host), &target, &route)) {
    case ROUTE_OK: return route->name;
    case ROUTE_NONE: return "none";
    case ROUTE_AMBIGUOUS: return "ambiguous";
    }
    return "?";
}

static const char *takes(const char *host, const char *raw)
{
    return in_table(routes, COUNT(routes), host, raw);
}

static const char *takes_open(const char *raw)
{
    return in_table(open_routes, COUNT(open_routes), "gw.test", raw);
}

static void splits_targets(void **state)
{
    struct target target;
    (void)state;
    assert_int_equal(target_split("/a/b?x=1?y", 10, &target), TARGET_OK);
    assert_int_equal(target.path_len, 4);
    assert_memory_equal(target.path, "/a/b", 4);
    assert_int_equal(target.query_len, 6);
    assert_memory_equal(target.query, "?x=1?y", 6);
    assert_null(target.host);
    assert_int_equal(target_split("/a", 2, &target), TARGET_OK);
    assert_null(target.query);
    assert_int_equal(target.query_len, 0);
    assert_int_equal(target_split("/a?%20%zz%0", 11, &target), TARGET_OK);    /* a query may hold a stray '%' */
    assert_int_equal(target_split("/a?b=%0a%00%7F", 14, &target), TARGET_OK); /* encoded bytes of it are data */
    assert_int_equal(target_split("/a?", 3, &target), TARGET_OK);
    assert_int_equal(target.query_len, 1);
    assert_int_equal(target_split("HTTP://Api.Test:81/a?q", 22, &target), TARGET_OK);
    assert_int_equal(target.host_len, 11);
    assert_memory_equal(target.host, "Api.Test:81", 11);
    assert_memory_equal(target.path, "/a", 2);
    assert_int_equal(target_split("https://h", 9, &target), TARGET_OK);
    assert_int_equal(target.path_len, 1);
    assert_memory_equal(target.path, "/", 1);
    assert_int_equal(target_split("http://h?q", 10, &target), TARGET_OK);
    assert_int_equal(target.path_len, 1);
    assert_int_equal(target.query_len, 2);
    assert_int_equal(target_split("http://[::1]:80/a", 17, &target), TARGET_OK);
    assert_int_equal(target.host_len, 8);
}

static void refuses_targets(void **state)
{
    static const char *const bad[] = {"",
                                      "*",
                                      "pay",
                                      "gw.test:80",
                                      "http:",
                                      "http:/pay",
                                      "http://",
                                      "http:///pay",
                                      "http://?x",
                                      "http://u@h/pay",
                                      "http://u:p@h/pay",
                                      "http://h:x/pay",
                                      "http://h%2e/pay",
                                      "http://a,b/",
                                      "ftp://h/pay",
                                      "httpx://h/",
                                      "/pay#f",
                                      "/pay?x#f",
                                      "/pa y",
                                      "/pay?x y",
                                      "/caf\xC3\xA9",
                                      "/pay?\xFF",
                                      "/\x7F",
                                      "/\x01",
                                      "/pay\t",
                                      "/pay/..",
                                      "/pay/../x",
                                      "/x/../pay",
                                      "/./pay",
                                      "/pay/.",
                                      "/..",
                                      "/.",
                                      "/x/%2e%2e/pay",
                                      "/x/%2E./pay",
                                      "/x/.%2e",
                                      "/%2e/pay",
                                      "/x%2f..%2fpay",
                                      "/x%2F%2e%2e%2Fpay",
                                      "/x/..%2fpay",
                                      "/x\\..\\pay",
                                      "/x/..\\pay",
                                      "/x%5c..%5cpay",
                                      "/pay/..;/x",
                                      "/pay/..;a=b/x",
                                      "/pay/;../x",
                                      "/pay/.;x",
                                      "/pay;..",
                                      "/pay/..%3bx/",
                                      "/pay%00",
                                      "/pay%0a",
                                      "/pay%0D",
                                      "/pay%1f",
                                      "/pay%7f",
                                      "/pay%7F",
                                      "/pay%",
                                      "/pay%4",
                                      "/pay%zz",
                                      "/pay%4g/x",
                                      "/pay%/x",
                                      "/pay%u0041",
                                      "http://h/x/../pay",
                                      "http://h/%00"};
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        if (!malformed_bytes(bad[i], strlen(bad[i])))
            fail_msg("passed \"%s\"", bad[i]);
    assert_true(malformed_bytes("/pa\0y", 5));
    assert_true(malformed_bytes("/pay\r", 5));
    assert_true(malformed_bytes("/pay?a\nb", 8));
}

static void passes_targets(void **state)
{
    static const char *const good[] = {"/",
                                       "//",
                                       "/...",
                                       "/x/...",
                                       "/.well-known/x",
                                       "/a..b",
                                       "/a.",
                                       "/..a",
                                       "/x/..a/b",
                                       "/%20",
                                       "/caf%C3%A9",
                                       "/%80",
                                       "/a%2Fb",
                                       "/a%2f%2fb",
                                       "/a;b=c/d",
                                       "/pay?x=../..",
                                       "/pay?x=%20%zz%",
                                       "/pay?/../",
                                       "/a:b@c!$&'()*+,=",
                                       "/%25%32%65",
                                       "/a\\b"};
    (void)state;
    for (size_t i = 0; i < COUNT(good); i++)
        if (malformed_bytes(good[i], strlen(good[i])))
            fail_msg("refused \"%s\"", good[i]);
}

static void borders_and_length(void **state)
{
    (void)state;
    assert_string_equal(takes("gw.test", "/pay"), "pay");
    assert_string_equal(takes("gw.test", "/pay/"), "pay");
    assert_string_equal(takes("gw.test", "/pay/x"), "pay");
    assert_string_equal(takes("gw.test", "/pay?x=/pay/refunds"), "pay");
    assert_string_equal(takes("gw.test", "/payments"), "none");
    assert_string_equal(takes("gw.test", "/pa"), "none");
    assert_string_equal(takes("gw.test", "/PAY"), "none");
    assert_string_equal(takes("gw.test", "/"), "none");
    assert_string_equal(takes("gw.test", "/x/pay"), "none");
    assert_string_equal(takes("gw.test", "/pay/refunds"), "refunds");
    assert_string_equal(takes("gw.test", "/pay/refunds/1"), "refunds");
    assert_string_equal(takes("gw.test", "/pay/refundsx"), "pay");
    assert_string_equal(takes(NULL, "/pay"), "pay");
    assert_string_equal(takes("", "/pay"), "pay");
    assert_string_equal(takes_open("/payments"), "rest");
    assert_string_equal(takes_open("/"), "rest");
}

static void hosts_come_first(void **state)
{
    (void)state;
    assert_string_equal(takes("stripe.internal", "/pay/refunds"), "host-root"); /* a host beats a longer path */
    assert_string_equal(takes("stripe.internal", "/v1/x"), "host-v1");
    assert_string_equal(takes("STRIPE.Internal", "/v1"), "host-v1");
    assert_string_equal(takes("stripe.internal.", "/v1"), "host-v1");
    assert_string_equal(takes("stripe.internal:8080", "/v1"), "host-v1");
    assert_string_equal(takes("stripe.internal.:8080", "/v1"), "host-v1");
    assert_string_equal(takes("stripe.internal:", "/v1"), "host-v1");
    assert_string_equal(takes("stripe.internal:8443", "/v1"), "host-port");
    assert_string_equal(takes("stripe.internal:8443", "/pay"), "host-root");
    assert_string_equal(takes("stripe.internal:84430", "/v1"), "host-v1");
    assert_string_equal(takes("xstripe.internal", "/v1"), "whole");
    assert_string_equal(takes("stripe.internal.x", "/v1"), "whole");
    assert_string_equal(takes(NULL, "/v1"), "whole");
    assert_string_equal(takes("[::1]:9000", "/x"), "six");
    assert_string_equal(takes("[::1]:9001", "/x"), "none");
    assert_string_equal(takes("[::1]", "/x"), "none");
    assert_string_equal(takes("eighty.test", "/x"), "eighty");
    assert_string_equal(takes("eighty.test:80", "/x"), "eighty");
    assert_string_equal(takes("eighty.test:81", "/x"), "none");
    /* absolute-form brings its own host */
    assert_string_equal(takes("gw.test", "http://stripe.internal/x"), "host-root");
    assert_string_equal(takes("stripe.internal", "http://gw.test/x"), "none");
    assert_string_equal(takes("gw.test", "http://STRIPE.internal:8443/v1"), "host-port");
    assert_string_equal(takes("gw.test", "http://stripe.internal"), "host-root");
}

/* Other spellings of a route's path, with no other route to fall to and with one that takes everything. */
static void no_spelling_slips_past(void **state)
{
    static const char *const spellings[] = {"/%70ay",     "/%70%61%79", "//pay",        "///pay",      "/pay;x",
                                            "/pay;x/y",   "/;x/pay",    "/;/pay",       "//%70ay;a/b", "/p%61y/x",
                                            "/;a;b//pay", "/%70ay?x",   "http://h//pay"};
    static const char *const wide[] = {"/pay%2Fx", "/%2Fpay", "/%2f%2fpay", "/pay%3bx", "/pay%3Bx/y",
                                       "/\\pay",   "/pay\\x", "/pay%5Cx",   "/%5cpay"};
    (void)state;
    for (size_t i = 0; i < COUNT(spellings); i++) {
        assert_string_equal(takes("gw.test", spellings[i]), "ambiguous");
        assert_string_equal(takes_open(spellings[i]), "ambiguous");
    }
    for (size_t i = 0; i < COUNT(wide); i++) {
        assert_string_equal(takes("gw.test", wide[i]), "none"); /* no route: goes nowhere */
        assert_string_equal(takes_open(wide[i]), "ambiguous");
    }
    assert_string_equal(takes("gw.test", "/pay//refunds"), "ambiguous");
    assert_string_equal(takes("gw.test", "/pay/%72efunds"), "ambiguous");
    assert_string_equal(takes("gw.test", "/pay/refunds;x"), "ambiguous");
    assert_string_equal(takes("gw.test", "/pay/;x/refunds"), "ambiguous");
    assert_string_equal(takes("gw.test", "/pay%2Frefunds"), "none");
    assert_string_equal(takes("gw.test", "/pay/%2Frefunds"), "ambiguous");
}

static void spellings_within_one_route(void **state)
{
    (void)state;
    assert_string_equal(takes("gw.test", "/pay/a%2Fb"), "pay");
    assert_string_equal(takes("gw.test", "/pay/%61"), "pay");
    assert_string_equal(takes("gw.test", "/pay//a"), "pay");
    assert_string_equal(takes("gw.test", "/pay/a;b=c"), "pay");
    assert_string_equal(takes("gw.test", "/pay/a;b//"), "pay");
    assert_string_equal(takes("gw.test", "/pay/caf%C3%A9"), "pay");
    assert_string_equal(takes("gw.test", "/pay/refunds%20"), "pay");
    assert_string_equal(takes("gw.test", "/payments;x"), "none");
    assert_string_equal(takes("gw.test", "/%2570ay"), "none"); /* decoded once, not twice */
    assert_string_equal(takes_open("//x;y/%7Ea"), "rest");
    assert_string_equal(takes("stripe.internal", "//x"), "host-root");
}

static void ties_and_no_routes(void **state)
{
    (void)state;
    assert_string_equal(in_table(routes, 0, "gw.test", "/pay"), "none");
    assert_string_equal(in_table(routes, 0, "gw.test", "//pay"), "none");
}

static const char *rewritten(const struct config_route *route, const char *raw)
{
    static char out[256];
    struct target target;
    assert_int_equal(target_split(raw, strlen(raw), &target), TARGET_OK);
    size_t len = route_rewrite(route, &target, out, sizeof out);
    assert_int_equal(len, strlen(out));
    return out;
}

static void rewrites(void **state)
{
    const struct config_route *pay = &routes[0], *refunds = &routes[1], *whole = &routes[2], *root = &routes[3];
    (void)state;
    assert_string_equal(rewritten(pay, "/pay/charges?a=%2F;b"), "/charges?a=%2F;b");
    assert_string_equal(rewritten(pay, "/pay/a%2Fb/%C3%a9;x//"), "/a%2Fb/%C3%a9;x//");
    assert_string_equal(rewritten(pay, "/pay"), "/");
    assert_string_equal(rewritten(pay, "/pay/"), "/");
    assert_string_equal(rewritten(pay, "/pay?x"), "/?x");
    assert_string_equal(rewritten(pay, "/pay/?x"), "/?x");
    assert_string_equal(rewritten(pay, "/pay//a"), "//a");
    assert_string_equal(rewritten(refunds, "/pay/refunds"), "/v1");
    assert_string_equal(rewritten(refunds, "/pay/refunds/"), "/v1/");
    assert_string_equal(rewritten(refunds, "/pay/refunds?x=1"), "/v1?x=1");
    assert_string_equal(rewritten(refunds, "/pay/refunds/7?x=1"), "/v1/7?x=1");
    assert_string_equal(rewritten(whole, "/v1"), "/api/v1");
    assert_string_equal(rewritten(whole, "/v1/x?"), "/api/v1/x?");
    assert_string_equal(rewritten(root, "http://stripe.internal"), "/");
    assert_string_equal(rewritten(root, "http://stripe.internal?x"), "/?x");
    assert_string_equal(rewritten(root, "http://stripe.internal/a?x"), "/a?x");
}

static void rewrite_needs_room(void **state)
{
    char out[16];
    struct target target;
    (void)state;
    assert_int_equal(target_split("/pay/abc?d", 10, &target), TARGET_OK);
    assert_int_equal(route_rewrite(&routes[0], &target, out, 7), 6);
    assert_string_equal(out, "/abc?d");
    for (size_t cap = 0; cap < 7; cap++)
        assert_int_equal(route_rewrite(&routes[0], &target, out, cap), 0);
    assert_int_equal(target_split("/pay", 4, &target), TARGET_OK);
    assert_int_equal(route_rewrite(&routes[0], &target, out, 1), 0);
    assert_int_equal(route_rewrite(&routes[0], &target, out, 2), 1);
}

/* What a lax server makes of a path: all decoded once, '\' as '/', parameters cut, slashes joined. */
static void lax_reading(const struct target *target, char *out)
{
    size_t len = 0;
    bool cut = false;
    for (size_t i = 0; i < target->path_len; i++) {
        char c = target->path[i];
        if (c == '%') {
            c = (char)strtoul((const char[]){target->path[i + 1], target->path[i + 2], '\0'}, NULL, 16);
            i += 2;
        }
        if (c == '\\')
            c = '/';
        if (c == '/')
            cut = false;
        else if (c == ';')
            cut = true;
        if (!cut && (c != '/' || len == 0 || out[len - 1] != '/'))
            out[len++] = c;
    }
    out[len] = '\0';
}

/* Random targets out of what tricks are made of: whatever "rest" is given can't be read as "/pay" by anybody. */
static void random_targets(void **state)
{
    static const char *const pieces[] = {"/",   "//", "pay",      "%70", "ay",  ".", "..",   "%2e",
                                         "%2F", "\\", "%5c",      ";",   "%3B", "x", "?",    "%",
                                         "%00", "#",  "http://h", "%25", "pa",  "y", "\x80", " "};
    unsigned seed = 31337;
    unsigned judged = 0;
    (void)state;
    for (int round = 0; round < 300000; round++) {
        char raw[128] = "";
        struct target target;
        const struct config_route *route = NULL;
        int count = rand_r(&seed) % 8;
        if (rand_r(&seed) % 4 != 0)
            strcat(raw, "/");
        for (int i = 0; i < count; i++)
            strcat(raw, pieces[(size_t)rand_r(&seed) % COUNT(pieces)]);
        char *exact = malloc(strlen(raw) + 1);
        assert_non_null(exact);
        memcpy(exact, raw, strlen(raw) + 1);
        if (target_split(exact, strlen(raw), &target) == TARGET_OK &&
            route_match(open_routes, COUNT(open_routes), NULL, 0, &target, &route) == ROUTE_OK) {
            char lax[128];
            lax_reading(&target, lax);
            bool is_pay = strncmp(lax, "/pay", 4) == 0 && (lax[4] == '/' || lax[4] == '\0');
            if (is_pay != (route == &open_routes[1]))
                fail_msg("\"%s\" went to %s", raw, route->name);
            if (strstr(lax, "/../") != NULL || strstr(lax, "/./") != NULL)
                fail_msg("\"%s\" has a dot segment", raw);
            judged++;
        }
        free(exact);
    }
    assert_true(judged > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_targets),
        cmocka_unit_test(refuses_targets),
        cmocka_unit_test(passes_targets),
        cmocka_unit_test(borders_and_length),
        cmocka_unit_test(hosts_come_first),
        cmocka_unit_test(no_spelling_slips_past),
        cmocka_unit_test(spellings_within_one_route),
        cmocka_unit_test(ties_and_no_routes),
        cmocka_unit_test(rewrites),
        cmocka_unit_test(rewrite_needs_room),
        cmocka_unit_test(random_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
