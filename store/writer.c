/*
 * store/writer.c - the thread that owns every change: it queues, commits in groups, and hands out results.
 *
 * Queue and ownership. store_submit() links the op into a list under a mutex; from then on it is the writer's. The
 * writer takes the whole list at once, works it off in chunks of one transaction and one sync each, and gives every op
 * back through `done`, once. While one commit runs the next list gathers: group commit without a timer. After a
 * commit come first the `raised` and `reset` calls of the chunk, then its `done` calls, all in the order of submission:
 * the gate must know of a raise before anyone may act on a verdict.
 *
 * A chunk is durable with the sync of the journal, and data.mdb gets it later, with others (tail.c). Where that can't
 * be (no journal, little room, trouble) it is committed by itself, and what is told below of commits holds.
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
 * What an op does to the tables is left to apply.c, the room in the map to writer_room.c, health and what is due once a
 * second to writer_tick.c.
 */
#include "store/writer_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_MS 1000
#define SETTLE_PATIENCE_S 1

void writer_notice(struct writer *w, enum store_notice weight, const char *text)
{
    if (w->options.notice)
        w->options.notice(w->options.notice_arg, weight, text);
}

bool writer_idle(struct writer *w)
{
    pthread_mutex_lock(&w->queue_lock);
    bool empty = !w->queue;
    pthread_mutex_unlock(&w->queue_lock);
    return empty;
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

void writer_account(struct writer *w, const struct batch *batch, uint64_t committing_us, size_t operations)
{
    pthread_mutex_lock(&w->health_lock);
    w->health.commits += committing_us != 0 ? 1 : 0;
    w->health.operations += operations;
    w->health.in_doubt -= batch->resolved;
    pthread_mutex_unlock(&w->health_lock);
    unresolved_keep(w->unresolved);
    if (committing_us != 0)
        stats_committed(w, batch->begun_us, committing_us, operations);
}

void writer_begin(struct writer *w, struct batch *batch)
{
    batch_begin(batch, w->db, &w->scratch);
    batch->unresolved = w->unresolved;
    unresolved_drop(w->unresolved); /* of one that failed */
}

enum store_error writer_commit(struct writer *w, struct batch *batch, size_t operations)
{
    uint64_t committing_us = clock_us();
    enum store_error error = batch_commit(batch);
    if (error == STORE_OK)
        writer_account(w, batch, batch->txn.dirty ? committing_us : 0, operations);
    else if (error != STORE_FULL || !w->made_room)
        writer_trouble_write(w, db_txn_error_text(&batch->txn));
    return error;
}

/* One chunk. */

static enum told apply_one(struct batch *batch, struct store_op *op)
{
    switch (op->kind) {
    case STORE_ADMIT: return batch_admit(batch, op) ? TOLD_RAISED : TOLD_NOTHING;
    case STORE_RAISE: return batch_raise(batch, op) ? TOLD_RAISED : TOLD_NOTHING;
    case STORE_RESET: return batch_reset(batch, op) ? TOLD_RESET : TOLD_NOTHING;
    case STORE_RESOLVE: batch_resolve(batch, op); return TOLD_NOTHING;
    case STORE_TURN: batch_turn(batch, op); return TOLD_NOTHING;
    case STORE_RECORD: break;
    }
    batch_record(batch, op);
    return TOLD_NOTHING;
}

size_t writer_apply(struct writer *w, struct batch *batch, bool reserve_only)
{
    size_t applied = 0;
    batch->known_only = !writer_roomy(w);
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

/* One transaction. With `room` it makes some on the way; should that be what does not fit, it says so in w->made_room
 * and nobody hears of the failure. */
static enum store_error attempt(struct writer *w, bool reserve_only, bool room)
{
    struct batch batch;
    writer_begin(w, &batch);
    size_t applied = writer_apply(w, &batch, reserve_only);
    if (room && batch.txn.error == 0)
        w->made_room = room_make(w, &batch, applied) > 0 || batch.txn.error != 0;
    return writer_commit(w, &batch, applied);
}

static void fail(struct store_op *op, enum store_error error)
{
    op->error = error;
    op->verdict = (enum store_verdict)0;
    op->highest = op->effect_id = op->audit_id = 0;
}

/* Results that one `done` takes together: one wake-up for all that a loop has waiting in a batch. */
struct way_home {
    struct store_op *first, *last;
};

/* `op` joins those before it, or they go and it begins anew; NULL: they go. */
static void bring_home(struct way_home *way, struct store_op *op)
{
    const struct store_op *first = way->first;
    if (first && (!op || !op->home || op->home != first->home || op->done != first->done)) {
        way->first->done(way->first);
        way->first = NULL;
    }
    if (!op)
        return;
    op->next = NULL;
    if (way->first)
        way->last->next = op;
    else
        way->first = op;
    way->last = op;
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
    struct way_home way = {0};
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
        bring_home(&way, op);
    }
    bring_home(&way, NULL);
}

/* By itself, in a transaction of its own. */
static void commit_chunk(struct writer *w)
{
    size_t reserved = 0;
    for (size_t i = 0; i < w->chunk_len; i++)
        reserved += from_reserve(w, w->chunk[i]) ? 1 : 0;
    enum store_error new_error = STORE_FULL, reserve_error = STORE_OK;
    if (!w->refuse_new) {
        new_error = reserve_error = attempt(w, false, true);
        bool again = new_error == STORE_FULL && w->made_room;
        w->made_room = false;
        if (again)
            new_error = reserve_error = attempt(w, false, false);
        if (new_error != STORE_OK && reserved > 0)
            reserve_error = attempt(w, true, false);
    } else if (reserved > 0) {
        reserve_error = attempt(w, true, false);
    }
    hand_out(w, new_error, reserve_error);
}

static void run_chunk(struct writer *w)
{
    if (tail_take(w))
        hand_out(w, STORE_OK, STORE_OK);
    else if (tail_settle(w))
        commit_chunk(w);
    else
        hand_out(w, STORE_IO, STORE_IO);
}

void writer_run(struct writer *w, struct store_op *list)
{
    *w->held_end = list; /* what was held goes first */
    list = w->held;
    w->held = NULL;
    w->held_end = &w->held;
    while (list) {
        uint64_t now_ms = clock_ms(), unused = UINT64_MAX;
        if (tail_due(w, now_ms, &unused))
            (void)!tail_settle(w);          /* should it fail, the chunk shows it */
        if (!w->tail.held && !w->tail.open) /* it may make room, in a transaction of its own */
            room_look(w);
        w->chunk_len = 0;
        for (; list && w->chunk_len < w->chunk_max; list = list->next)
            w->chunk[w->chunk_len++] = list;
        run_chunk(w);
    }
}

/* Waits for work, for somebody who wants data.mdb settled, or until then. NULL with `last` set: nothing more will come.
 */
static struct store_op *take(struct writer *w, uint64_t until_ms)
{
    struct timespec until = {(time_t)(until_ms / 1000), (long)(until_ms % 1000) * 1000000};
    pthread_mutex_lock(&w->queue_lock);
    int rc = 0;
    while (!w->queue && !w->closing && !w->settle_asked && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&w->queue_filled, &w->queue_lock, &until);
    struct store_op *list = w->queue;
    w->queue = NULL;
    w->queue_end = &w->queue;
    w->last = w->closing;
    pthread_mutex_unlock(&w->queue_lock);
    return list;
}

/* Who is woken in the middle of a worker's turn need not run before its end: by then more has come. Where they share a
 * core, a batch is larger so, and each operation cheaper. Without it all is as right. */
static void batch_scheduling(void)
{
    const struct sched_param none = {0};
    (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
}

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    pthread_setname_np(pthread_self(), "fg-writer");
    batch_scheduling();
    while (!w->last) {
        uint64_t until_ms = w->next_tick_ms;
        if (tail_due(w, clock_ms(), &until_ms))
            (void)!tail_settle(w);
        else
            tail_answer(w);
        struct store_op *list = take(w, until_ms);
        if (list || w->last)
            writer_run(w, list);
        uint64_t now = clock_ms();
        if (now >= w->next_tick_ms && !w->last) {
            writer_tick(w);
            w->next_tick_ms = clock_ms() + TICK_MS;
        }
    }
    if (!w->failing.shown && tail_settle(w))
        room_clock_keep(w);
    tail_stop(w);
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
    if (rc == 0)
        rc = pthread_cond_init(&w->settled, &attr);
    pthread_condattr_destroy(&attr);
    if (rc == 0)
        rc = pthread_mutex_init(&w->queue_lock, NULL);
    if (rc == 0)
        rc = pthread_mutex_init(&w->health_lock, NULL);
    return rc;
}

enum store_error writer_start(struct db *db, const struct store_options *options, const struct leftovers *left,
                              struct unresolved *unresolved, struct writer **out)
{
    *out = NULL;
    struct writer *w = calloc(1, sizeof *w);
    if (!w)
        return STORE_IO;
    w->db = db;
    w->unresolved = unresolved;
    w->options = *options;
    w->options.path = NULL;
    writer_retention(w, options->retain_ms, options->drop_oldest, options->rejected_max);
    w->queue_end = &w->queue;
    w->held_end = &w->held;
    w->chunk_max = CHUNK_OPS;
    w->failing.gone = "store: writing works again";
    w->full.gone = "store: there is room again";
    w->health.in_doubt = left->in_doubt;
    w->health.in_doubt_since_ms = left->oldest_ms;
    w->next_tick_ms = clock_ms() + TICK_MS;
    if (init_locks(w) != 0) {
        free(w);
        return STORE_IO;
    }
    trusted_from(&w->clock, left->clock.trusted_ms, left->clock.lasted_ms);
    room_look(w); /* health is right from the first moment */
    if (options->journal)
        tail_start(w, options->path);
    room_measure(w);
    stats_look(w);
    writer_publish(w);
    if (pthread_create(&w->thread, NULL, writer_main, w) != 0) {
        tail_stop(w);
        free(w);
        return STORE_IO;
    }
    *out = w;
    return STORE_OK;
}

void writer_submit(struct writer *writer, struct store_op *first, struct store_op *last)
{
    pthread_mutex_lock(&writer->queue_lock);
    bool closed = writer->closing;
    if (!closed) {
        if (!writer->queue)
            pthread_cond_signal(&writer->queue_filled);
        *writer->queue_end = first;
        writer->queue_end = &last->next;
    }
    pthread_mutex_unlock(&writer->queue_lock);
    if (closed)
        writer_refuse(first, STORE_CLOSED);
}

void writer_refuse(struct store_op *list, enum store_error error)
{
    struct way_home way = {0};
    for (struct store_op *next; list; list = next) {
        next = list->next;
        fail(list, error);
        bring_home(&way, list);
    }
    bring_home(&way, NULL);
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
    pthread_cond_destroy(&w->settled);
    buffer_free(&w->scratch);
    free(w);
    *writer = NULL;
}

void writer_settle(struct writer *writer)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += SETTLE_PATIENCE_S;
    pthread_mutex_lock(&writer->queue_lock);
    uint64_t before = writer->settlings;
    int rc = 0;
    while (writer->unsettled && writer->settlings == before && rc != ETIMEDOUT) {
        writer->settle_asked = true;
        pthread_cond_signal(&writer->queue_filled);
        rc = pthread_cond_timedwait(&writer->settled, &writer->queue_lock, &until);
    }
    pthread_mutex_unlock(&writer->queue_lock);
}

struct overlay *writer_overlay(struct writer *writer)
{
    return writer->tail.overlay;
}

bool writer_writable(struct writer *writer)
{
    return atomic_load_explicit(&writer->writable, memory_order_acquire);
}

bool writer_roomy(struct writer *writer)
{
    return !atomic_load_explicit(&writer->known_only, memory_order_relaxed);
}

void writer_retention(struct writer *writer, uint64_t retain_ms, bool drop, uint64_t rejected_max)
{
    atomic_store_explicit(&writer->retain_ms, retain_ms, memory_order_relaxed);
    atomic_store_explicit(&writer->drop_oldest, drop, memory_order_relaxed);
    atomic_store_explicit(&writer->rejected_max, rejected_max, memory_order_relaxed);
}

void writer_health(struct writer *writer, struct store_health *out)
{
    pthread_mutex_lock(&writer->health_lock);
    *out = writer->health;
    pthread_mutex_unlock(&writer->health_lock);
}
