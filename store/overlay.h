/*
 * store/overlay.h - fences that the journal has and data.mdb does not have yet, for those who look at one fence.
 *
 * The writer adds them when they are durable and clears all when data.mdb has them. Who looks asks here first, then in
 * data.mdb: what is found here is the newest, and what has gone from here data.mdb shows from then on.
 *
 * overlay_find() from any thread, the rest from the writer's.
 */
#ifndef FENCEGATE_STORE_OVERLAY_H
#define FENCEGATE_STORE_OVERLAY_H

#include "store/store.h"

#define OVERLAY_VALUE_BYTES 16

struct overlay;

struct overlay *overlay_new(void); /* NULL: no memory */
void overlay_free(struct overlay **overlay);

/* Takes the fences out of a batch's changes. Without memory for them it is blind until it is cleared: nobody can say
 * where a fence stands. */
void overlay_take(struct overlay *overlay, struct slice changes);
void overlay_clear(struct overlay *overlay);

enum overlay_says {
    OVERLAY_NOTHING, /* data.mdb has the last word */
    OVERLAY_VALUE,   /* *value has it, as in DB_FENCES; *len may be another than it should be */
    OVERLAY_GONE,    /* the entry was deleted */
    OVERLAY_BLIND,
};
enum overlay_says overlay_find(struct overlay *overlay, struct slice key, char value[OVERLAY_VALUE_BYTES], size_t *len)
    __attribute__((warn_unused_result));

#endif
