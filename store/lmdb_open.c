/*
 * store/lmdb_open.c - environment and tables: opened, judged, closed.
 *
 * Full durability: the data is synced before the root page is written, and the root page is written through a
 * synchronous descriptor, so a commit that returned has reached the disk. MDB_NOSYNC, NOMETASYNC and MAPASYNC would
 * give that up, and MDB_WRITEMAP would turn a full disk into SIGBUS: none of them, ever. The environment is opened with
 * MDB_NOTLS, so that a reading transaction belongs to its object and not to a thread.
 */
#include "store/lmdb_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/journal.h"
#include "store/record.h"

#define LACKS_JOURNAL MDB_INCOMPATIBLE
#define LACKS_TABLES MDB_BAD_DBI
#define SAME_NUMBER MDB_BAD_RSLOT
#define JOURNAL_SHORT 16 /* bytes of a journal's name: id and number; and with the place */
#define JOURNAL_LONG 24
#define LOCK_FILE_BYTES 65536 /* about 1000 readers: every worker, the admin listener, and commands beside it */

static const char *const table_names[DB_TABLE_COUNT] = {
    [DB_FENCES] = "fences",
    [DB_EFFECTS] = "effects",
    [DB_AUDIT] = "audit",
    [DB_AUDIT_BY_KEY] = "audit_by_key",
    [DB_AUDIT_TIME] = "audit_time",
    [DB_UNKNOWN] = "unknown",
    [DB_META] = "meta",
    [DB_REJECTED] = "rejected",
    [DB_REJECTED_BY_KEY] = "rejected_by_key",
};

const char *db_table_name(enum db_table table)
{
    return table_names[table];
}

static const struct slice format_key = {"format", 6};
static const struct slice floor_key = {"floor", 5};
static const struct slice journal_key = {"journal", 7};
static const struct slice id_key = {"store_id", 8};

/* A sparse lock file would be a trap on a full disk: LMDB writes into it through a mapping, and a page that can't be
 * had is SIGBUS there. So its blocks are taken before. Only before: to open and close the file once LMDB has it open
 * would drop LMDB's locks. */
static int take_lock_file(const char *path)
{
    char file[4096];
    if (snprintf(file, sizeof file, "%s/lock.mdb", path) >= (int)sizeof file)
        return ENAMETOOLONG;
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    struct stat st;
    int rc = fstat(fd, &st) != 0 ? errno : 0;
    if (rc == 0 && st.st_blocks * 512 < LOCK_FILE_BYTES)
        rc = posix_fallocate(fd, 0, LOCK_FILE_BYTES);
    close(fd);
    return rc;
}

/* To read LMDB needs lock.mdb, and makes it. In a backup there is none, and it should stay as it is; in a folder of
 * another user it can't be written. There it is done without, and a lock on data.mdb keeps out who would serve it
 * meanwhile, as it tells that somebody does. */
static bool must_not_lock(const struct db *db)
{
    char lock[4096], gateway[4096];
    if (!db->readonly || db->file || snprintf(lock, sizeof lock, "%s/lock.mdb", db->path) >= (int)sizeof lock ||
        snprintf(gateway, sizeof gateway, "%s/gateway.lock", db->path) >= (int)sizeof gateway)
        return false;
    if (access(lock, F_OK) == 0)
        return access(lock, W_OK) != 0;
    return access(gateway, F_OK) != 0 || access(db->path, W_OK) != 0;
}

/* LMDB would take an empty file for a new store. */
static int refuse_empty(const struct db *db)
{
    char name[4096];
    struct stat st;
    if (!db->readonly && !db->file)
        return 0;
    if (snprintf(name, sizeof name, db->file ? "%s" : "%s/data.mdb", db->path) >= (int)sizeof name)
        return ENAMETOOLONG;
    return stat(name, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 ? MDB_INVALID : 0;
}

static int lock_opened(const struct db *db, int fd)
{
    if (db->file || (db->readonly && !db->unlocked))
        return 0;
    return flock(fd, (db->readonly ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0 ? 0 : errno;
}

static int open_env(struct db *db, uint64_t max_size)
{
    int rc = refuse_empty(db);
    if (rc == 0)
        rc = mdb_env_create(&db->env);
    if (rc == 0)
        rc = mdb_env_set_maxdbs(db->env, DB_TABLE_COUNT);
    if (rc == 0 && !db->readonly) {
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        rc = mdb_env_set_mapsize(db->env, max_size / page * page);
        if (rc == 0 && !db->file)
            rc = take_lock_file(db->path);
    }
    db->unlocked = must_not_lock(db);
    unsigned flags = MDB_NOTLS | (db->readonly ? MDB_RDONLY : 0) | (db->file ? MDB_NOSUBDIR : 0) |
                     (db->file || db->unlocked ? MDB_NOLOCK : 0);
    if (rc == 0)
        rc = mdb_env_open(db->env, db->path, flags, 0600);
    int fd;
    if (rc == 0 && mdb_env_get_fd(db->env, &fd) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) /* LMDB leaves this one */
        rc = errno;
    return rc == 0 ? lock_opened(db, fd) : rc; /* for serving: gateway.lock may have been removed under who serves */
}

static int is_new(MDB_txn *txn, bool *out)
{
    MDB_dbi root;
    MDB_stat stat;
    int rc = mdb_dbi_open(txn, NULL, 0, &root);
    if (rc == 0)
        rc = mdb_stat(txn, root, &stat);
    *out = rc == 0 && stat.ms_entries == 0;
    return rc;
}

/* A floor that does not decode must not be taken for none. */
static int read_floor(struct db *db, MDB_txn *txn, uint64_t version)
{
    MDB_val key = lmdb_val(floor_key), value;
    int rc = mdb_get(txn, db->table[DB_META], &key, &value);
    if (rc == MDB_NOTFOUND)
        return version == DB_FORMAT_FLOOR ? MDB_INVALID : 0;
    if (rc != 0)
        return rc;
    if (value.mv_size != 16 || version < DB_FORMAT_FLOOR || get_u64(value.mv_data) == 0)
        return MDB_INVALID;
    db->floor = (struct db_floor){get_u64(value.mv_data), get_u64((const char *)value.mv_data + 8)};
    return 0;
}

static struct db_journal read_journal(struct slice value)
{
    if (value.len != JOURNAL_SHORT && value.len != JOURNAL_LONG)
        return (struct db_journal){0};
    return (struct db_journal){get_u64(value.data), get_u64(value.data + 8),
                               value.len == JOURNAL_LONG ? get_u64(value.data + 16) : JOURNAL_NOWHERE};
}

/* A journal that is not named as the version says must not be taken for none. What the version says beside that is left
 * in *version. */
static int read_version(const struct db *db, MDB_txn *txn, uint64_t *version, bool *journal)
{
    MDB_val key = lmdb_val(journal_key), value = {0, NULL};
    uint64_t added = *version > DB_FORMAT_FLOOR + DB_FORMAT_JOURNAL     ? 0
                     : *version > DB_FORMAT_FLOOR + DB_FORMAT_JOURNAL_1 ? DB_FORMAT_JOURNAL
                     : *version > DB_FORMAT_FLOOR                       ? DB_FORMAT_JOURNAL_1
                                                                        : 0;
    if (*version > DB_FORMAT_FLOOR + DB_FORMAT_JOURNAL)
        return 0; /* the caller refuses it */
    int rc = mdb_get(txn, db->table[DB_META], &key, &value);
    if (rc != 0 && rc != MDB_NOTFOUND)
        return rc;
    bool lives = db_journal_lives(read_journal((struct slice){value.mv_data, value.mv_size}));
    size_t size = added == DB_FORMAT_JOURNAL ? JOURNAL_LONG : JOURNAL_SHORT;
    if (lives != (added != 0) || (lives && value.mv_size != size))
        return MDB_INVALID;
    *journal = lives;
    *version -= added;
    return 0;
}

/* Read, or drawn: stores from before there were ids, restored ones and new ones have none. */
static int read_id(struct db *db, MDB_txn *txn)
{
    char bytes[8];
    MDB_val key = lmdb_val(id_key), value;
    int rc = mdb_get(txn, db->table[DB_META], &key, &value);
    if (rc == MDB_NOTFOUND) {
        if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
            return errno;
        value = (MDB_val){sizeof bytes, bytes};
        rc = mdb_put(txn, db->table[DB_META], &key, &value, 0);
    } else if (rc == 0 && value.mv_size != sizeof bytes) {
        return MDB_INVALID;
    }
    if (rc == 0)
        db->id = get_u64(value.mv_data);
    return rc;
}

/* Opens the tables, or makes them together with the format version: only in a file that is being made, since a store
 * that has lost them would come back as an empty one. *version is 0 when there is none. */
static int open_tables(struct db *db, MDB_txn *txn, uint64_t *version)
{
    bool fresh;
    int rc = is_new(txn, &fresh);
    *version = 0;
    if (rc == 0 && fresh && !db->making)
        return db->readonly || db->file ? MDB_NOTFOUND : LACKS_TABLES;
    for (int i = 0; i < DB_TABLE_COUNT && rc == 0; i++) {
        bool may_lack = db_may_lack((enum db_table)i);
        bool make = fresh || (may_lack && !db->readonly);
        rc = mdb_dbi_open(txn, table_names[i], make ? MDB_CREATE : 0, &db->table[i]);
        db->has[i] = rc == 0;
        if (rc == MDB_NOTFOUND && may_lack)
            rc = 0;
        if (rc == MDB_NOTFOUND)
            return MDB_INVALID;
    }
    if (rc != 0)
        return rc;
    char bytes[8];
    MDB_val key = lmdb_val(format_key);
    MDB_val value = {sizeof bytes, bytes};
    put_u64(bytes, DB_FORMAT_PLAIN);
    if (fresh)
        rc = mdb_put(txn, db->table[DB_META], &key, &value, 0);
    else
        rc = mdb_get(txn, db->table[DB_META], &key, &value);
    if (rc == MDB_NOTFOUND || (rc == 0 && value.mv_size != 8))
        return MDB_INVALID;
    if (rc != 0)
        return rc;
    bool journal = false;
    *version = get_u64(value.mv_data);
    rc = read_version(db, txn, version, &journal);
    if (rc == 0 && journal && db->file && !db->copy)
        return LACKS_JOURNAL;
    if (rc == 0)
        rc = read_floor(db, txn, *version);
    bool known = *version == DB_FORMAT_PLAIN || *version == DB_FORMAT_FLOOR; /* nothing is written into another one */
    return rc == 0 && known && !db->readonly && !db->file ? read_id(db, txn) : rc;
}

static int open_tables_txn(struct db *db, uint64_t *version)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(db->env, NULL, db->readonly ? MDB_RDONLY : 0, &txn);
    if (rc != 0)
        return rc;
    rc = open_tables(db, txn, version);
    if (rc == 0)
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

/* LMDB locks one byte of lock.mdb for each process that reads, at its number. */
static int take_reader(const struct db *db)
{
    MDB_txn *txn;
    if (db->file || db->unlocked)
        return 0;
    int rc = mdb_txn_begin(db->env, NULL, MDB_RDONLY, &txn);
    if (rc == 0)
        mdb_txn_abort(txn);
    return rc == EAGAIN || rc == EACCES ? SAME_NUMBER : rc;
}

/* LMDB takes a write that was cut short for a full disk: the process's own limit does that as well. */
static void name_size_limit(int rc, char *why, size_t why_cap)
{
    struct rlimit limit;
    size_t len = strlen(why);
    if ((rc == ENOSPC || rc == EFBIG) && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        (void)snprintf(why + len, why_cap - len,
                       "; or a file would pass this process's limit of %" PRIu64 " bytes (ulimit -f, LimitFSIZE)",
                       (uint64_t)limit.rlim_cur);
}

static enum store_error explain_open(int rc, const struct db *db, const char *path, char *why, size_t why_cap)
{
    if ((db->readonly || db->file) && (rc == ENOENT || rc == MDB_NOTFOUND)) {
        (void)snprintf(why, why_cap, "store %s: there is no store in this folder", path);
        return STORE_NOT_FOUND;
    }
    if (rc == SAME_NUMBER) {
        (void)snprintf(why, why_cap,
                       "store %s: a process with the same number, %ld, in another PID namespace (another container, "
                       "say) has it open, and LMDB tells processes apart by their numbers. Run this where that one "
                       "runs, with `docker exec` for example",
                       path, (long)getpid());
        return STORE_IO;
    }
    if (rc == EWOULDBLOCK && db->readonly) {
        (void)snprintf(why, why_cap, "store %s: a gateway serves it, and lock.mdb can't be written by this user", path);
        return STORE_IO;
    }
    if (rc == LACKS_JOURNAL) {
        (void)snprintf(why, why_cap,
                       "store %s: of a gateway that runs or was killed; what it wrote last is in the file `journal` "
                       "beside its data.mdb",
                       path);
        return STORE_FORMAT;
    }
    if (rc == LACKS_TABLES) {
        (void)snprintf(why, why_cap,
                       "store %s: data.mdb holds nothing: no fence, no table. Put it back or restore a backup; for a "
                       "new, empty store remove it",
                       path);
        return STORE_FORMAT;
    }
    if (rc == EWOULDBLOCK) {
        (void)snprintf(why, why_cap, "store %s: another gateway serves this folder", path);
        return STORE_BUSY;
    }
    if (rc == MDB_INVALID || rc == MDB_VERSION_MISMATCH)
        (void)snprintf(why, why_cap, "store %s: data.mdb is no store of Fencegate, or damaged", path);
    else
        (void)snprintf(why, why_cap, "store %s: cannot open: %s", path, mdb_strerror(rc));
    name_size_limit(rc, why, why_cap);
    return lmdb_translate(rc);
}

static enum store_error open_db(struct db *db, const char *path, uint64_t max_size, char *why, size_t why_cap)
{
    uint64_t version = 0, missing = 0;
    db->path = strdup(path);
    int rc = db->path == NULL ? ENOMEM : open_env(db, max_size);
    if (rc == 0)
        rc = take_reader(db);
    if (rc == 0)
        rc = lmdb_pages_missing(db, &missing);
    if (rc == 0 && missing > 0) { /* to read them is SIGBUS */
        (void)snprintf(why, why_cap, "store %s: data.mdb is cut short: %" PRIu64 " pages are missing at its end", path,
                       missing);
        return STORE_FORMAT;
    }
    if (rc == 0)
        rc = open_tables_txn(db, &version);
    if (rc != 0)
        return explain_open(rc, db, path, why, why_cap);
    if (version == DB_FORMAT_PLAIN || version == DB_FORMAT_FLOOR)
        return STORE_OK;
    (void)snprintf(why, why_cap, "store %s: format version %" PRIu64 ", this program knows versions %d and %d", path,
                   version, DB_FORMAT_PLAIN, DB_FORMAT_FLOOR);
    return STORE_FORMAT;
}

static enum store_error make_db(struct db kind, const char *path, uint64_t max_size, struct db **out, char *why,
                                size_t why_cap)
{
    enum store_error error = STORE_IO;
    *out = calloc(1, sizeof **out);
    if (!*out) {
        (void)snprintf(why, why_cap, "store %s: out of memory", path);
        return error;
    }
    **out = kind;
    pthread_mutex_init(&(*out)->resize, NULL);
    error = open_db(*out, path, max_size, why, why_cap);
    if (error != STORE_OK)
        db_close(out);
    return error;
}

enum store_error db_open(const char *path, uint64_t max_size, bool readonly, struct db **out, char *why, size_t why_cap)
{
    return make_db((struct db){.readonly = readonly}, path, max_size, out, why, why_cap);
}

enum store_error db_make(const char *file, uint64_t max_size, char *why, size_t why_cap)
{
    struct db *db;
    enum store_error error = make_db((struct db){.file = true, .making = true}, file, max_size, &db, why, why_cap);
    db_close(&db);
    return error;
}

enum store_error db_open_copy(const char *file, uint64_t max_size, struct db **out, char *why, size_t why_cap)
{
    return make_db((struct db){.file = true, .copy = true}, file, max_size, out, why, why_cap);
}

enum store_error db_open_file(const char *file, uint64_t max_size, struct db **out, char *why, size_t why_cap)
{
    return make_db((struct db){.readonly = max_size == 0, .file = true}, file, max_size, out, why, why_cap);
}

void db_close(struct db **db)
{
    if (!*db)
        return;
    if ((*db)->env)
        mdb_env_close((*db)->env);
    pthread_mutex_destroy(&(*db)->resize);
    free((*db)->path);
    free(*db);
    *db = NULL;
}

struct db_floor db_floor(const struct db *db)
{
    return db->floor;
}

uint64_t db_id(const struct db *db)
{
    return db->id;
}

void db_forget_id(struct db_txn *txn)
{
    db_delete(txn, DB_META, id_key);
}

void db_put_floor(struct db_txn *txn, struct db_floor floor)
{
    char value[16], version[8];
    put_u64(value, floor.token);
    put_u64(value + 8, floor.time_ms);
    put_u64(version, DB_FORMAT_FLOOR);
    db_put(txn, DB_META, floor_key, (struct slice){value, sizeof value});
    db_put(txn, DB_META, format_key, (struct slice){version, sizeof version});
}

struct db_journal db_journal(struct db_txn *txn)
{
    struct slice value;
    return db_get(txn, DB_META, journal_key, &value) ? read_journal(value) : (struct db_journal){0};
}

void db_put_journal(struct db_txn *txn, struct db_journal journal)
{
    char value[JOURNAL_LONG], version[8];
    put_u64(value, journal.id);
    put_u64(value + 8, journal.seq);
    put_u64(value + 16, journal.place);
    uint64_t plain = txn->db->floor.token == 0 ? DB_FORMAT_PLAIN : DB_FORMAT_FLOOR;
    put_u64(version, db_journal_lives(journal) ? plain + DB_FORMAT_JOURNAL : plain);
    if (journal.id == 0)
        db_delete(txn, DB_META, journal_key);
    else
        db_put(txn, DB_META, journal_key,
               (struct slice){value, db_journal_lives(journal) ? JOURNAL_LONG : JOURNAL_SHORT});
    db_put(txn, DB_META, format_key, (struct slice){version, sizeof version});
}

bool db_has(const struct db *db, enum db_table table)
{
    return db->has[table];
}

const char *db_dead(const struct db *db)
{
    return db->dead;
}

void db_check_place(struct db *db)
{
    char name[PATH_MAX];
    struct stat open_file, named;
    int fd = -1;
    (void)mdb_env_get_fd(db->env, &fd);
    (void)snprintf(name, sizeof name, "%s/data.mdb", db->path);
    if (fstat(fd, &open_file) != 0 || stat(name, &named) != 0 || open_file.st_ino != named.st_ino ||
        open_file.st_dev != named.st_dev)
        db->dead = "the store's file was removed or replaced; a restart is needed";
}
