/*
 * gateway/mail_raw.c - a message/rfc822 body as it goes over the wire, with the envelope from two header fields.
 *
 * Only line ends change (a bare CR or LF in a message lets a relay and the next one see different messages) and dots
 * are stuffed. What the head says is the caller's business; its Message-ID is read for the answer.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gateway/arena.h"
#include "gateway/mail.h"
#include "gateway/mail_address.h"
#include "gateway/mail_text.h"

enum { MESSAGE_ID_MAX = 900 };

static enum mail_result malformed(char why[MAIL_WHY], const char *what)
{
    snprintf(why, MAIL_WHY, "%s", what);
    return MAIL_MALFORMED;
}

static enum mail_result bad_address(char why[MAIL_WHY], const char *where, const char *problem)
{
    snprintf(why, MAIL_WHY, "%s has %s.", where, problem);
    return problem == mail_no_memory ? MAIL_NO_MEMORY : MAIL_MALFORMED;
}

/* ---- the envelope ---- */

static enum mail_result take_sender(struct arena *arena, const char *from, struct mail *out, char why[MAIL_WHY])
{
    struct mail_address address;
    size_t start = strspn(from, " \t"), len = strlen(from + start);
    while (len > 0 && (from[start + len - 1] == ' ' || from[start + len - 1] == '\t'))
        len--;
    out->sender = "";
    if (len == 2 && memcmp(from + start, "<>", 2) == 0)
        return MAIL_OK;
    const char *problem = mail_mailbox_parse(arena, from, strlen(from), &address);
    if (problem != NULL)
        return bad_address(why, "Envelope-From", problem);
    out->sender = address.mailbox;
    out->utf8 = out->utf8 || address.utf8;
    return MAIL_OK;
}

/* The length up to the next comma that is not in a quoted local part. */
static size_t to_comma(const char *text)
{
    bool within = false;
    size_t i = 0;
    for (; text[i] != '\0' && (within || text[i] != ','); i++) {
        if (within && text[i] == '\\' && text[i + 1] != '\0')
            i++;
        else if (text[i] == '"')
            within = !within;
    }
    return i;
}

static enum mail_result take_recipients(struct arena *arena, const char *to, struct mail *out, char why[MAIL_WHY])
{
    size_t most = 1;
    for (const char *p = to; *p != '\0'; p++)
        most += *p == ',' ? 1 : 0;
    const char **list = arena_alloc(arena, (most < MAIL_RECIPIENTS_MAX ? most : MAIL_RECIPIENTS_MAX) * sizeof *list);
    if (list == NULL)
        return bad_address(why, "Envelope-To", mail_no_memory);
    for (const char *at = to;; at++) {
        struct mail_address address;
        size_t len = to_comma(at);
        const char *problem = mail_mailbox_parse(arena, at, len, &address);
        if (problem != NULL)
            return bad_address(why, "Envelope-To", problem);
        if (!mail_add_recipient(list, &out->recipient_count, address.mailbox))
            return malformed(why, "Envelope-To has too many recipients.");
        out->utf8 = out->utf8 || address.utf8;
        at += len;
        if (*at == '\0')
            break;
    }
    out->recipients = list;
    return MAIL_OK;
}

/* ---- the message ---- */

static void mend_lines(struct mail_text *text, const char *body, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t end = at;
        while (end < len && body[end] != '\r' && body[end] != '\n')
            end++;
        mail_add(text, body + at, end - at);
        mail_end_line(text);
        at = end < len && body[end] == '\r' && end + 1 < len && body[end + 1] == '\n' ? end + 2 : end + 1;
    }
}

static bool has_eight_bit(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)data[i] > 0x7F)
            return true;
    return false;
}

static size_t line_length(const char *data, size_t len)
{
    const char *end = memchr(data, '\r', len);
    return end == NULL ? len : (size_t)(end - data);
}

/* Length of the name and colon of a Message-ID field (RFC 5322 section 4.5 lets blanks stand between); 0: another. */
static size_t message_id_name(const char *line, size_t len)
{
    static const char name[] = "Message-ID";
    size_t at = sizeof name - 1;
    if (len < at || strncasecmp(line, name, at) != 0)
        return 0;
    while (at < len && (line[at] == ' ' || line[at] == '\t'))
        at++;
    return at < len && line[at] == ':' ? at + 1 : 0;
}

/* What stands between the first angle brackets, or else the first word; comments, folds and blanks that are in no
 * quotes are no part of it. */
static const char *read_message_id(struct arena *arena, const char *value, size_t len)
{
    char id[MESSAGE_ID_MAX] = "";
    size_t used = 0;
    unsigned comment = 0;
    bool within = false, quoted = false, ended = false;
    for (size_t i = 0; i < len; i++) {
        char c = value[i];
        if (comment > 0) {
            if (c == '\\')
                i++;
            comment += c == '(' ? 1u : 0u;
            comment -= c == ')' ? 1u : 0u;
        } else if (c == '>' && within) {
            break;
        } else if (c == '\r' || c == '\n' || (!quoted && (c == ' ' || c == '\t'))) {
            ended = !within && used > 0;
        } else if (c == '(' && !within) {
            comment = 1;
        } else if (c == '<' && !within) {
            within = true;
            used = 0;
        } else if (within || !ended) {
            quoted = within && (c == '"') != quoted;
            if (used == sizeof id)
                return NULL;
            id[used++] = c;
        }
    }
    return used == 0 ? NULL : arena_copy(arena, id, used);
}

/* Of the first Message-ID field, which may be folded. */
static const char *find_message_id(struct arena *arena, const char *data, size_t len)
{
    size_t at = 0, line, name = 0;
    for (; (line = line_length(data + at, len - at)) > 0; at += line + 2)
        if ((name = message_id_name(data + at, line)) > 0)
            break;
    if (line == 0)
        return NULL;
    size_t end = at + line;
    while (end + 2 < len && (data[end + 2] == ' ' || data[end + 2] == '\t'))
        end += 2 + line_length(data + end + 2, len - end - 2);
    return read_message_id(arena, data + at + name, end - at - name);
}

enum mail_result mail_take_raw(struct arena *arena, const char *body, size_t len, const char *from, const char *to,
                               struct mail *out, char why[MAIL_WHY])
{
    struct mail_text text = {0};
    *out = (struct mail){.sender = ""};
    if (from == NULL || to == NULL)
        return malformed(why, "A message/rfc822 body needs Envelope-From and Envelope-To, once each.");
    enum mail_result result = take_sender(arena, from, out, why);
    if (result == MAIL_OK)
        result = take_recipients(arena, to, out, why);
    if (result != MAIL_OK)
        return result;
    if (len == 0)
        return malformed(why, "The message is empty.");
    if (memchr(body, '\0', len) != NULL)
        return malformed(why, "The message has a NUL byte in it.");
    mend_lines(&text, body, len);
    if (!text.failed)
        out->message_id = find_message_id(arena, text.data, text.len);
    mail_stuff_dots(&text);
    if (text.failed) {
        mail_text_free(&text);
        return MAIL_NO_MEMORY;
    }
    out->data = mail_text_take(&text, &out->len);
    out->eight_bit = has_eight_bit(out->data, out->len);
    return MAIL_OK;
}
