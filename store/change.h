/*
 * store/change.h - changes to the tables as bytes, as the journal keeps them: what was put or deleted, under which key.
 * Pure.
 *
 * A change is its kind (1), the table (1), the key's length (2) and the value's (4), both little-endian, then the bytes
 * of both. Applied in their order to the state they were made in, changes give the same state again.
 */
#ifndef FENCEGATE_STORE_CHANGE_H
#define FENCEGATE_STORE_CHANGE_H

#include "store/buffer.h"
#include "store/lmdb.h"

enum change_kind { CHANGE_PUT = 1, CHANGE_APPEND, CHANGE_DELETE };

struct change {
    enum change_kind kind;
    enum db_table table;
    struct slice key, value; /* borrowed */
};

/* Adds a change to the end of `log`. False: no memory, or a key or value too long; nothing was added. */
bool change_write(struct buffer *log, const struct change *change) __attribute__((warn_unused_result));
/* Takes the first change off *bytes; its slices point into them. False: none is left, or (bytes->len > 0) they are no
 * change. */
bool change_read(struct slice *bytes, struct change *out) __attribute__((warn_unused_result));

#endif
