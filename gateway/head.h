/*
 * gateway/head.h - looks at the raw bytes of a request's head, before and beside libmicrohttpd. Pure.
 */
#ifndef FENCEGATE_HEAD_H
#define FENCEGATE_HEAD_H

#include <stdbool.h>
#include <stddef.h>

struct header_field;

enum {
    HEAD_FIELDS_MAX = 1024, /* header fields of one request */
    HEAD_FIELD_COST = 64,   /* what libmicrohttpd takes of a connection's memory for each field and each cookie */
};

/* A glance at the first bytes of a connection: is the head whole, and is it one that libmicrohttpd would answer with a
 * page of its own (which no SDK can read and which does not say what became of the effect)? */
enum glance { GLANCE_MORE, GLANCE_PASS, GLANCE_HEAD_TOO_LARGE, GLANCE_TARGET_TOO_LONG, GLANCE_VERSION };
struct glance_limits {
    size_t head, target; /* bytes */
    size_t memory;       /* what head and fields must fit in */
};
enum glance head_glance(const char *bytes, size_t len, const struct glance_limits *limits);

/* The framing of a whole head (one that passed the glance) by its raw lines, judged like headers_screen(): NULL, or
 * static text of what is wrong. On libmicrohttpd 1.0.x this comes before its own refusal and its own page. */
const char *head_problem(const char *bytes, size_t len);

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
