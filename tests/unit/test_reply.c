/* tests/unit/test_reply.c - a partner's answer, line by line, and the buffer of its body. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/reply.h"

static struct reply reply;

static int set_up(void **state)
{
    (void)state;
    reply = (struct reply){0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    reply_free(&reply);
    return 0;
}

static bool give(const char *line, size_t len)
{
    if (len == 0)
        return reply_head_end(&reply);
    if (len > 5 && memcmp(line, "HTTP/", 5) == 0 && line[5] != ':')
        return reply_status_line(&reply, line, len);
    return reply_field_line(&reply, line, len);
}

/* One line, in memory of its own size: a read past its end is seen. */
static bool feed(const char *text)
{
    size_t len = strcspn(text, "\n");
    if (len > 0 && text[len] == '\n' && text[len - 1] == '\r')
        len--;
    char *line = malloc(len == 0 ? 1 : len);
    assert_non_null(line);
    memcpy(line, text, len);
    bool ok = give(line, len);
    free(line);
    return ok;
}

static void head(const char *const *lines)
{
    for (; *lines != NULL; lines++)
        assert_true(feed(*lines));
}
#define HEAD(...) head((const char *const[]){__VA_ARGS__, NULL})

/* What is relayed, each line end as "|". */
static const char *fields(void)
{
    static char text[1024];
    size_t len = 0;
    for (size_t at = 0; at < reply.head_len; at++) {
        assert_true(len < sizeof text - 1);
        if (reply.head[at] == '\r') {
            assert_true(at + 1 < reply.head_len && reply.head[at + 1] == '\n');
            text[len++] = '|';
            at++;
        } else {
            text[len++] = reply.head[at];
        }
    }
    text[len] = '\0';
    return text;
}

static void a_plain_answer(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 201 Created\r\n", "Content-Type: text/plain\r\n", "Content-Length: 12\r\n", "X-Empty:\r\n",
         "X-Blanks: \t a b \t\r\n");
    assert_false(reply.head_done);
    assert_true(feed("\r\n"));
    assert_true(reply.head_done);
    assert_false(reply.nonsense);
    assert_int_equal(reply.status, 201);
    assert_true(reply.has_length);
    assert_int_equal(reply.length, 12);
    assert_string_equal(fields(), "Content-Type: text/plain|X-Empty: |X-Blanks: a b|");
}

static void no_fields(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 204 No Content\r\n", "\r\n");
    assert_true(reply.head_done);
    assert_string_equal(fields(), "");
}

static void repeated_fields_stay(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 200 OK\r\n", "Set-Cookie: a=1\r\n", "Set-Cookie: b=2\r\n", "set-cookie: c=3\r\n", "\r\n");
    assert_string_equal(fields(), "Set-Cookie: a=1|Set-Cookie: b=2|set-cookie: c=3|");
}

static void interim_answers_leave_nothing(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 100 Continue\r\n", "\r\n");
    assert_false(reply.head_done);
    HEAD("HTTP/1.1 103 Early Hints\r\n", "Link: </a.css>\r\n", "Content-Length: 99\r\n", "\r\n");
    assert_false(reply.head_done);
    HEAD("HTTP/1.1 200 OK\r\n", "Content-Length: 2\r\n", "\r\n"); /* another length: another head */
    assert_true(reply.head_done);
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.length, 2);
    assert_string_equal(fields(), "");
}

static void the_length_of_an_interim_answer_is_not_the_answers(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 103 Early Hints\r\n", "Content-Length: 99\r\n", "\r\n", "HTTP/1.1 200 OK\r\n", "\r\n");
    assert_true(reply.head_done);
    assert_false(reply.has_length);
}

static void a_101_is_no_answer(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 101 Switching Protocols\r\n", "Upgrade: x\r\n");
    assert_false(reply_head_end(&reply)); /* the call is stopped: nothing else would end it */
    assert_true(reply.nonsense);
    assert_false(reply.head_done);
}

static void status_lines(void **state)
{
    static const struct {
        const char *line;
        unsigned status; /* 0: refused */
    } cases[] = {
        {"HTTP/1.1 200 OK", 200},   {"HTTP/1.1 200", 200}, {"HTTP/1.1 200 ", 200}, {"HTTP/1.0 404 Not: Found", 404},
        {"HTTP/1.1 999 Odd", 999},  {"HTTP/1.1 599", 599}, {"HTTP/2 200", 200},    {"HTTP/1.1 099 Low", 0},
        {"HTTP/1.1 000", 0},        {"HTTP/1.1 20", 0},    {"HTTP/1.1 2000", 0},   {"HTTP/1.1 20000", 0},
        {"HTTP/1.1 4294967496", 0}, {"HTTP/1.1 200OK", 0}, {"HTTP/1.1 +20", 0},    {"HTTP/1.1 2x0", 0},
        {"HTTP/1.1  200", 0},       {"HTTP/1.1 \t200", 0}, {"HTTP/1.1 ", 0},       {"HTTP/1.1", 0},
        {"HTTP/1.1200", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        reply = (struct reply){0};
        bool ok = feed(cases[i].line);
        if (ok != (cases[i].status != 0) || reply.status != cases[i].status || reply.nonsense == ok)
            fail_msg("\"%s\": status %u", cases[i].line, reply.status);
        assert_true(ok == (reply.complaint == NULL));
        assert_false(reply.head_done);
    }
}

static void lengths(void **state)
{
    static const struct {
        const char *value;
        uint64_t length;
        bool good;
    } cases[] = {
        {"0", 0, true},
        {"007", 7, true},
        {"999999999999999999", UINT64_C(999999999999999999), true},
        {"1000000000000000000", 0, false},
        {"18446744073709551617", 0, false},
        {"", 0, false},
        {"+1", 0, false},
        {"-1", 0, false},
        {"1 1", 0, false},
        {"5, 5", 0, false},
        {"0x10", 0, false},
        {"5;", 0, false},
        {"1.0", 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[64];
        reply = (struct reply){0};
        assert_true(feed("HTTP/1.1 200 OK"));
        snprintf(line, sizeof line, "content-LENGTH: %s", cases[i].value);
        if (feed(line) != cases[i].good || reply.nonsense == cases[i].good || reply.length != cases[i].length)
            fail_msg("\"%s\"", line);
        assert_true(reply.has_length == cases[i].good);
        reply_free(&reply);
    }
}

static void two_lengths(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 05");
    assert_int_equal(reply.length, 5);
    assert_false(feed("Content-Length: 6"));
    assert_true(reply.nonsense);
    assert_non_null(strstr(reply.complaint, "Content-Length"));
}

/* RFC 9112 section 6.3: the transfer coding says where the body ends, whatever a Content-Length beside it says. Taken
 * for the length it would make a longer body look whole where it is not. */
static void a_coded_body_has_no_length(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 200 OK", "Content-Length: 5", "Transfer-Encoding: chunked", "");
    assert_true(reply.head_done);
    assert_false(reply.has_length);
    reply_free(&reply);
    reply = (struct reply){0};
    HEAD("HTTP/1.1 200 OK", "transfer-encoding: Chunked", "Content-Length: 5", "");
    assert_false(reply.has_length);
    reply_free(&reply);
    reply = (struct reply){0};
    HEAD("HTTP/1.1 103 Early Hints", "Transfer-Encoding: chunked", "", "HTTP/1.1 200 OK", "Content-Length: 5", "");
    assert_true(reply.has_length);
}

static void malformed_lines(void **state)
{
    static const char *const lines[] = {"no colon",  ": no name", "Na me: x", " folded: x", "\tfolded",   "Name : x",
                                        "A: x\x01y", "A: x\x7f",  "A: x\ry",  "N\x01: x",   "\xC3\x84: x"};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        reply = (struct reply){0};
        assert_true(feed("HTTP/1.1 200 OK"));
        if (feed(lines[i]) || !reply.nonsense || reply.complaint == NULL)
            fail_msg("\"%s\" passed", lines[i]);
        assert_false(reply.head_done);
        reply_free(&reply);
    }
    reply = (struct reply){0};
    assert_true(feed("HTTP/1.1 200 OK"));
    assert_false(reply_field_line(&reply, "A: x\0y", 6));
    assert_true(reply.nonsense);
    assert_true(feed("B: \xC3\xA4\xFF")); /* bytes above 0x7F are a partner's own affair */
}

/* A field whose name begins like a version is no status line. */
static void a_name_like_a_version(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 200 OK");
    assert_false(feed("HTTP/: x")); /* "/" is in no name */
    assert_int_equal(reply.status, 200);
}

/* However many it names: none of them is the client's. */
static void a_long_connection_field(void **state)
{
    char line[64], last[] = "Hop-0: x";
    (void)state;
    HEAD("HTTP/1.1 200 OK");
    for (int i = 0; i < 500; i++) {
        snprintf(line, sizeof line, "Connection: hop-%d, , HOP-X%d", i, i);
        assert_true(feed(line));
    }
    for (int i = 0; i < 500; i++) {
        snprintf(line, sizeof line, "Hop-%d: x", i);
        assert_true(feed(line));
        snprintf(line, sizeof line, "Kept-%d: x", i);
        assert_true(feed(line));
    }
    assert_true(feed(last));
    assert_true(reply_head_end(&reply));
    assert_null(memmem(reply.head, reply.head_len, "Hop", 3));
    assert_null(memmem(reply.head, reply.head_len, "Connection", 10));
    assert_non_null(memmem(reply.head, reply.head_len, "Kept-0: x\r\n", 11));
    assert_non_null(memmem(reply.head, reply.head_len, "Kept-499: x\r\n", 13));
    reply_free(&reply);
}

static void what_is_relayed(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 200 OK", "A: 1", "Connection: keep-alive, Close", "Keep-Alive: timeout=5", "Content-Length: 0",
         "Proxy-Connection: x", "Trailer: T", "Upgrade: u", "TE: t", "Fencegate-Effect: sent", "fencegate-x: y",
         "Date: d", "Transfer-Encoding: chunked", "Z: 26", "");
    assert_string_equal(fields(), "A: 1|Date: d|Z: 26|");
    assert_true(reply.dated);
    assert_true(reply.wants_close && reply.keeps);
    HEAD("HTTP/1.1 200 OK", "Dated: d", "Connection: ", "");
    assert_string_equal(fields(), "Dated: d|");
    assert_false(reply.dated);
    assert_false(reply.wants_close || reply.keeps);
}

/* Before and behind the field that names them; a name is no option of ours. */
static void what_connection_names_is_not_relayed(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 200 OK", "X-One: 1", "Date: d", "Connection: keep-alive,x-one ,, DATE", "Set-Cookie: a", "X-ONE: 2",
         "connection: X-Two", "X-Three: 3", "X-Two: ", "X-Twos: 2", "");
    assert_true(reply.head_done);
    assert_string_equal(fields(), "Set-Cookie: a|X-Three: 3|X-Twos: 2|");
    assert_false(reply.dated);
    assert_true(reply.keeps);
    HEAD("HTTP/1.1 200 OK", "Connection: X-One", "X-One: 1", "");
    assert_string_equal(fields(), "");
    HEAD("HTTP/1.1 103 Early Hints", "Connection: X-One", "", "HTTP/1.1 200 OK", "X-One: 1", "");
    assert_string_equal(fields(), "X-One: 1|");
}

static void small_buffers_serve_again(void **state)
{
    static char block[REPLY_KEPT_MAX * 2];
    (void)state;
    HEAD("HTTP/1.1 200 OK", "A: 1", "Content-Length: 1", "Connection: close", "");
    assert_true(reply_body_add(&reply, "x", 1));
    const char *first_head = reply.head, *first_body = reply.body;
    reply_reset(&reply);
    assert_true(reply.head_len + reply.length + reply.body_at + reply.body_end == 0);
    assert_false(reply.head_done || reply.has_length || reply.wants_close || reply.status != 0);
    HEAD("HTTP/1.1 200 OK", "B: 2", "");
    assert_true(reply_body_add(&reply, "y", 1));
    assert_true(reply.head == first_head && reply.body == first_body);
    assert_string_equal(fields(), "B: 2|");
    assert_memory_equal(reply_body_at(&reply), "y", 1);
    assert_true(reply_body_add(&reply, block, sizeof block));
    reply_reset(&reply);
    assert_true(reply.head == NULL && reply.body == NULL && reply.body_cap == 0);
}

/* ---- the body ---- */

static size_t take(char *out, size_t cap)
{
    size_t waiting = reply_body_waiting(&reply), len = waiting < cap ? waiting : cap;
    if (len > 0)
        memcpy(out, reply_body_at(&reply), len);
    reply_body_drop(&reply, len);
    return len;
}

static void body_in_and_out(void **state)
{
    char out[64];
    (void)state;
    assert_int_equal(reply_body_waiting(&reply), 0);
    assert_int_equal(take(out, sizeof out), 0);
    assert_true(reply_body_add(&reply, "hello ", 6));
    assert_true(reply_body_add(&reply, "world", 5));
    assert_int_equal(reply_body_waiting(&reply), 11);
    assert_int_equal(take(out, 4), 4);
    assert_memory_equal(out, "hell", 4);
    assert_int_equal(reply_body_waiting(&reply), 7);
    assert_true(reply_body_add(&reply, "!", 1));
    assert_int_equal(take(out, sizeof out), 8);
    assert_memory_equal(out, "o world!", 8);
    assert_int_equal(reply_body_waiting(&reply), 0);
    assert_int_equal(take(out, sizeof out), 0);
}

/* Bytes are a running number: each comes out once and in order, and the buffer stays bounded while it wraps. */
static void body_beside_a_model(void **state)
{
    static char in[17000], out[17000];
    uint64_t random = UINT64_C(0x853C49E6748FEA9B);
    unsigned char put = 0, got = 0;
    size_t waiting = 0, most = 0;
    (void)state;
    for (int step = 0; step < 20000; step++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        size_t len = (random >> 20) % (random % 5 == 0 ? sizeof in : 900);
        if ((random >> 50) % 2 == 0 && waiting < REPLY_BODY_MAX) {
            for (size_t i = 0; i < len; i++)
                in[i] = (char)put++;
            assert_true(reply_body_add(&reply, in, len));
            waiting += len;
        } else {
            size_t taken = take(out, len);
            assert_int_equal(taken, len < waiting ? len : waiting);
            for (size_t i = 0; i < taken; i++)
                if ((unsigned char)out[i] != got++)
                    fail_msg("step %d: a byte is out of place", step);
            waiting -= taken;
        }
        most = waiting > most ? waiting : most;
        assert_int_equal(reply_body_waiting(&reply), waiting);
    }
    assert_in_range(most, REPLY_BODY_MAX / 2, REPLY_BODY_MAX + sizeof in);
    assert_in_range(reply.body_cap, most, 4 * REPLY_BODY_MAX);
}

static void freed_is_empty(void **state)
{
    (void)state;
    HEAD("HTTP/1.1 200 OK", "A: 1", "");
    assert_true(reply_body_add(&reply, "x", 1));
    reply_free(&reply);
    assert_int_equal(reply_body_waiting(&reply), 0);
    assert_string_equal(fields(), "");
    reply_free(&reply);
    assert_true(reply_body_add(&reply, "y", 1));
    assert_int_equal(reply_body_waiting(&reply), 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_plain_answer),
        CASE(no_fields),
        CASE(repeated_fields_stay),
        CASE(interim_answers_leave_nothing),
        CASE(the_length_of_an_interim_answer_is_not_the_answers),
        CASE(a_101_is_no_answer),
        CASE(status_lines),
        CASE(lengths),
        CASE(two_lengths),
        CASE(a_coded_body_has_no_length),
        CASE(malformed_lines),
        CASE(a_name_like_a_version),
        CASE(a_long_connection_field),
        CASE(what_is_relayed),
        CASE(what_connection_names_is_not_relayed),
        CASE(small_buffers_serve_again),
        CASE(body_in_and_out),
        CASE(body_beside_a_model),
        CASE(freed_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
