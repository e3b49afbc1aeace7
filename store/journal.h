/*
 * store/journal.h - the file that makes changes durable before data.mdb has them: one write and one sync for a batch,
 * where LMDB's commit takes two syncs and a write for every page that changed.
 *
 * The file has a fixed size and is filled when it is made, so that a sync has nothing but data to write. Its first
 * block says whose it is: data.mdb names the same number as long as there may be something in the journal that it does
 * not have. Batches follow, each with its changes (change.h), a sequence number one above the one before, and a check
 * sum; each begins at a block of its own, so that what was synced once is not written again.
 *
 * The batches since data.mdb was settled are a run; they lie one after the other. data.mdb names the number and the
 * place of the last batch that it has, the last one of the run before. That batch stays whole until a batch with a
 * higher number is synced: the first batch of a run goes to the beginning of the file if it ends before that one, else
 * right behind it. (At the beginning is room for it if the last batch lies farther back than the new one is long.) So
 * after any crash the journal holds the batch that data.mdb names or the next one, and the next one lies at the
 * beginning or behind the named one. (A batch has half of the file at most, so a small one finds a place.) A journal
 * that holds neither is older than data.mdb, and what both lack was acknowledged: the start is refused. What lies
 * behind a run is older, which its sequence numbers show.
 *
 * In memory are the same bytes as in the file: those of the run.
 *
 * One thread. What goes into it and when data.mdb gets it is tail.c's.
 */
#ifndef FENCEGATE_STORE_JOURNAL_H
#define FENCEGATE_STORE_JOURNAL_H

#include "store/buffer.h"
#include "store/store.h"

#define JOURNAL_NAME "journal"
#define JOURNAL_BYTES ((size_t)8 << 20) /* of batches, beside the first block */
#define JOURNAL_NOWHERE UINT64_MAX      /* place of a batch that was never written, or is not known */

struct journal;

/* Opens the file in `folder`, and makes or fills it where it is not there or not whole, under a new number *id.
 * STORE_FULL: no room. */
enum store_error journal_make(const char *folder, struct journal **out, uint64_t *id)
    __attribute__((warn_unused_result));
/* Opens the file with that number, for journal_read(). STORE_NOT_FOUND: there is none, or it is another. */
enum store_error journal_find(const char *folder, uint64_t id, struct journal **out)
    __attribute__((warn_unused_result));
void journal_close(struct journal **journal);

/* Is the file still the one in the folder? */
bool journal_in_place(const struct journal *journal);

/* Where the next batch's changes are to be added. Good until the next call but this one. NULL: no memory. */
struct buffer *journal_begin(struct journal *journal);
/* Writes and syncs what was added since journal_begin(), as batch number `seq`. STORE_FULL: it does not fit, nothing
 * was written. After STORE_IO the file is not to be trusted with more. */
enum store_error journal_write(struct journal *journal, uint64_t seq) __attribute__((warn_unused_result));
/* Where the batch that was written last lies, also after journal_restart(): data.mdb names it with the number. */
uint64_t journal_place(const struct journal *journal);
void journal_drop(struct journal *journal);                 /* forgets what was added since journal_begin() */
struct slice journal_newest(const struct journal *journal); /* changes of the batch that was written last */

/* Is there a file whose batches belong to another data.mdb than the one that names `id` (0: none), or to a later state
 * of it? Not when it has none: a start that was cut leaves such a file. */
bool journal_is_of_another(const char *folder, uint64_t id);
/* Had the file in this folder a number? It gets one only beside a data.mdb. False: it has nothing but zeroes, of a
 * start that was cut, or there is no file. True also when it can't be read. */
bool journal_used(const char *folder);
void journal_remove(const struct journal *journal); /* its file */
void journal_forget(const char *folder);            /* the file in this folder, whosever it is */

bool journal_empty(const struct journal *journal);
size_t journal_size(const struct journal *journal); /* bytes of the run */
size_t journal_room(const struct journal *journal); /* bytes that it may still take */
void journal_restart(struct journal *journal);      /* data.mdb has it all: a new run */

/* Reads the file for the run above batch `seq`, which lies at `place` (JOURNAL_NOWHERE: not known); a batch that was
 * not written whole ends it. Nothing that was read is kept for journal_write(). *last is the highest number, `seq` when
 * there is none. STORE_FORMAT: neither batch `seq` nor the next one is there, so the file is older than that. */
enum store_error journal_read(struct journal *journal, uint64_t seq, uint64_t place, uint64_t *last)
    __attribute__((warn_unused_result));
/* After journal_read(): does the file hold the head of batch `last` + 1, which is not whole? */
bool journal_torn(const struct journal *journal, uint64_t last);

/* After journal_read(), for a journal that nobody writes to: is a whole batch above `last` in the file? Each is written
 * when the one before is synced, so then it is that one, or data.mdb, that was lost. True also when it can't be read,
 * or has become shorter. */
bool journal_goes_on(const struct journal *journal, uint64_t last);

/* The batches of the run, one after the other, each with its changes. *at begins as 0. False: none is left. */
bool journal_next(const struct journal *journal, size_t *at, uint64_t *seq, struct slice *changes);

#endif
