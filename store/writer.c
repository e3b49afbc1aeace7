/*
 * store/writer.c - the thread that owns every change: it queues, commits in groups, keeps room, and hands out results.
 *
 * Queue and ownership. store_submit() links the op into a list under a mutex; from then on it is the writer's. The
 * writer takes the whole list at once, works it off in chunks of one transaction and one sync each, and gives every op
 * back through `done`, once. While one commit runs the next list gathers: group commit without a timer. After a
 * commit come first the `raised` and `reset` calls of the chunk, then its `done` calls, all in the order of submission:
 * the gate must know of a raise before anyone may act on a verdict.
 *
 * Room. LMDB needs free pages even to delete, and copies every page it changes, so a map that is filled up can't be
 * emptied any more. A reserve is therefore kept from new work (admissions, and records that close no effect): these get
 * STORE_FULL while outcomes still go through, in small chunks, since a chunk's copies come out of the same reserve. So
 * do resets and resolutions: there can't be more of them than there are fences and effects. Raises there can be without
 * end, and they may take half of the reserve only.
 *
 * Outcomes. A record that closes an effect says what a partner did; it must not be lost because of new work in the same
 * chunk or because the disk is full for a minute. When a chunk fails its outcomes are tried once more without the new
 * work and without retention; when that fails too they are kept and tried again with every chunk and every second,
 * until the store is closed. They can't pile up: while commits fail no effect begins.
 *
 * Failed commits, by what LMDB does (mdb_txn_commit, mdb_env_sync, mdb_env_write_meta). A commit writes the changed
 * pages to places that the last root page does not use, syncs, then writes the new root page into the other of two
 * slots, synchronously.
 * - The map is full (also found by the commit alone, when it saves its list of free pages), or a page write or the
 *   sync fails: the old root page stays in force, and the next transaction starts from the last durable state. A page
 *   that the failed sync left behind is referenced by nothing, and is written and synced anew before it is used. Not to
 *   be trusted after a failed sync is a page that was thought written; there is none.
 * - Writing the root page fails: what is on disk is unknown until the file is read anew. LMDB marks the environment and
 *   refuses every transaction from then on (MDB_PANIC), readers too. So do we, until the process is restarted. That
 *   chunk's ops were answered with an error, yet may be there after the restart: a fence that is up and an effect that
 *   is in doubt though nothing was sent. Both err on the safe side.
 *
 * What an op does to the tables is left to apply.c.
 */
#include "store/writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/apply.h"
#include "store/clock.h"

#define CHUNK_OPS 1024       /* most ops in one transaction */
#define CHUNK_OPS_TIGHT 16   /* the same while new work is refused */
#define PAGES_PER_OP 8       /* pages that an op may copy or add: paths through four trees */
#define RESERVE_DIVISOR 32   /* about 3 per cent of the map are kept from new work */
#define RESERVE_PAGES_MIN 64 /* a few small transactions: a page freed by one can be used by the next but one */
#define PAGES_PER_EFFECT_PAGE 3
#define EXPIRE_OPS 64
#define EXPIRE_STEPS_IDLE 8
#define DROP_OPS 256
#define DROP_STEPS_MAX 64
#define TICK_MS 1000
#define READER_CHECK_TICKS 60

/* A condition that an operator hears of when it comes, and again when it has been gone for a tick: at the edge it may
 * come and go with every chunk. */
struct trouble {
    bool shown, seen; /* seen: since the last tick */
    const char *gone; /* what is said then */
};

enum told { TOLD_NOTHING, TOLD_RAISED, TOLD_RESET };

struct writer {
    struct db *db;
    struct store_options options; /* path is not ours to keep: NULL */
    pthread_t thread;

    pthread_mutex_t queue_lock;
    pthread_cond_t queue_filled;
    struct store_op *queue, **queue_end;
    bool closing;

    /* The writer thread's own. */
    struct store_op *chunk[CHUNK_OPS];
    enum told told[CHUNK_OPS]; /* what the gate has to hear of each, once it is durable */
    size_t chunk_len;
    struct store_op *held, **held_end; /* outcomes whose commit failed */
    struct buffer scratch;
    size_t chunk_max;
    bool dropped_some; /* said once */
    bool refuse_new;   /* no room for new work */
    bool refuse_raise; /* nor for raises */
    bool last;         /* the store is closing and this is the last list */
    struct trouble failing, full;
    bool end_told; /* that only a restart helps */
    struct trusted_clock clock;
    uint64_t next_tick_ms;
    unsigned ticks;

    pthread_mutex_t health_lock;
    struct store_health health;
    atomic_ullong retain_ms; /* of the options, but they may change while running */
    atomic_bool drop_oldest;
    atomic_bool writable; /* health.writable for those who ask on every call */
};

static uint64_t read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t monotonic_ms(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static void notice(struct writer *w, const char *text)
{
    if (w->options.notice)
        w->options.notice(w->options.notice_arg, text);
}

static bool is_outcome(const struct store_op *op)
{
    return op->kind == STORE_RECORD && op->record.effect_id != 0;
}

/* May this op use the reserve? */
static bool from_reserve(const struct writer *w, const struct store_op *op)
{
    return is_outcome(op) || op->kind == STORE_RESET || op->kind == STORE_RESOLVE ||
           (op->kind == STORE_RAISE && !w->refuse_raise);
}

/* Health. */

static void publish(struct writer *w)
{
    pthread_mutex_lock(&w->health_lock);
    w->health.writable = !w->failing.shown && !w->full.shown;
    if (w->health.writable)
        w->health.reason = NULL;
    else if (db_dead(w->db))
        w->health.reason = db_dead(w->db);
    else if (w->failing.shown)
        w->health.reason = "the last write to the store failed";
    else
        w->health.reason = "the store is full";
    atomic_store_explicit(&w->writable, w->health.writable, memory_order_release);
    pthread_mutex_unlock(&w->health_lock);
}

static void trouble(struct writer *w, struct trouble *is, const char *text)
{
    is->seen = true;
    if (is->shown)
        return;
    is->shown = true;
    publish(w);
    notice(w, text);
}

static void trouble_tick(struct writer *w, struct trouble *is)
{
    if (is->shown && !is->seen) {
        is->shown = false;
        notice(w, is->gone);
    }
    is->seen = false;
}

static void trouble_write(struct writer *w, const char *why)
{
    char line[200];
    (void)snprintf(line, sizeof line, "store: write failed: %s; new calls are refused until it works again", why);
    trouble(w, &w->failing, line);
    if (db_dead(w->db))
        publish(w); /* the reason has changed */
}

/* Ends the batch and keeps the books. */
static enum store_error commit(struct writer *w, struct batch *batch, size_t operations)
{
    enum store_error error = batch_commit(batch);
    if (error != STORE_OK) {
        trouble_write(w, db_txn_error_text(&batch->txn));
        return error;
    }
    pthread_mutex_lock(&w->health_lock);
    w->health.commits += batch->txn.dirty ? 1 : 0;
    w->health.operations += operations;
    w->health.in_doubt -= batch->resolved;
    pthread_mutex_unlock(&w->health_lock);
    return STORE_OK;
}

/* Room. */

/* A part of the map, and what the open effects will need: each has a record to come, about as large as its intent, with
 * an entry in the index; after a crash the intents stay beside their records. */
static uint64_t reserve_base(const struct db_space *space)
{
    uint64_t part = space->pages / RESERVE_DIVISOR;
    return part > RESERVE_PAGES_MIN ? part : RESERVE_PAGES_MIN;
}

static uint64_t reserve_pages(const struct db_space *space)
{
    return reserve_base(space) + PAGES_PER_EFFECT_PAGE * space->effects;
}

static uint64_t spare_pages(const struct db_space *space)
{
    uint64_t reserve = reserve_pages(space);
    return space->free > reserve ? space->free - reserve : 0;
}

/* Free pages, counted as far as the decision at hand needs. */
static bool look_at_space(struct writer *w, struct db_space *out)
{
    if (db_space(w->db, 0, out) != STORE_OK)
        return false;
    return db_space(w->db, reserve_pages(out) + CHUNK_OPS * PAGES_PER_OP, out) == STORE_OK;
}

/* audit.when_full drop-oldest: goes on until half a reserve is free above the reserve, so that it is not the toll of
 * every chunk. */
static void drop_oldest(struct writer *w, struct db_space *space)
{
    if (!w->dropped_some)
        notice(w, "store: full: the oldest audit records make room (audit.when_full is drop-oldest)");
    w->dropped_some = true;
    for (int step = 0; step < DROP_STEPS_MAX && spare_pages(space) < reserve_pages(space) / 2; step++) {
        struct batch batch;
        batch_begin(&batch, w->db, &w->scratch);
        bool some = batch_drop_oldest(&batch, DROP_OPS) > 0;
        if (!some) {
            db_abort(&batch.txn);
            return;
        }
        if (commit(w, &batch, 0) != STORE_OK || !look_at_space(w, space))
            return;
    }
}

static void look_for_room(struct writer *w)
{
    struct db_space space;
    if (!look_at_space(w, &space))
        return; /* the chunk's own transaction will tell why */
    if (spare_pages(&space) < PAGES_PER_OP && atomic_load_explicit(&w->drop_oldest, memory_order_relaxed)) {
        drop_oldest(w, &space);
    }
    uint64_t ops = spare_pages(&space) / PAGES_PER_OP;
    w->refuse_new = ops == 0;
    w->refuse_raise = w->refuse_new && space.free + reserve_base(&space) / 2 < reserve_pages(&space);
    if (w->refuse_new) {
        trouble(w, &w->full, "store: full: new calls are refused until there is room (retention, a larger max_size)");
        ops = CHUNK_OPS_TIGHT;
    }
    w->chunk_max = ops < CHUNK_OPS ? (size_t)ops : CHUNK_OPS;
}

/* One chunk. */

static uint64_t expiry(struct writer *w, uint64_t now_ms)
{
    uint64_t retain_ms = atomic_load_explicit(&w->retain_ms, memory_order_relaxed);
    bool leapt;
    now_ms = trusted_ms(&w->clock, now_ms, read_clock(CLOCK_BOOTTIME), &leapt);
    if (leapt)
        notice(w, "store: the clock leapt ahead; retention goes by the old time until it has stayed so for a day");
    return retain_ms != 0 && now_ms > retain_ms ? now_ms - retain_ms : 0;
}

static enum told apply_one(struct batch *batch, struct store_op *op)
{
    switch (op->kind) {
    case STORE_ADMIT: return batch_admit(batch, op) ? TOLD_RAISED : TOLD_NOTHING;
    case STORE_RAISE: return batch_raise(batch, op) ? TOLD_RAISED : TOLD_NOTHING;
    case STORE_RESET: return batch_reset(batch, op) ? TOLD_RESET : TOLD_NOTHING;
    case STORE_RESOLVE: batch_resolve(batch, op); return TOLD_NOTHING;
    case STORE_RECORD: break;
    }
    batch_record(batch, op);
    return TOLD_NOTHING;
}

static size_t apply(struct writer *w, struct batch *batch, bool reserve_only)
{
    size_t applied = 0;
    for (size_t i = 0; i < w->chunk_len && batch->txn.error == 0; i++) {
        struct store_op *op = w->chunk[i];
        w->told[i] = TOLD_NOTHING;
        if (reserve_only && !from_reserve(w, op))
            continue;
        w->told[i] = apply_one(batch, op);
        applied += op->error == STORE_OK ? 1 : 0;
    }
    return applied;
}

static size_t expire_limit(const struct writer *w, size_t wanted)
{
    return wanted < w->chunk_max ? wanted : w->chunk_max;
}

/* One transaction. Retention rides on it, twice as fast as records come in: it must keep up, and must not hold up. */
static enum store_error attempt(struct writer *w, bool reserve_only)
{
    struct batch batch;
    batch_begin(&batch, w->db, &w->scratch);
    size_t applied = apply(w, &batch, reserve_only);
    if (!reserve_only)
        (void)batch_expire(&batch, expiry(w, batch.now_ms), expire_limit(w, EXPIRE_OPS + 2 * applied));
    return commit(w, &batch, applied);
}

static void fail(struct store_op *op, enum store_error error)
{
    op->error = error;
    op->verdict = (enum store_verdict)0;
    op->highest = op->effect_id = op->audit_id = 0;
}

static void hold(struct writer *w, struct store_op *op)
{
    op->next = NULL;
    *w->held_end = op;
    w->held_end = &op->next;
}

static void tell(struct writer *w, const struct store_op *op, enum told told)
{
    const struct store_options *options = &w->options;
    if (told == TOLD_RAISED && options->raised)
        options->raised(options->raised_arg, op->record.ns, op->record.key, op->highest);
    if (told == TOLD_RESET && options->reset)
        options->reset(options->raised_arg, op->record.ns, op->record.key);
}

static void hand_out(struct writer *w, enum store_error new_error, enum store_error reserve_error)
{
    bool may_hold = !w->last && !db_dead(w->db);
    for (size_t i = 0; i < w->chunk_len; i++)
        if ((from_reserve(w, w->chunk[i]) ? reserve_error : new_error) == STORE_OK)
            tell(w, w->chunk[i], w->told[i]);
    for (size_t i = 0; i < w->chunk_len; i++) {
        struct store_op *op = w->chunk[i];
        enum store_error error = from_reserve(w, op) ? reserve_error : new_error;
        if (error != STORE_OK && is_outcome(op) && may_hold) {
            hold(w, op);
            continue;
        }
        if (error != STORE_OK)
            fail(op, error);
        op->done(op);
    }
}

static void run_chunk(struct writer *w)
{
    size_t reserved = 0;
    for (size_t i = 0; i < w->chunk_len; i++)
        reserved += from_reserve(w, w->chunk[i]) ? 1 : 0;
    enum store_error new_error = STORE_FULL, reserve_error = STORE_OK;
    if (!w->refuse_new) {
        new_error = reserve_error = attempt(w, false);
        if (new_error != STORE_OK && reserved > 0)
            reserve_error = attempt(w, true);
    } else if (reserved > 0) {
        reserve_error = attempt(w, true);
    }
    hand_out(w, new_error, reserve_error);
}

static void run(struct writer *w, struct store_op *list)
{
    *w->held_end = list; /* what was held goes first */
    list = w->held;
    w->held = NULL;
    w->held_end = &w->held;
    while (list) {
        look_for_room(w);
        w->chunk_len = 0;
        for (; list && w->chunk_len < w->chunk_max; list = list->next)
            w->chunk[w->chunk_len++] = list;
        run_chunk(w);
    }
}

/* What is due once a second. */

/* While commits fail no call may come in that would try one, and readiness would never come back. */
static void probe(struct writer *w)
{
    struct batch batch;
    batch_begin(&batch, w->db, &w->scratch);
    batch_touch(&batch);
    (void)commit(w, &batch, 0);
}

static bool queue_empty(struct writer *w)
{
    pthread_mutex_lock(&w->queue_lock);
    bool empty = !w->queue;
    pthread_mutex_unlock(&w->queue_lock);
    return empty;
}

static void expire_idle(struct writer *w)
{
    size_t limit = expire_limit(w, EXPIRE_OPS), removed = limit;
    for (int step = 0; step < EXPIRE_STEPS_IDLE && removed == limit && queue_empty(w); step++) {
        struct batch batch;
        batch_begin(&batch, w->db, &w->scratch);
        removed = batch_expire(&batch, expiry(w, batch.now_ms), limit);
        if (removed == 0) {
            db_abort(&batch.txn);
            return;
        }
        if (commit(w, &batch, 0) != STORE_OK)
            return;
    }
}

static void measure(struct writer *w)
{
    struct db_space space;
    if (db_space(w->db, UINT64_MAX, &space) != STORE_OK)
        return;
    pthread_mutex_lock(&w->health_lock);
    w->health.max_bytes = space.pages * space.page_bytes;
    w->health.used_bytes = (space.pages - space.free) * space.page_bytes;
    pthread_mutex_unlock(&w->health_lock);
}

/* What was told once stays told: nothing mends it. */
static void check_place(struct writer *w)
{
    char line[200];
    if (db_dead(w->db) == NULL)
        db_check_place(w->db);
    if (db_dead(w->db) == NULL)
        return;
    (void)snprintf(line, sizeof line, "store: %s; until then new calls are refused", db_dead(w->db));
    if (w->failing.shown && !w->end_told)
        notice(w, line); /* it was in trouble before, of a kind that may pass */
    w->end_told = true;
    trouble(w, &w->failing, line);
}

static void tick(struct writer *w)
{
    check_place(w);
    if (w->ticks++ % READER_CHECK_TICKS == 0)
        (void)db_clear_dead_readers(w->db);
    if (w->held)
        run(w, NULL);
    if (w->failing.shown && !w->failing.seen)
        probe(w);
    if (!w->failing.shown && atomic_load_explicit(&w->retain_ms, memory_order_relaxed) != 0)
        expire_idle(w);
    look_for_room(w);
    measure(w);
    trouble_tick(w, &w->failing);
    trouble_tick(w, &w->full);
    publish(w);
}

/* Waits for work or the next tick. NULL with `last` set: nothing more will come. */
static struct store_op *take(struct writer *w)
{
    struct timespec until = {(time_t)(w->next_tick_ms / 1000), (long)(w->next_tick_ms % 1000) * 1000000};
    pthread_mutex_lock(&w->queue_lock);
    int rc = 0;
    while (!w->queue && !w->closing && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&w->queue_filled, &w->queue_lock, &until);
    struct store_op *list = w->queue;
    w->queue = NULL;
    w->queue_end = &w->queue;
    w->last = w->closing;
    pthread_mutex_unlock(&w->queue_lock);
    return list;
}

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    while (!w->last) {
        struct store_op *list = take(w);
        if (list || w->last)
            run(w, list);
        uint64_t now = monotonic_ms();
        if (now >= w->next_tick_ms && !w->last) {
            tick(w);
            w->next_tick_ms = monotonic_ms() + TICK_MS;
        }
    }
    return NULL;
}

static int init_locks(struct writer *w)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc != 0)
        return rc;
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* a clock set back must not stop the ticks */
    if (rc == 0)
        rc = pthread_cond_init(&w->queue_filled, &attr);
    pthread_condattr_destroy(&attr);
    if (rc == 0)
        rc = pthread_mutex_init(&w->queue_lock, NULL);
    if (rc == 0)
        rc = pthread_mutex_init(&w->health_lock, NULL);
    return rc;
}

enum store_error writer_start(struct db *db, const struct store_options *options, uint64_t in_doubt,
                              struct writer **out)
{
    *out = NULL;
    struct writer *w = calloc(1, sizeof *w);
    if (!w)
        return STORE_IO;
    w->db = db;
    w->options = *options;
    w->options.path = NULL;
    writer_retention(w, options->retain_ms, options->drop_oldest);
    w->queue_end = &w->queue;
    w->held_end = &w->held;
    w->chunk_max = CHUNK_OPS;
    w->failing.gone = "store: writing works again";
    w->full.gone = "store: there is room again";
    w->health.in_doubt = in_doubt;
    w->next_tick_ms = monotonic_ms() + TICK_MS;
    if (init_locks(w) != 0) {
        free(w);
        return STORE_IO;
    }
    look_for_room(w); /* health is right from the first moment */
    measure(w);
    publish(w);
    if (pthread_create(&w->thread, NULL, writer_main, w) != 0) {
        free(w);
        return STORE_IO;
    }
    *out = w;
    return STORE_OK;
}

void writer_submit(struct writer *writer, struct store_op *op)
{
    op->next = NULL;
    pthread_mutex_lock(&writer->queue_lock);
    bool closed = writer->closing;
    if (!closed) {
        if (!writer->queue)
            pthread_cond_signal(&writer->queue_filled);
        *writer->queue_end = op;
        writer->queue_end = &op->next;
    }
    pthread_mutex_unlock(&writer->queue_lock);
    if (closed) {
        fail(op, STORE_CLOSED);
        op->done(op);
    }
}

void writer_stop(struct writer **writer)
{
    struct writer *w = *writer;
    if (!w)
        return;
    pthread_mutex_lock(&w->queue_lock);
    w->closing = true;
    pthread_cond_signal(&w->queue_filled);
    pthread_mutex_unlock(&w->queue_lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->queue_lock);
    pthread_mutex_destroy(&w->health_lock);
    pthread_cond_destroy(&w->queue_filled);
    buffer_free(&w->scratch);
    free(w);
    *writer = NULL;
}

bool writer_writable(struct writer *writer)
{
    return atomic_load_explicit(&writer->writable, memory_order_acquire);
}

void writer_retention(struct writer *writer, uint64_t retain_ms, bool drop)
{
    atomic_store_explicit(&writer->retain_ms, retain_ms, memory_order_relaxed);
    atomic_store_explicit(&writer->drop_oldest, drop, memory_order_relaxed);
}

void writer_health(struct writer *writer, struct store_health *out)
{
    pthread_mutex_lock(&writer->health_lock);
    *out = writer->health;
    pthread_mutex_unlock(&writer->health_lock);
}
