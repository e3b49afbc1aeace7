/*
 * store/apply.h - what each change does to the tables, inside one write transaction. For the writer's thread, and for
 * store_open() before that thread starts.
 */
#ifndef FENCEGATE_STORE_APPLY_H
#define FENCEGATE_STORE_APPLY_H

#include "store/buffer.h"
#include "store/lmdb.h"
#include "store/store.h"

struct unresolved;

uint64_t batch_clock_ms(void); /* Unix time */

/* One transaction under way. `scratch` outlives it: one buffer for all batches instead of an allocation per record. */
struct batch {
    struct db_txn txn;
    struct buffer *scratch;
    uint64_t now_ms;
    uint64_t begun_us;             /* monotonic */
    uint64_t next_id, first_id;    /* ids of this batch: first_id up to, not including, next_id */
    bool known_only;               /* drops, and all but current calls of known keys, are STORE_FULL */
    uint64_t resolved;             /* in-doubt effects that the batch closed */
    struct unresolved *unresolved; /* counts what it does to them; NULL: nobody counts */
};
void batch_begin(struct batch *batch, struct db *db, struct buffer *scratch);
/* More in the same transaction: what the structure tells is told of that alone, from here on. */
void batch_resume(struct batch *batch);
void batch_finish(struct batch *batch); /* what goes with the last of its changes; batch_commit() does it */
enum store_error batch_commit(struct batch *batch) __attribute__((warn_unused_result));
void batch_touch(struct batch *batch); /* makes the commit write something, to learn whether it can */

/* Sets the op's results, op->error included when the op itself is malformed; that leaves the batch unharmed.
 * batch_admit() and batch_raise() return true when the fence was raised, batch_reset() when it was deleted. */
bool batch_admit(struct batch *batch, struct store_op *op);
void batch_record(struct batch *batch, struct store_op *op);
bool batch_raise(struct batch *batch, struct store_op *op);
bool batch_reset(struct batch *batch, struct store_op *op);
void batch_resolve(struct batch *batch, struct store_op *op);
void batch_turn(struct batch *batch, struct store_op *op);

/* First byte of a value in `effects`. WAITING: its turn has not come, so nothing of it was sent. */
enum effect_state { EFFECT_OPEN = 0, EFFECT_IN_DOUBT = 1, EFFECT_WAITING = 2 };
/* A value in `unknown`. True, and where the record is, when nobody has resolved the effect; when somebody has. */
bool unknown_open(struct slice value, uint64_t *audit_id);
bool unknown_resolved(struct slice value, uint64_t *audit_id);

/* The highest id that was removed from the audit; 0: none, as far as is known. */
uint64_t removed_id(struct db_txn *txn);
/* Removes at most `limit` audit records older than `before_ms`. Returns how many. */
size_t batch_expire(struct batch *batch, uint64_t before_ms, size_t limit);
/* Removes the `limit` oldest audit records and appends the record that says so. Returns how many. */
size_t batch_drop_oldest(struct batch *batch, size_t limit);

/* Rejected records lie in a ring of their own. Removes up to `limit` of the oldest: those older than before_ms, and as
 * long as the ring and its index take more than pages_max. Returns how many. */
size_t batch_trim_rejected(struct batch *batch, uint64_t before_ms, uint64_t pages_max, size_t limit);
uint64_t rejected_pages(struct db_txn *txn);

/* The time that retention trusted last, and for how long a leap had lasted then (clock.h); where no store kept it, the
 * newest record's. 0: nothing is known. */
struct kept_clock {
    uint64_t trusted_ms, lasted_ms;
};
struct kept_clock kept_clock(struct db_txn *txn);
void batch_keep_clock(struct batch *batch, struct kept_clock clock);

/* Looks at up to `limit` effects with ids above *after, and moves *after. Those nobody closed get an `unknown` record
 * and the mark "in doubt"; the mark keeps the next start from a second record. Those that waited get a `not-sent`
 * record and are closed, unless the store is a copy: they may have been sent after it was made. Returns how many it
 * looked at. */
struct leftovers {
    bool of_copy;
    uint64_t after, found, in_doubt, waited;
    uint64_t oldest_ms;      /* when the first of them was accepted */
    struct kept_clock clock; /* as it was before they got records */
};
size_t batch_leftovers(struct batch *batch, struct leftovers *state, struct buffer *intent, size_t limit);

#endif
