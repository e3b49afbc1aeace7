/* Tests for gateway/head.c: the glance at a connection's first bytes, and the exact look at a head taken apart in
 * place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/head.h"
#include "gateway/headers.h"

static const struct glance_limits limits = {.head = 512, .target = 200, .memory = 1024};

/* The bytes end at the end of an allocation, so that the sanitizer sees a read past them. */
static enum glance glance_at(const char *bytes, size_t len)
{
    char *copy = malloc(len + (len == 0));
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    enum glance glance = head_glance(copy, len, &limits);
    free(copy);
    return glance;
}

static enum glance glance(const char *text)
{
    return glance_at(text, strlen(text));
}

static void whole_heads_pass(void **state)
{
    (void)state;
    assert_int_equal(glance("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), GLANCE_PASS);
    assert_int_equal(glance("GET / HTTP/1.0\r\n\r\n"), GLANCE_PASS);
    assert_int_equal(glance("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nbody"), GLANCE_PASS);
    assert_int_equal(glance("GET / HTTP/1.1\nHost: a\n\n"), GLANCE_PASS); /* refused later, by the exact look */
}

static void a_head_cut_anywhere_wants_more(void **state)
{
    (void)state;
    static const char whole[] = "POST /pay HTTP/1.1\r\nHost: a\r\nX: b\r\n\r\n";
    for (size_t len = 0; len < sizeof whole - 1; len++)
        assert_int_equal(glance_at(whole, len), GLANCE_MORE);
    assert_int_equal(glance_at(whole, sizeof whole - 1), GLANCE_PASS);
}

static void foreign_versions_are_told_at_the_first_line(void **state)
{
    (void)state;
    static const char *const foreign[] = {"HTTP/2.0", "HTTP/0.9", "HTTP/3.7", "HTTP/1.2", "HTTP/9.9"};
    static const char *const others[] = {"HTTP/1.1", "HTTP/1.0", "HTTP/1", "http/2.0", "HTTP/x.1", "HTTP/01.01", ""};
    char line[64];
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        snprintf(line, sizeof line, "GET / %s\r\n", foreign[i]);
        assert_int_equal(glance(line), GLANCE_VERSION);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(line, sizeof line, "GET / %s\r\n", others[i]);
        assert_int_equal(glance(line), GLANCE_MORE);
    }
}

static size_t put(char *out, const char *before, char fill, size_t count, const char *after)
{
    size_t len = strlen(before);
    memcpy(out, before, len);
    memset(out + len, fill, count);
    memcpy(out + len + count, after, strlen(after));
    return len + count + strlen(after);
}

static void targets_and_heads_have_limits(void **state)
{
    (void)state;
    char bytes[2048];
    assert_int_equal(glance_at(bytes, put(bytes, "GET /", 'a', 199, " HTTP/1.1\r\n\r\n")), GLANCE_PASS);
    assert_int_equal(glance_at(bytes, put(bytes, "GET /", 'a', 200, " HTTP/1.1\r\n\r\n")), GLANCE_TARGET_TOO_LONG);
    assert_int_equal(glance_at(bytes, put(bytes, "GET /", 'a', 508, "")), GLANCE_TARGET_TOO_LONG);
    assert_int_equal(glance_at(bytes, put(bytes, "GET /", 'a', 507, "")), GLANCE_MORE);
    size_t most = 512 - strlen("GET / HTTP/1.1\r\nX: \r\n\r\n");
    assert_int_equal(glance_at(bytes, put(bytes, "GET / HTTP/1.1\r\nX: ", 'a', most, "\r\n\r\n")), GLANCE_PASS);
    assert_int_equal(glance_at(bytes, put(bytes, "GET / HTTP/1.1\r\nX: ", 'a', most + 1, "\r\n\r\n")),
                     GLANCE_HEAD_TOO_LARGE);
    assert_int_equal(glance_at(bytes, put(bytes, "GET / HTTP/1.1\r\nX: ", 'a', 600, "")), GLANCE_HEAD_TOO_LARGE);
}

static void fields_cost_memory_too(void **state)
{
    (void)state;
    char bytes[2048] = "GET / HTTP/1.1\r\n";
    size_t len = strlen(bytes);
    for (int fields = 1; fields < 40; fields++) {
        len += (size_t)snprintf(bytes + len, sizeof bytes - len, "X: y\r\n");
        memcpy(bytes + len, "\r\n", 3);
        bool fits = len + 2 + (size_t)(fields + 1) * HEAD_FIELD_COST <= limits.memory;
        assert_int_equal(glance_at(bytes, len + 2), fits ? GLANCE_PASS : GLANCE_HEAD_TOO_LARGE);
    }
}

/* ---- framing by raw lines ---- */

static bool sound(const char *text)
{
    size_t len = strlen(text);
    char *copy = malloc(len);
    assert_non_null(copy);
    memcpy(copy, text, len);
    const char *problem = head_problem(copy, len);
    free(copy);
    return problem == NULL;
}

static void sound_heads_have_no_problem(void **state)
{
    (void)state;
    assert_true(sound("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_true(sound("GET / HTTP/1.0\r\n\r\n"));
    assert_true(sound("\r\nPOST /x HTTP/1.1\r\nHost: a:80\r\nContent-Length:  3 \r\nX-E:\r\n\r\nabc"));
    assert_true(sound("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n"));
    assert_true(sound("M-SEARCH * HTTP/1.1\r\nHost: a\r\nX: v:w\r\n\r\n"));
}

static void broken_heads_have_one(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "GET / HTTP/1.1\r\n\r\n", /* no Host */
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: v\r\n w\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX v\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: v\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX : v\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: v\rw\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "G[T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1x\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.aa1\r\nHost: a\r\n\r\n",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1\r\nHost: a\r\n\r\n",
        "GET / xHTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / \r\nHost: a\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        if (sound(broken[i]))
            fail_msg("taken for sound: %s", broken[i]);
    assert_non_null(head_problem("GET / HTTP/1.1\r\nHost: a\r\nX: v\0w\r\n\r\n", 35));
}

/* ---- the exact look ---- */

struct sample {
    char bytes[256];
    size_t size;
    struct header_field fields[4];
    struct head_parts parts;
};

/* "GET|/pay|HTTP/1.1||Host| a||X-E|||…": '|' stands for what libmicrohttpd overwrote with NUL. */
static void load(struct sample *sample, const char *picture, const char *names)
{
    memset(sample, 0, sizeof *sample);
    sample->size = strlen(picture);
    for (size_t i = 0; i < sample->size; i++)
        sample->bytes[i] = picture[i] == '|' ? '\0' : picture[i];
    sample->parts = (struct head_parts){3, 4, 8, sample->fields, 0};
    const char *from = sample->bytes + 18;
    while (*names != '\0') { /* "Host=a X-E= " */
        size_t name = strcspn(names, "="), value = strcspn(names + name + 1, " ");
        struct header_field *field = &sample->fields[sample->parts.count++];
        while (memcmp(from, names, name) != 0)
            from++;
        field->name = from;
        field->name_len = name;
        from += name + 1;
        while (value > 0 && memcmp(from, names + name + 1, value) != 0)
            from++;
        field->value = from;
        field->value_len = value;
        from += value;
        names += name + 1 + value;
        names += *names == ' ';
    }
}

static bool exact(const char *picture, const char *names)
{
    struct sample sample;
    load(&sample, picture, names);
    return head_is_exact(sample.bytes, sample.size, &sample.parts);
}

static void honest_heads_are_exact(void **state)
{
    (void)state;
    assert_true(exact("GET|/pay|HTTP/1.1||||", ""));
    assert_true(exact("GET|/pay|HTTP/1.1||Host| a||||", "Host=a "));
    assert_true(exact("GET|/pay|HTTP/1.1||Host|a||X-A|  \t b \t||X-E|||Z| 1||||", "Host=a X-A=b X-E= Z=1 "));
}

static void what_is_hidden_shows_in_the_gaps(void **state)
{
    (void)state;
    assert_false(exact("GET|/pay|test|HTTP/1.1||Host| a||||", "Host=a "));        /* NUL in the target */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a||X| v|w||||", "Host=a X=v ")); /* NUL in a value */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a||| empty||||", "Host=a "));    /* a line without a name */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a||| empty||", "Host=a "));      /* the same, taken for the end */
    assert_false(exact("GET|/pay|HTTP/1.1|Host| a||", "Host=a "));                /* bare LF */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a|||", "Host=a "));              /* half an empty line */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a||||more", "Host=a "));         /* bytes behind the end */
    assert_false(exact("GET||/pay|HTTP/1.1||Host| a||||", "Host=a "));            /* two blanks */
    assert_false(exact("GET|/pay|HTTP/1.1|| ||Host| a||||", "Host=a "));          /* a blank line before the fields */
    assert_false(exact("GET|/pay|HTTP/1.1||Host| a||X| v||Z| 1||||", "Host=a Z=1 ")); /* a line nobody told us of */
}

static void a_folded_field_lies_elsewhere(void **state)
{
    (void)state;
    struct sample sample;
    static const char copy[] = "X-Testcont";
    load(&sample, "GET|/pay|HTTP/1.1||Host| a||X| v||||", "Host=a X=v ");
    assert_true(head_is_exact(sample.bytes, sample.size, &sample.parts));
    sample.fields[1].name = copy;
    sample.fields[1].name_len = sizeof copy - 1;
    assert_false(head_is_exact(sample.bytes, sample.size, &sample.parts));
}

static void a_cut_head_is_never_exact(void **state)
{
    (void)state;
    struct sample sample;
    load(&sample, "GET|/pay|HTTP/1.1||Host| a||X| v||||", "Host=a X=v ");
    for (size_t size = 0; size < sample.size; size++)
        assert_false(head_is_exact(sample.bytes, size, &sample.parts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_heads_pass),
        cmocka_unit_test(a_head_cut_anywhere_wants_more),
        cmocka_unit_test(foreign_versions_are_told_at_the_first_line),
        cmocka_unit_test(targets_and_heads_have_limits),
        cmocka_unit_test(fields_cost_memory_too),
        cmocka_unit_test(sound_heads_have_no_problem),
        cmocka_unit_test(broken_heads_have_one),
        cmocka_unit_test(honest_heads_are_exact),
        cmocka_unit_test(what_is_hidden_shows_in_the_gaps),
        cmocka_unit_test(a_folded_field_lies_elsewhere),
        cmocka_unit_test(a_cut_head_is_never_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
