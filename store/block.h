/*
 * store/block.h - what times the audit's records have, the rejected ones among them, by blocks of ids: how a query by
 * time passes over what it need not look at.
 *
 * Times follow ids most of the time, but a clock that was set back or forth breaks that order, and a search that trusts
 * it would hide records. So each block has the lowest and the highest time of its records, whatever their order. An
 * entry is made in the transaction that gives out the first id after the block; removals leave it as it is (wider than
 * need be) until the block is empty. A block without an entry (the newest, or one of a store from before there were
 * entries) is looked at record by record.
 */
#ifndef FENCEGATE_STORE_BLOCK_H
#define FENCEGATE_STORE_BLOCK_H

#include "store/lmdb.h"

#define BLOCK_SHIFT 10 /* ids of a block */
#define BLOCK_OF(id) ((id) >> BLOCK_SHIFT)

struct block_times {
    uint64_t min_ms, max_ms;
};

/* Makes the entries of the blocks that ended between two ids: `next` is the first id not yet given out. */
void block_finish(struct db_txn *txn, uint64_t first, uint64_t next);
/* A record of this block was removed: the entry goes when it was the last one. */
void block_forget(struct db_txn *txn, uint64_t block);

/* False: the cursor, over DB_AUDIT_TIME, shows no whole entry. */
bool block_read(const struct db_cursor *cursor, uint64_t *block, struct block_times *out);

#endif
