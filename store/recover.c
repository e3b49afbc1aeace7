/*
 * store/recover.c - the tail of a gateway that was killed, and of one that runs in another process; see tail.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "store/change.h"
#include "store/clock.h"
#include "store/folder.h"
#include "store/tail.h"

#define WAIT_MS 2000
#define PAUSE_US 2000

static enum store_error say_missing(const char *folder, char *why, size_t why_cap)
{
    (void)snprintf(why, why_cap,
                   "store %s: the journal that belongs to data.mdb is missing or another; what was recorded last is in "
                   "it. Put the file `" JOURNAL_NAME "` back, or restore a backup",
                   folder);
    return STORE_FORMAT;
}

static enum store_error say_other(const char *folder, char *why, size_t why_cap)
{
    (void)snprintf(
        why, why_cap,
        "store %s: the `" JOURNAL_NAME "` holds changes of a gateway that was killed, and data.mdb is older "
        "or of another store. Put the data.mdb back that was there with it; only if that is lost and this one "
        "is meant, remove the journal",
        folder);
    return STORE_FORMAT;
}

static enum store_error say_damaged(const char *folder, char *why, size_t why_cap)
{
    (void)snprintf(
        why, why_cap,
        "store %s: the journal is damaged, or data.mdb is older than it: not all that was recorded is there. "
        "Restore a backup",
        folder);
    return STORE_FORMAT;
}

static enum store_error say_older(const char *folder, uint64_t seq, char *why, size_t why_cap)
{
    (void)snprintf(why, why_cap,
                   "store %s: the `" JOURNAL_NAME "` lacks batch %" PRIu64
                   ", which data.mdb names: it is older than data.mdb, or damaged, and what was acknowledged last may "
                   "be in neither. Put the journal back that was there with data.mdb, or restore a backup",
                   folder, seq);
    return STORE_FORMAT;
}

/* False: something in it is no change, or it has none of the batches up to `last`. */
static bool change_all(struct db_txn *txn, const struct journal *journal, uint64_t last, uint64_t *batches)
{
    struct slice changes = {0};
    size_t at = 0;
    uint64_t seq = last;
    while (txn->error == 0 && changes.len == 0 && journal_next(journal, &at, &seq, &changes)) {
        struct change change;
        while (txn->error == 0 && change_read(&changes, &change))
            db_change(txn, &change);
        ++*batches;
    }
    return txn->error != 0 || (changes.len == 0 && seq == last);
}

static enum store_error find(const char *folder, uint64_t id, struct journal **out, char *why, size_t why_cap)
{
    enum store_error error = journal_find(folder, id, out);
    if (error == STORE_NOT_FOUND)
        return say_missing(folder, why, why_cap);
    if (error != STORE_OK)
        (void)snprintf(why, why_cap, "store %s: the `" JOURNAL_NAME "` that belongs to data.mdb cannot be opened",
                       folder);
    return error;
}

/* With the journal open; errors of the journal are in `why`. */
static enum store_error replay(struct db_txn *txn, struct journal *journal, const char *folder, struct db_journal is,
                               struct tail_found *found, char *why, size_t why_cap)
{
    uint64_t last;
    if (journal_read(journal, is.seq, is.place, &last) != STORE_OK)
        return say_older(folder, is.seq, why, why_cap);
    if (journal_goes_on(journal, last) || !change_all(txn, journal, last, &found->batches))
        return say_damaged(folder, why, why_cap);
    found->torn = journal_torn(journal, last);
    db_put_journal(txn, db_journal_done(is.id)); /* in the same commit: done once */
    return STORE_OK;
}

static enum store_error finish(struct db_txn *txn, const char *folder, char *why, size_t why_cap)
{
    enum store_error error = db_commit(txn);
    if (error != STORE_OK)
        (void)snprintf(why, why_cap, "store %s: cannot bring the journal into data.mdb: %s", folder,
                       error == STORE_FULL ? "no room; raise store.max_size or free disk space"
                                           : "reading or writing failed; is the disk full?");
    return error;
}

enum store_error tail_recover(struct db *db, const char *folder, struct tail_found *found, char *why, size_t why_cap)
{
    struct db_txn txn;
    struct journal *journal = NULL;
    *found = (struct tail_found){0};
    db_begin(db, &txn);
    struct db_journal is = db_journal(&txn);
    if (txn.error != 0)
        return finish(&txn, folder, why, why_cap);
    enum store_error error = STORE_OK;
    bool lives = db_journal_lives(is);
    if (!lives && journal_is_of_another(folder, is.id))
        error = say_other(folder, why, why_cap);
    if (lives)
        error = find(folder, is.id, &journal, why, why_cap);
    if (error == STORE_OK && lives)
        error = replay(&txn, journal, folder, is, found, why, why_cap);
    journal_close(&journal);
    if (error == STORE_OK && lives)
        return finish(&txn, folder, why, why_cap);
    db_abort(&txn);
    return error;
}

/* What data.mdb names now. False: it can't be read. */
static bool look(struct db *db, struct db_journal *out)
{
    struct db_txn txn;
    if (db_read_open(db, &txn) != STORE_OK)
        return false;
    db_read_begin(&txn);
    *out = db_journal(&txn);
    bool read = db_read_end(&txn) == STORE_OK;
    db_read_close(&txn);
    return read;
}

static bool newest(const char *folder, struct db_journal is, bool served, uint64_t *last)
{
    struct journal *journal;
    if (journal_find(folder, is.id, &journal) != STORE_OK)
        return false;
    bool read =
        journal_read(journal, is.seq, is.place, last) == STORE_OK && (served || !journal_goes_on(journal, *last));
    journal_close(&journal);
    return read;
}

bool tail_wait(struct db *db, const char *folder)
{
    const struct timespec pause = {0, PAUSE_US * 1000L};
    struct db_journal is, wanted = {0};
    for (uint64_t end_us = clock_us() + WAIT_MS * 1000; clock_us() < end_us; nanosleep(&pause, NULL)) {
        bool served = folder_served(folder); /* before the look: who ends meanwhile has settled */
        if (!look(db, &is))
            return false;
        if (!db_journal_lives(is))
            return served || !journal_is_of_another(folder, is.id);
        if (is.id == wanted.id && is.seq >= wanted.seq)
            return true;
        if (is.id != wanted.id) {
            wanted = is;
            if (!newest(folder, is, served, &wanted.seq))
                wanted.id = 0; /* a gateway that is just starting; or it is gone */
            else if (wanted.seq == is.seq)
                return true;
        }
        if (!served && !folder_served(folder)) /* one that has come meanwhile is waited for */
            return false;
    }
    return false;
}
