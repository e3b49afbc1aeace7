/*
 * store/fence.c - reads and writes fences; who may move one, and when, is apply.c's.
 */
#include "store/fence.h"

#include <errno.h>
#include <string.h>

enum fence_state fence_decode(const struct db *db, struct slice value, struct fence *out)
{
    *out = (struct fence){0};
    if (value.len != FENCE_VALUE_BYTES)
        return FENCE_DAMAGED;
    uint64_t token = get_u64(value.data), floor = db_floor(db).token;
    if (token == 0)
        return floor == 0 ? FENCE_DAMAGED : FENCE_NONE;
    *out = (struct fence){token, get_u64(value.data + 8), token == floor};
    return FENCE_THERE;
}

enum fence_state fence_read(struct db_txn *txn, struct slice key, struct fence *out)
{
    struct slice value;
    *out = (struct fence){0};
    if (db_get(txn, DB_FENCES, key, &value))
        return fence_decode(txn->db, value, out);
    struct db_floor floor = db_floor(txn->db);
    if (txn->error != 0 || floor.token == 0)
        return FENCE_NONE;
    *out = (struct fence){floor.token, floor.time_ms, true};
    return FENCE_THERE;
}

bool fence_has_entry(struct db_txn *txn, struct slice key)
{
    struct slice value;
    return db_get(txn, DB_FENCES, key, &value);
}

void fence_put(struct db_txn *txn, struct slice key, uint64_t token, uint64_t time_ms)
{
    char value[FENCE_VALUE_BYTES];
    put_u64(value, token);
    put_u64(value + 8, time_ms);
    db_put(txn, DB_FENCES, key, (struct slice){value, sizeof value});
}

void fence_forget(struct db_txn *txn, struct slice key, uint64_t time_ms)
{
    if (db_floor(txn->db).token == 0)
        db_delete(txn, DB_FENCES, key);
    else
        fence_put(txn, key, 0, time_ms); /* without an entry the floor would stand in its place */
}

/* Seeks anew for every fence: what a cursor shows is good until the next change only. */
size_t fence_raise_all(struct db_txn *txn, struct db_floor floor, struct fence_position *at, size_t limit)
{
    struct db_cursor cursor;
    size_t looked = 0;
    db_cursor_open(txn, DB_FENCES, &cursor);
    for (; looked < limit && db_cursor_seek(&cursor, (struct slice){at->key, at->len}); looked++) {
        if (cursor.key.len >= sizeof at->key || cursor.value.len != FENCE_VALUE_BYTES) {
            txn->error = EIO;
            break;
        }
        memcpy(at->key, cursor.key.data, cursor.key.len);
        at->len = cursor.key.len;
        if (get_u64(cursor.value.data) < floor.token) {
            fence_put(txn, (struct slice){at->key, at->len}, floor.token, floor.time_ms);
            at->raised++;
        }
        at->key[at->len++] = '\0'; /* the first byte string above it */
    }
    db_cursor_close(&cursor);
    return looked;
}
