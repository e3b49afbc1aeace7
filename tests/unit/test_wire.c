/* tests/unit/test_wire.c - where an answer and its body end, however its bytes come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/reply.h"
#include "gateway/wire.h"

enum { HEAD_MAX = 16 * 1024 };

static struct wire wire;
static struct reply reply;
static char body[4096];
static size_t body_len;

static void begin(bool head_method)
{
    wire_free(&wire);
    reply_free(&reply);
    wire = (struct wire){.head_method = head_method, .head_max = HEAD_MAX};
    reply = (struct reply){0};
    body_len = 0;
}

static int tear_down(void **state)
{
    (void)state;
    begin(false);
    return 0;
}

/* One read, in memory of its own size: a read past its end is seen. Returns what no answer has taken. */
static size_t feed(const char *bytes, size_t len)
{
    char *data = malloc(len);
    assert_non_null(data);
    memcpy(data, bytes, len);
    size_t at = 0;
    while (at < len && wire.state != WIRE_DONE && wire.state != WIRE_BROKEN) {
        struct slice part;
        size_t taken = wire_take(&wire, &reply, data + at, len - at, &part);
        assert_true(taken > 0 && taken <= len - at);
        if (part.len > 0) {
            assert_true(part.data >= data + at && part.data + part.len <= data + at + taken);
            assert_true(body_len + part.len <= sizeof body);
            memcpy(body + body_len, part.data, part.len);
            body_len += part.len;
        }
        at += taken;
    }
    free(data);
    return len - at;
}

enum end { WHOLE, WHOLE_AT_CLOSE, OPEN, BAD };

static const struct answer {
    const char *bytes;
    enum end end;
    unsigned status; /* 0: no final head */
    const char *body;
    bool keep_alive;
    size_t left_over;
} answers[] = {
    /* lengths */
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", WHOLE, 200, "hello", true, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", WHOLE, 200, "", true, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n", WHOLE, 200, "hello", true, 17},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", OPEN, 200, "hell", true, 0},
    {"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", WHOLE, 200, "hello", true, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", WHOLE, 200, "hello", true, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", BAD, 0, "", false, 0},
    /* none: the connection's end */
    {"HTTP/1.1 200 OK\r\n\r\nhello", WHOLE_AT_CLOSE, 200, "hello", false, 0},
    {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nhello", WHOLE_AT_CLOSE, 200, "hello", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhello", WHOLE_AT_CLOSE, 200, "hello", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nhello", WHOLE_AT_CLOSE, 200, "hello",
     false, 0},
    /* may the connection be used again? */
    {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", WHOLE, 200, "hi", false, 0},
    {"HTTP/1.1 200 OK\r\nConnection: x, CLOSE ,y\r\nContent-Length: 2\r\n\r\nhi", WHOLE, 200, "hi", false, 0},
    {"HTTP/1.1 200 OK\r\nConnection: closed\r\nContent-Length: 2\r\n\r\nhi", WHOLE, 200, "hi", true, 0},
    {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", WHOLE, 200, "hi", false, 0},
    {"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nhi", WHOLE, 200, "hi", true, 0},
    /* no body */
    {"HTTP/1.1 204 No Content\r\n\r\n", WHOLE, 204, "", true, 0},
    {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", WHOLE, 204, "", false, 5},
    {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", WHOLE, 204, "", false, 0},
    {"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", WHOLE, 204, "", true, 0},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", WHOLE, 304, "", true, 0},
    {"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", WHOLE, 304, "", false, 0},
    /* interim answers */
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", WHOLE, 200, "hi", true, 0},
    {"HTTP/1.1 103 Hints\r\nConnection: close\r\nContent-Length: 9\r\n\r\nHTTP/1.1 102 P\r\n\r\nHTTP/1.1 201 C\r\n"
     "Content-Length: 0\r\n\r\n",
     WHOLE, 201, "", true, 0},
    {"HTTP/1.1 100 Continue\r\n\r\n", OPEN, 0, "", false, 0},
    {"HTTP/1.1 100 Continue\r\n\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nhi", WHOLE, 404, "hi", true, 0},
    /* an empty line before an answer */
    {"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", WHOLE, 200, "hi", true, 0},
    {"\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", WHOLE, 200, "hi", true, 0},
    {"\r\n\r\n", OPEN, 0, "", false, 0},
    {"\r\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", BAD, 0, "", false, 0},
    {"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", BAD, 0, "", false, 0},
    /* chunks */
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", WHOLE, 200, "hello", true, 0},
    {"HTTP/1.1 200 OK\r\ntransfer-encoding: CHUNKED\r\n\r\n1\r\nh\r\n00A\r\n0123456789\r\n000\r\n\r\n", WHOLE, 200,
     "h0123456789", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\";c\r\nhello\r\n0 ; x\r\nTrailer: "
     "1\r\nContent-Length: "
     "7\r\n\r\nrest",
     WHOLE, 200, "hello", true, 4},
    {"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n", WHOLE, 200, "hello", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n", WHOLE, 200,
     "hello", false, 0},
    {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n5\r\nhello\r\n0\r\n\r\n", WHOLE,
     200, "hello", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", OPEN, 200, "hello", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", OPEN, 200, "hello", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n", BAD, 200, "hello", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello\r\n", BAD, 200, "", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", BAD, 200, "", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 x\r\nhello\r\n0\r\n\r\n", BAD, 200, "", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 5\r\nhello\r\n0\r\n\r\n", BAD, 200, "", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 \t\r\nhello\r\n0 \r\n\r\n", WHOLE, 200, "hello", true, 0},
    /* trailers that are none */
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: x\rB: y\r\n\r\n", WHOLE, 200, "", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: x\r\r\n\r\n", WHOLE, 200, "", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\r\n\r\n", WHOLE, 200, "", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: x\r\n y\r\n\r\n", WHOLE, 200, "", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHTTP/1.1 500 No\r\n\r\n", WHOLE, 200, "", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n", BAD, 200, "", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n", BAD, 200, "", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n", BAD, 200, "", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5g\r\nhello\r\n", BAD, 200, "", true, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000000000000000\r\nhello\r\n", BAD, 200, "", true, 0},
    /* codings that nobody asked for: what the client would get is no body that it can read */
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", BAD, 0, "", false,
     0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n", BAD, 0, "", false, 0},
    /* no answer */
    {"hello\r\n", BAD, 0, "", false, 0},
    {"HTTP/2 200\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.2 200 OK\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.10 200 OK\r\n\r\n", BAD, 0, "", false, 0},
    {"http/1.1 200 OK\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 20\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\nA: x\r\n folded\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\nHTTP/1.1 500 No\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\nhello", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 O", OPEN, 0, "", false, 0},
    /* a CR that ends no line */
    {"HTTP/1.1 200 OK\rA: x\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 \x01\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 100 C\rB: y\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\nA: x\r\r\nContent-Length: 0\r\n\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\n\r\r\n", BAD, 0, "", false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a\r0\r\nhello\r\n0\r\n\r\n", BAD, 200, "", true, 0},
    {"HTTP/1.1 200 O\tK\r\nContent-Length: 0\r\n\r\n", WHOLE, 200, "", true, 0},
    /* what old proxies say of the connection: a promise to keep it is none */
    {"HTTP/1.1 200 OK\r\nProxy-Connection: Close\r\nContent-Length: 2\r\n\r\nhi", WHOLE, 200, "hi", false, 0},
    {"HTTP/1.0 200 OK\r\nProxy-Connection: keep-alive\r\nContent-Length: 2\r\n\r\nhi", WHOLE, 200, "hi", false, 0},
};

static void check(const struct answer *answer, size_t left, const char *how)
{
    enum wire_state end = wire.state;
    if (answer->end == WHOLE_AT_CLOSE) {
        assert_int_equal(end, WIRE_UNTIL_CLOSE);
        wire_closed(&wire);
        end = wire.state;
    }
    bool whole = answer->end == WHOLE || answer->end == WHOLE_AT_CLOSE;
    bool as_expected = whole                 ? end == WIRE_DONE
                       : answer->end == OPEN ? end != WIRE_DONE && end != WIRE_BROKEN
                                             : end == WIRE_BROKEN;
    unsigned status = reply.head_done ? reply.status : 0;
    if (!as_expected || status != answer->status || body_len != strlen(answer->body) ||
        memcmp(body, answer->body, body_len) != 0)
        fail_msg("%s, %s: state %d, status %u, body %.*s", answer->bytes, how, (int)end, status, (int)body_len, body);
    if (whole && (left != answer->left_over || wire.keep_alive != answer->keep_alive))
        fail_msg("%s, %s: %zu left over, keep_alive %d", answer->bytes, how, left, wire.keep_alive);
    if (answer->end == BAD && (reply.complaint == NULL || (status == 0 && !reply.nonsense)))
        fail_msg("%s, %s: no complaint", answer->bytes, how);
    if (answer->end == OPEN) { /* a connection that ends now has cut it short */
        wire_closed(&wire);
        assert_int_equal(wire.state, WIRE_BROKEN);
    }
}

static void every_answer_however_it_comes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        const struct answer *answer = &answers[i];
        size_t len = strlen(answer->bytes);
        begin(false);
        check(answer, feed(answer->bytes, len), "in one piece");
        for (size_t cut = 1; cut < len; cut++) {
            begin(false);
            size_t left = feed(answer->bytes, cut);
            left += feed(answer->bytes + cut, len - cut);
            check(answer, left, "in two pieces");
        }
        begin(false);
        size_t left = 0;
        for (size_t at = 0; at < len; at++)
            left += feed(answer->bytes + at, 1);
        check(answer, left, "byte by byte");
    }
}

static void head_has_no_body(void **state)
{
    static const char *const heads[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 404 No\r\nContent-Length: 5\r\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        begin(true);
        assert_int_equal(feed(heads[i], strlen(heads[i])), 0);
        assert_int_equal(wire.state, WIRE_DONE);
        assert_true(reply.head_done);
    }
    begin(true);
    assert_int_equal(feed(heads[0], strlen(heads[0])), 0);
    assert_true(wire.keep_alive);
    begin(true);
    assert_int_equal(feed(heads[2], strlen(heads[2])), 0);
    assert_false(wire.keep_alive); /* to GET it would end with the connection: it may be closed now, too */
    begin(true);
    assert_int_equal(feed("HTTP/1.1 100 C\r\n\r\n", 18), 0);
    assert_int_equal(wire.state, WIRE_STATUS); /* an interim answer ends nothing */
}

static void a_nul_is_no_text(void **state)
{
    static const char bytes[] = "HTTP/1.1 200 OK\r\nA: x\0y\r\n\r\n";
    (void)state;
    begin(false);
    (void)feed(bytes, sizeof bytes - 1);
    assert_int_equal(wire.state, WIRE_BROKEN);
    assert_true(reply.nonsense);
}

/* What nobody needs is not collected without end. */
static void lines_without_end(void **state)
{
    static char many[HEAD_MAX];
    (void)state;
    memset(many, 'x', sizeof many);
    begin(false);
    for (int i = 0; i < 3 && wire.state != WIRE_BROKEN; i++)
        (void)feed(many, sizeof many);
    assert_int_equal(wire.state, WIRE_BROKEN);
    assert_true(reply.nonsense && !reply.too_large);
    assert_true(wire.line_cap <= 2 * HEAD_MAX);

    static const char head[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", line[] = "Name: value\r\n";
    begin(false);
    (void)feed(head, sizeof head - 1);
    int lines = 0;
    while (wire.state != WIRE_BROKEN && lines < 100000) {
        (void)feed(line, sizeof line - 1);
        lines++;
    }
    assert_true(lines < 10000);
    assert_true(reply.head_done);
}

static void feed_text(const char *text)
{
    (void)feed(text, strlen(text));
}

/* Every byte of a head counts, from its status line to its empty line; an interim one is a head of its own. */
static void heads_at_the_limit(void **state)
{
    static const char status[] = "HTTP/1.1 201 C\r\n", end[] = "\r\n\r\n";
    static char text[HEAD_MAX + 2];
    (void)state;
    for (size_t over = 0; over < 2; over++) {
        size_t len = HEAD_MAX + over;
        memset(text, 'x', len);
        memcpy(text, status, sizeof status - 1);
        memcpy(text + sizeof status - 1, "A: ", 3);
        memcpy(text + len - 4, end, 4);
        begin(false);
        feed_text("HTTP/1.1 103 E\r\nB: x\r\n\r\n");
        (void)feed(text, len);
        assert_int_equal(wire.state, over == 0 ? WIRE_UNTIL_CLOSE : WIRE_BROKEN);
        assert_int_equal(reply.too_large, over == 1);
        assert_int_equal(reply.status, 201);
    }
}

static void many_fields_above_the_limit(void **state)
{
    static const char *const fields[] = {"Some-Name: and a value\r\n", "Keep-Alive: timeout=5\r\n", "A:\n"};
    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        size_t taken = 0;
        begin(false);
        feed_text("HTTP/1.1 200 OK\r\n");
        for (; wire.state == WIRE_FIELDS && taken <= HEAD_MAX; taken += strlen(fields[i]))
            feed_text(fields[i]);
        assert_true(wire.state == WIRE_BROKEN && reply.too_large && reply.nonsense && !reply.head_done);
        assert_true(taken <= HEAD_MAX && taken + 64 > HEAD_MAX);
    }
}

/* Only where the final status was read has the partner said what it did. */
static void too_large_before_a_final_status(void **state)
{
    static char many[HEAD_MAX];
    (void)state;
    memset(many, 'x', sizeof many);
    begin(false);
    feed_text("HTTP/1.1 103 E\r\nA: ");
    (void)feed(many, sizeof many);
    assert_true(wire.state == WIRE_BROKEN && reply.nonsense && !reply.too_large);
    begin(false);
    feed_text("HTTP/1.1 200 ");
    (void)feed(many, sizeof many);
    assert_true(wire.state == WIRE_BROKEN && reply.nonsense && !reply.too_large);
}

/* Random changes of good answers: nothing but a defined state, and no byte counted twice. */
static void mutations(void **state)
{
    static const char base[] =
        "HTTP/1.1 103 E\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: x\r\nTransfer-Encoding: chunked\r\n"
        "\r\n5;e\r\nhello\r\nA\r\n0123456789\r\n0\r\nT: 1\r\n\r\n";
    static const char odd[] = "\r\n\t :;,0aF\x7f\xff\x01";
    uint64_t random = UINT64_C(0x9E3779B97F4A7C15);
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char bytes[sizeof base];
        memcpy(bytes, base, sizeof base);
        begin(false);
        for (unsigned changes = 1 + (unsigned)round % 3; changes > 0; changes--) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
            bytes[(random >> 33) % (sizeof base - 1)] = odd[(random >> 20) % sizeof odd];
        }
        size_t at = 0, left = 0;
        while (at < sizeof base - 1) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
            size_t len = 1 + (random >> 33) % 40;
            if (len > sizeof base - 1 - at)
                len = sizeof base - 1 - at;
            left += feed(bytes + at, len);
            at += len;
        }
        assert_true(body_len + left <= sizeof base);
        if (wire.state == WIRE_DONE)
            assert_true(reply.head_done && !reply.nonsense);
    }
}

#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_answer_however_it_comes),
        CASE(head_has_no_body),
        CASE(a_nul_is_no_text),
        CASE(lines_without_end),
        CASE(heads_at_the_limit),
        CASE(many_fields_above_the_limit),
        CASE(too_large_before_a_final_status),
        CASE(mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
