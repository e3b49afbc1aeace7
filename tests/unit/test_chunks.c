/* tests/unit/test_chunks.c - chunked request bodies: what is taken, what is refused, and in whatever pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/chunks.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The body, the end and how much was taken: "hello|done|21". */
static enum chunks_state take(const char *bytes, const size_t *stops, size_t count, char *out, size_t cap)
{
    struct chunks chunks = {0};
    size_t at = 0, len = 0;
    for (size_t i = 0; i < count; i++) {
        size_t piece = stops[i] - at, used = 0;
        char *copy = malloc(piece + (piece == 0)); /* the sanitizer sees a read past it */
        assert_non_null(copy);
        memcpy(copy, bytes + at, piece);
        while (used < piece && chunks.state < CHUNKS_DONE) {
            struct slice body;
            size_t taken = chunks_take(&chunks, copy + used, piece - used, &body);
            assert_in_range(taken, 1, piece - used);
            assert_true(len + body.len < cap);
            if (body.len > 0)
                memcpy(out + len, body.data, body.len);
            len += body.len;
            used += taken;
        }
        free(copy);
        at += used;
        if (chunks.state >= CHUNKS_DONE)
            break;
    }
    const char *end = chunks.state == CHUNKS_DONE ? "done" : chunks.state == CHUNKS_BROKEN ? "broken" : "more";
    snprintf(out + len, cap - len, "|%s|%zu", end, at);
    return chunks.state;
}

static const char *taken(const char *text)
{
    static char out[1 << 16];
    size_t len = strlen(text);
    take(text, &len, 1, out, sizeof out);
    return out;
}

static const char *const sound[] = {
    "0\r\n\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
    "005\r\nhello\r\n6\r\n world\r\n000\r\n\r\n",
    "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
    "5;foo=bar\r\nhello\r\n0;x\r\n\r\n",
    "5;a;b=c;d=\"e \\\" f\";g\r\nhello\r\n0\r\n\r\n",
    "2\r\n\r\n\r\n0\r\nVary: *\r\nX-E:\r\nX-T: a\tb\xE4\r\n\r\n",
};
static const char *const results[] = {
    "|done|5",       "hello|done|15", "hello world|done|30", "01234567890123456789|done|35",
    "hello|done|25", "hello|done|34", "\r\n|done|38",
};

static void sound_bodies_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(sound); i++)
        assert_string_equal(taken(sound[i]), results[i]);
}

static void what_follows_is_left(void **state)
{
    (void)state;
    assert_string_equal(taken("1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1"), "x|done|11");
}

static const char *const broken[] = {
    "\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "-1\r\n",
    "0x5\r\nhello\r\n",
    "five\r\n",
    "1_0\r\n",
    " 5\r\nhello\r\n",
    "5 \r\nhello\r\n",
    "5\t\r\nhello\r\n",
    "5\nhello\r\n",
    "5\rhello\r\n",
    "5;\r\nhello\r\n",
    "5;;a\r\nhello\r\n",
    "5; a\r\nhello\r\n",
    "5;a=\r\nhello\r\n",
    "5;bad[=x\r\nhello\r\n",
    "5;a\rX\r\nhello\r\n",
    "5;a\n\r\nhello\r\n",
    "5;a=\"b\r\n\"\r\nhello\r\n",
    "5;a=\"b\"c\r\nhello\r\n",
    "5;a\x01\r\nhello\r\n",
    "5,a\r\nhello\r\n",
    "5\r\nhello0\r\n\r\n",
    "5\r\nhello!!\r\n0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "5\r\nhello\r0\r\n\r\n",
    "0\r\n\n",
    "0\r\nno colon\r\n\r\n",
    "0\r\n: v\r\n\r\n",
    "0\r\nX : v\r\n\r\n",
    "0\r\nX: v\r\n folded\r\n\r\n",
    "0\r\nX: v\n\r\n",
    "0\r\nX: v\rw\r\n\r\n",
    "0\r\nX: \x01\r\n\r\n",
    "FFFFFFFFFFFFFFFF0\r\nhello\r\n",
    "0000000000000005\r\nhello\r\n",
};

static void broken_bodies_are_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(broken); i++)
        if (strstr(taken(broken[i]), "|broken|") == NULL)
            fail_msg("not broken: %s: %s", broken[i], taken(broken[i]));
    char out[64];
    static const char nul[] = "5;\0ext\r\nhello\r\n0\r\n\r\n";
    size_t len = sizeof nul - 1;
    assert_int_equal(take(nul, &len, 1, out, sizeof out), CHUNKS_BROKEN);
}

static void a_body_cut_anywhere_wants_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(sound); i++)
        for (size_t len = 0; len < strlen(sound[i]); len++) {
            char out[256];
            assert_true(take(sound[i], &len, 1, out, sizeof out) < CHUNKS_DONE);
        }
}

static void same_in_pieces(const char *bytes)
{
    char whole[256], pieces[256];
    size_t len = strlen(bytes), stops[64];
    take(bytes, &len, 1, whole, sizeof whole);
    for (size_t first = 0; first < len; first++)
        for (size_t second = first; second <= len; second++) {
            size_t three[] = {first, second, len};
            take(bytes, three, 3, pieces, sizeof pieces);
            assert_string_equal(pieces, whole);
        }
    for (size_t i = 0; i < len; i++)
        stops[i] = i + 1;
    take(bytes, stops, len, pieces, sizeof pieces);
    assert_string_equal(pieces, whole);
}

static void pieces_make_no_difference(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(sound); i++)
        same_in_pieces(sound[i]);
    for (size_t i = 0; i < COUNT(broken); i++)
        same_in_pieces(broken[i]);
}

/* What nobody reads is bounded: extensions of a chunk, the trailer; not the extensions of all chunks together. */
static void what_is_skipped_is_bounded(void **state)
{
    (void)state;
    static char bytes[100000];
    char *at = bytes + sprintf(bytes, "1;");
    memset(at, 'a', 9000);
    strcpy(at + 9000, "\r\nx\r\n0\r\n\r\n");
    assert_non_null(strstr(taken(bytes), "|broken|"));
    at = bytes + sprintf(bytes, "0\r\n");
    for (int i = 0; i < 2000; i++)
        at += sprintf(at, "X: y\r\n");
    strcpy(at, "\r\n");
    assert_non_null(strstr(taken(bytes), "|broken|"));
    at = bytes;
    for (int i = 0; i < 2000; i++)
        at += sprintf(at, "1;aaaaaaaaaaaaaaaaaaaa\r\nx\r\n");
    strcpy(at, "0\r\n\r\n");
    assert_non_null(strstr(taken(bytes), "|done|"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_bodies_are_taken),    cmocka_unit_test(what_follows_is_left),
        cmocka_unit_test(broken_bodies_are_told),    cmocka_unit_test(a_body_cut_anywhere_wants_more),
        cmocka_unit_test(pieces_make_no_difference), cmocka_unit_test(what_is_skipped_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
