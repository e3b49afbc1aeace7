/* tests/unit/test_mail_text.c - encodings of mail, piece by piece; whole messages are in test_mail_compose.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/mail_text.h"

static struct mail_text text;

static int tear_down(void **state)
{
    (void)state;
    mail_text_free(&text);
    return 0;
}

static void wrote(const char *expected)
{
    assert_false(text.failed);
    if (text.len != strlen(expected) || (text.len > 0 && memcmp(text.data, expected, text.len) != 0))
        fail_msg("expected: %s\n  got:      %.*s", expected, (int)text.len, text.data);
    mail_text_free(&text);
}

static void dots(void **state)
{
    static const char *const rows[][2] = {
        {"", ""},
        {"a", "a"},
        {".", ".."},
        {"..", "..."},
        {"a\r\n.", "a\r\n.."},
        {"a.\r\n", "a.\r\n"},
        {".\r\n.\r\n", "..\r\n..\r\n"},
        {"a\r\n.b\r\n..c", "a\r\n..b\r\n...c"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mail_add_words(&text, rows[i][0]);
        mail_stuff_dots(&text);
        wrote(rows[i][1]);
    }
}

static void base64(void **state)
{
    static const char *const good[] = {"", "AAAA", "AA==", "AAA=", "+/09azAZ"};
    static const char *const bad[] = {
        "A", "AA", "AAA", "=", "====", "A===", "AA=A", "A\nAA", "AAA ", "-_-_", "AAAA=", "AA==AAAA"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(mail_base64_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (mail_base64_valid(bad[i], strlen(bad[i])))
            fail_msg("taken: %s", bad[i]);
    char line[79];
    memset(line, 'A', 78);
    mail_add_base64_lines(&text, line, 78);
    line[76] = '\0';
    assert_int_equal(text.len, 82);
    assert_memory_equal(text.data, line, 76);
    assert_memory_equal(text.data + 76, "\r\nAA\r\n", 6);
}

static void unstructured(void **state)
{
    char word[1200];
    (void)state;
    memset(word, 'x', sizeof word);
    assert_true(mail_add_unstructured(&text, "  a b \t", 7, true));
    wrote("a b");
    assert_true(mail_add_unstructured(&text, "", 0, true));
    wrote("");
    assert_true(mail_add_unstructured(&text, word, 100, true)); /* no line holds it beside a name: encoded */
    assert_memory_equal(text.data, "=?UTF-8?B?", 10);
    mail_text_free(&text);
    assert_true(mail_add_unstructured(&text, word, 900, false)); /* a URL stays one */
    assert_int_equal(text.len, 900);
    mail_text_free(&text);
    assert_false(mail_add_unstructured(&text, word, 1000, false));
    assert_false(mail_add_unstructured(&text, word, MAIL_LINE_MAX, false));
    mail_add_words(&text, "Name: ");
    assert_true(mail_add_unstructured(&text, "\xe2\x82\xac", 3, true));
    wrote("Name: =?UTF-8?B?4oKs?=");
}

/* Encoded words end between characters, and stay below 76 bytes. */
static void long_encoded_words(void **state)
{
    char value[3 * 200];
    (void)state;
    for (size_t i = 0; i < sizeof value; i += 3)
        memcpy(value + i, "\xe2\x82\xac", 3);
    mail_add_words(&text, "Subject: ");
    assert_true(mail_add_unstructured(&text, value, sizeof value, true));
    mail_end_line(&text);
    size_t start = 0;
    for (size_t i = 0; i + 1 < text.len; i++) {
        if (text.data[i] != '\r')
            continue;
        assert_true(i - start <= MAIL_LINE);
        assert_memory_equal(text.data + i - 2, "?=", 2);
        start = i + 2;
    }
    assert_true(start == text.len);
}

static void names(void **state)
{
    (void)state;
    mail_add_name(&text, "A B", 3);
    wrote("A B");
    mail_add_name(&text, "A  B", 4);
    wrote("\"A  B\"");
    mail_add_name(&text, "A.", 2);
    wrote("\"A.\"");
    mail_add_name(&text, "A\"\\", 3);
    wrote("\"A\\\"\\\\\"");
    mail_add_name(&text, "\xc3\xa9", 2);
    wrote("=?UTF-8?B?w6k=?=");
}

static void parameters(void **state)
{
    (void)state;
    mail_add_parameter(&text, "filename", "a.txt", 5);
    wrote(";\r\n filename=\"a.txt\"");
    mail_add_parameter(&text, "filename", "a'%*.txt\xc3\xa9", 10);
    wrote(";\r\n filename*=UTF-8''a%27%25%2A.txt%C3%A9");
}

static void text_parts(void **state)
{
    char long_line[200];
    (void)state;
    memset(long_line, 'y', sizeof long_line);
    mail_add_text_part(&text, "text/plain", "a\tb\n", 4);
    wrote("Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 7bit\r\n\r\na\tb\r\n");
    mail_add_text_part(&text, "text/plain", "a=\tb \n", 6);
    wrote(
        "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na=3D\tb=20\r\n");
    mail_add_text_part(&text, "text/plain", long_line, sizeof long_line);
    static const char head[] =
        "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n";
    assert_memory_equal(text.data + sizeof head - 1 + 75, "=\r\n", 3);
    assert_int_equal(text.len, sizeof head - 1 + sizeof long_line + 2 * 3 + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(dots, tear_down),         cmocka_unit_test_teardown(base64, tear_down),
        cmocka_unit_test_teardown(unstructured, tear_down), cmocka_unit_test_teardown(long_encoded_words, tear_down),
        cmocka_unit_test_teardown(names, tear_down),        cmocka_unit_test_teardown(parameters, tear_down),
        cmocka_unit_test_teardown(text_parts, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
