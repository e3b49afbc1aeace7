/* gateway/smtp_dialogue.c - one SMTP transaction (RFC 5321 section 3.3), a command at a time. */
#include "gateway/smtp_dialogue.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gateway/arena.h"
#include "gateway/jsonout.h"
#include "gateway/mail.h"

enum { CLOSING = 421, SEND_MESSAGE = 354 };

static bool is_word(const char *word, size_t len, const char *known)
{
    return len == strlen(known) && strncasecmp(word, known, len) == 0;
}

static void learn_way(struct smtp_abilities *abilities, const char *word, size_t len)
{
    abilities->plain = abilities->plain || is_word(word, len, "PLAIN");
    abilities->login = abilities->login || is_word(word, len, "LOGIN");
    abilities->cram_md5 = abilities->cram_md5 || is_word(word, len, "CRAM-MD5");
}

void smtp_learn_ability(struct smtp_abilities *abilities, const char *line, size_t len)
{
    bool auth = false;
    while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == '\n'))
        len--;
    for (size_t at = 4, end; at < len; at = end + 1) {
        const char *blank = memchr(line + at, ' ', len - at);
        end = blank == NULL ? len : (size_t)(blank - line);
        const char *word = line + at;
        if (auth) {
            learn_way(abilities, word, end - at);
            continue;
        }
        abilities->eight_bit = abilities->eight_bit || is_word(word, end - at, "8BITMIME");
        abilities->utf8 = abilities->utf8 || is_word(word, end - at, "SMTPUTF8");
        abilities->size = abilities->size || is_word(word, end - at, "SIZE");
        auth = is_word(word, end - at, "AUTH");
        if (!auth)
            return; /* the other words are the first one's */
    }
}

bool smtp_offers_login(const struct smtp_abilities *abilities)
{
    return abilities->plain || abilities->login || abilities->cram_md5;
}

static void command(struct smtp_dialogue *dialogue, enum smtp_step step, int len)
{
    dialogue->step = step;
    dialogue->out = dialogue->command;
    dialogue->out_len = (size_t)len;
    dialogue->waiting = false;
    dialogue->reply = (struct smtp_reply){0};
}

static void refuse(struct smtp_dialogue *dialogue, const char *explanation)
{
    dialogue->outcome = SMTP_REFUSED;
    dialogue->explanation = explanation;
}

void smtp_begin(struct smtp_dialogue *dialogue, const struct mail *mail, const struct smtp_abilities *abilities,
                struct arena *arena)
{
    *dialogue = (struct smtp_dialogue){.mail = mail, .arena = arena, .out = ""};
    dialogue->refusals = arena_alloc(arena, mail->recipient_count * sizeof *dialogue->refusals);
    if (dialogue->refusals == NULL) {
        dialogue->no_memory = true;
        dialogue->outcome = SMTP_NONSENSE;
        return;
    }
    memset(dialogue->refusals, 0, mail->recipient_count * sizeof *dialogue->refusals);
    if (mail->utf8 && !abilities->utf8) {
        refuse(dialogue, "An address is not ASCII before its @, and the relay offers no SMTPUTF8.");
        return;
    }
    if (mail->eight_bit && !abilities->eight_bit) {
        refuse(dialogue, "The message has 8-bit bytes, and the relay offers no 8BITMIME.");
        return;
    }
    char size[32] = "";
    if (abilities->size)
        snprintf(size, sizeof size, " SIZE=%zu", mail->len);
    int len = snprintf(dialogue->command, sizeof dialogue->command, "MAIL FROM:<%s>%s%s%s\r\n", mail->sender, size,
                       mail->eight_bit ? " BODY=8BITMIME" : "", mail->utf8 ? " SMTPUTF8" : "");
    command(dialogue, SMTP_MAIL, len);
}

/* ---- out ---- */

size_t smtp_output(const struct smtp_dialogue *dialogue, const char **data)
{
    *data = dialogue->out;
    return dialogue->outcome == SMTP_GOING ? dialogue->out_len : 0;
}

void smtp_was_sent(struct smtp_dialogue *dialogue, size_t len)
{
    dialogue->out += len;
    dialogue->out_len -= len;
    if (dialogue->out_len == 0 && dialogue->step != SMTP_MESSAGE)
        dialogue->waiting = true;
}

bool smtp_wants_look(const struct smtp_dialogue *dialogue)
{
    return dialogue->outcome == SMTP_GOING && dialogue->step == SMTP_MESSAGE && dialogue->out_len == 0;
}

void smtp_send_dot(struct smtp_dialogue *dialogue)
{
    command(dialogue, SMTP_DOT, snprintf(dialogue->command, sizeof dialogue->command, ".\r\n"));
}

void smtp_take_back_dot(struct smtp_dialogue *dialogue)
{
    command(dialogue, SMTP_MESSAGE, 0);
}

/* ---- in ---- */

static void ask_recipient(struct smtp_dialogue *dialogue)
{
    command(dialogue, SMTP_RCPT,
            snprintf(dialogue->command, sizeof dialogue->command, "RCPT TO:<%s>\r\n",
                     dialogue->mail->recipients[dialogue->recipient]));
}

static void send_message(struct smtp_dialogue *dialogue)
{
    command(dialogue, SMTP_MESSAGE, 0);
    dialogue->out = dialogue->mail->data;
    dialogue->out_len = dialogue->mail->len;
}

static void next_recipient(struct smtp_dialogue *dialogue)
{
    if (++dialogue->recipient < dialogue->mail->recipient_count)
        ask_recipient(dialogue);
    else if (dialogue->refused < dialogue->mail->recipient_count)
        command(dialogue, SMTP_DATA, snprintf(dialogue->command, sizeof dialogue->command, "DATA\r\n"));
    else
        dialogue->outcome = dialogue->busy != NULL ? SMTP_BUSY : SMTP_REFUSED;
}

static void recipient_refused(struct smtp_dialogue *dialogue)
{
    const struct smtp_reply *reply = &dialogue->reply;
    char *copy = arena_copy(dialogue->arena, reply->text, reply->len);
    if (copy == NULL) {
        dialogue->no_memory = true;
        dialogue->outcome = SMTP_NONSENSE;
        return;
    }
    dialogue->refusals[dialogue->recipient] = copy;
    dialogue->refused++;
    if (reply->code < 500 && dialogue->busy == NULL) {
        dialogue->busy = copy;
        dialogue->busy_code = reply->code;
    }
    next_recipient(dialogue);
}

static void on_reply(struct smtp_dialogue *dialogue)
{
    unsigned code = dialogue->reply.code, class = code / 100;
    bool asked = dialogue->waiting;
    if (dialogue->step == SMTP_RCPT && asked && class >= 4 && code != CLOSING) {
        recipient_refused(dialogue);
        return;
    }
    if (class == 4) {
        dialogue->outcome = SMTP_BUSY;
    } else if (class == 5) {
        dialogue->outcome = SMTP_REFUSED;
    } else if (!asked) {
        dialogue->outcome = SMTP_NONSENSE;
    } else if (dialogue->step == SMTP_DATA) {
        if (code == SEND_MESSAGE)
            send_message(dialogue);
        else
            dialogue->outcome = SMTP_NONSENSE;
    } else if (class != 2) {
        dialogue->outcome = SMTP_NONSENSE;
    } else {
        switch (dialogue->step) {
        case SMTP_MAIL: ask_recipient(dialogue); break;
        case SMTP_RCPT: next_recipient(dialogue); break;
        case SMTP_DOT: dialogue->outcome = SMTP_TAKEN; break;
        case SMTP_DATA:
        case SMTP_MESSAGE: break;
        }
    }
}

/* Nobody asked for the bytes behind the reply. A relay that closes the session says 421 and may do so in one breath
 * with a reply. Anything else, and which reply belongs to what is not known: a refusal of the message, say, may be an
 * early one, and what is behind it the answer to the dot. */
static void on_extra(struct smtp_dialogue *dialogue, const char *data, size_t len)
{
    struct smtp_reply second = {0};
    dialogue->extra = true;
    bool refused = dialogue->step == SMTP_DOT && dialogue->outcome != SMTP_TAKEN;
    if (dialogue->outcome != SMTP_GOING && !refused)
        return;
    bool closing = smtp_reply_feed(&second, data, len) == len && second.done && second.code == CLOSING;
    if (!closing) {
        dialogue->outcome = SMTP_NONSENSE;
    } else if (!refused) {
        dialogue->outcome = SMTP_BUSY;
        dialogue->reply = second;
    }
}

void smtp_input(struct smtp_dialogue *dialogue, const char *data, size_t len)
{
    if (dialogue->outcome != SMTP_GOING || len == 0) {
        dialogue->extra = dialogue->extra || len > 0;
        return;
    }
    size_t used = smtp_reply_feed(&dialogue->reply, data, len);
    if (dialogue->reply.nonsense) {
        dialogue->outcome = SMTP_NONSENSE;
    } else if (dialogue->reply.done) {
        on_reply(dialogue);
        if (used < len)
            on_extra(dialogue, data + used, len - used);
    }
}

bool smtp_may_quit(const struct smtp_dialogue *dialogue)
{
    return dialogue->reply.done && dialogue->waiting && !dialogue->extra && dialogue->step != SMTP_MESSAGE &&
           dialogue->reply.code != CLOSING &&
           (dialogue->outcome == SMTP_REFUSED || dialogue->outcome == SMTP_BUSY || dialogue->outcome == SMTP_TAKEN);
}

bool smtp_reusable(const struct smtp_dialogue *dialogue)
{
    if (dialogue->explanation != NULL)
        return true; /* nothing was said */
    return dialogue->step == SMTP_DOT && dialogue->reply.done && !dialogue->extra && dialogue->reply.code != CLOSING &&
           dialogue->outcome != SMTP_NONSENSE;
}

/* ---- what is said of it ---- */

/* The last of several recipients was refused for good, one before it was put off. */
static bool is_put_off_by_earlier(const struct smtp_dialogue *dialogue)
{
    return dialogue->outcome == SMTP_BUSY && dialogue->reply.code >= 500;
}

const char *smtp_verdict(const struct smtp_dialogue *dialogue)
{
    if (dialogue->explanation != NULL)
        return "";
    if (is_put_off_by_earlier(dialogue))
        return dialogue->busy;
    return dialogue->reply.done ? dialogue->reply.text : "";
}

unsigned smtp_code(const struct smtp_dialogue *dialogue)
{
    if (dialogue->explanation != NULL)
        return 0;
    if (is_put_off_by_earlier(dialogue))
        return dialogue->busy_code;
    return dialogue->reply.done ? dialogue->reply.code : 0;
}

static const char *what(const struct smtp_dialogue *dialogue)
{
    switch (dialogue->step) {
    case SMTP_MAIL: return "the sender";
    case SMTP_RCPT: return dialogue->mail->recipient_count == 1 ? "the recipient" : "every recipient";
    default: return "the message";
    }
}

static void explain(const struct smtp_dialogue *dialogue, char *out, size_t cap, const char *reply)
{
    if (dialogue->explanation != NULL)
        snprintf(out, cap, "%s", dialogue->explanation);
    else if (dialogue->no_memory)
        snprintf(out, cap, "The gateway is out of memory.");
    else if (dialogue->outcome == SMTP_NONSENSE)
        snprintf(out, cap, "The relay's reply is none, or none that belongs there.");
    else
        snprintf(out, cap, "The relay %s %s: %s", dialogue->outcome == SMTP_BUSY ? "put off" : "refused",
                 what(dialogue), reply);
}

void smtp_explain(const struct smtp_dialogue *dialogue, char *out, size_t cap)
{
    explain(dialogue, out, cap, smtp_verdict(dialogue));
}

void smtp_explain_briefly(const struct smtp_dialogue *dialogue, char *out, size_t cap)
{
    char code[8];
    snprintf(code, sizeof code, "%u.", smtp_code(dialogue));
    explain(dialogue, out, cap, code);
}

void smtp_answer_write(const struct smtp_dialogue *dialogue, struct jsonout *out)
{
    const struct mail *mail = dialogue->mail;
    jsonout_object_begin(out);
    jsonout_member_cstring(out, "message_id", mail->message_id);
    jsonout_member_string(out, "reply", dialogue->reply.text, dialogue->reply.len);
    jsonout_name(out, "accepted");
    jsonout_array_begin(out);
    for (size_t i = 0; i < mail->recipient_count; i++)
        if (dialogue->refusals[i] == NULL)
            jsonout_cstring(out, mail->recipients[i]);
    jsonout_array_end(out);
    jsonout_name(out, "rejected");
    jsonout_array_begin(out);
    for (size_t i = 0; i < mail->recipient_count; i++) {
        if (dialogue->refusals[i] == NULL)
            continue;
        jsonout_object_begin(out);
        jsonout_member_cstring(out, "address", mail->recipients[i]);
        jsonout_member_cstring(out, "reply", dialogue->refusals[i]);
        jsonout_object_end(out);
    }
    jsonout_array_end(out);
    jsonout_object_end(out);
    jsonout_raw(out, "\n", 1);
}
