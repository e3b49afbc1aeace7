/*
 * gateway/places.h - who holds the places of limits.connections, over all workers: how many there are, which of them
 * are idle and for how long, and how many each address has.
 *
 * When places run out the connection that was idle longest is called: its place goes to the new one at once, and its
 * worker, which learns of it through its inbox, ends it. A request that has come in between is served all the same, so
 * the limit can be passed by as many as that happens to; the next ones call two each until it holds again.
 * One mutex, held for a few instructions: twice a request, once at the beginning and the end of a connection.
 */
#ifndef FENCEGATE_PLACES_H
#define FENCEGATE_PLACES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "gateway/inbox.h"

struct place_address; /* its count and its idle ones */

enum place_state { PLACE_NONE, PLACE_BUSY, PLACE_IDLE, PLACE_CALLED };

struct place_link {
    struct place_link *older, *newer;
};

/* Embedded in a connection; zeroed at first. Its fields are places.c's. */
struct client_place {
    enum place_state state;
    struct place_link among_all, among_own; /* idle ones */
    struct place_address *address;          /* NULL: of no address (a unix socket) */
    struct place_caller *caller;            /* of its worker */
    struct client_place *next_called, *prev_called;
};

/* One a worker, as old as its inbox: how it learns which of its connections were called. */
struct place_caller {
    struct inbox_item item; /* run: the worker's, calls places_next_called() */
    struct inbox *inbox;
    bool posted;
    struct client_place *called;
};

struct place_ends {
    struct place_link oldest, newest; /* sentinels */
};

struct places {
    pthread_mutex_t mutex;
    unsigned taken; /* busy and idle ones; who was called does not count */
    struct place_ends idle;
    struct place_address **addresses; /* hash table */
    unsigned long long seed;
};

enum place_verdict {
    PLACE_TAKEN,
    PLACE_FULL,         /* and all are busy */
    PLACE_ADDRESS_FULL, /* likewise, those of this address */
    PLACE_NO_MEMORY,
};

bool places_init(struct places *places) __attribute__((warn_unused_result));
void places_destroy(struct places *places); /* when all have left */

/* Any thread. A place for a connection that has sent nothing yet, so it is idle. `max`, `max_of_address`: the limits in
 * force; 0: none. Another verdict than PLACE_TAKEN: it has none. */
enum place_verdict places_take(struct places *places, struct client_place *place, struct place_caller *caller,
                               const struct sockaddr *address, unsigned max, unsigned max_of_address)
    __attribute__((warn_unused_result));
/* The longest idle one is called, for its descriptor. False: none is idle. */
bool places_call_one(struct places *places);
unsigned places_taken(struct places *places);

/* Worker's thread, of its own connections. Without a place they do nothing. */
void place_busy(struct places *places, struct client_place *place); /* a request has come; also when it was called */
void place_idle(struct places *places, struct client_place *place); /* ... was answered */
void place_leave(struct places *places, struct client_place *place);
/* From the run() of caller->item, until NULL: a connection that was called. It is as if it had left; place_busy() takes
 * a place again. */
struct client_place *places_next_called(struct places *places, struct place_caller *caller);

#endif
