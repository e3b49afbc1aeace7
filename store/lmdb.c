/*
 * store/lmdb.c - transactions, tables, cursors, free space: with the other store/lmdb*.c the only user of <lmdb.h>.
 *
 * What the tables hold is left to apply.c and query.c, what to do about a failed commit to writer.c, opening to
 * lmdb_open.c.
 */
#include "store/lmdb_int.h"

#include <errno.h>
#include <string.h>

#include "store/change.h"

MDB_val lmdb_val(struct slice bytes)
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

static uint64_t pages_of(const MDB_stat *stat)
{
    return stat->ms_branch_pages + stat->ms_leaf_pages + stat->ms_overflow_pages;
}

uint64_t db_pages(struct db_txn *txn, enum db_table table)
{
    MDB_stat stat = {0};
    if (txn->error == 0)
        (void)note(txn, mdb_stat(txn->handle, txn->db->table[table], &stat));
    return pages_of(&stat);
}

bool db_get(struct db_txn *txn, enum db_table table, struct slice key, struct slice *value)
{
    if (txn->error != 0)
        return false;
    MDB_val k = lmdb_val(key), v;
    int rc = mdb_get(txn->handle, txn->db->table[table], &k, &v);
    if (rc == MDB_NOTFOUND || !note(txn, rc))
        return false;
    *value = from_val(&v);
    return true;
}

/* Before the change: what it is made of may lie in the map. */
static void write_down(struct db_txn *txn, const struct change *change)
{
    if (txn->log != NULL && txn->error == 0 && !change_write(txn->log, change))
        (void)note(txn, ENOMEM);
}

static void put(struct db_txn *txn, const struct change *change, unsigned flags)
{
    write_down(txn, change);
    if (txn->error != 0)
        return;
    MDB_val k = lmdb_val(change->key), v = lmdb_val(change->value);
    txn->dirty = true;
    (void)note(txn, mdb_put(txn->handle, txn->db->table[change->table], &k, &v, flags));
}

void db_put(struct db_txn *txn, enum db_table table, struct slice key, struct slice value)
{
    put(txn, &(struct change){CHANGE_PUT, table, key, value}, 0);
}

void db_append(struct db_txn *txn, enum db_table table, struct slice key, struct slice value)
{
    put(txn, &(struct change){CHANGE_APPEND, table, key, value}, MDB_APPEND);
}

void db_delete(struct db_txn *txn, enum db_table table, struct slice key)
{
    write_down(txn, &(struct change){CHANGE_DELETE, table, key, {NULL, 0}});
    if (txn->error != 0)
        return;
    MDB_val k = lmdb_val(key);
    int rc = mdb_del(txn->handle, txn->db->table[table], &k, NULL);
    if (rc != MDB_NOTFOUND && note(txn, rc))
        txn->dirty = true;
}

void db_change(struct db_txn *txn, const struct change *change)
{
    switch (change->kind) {
    case CHANGE_PUT: put(txn, change, 0); return;
    case CHANGE_APPEND: put(txn, change, MDB_APPEND); return;
    case CHANGE_DELETE: db_delete(txn, change->table, change->key); return;
    }
}

/* Cursors. */

void db_cursor_open(struct db_txn *txn, enum db_table table, struct db_cursor *out)
{
    *out = (struct db_cursor){.txn = txn, .table = table};
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
    MDB_val k = lmdb_val(key), v = {0, NULL};
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
    enum db_table table = cursor->table;
    write_down(cursor->txn, &(struct change){CHANGE_DELETE, table, cursor->key, {NULL, 0}});
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
    MDB_stat stat, audit;
    int rc = mdb_env_info(db->env, &info);
    if (rc == 0)
        rc = mdb_stat(txn, db->table[DB_AUDIT], &audit);
    if (rc == 0)
        rc = mdb_stat(txn, db->table[DB_EFFECTS], &stat);
    if (rc != 0)
        return rc;
    uint64_t pages = info.me_mapsize / stat.ms_psize;
    uint64_t touched = info.me_last_pgno + 2; /* LMDB never gives out the last page of the map */
    *out = (struct db_space){.page_bytes = stat.ms_psize,
                             .pages = pages,
                             .free = touched < pages ? pages - touched : 0,
                             .audit = pages_of(&audit),
                             .effects = pages_of(&stat)};
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
