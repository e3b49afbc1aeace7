/*
 * gateway/admin_change.h - a change on its way: from the admin thread to the store's writer and back.
 *
 * The admin thread never blocks: it submits the operation and goes on; `done` (on the writer's thread) puts the change
 * into the context's inbox; there its answer is made, at once or, for a raise with `wait`, when no call with a lower
 * token is in flight any more.
 *
 * Owned by the request that asked for it; released before it is ready, it lives on until it has come home. All
 * functions are for the admin thread.
 */
#ifndef FENCEGATE_ADMIN_CHANGE_H
#define FENCEGATE_ADMIN_CHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/admin_calls.h"
#include "gateway/inbox.h"
#include "store/store.h"

struct admin_change {
    struct inbox_item item; /* how it comes home */
    struct store_op op;
    struct admin_context *context;
    struct admin_change *next, *prev; /* in context->changes until it is ready */
    uint64_t wait_ms, deadline_ms;    /* deadline 0: not waiting */
    bool ready;                       /* `answer` is final */
    struct admin_answer answer;
    void (*on_ready)(struct admin_change *change, void *arg); /* the owner's; NULL: released */
    void *arg;
    char text[]; /* what op.record's slices point to */
};

/* A copy of everything that `record` points to. NULL: no memory. */
struct admin_change *admin_change_new(struct admin_context *context, enum store_op_kind kind,
                                      const struct audit_record *record) __attribute__((warn_unused_result));
void admin_change_submit(struct admin_change *change);
void admin_change_release(struct admin_change **change); /* its owner has no more use for it; clears *change */

/* Looks after those that wait. Returns after how many milliseconds it wants to be called again; -1: no need. */
int admin_changes_run(struct admin_context *context);
/* No change is taken any more: waits for the store, and ends all waits. */
void admin_changes_end(struct admin_context *context);

#endif
