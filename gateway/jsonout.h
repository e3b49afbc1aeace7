/*
 * gateway/jsonout.h - write JSON text into a growing buffer. Pure.
 *
 * Used by whatever writes lines with bytes that came from outside (log, problem bodies, audit): the output is valid
 * UTF-8 whatever comes in. Invalid UTF-8 becomes U+FFFD; control bytes, U+007F to U+009F, U+2028, U+2029 and the
 * bidi controls (U+202A to U+202E, U+2066 to U+2069, U+200E, U+200F) are escaped as \uXXXX, so no value can forge a
 * line.
 */
#ifndef FENCEGATE_JSONOUT_H
#define FENCEGATE_JSONOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise. `failed` is sticky: after a failed allocation nothing is added, the caller looks once at the end. */
struct jsonout {
    char *text; /* NUL-terminated when len > 0; free with jsonout_free() */
    size_t len, cap;
    bool failed;
    bool comma; /* a comma is due before the next value */
};

void jsonout_object_begin(struct jsonout *out); /* as a value */
void jsonout_object_end(struct jsonout *out);
void jsonout_array_begin(struct jsonout *out);
void jsonout_array_end(struct jsonout *out);
void jsonout_name(struct jsonout *out, const char *name); /* trusted ASCII */
void jsonout_string(struct jsonout *out, const char *text, size_t len);
void jsonout_cstring(struct jsonout *out, const char *text);
void jsonout_id(struct jsonout *out, uint64_t value); /* as a string: a double holds only 53 bits */
void jsonout_number(struct jsonout *out, uint64_t value);
void jsonout_bool(struct jsonout *out, bool value);
void jsonout_null(struct jsonout *out);
void jsonout_time_ms(struct jsonout *out, uint64_t unix_ms); /* RFC 3339 UTC with milliseconds, as a string */
/* name and value in one; the string forms write nothing when text is NULL (an absent member). */
void jsonout_member_string(struct jsonout *out, const char *name, const char *text, size_t len);
void jsonout_member_cstring(struct jsonout *out, const char *name, const char *text);
void jsonout_member_id(struct jsonout *out, const char *name, uint64_t value);
void jsonout_member_number(struct jsonout *out, const char *name, uint64_t value);
/* The escaping of jsonout_string() without the quotes: makes outside text safe on a terminal. */
void jsonout_escaped(struct jsonout *out, const char *text, size_t len);
/* Bytes as they are, e.g. a line end. No comma is due after them: another document may begin. */
void jsonout_raw(struct jsonout *out, const char *text, size_t len);
void jsonout_reset(struct jsonout *out); /* empties, keeps the memory */
void jsonout_free(struct jsonout *out);

/* "2026-11-30T01:02:03.004Z" and NUL into out[25]. */
void format_time_ms(uint64_t unix_ms, char out[25]);

#endif
