/*
 * gateway/worker.h - one event loop: its listening socket, its clients, its partners, its timers, its inbox.
 *
 * Nothing of a worker is touched by another thread but the inbox and the atomics of struct gateway.
 */
#ifndef FENCEGATE_WORKER_H
#define FENCEGATE_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gateway/descriptors.h"
#include "gateway/inbox.h"
#include "gateway/places.h"
#include "gateway/timers.h"

struct composer;
struct gate;
struct inbound;
struct metrics_route;
struct request;
struct resolver;
struct settings;
struct store;
struct store_op;
struct store_reader;
struct upstream;

/* What all workers share. Made before they start, freed after they were joined. */
enum { GATEWAY_VIA_PROTOCOL = 4, GATEWAY_VIA_MAX = 24 }; /* length of "1.1 " */
struct gateway {
    struct store *store;
    struct gate *gate;
    struct resolver *resolver;
    struct composer *composer;       /* makes large mails */
    char via[GATEWAY_VIA_MAX];       /* of the Via field of a call: "1.1 fencegate-1a2b3c4d", by the store's id */
    struct descriptor_shares shares; /* set before the workers start */
    struct places places;            /* of limits.connections */
    atomic_uint in_flight;           /* requests past their body whose call has not ended, against limits.in_flight */
    atomic_uint unsettled;  /* requests past their body whose outcome is not recorded: a shutdown waits for them */
    atomic_ullong buffered; /* bytes of bodies held, against limits.buffered */
    atomic_uint connections_max, in_flight_max; /* the limits in force */
    atomic_ullong buffered_max;
    atomic_bool shutting_down;
    atomic_uint cut_effects; /* effects that the shutdown had to cut */
    uint64_t started_ms;     /* real time */
};

struct worker_message;

/* A descriptor in the worker's epoll set; embedded in its owner. */
struct io {
    void (*ready)(struct io *io, uint32_t events);
    struct io *next_retired;
};

struct worker {
    struct gateway *gateway;
    struct settings *settings; /* reference; swapped by worker_reload() */
    struct store_reader *reader;
    int epoll_fd;
    struct inbox inbox;
    struct io inbox_io;
    bool inbox_due;
    struct timers timers;
    uint64_t now_ms;         /* monotonic, of this turn */
    uint64_t now_us;         /* the same reading */
    unsigned short_turns;    /* one after the other that did not read all that was ready, weighted */
    uint64_t short_since_ms; /* the first of them */
    unsigned number;
    uint64_t requests;  /* seen so far: the last part of request_id in the log */
    char id_prefix[32]; /* the parts before: start of the process, number of this worker */
    struct inbound *inbound;
    struct place_caller place_caller;
    struct upstream *upstream;
    struct io *retired;
    struct store_op *first_op, *last_op; /* this turn's, not yet with the store; last_op: if there is a first */
    struct metrics_route *no_route;      /* counters of requests that match none */
    struct request *live;                /* all requests not yet freed */
    struct request *spare;               /* memory of ended ones, by `next` */
    unsigned spare_count;
    atomic_uint busy; /* how many those are: main looks at it during a shutdown */
    int listen_fd;
    pthread_t thread;
    bool started, stop;
    struct worker_message *begin_shutdown, *cut, *leave; /* made at start, so that a shutdown needs no memory */
};

struct worker_options {
    struct gateway *gateway;
    struct settings *settings; /* a reference is taken */
    uint16_t port;             /* 0: a free one, see *port */
    unsigned number;           /* of this worker; the first, 0, takes the port for itself and its fellows */
};

/* Opens the socket and all else, starts no thread. NULL on failure with one line in `error`. *port is the real one:
 * pass it on to the next worker (they share it by SO_REUSEPORT). */
struct worker *worker_new(const struct worker_options *options, uint16_t *port, char *error, size_t error_cap)
    __attribute__((warn_unused_result));
bool worker_start(struct worker *worker) __attribute__((warn_unused_result));
/* Any thread; takes a reference. False: no memory, the old settings stay. */
bool worker_reload(struct worker *worker, struct settings *settings) __attribute__((warn_unused_result));
void worker_begin_shutdown(struct worker *worker); /* any thread: waiting calls get their 503 */
void worker_cut(struct worker *worker);            /* any thread: grace is over */
void worker_stop(struct worker *worker);           /* any thread: leave the loop now */
/* Called by main. Join: ends clients, calls and the store reader; requests stay, since the store may still hold their
 * operations. Free: after the store was closed (or before any request came). Clears *worker. */
void worker_join(struct worker *worker);
void worker_free(struct worker **worker);
/* Any thread: requests not yet settled, or settled and not yet taken by their client. */
unsigned worker_busy(struct worker *worker);

/* For the parts of a worker, on its thread. */
void worker_add(struct worker *worker, struct request *request);
void worker_remove(struct worker *worker, struct request *request);
struct request *worker_take_spare(struct worker *worker); /* memory of an ended one, uncleared; NULL: none */
void worker_put_spare(struct worker *worker, struct request *request);
/* Goes to the store at the end of this turn of the loop, with all others, in this order. */
void worker_submit(struct worker *worker, struct store_op *op);
bool worker_watch(struct worker *worker, int fd, uint32_t events, struct io *io) __attribute__((warn_unused_result));
void worker_rewatch(struct worker *worker, int fd, uint32_t events, struct io *io);
void worker_unwatch(struct worker *worker, int fd);
/* Frees the malloc'ed owner whose first member is `io`, once no event of this turn can name it any more. */
void worker_retire(struct worker *worker, struct io *io);

#endif
