/*
 * store/unresolved.h - how many effects were recorded `unknown` and wait for a resolution, by the route on record.
 *
 * They are counted once, when the store is opened for serving: a walk along the pointers in `unknown`, a look at the
 * record of each that is open, and a walk along what is in doubt. Measured: 0.1 s for a million that are resolved, 0.3
 * s where half of them are not. From then on the writer's batches change the count. A change is pending until its batch
 * is durable; then unresolved_keep(), else unresolved_drop(). Effects in doubt are among them: a start gave each an
 * `unknown` record.
 *
 * Changes are the writer's thread's, or of who opens the store before that thread runs; unresolved_each() any thread's.
 */
#ifndef FENCEGATE_STORE_UNRESOLVED_H
#define FENCEGATE_STORE_UNRESOLVED_H

#include <pthread.h>

#include "store/lmdb.h"
#include "store/store.h"

struct unresolved {
    pthread_mutex_t lock;
    struct unresolved_row {
        char *route; /* "": none is on record */
        uint64_t count, since_ms;
        int64_t pending; /* the writer's */
    } * rows;            /* sorted by route; one that was there stays, be it with 0 */
    size_t count, cap;
    bool changed; /* something is pending; the writer's */
};

void unresolved_init(struct unresolved *unresolved);
void unresolved_free(struct unresolved *unresolved);
/* What is in the tables now; after the leftovers of a crash have got their records. */
enum store_error unresolved_read(struct unresolved *unresolved, struct db *db) __attribute__((warn_unused_result));
/* One more, or (by -1) one less, once it is kept. False: no memory, nothing is pending of it. */
bool unresolved_change(struct unresolved *unresolved, struct slice route, int by) __attribute__((warn_unused_result));
void unresolved_keep(struct unresolved *unresolved);
void unresolved_drop(struct unresolved *unresolved);
/* Each route that has some, or had some since the start. Under a lock that the writer waits for. */
void unresolved_each(struct unresolved *unresolved, void (*each)(void *arg, const struct store_unresolved *route),
                     void *arg);

#endif
