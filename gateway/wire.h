/*
 * gateway/wire.h - a partner's answer as it comes over the connection: heads, framing, body (RFC 9112). Pure.
 *
 * Bytes go in as they were read; lines of heads end up in a struct reply, bytes of the body come out as slices of what
 * went in. Interim answers (1xx) and trailers are read and dropped. A head above `head_max` breaks the answer;
 * reply->too_large says whether the status of a final answer was known by then.
 */
#ifndef FENCEGATE_WIRE_H
#define FENCEGATE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

struct reply;

enum wire_state {
    WIRE_STATUS, /* the first line of a head */
    WIRE_FIELDS,
    WIRE_LENGTH,      /* the body ends after `left` bytes */
    WIRE_UNTIL_CLOSE, /* the body ends with the connection */
    WIRE_CHUNK_SIZE,  /* a line with a chunk's size */
    WIRE_CHUNK,       /* `left` bytes of a chunk */
    WIRE_CHUNK_END,   /* the line end behind it */
    WIRE_TRAILER,
    WIRE_DONE,   /* the answer is whole */
    WIRE_BROKEN, /* it can't be read on; reply->complaint says why */
};

struct wire {
    enum wire_state state;
    bool head_method; /* set by the owner: the request was HEAD, no body follows */
    size_t head_max;  /* set by the owner: bytes of a head, from its status line to its empty line, that are taken */
    bool http10;
    bool keep_alive; /* once a final head is whole: the partner lets the connection be used again */
    uint64_t left;
    char *line; /* the part of a line that has come so far, where it came in pieces */
    size_t line_len, line_cap;
    size_t head_seen; /* bytes of this head that have come */
    size_t loose;     /* bytes of trailers, which nobody needs: bounded */
};

/* Takes from data[0, len) and returns how much it took; *body is the part of it that belongs to the body, if any. Call
 * again with the rest until all is taken or the state is WIRE_DONE or WIRE_BROKEN: what is left over then belongs to no
 * answer. */
size_t wire_take(struct wire *wire, struct reply *reply, const char *data, size_t len, struct slice *body)
    __attribute__((warn_unused_result));
/* The partner has closed the connection. */
void wire_closed(struct wire *wire);
void wire_free(struct wire *wire);

#endif
