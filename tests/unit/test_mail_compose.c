/* tests/unit/test_mail_compose.c - messages from JSON: heads, encodings, parts; and that nothing gets out of its field.
 * What mail libraries read in such messages is looked at in tests/e2e/test_mail.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/arena.h"
#include "gateway/mail.h"

static struct arena arena;
static struct mail mail;
static char why[MAIL_WHY];
static const struct mail_stamp stamp = {.now_ms = 1796050985123, .random = {0x01, 0xab}, .id_domain = NULL};

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

/* Documents are written with ' for ". */
static enum mail_result compose(const char *text)
{
    char json[4096];
    size_t len = strlen(text);
    assert_true(len < sizeof json);
    memcpy(json, text, len + 1);
    for (char *p = json; *p != '\0'; p++)
        if (*p == '\'')
            *p = '"';
    free(mail.data);
    return mail_compose(&arena, json, len, &stamp, &mail, why);
}

static void composed(const char *text)
{
    if (compose(text) != MAIL_OK)
        fail_msg("%s: %s", text, why);
    /* What holds of every message. */
    size_t width = 0;
    for (size_t i = 0; i < mail.len; i++) {
        assert_true(mail.utf8 || (unsigned char)mail.data[i] < 0x80);
        assert_true(mail.data[i] != '\r' || (i + 1 < mail.len && mail.data[i + 1] == '\n'));
        assert_true(mail.data[i] != '\n' || (i > 0 && mail.data[i - 1] == '\r'));
        width = mail.data[i] == '\n' ? 0 : width + 1;
        assert_true(width <= 999);
    }
    assert_true(mail.len >= 2 && mail.data[mail.len - 1] == '\n');
}

static bool has(const char *text)
{
    return memmem(mail.data, mail.len, text, strlen(text)) != NULL;
}

#define FROM_TO "'from': 'a@jobs.example', 'to': ['b@home.example']"

static void whole_message(void **state)
{
    (void)state;
    composed("{" FROM_TO ", 'subject': 'hello', 'text': 'hi\\n.\\nyou'}");
    static const char expected[] = "Date: Mon, 30 Nov 2026 15:03:05 +0000\r\n"
                                   "From: a@jobs.example\r\n"
                                   "To: b@home.example\r\n"
                                   "Subject: hello\r\n"
                                   "Message-ID: <01ab0000000000000000000000000000@jobs.example>\r\n"
                                   "MIME-Version: 1.0\r\n"
                                   "Content-Type: text/plain; charset=utf-8\r\n"
                                   "Content-Transfer-Encoding: 7bit\r\n"
                                   "\r\n"
                                   "hi\r\n..\r\nyou\r\n";
    assert_int_equal(mail.len, sizeof expected - 1);
    assert_memory_equal(mail.data, expected, mail.len);
    assert_string_equal(mail.sender, "a@jobs.example");
    assert_int_equal(mail.recipient_count, 1);
    assert_string_equal(mail.recipients[0], "b@home.example");
    assert_string_equal(mail.message_id, "01ab0000000000000000000000000000@jobs.example");
    assert_false(mail.utf8);
    assert_false(mail.eight_bit);
}

static void heads(void **state)
{
    (void)state;
    composed("{'from': 'Z\xc3\xab <a@b\xc3\xbc"
             "cher.example>', 'to': ['A B <b@c.d>', '\\\"Doe, J\\\" <j@c.d>'], 'cc': ['c@c.d'], "
             "'bcc': ['d@c.d'], 'reply_to': ['r@c.d', 's@c.d'], 'subject': 'Gr\xc3\xb6\xc3\x9f"
             "e', 'text': '', "
             "'headers': {'X-A': 'plain', 'X-B': '\xc3\xa9', 'X-C': '', 'X-D': '=?x', '.x': 'dot'}}");
    assert_true(has("From: =?UTF-8?B?WsOr?= <a@xn--bcher-kva.example>\r\n"));
    assert_true(has("To: A B <b@c.d>, \"Doe, J\" <j@c.d>\r\n"));
    assert_true(has("Cc: c@c.d\r\nReply-To: r@c.d, s@c.d\r\nSubject: =?UTF-8?B?R3LDtsOfZQ==?=\r\n"));
    assert_true(has("\r\nX-A: plain\r\nX-B: =?UTF-8?B?w6k=?=\r\nX-C: \r\nX-D: =?x\r\n..x: dot\r\n"));
    assert_false(has("d@c.d>") || has(" d@c.d") || has("Bcc"));
    assert_int_equal(mail.recipient_count, 4);
    assert_string_equal(mail.recipients[3], "d@c.d");
}

static void what_could_be_read_otherwise_is_encoded(void **state)
{
    (void)state;
    composed("{'from': '\\\"=?UTF-8?Q?x?=\\\" <a@b.c>', 'to': ['b@c.d'], 'subject': '=?UTF-8?Q?x?=', 'text': ''}");
    assert_true(has("From: =?UTF-8?B?PT9VVEYtOD9RP3g/PQ==?= <a@b.c>\r\n"));
    assert_true(has("Subject: =?UTF-8?B?PT9VVEYtOD9RP3g/PQ==?=\r\n"));
    composed("{'from': '\\\"a\\\\\\\\b\\\" <a@b.c>', 'to': ['b@c.d'], 'subject': 'bell \\u0007', 'text': ''}");
    assert_true(has("From: \"a\\\\b\" <a@b.c>\r\n"));
    assert_true(has("Subject: =?UTF-8?B?YmVsbCAH?=\r\n"));
}

static void folding(void **state)
{
    char text[2800], words[1300] = "";
    (void)state;
    for (int i = 0; i < 100; i++)
        strcat(words, "word5 and  ");
    snprintf(text, sizeof text, "{" FROM_TO ", 'subject': '%s', 'text': '', 'headers': {'X-A': '%s'}}", words, words);
    composed(text);
    size_t width = 0;
    for (size_t i = 0; i < mail.len; i++) {
        width = mail.data[i] == '\n' ? 0 : width + 1;
        assert_true(width <= 77); /* with CR */
        assert_false(mail.data[i] == '\n' && i + 3 < mail.len && memcmp(mail.data + i, "\n \r", 3) == 0);
    }
    assert_true(has("word5\r\n and  word5") || has("word5 and\r\n  word5"));
}

static void parts(void **state)
{
    (void)state;
    composed("{" FROM_TO
             ", 'text': 'a\\n', 'html': '<b>', 'attachments': [{'filename': 'x.bin', 'content_type': 'a/b', "
             "'content': 'AAEC'}]}");
    static const char alternative[] = "a-00000000000000000000000000000000",
                      mixed[] = "m-00000000000000000000000000000000";
    char expected[1200];
    snprintf(
        expected, sizeof expected,
        "Content-Type: multipart/mixed;\r\n boundary=\"%s\"\r\n\r\n--%s\r\n"
        "Content-Type: multipart/alternative;\r\n boundary=\"%s\"\r\n\r\n--%s\r\n"
        "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 7bit\r\n\r\na\r\n\r\n--%s\r\n"
        "Content-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: 7bit\r\n\r\n<b>\r\n--%s--\r\n--%s\r\n"
        "Content-Type: a/b\r\nContent-Disposition: attachment;\r\n filename=\"x.bin\"\r\n"
        "Content-Transfer-Encoding: base64\r\n\r\nAAEC\r\n--%s--\r\n",
        mixed, mixed, alternative, alternative, alternative, alternative, mixed, mixed);
    assert_true(has(expected));
}

static void file_names(void **state)
{
    (void)state;
#define FILENAME(name)                                                                                                 \
    "{" FROM_TO ", 'text': '', 'attachments': [{'filename': '" name "', 'content_type': 'a/b', 'content': ''}]}"
    composed(FILENAME("a b;c.txt"));
    assert_true(has("attachment;\r\n filename=\"a b;c.txt\"\r\n"));
    composed(FILENAME("\xc3\xa9.txt"));
    assert_true(has("attachment;\r\n filename*=UTF-8''%C3%A9.txt\r\n"));
    composed(FILENAME("a\\\"b"));
    assert_true(has("attachment;\r\n filename*=UTF-8''a%22b\r\n"));
    composed(FILENAME("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9 and more"));
    assert_true(has(";\r\n filename*0*=UTF-8''%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9;\r\n "
                    "filename*1*=%C3%A9%20and%20more\r\n"));
}

static void transfer_encodings(void **state)
{
    (void)state;
    composed("{" FROM_TO ", 'text': 'caf\xc3\xa9 =\\n. x \\nFrom y\\n'}");
    assert_true(has("Content-Transfer-Encoding: quoted-printable\r\n\r\ncaf=C3=A9 =3D\r\n=2E x=20\r\n=46rom y\r\n"));
    composed("{" FROM_TO ", 'text': '\xc3\xa9\xc3\xa9\xc3\xa9\\n'}");
    assert_true(has("Content-Transfer-Encoding: base64\r\n\r\nw6nDqcOpDQo=\r\n"));
    composed("{" FROM_TO ", 'text': 'From me'}");
    assert_true(has("quoted-printable\r\n\r\n=46rom me\r\n"));
    composed("{" FROM_TO ", 'html': 'a\\r\\nb\\rc\\nd'}");
    assert_true(has("7bit\r\n\r\na\r\nb\r\nc\r\nd\r\n"));
}

static void addresses_that_are_not_ascii(void **state)
{
    (void)state;
    composed("{'from': 'a@b.c', 'to': ['j\xc3\xb6@c.d'], 'text': ''}");
    assert_true(mail.utf8 && mail.eight_bit);
    assert_true(has("To: j\xc3\xb6@c.d\r\n"));
}

static void malformed(void **state)
{
    static const char *const rows[][2] = {
        {"", "not valid JSON"},
        {"[]", "must be a JSON object"},
        {"{'from': 'a@b.c', 'from': 'a@b.c'}", "a member twice, in line 1"},
        {"{'from': 'secret' x}", "not valid JSON"},
        {"{'to': ['b@c.d'], 'text': ''}", "from is missing"},
        {"{'from': 'a', 'to': ['b@c.d'], 'text': ''}", "from has no @"},
        {"{'from': 'a@b.c', 'to': ['b@c.d', 'secret'], 'text': ''}", "to[1] has no @"},
        {"{'from': 'a@b.c', 'to': ['b@c.d', 5], 'text': ''}", "to[1] has no string"},
        {"{'from': 'a@b.c', 'cc': 'b@c.d', 'text': ''}", "cc must be an array"},
        {"{'from': 'a@b.c', 'to': [], 'text': ''}", "There is no recipient"},
        {"{" FROM_TO "}", "There is neither text nor html"},
        {"{" FROM_TO ", 'text': null}", "text must be a string"},
        {"{" FROM_TO ", 'text': '', 'Subject': ''}", "known here: those known are from, to, cc"},
        {"{" FROM_TO ", 'text': '', 'subject': 'a\\nb'}", "Subject has a line break in it"},
        {"{" FROM_TO ", 'text': '', 'headers': []}", "headers must be an object"},
        {"{" FROM_TO ", 'text': '', 'headers': {'X-A': '', 'x-a': ''}}",
         "Member 1 of headers has a name that is there already"},
        {"{" FROM_TO ", 'text': '', 'headers': {'content-TYPE': ''}}",
         "Member 0 of headers has a name that the gateway"},
        {"{" FROM_TO ", 'text': '', 'headers': {'a b': ''}}", "Member 0 of headers has a name that is no header name"},
        {"{" FROM_TO ", 'text': '', 'headers': {'\xc3\xa9': ''}}",
         "Member 0 of headers has a name that is no header name"},
        {"{" FROM_TO ", 'text': '', 'headers': {'X': 'a\\rb'}}", "Member 0 of headers has a line break in it"},
        {"{" FROM_TO ", 'text': '', 'attachments': {}}", "attachments must be an array"},
        {"{" FROM_TO ", 'text': '', 'attachments': ['']}", "attachments[0] is no object"},
        {"{" FROM_TO ", 'text': '', 'attachments': [{'filename': '', 'content_type': 'a/b', 'content': ''}]}",
         "attachments[0].filename"},
        {"{" FROM_TO ", 'text': '', 'attachments': [{'filename': 'x', 'content_type': 'a/b;\\nc', 'content': ''}]}",
         "attachments[0].content_type"},
        {"{" FROM_TO
         ", 'text': '', 'attachments': [{'filename': 'x', 'content_type': 'message/rfc822', 'content': ''}]}",
         "attachments[0].content_type"},
        {"{" FROM_TO ", 'text': '', 'attachments': [{'filename': 'x', 'content_type': 'a/', 'content': ''}]}",
         "attachments[0].content_type"},
        {"{" FROM_TO ", 'text': '', 'attachments': [{'filename': 'x', 'content_type': 'a/b', 'content': '===='}]}",
         "attachments[0].content"},
        {"{" FROM_TO ", 'text': '', 'attachments': [{'filename': 'x', 'content_type': 'a/b', 'content': 'AA=A'}]}",
         "attachments[0].content"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (compose(rows[i][0]) != MAIL_MALFORMED)
            fail_msg("taken: %s", rows[i][0]);
        if (strstr(why, rows[i][1]) == NULL || strstr(why, "secret") != NULL)
            fail_msg("%s\n  expected: %s\n  got:      %s", rows[i][0], rows[i][1], why);
        assert_null(mail.data);
    }
}

static void id_domain(void **state)
{
    static const char json[] = "{\"from\":\"a@b.c\",\"to\":[\"b@c.d\"],\"text\":\"\"}";
    struct mail_stamp other = stamp;
    (void)state;
    other.id_domain = "id.example";
    assert_int_equal(mail_compose(&arena, json, strlen(json), &other, &mail, why), MAIL_OK);
    assert_string_equal(mail.message_id, "01ab0000000000000000000000000000@id.example");
}

static void unknown_members_are_named_apart(void **state)
{
    static const struct {
        const char *json, *name;
    } rows[] = {
        {"{'sbject':'x'}", "sbject"},
        {"{'\\u0007\\u001b[2J':1}", "\x07\x1b[2J"},
        {"{" FROM_TO ",'text':'','attachments':[{'nme':'x'}]}", "nme"},
        {"{'123456789012345678901234567890123456789012345678901234567890123':1}",
         "123456789012345678901234567890123456789012345678901234567890"},
        {"{'12345678901234567890123456789012345678901234567890123456789\xc3\xa4':1}",
         "12345678901234567890123456789012345678901234567890123456789"},
        {"{'from':7}", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(compose(rows[i].json), MAIL_MALFORMED);
        if (rows[i].name == NULL) {
            assert_null(mail.unknown);
            continue;
        }
        assert_string_equal(mail.unknown, rows[i].name);
        assert_null(strstr(why, rows[i].name)); /* it goes into the log */
        assert_non_null(strstr(why, "those known are"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whole_message, set_up, tear_down),
        cmocka_unit_test_setup_teardown(heads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_could_be_read_otherwise_is_encoded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(folding, set_up, tear_down),
        cmocka_unit_test_setup_teardown(parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(file_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(transfer_encodings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(addresses_that_are_not_ascii, set_up, tear_down),
        cmocka_unit_test_setup_teardown(malformed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(id_domain, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unknown_members_are_named_apart, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
