/*
 * gateway/admin_body.h - the JSON bodies of admin calls. Pure.
 *
 * Strict as everything that changes a fence: a doubled or unknown member, a wrong type or text behind the object is
 * refused, and a token is a string of digits, since many JSON readers round large numbers.
 */
#ifndef FENCEGATE_ADMIN_BODY_H
#define FENCEGATE_ADMIN_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

#define ADMIN_REASON_MAX 255 /* what an audit can be filtered by */
#define ADMIN_NOTE_MAX 4096
#define ADMIN_WAIT_MAX_MS (3600 * 1000u)

struct admin_raise {
    uint64_t token;
    uint64_t wait_ms;                  /* 0: none */
    char reason[ADMIN_REASON_MAX + 1]; /* "": none was given */
};

struct admin_resolution {
    bool sent;
    char note[ADMIN_NOTE_MAX + 1];
};

/* Is a Content-Type header (NULL: absent) that of JSON? Absent is. */
bool admin_content_type_json(const char *content_type);

/* False with one line in `why`. */
bool admin_body_raise(struct slice body, struct admin_raise *out, char *why, size_t why_cap)
    __attribute__((warn_unused_result));
bool admin_body_resolve(struct slice body, struct admin_resolution *out, char *why, size_t why_cap)
    __attribute__((warn_unused_result));

#endif
