/* gateway/token.h - parse fencing tokens and workflow keys. Pure; SPEC section 3. */
#ifndef FENCEGATE_TOKEN_H
#define FENCEGATE_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_DIGITS_MAX 20
#define KEY_BYTES_MAX 255

/* 1 to 20 ASCII digits, leading zeros allowed, value 1 to 2^64-1; never through a double, never rounded,
 * never wrapped. False, with *out untouched, for everything else. `text` need not end with NUL. */
bool token_parse(const char *text, size_t len, uint64_t *out) __attribute__((warn_unused_result));

/* 1 to 255 bytes of valid UTF-8 (RFC 3629: no overlong forms, no surrogates, up to U+10FFFF) without
 * U+0000 to U+001F and U+007F. */
bool key_valid(const char *text, size_t len) __attribute__((warn_unused_result));

/* Decimal digits of `token` and a NUL. Returns the length. */
size_t token_format(uint64_t token, char out[TOKEN_DIGITS_MAX + 1]);

#endif
