/*
 * gateway/jsonout.c - JSON text into a growing buffer; the one place that makes outside bytes safe to show.
 *
 * Keeps no stack of nesting: who writes a document closes what it opened. Tokens and ids go out as strings
 * (jsonout_id); which of the two number forms a member takes is the caller's choice.
 */
#include "gateway/jsonout.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/token.h"
#include "gateway/utf8.h"

#define FIRST_CAP 1024                        /* holds a problem body */
#define TIME_MS_MAX UINT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z: the last that fits the format */
#define DAY_MS UINT64_C(86400000)

/* Room for `more` bytes and a NUL behind them. False when memory has run out. */
static bool grow(struct jsonout *out, size_t more)
{
    size_t cap = out->cap == 0 ? FIRST_CAP : out->cap;
    while (cap - out->len <= more) {
        if (cap > SIZE_MAX / 2) {
            out->failed = true;
            return false;
        }
        cap *= 2;
    }
    char *text = realloc(out->text, cap);
    if (text == NULL) {
        out->failed = true;
        return false;
    }
    out->text = text;
    out->cap = cap;
    return true;
}

/* Where `len` bytes may be written, which count as there. NULL once memory has run out: the buffer stays as it is. */
static char *extend(struct jsonout *out, size_t len)
{
    if (out->failed || (out->cap - out->len <= len && !grow(out, len)))
        return NULL;
    char *at = out->text + out->len;
    out->len += len;
    at[len] = '\0';
    return at;
}

static void append(struct jsonout *out, const char *text, size_t len)
{
    char *at = len == 0 ? NULL : extend(out, len);
    if (at != NULL)
        memcpy(at, text, len);
}

static void append_byte(struct jsonout *out, char byte)
{
    char *at = extend(out, 1);
    if (at != NULL)
        *at = byte;
}

static void separate(struct jsonout *out)
{
    if (out->comma)
        append_byte(out, ',');
}

void jsonout_object_begin(struct jsonout *out)
{
    separate(out);
    append_byte(out, '{');
    out->comma = false;
}

void jsonout_object_end(struct jsonout *out)
{
    append_byte(out, '}');
    out->comma = true;
}

void jsonout_array_begin(struct jsonout *out)
{
    separate(out);
    append_byte(out, '[');
    out->comma = false;
}

void jsonout_array_end(struct jsonout *out)
{
    append_byte(out, ']');
    out->comma = true;
}

/* A name and room for `more` bytes behind it, which count as there. NULL: no memory. */
static char *begin_member(struct jsonout *out, const char *name, size_t more)
{
    size_t len = strlen(name), comma = out->comma ? 1 : 0;
    char *at = extend(out, comma + len + 3 + more);
    if (at == NULL)
        return NULL;
    at[0] = ',';
    at += comma;
    at[0] = '"';
    memcpy(at + 1, name, len);
    memcpy(at + 1 + len, "\":", 2);
    return at + len + 3;
}

void jsonout_name(struct jsonout *out, const char *name)
{
    begin_member(out, name, 0);
    out->comma = false;
}

/* Bytes that need no look: printable ASCII but for the two that JSON escapes. */
static bool plain(char c)
{
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
}

/* Eight at once. If they are not, which one is not the bits do not tell: a borrow may reach the bytes above it. */
static bool eight_plain(const char *text)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t bytes;
    memcpy(&bytes, text, sizeof bytes);
    uint64_t quote = bytes ^ ones * '"', backslash = bytes ^ ones * '\\';
    uint64_t hits = bytes | (bytes + ones) | (bytes - ones * 0x20) | (quote - ones) | (backslash - ones);
    return (hits & ones * 0x80) == 0;
}

/* How many bytes at the beginning are plain. The last eight may be looked at twice, instead of one by one. */
static size_t plain_run(const char *text, size_t len)
{
    size_t run = 0;
    if (len >= 8) {
        while (run < len - 8 && eight_plain(text + run))
            run += 8;
        if (run >= len - 8 && eight_plain(text + len - 8))
            return len;
    }
    while (run < len && plain(text[run]))
        run++;
    return run;
}

/* Code points that a terminal or a reader of lines would act on instead of showing, or that show as nothing. */
static bool unsafe(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0x061C || (code >= 0x200B && code <= 0x200F) ||
           (code >= 0x2028 && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF ||
           (code >= 0xFFF9 && code <= 0xFFFB);
}

static void append_escape(struct jsonout *out, uint32_t code)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', 'u', hex[code >> 12 & 15], hex[code >> 8 & 15], hex[code >> 4 & 15], hex[code & 15]};
    append(out, text, sizeof text);
}

void jsonout_escaped(struct jsonout *out, const char *text, size_t len)
{
    size_t i = 0;
    while (i < len) {
        size_t run = plain_run(text + i, len - i);
        append(out, text + i, run);
        i += run;
        if (i == len)
            break;
        uint32_t code = 0;
        size_t step = utf8_next(text + i, len - i, &code);
        if (step == 0) {
            append(out, "\xEF\xBF\xBD", 3);
            step = 1;
        } else if (unsafe(code)) {
            append_escape(out, code);
        } else {
            if (code == '"' || code == '\\')
                append_byte(out, '\\');
            append(out, text + i, step);
        }
        i += step;
    }
}

void jsonout_string(struct jsonout *out, const char *text, size_t len)
{
    separate(out);
    append_byte(out, '"');
    jsonout_escaped(out, text, text == NULL ? 0 : len);
    append_byte(out, '"');
    out->comma = true;
}

void jsonout_cstring(struct jsonout *out, const char *text)
{
    jsonout_string(out, text, text == NULL ? 0 : strlen(text));
}

void jsonout_id(struct jsonout *out, uint64_t value)
{
    char digits[TOKEN_DIGITS_MAX + 1];
    size_t len = token_format(value, digits);
    jsonout_string(out, digits, len);
}

void jsonout_number(struct jsonout *out, uint64_t value)
{
    char digits[TOKEN_DIGITS_MAX + 1];
    size_t len = token_format(value, digits);
    separate(out);
    append(out, digits, len);
    out->comma = true;
}

static void append_word(struct jsonout *out, const char *word)
{
    separate(out);
    append(out, word, strlen(word));
    out->comma = true;
}

void jsonout_bool(struct jsonout *out, bool value)
{
    append_word(out, value ? "true" : "false");
}

void jsonout_null(struct jsonout *out)
{
    append_word(out, "null");
}

void jsonout_time_ms(struct jsonout *out, uint64_t unix_ms)
{
    char text[25];
    format_time_ms(unix_ms, text);
    jsonout_string(out, text, sizeof text - 1);
}

void jsonout_member_string(struct jsonout *out, const char *name, const char *text, size_t len)
{
    if (text == NULL)
        return;
    if (plain_run(text, len) < len) {
        jsonout_name(out, name);
        jsonout_string(out, text, len);
        return;
    }
    char *at = begin_member(out, name, len + 2); /* as nearly always: in one piece */
    if (at == NULL)
        return;
    at[0] = '"';
    memcpy(at + 1, text, len);
    at[1 + len] = '"';
    out->comma = true;
}

void jsonout_member_cstring(struct jsonout *out, const char *name, const char *text)
{
    if (text != NULL)
        jsonout_member_string(out, name, text, strlen(text));
}

void jsonout_member_id(struct jsonout *out, const char *name, uint64_t value)
{
    char digits[TOKEN_DIGITS_MAX + 1];
    size_t len = token_format(value, digits);
    jsonout_member_string(out, name, digits, len);
}

void jsonout_member_number(struct jsonout *out, const char *name, uint64_t value)
{
    jsonout_name(out, name);
    jsonout_number(out, value);
}

void jsonout_raw(struct jsonout *out, const char *text, size_t len)
{
    append(out, text, len);
    out->comma = false;
}

void jsonout_reset(struct jsonout *out)
{
    out->len = 0;
    out->failed = false;
    out->comma = false;
}

void jsonout_free(struct jsonout *out)
{
    free(out->text);
    *out = (struct jsonout){0};
}

/* Decimal digits of `value`, right-aligned in `width` places. */
static void put_digits(char *at, unsigned width, uint64_t value)
{
    while (width > 0) {
        at[--width] = (char)('0' + value % 10);
        value /= 10;
    }
}

/* The calendar is counted in eras of 400 years (146097 days) that begin on 1 March, so that the leap day is the
 * last of its year: no tables, no time zone, no lock as in gmtime. */
void format_time_ms(uint64_t unix_ms, char out[25])
{
    if (unix_ms > TIME_MS_MAX)
        unix_ms = TIME_MS_MAX;
    uint64_t days = unix_ms / DAY_MS + 719468; /* since 0000-03-01 */
    uint64_t ms = unix_ms % DAY_MS;
    uint64_t era = days / 146097;
    uint64_t day = days % 146097;
    uint64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    day -= 365 * year + year / 4 - year / 100;
    uint64_t month = (5 * day + 2) / 153; /* 0: March */
    day -= (153 * month + 2) / 5;
    year += era * 400 + (month >= 10 ? 1 : 0);
    memcpy(out, "0000-00-00T00:00:00.000Z", 25);
    put_digits(out, 4, year);
    put_digits(out + 5, 2, month >= 10 ? month - 9 : month + 3);
    put_digits(out + 8, 2, day + 1);
    put_digits(out + 11, 2, ms / 3600000);
    put_digits(out + 14, 2, ms / 60000 % 60);
    put_digits(out + 17, 2, ms / 1000 % 60);
    put_digits(out + 20, 3, ms % 1000);
}
