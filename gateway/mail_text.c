/* gateway/mail_text.c - the encodings of mail. Which fields a message has is mail_compose.c's business. */
#include "gateway/mail_text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/utf8.h"

enum {
    ENCODED_BYTES = 45,  /* of text in one encoded word: 60 of base64 and 12 around it are below 75 */
    PARAMETER_PART = 50, /* of a parameter's value in one line, encoded */
    BASE64_LINE_IN = 57, /* bytes that make a line of 76 */
    PLAIN_WORD_MAX = 70, /* a longer word does not fit behind a field's name */
};

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char hex_digits[] = "0123456789ABCDEF";

static bool room(struct mail_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (more <= text->cap - text->len)
        return true;
    size_t cap = text->cap == 0 ? 1024 : text->cap;
    while (cap - text->len < more) {
        if (cap > SIZE_MAX / 2) {
            text->failed = true;
            return false;
        }
        cap *= 2;
    }
    char *data = realloc(text->data, cap);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->cap = cap;
    return true;
}

void mail_add(struct mail_text *text, const char *data, size_t len)
{
    if (len == 0 || !room(text, len))
        return;
    memcpy(text->data + text->len, data, len);
    text->len += len;
}

void mail_add_words(struct mail_text *text, const char *words)
{
    mail_add(text, words, strlen(words));
}

void mail_end_line(struct mail_text *text)
{
    mail_add(text, "\r\n", 2);
    text->line = text->len;
}

void mail_text_free(struct mail_text *text)
{
    free(text->data);
    *text = (struct mail_text){0};
}

char *mail_text_take(struct mail_text *text, size_t *len)
{
    char *fitting = realloc(text->data, text->len);
    if (fitting != NULL)
        text->data = fitting;
    char *data = text->data;
    *len = text->len;
    *text = (struct mail_text){0};
    return data;
}

static size_t column(const struct mail_text *text)
{
    return text->len - text->line;
}

/* ---- base64 ---- */

static void add_base64(struct mail_text *text, const char *bytes, size_t len)
{
    if (!room(text, (len + 2) / 3 * 4))
        return;
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        uint32_t group = (uint32_t)(unsigned char)bytes[i] << 16;
        if (left > 1)
            group |= (uint32_t)(unsigned char)bytes[i + 1] << 8;
        if (left > 2)
            group |= (uint32_t)(unsigned char)bytes[i + 2];
        char four[4] = {base64_digits[group >> 18], base64_digits[group >> 12 & 63],
                        left > 1 ? base64_digits[group >> 6 & 63] : '=', left > 2 ? base64_digits[group & 63] : '='};
        mail_add(text, four, 4);
    }
}

void mail_add_base64_lines(struct mail_text *text, const char *base64, size_t len)
{
    for (size_t at = 0; at < len; at += MAIL_LINE) {
        mail_add(text, base64 + at, len - at < MAIL_LINE ? len - at : MAIL_LINE);
        mail_end_line(text);
    }
}

static bool is_base64_digit(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
}

bool mail_base64_valid(const char *base64, size_t len)
{
    if (len % 4 != 0)
        return false;
    size_t padding = 0;
    while (padding < 2 && padding < len && base64[len - 1 - padding] == '=')
        padding++;
    for (size_t i = 0; i < len - padding; i++)
        if (!is_base64_digit(base64[i]))
            return false;
    return true;
}

/* ---- header fields ---- */

static bool printable(const char *value, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (value[i] < 0x20 || value[i] > 0x7E)
            return false;
    return true;
}

/* Would a reader see something else than these bytes? */
static bool needs_encoding(const char *value, size_t len)
{
    return !printable(value, len) || (len > 1 && memmem(value, len, "=?", 2) != NULL);
}

/* At most `max` bytes of text, whole code points where it is UTF-8. */
static size_t take_whole(const char *value, size_t len, size_t max)
{
    size_t end = 0;
    while (end < len) {
        uint32_t code;
        size_t step = utf8_next(value + end, len - end, &code);
        step = step == 0 ? 1 : step;
        if (end + step > max)
            break;
        end += step;
    }
    return end;
}

/* Words of their own, a line each but for the first: a reader joins them without the blanks between. */
static void add_encoded_words(struct mail_text *text, const char *value, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t used = column(text) + 12;
        size_t most = used + 8 > MAIL_LINE ? 0 : (MAIL_LINE - used) / 4 * 3;
        size_t piece = take_whole(value + at, len - at, at > 0 || most > ENCODED_BYTES ? ENCODED_BYTES : most);
        if (piece > 0) {
            mail_add_words(text, "=?UTF-8?B?");
            add_base64(text, value + at, piece);
            mail_add_words(text, "?=");
        }
        at += piece;
        if (at < len) {
            mail_end_line(text);
            mail_add_words(text, " ");
        }
    }
}

/* Where the next word ends, with the blanks before it: a fold stands before blanks that are followed by a word, so no
 * line is blank. */
static size_t word_end(const char *value, size_t len, size_t at)
{
    while (at < len && value[at] == ' ')
        at++;
    while (at < len && value[at] != ' ')
        at++;
    return at;
}

static size_t longest_word(const char *value, size_t len)
{
    size_t longest = 0, end;
    for (size_t at = 0; at < len; at = end) {
        end = word_end(value, len, at);
        longest = end - at > longest ? end - at : longest;
    }
    return longest;
}

static void add_folded(struct mail_text *text, const char *value, size_t len)
{
    size_t end;
    for (size_t at = 0; at < len; at = end) {
        end = word_end(value, len, at);
        if (at > 0 && column(text) + (end - at) > MAIL_LINE)
            mail_end_line(text);
        mail_add(text, value + at, end - at);
    }
}

bool mail_add_unstructured(struct mail_text *text, const char *value, size_t len, bool free_text)
{
    while (len > 0 && (value[0] == ' ' || value[0] == '\t'))
        value++, len--;
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
        len--;
    size_t word = longest_word(value, len);
    /* In a field of the caller's "=?" may be an encoded word of his own. */
    if (!printable(value, len) || (free_text && (needs_encoding(value, len) || word > PLAIN_WORD_MAX))) {
        add_encoded_words(text, value, len);
        return true;
    }
    if (word > MAIL_LINE_MAX - 1 - column(text))
        return false;
    add_folded(text, value, len);
    return true;
}

static bool is_atom_byte(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-/=?^_`{|}~", c) != NULL);
}

static void add_quoted(struct mail_text *text, const char *value, size_t len)
{
    mail_add_words(text, "\"");
    for (size_t i = 0; i < len; i++) {
        if (value[i] == '"' || value[i] == '\\')
            mail_add_words(text, "\\");
        mail_add(text, value + i, 1);
    }
    mail_add_words(text, "\"");
}

void mail_add_name(struct mail_text *text, const char *name, size_t len)
{
    bool atoms = true;
    for (size_t i = 0; i < len; i++)
        atoms = atoms && (is_atom_byte(name[i]) || (name[i] == ' ' && i > 0 && i + 1 < len && name[i - 1] != ' '));
    if (needs_encoding(name, len) || len > PLAIN_WORD_MAX)
        add_encoded_words(text, name, len);
    else if (atoms)
        mail_add(text, name, len);
    else
        add_quoted(text, name, len);
}

/* What RFC 2231 leaves as it is; the rest is percent-encoded. */
static bool is_attribute_byte(char c)
{
    return (is_atom_byte(c) && strchr("*'%/=?", c) == NULL) || c == '.';
}

static void add_extended(struct mail_text *text, const char *name, const char *value, size_t len)
{
    bool parts = 3 * len + 10 > PARAMETER_PART;
    size_t at = 0;
    for (unsigned part = 0; at < len || part == 0; part++) {
        size_t used = part == 0 ? 7 : 0;
        char number[16] = "";
        if (parts)
            snprintf(number, sizeof number, "*%u", part);
        mail_add_words(text, ";");
        mail_end_line(text);
        mail_add_words(text, " ");
        mail_add_words(text, name);
        mail_add_words(text, number);
        mail_add_words(text, part == 0 ? "*=UTF-8''" : "*=");
        for (; at < len && used + 3 <= PARAMETER_PART; at++) {
            unsigned char byte = (unsigned char)value[at];
            char coded[3] = {'%', hex_digits[byte >> 4], hex_digits[byte & 15]};
            size_t size = is_attribute_byte(value[at]) ? 1 : 3;
            mail_add(text, size == 1 ? value + at : coded, size);
            used += size;
        }
    }
}

void mail_add_parameter(struct mail_text *text, const char *name, const char *value, size_t len)
{
    if (needs_encoding(value, len) || len > PARAMETER_PART || memchr(value, '"', len) != NULL ||
        memchr(value, '\\', len) != NULL) { /* many readers take a backslash in a file name for itself */
        add_extended(text, name, value, len);
        return;
    }
    mail_add_words(text, ";");
    mail_end_line(text);
    mail_add_words(text, " ");
    mail_add_words(text, name);
    mail_add_words(text, "=");
    add_quoted(text, value, len);
}

/* ---- bodies ---- */

/* Length of the line end at `body` (CRLF, CR or LF), 0: none. */
static size_t line_end(const char *body, size_t left)
{
    if (left == 0 || (body[0] != '\r' && body[0] != '\n'))
        return 0;
    return left > 1 && body[0] == '\r' && body[1] == '\n' ? 2 : 1;
}

struct look {
    bool plain; /* 7-bit, short lines, no blanks at their ends */
    size_t odd; /* bytes that quoted-printable encodes */
};

static struct look look_at(const char *body, size_t len)
{
    struct look look = {.plain = true};
    size_t width = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)body[i];
        if (byte == '\r' || byte == '\n') {
            width = 0;
            continue;
        }
        bool at_end = i + 1 == len || body[i + 1] == '\r' || body[i + 1] == '\n';
        bool odd = byte > 0x7E || (byte < 0x20 && byte != '\t');
        look.odd += odd ? 1 : 0;
        if (odd || ++width > MAIL_LINE || (at_end && (byte == ' ' || byte == '\t')))
            look.plain = false;
        if (width == 1 && len - i >= 5 && memcmp(body + i, "From ", 5) == 0)
            look.plain = false; /* some mail stores put a ">" before it */
    }
    return look;
}

/* Lines as they are; the last one gets an end of its own only if `close`. */
static void add_plain(struct mail_text *text, const char *body, size_t len, bool close)
{
    for (size_t at = 0; at < len;) {
        size_t end = at;
        while (end < len && body[end] != '\r' && body[end] != '\n')
            end++;
        mail_add(text, body + at, end - at);
        if (end < len || close)
            mail_end_line(text);
        at = end + line_end(body + end, len - end);
    }
}

/* One byte of a line, and with it a soft line break where it would not fit beside a "=". */
static void add_quoted_byte(struct mail_text *text, char c, bool last)
{
    unsigned char byte = (unsigned char)c;
    bool literal = byte >= 0x20 && byte <= 0x7E && c != '=' && !(last && c == ' ');
    literal = literal && !(column(text) == 0 && (c == '.' || c == 'F')); /* no dot to be stuffed, no "From " */
    literal = literal || (c == '\t' && !last);
    size_t size = literal ? 1 : 3;
    if (column(text) + size > (last ? MAIL_LINE : MAIL_LINE - 1)) {
        mail_add_words(text, "=");
        mail_end_line(text);
        add_quoted_byte(text, c, last); /* at the start of a line: no second break */
        return;
    }
    char coded[3] = {'=', hex_digits[byte >> 4], hex_digits[byte & 15]};
    mail_add(text, literal ? &c : coded, size);
}

static void add_quoted_printable(struct mail_text *text, const char *body, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t end = line_end(body + at, len - at);
        if (end > 0) {
            mail_end_line(text);
            at += end;
            continue;
        }
        add_quoted_byte(text, body[at], at + 1 == len || line_end(body + at + 1, len - at - 1) > 0);
        at++;
    }
    if (column(text) > 0)
        mail_end_line(text);
}

/* Line ends as CRLF before they are hidden in base64 (RFC 2045 section 6.8). */
static void add_base64_text(struct mail_text *text, const char *body, size_t len)
{
    struct mail_text lines = {0};
    add_plain(&lines, body, len, false);
    text->failed = text->failed || lines.failed;
    for (size_t at = 0; !text->failed && at < lines.len; at += BASE64_LINE_IN) {
        add_base64(text, lines.data + at, lines.len - at < BASE64_LINE_IN ? lines.len - at : BASE64_LINE_IN);
        mail_end_line(text);
    }
    mail_text_free(&lines);
}

void mail_add_text_part(struct mail_text *text, const char *type, const char *body, size_t len)
{
    struct look look = look_at(body, len);
    bool base64 = look.odd > len / 4; /* else quoted-printable is shorter, and can be read */
    mail_add_words(text, "Content-Type: ");
    mail_add_words(text, type);
    mail_add_words(text, "; charset=utf-8");
    mail_end_line(text);
    mail_add_words(text, "Content-Transfer-Encoding: ");
    mail_add_words(text, look.plain ? "7bit" : base64 ? "base64" : "quoted-printable");
    mail_end_line(text);
    mail_end_line(text);
    if (look.plain)
        add_plain(text, body, len, true);
    else if (base64)
        add_base64_text(text, body, len);
    else
        add_quoted_printable(text, body, len);
}

/* ---- the wire ---- */

static size_t count_dots(const char *data, size_t len)
{
    size_t count = len > 0 && data[0] == '.' ? 1 : 0;
    for (size_t i = 0; i + 1 < len; i++)
        count += data[i] == '\n' && data[i + 1] == '.' ? 1 : 0;
    return count;
}

void mail_stuff_dots(struct mail_text *text)
{
    size_t dots = text->failed ? 0 : count_dots(text->data, text->len);
    if (dots == 0 || !room(text, dots))
        return;
    size_t to = text->len + dots; /* from the end on, each byte moves once */
    size_t len = to;
    for (size_t from = text->len; from-- > 0;) {
        text->data[--to] = text->data[from];
        if (text->data[from] == '.' && (from == 0 || text->data[from - 1] == '\n'))
            text->data[--to] = '.';
    }
    text->len = len;
}
