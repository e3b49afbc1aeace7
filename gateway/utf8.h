/*
 * gateway/utf8.h - take one code point off UTF-8 text. Pure.
 *
 * Strict as RFC 3629 says: no overlong forms, no surrogates, nothing above U+10FFFF. A lax decoder here would
 * give one key two spellings and let a terminal read a control character that the escaping did not see.
 */
#ifndef FENCEGATE_UTF8_H
#define FENCEGATE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool utf8_follows(unsigned char byte)
{
    return (byte & 0xC0) == 0x80;
}

/* Length of the well-formed sequence at `text` with its value in *code; 0 when there is none (or len is 0). */
static inline size_t utf8_next(const char *text, size_t len, uint32_t *code)
{
    const unsigned char *b = (const unsigned char *)text;
    if (len == 0)
        return 0;
    if (b[0] < 0x80) {
        *code = b[0];
        return 1;
    }
    if (b[0] >= 0xC2 && b[0] <= 0xDF && len >= 2 && utf8_follows(b[1])) {
        *code = (uint32_t)(b[0] & 0x1F) << 6 | (b[1] & 0x3F);
        return 2;
    }
    if ((b[0] & 0xF0) == 0xE0 && len >= 3 && utf8_follows(b[1]) && utf8_follows(b[2])) {
        *code = (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (b[2] & 0x3F);
        return *code >= 0x800 && (*code < 0xD800 || *code > 0xDFFF) ? 3 : 0;
    }
    if ((b[0] & 0xF8) == 0xF0 && len >= 4 && utf8_follows(b[1]) && utf8_follows(b[2]) && utf8_follows(b[3])) {
        *code = (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3F) << 12 | (uint32_t)(b[2] & 0x3F) << 6 |
                (b[3] & 0x3F);
        return *code >= 0x10000 && *code <= 0x10FFFF ? 4 : 0;
    }
    return 0;
}

/* How many bytes of sound UTF-8 there are in the first `most` of `text`, without a part of a code point at the end. */
static inline size_t utf8_cut(const char *text, size_t len, size_t most)
{
    size_t at = 0, step;
    uint32_t code;
    while (at < len && (step = utf8_next(text + at, len - at, &code)) > 0 && at + step <= most)
        at += step;
    return at;
}

#endif
