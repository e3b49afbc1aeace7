/*
 * gateway/admin_query.h - the target of an admin call: path, captured parts, query parameters. Pure.
 *
 * Works on the raw target as it came: libmicrohttpd's own decoding turns a key's %2F into a slash, cuts at %00 and
 * leaves a broken escape standing. Decoding happens in place, in the call's own copy of the target.
 */
#ifndef FENCEGATE_ADMIN_QUERY_H
#define FENCEGATE_ADMIN_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

#define ADMIN_CAPTURES 2
#define ADMIN_LIMIT_DEFAULT 100
#define ADMIN_LIMIT_MAX 1000

/* A part of the call's target; decoding shortens it in place. */
struct admin_span {
    char *data;
    size_t len;
};

/* Splits origin-form and http:// absolute-form at the first '?'. False: no path, or a byte outside 0x21 to 0x7E. */
bool admin_target_split(char *target, struct admin_span *path, struct admin_span *query)
    __attribute__((warn_unused_result));

/* Percent-decoding; with `form` a '+' is a blank, as HTML forms and URLSearchParams write it. False: a broken escape.
 */
bool admin_decode(struct admin_span *span, bool form) __attribute__((warn_unused_result));

/* Does `path` fit "/v1/fences/{}/{}"? Each {} is one segment, empty ones too, given back as it stands (not decoded). */
bool admin_path_match(const char *pattern, struct admin_span path, struct admin_span captured[ADMIN_CAPTURES]);

struct admin_param {
    const char *name;
    struct slice value; /* out; decoded; data NULL: not in the query */
};

/* Fills `params` from a query. False with one line in `why`: a name that is not among them (a misspelt filter would
 * show everything), one that comes twice, an empty value, a broken escape. */
bool admin_params_parse(struct admin_span query, struct admin_param *params, size_t count, char *why, size_t why_cap)
    __attribute__((warn_unused_result));

/* Room for every `why` below. */
#define ADMIN_WHY_CAP 1024

/* The whole query of GET /v1/audit. Slices of *out point into the query. False with one line in `why`. */
bool admin_audit_filter(struct admin_span query, uint64_t now_ms, struct audit_filter *out, char *why, size_t why_cap)
    __attribute__((warn_unused_result));

/* Where a page of fences ended, as text that names no part of it: hexadecimal digits. */
#define ADMIN_CURSOR_BYTES 320 /* namespace, NUL, key */
#define ADMIN_CURSOR_CAP (2 * ADMIN_CURSOR_BYTES + 1)
struct admin_cursor {
    char bytes[ADMIN_CURSOR_BYTES];
};
void admin_cursor_format(struct slice ns, struct slice key, char out[ADMIN_CURSOR_CAP]);

/* The queries of GET /v1/fences and GET /v1/effects. Slices of *out point into the query and into *cursor. False with
 * one line in `why`. */
bool admin_fence_filter(struct admin_span query, struct fence_filter *out, struct admin_cursor *cursor, char *why,
                        size_t why_cap) __attribute__((warn_unused_result));
bool admin_effects_filter(struct admin_span query, struct effects_filter *out, char *why, size_t why_cap)
    __attribute__((warn_unused_result));

/* The query of GET /v1/fences/{}/{}/history. The rest as above. */
bool admin_history_filter(struct admin_span query, size_t *limit, char *why, size_t why_cap)
    __attribute__((warn_unused_result));

bool admin_namespace_valid(struct slice text); /* 1 to 64 of A-Z a-z 0-9 . _ -, as a route's name is */

#endif
