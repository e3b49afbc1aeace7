/*
 * store/fence.h - how fences are kept, and the floor that counts where a key has none: one reading for those who decide
 * and those who look.
 *
 * A store restored with a floor: fences that stood below it were raised to it then, and a key without an entry stands
 * at the floor. A key that was reset below a floor has an entry with token 0: no fence, its next token is its first
 * one. A token that equals the floor is taken for no token of the key: no jump is measured from it.
 */
#ifndef FENCEGATE_STORE_FENCE_H
#define FENCEGATE_STORE_FENCE_H

#include "store/lmdb.h"
#include "store/record.h"

#define FENCE_VALUE_BYTES 16

enum fence_state {
    FENCE_NONE,    /* any token is the key's first; *out is zero */
    FENCE_THERE,   /* never with token 0 */
    FENCE_DAMAGED, /* to take it for absent would open the fence */
};
/* `key` is from fence_key(). FENCE_NONE on an error of the transaction too. */
enum fence_state fence_read(struct db_txn *txn, struct slice key, struct fence *out)
    __attribute__((warn_unused_result));
/* A value of DB_FENCES by itself. */
enum fence_state fence_decode(const struct db *db, struct slice value, struct fence *out);

/* Has the key an entry of its own? A floor alone is none. */
bool fence_has_entry(struct db_txn *txn, struct slice key);
void fence_put(struct db_txn *txn, struct slice key, uint64_t token, uint64_t time_ms);
void fence_forget(struct db_txn *txn, struct slice key, uint64_t time_ms);

/* Raises to `floor`, of at most `limit` fences from *at on, those that are below it or were reset, and moves *at.
 * Returns how many it looked at, fewer than `limit` at the end. */
struct fence_position {
    char key[FENCE_KEY_CAP + 1];
    size_t len;
    uint64_t raised; /* so far */
};
size_t fence_raise_all(struct db_txn *txn, struct db_floor floor, struct fence_position *at, size_t limit);

#endif
