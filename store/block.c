/* store/block.c - see block.h. Which blocks a query passes over is query.c's. */
#include "store/block.h"

#include "store/record.h"

#define ENTRY_BYTES 16

static bool at_record(const struct db_cursor *cursor, uint64_t block)
{
    return cursor->key.len == 8 && BLOCK_OF(get_u64(cursor->key.data)) == block;
}

static bool seek_block(struct db_cursor *cursor, uint64_t block)
{
    char key[8];
    put_u64(key, block << BLOCK_SHIFT);
    return db_cursor_seek(cursor, (struct slice){key, sizeof key}) && at_record(cursor, block);
}

/* False: one without a time. */
static bool measure_in(struct db_txn *txn, enum db_table table, uint64_t block, struct block_times *out)
{
    struct db_cursor cursor;
    bool whole = true;
    db_cursor_open(txn, table, &cursor);
    for (bool there = seek_block(&cursor, block); there && whole;
         there = db_cursor_next(&cursor) && at_record(&cursor, block)) {
        uint64_t time_ms = 0;
        whole = record_time(cursor.value, &time_ms);
        out->min_ms = time_ms < out->min_ms ? time_ms : out->min_ms;
        out->max_ms = time_ms > out->max_ms ? time_ms : out->max_ms;
    }
    db_cursor_close(&cursor);
    return whole;
}

/* False: no record, or one without a time. */
static bool measure(struct db_txn *txn, uint64_t block, struct block_times *out)
{
    *out = (struct block_times){UINT64_MAX, 0};
    return measure_in(txn, DB_AUDIT, block, out) && measure_in(txn, DB_REJECTED, block, out) &&
           out->min_ms <= out->max_ms;
}

void block_finish(struct db_txn *txn, uint64_t first, uint64_t next)
{
    for (uint64_t block = BLOCK_OF(first); block < BLOCK_OF(next) && txn->error == 0; block++) {
        struct block_times times;
        char key[8], value[ENTRY_BYTES];
        if (!measure(txn, block, &times))
            continue;
        put_u64(key, block);
        put_u64(value, times.min_ms);
        put_u64(value + 8, times.max_ms);
        db_put(txn, DB_AUDIT_TIME, (struct slice){key, sizeof key}, (struct slice){value, sizeof value});
    }
}

static bool has_records(struct db_txn *txn, enum db_table table, uint64_t block)
{
    struct db_cursor cursor;
    db_cursor_open(txn, table, &cursor);
    bool has = seek_block(&cursor, block);
    db_cursor_close(&cursor);
    return has;
}

void block_forget(struct db_txn *txn, uint64_t block)
{
    char key[8];
    put_u64(key, block);
    if (!has_records(txn, DB_AUDIT, block) && !has_records(txn, DB_REJECTED, block))
        db_delete(txn, DB_AUDIT_TIME, (struct slice){key, sizeof key});
}

bool block_read(const struct db_cursor *cursor, uint64_t *block, struct block_times *out)
{
    if (cursor->key.len != 8 || cursor->value.len != ENTRY_BYTES)
        return false;
    *block = get_u64(cursor->key.data);
    *out = (struct block_times){get_u64(cursor->value.data), get_u64(cursor->value.data + 8)};
    return true;
}
