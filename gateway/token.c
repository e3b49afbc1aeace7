/*
 * gateway/token.c - read fencing tokens and workflow keys; nothing else decides what either looks like.
 *
 * By hand because the library's number parsers take signs, blanks and other bases, and wrap or saturate: a
 * token read wrongly lets a stale worker pay. Finding the header fields is headers.c's.
 */
#include "gateway/token.h"

#include <string.h>

#include "gateway/utf8.h"

bool token_parse(const char *text, size_t len, uint64_t *out)
{
    uint64_t value = 0;
    if (len == 0 || len > TOKEN_DIGITS_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        unsigned digit = (unsigned)(text[i] - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (value == 0)
        return false;
    *out = value;
    return true;
}

bool key_valid(const char *text, size_t len)
{
    if (len == 0 || len > KEY_BYTES_MAX)
        return false;
    for (size_t i = 0; i < len;) {
        uint32_t code = 0;
        size_t step = utf8_next(text + i, len - i, &code);
        if (step == 0 || code < 0x20 || code == 0x7F)
            return false;
        i += step;
    }
    return true;
}

size_t token_format(uint64_t token, char out[TOKEN_DIGITS_MAX + 1])
{
    char digits[TOKEN_DIGITS_MAX];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + token % 10);
        token /= 10;
    } while (token != 0);
    size_t len = sizeof digits - at;
    memcpy(out, digits + at, len);
    out[len] = '\0';
    return len;
}
