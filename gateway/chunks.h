/*
 * gateway/chunks.h - takes the chunks of a request's body apart (RFC 9112 section 7.1), strictly. Pure.
 *
 * Extensions must be well-formed and are skipped; fields of the trailer too: what comes behind a body was not there
 * when the head was judged. Blanks are refused wherever the grammar calls them bad, bare CR and LF everywhere.
 */
#ifndef FENCEGATE_CHUNKS_H
#define FENCEGATE_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

enum chunks_state {
    CHUNKS_SIZE,
    CHUNKS_EXT_NAME,
    CHUNKS_EXT_VALUE, /* its first byte */
    CHUNKS_EXT_TOKEN,
    CHUNKS_EXT_QUOTED,
    CHUNKS_EXT_ESCAPE, /* the byte behind a backslash */
    CHUNKS_EXT_END,    /* behind a quoted value */
    CHUNKS_SIZE_LF,
    CHUNKS_DATA, /* `left` bytes */
    CHUNKS_DATA_CR,
    CHUNKS_DATA_LF,
    CHUNKS_TRAILER, /* a line begins */
    CHUNKS_TRAILER_NAME,
    CHUNKS_TRAILER_VALUE,
    CHUNKS_TRAILER_LF,
    CHUNKS_LAST_LF,
    CHUNKS_DONE,
    CHUNKS_BROKEN,
};

/* Zero-initialise. */
struct chunks {
    enum chunks_state state;
    uint64_t left;  /* of this chunk */
    unsigned count; /* digits of a size, bytes of a name */
    size_t loose;   /* bytes of this chunk's extensions, or of the trailer: bounded */
};

/* Takes from data[0, len), returns how much it took; *body is the part of it that belongs to the body, if any. Stops
 * behind the size line of a chunk, in CHUNKS_DATA with an empty *body: its size can be judged before its data is there.
 * Call again with the rest until all is taken or the state is CHUNKS_DONE or CHUNKS_BROKEN. */
size_t chunks_take(struct chunks *chunks, const char *data, size_t len, struct slice *body)
    __attribute__((warn_unused_result));

#endif
