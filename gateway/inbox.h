/*
 * gateway/inbox.h - how other threads reach a worker: a queue of items and an eventfd that wakes its loop.
 *
 * An item is embedded in what it is about (a request's store operation, a gate ticket) and belongs to the inbox from
 * inbox_post() until its run() is called on the worker's thread. It can be in one inbox once at a time: the poster's
 * own protocol (store: one `done` an operation; gate: the ticket's `posted` flag) sees to that. Nothing is allocated,
 * so handing over can't fail.
 */
#ifndef FENCEGATE_INBOX_H
#define FENCEGATE_INBOX_H

#include <pthread.h>
#include <stdbool.h>

struct inbox_item {
    struct inbox_item *next;
    void (*run)(struct inbox_item *item); /* on the owner's thread; the item may be posted again or freed in it */
};

struct inbox {
    pthread_mutex_t mutex;
    struct inbox_item *head, **tail;
    int event_fd; /* readable while items wait */
};

bool inbox_init(struct inbox *inbox) __attribute__((warn_unused_result)); /* false: no descriptor */
void inbox_destroy(struct inbox *inbox);
void inbox_post(struct inbox *inbox, struct inbox_item *item); /* any thread */
/* Several in one step, in this order: linked by `next` from `first` to `last`. */
void inbox_post_list(struct inbox *inbox, struct inbox_item *first, struct inbox_item *last);
bool inbox_drain(struct inbox *inbox); /* owner's thread; true: something ran */

#endif
