/* tests/fuzz/smtp.c - a relay's replies: the same in whatever pieces they come, and a dialogue over them in which no
 * byte of the final dot goes out unless every reply before it allowed it. The first byte of an input chooses the
 * pieces; the rest is all that the relay ever says. */
#include "gateway/arena.h"
#include "gateway/jsonout.h"
#include "gateway/mail.h"
#include "gateway/smtp_dialogue.h"
#include "gateway/smtp_reply.h"
#include "tests/fuzz/fuzz.h"

static size_t feed(struct smtp_reply *reply, int how, const char *bytes, size_t len)
{
    size_t used = 0;
    while (used < len && !reply->done && !reply->nonsense) {
        size_t piece = how < 0 ? len - used : piece_of((uint8_t)how, used, len - used);
        char *copy = copy_of(bytes + used, piece, false);
        size_t took = smtp_reply_feed(reply, copy, piece);
        require(took <= piece && (took == piece || reply->done || reply->nonsense));
        used += took;
        free(copy);
    }
    return used;
}

static void one_reply(uint8_t how, const char *bytes, size_t len)
{
    struct smtp_reply whole = {0}, pieces = {0};
    size_t used = feed(&whole, -1, bytes, len), again = feed(&pieces, how, bytes, len);
    require(whole.done == pieces.done && whole.nonsense == pieces.nonsense && whole.code == pieces.code);
    require(whole.nonsense || used == again);
    require(whole.len == pieces.len && memcmp(whole.text, pieces.text, whole.len + 1) == 0);
    require(whole.len <= SMTP_TEXT_MAX && whole.text[whole.len] == '\0' && strlen(whole.text) == whole.len);
    for (size_t i = 0; i < whole.len; i++)
        require((unsigned char)whole.text[i] >= 0x20 && whole.text[i] != 0x7f);
    require(!whole.done || (whole.code >= 200 && whole.code <= 599 && bytes[used - 1] == '\n'));
}

/* Up to where a reply or the last look is awaited. */
static void send_due(struct smtp_dialogue *dialogue)
{
    const char *data;
    while (smtp_output(dialogue, &data) > 0)
        smtp_was_sent(dialogue, 1);
}

static void one_dialogue(uint8_t how, const char *bytes, size_t len)
{
    static const char *const two[] = {"b@home.example", "c@home.example"};
    static char message[] = "Subject: x\r\n\r\nhi\r\n";
    struct mail mail = {.data = message,
                        .len = sizeof message - 1,
                        .sender = "a@jobs.example",
                        .recipients = two,
                        .recipient_count = 1 + (how & 1U),
                        .message_id = "i@d",
                        .eight_bit = how & 4};
    struct smtp_abilities offered = {.size = how & 2, .eight_bit = how & 8};
    struct smtp_dialogue dialogue;
    struct jsonout answer = {0};
    struct arena arena;
    bool dotted = false;
    arena_init(&arena);
    smtp_begin(&dialogue, &mail, &offered, &arena);
    for (size_t at = 0; dialogue.outcome == SMTP_GOING;) {
        send_due(&dialogue);
        if (smtp_wants_look(&dialogue)) {
            require(!dotted && dialogue.refused < mail.recipient_count);
            smtp_send_dot(&dialogue);
            if (at % 2 == 1) { /* nothing of it was sent: another look */
                smtp_take_back_dot(&dialogue);
                require(smtp_wants_look(&dialogue));
                smtp_send_dot(&dialogue);
            }
            dotted = true;
            continue;
        }
        if (at >= len || dialogue.outcome != SMTP_GOING)
            break;
        size_t piece = piece_of(how, at, len - at);
        char *copy = copy_of(bytes + at, piece, false);
        smtp_input(&dialogue, copy, piece);
        free(copy);
        at += piece;
    }
    require(dialogue.outcome != SMTP_TAKEN || (dotted && smtp_code(&dialogue) / 100 == 2));
    require(dialogue.outcome != SMTP_BUSY || smtp_code(&dialogue) / 100 == 4);
    require(!smtp_reusable(&dialogue) || dialogue.outcome != SMTP_NONSENSE);
    if (dialogue.outcome != SMTP_GOING) {
        char text[300];
        smtp_explain(&dialogue, text, sizeof text);
        require(dialogue.outcome == SMTP_TAKEN || text[0] != '\0');
        smtp_explain_briefly(&dialogue, text, sizeof text);
    }
    if (dialogue.outcome == SMTP_TAKEN)
        smtp_answer_write(&dialogue, &answer);
    jsonout_free(&answer);
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct smtp_abilities abilities = {0};
    const char *line;
    if (size < 1)
        return 0;
    one_reply(data[0], (const char *)data + 1, size - 1);
    one_dialogue(data[0], (const char *)data + 1, size - 1);
    for (data++, size--; size > 0;) {
        size_t len = take_line(&data, &size, &line);
        smtp_learn_ability(&abilities, line, len);
    }
    return 0;
}
