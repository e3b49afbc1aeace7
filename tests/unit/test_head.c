/* tests/unit/test_head.c - the strict reader of request heads: what it takes, what it refuses, and that it makes no
 * difference in what pieces a head comes. */
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

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct head_limits limits = {.head = 512, .target = 200};
static struct header_field fields[HEAD_FIELDS_MAX];

/* The bytes end at the end of an allocation of their own, so that the sanitizer sees a read past them. */
static char *copy_of(const char *bytes, size_t len)
{
    char *copy = malloc(len + (len == 0));
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    return copy;
}

/* What was read, as text: "verdict method target version|name=value|...|size". */
static void describe(enum head_verdict verdict, const struct head *head, char *out, size_t cap)
{
    int len = snprintf(out, cap, "%d", (int)verdict);
    if (verdict == HEAD_BROKEN)
        snprintf(out + len, cap - (size_t)len, " %s", head->problem);
    if (verdict != HEAD_WHOLE)
        return;
    len += snprintf(out + len, cap - (size_t)len, " %.*s %.*s %d", (int)head->method.len, head->method.data,
                    (int)head->target.len, head->target.data, head->http10);
    for (size_t i = 0; i < head->count; i++)
        len += snprintf(out + len, cap - (size_t)len, "|%.*s=%.*s", (int)head->fields[i].name_len, head->fields[i].name,
                        (int)head->fields[i].value_len, head->fields[i].value);
    snprintf(out + len, cap - (size_t)len, "|%zu", head->size);
}

/* Given up to each of `stops` (ascending, the last is len); ends with the first verdict that is not HEAD_MORE. */
static enum head_verdict read_in_pieces(const char *bytes, const size_t *stops, size_t count, char *out, size_t cap)
{
    struct head_progress progress = {0, 0};
    enum head_verdict verdict = HEAD_MORE;
    for (size_t i = 0; i < count && verdict == HEAD_MORE; i++) {
        char *copy = copy_of(bytes, stops[i]); /* elsewhere each time, as a buffer that grew */
        struct head head = {.fields = fields};
        verdict = head_read(&progress, copy, stops[i], &limits, &head);
        describe(verdict, &head, out, cap);
        free(copy);
    }
    return verdict;
}

static enum head_verdict read_at(const char *bytes, size_t len)
{
    char text[4096];
    return read_in_pieces(bytes, &len, 1, text, sizeof text);
}

static enum head_verdict read_text(const char *text)
{
    return read_at(text, strlen(text));
}

static void a_head_is_taken_apart(void **state)
{
    (void)state;
    static const char bytes[] =
        "\r\nPOST /pay?a=b HTTP/1.1\r\nHost: a:80\r\nX-E:\r\nx-b: \t b\tc \t\r\nL:\xE4\r\n\r\nbody";
    struct head_progress progress = {0, 0};
    struct head head = {.fields = fields};
    assert_int_equal(head_read(&progress, bytes, sizeof bytes - 1, &limits, &head), HEAD_WHOLE);
    char text[512];
    describe(HEAD_WHOLE, &head, text, sizeof text);
    assert_string_equal(text, "1 POST /pay?a=b 0|Host=a:80|X-E=|x-b=b\tc|L=\xE4|65");
    assert_string_equal(bytes + head.size, "body");
}

static const char *const sound[] = {
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "x!#$%&'*+.^_`|~9 * HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /x HTTP/1.1\r\nHost:a\r\nContent-Length:  3 \r\nX-E:\r\nX-F: \t \r\n\r\n",
    "M-SEARCH * HTTP/1.1\r\nHost: a\r\nX: v:w\r\n\r\n",
    "GET http://a/b?c#d HTTP/1.1\r\nHost: a\r\nX: caf\xC3\xA9 \xFF\r\n\r\n",
    "GET /\x80 HTTP/1.1\r\nX: a long value with more than one word of eight bytes, tab\tand all\r\n\r\n",
};

static void sound_heads_are_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(sound); i++)
        if (read_text(sound[i]) != HEAD_WHOLE)
            fail_msg("not whole: %s", sound[i]);
}

static const char *const broken[] = {
    "GET / HTTP/1.1\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\rHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n\n",
    "GET / HTTP/1.1\r\nHost: a\r\n\rX: b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: v\r\n w\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: v\r\n\tw\r\n\r\n",
    "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "GET / HTTP/1.1\r\n \r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX v\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nXv\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n: v\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX : v\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX\t: v\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX[y]: v\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX\xC3\xA9: v\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: v\rw\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: v\x01\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: seven..\x7F\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: \x0Bv\r\n\r\n",
    "G[T / HTTP/1.1\r\nHost: a\r\n\r\n",
    " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
    "GET /\tHTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /\x7F HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1x\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.aa1\r\nHost: a\r\n\r\n",
    "GET / HTTP/01.1\r\nHost: a\r\n\r\n",
    "GET / http/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1\r\nHost: a\r\n\r\n",
    "GET / xHTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / \r\nHost: a\r\n\r\n",
    "GET /\r\nHost: a\r\n\r\n",
    "GET HTTP/1.1\r\nHost: a\r\n\r\n",
    "\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\x16\x03\x01",
};

static void broken_heads_are_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(broken); i++)
        if (read_text(broken[i]) != HEAD_BROKEN)
            fail_msg("not broken: %s", broken[i]);
    static const char nul_in_value[] = "GET / HTTP/1.1\r\nHost: a\r\nX: v\0w\r\n\r\n",
                      nul_in_target[] = "GET /\0 HTTP/1.1\r\n\r\n";
    assert_int_equal(read_at(nul_in_value, sizeof nul_in_value - 1), HEAD_BROKEN);
    assert_int_equal(read_at(nul_in_target, sizeof nul_in_target - 1), HEAD_BROKEN);
}

/* Every control byte, at every place of a value longer than two words: none hides in the eight that are looked at at
 * once. */
static void no_control_byte_passes(void **state)
{
    (void)state;
    static const char before[] = "GET / HTTP/1.1\r\nX: ", after[] = "\r\n\r\n";
    for (int byte = 0; byte < 256; byte++) {
        bool control = (byte < 0x20 && byte != '\t') || byte == 0x7F;
        for (size_t place = 0; place < 20; place++) {
            char head[128];
            size_t len = sizeof before - 1;
            memcpy(head, before, len);
            memset(head + len, 'a', 20);
            head[len + place] = (char)byte;
            memcpy(head + len + 20, after, sizeof after - 1);
            enum head_verdict verdict = read_at(head, len + 20 + sizeof after - 1);
            if (verdict != (control ? HEAD_BROKEN : HEAD_WHOLE))
                fail_msg("byte %d at %zu: %d", byte, place, (int)verdict);
        }
    }
}

static void foreign_versions_are_told_at_the_first_line(void **state)
{
    (void)state;
    static const char *const foreign[] = {"HTTP/2.0", "HTTP/0.9", "HTTP/3.7", "HTTP/1.2", "HTTP/9.9"};
    char line[64];
    for (size_t i = 0; i < COUNT(foreign); i++) {
        snprintf(line, sizeof line, "GET / %s\r\n", foreign[i]);
        assert_int_equal(read_text(line), HEAD_FOREIGN_VERSION);
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
    assert_int_equal(read_at(bytes, put(bytes, "GET /", 'a', 199, " HTTP/1.1\r\n\r\n")), HEAD_WHOLE);
    assert_int_equal(read_at(bytes, put(bytes, "GET /", 'a', 200, " HTTP/1.1\r\n\r\n")), HEAD_TARGET_TOO_LONG);
    assert_int_equal(read_at(bytes, put(bytes, "GET /", 'a', 200, "")), HEAD_TARGET_TOO_LONG);
    assert_int_equal(read_at(bytes, put(bytes, "GET /", 'a', 199, "")), HEAD_MORE);
    assert_int_equal(read_at(bytes, put(bytes, "", 'a', 512, "")), HEAD_MORE);
    assert_int_equal(read_at(bytes, put(bytes, "", 'a', 513, "")), HEAD_TARGET_TOO_LONG);
    size_t most = 512 - strlen("GET / HTTP/1.1\r\nX: \r\n\r\n");
    assert_int_equal(read_at(bytes, put(bytes, "GET / HTTP/1.1\r\nX: ", 'a', most, "\r\n\r\n")), HEAD_WHOLE);
    assert_int_equal(read_at(bytes, put(bytes, "GET / HTTP/1.1\r\nX: ", 'a', most + 1, "\r\n\r\n")), HEAD_TOO_LARGE);
    assert_int_equal(read_at(bytes, put(bytes, "GET / HTTP/1.1\r\nX: ", 'a', 600, "")), HEAD_TOO_LARGE);
}

static void fields_have_a_number(void **state)
{
    (void)state;
    static char bytes[HEAD_FIELDS_MAX * 5 + 64];
    const struct head_limits wide = {sizeof bytes, 100};
    for (size_t count = HEAD_FIELDS_MAX - 1; count <= HEAD_FIELDS_MAX + 1; count++) {
        size_t len = (size_t)snprintf(bytes, sizeof bytes, "GET / HTTP/1.1\r\n");
        for (size_t i = 0; i < count; i++)
            len += (size_t)snprintf(bytes + len, sizeof bytes - len, "X:y\r\n");
        memcpy(bytes + len, "\r\n", 2);
        for (size_t first = len / 2; first <= len + 2; first += len / 2 + 2) { /* in two pieces, and in one */
            struct head_progress progress = {0, 0};
            struct head head = {.fields = fields};
            enum head_verdict verdict = head_read(&progress, bytes, first, &wide, &head);
            if (verdict == HEAD_MORE)
                verdict = head_read(&progress, bytes, len + 2, &wide, &head);
            assert_int_equal(verdict, count <= HEAD_FIELDS_MAX ? HEAD_WHOLE : HEAD_TOO_LARGE);
        }
    }
}

/* ---- pieces ---- */

static void same_in_pieces(const char *bytes, size_t len)
{
    char whole[4096], pieces[4096];
    size_t stops[512];
    read_in_pieces(bytes, &len, 1, whole, sizeof whole);
    for (size_t first = 0; first < len; first++)
        for (size_t second = first; second <= len; second += len > 60 ? 2 : 1) {
            size_t three[] = {first, second, len};
            read_in_pieces(bytes, three, 3, pieces, sizeof pieces);
            assert_string_equal(pieces, whole);
        }
    for (size_t i = 0; i < len; i++)
        stops[i] = i + 1;
    read_in_pieces(bytes, stops, len, pieces, sizeof pieces);
    assert_string_equal(pieces, whole);
}

static void pieces_make_no_difference(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(sound); i++)
        same_in_pieces(sound[i], strlen(sound[i]));
    for (size_t i = 0; i < COUNT(broken); i++)
        same_in_pieces(broken[i], strlen(broken[i]));
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

/* Sound heads with some bytes changed: whatever the verdict, it does not depend on the pieces. */
static void nor_with_changed_bytes(void **state)
{
    (void)state;
    static const char odd[] = "\0\r\n\t :;[\x7F\x80\x01/H";
    uint64_t random = UINT64_C(0x9E3779B97F4A7C15);
    unsigned verdicts[6] = {0};
    for (int round = 0; round < 20000; round++) {
        const char *from = sound[next_random(&random) % COUNT(sound)];
        size_t len = strlen(from), count = 0, stops[32];
        char bytes[256], whole[4096], pieces[4096];
        memcpy(bytes, from, len);
        for (size_t changes = next_random(&random) % 3; changes > 0; changes--)
            bytes[next_random(&random) % len] = odd[next_random(&random) % (sizeof odd - 1)];
        for (size_t at = 0; at < len && count < COUNT(stops) - 1; at += next_random(&random) % 24)
            stops[count++] = at;
        bytes[len++] = '\n'; /* what a line holds is told when its end is there */
        stops[count++] = len;
        verdicts[read_in_pieces(bytes, &len, 1, whole, sizeof whole)]++;
        read_in_pieces(bytes, stops, count, pieces, sizeof pieces);
        assert_string_equal(pieces, whole);
    }
    assert_true(verdicts[HEAD_WHOLE] > 1000 && verdicts[HEAD_BROKEN] > 1000); /* both were tried */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_is_taken_apart),
        cmocka_unit_test(sound_heads_are_whole),
        cmocka_unit_test(broken_heads_are_told),
        cmocka_unit_test(no_control_byte_passes),
        cmocka_unit_test(foreign_versions_are_told_at_the_first_line),
        cmocka_unit_test(targets_and_heads_have_limits),
        cmocka_unit_test(fields_have_a_number),
        cmocka_unit_test(pieces_make_no_difference),
        cmocka_unit_test(nor_with_changed_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
