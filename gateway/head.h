/*
 * gateway/head.h - reads the head of a request, strictly as RFC 9112 says, and mends nothing. Pure.
 *
 * Refused is whatever two readers could take in two ways: a line that does not end by CRLF, a folded field, a blank
 * before a colon, a control byte anywhere, more than one blank in the request line, a name or method that is no token.
 * What the fields mean for the framing is headers.c's, what a target may hold route.c's.
 */
#ifndef FENCEGATE_HEAD_H
#define FENCEGATE_HEAD_H

#include <stdbool.h>
#include <stddef.h>

#include "store/store.h"

struct header_field;

enum { HEAD_FIELDS_MAX = 1024 };                       /* header fields of one request */
#define MALFORMED_HEAD "The request is malformed: %s." /* with what head.c or headers.c say of it */

struct head_limits {
    size_t head, target; /* bytes */
};

/* What was read of a head, kept by its owner from one piece to the next. Zero-initialise for each head. */
struct head_progress {
    size_t line; /* where the first line begins that is not whole yet; 0: the request line is not */
    size_t seen; /* that many bytes were looked at: no line ends among those behind `line` */
};

/* A whole head; all of it points into the bytes. */
struct head {
    struct slice method, target;
    bool http10;
    struct header_field *fields; /* room for HEAD_FIELDS_MAX, given by the caller */
    size_t count;
    size_t size;         /* with the empty line, and with the empty lines that may come before a request */
    const char *problem; /* static text, with HEAD_BROKEN */
};

enum head_verdict {
    HEAD_MORE,            /* sound as far as it goes */
    HEAD_WHOLE,           /* *out is filled */
    HEAD_BROKEN,          /* 400 */
    HEAD_TOO_LARGE,       /* 431 */
    HEAD_TARGET_TOO_LONG, /* 414 */
    HEAD_FOREIGN_VERSION, /* 505 */
};

/* `bytes` begin where the head begins, and hold all that has come of it, also after HEAD_MORE. Cheap however small the
 * pieces are in which it comes: a line is looked at when its end is there. */
enum head_verdict head_read(struct head_progress *progress, const char *bytes, size_t len,
                            const struct head_limits *limits, struct head *out) __attribute__((warn_unused_result));

#endif
