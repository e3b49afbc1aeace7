/* tests/unit/test_smtp_dialogue.c - the transaction: what is said in which order, and what the relay's words mean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/arena.h"
#include "gateway/jsonout.h"
#include "gateway/mail.h"
#include "gateway/smtp_dialogue.h"

static struct arena arena;
static struct smtp_dialogue dialogue;
static char message[] = "Subject: x\r\n\r\nhi\r\n";
static const char *const two[] = {"b@home.example", "c@home.example"};
static struct mail mail;

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena);
    mail = (struct mail){.data = message,
                         .len = sizeof message - 1,
                         .sender = "a@jobs.example",
                         .recipients = two,
                         .recipient_count = 2,
                         .message_id = "i@d"};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

static void begin(const char *const *abilities)
{
    struct smtp_abilities offered = {0};
    for (; abilities != NULL && *abilities != NULL; abilities++)
        smtp_learn_ability(&offered, *abilities, strlen(*abilities));
    smtp_begin(&dialogue, &mail, &offered, &arena);
}

/* All that comes out now is `expected`; one byte at a time, as a slow socket takes it. */
static void says(const char *expected)
{
    char said[600];
    size_t len = 0;
    const char *data;
    while (smtp_output(&dialogue, &data) > 0) {
        assert_true(len < sizeof said - 1);
        said[len++] = *data;
        smtp_was_sent(&dialogue, 1);
    }
    said[len] = '\0';
    assert_string_equal(said, expected);
}

static void hears(const char *bytes)
{
    smtp_input(&dialogue, bytes, strlen(bytes));
}

static void up_to_dot(void)
{
    begin(NULL);
    says("MAIL FROM:<a@jobs.example>\r\n");
    hears("250 ok\r\n");
    says("RCPT TO:<b@home.example>\r\n");
    hears("250 ok\r\n");
    says("RCPT TO:<c@home.example>\r\n");
    hears("251 forwards\r\n");
    says("DATA\r\n");
    hears("354-go\r\n354 on\r\n");
    says("Subject: x\r\n\r\nhi\r\n");
    assert_true(smtp_wants_look(&dialogue));
}

static void answer_is(const char *expected)
{
    struct jsonout out = {0};
    smtp_answer_write(&dialogue, &out);
    assert_string_equal(out.text, expected);
    jsonout_free(&out);
}

static void taken(void **state)
{
    (void)state;
    up_to_dot();
    says("");
    smtp_send_dot(&dialogue);
    assert_false(smtp_wants_look(&dialogue));
    says(".\r\n");
    assert_int_equal(dialogue.outcome, SMTP_GOING);
    hears("250-2.0.0\r\n250 queued\r\n");
    assert_int_equal(dialogue.outcome, SMTP_TAKEN);
    assert_int_equal(smtp_code(&dialogue), 250);
    assert_true(smtp_reusable(&dialogue));
    answer_is(
        "{\"message_id\":\"i@d\",\"reply\":\"250 2.0.0 queued\",\"accepted\":[\"b@home.example\",\"c@home.example\"],"
        "\"rejected\":[]}\n");
    hears("x");
    assert_false(smtp_reusable(&dialogue));
}

static void some_refused(void **state)
{
    (void)state;
    begin(NULL);
    says("MAIL FROM:<a@jobs.example>\r\n");
    hears("250 ok\r\n");
    says("RCPT TO:<b@home.example>\r\n");
    hears("550 no\r\n");
    says("RCPT TO:<c@home.example>\r\n");
    hears("250 ok\r\n");
    says("DATA\r\n");
    hears("354 on\r\n");
    says("Subject: x\r\n\r\nhi\r\n");
    smtp_send_dot(&dialogue);
    says(".\r\n");
    hears("250 queued\r\n");
    answer_is("{\"message_id\":\"i@d\",\"reply\":\"250 queued\",\"accepted\":[\"c@home.example\"],"
              "\"rejected\":[{\"address\":\"b@home.example\",\"reply\":\"550 no\"}]}\n");
}

static void all_refused(void **state)
{
    static const struct {
        const char *first, *second, *verdict;
        enum smtp_outcome outcome;
    } rows[] = {
        {"550 a\r\n", "551 b\r\n", "551 b", SMTP_REFUSED},
        {"450 a\r\n", "551 b\r\n", "450 a", SMTP_BUSY},
        {"550 a\r\n", "451 b\r\n", "451 b", SMTP_BUSY},
        {"450 a\r\n", "451 b\r\n", "451 b", SMTP_BUSY},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin(NULL);
        says("MAIL FROM:<a@jobs.example>\r\n");
        hears("250 ok\r\n");
        says("RCPT TO:<b@home.example>\r\n");
        hears(rows[i].first);
        says("RCPT TO:<c@home.example>\r\n");
        hears(rows[i].second);
        says("");
        assert_int_equal(dialogue.outcome, rows[i].outcome);
        assert_string_equal(smtp_verdict(&dialogue), rows[i].verdict);
        assert_int_equal(smtp_code(&dialogue), strtoul(rows[i].verdict, NULL, 10));
        assert_false(smtp_reusable(&dialogue));
        assert_true(smtp_may_quit(&dialogue));
    }
}

/* Replies in turn, the last of which decides; NULL ends. */
static void outcome_of(enum smtp_outcome expected, const char *const *replies)
{
    const char *data;
    begin(NULL);
    for (; *replies != NULL; replies++) {
        assert_int_equal(dialogue.outcome, SMTP_GOING);
        for (size_t len; (len = smtp_output(&dialogue, &data)) > 0;)
            smtp_was_sent(&dialogue, len);
        if (smtp_wants_look(&dialogue)) {
            smtp_send_dot(&dialogue);
            smtp_was_sent(&dialogue, smtp_output(&dialogue, &data));
        }
        hears(*replies);
    }
    assert_int_equal(dialogue.outcome, expected);
    assert_int_equal(smtp_output(&dialogue, &data), 0);
}
#define OUTCOME(expected, ...) outcome_of(expected, (const char *const[]){__VA_ARGS__, NULL})
#define OK "250 ok\r\n"
#define GO "354 go\r\n"

static void what_replies_mean(void **state)
{
    (void)state;
    OUTCOME(SMTP_BUSY, "451 x\r\n");
    OUTCOME(SMTP_REFUSED, "550 x\r\n");
    OUTCOME(SMTP_NONSENSE, "354 x\r\n");
    OUTCOME(SMTP_NONSENSE, "HTTP/1.1 400\r\n");
    OUTCOME(SMTP_NONSENSE, OK OK);
    OUTCOME(SMTP_BUSY, OK, "421 closing\r\n");
    OUTCOME(SMTP_NONSENSE, OK, "354 x\r\n");
    OUTCOME(SMTP_NONSENSE, OK, "x\r\n");
    OUTCOME(SMTP_REFUSED, OK, OK, OK, "554 x\r\n");
    OUTCOME(SMTP_BUSY, OK, OK, OK, "451 x\r\n");
    OUTCOME(SMTP_NONSENSE, OK, OK, OK, OK);
    OUTCOME(SMTP_NONSENSE, OK, OK, OK, "355 x\r\n");
    OUTCOME(SMTP_TAKEN, OK, OK, OK, GO, "299 x\r\n");
    OUTCOME(SMTP_REFUSED, OK, OK, OK, GO, "554 x\r\n");
    OUTCOME(SMTP_BUSY, OK, OK, OK, GO, "452 x\r\n");
    OUTCOME(SMTP_NONSENSE, OK, OK, OK, GO, "354 x\r\n");
    OUTCOME(SMTP_NONSENSE, OK, OK, OK, GO, "554 x\r\n250 x\r\n");
    OUTCOME(SMTP_NONSENSE, OK, OK, OK, GO, "451 x\r\n2");
    OUTCOME(SMTP_TAKEN, OK, OK, OK, GO, "250 x\r\n554 x\r\n");
    OUTCOME(SMTP_TAKEN, OK, OK, OK, GO, "250 x\r\n421 x\r\n");
    OUTCOME(SMTP_NONSENSE, OK, OK, OK, GO, "100 x\r\n");
}

/* The session of a message refused at its end is good for another one, unless the relay says that it closes. */
static void reuse(void **state)
{
    (void)state;
    OUTCOME(SMTP_REFUSED, OK, OK, OK, GO, "554 x\r\n");
    assert_true(smtp_reusable(&dialogue));
    OUTCOME(SMTP_BUSY, OK, OK, OK, GO, "452 x\r\n");
    assert_true(smtp_reusable(&dialogue));
    OUTCOME(SMTP_BUSY, OK, OK, OK, GO, "421 x\r\n");
    assert_false(smtp_reusable(&dialogue));
    OUTCOME(SMTP_TAKEN, OK, OK, OK, GO, "250 x\r\nmore");
    assert_false(smtp_reusable(&dialogue));
    OUTCOME(SMTP_REFUSED, "550 x\r\n");
    assert_false(smtp_reusable(&dialogue));
    assert_true(smtp_may_quit(&dialogue));
    OUTCOME(SMTP_BUSY, OK, "421 x\r\n");
    assert_false(smtp_may_quit(&dialogue));
    OUTCOME(SMTP_NONSENSE, OK, OK, OK, OK);
    assert_false(smtp_may_quit(&dialogue));
    up_to_dot();
    assert_false(smtp_may_quit(&dialogue));
    hears("552 x\r\n");
    assert_false(smtp_may_quit(&dialogue)); /* it would be a line of the message */
}

/* The relay has had enough of the session, and says so in one breath with a reply. */
static void closing_behind_a_reply(void **state)
{
    static const char closing[] = "250 ok\r\n421-too\r\n421 many errors\r\n";
    (void)state;
    OUTCOME(SMTP_BUSY, closing);
    assert_string_equal(smtp_verdict(&dialogue), "421 too many errors");
    OUTCOME(SMTP_BUSY, OK, closing);
    OUTCOME(SMTP_BUSY, OK, "550 x\r\n421 x\r\n");
    OUTCOME(SMTP_BUSY, OK, OK, OK, "354 x\r\n421 x\r\n");
    OUTCOME(SMTP_REFUSED, "550 x\r\n421 x\r\n");
    OUTCOME(SMTP_REFUSED, OK, OK, OK, GO, "554 x\r\n421 x\r\n");
    assert_string_equal(smtp_verdict(&dialogue), "554 x");
    assert_false(smtp_reusable(&dialogue));
    OUTCOME(SMTP_BUSY, OK, OK, OK, GO, "452 x\r\n421 x\r\n");
    OUTCOME(SMTP_NONSENSE, OK, OK, OK, GO, "554 x\r\n421 x\r\n250 x\r\n");
    OUTCOME(SMTP_NONSENSE, OK, OK, OK, GO, "554 x\r\n421-x\r\n");
    OUTCOME(SMTP_NONSENSE, OK "421 x\r\nx");
}

static void replies_before_they_are_asked_for(void **state)
{
    static const struct {
        const char *said;
        enum smtp_outcome outcome;
    } rows[] = {
        {OK, SMTP_NONSENSE}, {"452 full\r\n", SMTP_BUSY}, {"552 too big\r\n", SMTP_REFUSED}, {"x\r\n", SMTP_NONSENSE}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        up_to_dot();
        hears(rows[i].said);
        assert_int_equal(dialogue.outcome, rows[i].outcome);
        assert_false(smtp_wants_look(&dialogue));
        assert_false(smtp_reusable(&dialogue));
        const char *data;
        up_to_dot();
        smtp_send_dot(&dialogue);
        assert_int_equal(smtp_output(&dialogue, &data), 3);
        smtp_was_sent(&dialogue, 1);
        hears(rows[i].said);
        assert_int_equal(dialogue.outcome, rows[i].outcome);
        assert_int_equal(smtp_output(&dialogue, &data), 0);
    }
}

static void what_the_relay_must_offer(void **state)
{
    (void)state;
    mail.eight_bit = true;
    begin(NULL);
    assert_int_equal(dialogue.outcome, SMTP_REFUSED);
    says("");
    char text[200];
    smtp_explain(&dialogue, text, sizeof text);
    assert_non_null(strstr(text, "8BITMIME"));
    assert_string_equal(smtp_verdict(&dialogue), "");
    assert_int_equal(smtp_code(&dialogue), 0);
    assert_true(smtp_reusable(&dialogue));
    begin((const char *const[]){"250-relay", "250-8bitmime\r\n", "250 SIZE 100\r\n", NULL});
    says("MAIL FROM:<a@jobs.example> SIZE=18 BODY=8BITMIME\r\n");
    mail.utf8 = true;
    begin((const char *const[]){"250 8BITMIME", NULL});
    assert_int_equal(dialogue.outcome, SMTP_REFUSED);
    begin((const char *const[]){"250-SMTPUTF8", "250-8BITMIMEX", "250-SIZER", "250 8BITMIME", NULL});
    says("MAIL FROM:<a@jobs.example> BODY=8BITMIME SMTPUTF8\r\n");
    mail = (struct mail){.data = message, .len = 2, .sender = "", .recipients = two, .recipient_count = 1};
    begin((const char *const[]){"250", "250-", "250 SIZE", NULL});
    says("MAIL FROM:<> SIZE=2\r\n");
}

static void explanations(void **state)
{
    char text[200];
    (void)state;
    OUTCOME(SMTP_REFUSED, "550 not you\r\n");
    smtp_explain(&dialogue, text, sizeof text);
    assert_string_equal(text, "The relay refused the sender: 550 not you");
    smtp_explain_briefly(&dialogue, text, sizeof text);
    assert_string_equal(text, "The relay refused the sender: 550.");
    OUTCOME(SMTP_BUSY, OK, OK, OK, GO, "452 full\r\n");
    smtp_explain(&dialogue, text, sizeof text);
    assert_string_equal(text, "The relay put off the message: 452 full");
}

static struct smtp_abilities learnt(const char *line)
{
    struct smtp_abilities abilities = {0};
    smtp_learn_ability(&abilities, line, strlen(line));
    return abilities;
}

static void ways_to_log_in(void **state)
{
    (void)state;
    struct smtp_abilities found = learnt("250-AUTH GSSAPI login PLAIN\r\n");
    assert_true(found.login && found.plain && !found.cram_md5 && smtp_offers_login(&found));
    found = learnt("250 auth CRAM-MD5");
    assert_true(found.cram_md5 && !found.plain && !found.login && smtp_offers_login(&found));
    static const char *const none[] = {
        "250 AUTH", "250 AUTH XOAUTH2 PLAINER", "250 PLAIN LOGIN", "250 X AUTH PLAIN", "250 AUTH=PLAIN", "250", "25"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        found = learnt(none[i]);
        assert_false(smtp_offers_login(&found));
    }
    found = learnt("250-SIZE 8BITMIME\r\n");
    assert_true(found.size && !found.eight_bit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(some_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_replies_mean, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reuse, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closing_behind_a_reply, set_up, tear_down),
        cmocka_unit_test_setup_teardown(replies_before_they_are_asked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_the_relay_must_offer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(explanations, set_up, tear_down),
        cmocka_unit_test(ways_to_log_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
