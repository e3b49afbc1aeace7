/*
 * store/writer_tick.c - the writer's part that tells how it is: health, what an operator hears, and what is due once a
 * second.
 *
 * Room and retention are writer_room.c's.
 */
#include "store/writer_int.h"

#include <stdio.h>

#define READER_CHECK_TICKS 60
#define CLOCK_KEPT_MS (10 * 60 * 1000)

void writer_publish(struct writer *w)
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

void writer_trouble(struct writer *w, struct trouble *is, const char *text)
{
    is->seen = true;
    if (is->shown)
        return;
    is->shown = true;
    writer_publish(w);
    writer_notice(w, STORE_NOTICE_TROUBLE, text);
}

static void trouble_tick(struct writer *w, struct trouble *is)
{
    if (is->shown && !is->seen) {
        is->shown = false;
        writer_notice(w, STORE_NOTICE_FINE, is->gone);
    }
    is->seen = false;
}

void writer_trouble_write(struct writer *w, const char *why)
{
    char line[200];
    (void)snprintf(line, sizeof line, "store: write failed: %s; new calls are refused until it works again", why);
    writer_trouble(w, &w->failing, line);
    if (db_dead(w->db))
        writer_publish(w); /* the reason has changed */
}

/* What is due once a second. */

/* While commits fail no call may come in that would try one, and readiness would never come back. */
static void probe(struct writer *w)
{
    struct batch batch;
    writer_begin(w, &batch);
    batch_touch(&batch);
    (void)writer_commit(w, &batch, 0);
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
        writer_notice(w, STORE_NOTICE_TROUBLE, line); /* it was in trouble before, of a kind that may pass */
    w->end_told = true;
    writer_trouble(w, &w->failing, line);
}

/* Changes go to the journal no longer when it is not the one that the next start finds. */
static void check_journal(struct writer *w)
{
    struct tail *tail = &w->tail;
    if (tail->journal == NULL || tail->spoilt || journal_in_place(tail->journal))
        return;
    tail->spoilt = true;
    writer_notice(
        w, STORE_NOTICE_ODD,
        "store: the file journal was removed or replaced; until a restart every change is committed by itself");
}

/* What makes changes of its own, in transactions of its own. */
static void tend(struct writer *w)
{
    if (w->held)
        writer_run(w, NULL);
    if (!tail_settle(w)) /* where that went; what follows begins transactions of its own */
        return;
    if (w->failing.shown && !w->failing.seen)
        probe(w);
    if (!w->failing.shown)
        room_expire_idle(w);
    if (!w->failing.shown && (w->clock_kept_ms == 0 || clock_ms() - w->clock_kept_ms > CLOCK_KEPT_MS))
        room_clock_keep(w);
    room_look(w);
}

void writer_tick(struct writer *w)
{
    check_place(w);
    check_journal(w);
    if (w->ticks++ % READER_CHECK_TICKS == 0)
        (void)db_clear_dead_readers(w->db);
    if (tail_settle(w))
        tend(w);
    room_measure(w);
    stats_look(w);
    trouble_tick(w, &w->failing);
    trouble_tick(w, &w->full);
    writer_publish(w);
}
