/* tests/unit/test_smtp_reply.c - replies of a relay, whole and byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/smtp_reply.h"

struct row {
    const char *bytes;
    unsigned code; /* 0: nonsense */
    const char *text;
    size_t left; /* bytes behind the reply */
};

static const struct row rows[] = {
    {"250 ok\r\n", 250, "250 ok", 0},
    {"250 ok\n", 250, "250 ok", 0},
    {"250\r\n", 250, "250", 0},
    {"250 \r\n", 250, "250", 0},
    {"250-a\r\n250-b\r\n250 c\r\n", 250, "250 a b c", 0},
    {"250-a\r\n250\r\n", 250, "250 a", 0},
    {"250-\r\n250 c\r\n", 250, "250 c", 0},
    {"354 go\r\nx", 354, "354 go", 1},
    {"421 a\r\n250 b\r\n", 421, "421 a", 7},
    {"550 5.1.1 \x1b[31m\tno\x7f\r\n", 550, "550 5.1.1 ?[31m?no?", 0},
    {"550 a\rb\r\n", 550, "550 a?b", 0},
    {"599 h\xc3\xa9\r\n", 599, "599 h\xc3\xa9", 0},
    {"200 a\r\n", 200, "200 a", 0},
    {"250-a\r\n251 b\r\n", 0, NULL, 0},
    {"199 a\r\n", 0, NULL, 0},
    {"600 a\r\n", 0, NULL, 0},
    {"25 a\r\n", 0, NULL, 0},
    {"25\r\n", 0, NULL, 0},
    {"\r\n", 0, NULL, 0},
    {"2500 a\r\n", 0, NULL, 0},
    {"250:a\r\n", 0, NULL, 0},
    {" 250 a\r\n", 0, NULL, 0},
    {"HTTP/1.1 400 Bad Request\r\n", 0, NULL, 0},
    {"25a x\r\n", 0, NULL, 0},
    {"250-a\r\nnonsense\r\n", 0, NULL, 0},
};

static void check(const struct row *row, const struct smtp_reply *reply, size_t used)
{
    if (row->code == 0) {
        if (!reply->nonsense || reply->done)
            fail_msg("taken: %s", row->bytes);
        return;
    }
    if (!reply->done || reply->nonsense)
        fail_msg("not taken: %s", row->bytes);
    assert_int_equal(reply->code, row->code);
    assert_string_equal(reply->text, row->text);
    assert_int_equal(reply->len, strlen(row->text));
    assert_int_equal(used, strlen(row->bytes) - row->left);
}

static void whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct smtp_reply reply = {0};
        size_t used = smtp_reply_feed(&reply, rows[i].bytes, strlen(rows[i].bytes));
        check(&rows[i], &reply, used);
    }
}

static void byte_by_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct smtp_reply reply = {0};
        size_t used = 0;
        for (const char *p = rows[i].bytes; *p != '\0'; p++)
            used += smtp_reply_feed(&reply, p, 1);
        check(&rows[i], &reply, used);
    }
}

static void unfinished(void **state)
{
    struct smtp_reply reply = {0};
    (void)state;
    assert_int_equal(smtp_reply_feed(&reply, "250-a\r\n250 b\r", 13), 13);
    assert_false(reply.done);
    assert_int_equal(smtp_reply_feed(&reply, "\n", 1), 1);
    assert_true(reply.done);
    assert_int_equal(smtp_reply_feed(&reply, "250 x\r\n", 7), 0);
}

static void endless(void **state)
{
    struct smtp_reply reply = {0};
    (void)state;
    for (unsigned i = 0; i < 100000; i++)
        assert_int_equal(smtp_reply_feed(&reply, "550-0123456789\r\n", 16), 16);
    smtp_reply_feed(&reply, "550 end\r\n", 9);
    assert_true(reply.done);
    assert_int_equal(reply.len, SMTP_TEXT_MAX);
    assert_int_equal(strlen(reply.text), SMTP_TEXT_MAX);
}

static void cut_between_characters(void **state)
{
    (void)state;
    for (size_t shift = 0; shift < 5; shift++) {
        struct smtp_reply reply = {0};
        smtp_reply_feed(&reply, "250 xxxxx", 4 + shift);
        for (unsigned i = 0; i < 2000; i++)
            smtp_reply_feed(&reply, "\xf0\x9f\x98\x80", 4);
        smtp_reply_feed(&reply, "\r\n", 2);
        assert_true(reply.done);
        assert_true(reply.len <= SMTP_TEXT_MAX && reply.len > SMTP_TEXT_MAX - 4);
        assert_int_equal((reply.len - 4 - shift) % 4, 0);
        assert_int_equal(strlen(reply.text), reply.len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),   cmocka_unit_test(byte_by_byte),           cmocka_unit_test(unfinished),
        cmocka_unit_test(endless), cmocka_unit_test(cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
