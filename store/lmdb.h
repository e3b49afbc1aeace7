/*
 * store/lmdb.h - the engine behind a small interface; store/lmdb*.c are the only users of <lmdb.h>.
 *
 * A transaction carries its first error: later calls on it do nothing and give "not there", the caller looks once, at
 * db_commit() or db_read_end(). Slices that come out point into the map and are good until the transaction ends or,
 * in a write transaction, until its next change.
 *
 * Threads: one write transaction at a time, by the writer. A reading transaction belongs to whoever opened it.
 */
#ifndef FENCEGATE_STORE_LMDB_H
#define FENCEGATE_STORE_LMDB_H

#include "store/store.h"

enum db_table {
    DB_FENCES,       /* namespace NUL key -> token (8; 0: reset below the floor), time (8) */
    DB_EFFECTS,      /* id -> state (1), intent; only open ones */
    DB_AUDIT,        /* id -> record */
    DB_AUDIT_BY_KEY, /* namespace NUL key NUL id -> kind (1); nothing in entries from before */
    DB_AUDIT_TIME,   /* block of ids -> lowest (8) and highest (8) time in it */
    DB_UNKNOWN,      /* id of an effect recorded `unknown` -> resolved (1), id of the record that says so (8) */
    DB_META, /* "format", "next_id", "removed" (the highest id that was removed from the audit) -> 8 bytes; "floor" ->
              * token (8), time (8); "clock" -> time trusted last (8), how long a leap had lasted (8); "journal" -> id
              * (8), sequence (8), place (8; not when the journal is done with); "store_id" -> 8 random bytes */
    /* Numbers are in journals: new tables come at the end. */
    DB_REJECTED,        /* id -> record: what was refused without an accepted token, a ring (batch_trim_rejected()) */
    DB_REJECTED_BY_KEY, /* as DB_AUDIT_BY_KEY, of those */
    DB_TABLE_COUNT,
};
const char *db_table_name(enum db_table table); /* in the file; also for messages */
/* Stores from before it was there: made by who serves, absent (db_has()) in what was opened for reading. */
static inline bool db_may_lack(enum db_table table)
{
    return table == DB_AUDIT_TIME || table == DB_REJECTED || table == DB_REJECTED_BY_KEY;
}

/* "format". A program that does not know of floors would let stale tokens through in a store that has one, so such a
 * store has a version that it refuses. Stores without a floor stay at the first. */
enum { DB_FORMAT_PLAIN = 1, DB_FORMAT_FLOOR = 2 };
/* Added while a journal may hold what this file does not have yet: a program that does not know of journals, or not of
 * their runs, would lose that. A store that was closed in good order has none. Before there were runs it was
 * DB_FORMAT_JOURNAL_1, and no place was named: a store of a gateway that was killed then is read, too. */
enum { DB_FORMAT_JOURNAL_1 = 2, DB_FORMAT_JOURNAL = 4 };

struct db;

/* The least token that counts, for every key that has no fence of its own; token 0: no floor. Read when the store is
 * opened: it changes in no store that is open. */
struct db_floor {
    uint64_t token, time_ms;
};

/* The journal that belongs to this file, the last of its batches that is in it and where that lies (journal.h); id 0:
 * there never was one. For a journal that this file needs no longer the number is JOURNAL_DONE, so that another one
 * beside this file is found out. */
#define JOURNAL_DONE UINT64_MAX
struct db_journal {
    uint64_t id, seq, place;
};
static inline bool db_journal_lives(struct db_journal journal)
{
    return journal.id != 0 && journal.seq != JOURNAL_DONE;
}
static inline struct db_journal db_journal_done(uint64_t id)
{
    return (struct db_journal){.id = id, .seq = JOURNAL_DONE};
}

struct buffer;
struct change;

struct db_txn {
    struct db *db;
    void *handle;
    struct buffer *log; /* not NULL: changes are written down there too (change.h) */
    int error;          /* the engine's first error; 0: none */
    bool dirty;         /* something was changed: the commit will sync */
};

/* `path` is a folder that exists. Writing: makes what is missing, and the map is max_size. `why` gets one line. */
/* max_size 0: the one that the file names. */
enum store_error db_open(const char *path, uint64_t max_size, bool readonly, struct db **out, char *why, size_t why_cap)
    __attribute__((warn_unused_result));
/* One file, whatever its name, without any lock: for a file that nobody else has reason to open. max_size 0: for
 * reading. Either may find a file that is cut short, or that lacks what is in a journal: STORE_FORMAT. */
enum store_error db_open_file(const char *file, uint64_t max_size, struct db **out, char *why, size_t why_cap)
    __attribute__((warn_unused_result));
/* The same for a copy that db_copy() just made of a store with a journal, to tell it that it has none. */
enum store_error db_open_copy(const char *file, uint64_t max_size, struct db **out, char *why, size_t why_cap)
    __attribute__((warn_unused_result));
/* Makes a store without anything in it, in a file of that name, which is not there yet. */
enum store_error db_make(const char *file, uint64_t max_size, char *why, size_t why_cap)
    __attribute__((warn_unused_result));
void db_close(struct db **db);
struct db_floor db_floor(const struct db *db);
/* Random, made when a folder is opened for writing and has none; 0 for what is open in another way. */
uint64_t db_id(const struct db *db);
void db_forget_id(struct db_txn *txn); /* the next opening makes another one */
/* Writes floor and format version; in force when the store is opened anew. */
void db_put_floor(struct db_txn *txn, struct db_floor floor);
struct db_journal db_journal(struct db_txn *txn);
void db_put_journal(struct db_txn *txn, struct db_journal journal); /* and the format version */
/* NULL, or why nothing can be written any more until the process is started anew (a failed write of the engine's root
 * page, a file that was replaced). For the thread that writes. */
const char *db_dead(const struct db *db);
/* Is the file that is open still the one in the folder? If not (removed, moved, replaced) the environment is dead: what
 * it would write nobody will find. */
void db_check_place(struct db *db);

bool db_has(const struct db *db, enum db_table table); /* false: an old store, opened for reading */

void db_begin(struct db *db, struct db_txn *txn);
enum store_error db_commit(struct db_txn *txn) __attribute__((warn_unused_result)); /* ends it in any case */
void db_abort(struct db_txn *txn);
enum store_error db_txn_error(const struct db_txn *txn);
const char *db_txn_error_text(const struct db_txn *txn); /* also after db_commit() */

/* Reading: opened once, then begun and ended for every look, which is cheap. Ended, it pins no old pages. */
enum store_error db_read_open(struct db *db, struct db_txn *txn) __attribute__((warn_unused_result));
void db_read_begin(struct db_txn *txn);
enum store_error db_read_end(struct db_txn *txn) __attribute__((warn_unused_result));
void db_read_close(struct db_txn *txn);

uint64_t db_entries(struct db_txn *txn, enum db_table table); /* how many; costs nothing */
uint64_t db_pages(struct db_txn *txn, enum db_table table);   /* that it takes; costs nothing */
bool db_get(struct db_txn *txn, enum db_table table, struct slice key, struct slice *value);
void db_put(struct db_txn *txn, enum db_table table, struct slice key, struct slice value);
void db_append(struct db_txn *txn, enum db_table table, struct slice key,
               struct slice value);                                        /* key above all others */
void db_delete(struct db_txn *txn, enum db_table table, struct slice key); /* absent is fine */
void db_change(struct db_txn *txn, const struct change *change);           /* one that was written down */

/* Moves give false at the end and on an error. */
struct db_cursor {
    struct db_txn *txn;
    enum db_table table;
    void *handle;
    struct slice key, value;
};
void db_cursor_open(struct db_txn *txn, enum db_table table, struct db_cursor *out);
void db_cursor_close(struct db_cursor *cursor);                    /* before its transaction ends */
bool db_cursor_seek(struct db_cursor *cursor, struct slice key);   /* first at or above */
bool db_cursor_before(struct db_cursor *cursor, struct slice key); /* last below */
bool db_cursor_next(struct db_cursor *cursor);
bool db_cursor_prev(struct db_cursor *cursor);
void db_cursor_delete(struct db_cursor *cursor); /* db_cursor_next() then gives the one after */

struct db_space {
    uint64_t page_bytes;
    uint64_t pages;   /* of the map */
    uint64_t free;    /* never used, or given back; exact only when below `enough` */
    uint64_t audit;   /* pages that the audit's records take */
    uint64_t effects; /* pages that the open effects take */
};
/* Counts free pages; goes through the list of given-back ones only while it has counted less than `enough`. */
enum store_error db_space(struct db *db, uint64_t enough, struct db_space *out) __attribute__((warn_unused_result));

/* A consistent copy of everything to `fd`, without free pages, beside whoever writes. It pins old pages while it runs.
 * *why: static text on an error. */
enum store_error db_copy(struct db *db, int fd, const char **why) __attribute__((warn_unused_result));
uint64_t db_file_bytes(const struct db *db);

/* The reader that keeps the oldest pages, of this process or another. False: none reads now. */
struct db_reader {
    uint64_t pid;
    uint64_t snapshot, newest; /* ids of the transaction it sees, and of the last one */
};
bool db_oldest_reader(struct db *db, struct db_reader *out);

/* Room on the disk under the store, as far as an ordinary user gets it. False: unknown. */
bool db_disk(const struct db *db, uint64_t *free_bytes, uint64_t *size_bytes);

/* Frees the places of readers that were killed: they keep old pages from being used again. Returns how many. */
int db_clear_dead_readers(struct db *db);

#endif
