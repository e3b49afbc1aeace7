/* tests/unit/test_webhook_target.c - which URLs are targets, what they name, and which of them a route allows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"
#include "gateway/webhook_target.h"

/* The text in memory of its own length: a step past its end is seen by the sanitizer. */
static const char *parse(const char *text, size_t len, struct webhook_target *out, char **copy)
{
    *copy = malloc(len == 0 ? 1 : len);
    assert_non_null(*copy);
    memcpy(*copy, text, len);
    return webhook_target_parse(*copy, len, out);
}

static void taken_apart(void **state)
{
    static const struct {
        const char *text, *origin, *path, *query;
    } rows[] = {
        {"https://a.example", "https://a.example:443", "/", ""},
        {"https://a.example/", "https://a.example:443", "/", ""},
        {"https://a.example?x=1", "https://a.example:443", "/", "?x=1"},
        {"https://a.example/?", "https://a.example:443", "/", "?"},
        {"https://a.example/hook?x=1", "https://a.example:443", "/hook", "?x=1"},
        {"HTTPS://A.EXAMPLE/Hook", "https://a.example:443", "/Hook", ""},
        {"hTTp://a.example/", "http://a.example:80", "/", ""},
        {"https://a.example./x", "https://a.example:443", "/x", ""},
        {"https://a.example.:8443/x", "https://a.example:8443", "/x", ""},
        {"https://a.example:443/x", "https://a.example:443", "/x", ""},
        {"http://a.example:443/x", "http://a.example:443", "/x", ""},
        {"https://a.example:1", "https://a.example:1", "/", ""},
        {"https://a.example:65535/", "https://a.example:65535", "/", ""},
        {"https://xn--mnchen-3ya.example/", "https://xn--mnchen-3ya.example:443", "/", ""},
        {"https://under_score.example/", "https://under_score.example:443", "/", ""},
        {"https://localhost/", "https://localhost:443", "/", ""},
        {"https://10.0.0.1/", "https://10.0.0.1:443", "/", ""},
        {"https://10.0.0.1./", "https://10.0.0.1:443", "/", ""},
        {"https://2130706433/", "https://2130706433:443", "/", ""},
        {"https://0X7F.1/", "https://0x7f.1:443", "/", ""},
        {"https://[::1]/", "https://[::1]:443", "/", ""},
        {"https://[0:0::0:1]:8443", "https://[::1]:8443", "/", ""},
        {"https://[2001:DB8:0:0:0:0:0:1]/x", "https://[2001:db8::1]:443", "/x", ""},
        {"https://[::ffff:7f00:1]/", "https://[::ffff:127.0.0.1]:443", "/", ""},
        /* what stands after the authority is not ours to read */
        {"https://a.example/%41%2Fb%e2%82%ac//c;d=1:2@e", "https://a.example:443", "/%41%2Fb%e2%82%ac//c;d=1:2@e", ""},
        {"https://a.example/?u=https://b.example/../@", "https://a.example:443", "/", "?u=https://b.example/../@"},
        {"https://a.example?@b.example", "https://a.example:443", "/", "?@b.example"},
        {"https://a.example/@b.example:80/", "https://a.example:443", "/@b.example:80/", ""},
        {"https://a.example/...", "https://a.example:443", "/...", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct webhook_target target;
        char *copy, origin[WEBHOOK_ORIGIN_MAX];
        const char *problem = parse(rows[i].text, strlen(rows[i].text), &target, &copy);
        if (problem != NULL)
            fail_msg("%s: %s", rows[i].text, problem);
        webhook_target_origin(&target, origin);
        assert_string_equal(origin, rows[i].origin);
        assert_int_equal(target.parts.path_len, strlen(rows[i].path));
        assert_memory_equal(target.parts.path, rows[i].path, target.parts.path_len);
        assert_int_equal(target.parts.query_len, strlen(rows[i].query));
        if (target.parts.query_len > 0)
            assert_memory_equal(target.parts.query, rows[i].query, target.parts.query_len);
        free(copy);
    }
}

#define L63 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk"

static void longest_names(void **state)
{
    struct webhook_target target;
    char *copy;
    /* 253 bytes with three dots and four labels; one more is too long, and so is a label of 64 */
    const char *fits = "https://" L63 "." L63 "." L63 ".abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghi/";
    const char *over =
        "https://" L63 "." L63 "." L63 ".abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghij/";
    (void)state;
    assert_null(parse(fits, strlen(fits), &target, &copy));
    assert_int_equal(strlen(target.host), 253);
    free(copy);
    assert_non_null(parse(over, strlen(over), &target, &copy));
    free(copy);
    assert_non_null(parse("https://" L63 "x/", 8 + 65, &target, &copy));
    free(copy);
    char *huge = malloc(100000);
    assert_non_null(huge);
    memset(huge, 'a', 100000);
    memcpy(huge, "https://", 8);
    assert_non_null(webhook_target_parse(huge, 100000, &target));
    free(huge);
}

static void refused(void **state)
{
    static const struct {
        const char *text, *word; /* a word of the sentence */
    } rows[] = {
        {"", "begin"},
        {"/hook", "begin"},
        {"a.example/hook", "begin"},
        {"//a.example/hook", "begin"},
        {"ftp://a.example/", "begin"},
        {"file:///etc/passwd", "begin"},
        {"gopher://a.example/", "begin"},
        {"unix:/run/x", "begin"},
        {"javascript:alert(1)", "begin"},
        {"https:/a.example/", "begin"},
        {"https:a.example/", "begin"},
        {"https:\\\\a.example/", "begin"},
        {"https//a.example/", "begin"},
        {" https://a.example/", "begin"},
        {"\thttps://a.example/", "begin"},
        {"httpss://a.example/", "begin"},
        {"https ://a.example/", "begin"},
        {"https://", "host"},
        {"https:///x", "host"},
        {"https://?x", "host"},
        {"https://:443/", "host"},
        {"https://./", "host"},
        {"https://../", "host"},
        {"https://.a.example/", "host"},
        {"https://a..example/", "host"},
        {"https://a.example../", "host"},
        {"https://a b.example/", "host"},
        {"https://a.example /", "host"},
        {"https://a%2eexample/", "host"},
        {"https://%61.example/", "host"},
        {"https://127.0.0.1%2f@a.example/", "user"},
        {"https://m\xc3\xbcnchen.example/", "host"},
        {"https://\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1/", "host"},
        {"https://127\xe3\x80\x82"
         "0\xe3\x80\x82"
         "0\xe3\x80\x82"
         "1/",
         "host"},
        {"https://a.example\xc2\xad/", "host"},
        {"https://a*.example/", "host"},
        {"https://*.example/", "host"},
        {"https://*/", "host"},
        {"https://a,b.example/", "host"},
        {"https://a.example;b/", "host"},
        {"https://a.example&b/", "host"},
        {"https://a~b.example/", "host"},
        {"https://a!b.example/", "host"},
        {"https://\"a.example\"/", "host"},
        {"https://<a.example>/", "host"},
        {"https://a.example|b/", "host"},
        {"https://a.example^b/", "host"},
        {"https://a'b.example/", "host"},
        {"https://user@a.example/", "user"},
        {"https://user:secret@a.example/", "user"},
        {"https://@a.example/", "user"},
        {"https://:@a.example/", "user"},
        {"https://a.example@b.example/", "user"},
        {"https://a.example:443@b.example/", "user"},
        {"https://a@b@c.example/", "user"},
        {"https://a.example#@b.example/", "fragment"},
        {"https://a.example/#", "fragment"},
        {"https://a.example/x#y", "fragment"},
        {"https://a.example/?x#y", "fragment"},
        {"https://a.example#", "fragment"},
        {"https://a.example\\@b.example/", "backslash"},
        {"https://a.example\\.b.example/", "backslash"},
        {"https://a.example/x\\y", "backslash"},
        {"https://a.example/?\\", "backslash"},
        {"https:\\/a.example/", "begin"},
        {"https://a.example:/", "port"},
        {"https://a.example:0/", "port"},
        {"https://256.0.0.1/", "number"},
        {"https://foo.0x4/", "number"},
        {"https://foo.0x/", "number"},
        {"https://4294967296/", "number"},
        {"https://a.example.7./", "number"},
        {"https://1.2.3.4.5/", "number"},
        {"https://09/", "number"},
        {"https://127.0.0.0X100/", "number"},
        {"https://a.example:00443/", "port"},
        {"https://a.example:0443/", "port"},
        {"https://a.example:65536/", "port"},
        {"https://a.example:4294967739/", "port"},
        {"https://a.example:443443/", "port"},
        {"https://a.example:-443/", "port"},
        {"https://a.example:+443/", "port"},
        {"https://a.example:4 43/", "port"},
        {"https://a.example:443:80/", "port"},
        {"https://a.example:https/", "port"},
        {"https://a.example:0x1bb/", "port"},
        {"https://a.example:443a/", "port"},
        {"https://::1/", "host"},
        {"https://2001:db8::1/", "port"},
        {"https://[/", "bracket"},
        {"https://[::1/", "bracket"},
        {"https://[]/", "brackets"},
        {"https://[:]/", "brackets"},
        {"https://[127.0.0.1]/", "brackets"},
        {"https://[a.example]/", "brackets"},
        {"https://[v1.x]/", "brackets"},
        {"https://[::1%25lo]/", "brackets"},
        {"https://[fe80::1%lo]/", "brackets"},
        {"https://[::g]/", "brackets"},
        {"https://[1:2:3:4:5:6:7:8:9]/", "brackets"},
        {"https://[[::1]]/", "brackets"},
        {"https://[::1]x/", "after"},
        {"https://[::1].a.example/", "after"},
        {"https://[::1]443/", "after"},
        {"https://[::1]:/", "port"},
        {"https://[::1]:0/", "port"},
        {"https://a.example/x y", "malformed"},
        {"https://a.example/\r\nX: 1", "malformed"},
        {"https://a.example/\t", "malformed"},
        {"https://a.example/\x7f", "malformed"},
        {"https://a.example/\xc3\xa4", "malformed"},
        {"https://a.example/../x", "malformed"},
        {"https://a.example/x/..", "malformed"},
        {"https://a.example/%2e%2E/x", "malformed"},
        {"https://a.example/x/.", "malformed"},
        {"https://a.example/x%2f..%5cy", "malformed"},
        {"https://a.example/..;x/y", "malformed"},
        {"https://a.example/%00", "malformed"},
        {"https://a.example/%0d%0aX", "malformed"},
        {"https://a.example/%zz", "malformed"},
        {"https://a.example/%4", "malformed"},
        {"https://a.example, https://b.example", "host"},
        {"https://a.example\n/", "host"},
    };
    struct webhook_target target;
    char *copy;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *problem = parse(rows[i].text, strlen(rows[i].text), &target, &copy);
        if (problem == NULL)
            fail_msg("row %zu was taken: %s", i, rows[i].text);
        if (strstr(problem, rows[i].word) == NULL)
            fail_msg("row %zu: %s: not for that: %s", i, rows[i].text, problem);
        free(copy);
    }
    assert_non_null(parse("https://a.example\0.b.example/", 28, &target, &copy));
    free(copy);
    assert_non_null(parse("https://a.example/\0x", 20, &target, &copy));
    free(copy);
}

static void allowed_hosts(void **state)
{
    static const char *const some[] = {"a.example", "*.b.example", "10.0.0.1", "[2001:db8::1]", NULL};
    static const char *const any[] = {"*", NULL};
    static const uint16_t ports[] = {443, 8443};
    static const struct {
        const char *text;
        bool ok;
    } rows[] = {
        {"https://a.example/", true},         {"https://A.Example./", true},
        {"https://x.a.example/", false},      {"https://a.example.evil.example/", false},
        {"https://xa.example/", false},       {"https://example/", false},
        {"https://b.example/", false},        {"https://x.b.example/", true},
        {"https://X.Y.B.EXAMPLE./", true},    {"https://xb.example/", false},
        {"https://x.b.example.evil/", false}, {"https://10.0.0.1/", true},
        {"https://10.0.0.1./", true},         {"https://10.0.1/", false},
        {"https://167772161/", false},        {"https://[2001:db8:0::1]/", true},
        {"https://[2001:db8::2]/", false},    {"https://a.example:8443/", true},
        {"https://a.example:8444/", false},   {"https://a.example:80/", false},
        {"http://a.example:443/", false},     {"http://a.example/", false},
    };
    struct config_webhook rules = {.allow_hosts = some, .ports = ports, .port_count = 2};
    struct webhook_target target;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_null(webhook_target_parse(rows[i].text, strlen(rows[i].text), &target));
        if ((webhook_target_problem(&rules, &target) == NULL) != rows[i].ok)
            fail_msg("%s", rows[i].text);
    }
    rules = (struct config_webhook){.allow_hosts = any, .ports = ports, .port_count = 2, .allow_http = true};
    assert_null(webhook_target_parse("http://any.example:443/", 23, &target));
    assert_null(webhook_target_problem(&rules, &target));
    assert_null(webhook_target_parse("http://any.example/", 19, &target));
    assert_non_null(webhook_target_problem(&rules, &target));
    assert_null(webhook_target_parse("https://[::1]/", 14, &target));
    assert_null(webhook_target_problem(&rules, &target));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taken_apart),
        cmocka_unit_test(longest_names),
        cmocka_unit_test(refused),
        cmocka_unit_test(allowed_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
