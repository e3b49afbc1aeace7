/*
 * store/recover.c - the tail of a gateway that was killed, and of one that runs in another process; see tail.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

enum store_error tail_look_for_data(const char *folder, char *why, size_t why_cap)
{
    int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return STORE_OK; /* who opens the store says why */
    bool lost = fstatat(fd, "data.mdb", &st, 0) != 0 && errno == ENOENT &&
                fstatat(fd, JOURNAL_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
    close(fd);
    if (!lost)
        return STORE_OK;
    (void)snprintf(why, why_cap,
                   "store %s: there is a `" JOURNAL_NAME
                   "` and no data.mdb: the fences are gone. Put data.mdb back, or "
                   "restore a backup; for a new, empty store remove the journal, too",
                   folder);
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

/* With the journal open. *whole: it is all there, and all was made. */
static enum store_error replay(struct db_txn *txn, struct journal *journal, uint64_t seq, uint64_t *batches,
                               bool *whole)
{
    uint64_t last;
    enum store_error error = journal_read(journal, seq, &last);
    if (error == STORE_OK)
        *whole = !journal_goes_on(journal, last) && change_all(txn, journal, last, batches);
    return error;
}

enum store_error tail_recover(struct db *db, const char *folder, uint64_t *batches, char *why, size_t why_cap)
{
    struct db_txn txn;
    struct journal *journal;
    bool whole = true;
    *batches = 0;
    db_begin(db, &txn);
    struct db_journal is = db_journal(&txn);
    if (txn.error == 0 && !db_journal_lives(is)) {
        db_abort(&txn);
        return journal_is_of_another(folder, is.id) ? say_other(folder, why, why_cap) : STORE_OK;
    }
    enum store_error error = db_txn_error(&txn);
    if (error == STORE_OK)
        error = journal_find(folder, is.id, &journal);
    if (error == STORE_NOT_FOUND) {
        db_abort(&txn);
        return say_missing(folder, why, why_cap);
    }
    if (error == STORE_OK) {
        error = replay(&txn, journal, is.seq, batches, &whole);
        journal_close(&journal);
    }
    if (!whole) {
        db_abort(&txn);
        return say_damaged(folder, why, why_cap);
    }
    db_put_journal(&txn, (struct db_journal){is.id, JOURNAL_DONE}); /* in the same commit: done once */
    if (error == STORE_OK)
        error = db_commit(&txn);
    else
        db_abort(&txn);
    if (error != STORE_OK)
        (void)snprintf(why, why_cap, "store %s: cannot bring the journal into data.mdb: %s", folder,
                       error == STORE_FULL ? "no room; raise store.max_size or free disk space"
                                           : "reading or writing failed; is the disk full?");
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
    bool read = journal_read(journal, is.seq, last) == STORE_OK && (served || !journal_goes_on(journal, *last));
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
