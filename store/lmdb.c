/*
 * store/lmdb.c - environment, tables, transactions, cursors, free space: with lmdb_file.c the only user of <lmdb.h>.
 *
 * Full durability: the data is synced before the root page is written, and the root page is written through a
 * synchronous descriptor, so a commit that returned has reached the disk. MDB_NOSYNC, NOMETASYNC and MAPASYNC would
 * give that up, and MDB_WRITEMAP would turn a full disk into SIGBUS: none of them, ever. The environment is opened with
 * MDB_NOTLS, so that a reading transaction belongs to its object and not to a thread.
 *
 * What the tables hold is left to apply.c and query.c, what to do about a failed commit to writer.c.
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
#include <sys/stat.h>
#include <unistd.h>

#include "store/record.h"

#define LOCK_FILE_BYTES 65536 /* about 1000 readers: every worker, the admin listener, and commands beside it */

static const char *const table_names[DB_TABLE_COUNT] = {
    [DB_FENCES] = "fences",         [DB_EFFECTS] = "effects", [DB_AUDIT] = "audit", [DB_AUDIT_BY_KEY] = "audit_by_key",
    [DB_AUDIT_TIME] = "audit_time", [DB_UNKNOWN] = "unknown", [DB_META] = "meta",
};

static const struct slice format_key = {"format", 6};
static const struct slice floor_key = {"floor", 5};

static MDB_val to_val(struct slice bytes)
{
    /* LMDB does not write through a key or value it is given; its type has no const. */
    union {
        const char *in;
        void *out;
    } data = {bytes.data};
    return (MDB_val){bytes.len, data.out};
}

static struct slice from_val(const MDB_val *val)
{
    return (struct slice){val->mv_data, val->mv_size};
}

enum store_error lmdb_translate(int rc)
{
    switch (rc) {
    case 0: return STORE_OK;
    case MDB_NOTFOUND: return STORE_NOT_FOUND;
    case MDB_MAP_FULL:
    case MDB_TXN_FULL:
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return STORE_FULL;
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH: return STORE_FORMAT;
    default: return STORE_IO;
    }
}

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
    MDB_val key = to_val(floor_key), value;
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

/* Opens the tables, and in a new store makes them together with the format version: one transaction, so that a crash
 * in between leaves no store without a version. *version is 0 when there is none. */
static int open_tables(struct db *db, MDB_txn *txn, uint64_t *version)
{
    bool fresh;
    int rc = is_new(txn, &fresh);
    *version = 0;
    if (rc == 0 && fresh && (db->readonly || db->file)) /* a backup without tables would come back as an empty store */
        return MDB_NOTFOUND;
    for (int i = 0; i < DB_TABLE_COUNT && rc == 0; i++) {
        bool may_lack = i == DB_AUDIT_TIME; /* stores from before it was there */
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
    MDB_val key = to_val(format_key);
    MDB_val value = {sizeof bytes, bytes};
    put_u64(bytes, DB_FORMAT_PLAIN);
    if (fresh)
        rc = mdb_put(txn, db->table[DB_META], &key, &value, 0);
    else
        rc = mdb_get(txn, db->table[DB_META], &key, &value);
    if (rc == MDB_NOTFOUND || (rc == 0 && value.mv_size != 8))
        return MDB_INVALID;
    if (rc == 0)
        *version = get_u64(value.mv_data);
    return rc == 0 ? read_floor(db, txn, *version) : rc;
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

static enum store_error explain_open(int rc, const struct db *db, const char *path, char *why, size_t why_cap)
{
    if ((db->readonly || db->file) && (rc == ENOENT || rc == MDB_NOTFOUND)) {
        (void)snprintf(why, why_cap, "store %s: there is no store in this folder", path);
        return STORE_NOT_FOUND;
    }
    if (rc == EWOULDBLOCK && db->readonly) {
        (void)snprintf(why, why_cap, "store %s: a gateway serves it, and lock.mdb can't be written by this user", path);
        return STORE_IO;
    }
    if (rc == EWOULDBLOCK) {
        (void)snprintf(why, why_cap, "store %s: another gateway serves this folder", path);
        return STORE_BUSY;
    }
    if (rc == MDB_INVALID || rc == MDB_VERSION_MISMATCH)
        (void)snprintf(why, why_cap, "store %s: data.mdb is no store of Fencegate, or damaged", path);
    else
        (void)snprintf(why, why_cap, "store %s: cannot open: %s", path, mdb_strerror(rc));
    return lmdb_translate(rc);
}

static enum store_error open_db(struct db *db, const char *path, uint64_t max_size, char *why, size_t why_cap)
{
    uint64_t version = 0, missing = 0;
    db->path = strdup(path);
    int rc = db->path == NULL ? ENOMEM : open_env(db, max_size);
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

void db_put_floor(struct db_txn *txn, struct db_floor floor)
{
    char value[16], version[8];
    put_u64(value, floor.token);
    put_u64(value + 8, floor.time_ms);
    put_u64(version, DB_FORMAT_FLOOR);
    db_put(txn, DB_META, floor_key, (struct slice){value, sizeof value});
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

/* Transactions. */

static bool note(struct db_txn *txn, int rc)
{
    if (rc != 0 && txn->error == 0)
        txn->error = rc;
    return rc == 0;
}

void db_begin(struct db *db, struct db_txn *txn)
{
    MDB_txn *handle = NULL;
    *txn = (struct db_txn){.db = db};
    if (db->dead != NULL && !db->readonly)
        note(txn, MDB_PANIC);
    else if (!note(txn, mdb_txn_begin(db->env, NULL, 0, &handle)))
        if (txn->error == MDB_PANIC)
            db->dead = "the store failed while it wrote its root page; a restart is needed";
    txn->handle = handle;
}

enum store_error db_commit(struct db_txn *txn)
{
    if (txn->error != 0) {
        db_abort(txn);
    } else {
        atomic_fetch_add(&txn->db->commits, 1);
        (void)note(txn, mdb_txn_commit(txn->handle)); /* frees the handle in any case */
    }
    txn->handle = NULL;
    return db_txn_error(txn);
}

void db_abort(struct db_txn *txn)
{
    if (txn->handle)
        mdb_txn_abort(txn->handle);
    txn->handle = NULL;
}

enum store_error db_txn_error(const struct db_txn *txn)
{
    return lmdb_translate(txn->error);
}

const char *db_txn_error_text(const struct db_txn *txn)
{
    return mdb_strerror(txn->error);
}

enum store_error db_read_open(struct db *db, struct db_txn *txn)
{
    MDB_txn *handle = NULL;
    *txn = (struct db_txn){.db = db};
    pthread_mutex_lock(&db->resize);
    int rc = mdb_txn_begin(db->env, NULL, MDB_RDONLY, &handle);
    if (rc == MDB_MAP_RESIZED && db->readonly) {
        rc = mdb_env_set_mapsize(db->env, 0);
        if (rc == 0)
            rc = mdb_txn_begin(db->env, NULL, MDB_RDONLY, &handle);
    }
    if (rc == 0)
        mdb_txn_reset(handle);
    pthread_mutex_unlock(&db->resize);
    txn->handle = handle;
    return lmdb_translate(rc);
}

/* A renewed transaction takes the number N of the last commit, then copies the root page that belongs to it: one of
 * two, which N + 2 writes over. A thread that is put aside in between may so get half of N + 2, or all of it before it
 * is durable: a fence that no crash would leave, and that the next look does not find yet (seen once in some hundred
 * thousand looks). N + 2 begins after N is no longer the last; so when no commit began meanwhile, the copy is N's. */
static int renew(struct db_txn *txn)
{
    for (;;) {
        unsigned begun = atomic_load(&txn->db->commits);
        int rc = mdb_txn_renew(txn->handle);
        atomic_thread_fence(memory_order_seq_cst);
        if (rc != 0 || begun == atomic_load(&txn->db->commits))
            return rc;
        mdb_txn_reset(txn->handle);
    }
}

/* A process that serves writes with a larger map than this one opened: take over its size. Nothing of this process
 * looks into the map now, since the mutex is held from a look's begin to its end. */
void db_read_begin(struct db_txn *txn)
{
    struct db *db = txn->db;
    if (db->readonly)
        pthread_mutex_lock(&db->resize);
    txn->error = 0;
    int rc = renew(txn);
    if (rc == MDB_MAP_RESIZED && db->readonly) {
        rc = mdb_env_set_mapsize(db->env, 0);
        if (rc == 0)
            rc = renew(txn);
    }
    (void)note(txn, rc);
}

enum store_error db_read_end(struct db_txn *txn)
{
    mdb_txn_reset(txn->handle);
    if (txn->db->readonly)
        pthread_mutex_unlock(&txn->db->resize);
    return db_txn_error(txn);
}

void db_read_close(struct db_txn *txn)
{
    if (txn->handle)
        mdb_txn_abort(txn->handle);
    txn->handle = NULL;
}

/* Tables. */

uint64_t db_entries(struct db_txn *txn, enum db_table table)
{
    MDB_stat stat = {0};
    if (txn->error == 0)
        (void)note(txn, mdb_stat(txn->handle, txn->db->table[table], &stat));
    return stat.ms_entries;
}

bool db_get(struct db_txn *txn, enum db_table table, struct slice key, struct slice *value)
{
    if (txn->error != 0)
        return false;
    MDB_val k = to_val(key), v;
    int rc = mdb_get(txn->handle, txn->db->table[table], &k, &v);
    if (rc == MDB_NOTFOUND || !note(txn, rc))
        return false;
    *value = from_val(&v);
    return true;
}

static void put(struct db_txn *txn, enum db_table table, struct slice key, struct slice value, unsigned flags)
{
    if (txn->error != 0)
        return;
    MDB_val k = to_val(key), v = to_val(value);
    txn->dirty = true;
    (void)note(txn, mdb_put(txn->handle, txn->db->table[table], &k, &v, flags));
}

void db_put(struct db_txn *txn, enum db_table table, struct slice key, struct slice value)
{
    put(txn, table, key, value, 0);
}

void db_append(struct db_txn *txn, enum db_table table, struct slice key, struct slice value)
{
    put(txn, table, key, value, MDB_APPEND);
}

void db_delete(struct db_txn *txn, enum db_table table, struct slice key)
{
    if (txn->error != 0)
        return;
    MDB_val k = to_val(key);
    int rc = mdb_del(txn->handle, txn->db->table[table], &k, NULL);
    if (rc != MDB_NOTFOUND && note(txn, rc))
        txn->dirty = true;
}

/* Cursors. */

void db_cursor_open(struct db_txn *txn, enum db_table table, struct db_cursor *out)
{
    *out = (struct db_cursor){.txn = txn};
    if (txn->error != 0)
        return;
    MDB_cursor *handle = NULL;
    (void)note(txn, mdb_cursor_open(txn->handle, txn->db->table[table], &handle));
    out->handle = handle;
}

void db_cursor_close(struct db_cursor *cursor)
{
    if (cursor->handle)
        mdb_cursor_close(cursor->handle);
    cursor->handle = NULL;
}

static bool move(struct db_cursor *cursor, struct slice key, MDB_cursor_op op)
{
    if (cursor->txn->error != 0 || !cursor->handle)
        return false;
    MDB_val k = to_val(key), v = {0, NULL};
    int rc = mdb_cursor_get(cursor->handle, &k, &v, op);
    if (rc == MDB_NOTFOUND || !note(cursor->txn, rc))
        return false;
    cursor->key = from_val(&k);
    cursor->value = from_val(&v);
    return true;
}

bool db_cursor_seek(struct db_cursor *cursor, struct slice key)
{
    return move(cursor, key, MDB_SET_RANGE);
}

bool db_cursor_before(struct db_cursor *cursor, struct slice key)
{
    if (move(cursor, key, MDB_SET_RANGE))
        return move(cursor, (struct slice){0}, MDB_PREV);
    return move(cursor, (struct slice){0}, MDB_LAST);
}

bool db_cursor_next(struct db_cursor *cursor)
{
    return move(cursor, (struct slice){0}, MDB_NEXT);
}

bool db_cursor_prev(struct db_cursor *cursor)
{
    return move(cursor, (struct slice){0}, MDB_PREV);
}

void db_cursor_delete(struct db_cursor *cursor)
{
    if (cursor->txn->error != 0 || !cursor->handle)
        return;
    cursor->txn->dirty = true;
    (void)note(cursor->txn, mdb_cursor_del(cursor->handle, 0));
}

/* Space. */

static int count_given_back(MDB_txn *txn, uint64_t enough, uint64_t *free_pages)
{
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, LMDB_FREE_TABLE, &cursor);
    if (rc != 0)
        return rc;
    MDB_val key, value;
    while (*free_pages < enough && (rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        size_t count; /* each value is a list of page numbers, its length first */
        memcpy(&count, value.mv_data, sizeof count);
        *free_pages += count;
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int measure(const struct db *db, MDB_txn *txn, uint64_t enough, struct db_space *out)
{
    MDB_envinfo info;
    MDB_stat stat;
    int rc = mdb_env_info(db->env, &info);
    if (rc == 0)
        rc = mdb_stat(txn, db->table[DB_EFFECTS], &stat);
    if (rc != 0)
        return rc;
    uint64_t pages = info.me_mapsize / stat.ms_psize;
    uint64_t touched = info.me_last_pgno + 2; /* LMDB never gives out the last page of the map */
    *out = (struct db_space){.page_bytes = stat.ms_psize,
                             .pages = pages,
                             .free = touched < pages ? pages - touched : 0,
                             .effects = stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages};
    return out->free < enough ? count_given_back(txn, enough, &out->free) : 0;
}

enum store_error db_space(struct db *db, uint64_t enough, struct db_space *out)
{
    MDB_txn *txn;
    *out = (struct db_space){0};
    int rc = mdb_txn_begin(db->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return lmdb_translate(rc);
    rc = measure(db, txn, enough, out);
    mdb_txn_abort(txn);
    return lmdb_translate(rc);
}
