/*
 * store/source.h - where a query's ids come from, in order: a table that is kept by ids, or the entries of one key in
 * the index, of one namespace or merged out of all that have the key. The audit and its index come merged with the
 * rejected records and theirs.
 *
 * Lives within one reading transaction. In the next one it is made anew: a namespace may have come in between, and an
 * id that was passed over then would be missed for good by who goes on behind it.
 */
#ifndef FENCEGATE_STORE_SOURCE_H
#define FENCEGATE_STORE_SOURCE_H

#include "store/lmdb.h"
#include "store/record.h"

#define SOURCE_PARTS_MAX 32

struct source {
    struct db_txn *txn;
    bool down;
    size_t count, best; /* best: the part whose id comes next; == count: none */
    struct source_part {
        struct db_cursor cursor;
        char prefix[INDEX_KEY_CAP]; /* of the table's keys, before the id */
        size_t prefix_len;
        bool there;
        uint64_t id;
    } part[SOURCE_PARTS_MAX];
};

/* A table by its ids; or with DB_AUDIT_BY_KEY a key, ns absent: of all namespaces. False, with nothing open: more
 * namespaces have it than can be merged. */
bool source_open(struct source *source, struct db_txn *txn, enum db_table table, struct slice ns, struct slice key)
    __attribute__((warn_unused_result));
void source_close(struct source *source);

/* To the first id above `at`, or with `down` below it. */
void source_seek(struct source *source, uint64_t at, bool down);
/* The entry whose id comes next, in the table that its cursor names, or NULL at the end. */
const struct db_cursor *source_here(const struct source *source, uint64_t *id);
void source_move(struct source *source);

#endif
