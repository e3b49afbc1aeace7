/*
 * gateway/admin_head.h - what libmicrohttpd 0.9.x hides of a request's head on the admin listener. Pure.
 */
#ifndef FENCEGATE_ADMIN_HEAD_H
#define FENCEGATE_ADMIN_HEAD_H

#include <stdbool.h>
#include <stddef.h>

struct header_field;

enum { ADMIN_FIELD_COST = 64 }; /* what libmicrohttpd takes of a connection's memory for each field and each cookie */

/* True when a head that libmicrohttpd 0.9.x has taken apart in place holds nothing but what it told us: method, target,
 * version and fields in their order, one blank, colon or CRLF between them (it overwrites these with NUL). False for
 * what it hides or mends by itself: a NUL, a folded line, a line that is no field, bare LF, more than one blank in the
 * request line. `head` is where the method starts; field values have their trailing blanks cut. */
struct head_parts {
    size_t method_len, target_len, version_len;
    const struct header_field *fields;
    size_t count;
};
bool head_is_exact(const char *head, size_t size, const struct head_parts *parts) __attribute__((warn_unused_result));

#endif
