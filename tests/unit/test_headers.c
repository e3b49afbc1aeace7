/* tests/unit/test_headers.c - the screen of a request's fields, and which fields go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/headers.h"

#define FIELD(name, value)                                                                                             \
    {                                                                                                                  \
        (name), sizeof(name) - 1, (value), sizeof(value) - 1                                                           \
    }
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define HOST FIELD("Host", "gw.test")

static struct screened screen(const struct header_field *fields, size_t count)
{
    struct screened out;
    memset(&out, 0xA5, sizeof out);
    headers_screen(fields, count, "POST", "HTTP/1.1", &out);
    return out;
}

/* One field beside a good Host. */
static const char *problem_with(const char *name, size_t name_len, const char *value, size_t value_len)
{
    const struct header_field fields[] = {HOST, {name, name_len, value, value_len}};
    return screen(fields, 2).problem;
}

#define REFUSED(name, value) assert_non_null(problem_with((name), sizeof(name) - 1, (value), sizeof(value) - 1))
#define PASSED(name, value) assert_null(problem_with((name), sizeof(name) - 1, (value), sizeof(value) - 1))

static void good_request(void **state)
{
    const struct header_field fields[] = {HOST, FIELD("content-LENGTH", "0123"), FIELD("EXPECT", "100-Continue"),
                                          FIELD("X-Empty", ""), FIELD("X-Obs", "caf\xE9 \x80\xFF\t~")};
    (void)state;
    struct screened out = screen(fields, COUNT(fields));
    assert_null(out.problem);
    assert_true(out.has_length);
    assert_int_equal(out.length, 123);
    assert_true(out.expect_continue);
    assert_false(out.expect_unknown);
    assert_false(out.chunked);
    assert_ptr_equal(out.host, &fields[0]);
    assert_null(out.token);
}

static void names_and_values(void **state)
{
    (void)state;
    REFUSED("", "x");
    REFUSED("X-Test ", "x");
    REFUSED(" X-Test", "x");
    REFUSED("X Test", "x");
    REFUSED("X\tTest", "x");
    REFUSED("Bad[Name", "x");
    REFUSED("X:Y", "x");
    REFUSED("X-T\xC3\xABst", "x");
    REFUSED("X\0Y", "x");
    REFUSED("X\x7FY", "x");
    REFUSED("Content-Length ", "5");
    REFUSED("Transfer-Encoding ", "chunked");
    PASSED("!#$%&'*+-.^_`|~09azAZ", "x");
    REFUSED("X", "a\0b");
    REFUSED("X", "a\rb");
    REFUSED("X", "a\nb");
    REFUSED("X", "\x07");
    REFUSED("X", "\x1b[31m");
    REFUSED("X", "\x7F");
    PASSED("X", "\ta\tb ");
}

static void content_length(void **state)
{
    const struct header_field twice[] = {HOST, FIELD("Content-Length", "5"), FIELD("content-length", "5")};
    const struct header_field both[] = {HOST, FIELD("Content-Length", "5"), FIELD("Transfer-Encoding", "chunked")};
    const struct header_field both_other[] = {HOST, FIELD("Transfer-Encoding", "chunked"),
                                              FIELD("Content-Length", "5")};
    (void)state;
    PASSED("Content-Length", "0");
    PASSED("Content-Length", "00005");
    PASSED("Content-Length", " 5 ");
    PASSED("Content-Length", "999999999999999999");
    REFUSED("Content-Length", "");
    REFUSED("Content-Length", " ");
    REFUSED("Content-Length", "+5");
    REFUSED("Content-Length", "-1");
    REFUSED("Content-Length", "-0");
    REFUSED("Content-Length", "0x5");
    REFUSED("Content-Length", "0o5");
    REFUSED("Content-Length", "1_0");
    REFUSED("Content-Length", "1 0");
    REFUSED("Content-Length", "5, 5");
    REFUSED("Content-Length", "5,10");
    REFUSED("Content-Length", "5.0");
    REFUSED("Content-Length", "5e1");
    REFUSED("Content-Length", "abc");
    REFUSED("Content-Length", "\xEF\xBC\x95");
    REFUSED("Content-Length", "1000000000000000000");
    REFUSED("Content-Length", "99999999999999999999");
    assert_non_null(screen(twice, COUNT(twice)).problem);
    assert_non_null(screen(both, COUNT(both)).problem);
    assert_non_null(screen(both_other, COUNT(both_other)).problem);
}

static void transfer_encoding(void **state)
{
    const struct header_field chunked[] = {HOST, FIELD("Transfer-Encoding", "Chunked")};
    const struct header_field twice[] = {HOST, FIELD("Transfer-Encoding", "chunked"),
                                         FIELD("Transfer-Encoding", "chunked")};
    struct screened out;
    (void)state;
    out = screen(chunked, COUNT(chunked));
    assert_null(out.problem);
    assert_true(out.chunked);
    headers_screen(chunked, COUNT(chunked), "POST", "HTTP/1.0", &out);
    assert_non_null(out.problem);
    assert_non_null(screen(twice, COUNT(twice)).problem);
    REFUSED("Transfer-Encoding", "");
    REFUSED("Transfer-Encoding", "gzip");
    REFUSED("Transfer-Encoding", "identity");
    REFUSED("Transfer-Encoding", "xchunked");
    REFUSED("Transfer-Encoding", "chunkedx");
    REFUSED("Transfer-Encoding", "chunked, gzip");
    REFUSED("Transfer-Encoding", "gzip, chunked");
    REFUSED("Transfer-Encoding", "chunked,");
    REFUSED("Transfer-Encoding", "chunked;q=1");
    REFUSED("Transfer-Encoding", "\"chunked\"");
    REFUSED("Transfer-Encoding", "\x0B"
                                 "chunked");
    REFUSED("Transfer-Encoding", "\x0C"
                                 "chunked");
    REFUSED("Transfer-Encoding", "chunked\0");
}

static void hosts(void **state)
{
    static const char *const good[] = {"gw.test",   "gw.test:8080",        "GW.Test.", "gw.test.:80",
                                       "127.0.0.1", "127.0.0.1:1",         "[::1]",    "[::1]:80",
                                       "a_b-c~d",   "[2001:db8::1.2.3.4]", "gw.test:", "localhost:65535"};
    static const char *const bad[] = {"",
                                      "user@gw.test",
                                      "user:pw@gw.test",
                                      "gw.test/path",
                                      "gw.test?x",
                                      "gw.test#x",
                                      "gw test",
                                      "gw.test, other.example.com",
                                      "gw.test:80:80",
                                      "gw.test:http",
                                      "gw.test:-1",
                                      "gw.test: 80",
                                      "gw.test:65536",
                                      "gw.test:000080",
                                      ":80",
                                      ".",
                                      ".gw.test",
                                      "http://gw.test",
                                      "::1",
                                      "[::1",
                                      "::1]",
                                      "[]",
                                      "[gw.test]",
                                      "[::1]x",
                                      "[::1]:x",
                                      "[fe80::1%25eth0]",
                                      "[v1.a]",
                                      "[1:2:3:4:5:6:7:8:9]",
                                      "gw%2Etest",
                                      "gw\\test",
                                      "g\xC3\xBC.test",
                                      "gw.test;x",
                                      "\"gw.test\""};
    const struct header_field same[] = {HOST, HOST};
    const struct header_field padded[] = {FIELD("Host", "gw.test ")};
    struct screened out;
    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        struct header_field field = {"HOST", 4, good[i], strlen(good[i])};
        if (screen(&field, 1).problem != NULL)
            fail_msg("refused %s", good[i]);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct header_field field = {"Host", 4, bad[i], strlen(bad[i])};
        if (screen(&field, 1).problem == NULL)
            fail_msg("passed %s", bad[i]);
    }
    assert_null(screen(padded, 1).problem);
    assert_non_null(screen(same, 2).problem);
    assert_false(authority_valid("[::1\0]", 6));
    assert_false(authority_valid("a\0b", 3));
    headers_screen(NULL, 0, "GET", "HTTP/1.1", &out);
    assert_non_null(out.problem);
    headers_screen(NULL, 0, "GET", "HTTP/1.0", &out);
    assert_null(out.problem);
    assert_null(out.host);
}

static void methods(void **state)
{
    const struct header_field fields[] = {HOST};
    struct screened out;
    (void)state;
    headers_screen(fields, 1, "FOO-BAR", "HTTP/1.1", &out);
    assert_null(out.problem);
    headers_screen(fields, 1, "", "HTTP/1.1", &out);
    assert_non_null(out.problem);
    headers_screen(fields, 1, "GE(T", "HTTP/1.1", &out);
    assert_non_null(out.problem);
}

static void expectations(void **state)
{
    const struct header_field other[] = {HOST, FIELD("Expect", "a-miracle")};
    const struct header_field mixed[] = {HOST, FIELD("Expect", "100-continue"), FIELD("Expect", "a-miracle")};
    const struct header_field list[] = {HOST, FIELD("Expect", "100-continue, a-miracle")};
    const struct header_field empty[] = {HOST, FIELD("Expect", "")};
    const struct header_field plain[] = {HOST, FIELD("Expect", " 100-CONTINUE ")};
    struct screened out;
    (void)state;
    assert_true(screen(other, 2).expect_unknown);
    assert_false(screen(other, 2).expect_continue);
    assert_true(screen(mixed, 3).expect_unknown);
    assert_true(screen(list, 2).expect_unknown);
    assert_true(screen(empty, 2).expect_unknown);
    assert_true(screen(plain, 2).expect_continue);
    assert_false(screen(plain, 2).expect_unknown);
    headers_screen(plain, 2, "POST", "HTTP/1.0", &out);
    assert_false(out.expect_continue);
}

static void fencing_headers(void **state)
{
    const struct header_field fields[] = {FIELD("fencing-TOKEN", "42"), FIELD("Workflow-Key", "k"),
                                          FIELD("Fencing-Token2", "9")};
    const struct header_field doubled[] = {
        FIELD("Fencing-Token", "42"), FIELD("Fencing-Token", "42"), FIELD("X", ""),
        FIELD("Fencing-Token", "42"), FIELD("Workflow-Key", "a"),   FIELD("workflow-key", "a")};
    static const char *const naming[] = {"Fencing-Token", "close, fencing-token", "workflow-key\t,x", ",,Workflow-Key"};
    static const char *const harmless[] = {
        "", "close", "Fencing", "Fencing-Token2", "X-Fencing-Token", "Fencing-Token x"};
    struct screened out = screen(fields, 0);
    (void)state;
    headers_find_fence(fields, COUNT(fields), "Fencing-Token", "Workflow-Key", &out);
    assert_ptr_equal(out.token, &fields[0]);
    assert_ptr_equal(out.key, &fields[1]);
    assert_false(out.token_doubled || out.key_doubled || out.connection_names_fence || out.fence_twin);

    headers_find_fence(doubled, COUNT(doubled), "Fencing-Token", "Workflow-Key", &out);
    assert_ptr_equal(out.token, &doubled[0]);
    assert_ptr_equal(out.key, &doubled[4]);
    assert_true(out.token_doubled);
    assert_true(out.key_doubled);

    headers_find_fence(fields, COUNT(fields), "X-Lease", "X-Order", &out);
    assert_null(out.token);
    assert_null(out.key);
    assert_false(out.token_doubled || out.key_doubled);

    for (size_t i = 0; i < COUNT(naming); i++) {
        struct header_field connection = {"connection", 10, naming[i], strlen(naming[i])};
        headers_find_fence(&connection, 1, "Fencing-Token", "Workflow-Key", &out);
        assert_true(out.connection_names_fence);
    }
    for (size_t i = 0; i < COUNT(harmless); i++) {
        struct header_field connection = {"Connection", 10, harmless[i], strlen(harmless[i])};
        headers_find_fence(&connection, 1, "Fencing-Token", "Workflow-Key", &out);
        assert_false(out.connection_names_fence);
    }
}

/* Partners behind CGI or WSGI see one variable for both. */
static void names_with_the_other_sign(void **state)
{
    static const char *const twins[] = {"Fencing_Token", "FENCING_token", "Workflow_Key", "X-Lease"};
    static const char *const others[] = {"FencingToken", "Fencing.Token", "Fencing-Token_", "Fencing__Token",
                                         "X_Lease"};
    static const char *const overrides[] = {"X-HTTP-Method-Override", "x-http-method", "X-Method-Override",
                                            "X_HTTP_Method-Override", "X_METHOD_OVERRIDE"};
    static const char *const no_overrides[] = {"X-HTTP-Methods", "Method-Override", "X-HTTP-Method-Overrides"};
    (void)state;
    for (size_t i = 0; i < COUNT(twins); i++) {
        struct header_field field = {twins[i], strlen(twins[i]), "1", 1};
        struct screened out = screen(&field, 0);
        headers_find_fence(&field, 1, i < 2 ? "Fencing-Token" : "X_Lease", "Workflow-Key", &out);
        assert_true(out.fence_twin && out.token == NULL && out.key == NULL);
    }
    for (size_t i = 0; i < COUNT(others); i++) {
        struct header_field field = {others[i], strlen(others[i]), "1", 1};
        struct screened out = screen(&field, 0);
        headers_find_fence(&field, 1, i < 4 ? "Fencing-Token" : "X_Lease", "Workflow-Key", &out);
        assert_false(out.fence_twin);
    }
    for (size_t i = 0; i < COUNT(overrides); i++) {
        struct header_field field = {overrides[i], strlen(overrides[i]), "", 0};
        assert_true(headers_override_method(&field, 1));
    }
    for (size_t i = 0; i < COUNT(no_overrides); i++) {
        struct header_field field = {no_overrides[i], strlen(no_overrides[i]), "POST", 4};
        assert_false(headers_override_method(&field, 1));
    }
    assert_false(headers_override_method(NULL, 0));
}

static bool to_partner(const char *name, const struct hop_names *hops)
{
    struct header_field field = {name, strlen(name), "v", 1};
    return headers_pass_request(&field, hops);
}

static bool to_client(const char *name, const struct hop_names *hops)
{
    struct header_field field = {name, strlen(name), "v", 1};
    return headers_pass_response(&field, hops);
}

static void a_proxy_is_found_in_via(void **state)
{
    static const struct {
        const char *value;
        bool found;
    } rows[] = {
        {"1.1 us", true},     {"1.0 a, HTTP/1.1 us", true}, {"1.1 us (what it is)", true},
        {"1.1 a (us)", true}, {"1.1 US,1.1 b", true},       {"us", true},
        {"1.1 usa", false},   {"1.1 us-2", false},          {"1.1 x.us", false},
        {"", false},          {"1.1 u s", false},           {"1.1 u", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct header_field fields[] = {
            FIELD("Vias", "1.1 us"), FIELD("via", "1.1 other"), {"VIA", 3, rows[i].value, strlen(rows[i].value)}};
        if (headers_passed_by(fields, 3, "us") != rows[i].found)
            fail_msg("\"%s\"", rows[i].value);
    }
}

static void what_passes(void **state)
{
    static const char *const never[] = {
        "Connection", "keep-alive",        "Proxy-Connection", "PROXY-AUTHENTICATE", "Proxy-Authorization", "te",
        "Trailer",    "Transfer-Encoding", "Upgrade",          "Content-Length",     "X-Private",           "x-other"};
    static const char *const always[] = {"Content-Type", "Authorization",   "Set-Cookie", "Via", "Trailers",
                                         "Hostname",     "Idempotency-Key", "X-Privat",   "Tea"};
    const struct header_field fields[] = {FIELD("X-Private", "1"), FIELD("Connection", "close, x-private"),
                                          FIELD("connection", "X-Other,,")};
    struct hop_names hops;
    (void)state;
    hop_names_collect(fields, COUNT(fields), &hops);
    assert_int_equal(hops.count, 3);
    assert_false(hops.overflow);
    for (size_t i = 0; i < COUNT(never); i++) {
        assert_false(to_partner(never[i], &hops));
        assert_false(to_client(never[i], &hops));
    }
    for (size_t i = 0; i < COUNT(always); i++) {
        assert_true(to_partner(always[i], &hops));
        assert_true(to_client(always[i], &hops));
    }
    assert_false(to_partner("host", &hops));
    assert_false(to_partner("Expect", &hops));
    assert_true(to_client("Expect", &hops));
    assert_true(to_partner("Fencegate-Effect", &hops));
    assert_false(to_client("fencegate-effect", &hops));
    assert_false(to_client("Fencegate-Anything", &hops));
    assert_true(to_client("Fencegate", &hops));
}

static void too_many_hop_names(void **state)
{
    static const char many[] = "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z,a1,a2,a3,a4,a5,a6";
    const struct header_field fields[] = {FIELD("Connection", "")};
    struct hop_names hops;
    (void)state;
    hop_names_collect(fields, 1, &hops);
    assert_int_equal(hops.count, 0);
    hop_names_add(&hops, many, sizeof many - 1);
    assert_int_equal(hops.count, 32);
    assert_false(hops.overflow);
    hop_names_add(&hops, "one-more", 8);
    assert_int_equal(hops.count, 32);
    assert_true(hops.overflow);
}

static void lines(void **state)
{
    struct header_field field = {0};
    (void)state;
    assert_true(header_line_split("Content-Type: \t text/plain; a:b \r\n", 34, &field));
    assert_int_equal(field.name_len, 12);
    assert_true(header_is(&field, "content-type"));
    assert_int_equal(field.value_len, 15);
    assert_memory_equal(field.value, "text/plain; a:b", 15);
    assert_true(header_line_split("X:", 2, &field));
    assert_int_equal(field.value_len, 0);
    assert_true(header_line_split("X:   ", 5, &field));
    assert_int_equal(field.value_len, 0);
    assert_false(header_line_split("", 0, &field));
    assert_false(header_line_split("\r\n", 2, &field));
    assert_false(header_line_split("HTTP/1.1 200 OK\r\n", 17, &field));
    assert_false(header_line_split(": v", 3, &field));
    assert_false(header_line_split("X : v", 5, &field));
    assert_false(header_line_split(" folded: v", 10, &field));
    assert_false(header_line_split("X: a\0b", 6, &field));
    assert_false(header_line_split("X: a\rb\r\n", 8, &field));
    assert_false(header_line_split("X: a\nb", 6, &field));
}

static void trims_values(void **state)
{
    struct header_field field = FIELD("Workflow-Key", " \torder 17 \t");
    struct header_field blank = FIELD("Workflow-Key", " \t ");
    (void)state;
    header_trim(&field);
    assert_int_equal(field.value_len, 8);
    assert_memory_equal(field.value, "order 17", 8);
    header_trim(&blank);
    assert_int_equal(blank.value_len, 0);
}

/* Random fields in memory of exact size; what the screen lets through must keep its promises. */
static void random_fields(void **state)
{
    static const char *const names[] = {"Host", "Content-Length", "Transfer-Encoding", "Expect", "Connection", "X"};
    static const char *const values[] = {"gw.test", "5", "chunked", "100-continue", "Fencing-Token", ""};
    unsigned seed = 99;
    (void)state;
    for (int round = 0; round < 60000; round++) {
        struct header_field fields[4];
        struct screened out;
        struct hop_names hops;
        size_t count = (size_t)(rand_r(&seed) % 5), lengths = 0, hosts_seen = 0;
        for (size_t i = 0; i < count; i++) {
            const char *name = names[(size_t)rand_r(&seed) % COUNT(names)];
            const char *value = values[(size_t)rand_r(&seed) % COUNT(values)];
            char *name_copy = strndup(name, strlen(name)), *value_copy = malloc(strlen(value) + 1);
            assert_non_null(name_copy);
            assert_non_null(value_copy);
            memcpy(value_copy, value, strlen(value));
            fields[i] = (struct header_field){name_copy, strlen(name), value_copy, strlen(value)};
            if (rand_r(&seed) % 4 == 0 && fields[i].value_len > 0)
                value_copy[(size_t)rand_r(&seed) % fields[i].value_len] = (char)(rand_r(&seed) >> 3);
            lengths += header_is(&fields[i], "Content-Length");
            hosts_seen += header_is(&fields[i], "Host");
        }
        headers_screen(fields, count, "POST", "HTTP/1.1", &out);
        headers_find_fence(fields, count, "Fencing-Token", "Workflow-Key", &out);
        hop_names_collect(fields, count, &hops);
        if (out.problem == NULL) {
            assert_true(hosts_seen == 1 && out.host != NULL);
            assert_int_equal(lengths, out.has_length ? 1 : 0);
            assert_false(out.has_length && out.chunked);
        }
        for (size_t i = 0; i < count; i++) {
            free((void *)(uintptr_t)fields[i].name);
            free((void *)(uintptr_t)fields[i].value);
        }
    }
}

/* A control byte is found wherever it stands, and nothing else is taken for one. */
static void each_byte_of_a_value(void **state)
{
    (void)state;
    for (unsigned byte = 0; byte < 256; byte++) {
        bool control = (byte < 0x20 && byte != '\t') || byte == 0x7F;
        for (size_t place = 4; place < 21; place++) { /* not the last: a line end is cut off */
            char line[] = "X: vwvw\xFFwvwvw\x80\x7E wvwvwv";
            struct header_field field;
            line[place] = (char)byte;
            assert_int_equal(header_line_split(line, 22, &field), !control);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_request),
        cmocka_unit_test(names_and_values),
        cmocka_unit_test(content_length),
        cmocka_unit_test(transfer_encoding),
        cmocka_unit_test(hosts),
        cmocka_unit_test(methods),
        cmocka_unit_test(expectations),
        cmocka_unit_test(fencing_headers),
        cmocka_unit_test(names_with_the_other_sign),
        cmocka_unit_test(a_proxy_is_found_in_via),
        cmocka_unit_test(what_passes),
        cmocka_unit_test(too_many_hop_names),
        cmocka_unit_test(lines),
        cmocka_unit_test(trims_values),
        cmocka_unit_test(random_fields),
        cmocka_unit_test(each_byte_of_a_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
