/* gateway/smtp_reply.c - reads replies byte by byte (RFC 5321 section 4.2). */
#include "gateway/smtp_reply.h"

#include <stdint.h>
#include <string.h>

#include "gateway/utf8.h"

static void keep(struct smtp_reply *reply, char c)
{
    if (reply->len < SMTP_TEXT_MAX)
        reply->text[reply->len++] = (unsigned char)c < 0x20 || c == 0x7F ? '?' : c;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The three digits and what is behind them: "-" for more lines, " " or the line's end for the last. */
static bool take_head(struct smtp_reply *reply)
{
    const char *head = reply->head;
    if (head[0] < '2' || head[0] > '5' || !is_digit(head[1]) || !is_digit(head[2]))
        return false;
    unsigned code = (unsigned)(head[0] - '0') * 100 + (unsigned)(head[1] - '0') * 10 + (unsigned)(head[2] - '0');
    if (reply->code != 0 && reply->code != code)
        return false;
    if (reply->code == 0)
        for (size_t i = 0; i < 3; i++)
            keep(reply, head[i]);
    reply->code = code;
    return true;
}

static void end_text(struct smtp_reply *reply)
{
    size_t start = reply->len;
    uint32_t code;
    /* Back to the start of the last character; cut it off if the limit went through it. */
    while (start > 0 && reply->len - start < 3 && utf8_follows((unsigned char)reply->text[start - 1]))
        start--;
    if (reply->len == SMTP_TEXT_MAX && start > 0 && (unsigned char)reply->text[start - 1] >= 0xC0 &&
        utf8_next(reply->text + start - 1, reply->len - start + 1, &code) == 0)
        reply->len = start - 1;
    reply->text[reply->len] = '\0';
}

static void end_line(struct smtp_reply *reply)
{
    if (reply->at < 3 || (reply->at == 3 && !take_head(reply))) {
        reply->nonsense = true;
        return;
    }
    reply->done = reply->at == 3 || reply->last;
    reply->at = 0;
    reply->cr = false;
    if (reply->done)
        end_text(reply);
}

static void take_byte(struct smtp_reply *reply, char c)
{
    if (reply->at < 4) {
        reply->head[reply->at++] = c;
        if (reply->at < 4)
            return;
        reply->last = c == ' ';
        reply->nonsense = (c != ' ' && c != '-') || !take_head(reply);
        return;
    }
    if (reply->at == 4) { /* the first byte of a line's text */
        reply->at++;
        keep(reply, ' ');
    }
    keep(reply, c);
}

size_t smtp_reply_feed(struct smtp_reply *reply, const char *data, size_t len)
{
    size_t i = 0;
    while (i < len && !reply->done && !reply->nonsense) {
        char c = data[i++];
        if (c == '\n') {
            end_line(reply);
            continue;
        }
        if (reply->cr) { /* a bare CR is a byte of the text */
            reply->cr = false;
            take_byte(reply, '\r');
        }
        if (c == '\r')
            reply->cr = true;
        else if (!reply->nonsense)
            take_byte(reply, c);
    }
    return i;
}
