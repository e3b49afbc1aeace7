/*
 * store/tail.h - the writer's tail: what the journal has and data.mdb does not have yet.
 *
 * A chunk of operations is applied in a write transaction that stays open, what it changed goes into the journal, and
 * with the journal's sync it is durable: verdicts are handed out then. The transaction is committed some time later,
 * for many chunks at once: data.mdb is settled. After a crash the next start makes the changes again that data.mdb
 * lacks. Whoever reads data.mdb sees what was settled: one fence is looked up in the overlay first, all other readers
 * of this process ask for a settling before they look, commands in other processes wait for one (tail_wait()).
 *
 * The writer's thread, but for tail_recover() and tail_wait().
 */
#ifndef FENCEGATE_STORE_TAIL_H
#define FENCEGATE_STORE_TAIL_H

#include "store/apply.h"
#include "store/journal.h"
#include "store/overlay.h"

struct writer;

struct tail {
    struct journal *journal; /* NULL: there is none */
    struct overlay *overlay;
    uint64_t id, seq; /* of the journal; of the last batch that was written or given up */
    bool named;       /* by data.mdb: the next start looks into it */
    bool spoilt;      /* writing to the journal failed: it gets no more */
    bool open;        /* `batch` has a transaction under way */
    bool held;        /* the journal has what data.mdb has not */
    struct batch batch;
    size_t room;       /* operations that the transaction may take yet */
    size_t spent;      /* of it, by the chunk at hand */
    uint64_t chunk_us; /* when the last chunk came */
    uint64_t since_ms; /* when its first batch was written */
    uint64_t kept_ms;  /* when its last one was */
    uint64_t again_ms; /* not before: the last settling failed */
};

/* Makes the journal, after room_look(). Without one (small store or disk, failure) every chunk is committed by itself.
 */
void tail_start(struct writer *w, const char *folder);
/* The chunk at hand goes into the journal. False: it did not, nothing of it was kept, and it is to be committed by
 * itself, after tail_settle(). */
bool tail_take(struct writer *w) __attribute__((warn_unused_result));
/* data.mdb has everything now. False: it could not be written; what the journal has is as durable as before, and no
 * decision can be made until this works. */
bool tail_settle(struct writer *w) __attribute__((warn_unused_result));
/* Is a settling due? Else, *until_ms is lowered to when it will be. Monotonic. */
bool tail_due(struct writer *w, uint64_t now_ms, uint64_t *until_ms);
void tail_answer(struct writer *w); /* to who waits for a settling that is not due: one that is put off */
void tail_stop(struct writer *w);   /* settles; data.mdb needs no journal any more, if that worked */

/* Brings into data.mdb what the journal has of a gateway that was killed. Before anything else is written. */
struct tail_found {
    uint64_t batches; /* that came back */
    bool torn;        /* one more was not whole: its sync had not returned, and nobody had a result from it */
};
enum store_error tail_recover(struct db *db, const char *folder, struct tail_found *found, char *why, size_t why_cap)
    __attribute__((warn_unused_result));

/* Another process serves this store: waits until data.mdb has what its journal has now, some tenths of a second at the
 * most. False: nobody settles it, and something is missing. */
bool tail_wait(struct db *db, const char *folder) __attribute__((warn_unused_result));

#endif
