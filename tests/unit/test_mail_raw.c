/* tests/unit/test_mail_raw.c - messages as they are: line ends, dots, envelope, Message-ID. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/arena.h"
#include "gateway/mail.h"

static struct arena arena;
static struct mail mail;
static char why[MAIL_WHY];

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena);
    mail = (struct mail){0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(mail.data);
    arena_free(&arena);
    return 0;
}

static enum mail_result take(const char *body, const char *from, const char *to)
{
    free(mail.data);
    return mail_take_raw(&arena, body, strlen(body), from, to, &mail, why);
}

static void lines_and_dots(void **state)
{
    static const char *const rows[][2] = {
        {"a", "a\r\n"},
        {"a\r\n", "a\r\n"},
        {"a\n", "a\r\n"},
        {"a\r", "a\r\n"},
        {"a\r\r\nb", "a\r\n\r\nb\r\n"},
        {"a\n\rb", "a\r\n\r\nb\r\n"},
        {"\n", "\r\n"},
        {".", "..\r\n"},
        {"..\r\n.a\r\nb.\r\n", "...\r\n..a\r\nb.\r\n"},
        {"a\n.\nb", "a\r\n..\r\nb\r\n"},
        {"a\r.\rb", "a\r\n..\r\nb\r\n"},
        {"a\r\n.\r\n", "a\r\n..\r\n"},
        {"a\xff\r\n", "a\xff\r\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(take(rows[i][0], "a@b", "c@d"), MAIL_OK);
        assert_int_equal(mail.len, strlen(rows[i][1]));
        assert_memory_equal(mail.data, rows[i][1], mail.len);
        assert_int_equal(mail.eight_bit, strchr(rows[i][0], '\xff') != NULL);
    }
}

/* Of any bytes: no line is a single dot, no CR or LF stands alone. */
static void noise(void **state)
{
    static const char bytes[] = "\r\n..a";
    uint64_t random = 900000;
    (void)state;
    for (unsigned round = 0; round < 100000; round++) {
        char body[17];
        for (size_t i = 0; i < sizeof body - 1; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            body[i] = bytes[(random >> 40) % (sizeof bytes - 1)];
        }
        body[sizeof body - 1] = '\0';
        assert_int_equal(take(body, "a@b", "c@d"), MAIL_OK);
        assert_true(mail.len >= 2 && memcmp(mail.data + mail.len - 2, "\r\n", 2) == 0);
        assert_false(mail.len >= 3 && memcmp(mail.data, ".\r\n", 3) == 0);
        assert_null(memmem(mail.data, mail.len, "\n.\r", 3));
        for (size_t i = 0; i < mail.len; i++) {
            assert_true(mail.data[i] != '\r' || mail.data[i + 1] == '\n');
            assert_true(mail.data[i] != '\n' || (i > 0 && mail.data[i - 1] == '\r'));
        }
    }
}

static void envelopes(void **state)
{
    (void)state;
    assert_int_equal(take("x", " <> ", "c@d , <e@f>,\"a,b\"@c.d, c@D"), MAIL_OK);
    assert_string_equal(mail.sender, "");
    assert_int_equal(mail.recipient_count, 3);
    assert_string_equal(mail.recipients[0], "c@d");
    assert_string_equal(mail.recipients[1], "e@f");
    assert_string_equal(mail.recipients[2], "\"a,b\"@c.d");
    assert_int_equal(take("x",
                          "<a@b\xc3\xbc"
                          "cher.example>",
                          "j\xc3\xb6@d"),
                     MAIL_OK);
    assert_string_equal(mail.sender, "a@xn--bcher-kva.example");
    assert_true(mail.utf8);
}

static void bad_envelopes(void **state)
{
    static const char *const rows[][2] = {
        {NULL, "c@d"},          {"a@b", NULL},      {"", "c@d"},
        {"a", "c@d"},           {"a@b", ""},        {"a@b", ","},
        {"a@b", "c@d,"},        {"a@b", ",c@d"},    {"a@b", "<>"},
        {"a@b", "A <c@d>"},     {"A <a@b>", "c@d"}, {"a@b, c@d", "c@d"},
        {"a@b> SIZE=1", "c@d"}, {"a@b", "c@d e@f"}, {"a@b", "\"a,c@d"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (take("x", rows[i][0], rows[i][1]) != MAIL_MALFORMED)
            fail_msg("row %zu was taken", i);
        assert_null(mail.data);
    }
}

static void no_messages(void **state)
{
    (void)state;
    assert_int_equal(take("", "a@b", "c@d"), MAIL_MALFORMED);
    assert_int_equal(mail_take_raw(&arena, "a\0b", 3, "a@b", "c@d", &mail, why), MAIL_MALFORMED);
}

static void message_ids(void **state)
{
    static const char *const rows[][2] = {
        {"Message-ID: <a@b>\r\n\r\nx", "a@b"},
        {"Subject: x\r\nmessage-id:<a@b>\r\n\r\nx", "a@b"},
        {"Message-ID:\r\n <a@b>\r\n\r\nx", "a@b"},
        {"Message-ID: <a\r\n\t@b>\r\nTo: c\r\n\r\nx", "a@b"},
        {"Message-ID: a@b", "a@b"},
        {"Message-ID : <a@b>\r\n\r\nx", "a@b"},
        {"Message-ID: <a@b> (of (a \\) list))\r\n\r\nx", "a@b"},
        {"Message-ID: (not <x@y>)\r\n <a@b>\r\n\r\nx", "a@b"},
        {"Message-ID: <a@b><c@d>\r\n\r\nx", "a@b"},
        {"Message-ID: id <a@b> x\r\n\r\nx", "a@b"},
        {"Message-ID: a@b c@d\r\n\r\nx", "a@b"},
        {"Message-ID: <\"a b\"@c>\r\n\r\nx", "\"a b\"@c"},
        {"Message-ID: <a(b)@c>\r\n\r\nx", "a(b)@c"},
        {"Message-ID: (a@b\r\n\r\nx", NULL},
        {"Message-IDs: <a@b>\r\n\r\nx", NULL},
        {"Message-ID", NULL},
        {"Message-ID: <1@b>\r\nMessage-ID: <2@b>\r\n\r\n", "1@b"},
        {"Message-ID:\r\n\r\nx", NULL},
        {"Message-ID: <>\r\n\r\nx", NULL},
        {"X-Message-ID: <a@b>\r\n\r\nx", NULL},
        {"Subject: x\r\n\r\nMessage-ID: <a@b>\r\n", NULL},
        {"\r\nMessage-ID: <a@b>\r\n", NULL},
        {"x", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(take(rows[i][0], "a@b", "c@d"), MAIL_OK);
        if (rows[i][1] == NULL)
            assert_null(mail.message_id);
        else
            assert_string_equal(mail.message_id, rows[i][1]);
    }
    static char large[4000] = "Message-ID: ";
    memset(large + 12, 'x', 3000);
    assert_int_equal(take(large, "a@b", "c@d"), MAIL_OK);
    assert_null(mail.message_id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_and_dots, set_up, tear_down),
        cmocka_unit_test_setup_teardown(noise, set_up, tear_down),
        cmocka_unit_test_setup_teardown(envelopes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_envelopes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_messages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(message_ids, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
