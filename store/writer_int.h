/*
 * store/writer_int.h - the writer's state, for writer.c and its two parts: writer_room.c (room, retention) and
 * writer_tick.c (health, what is due once a second). All functions here are for the writer's thread, or for
 * writer_start() before that thread runs.
 */
#ifndef FENCEGATE_STORE_WRITER_INT_H
#define FENCEGATE_STORE_WRITER_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/apply.h"
#include "store/clock.h"
#include "store/tail.h"
#include "store/unresolved.h"
#include "store/writer.h"

#define CHUNK_OPS 1024 /* most ops in one transaction */
#define EXPIRE_OPS 64  /* audit records that retention removes beside those that make up for new ones */

/* A condition that an operator hears of when it comes, and again when it has been gone for a tick: at the edge it may
 * come and go with every chunk. */
struct trouble {
    bool shown, seen; /* seen: since the last tick */
    const char *gone; /* what is said then */
};

enum told { TOLD_NOTHING, TOLD_RAISED, TOLD_RESET };

struct writer {
    struct db *db;
    struct unresolved *unresolved; /* of the store */
    struct store_options options;  /* path is not ours to keep: NULL */
    pthread_t thread;

    pthread_mutex_t queue_lock;
    pthread_cond_t queue_filled;
    struct store_op *queue, **queue_end;
    bool closing;
    bool unsettled;         /* something is in the journal that data.mdb has not */
    bool settle_asked;      /* somebody wants to read data.mdb */
    uint64_t settlings;     /* that have ended */
    pthread_cond_t settled; /* one more has */

    /* The writer thread's own. */
    struct store_op *chunk[CHUNK_OPS];
    enum told told[CHUNK_OPS]; /* what the gate has to hear of each, once it is durable */
    size_t chunk_len;
    struct store_op *held, **held_end; /* outcomes whose commit failed */
    struct buffer scratch;
    struct tail tail;
    size_t spare_ops; /* that fit into what is free beside the reserve */
    size_t chunk_max;
    size_t expire_least;    /* records that retention may take in one transaction however little room there is */
    bool dropped_some;      /* said once */
    uint64_t drop_again_ms; /* monotonic: before that nothing is found that can go; 0: there may be something */
    bool dropping;          /* the oldest audit records go with each chunk (audit.when_full is drop-oldest) */
    uint64_t ring_pages;    /* that rejected records may take */
    bool ring_told;         /* that the oldest of them make room; once */
    bool made_room;         /* by the attempt under way, beside its ops */
    bool refuse_new;        /* no room for new work */
    bool refuse_raise;      /* nor for raises */
    bool last;              /* the store is closing and this is the last list */
    struct trouble failing, full;
    bool end_told; /* that only a restart helps */
    struct trusted_clock clock;
    uint64_t clock_kept_ms; /* when the store got the trusted time last; monotonic; 0: not yet */
    struct {
        uint64_t of, removed;
        bool told;
    } spree; /* of retention, as long as there is more to remove */
    uint64_t next_tick_ms;
    unsigned ticks;
    struct {
        uint64_t pid, snapshot, since_us; /* since it was seen to be behind */
    } old_reader;

    pthread_mutex_t health_lock;
    struct store_health health;
    atomic_ullong retain_ms; /* of the options, but they may change while running */
    atomic_bool drop_oldest;
    atomic_ullong rejected_max;
    atomic_bool writable;   /* health.writable for those who ask on every call */
    atomic_bool known_only; /* room for current calls of known keys alone */
};

/* writer.c */
void writer_begin(struct writer *w, struct batch *batch); /* a transaction */
/* Applies the chunk at hand; with reserve_only, what may use the reserve. Returns how many succeeded. */
size_t writer_apply(struct writer *w, struct batch *batch, bool reserve_only);
/* A batch is durable; committing_us: when its write began, 0: it changed nothing. */
void writer_account(struct writer *w, const struct batch *batch, uint64_t committing_us, size_t operations);
void writer_notice(struct writer *w, enum store_notice weight, const char *text);
bool writer_idle(struct writer *w); /* nothing waits in the queue */
/* Ends the batch and keeps the books. */
enum store_error writer_commit(struct writer *w, struct batch *batch, size_t operations);
void writer_run(struct writer *w, struct store_op *list); /* the outcomes that are held, then the list */

/* writer_room.c */
void room_look(struct writer *w); /* how much work may come next: chunk_max, refuse_new, refuse_raise */
void room_measure(struct writer *w);
uint64_t room_expiry(struct writer *w, uint64_t now_ms); /* audit records before this time go; 0: none */
void room_expire_idle(struct writer *w);
void room_clock_keep(struct writer *w); /* for the next start; in a transaction of its own */
/* What goes with a chunk that applied so many ops; how many records went. */
size_t room_make(struct writer *w, struct batch *batch, size_t applied);

/* stats.c */
void stats_committed(const struct writer *w, uint64_t begun_us, uint64_t committing_us, uint64_t operations);
void stats_look(struct writer *w); /* disk and readers, into health */

/* writer_tick.c */
void writer_publish(struct writer *w);
void writer_trouble(struct writer *w, struct trouble *is, const char *text);
void writer_trouble_write(struct writer *w, const char *why);
void writer_tick(struct writer *w);

#endif
