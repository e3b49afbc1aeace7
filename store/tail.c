/*
 * store/tail.c - see tail.h.
 *
 * When something goes wrong in the transaction that is open (a change fails, the journal can't take the batch), what it
 * holds of this chunk can't be taken out of it again. So it is given up and made anew from the batches that the journal
 * keeps in memory. The journal is given up for good after its first failed write or sync: what of it is on the disk
 * nobody knows then, and a store that commits every chunk by itself is slower, not less safe. data.mdb ceases to name
 * it with the commit that takes over what it has, and before any other.
 *
 * After a settling that failed the changes are still durable, in the journal, but not in a state that decisions can be
 * made on, so there are none until it works: the caller fails the chunk. It can't be for want of room in the map, of
 * which the transaction gets a part of what is free; it can be for a full disk.
 */
#include "store/tail.h"

#include <errno.h>
#include <string.h>

#include "store/change.h"
#include "store/folder.h"
#include "store/writer_int.h"

#define SETTLE_IDLE_MS 50 /* after the first batch, when nothing more waits and none has come for a while */
#define QUIET_MS 5
#define SETTLE_BUSY_MS 250 /* whatever waits */
#define AGAIN_MS 1000
#define ALONE_US (QUIET_MS * UINT64_C(1000))
#define DISK_PART 16                    /* the journal takes no more of the disk's free room */
#define OPS_MAX 16384                   /* most operations in the transaction */
#define OPS_WORTH 1536                  /* with room for fewer than that it does not pay */
#define OPS_LEAST CHUNK_OPS             /* with room for fewer than that it is time: the next chunk might not fit */
#define SPARE_PART 4                    /* of the free room, in operations */
#define REMOVALS_PER_OP 2               /* what retention removes takes room, too; see PAGES_PER_REMOVAL */
#define BYTES_LEAST (JOURNAL_BYTES / 4) /* of room in the journal, else it is time */

static void give_up_transaction(struct tail *tail)
{
    if (tail->open)
        db_abort(&tail->batch.txn);
    tail->open = false;
}

static bool open_transaction(struct writer *w)
{
    struct tail *tail = &w->tail;
    writer_begin(w, &tail->batch);
    tail->open = tail->batch.txn.error == 0;
    return tail->open;
}

/* The transaction again, with what the journal has and data.mdb has not. */
static bool make_anew(struct writer *w)
{
    struct tail *tail = &w->tail;
    struct db_txn *txn = &tail->batch.txn;
    size_t at = 0;
    uint64_t seq = 0;
    struct slice changes = {0};
    give_up_transaction(tail);
    if (!open_transaction(w))
        return false;
    while (changes.len == 0 && journal_next(tail->journal, &at, &seq, &changes)) {
        struct change change;
        while (txn->error == 0 && change_read(&changes, &change))
            db_change(txn, &change);
    }
    if (txn->error == 0 && (changes.len > 0 || at != journal_size(tail->journal)))
        txn->error = EIO; /* memory was damaged: a part of it is worse than nothing */
    if (txn->error != 0) {
        give_up_transaction(tail);
        return false;
    }
    batch_resume(&tail->batch);
    return true;
}

static void undo(struct writer *w)
{
    journal_drop(w->tail.journal);
    if (w->tail.held)
        (void)make_anew(w); /* what failed shows in tail_settle() */
    else
        give_up_transaction(&w->tail);
}

static bool begin(struct writer *w)
{
    struct tail *tail = &w->tail;
    if (tail->held)
        return tail->open;
    size_t spare = w->spare_ops / SPARE_PART;
    tail->room = spare < OPS_MAX ? spare : OPS_MAX;
    return tail->room >= OPS_WORTH && (tail->open || open_transaction(w));
}

/* A change that comes alone is committed by itself: its settling would follow anyway. */
static bool is_alone(struct writer *w)
{
    uint64_t now_us = clock_us(), before_us = w->tail.chunk_us;
    w->tail.chunk_us = now_us;
    return !w->tail.held && w->chunk_len == 1 && now_us - before_us > ALONE_US;
}

static bool may_take(struct writer *w)
{
    const struct tail *tail = &w->tail;
    return tail->journal != NULL && !tail->spoilt && !w->refuse_new && !w->dropping && !w->failing.shown &&
           !is_alone(w);
}

static size_t change_all(struct writer *w)
{
    struct batch *batch = &w->tail.batch;
    batch_resume(batch);
    size_t applied = writer_apply(w, batch, false), removed = 0;
    if (batch->txn.error == 0)
        removed = room_make(w, batch, applied);
    batch_finish(batch);
    w->tail.spent = w->chunk_len + removed / REMOVALS_PER_OP;
    return applied;
}

static bool keep(struct writer *w)
{
    struct tail *tail = &w->tail;
    enum store_error error = journal_write(tail->journal, tail->seq + 1);
    if (error == STORE_FULL)
        return false; /* too large for what is left of it */
    tail->seq++;      /* of a failed one too: should it be there all the same, it is passed over */
    if (error == STORE_OK)
        return true;
    tail->spoilt = true;
    writer_notice(
        w, STORE_NOTICE_ODD,
        "store: writing the journal failed; until a restart every change is committed by itself, more slowly");
    return false;
}

static void note_kept(struct writer *w)
{
    struct tail *tail = &w->tail;
    tail->kept_ms = clock_ms();
    if (!tail->held)
        tail->since_ms = tail->kept_ms;
    tail->held = true;
    tail->room -= tail->spent < tail->room ? tail->spent : tail->room;
    overlay_take(tail->overlay, journal_newest(tail->journal));
    pthread_mutex_lock(&w->queue_lock);
    w->unsettled = true; /* before anybody is told */
    pthread_mutex_unlock(&w->queue_lock);
}

bool tail_take(struct writer *w)
{
    struct tail *tail = &w->tail;
    if (!may_take(w) || !begin(w) || w->chunk_len > tail->room)
        return false;
    struct db_txn *txn = &tail->batch.txn;
    txn->log = journal_begin(tail->journal);
    if (txn->log == NULL)
        return false;
    txn->dirty = false;
    size_t applied = change_all(w);
    txn->log = NULL;
    if (txn->error == 0 && !txn->dirty) {
        journal_drop(tail->journal);
        if (!tail->held)
            give_up_transaction(tail); /* others may want to write */
        writer_account(w, &tail->batch, 0, applied);
        return true;
    }
    uint64_t committing_us = clock_us();
    if (txn->error != 0 || !keep(w)) {
        undo(w);
        return false;
    }
    note_kept(w);
    writer_account(w, &tail->batch, committing_us, applied);
    return true;
}

static void told_settled(struct writer *w, bool all)
{
    pthread_mutex_lock(&w->queue_lock);
    w->unsettled = w->unsettled && !all;
    w->settlings++; /* a failed one too: nobody waits for what may take long */
    w->settle_asked = false;
    pthread_cond_broadcast(&w->settled);
    pthread_mutex_unlock(&w->queue_lock);
}

void tail_answer(struct writer *w)
{
    pthread_mutex_lock(&w->queue_lock);
    bool asked = w->settle_asked;
    pthread_mutex_unlock(&w->queue_lock);
    if (asked)
        told_settled(w, false);
}

static bool commit(struct writer *w)
{
    struct tail *tail = &w->tail;
    if (!tail->open && !make_anew(w)) {
        writer_trouble_write(w, db_txn_error_text(&tail->batch.txn));
        return false;
    }
    if (tail->spoilt)
        db_put_journal(&tail->batch.txn, db_journal_done(tail->id));
    else
        db_put_journal(&tail->batch.txn, (struct db_journal){tail->id, tail->seq, journal_place(tail->journal)});
    enum store_error error = db_commit(&tail->batch.txn);
    tail->open = false;
    if (error != STORE_OK)
        writer_trouble_write(w, db_txn_error_text(&tail->batch.txn));
    else if (tail->spoilt)
        tail->named = false;
    return error == STORE_OK;
}

/* Before a chunk is committed without a journal that is spoilt: the batch that failed may be in it, and the next start
 * would make its changes again over what is newer, and take fences back. */
static bool disown_journal(struct writer *w)
{
    struct tail *tail = &w->tail;
    struct db_txn txn;
    if (!tail->spoilt || !tail->named)
        return true;
    db_begin(w->db, &txn);
    db_put_journal(&txn, db_journal_done(tail->id));
    tail->named = db_commit(&txn) != STORE_OK;
    if (tail->named)
        writer_trouble_write(w, db_txn_error_text(&txn));
    return !tail->named;
}

bool tail_settle(struct writer *w)
{
    struct tail *tail = &w->tail;
    if (!tail->held) {
        give_up_transaction(tail); /* it has changed nothing */
        return disown_journal(w);
    }
    bool all = commit(w);
    if (all) {
        tail->held = false;
        journal_restart(tail->journal);
        overlay_clear(tail->overlay);
    } else {
        tail->again_ms = clock_ms() + AGAIN_MS;
    }
    told_settled(w, all);
    return all;
}

/* Right after a batch the queue is empty under load, too: those who had an answer are about to ask again. */
static uint64_t settle_at(const struct tail *tail, bool idle)
{
    uint64_t busy = tail->since_ms + SETTLE_BUSY_MS, quiet = tail->kept_ms + QUIET_MS;
    uint64_t at = tail->since_ms + SETTLE_IDLE_MS;
    if (!idle)
        return busy;
    at = at < quiet ? quiet : at;
    return at < busy ? at : busy;
}

bool tail_due(struct writer *w, uint64_t now_ms, uint64_t *until_ms)
{
    const struct tail *tail = &w->tail;
    if (!tail->held)
        return false;
    pthread_mutex_lock(&w->queue_lock);
    bool asked = w->settle_asked, idle = w->queue == NULL;
    pthread_mutex_unlock(&w->queue_lock);
    uint64_t at = settle_at(tail, idle);
    if (asked || tail->room < OPS_LEAST || journal_room(tail->journal) < BYTES_LEAST)
        at = now_ms;
    at = at < tail->again_ms ? tail->again_ms : at;
    *until_ms = at < *until_ms ? at : *until_ms;
    return at <= now_ms;
}

/* The number in data.mdb, which comes after the file: what is named there is there. */
static enum store_error name_journal(struct writer *w, struct db_journal journal)
{
    struct db_txn txn;
    db_begin(w->db, &txn);
    db_put_journal(&txn, journal);
    return db_commit(&txn);
}

/* On a small disk it would take what the changes themselves need, a small store would never use it. */
static bool pays(struct writer *w)
{
    uint64_t free_bytes, size_bytes;
    return w->spare_ops / SPARE_PART >= OPS_WORTH &&
           (!db_disk(w->db, &free_bytes, &size_bytes) || free_bytes / DISK_PART >= JOURNAL_BYTES);
}

void tail_start(struct writer *w, const char *folder)
{
    struct tail *tail = &w->tail;
    char why[256]; /* is not told: it would be the same in each case */
    if (!pays(w))
        return;
    tail->overlay = overlay_new();
    enum store_error error = tail->overlay == NULL ? STORE_IO : journal_make(folder, &tail->journal, &tail->id);
    if (error == STORE_OK)
        error = folder_sync(folder, why, sizeof why); /* a file that is named in data.mdb must not lose its own name */
    if (error == STORE_OK)
        error = name_journal(w, (struct db_journal){tail->id, 0, JOURNAL_NOWHERE});
    tail->named = error == STORE_OK;
    if (error == STORE_OK)
        return;
    journal_close(&tail->journal);
    writer_notice(w, STORE_NOTICE_ODD,
                  "store: cannot make a journal; every change is committed by itself, more slowly");
}

void tail_stop(struct writer *w)
{
    struct tail *tail = &w->tail;
    const struct db_journal done = db_journal_done(tail->id);
    if (tail->journal != NULL && tail_settle(w) && tail->named && name_journal(w, done) == STORE_OK)
        journal_remove(tail->journal); /* should either fail, the next start finds nothing to do */
    give_up_transaction(tail);
    journal_close(&tail->journal);
    overlay_free(&tail->overlay);
}
