/*
 * store/writer_room.c - the writer's part that keeps room in the map: the reserve, drop-oldest, retention.
 *
 * LMDB needs free pages even to delete, and copies every page it changes, so a map that is filled up can't be
 * emptied any more. A reserve is therefore kept from new work (admissions, and records that close no effect): these get
 * STORE_FULL while outcomes still go through, in small chunks, since a chunk's copies come out of the same reserve. So
 * do resets and resolutions: there can't be more of them than there are fences and effects. Raises there can be without
 * end, and they may take half of the reserve only.
 *
 * Above it new keys and drops are refused first, while a tenth of the map is left: a fence stays until it is reset, and
 * whoever may call can make new ones at will, as a stale worker in a loop can make drops. The rest is for current calls
 * of known keys. Rejected records (a ring of their own) shrink before that to next to nothing.
 *
 * Which op may use the reserve, and in which order ops run, is left to writer.c.
 */
#include "store/writer_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define CHUNK_OPS_TIGHT 16   /* most ops in one transaction while new work is refused */
#define PAGES_PER_OP 8       /* pages that an op may copy or add: paths through four trees */
#define RESERVE_DIVISOR 32   /* about 3 per cent of the map are kept from new work */
#define RESERVE_PAGES_MIN 64 /* a few small transactions: a page freed by one can be used by the next but one */
#define PAGES_PER_REMOVAL 4  /* of an audit record: mostly a page of the index */
#define PAGES_PER_EFFECT_PAGE 3
#define EXPIRE_STEPS_IDLE 8
#define EXPIRE_STEPS_FULL 32
#define RING_DIVISOR 8 /* an eighth of the map at most is for rejected records */
#define RING_PAGES_LEAST 16
#define AUDIT_KEPT_DIVISOR 16
#define NEW_KEY_DIVISOR 10 /* with a tenth of the map left no new keys come in */
#define DROP_OPS 256
#define DROP_LEAST 2
#define DROP_PAUSE_MS 1000 /* until it is looked again for what can go: all that is left is unresolved */
#define DROP_STEPS_MAX 64
#define LEAP_TOLD_MS 86400000 /* at a start: less is a stop for a night */
#define SPREE_ODD 100         /* records: of fewer, a tenth goes in the run of things */

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

/* Free pages at which no new keys come in any more: a tenth of the map, and in a small one more than the reserve. */
static uint64_t new_key_pages(const struct db_space *space)
{
    uint64_t part = space->pages / NEW_KEY_DIVISOR, least = reserve_pages(space) + reserve_base(space) / 2;
    return part > least ? part : least;
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
    return db_space(w->db, new_key_pages(out) + CHUNK_OPS * PAGES_PER_OP, out) == STORE_OK;
}

static void tell_dropping(struct writer *w)
{
    if (!w->dropped_some)
        writer_notice(w, STORE_NOTICE_ODD,
                      "store: full: the oldest audit records make room (audit.when_full is drop-oldest)");
    w->dropped_some = true;
}

/* Free pages above the reserve at which dropping ends (it begins at half of that), and at which new work is taken
 * again: at its edge a store must not be full and have room by turns, second after second, as calls that end give back
 * what was kept for their records. No more than look_at_space() counts. */
static uint64_t room_goal(const struct db_space *space)
{
    uint64_t part = reserve_base(space) / 2;
    return part < CHUNK_OPS * PAGES_PER_OP ? part : CHUNK_OPS * PAGES_PER_OP;
}

/* Rejected records give way to all others: in a store with little room they get no more than a token of it. */
static uint64_t ring_pages(const struct writer *w, const struct db_space *space, bool tight)
{
    uint64_t wanted = atomic_load_explicit(&w->rejected_max, memory_order_relaxed) / space->page_bytes;
    uint64_t most = space->pages / RING_DIVISOR;
    if (wanted == 0 || wanted > most)
        wanted = most;
    if (tight || wanted < RING_PAGES_LEAST)
        wanted = RING_PAGES_LEAST;
    return wanted;
}

static size_t trim_ring(struct writer *w, struct batch *batch, uint64_t before_ms, size_t limit)
{
    bool full = batch->txn.error == 0 && rejected_pages(&batch->txn) > w->ring_pages;
    size_t removed = batch_trim_rejected(batch, before_ms, w->ring_pages, limit);
    if (full && !w->ring_told) {
        w->ring_told = true;
        writer_notice(w, STORE_NOTICE_ODD,
                      "store: the oldest rejected records make room for new ones (audit.rejected_max)");
    }
    return removed;
}

/* Where what goes with the chunks was not enough (a smaller max_size than before, a burst of large records), nothing
 * goes on until there is room again. */
static void drop_oldest(struct writer *w, struct db_space *space)
{
    tell_dropping(w);
    for (int step = 0; step < DROP_STEPS_MAX && spare_pages(space) < room_goal(space); step++) {
        struct batch batch;
        writer_begin(w, &batch);
        if (batch_drop_oldest(&batch, DROP_OPS) < DROP_LEAST) { /* no more than the record of it adds */
            db_abort(&batch.txn);
            w->drop_again_ms = clock_ms() + DROP_PAUSE_MS;
            return;
        }
        if (writer_commit(w, &batch, 0) != STORE_OK || !look_at_space(w, space))
            return;
    }
}

/* New keys stay for good, and drops have no end, so they leave the last tenth to current calls of known keys. */
static void look_at_rest(struct writer *w, const struct db_space *space)
{
    bool was = !writer_roomy(w);
    uint64_t level = new_key_pages(space);
    bool known_only = space->free < (was ? level + room_goal(space) : level);
    atomic_store_explicit(&w->known_only, known_only, memory_order_relaxed);
    if (known_only && !was)
        writer_notice(
            w, STORE_NOTICE_ODD,
            "store: less than a tenth of store.max_size is left: calls that would make a new key and stale ones "
            "are store-unavailable, current calls of known keys go on (fences reset, retention, a larger max_size)");
    if (was && !known_only)
        writer_notice(w, STORE_NOTICE_FINE, "store: there is room for new keys again");
}

/* The oldest audit records go before new keys are refused, but for the last of them: else new keys, which stay, could
 * push out the whole audit. */
static bool should_drop(const struct writer *w, const struct db_space *space)
{
    uint64_t goal = room_goal(space) / (w->dropping ? 1 : 2);
    return spare_pages(space) < goal ||
           (space->audit > space->pages / AUDIT_KEPT_DIVISOR && space->free < new_key_pages(space) + goal);
}

void room_look(struct writer *w)
{
    struct db_space space;
    if (!look_at_space(w, &space))
        return; /* the chunk's own transaction will tell why */
    bool may_drop = atomic_load_explicit(&w->drop_oldest, memory_order_relaxed);
    if (may_drop && clock_ms() >= w->drop_again_ms &&
        spare_pages(&space) < (w->refuse_new ? room_goal(&space) : PAGES_PER_OP))
        drop_oldest(w, &space);
    w->dropping = may_drop && should_drop(w, &space);
    look_at_rest(w, &space);
    w->ring_pages = ring_pages(w, &space, space.free < new_key_pages(&space) + room_goal(&space));
    w->expire_least = (size_t)reserve_base(&space) / PAGES_PER_REMOVAL;
    uint64_t ops = spare_pages(&space) / PAGES_PER_OP;
    w->spare_ops = (size_t)ops;
    w->refuse_new = ops == 0 || (w->refuse_new && spare_pages(&space) < room_goal(&space));
    w->refuse_raise = w->refuse_new && space.free + reserve_base(&space) / 2 < reserve_pages(&space);
    if (w->refuse_new) {
        writer_trouble(w, &w->full,
                       "store: full: new calls are refused until there is room (retention, a larger max_size)");
        ops = CHUNK_OPS_TIGHT;
    }
    w->chunk_max = ops < CHUNK_OPS ? (size_t)ops : CHUNK_OPS;
}

/* Retention. */

static uint64_t boottime_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void tell_leap(struct writer *w, bool start, uint64_t leapt_ms)
{
    char line[240];
    if (leapt_ms == 0 || (start && leapt_ms < LEAP_TOLD_MS)) /* it was not running for a while */
        return;
    (void)snprintf(line, sizeof line,
                   "store: the clock leapt ahead by %" PRIu64 " hours%s; retention goes by the old time until it has "
                   "stayed so for a day",
                   leapt_ms / 3600000, start ? " since the store was used last" : "");
    writer_notice(w, STORE_NOTICE_ODD, line);
}

void room_clock_keep(struct writer *w)
{
    struct batch batch;
    uint64_t boot_ms = boottime_ms(), leapt_ms;
    bool start = !w->clock.known;
    w->clock_kept_ms = clock_ms();
    writer_begin(w, &batch);
    uint64_t now_ms = trusted_ms(&w->clock, batch.now_ms, boot_ms, &leapt_ms);
    tell_leap(w, start, leapt_ms);
    batch_keep_clock(&batch, (struct kept_clock){now_ms, trusted_lasted_ms(&w->clock, boot_ms)});
    (void)!batch_commit(&batch); /* should it fail, the next start trusts an earlier time */
}

uint64_t room_expiry(struct writer *w, uint64_t now_ms)
{
    uint64_t retain_ms = atomic_load_explicit(&w->retain_ms, memory_order_relaxed), leapt_ms;
    bool start = !w->clock.known;
    now_ms = trusted_ms(&w->clock, now_ms, boottime_ms(), &leapt_ms);
    tell_leap(w, start, leapt_ms);
    return retain_ms != 0 && now_ms > retain_ms ? now_ms - retain_ms : 0;
}

/* More than a tenth of all records in one go: a wrong clock, or a shorter audit.retain; or old records after a long
 * stop. Once for as long as there is more. */
static void watch_spree(struct writer *w, struct batch *batch, size_t removed, size_t limit)
{
    char line[240];
    if (removed > 0 && w->spree.removed == 0)
        w->spree.of = db_entries(&batch->txn, DB_AUDIT) + removed;
    w->spree.removed += removed;
    if (removed > 0 && !w->spree.told && w->spree.removed > w->spree.of / 10) {
        w->spree.told = true;
        (void)snprintf(line, sizeof line,
                       "store: retention removes more than a tenth of the audit at once, %" PRIu64 " of %" PRIu64
                       " records so far: are audit.retain and the clock right?",
                       w->spree.removed, w->spree.of);
        writer_notice(w, w->spree.of < SPREE_ODD ? STORE_NOTICE_FINE : STORE_NOTICE_ODD, line);
    }
    if (removed < limit) {
        w->spree.of = w->spree.removed = 0;
        w->spree.told = false;
    }
}

/* What is older than audit.retain, up to `limit`, and rejected records for which there is no room; how many. */
static size_t expire(struct writer *w, struct batch *batch, size_t limit)
{
    uint64_t before_ms = room_expiry(w, batch->now_ms);
    size_t removed = batch_expire(batch, before_ms, limit);
    if (batch->txn.error == 0)
        watch_spree(w, batch, removed, limit);
    removed += trim_ring(w, batch, before_ms, limit);
    return removed;
}

/* Where there is little room the deletions draw on the reserve: a store that is full of old records must get away from
 * its edge faster than new ones come in. */
static size_t expire_limit(const struct writer *w, size_t wanted)
{
    size_t most = w->chunk_max > w->expire_least ? w->chunk_max : w->expire_least;
    return wanted < most ? wanted : most;
}

/* Retention and dropping ride on the chunk, twice as fast as records come in: they must keep up, and must not hold up.
 */
size_t room_make(struct writer *w, struct batch *batch, size_t applied)
{
    size_t wanted = EXPIRE_OPS + 2 * applied;
    size_t removed = expire(w, batch, expire_limit(w, wanted));
    if (!w->dropping)
        return removed;
    tell_dropping(w);
    return removed + batch_drop_oldest(batch, wanted);
}

void room_expire_idle(struct writer *w)
{
    size_t limit = expire_limit(w, EXPIRE_OPS), removed = limit;
    int steps = w->refuse_new ? EXPIRE_STEPS_FULL : EXPIRE_STEPS_IDLE;
    for (int step = 0; step < steps && removed >= limit && (w->refuse_new || writer_idle(w)); step++) {
        struct batch batch;
        writer_begin(w, &batch);
        removed = expire(w, &batch, limit);
        if (removed == 0) {
            db_abort(&batch.txn);
            return;
        }
        if (writer_commit(w, &batch, 0) != STORE_OK)
            return;
    }
}

void room_measure(struct writer *w)
{
    struct db_space space;
    if (db_space(w->db, UINT64_MAX, &space) != STORE_OK)
        return;
    pthread_mutex_lock(&w->health_lock);
    w->health.max_bytes = space.pages * space.page_bytes;
    w->health.free_pages = space.free;
    w->health.used_bytes = (space.pages - space.free) * space.page_bytes;
    pthread_mutex_unlock(&w->health_lock);
}
