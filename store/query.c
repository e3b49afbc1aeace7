/*
 * store/query.c - reads for those who decide and those who look things up: one fence, or pages of the audit and of the
 * effects without a known outcome. Pages of fences are list.c's.
 *
 * Every look takes the newest durable state and lets go of it at once: a reading transaction that stays open keeps
 * LMDB from using old pages again, and the file grows. So an audit query runs in slices, each with a transaction of
 * its own, and what it delivers are copies: `each` may stall (a terminal, a slow client) without holding anything.
 * Ids only rise, so going on from the last id misses nothing that was there before.
 *
 * Times do not quite follow the ids (a clock may have been set back), so records are filtered by time one by one, but
 * blocks of ids that have no record of the time asked for are passed over (block.h).
 */
#include <stdlib.h>
#include <string.h>

#include "store/apply.h"
#include "store/block.h"
#include "store/clock.h"
#include "store/fence.h"
#include "store/handle.h"
#include "store/overlay.h"
#include "store/record.h"
#include "store/source.h"

#define SLICE_LOOKS 4096        /* most records looked at in one transaction */
#define SLICE_RECORDS 64        /* most copied out of it */
#define SLICE_BYTES (256 << 10) /* and about as many bytes */

enum store_error store_reader_open(struct store *store, struct store_reader **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return STORE_IO;
    enum store_error error = db_read_open(store->db, &(*out)->txn);
    (*out)->store = store;
    if (error != STORE_OK) {
        free(*out);
        *out = NULL;
    }
    return error;
}

void reader_settle(struct store_reader *reader)
{
    if (reader->store->writer)
        writer_settle(reader->store->writer);
}

void store_reader_close(struct store_reader **reader)
{
    if (!*reader)
        return;
    db_read_close(&(*reader)->txn);
    buffer_free(&(*reader)->copies);
    free(*reader);
    *reader = NULL;
}

static enum store_error error_of(enum fence_state state)
{
    switch (state) {
    case FENCE_NONE: return STORE_NOT_FOUND;
    case FENCE_THERE: return STORE_OK;
    case FENCE_DAMAGED: break;
    }
    return STORE_FORMAT;
}

enum store_error store_fence_get(struct store_reader *reader, struct slice ns, struct slice key, struct fence *out)
{
    char bytes[FENCE_KEY_CAP];
    struct slice at = {bytes, fence_key(ns, key, bytes)};
    *out = (struct fence){0};
    if (at.len == 0)
        return STORE_NOT_FOUND;
    struct overlay *overlay = reader->store->writer ? writer_overlay(reader->store->writer) : NULL;
    if (overlay != NULL) {
        char value[OVERLAY_VALUE_BYTES];
        size_t len;
        switch (overlay_find(overlay, at, value, &len)) {
        case OVERLAY_VALUE: return error_of(fence_decode(reader->store->db, (struct slice){value, len}, out));
        case OVERLAY_GONE: return STORE_NOT_FOUND;
        case OVERLAY_BLIND: return STORE_IO;
        case OVERLAY_NOTHING: break;
        }
    }
    db_read_begin(&reader->txn);
    enum fence_state state = fence_read(&reader->txn, at, out);
    enum store_error error = db_read_end(&reader->txn);
    return error != STORE_OK ? error : error_of(state);
}

enum store_error store_removed(struct store_reader *reader, uint64_t *id)
{
    reader_settle(reader);
    db_read_begin(&reader->txn);
    *id = removed_id(&reader->txn);
    return db_read_end(&reader->txn);
}

enum store_error store_floor_get(const struct store_reader *reader, struct fence *out)
{
    struct db_floor floor = db_floor(reader->txn.db);
    *out = (struct fence){floor.token, floor.time_ms, true};
    return floor.token == 0 ? STORE_NOT_FOUND : STORE_OK;
}

/* A query under way. */
struct scan {
    struct store_reader *reader;
    const struct audit_filter *filter;
    enum db_table table;
    struct source source;     /* of this slice */
    uint64_t at;              /* the last id looked at */
    size_t looks;             /* how many more may be looked at */
    enum effects_state state; /* with DB_EFFECTS */
    uint64_t last;            /* no id above this one; descending: below */
    bool ended;               /* nothing more lies that way */
    bool timed;               /* blocks can be passed over */
    uint64_t block;           /* the last one that was not */
    bool jump;                /* what is between here and `at` need not be looked at */
    enum store_error error;
    struct copy {
        uint64_t id, record_id;
        size_t offset, len;
    } copies[SLICE_RECORDS];
    size_t count, bytes;
};

static bool same(struct slice wanted, struct slice is)
{
    if (!wanted.data)
        return true;
    return is.data && wanted.len == is.len && memcmp(wanted.data, is.data, is.len) == 0;
}

static bool passes(const struct audit_filter *filter, const struct audit_record *record)
{
    return (filter->kind == 0 || filter->kind == record->kind) &&
           (filter->effect_id == 0 || filter->effect_id == record->effect_id) && same(filter->ns, record->ns) &&
           same(filter->key, record->key) && same(filter->reason, record->reason) && same(filter->route, record->route);
}

static bool in_time(const struct audit_filter *filter, uint64_t time_ms)
{
    return time_ms >= filter->since_ms && (filter->until_ms == 0 || time_ms < filter->until_ms);
}

/* May this block, or one that is not told of, hold records of the time asked for? */
static bool may_hold(const struct scan *scan, const struct db_cursor *times, uint64_t block)
{
    const struct audit_filter *filter = scan->filter;
    struct block_times is;
    uint64_t shown;
    if (!block_read(times, &shown, &is) || shown != block)
        return true;
    return is.max_ms >= filter->since_ms && (filter->until_ms == 0 || is.min_ms < filter->until_ms);
}

/* Passes over blocks from that of `id` on, a look each, and leaves one above `least`. False: this one is to be looked
 * at; else scan->at is where to go on. */
static bool pass_blocks(struct scan *scan, uint64_t id, size_t least)
{
    struct db_cursor times;
    uint64_t block = BLOCK_OF(id), first = block;
    bool down = scan->filter->descending;
    char key[8];
    if (!scan->timed || block == scan->block)
        return false;
    put_u64(key, block);
    db_cursor_open(&scan->reader->txn, DB_AUDIT_TIME, &times);
    bool there = db_cursor_seek(&times, (struct slice){key, sizeof key});
    while (there && !may_hold(scan, &times, block) && scan->looks > least + 1) {
        scan->looks--;
        scan->ended = down && block == 0;
        if (scan->ended)
            break;
        block = down ? block - 1 : block + 1;
        there = down ? db_cursor_prev(&times) : db_cursor_next(&times);
    }
    db_cursor_close(&times);
    if (block == first && !scan->ended) {
        scan->block = block;
        return false;
    }
    scan->at = (down ? block + 1 : block) << BLOCK_SHIFT;
    scan->at -= down ? 0 : 1;
    return true;
}

static bool get_record(struct scan *scan, enum db_table table, uint64_t id, struct slice *value)
{
    char key[8];
    put_u64(key, id);
    return db_get(&scan->reader->txn, table, (struct slice){key, sizeof key}, value);
}

static bool find_intent(struct scan *scan, struct slice bytes, struct slice *value)
{
    if (bytes.len == 0)
        return false;
    bool dead = scan->reader->unserved, doubt = bytes.data[0] == EFFECT_IN_DOUBT || dead;
    *value = (struct slice){bytes.data + 1, bytes.len - 1};
    return !(dead && bytes.data[0] == EFFECT_WAITING) && doubt == (scan->state == EFFECTS_IN_DOUBT);
}

/* *id becomes the record's own where it is another's. */
static bool find_record(struct scan *scan, const struct db_cursor *cursor, uint64_t *id, struct slice *value)
{
    struct slice bytes = cursor->value;
    if (cursor->table == DB_AUDIT || cursor->table == DB_REJECTED) {
        *value = bytes;
        return true;
    }
    if (scan->table == DB_EFFECTS)
        return find_intent(scan, bytes, value);
    if (scan->table == DB_UNKNOWN) {
        bool open = unknown_open(bytes, id);
        return open && get_record(scan, DB_AUDIT, *id, value);
    }
    bool told = bytes.len == 1 && scan->filter->kind != 0;
    if (told && bytes.data[0] != (char)scan->filter->kind)
        return false;
    return get_record(scan, cursor->table == DB_AUDIT_BY_KEY ? DB_AUDIT : DB_REJECTED, *id, value);
}

static void copy_out(struct scan *scan, uint64_t id, struct slice value)
{
    if (!buffer_reserve(&scan->reader->copies, scan->bytes + value.len)) {
        scan->error = STORE_IO;
        return;
    }
    memcpy(scan->reader->copies.data + scan->bytes, value.data, value.len);
    scan->copies[scan->count++] = (struct copy){scan->at, id, scan->bytes, value.len};
    scan->bytes += value.len;
}

/* An effect's outcome is its last record, unless it is `unknown` and was resolved: `unknown` says where. Other records
 * need no look then. */
static void look_further(struct scan *scan, const struct audit_record *found, uint64_t id)
{
    struct slice value;
    uint64_t resolved_by;
    char key[8];
    put_u64(key, found->effect_id);
    bool resolved = found->kind == AUDIT_UNKNOWN && db_has(scan->reader->txn.db, DB_UNKNOWN) &&
                    db_get(&scan->reader->txn, DB_UNKNOWN, (struct slice){key, sizeof key}, &value) &&
                    unknown_resolved(value, &resolved_by);
    scan->last = resolved ? resolved_by : id;
    scan->jump = resolved && resolved_by > id;
    if (scan->jump)
        scan->at = resolved_by - 1;
}

static void look(struct scan *scan, const struct db_cursor *cursor, uint64_t id)
{
    struct slice value;
    uint64_t time_ms;
    struct audit_record record;
    scan->at = id;
    if (!find_record(scan, cursor, &id, &value))
        return;
    if (!record_time(value, &time_ms)) {
        scan->error = STORE_FORMAT;
        return;
    }
    if (!in_time(scan->filter, time_ms))
        return;
    if (!record_decode(value, &record))
        scan->error = STORE_FORMAT;
    else if (passes(scan->filter, &record))
        copy_out(scan, id, value);
    if (scan->filter->effect_id != 0 && !scan->filter->descending && record.effect_id == scan->filter->effect_id)
        look_further(scan, &record, id);
}

/* More namespaces than can be merged: the audit itself. */
static void open_source(struct scan *scan)
{
    const struct audit_filter *filter = scan->filter;
    if (source_open(&scan->source, &scan->reader->txn, scan->table, filter->ns, filter->key))
        return;
    scan->table = DB_AUDIT;
    (void)!source_open(&scan->source, &scan->reader->txn, scan->table, filter->ns, filter->key);
}

/* One transaction: goes on from scan->at, copies at most `want` records that pass. */
static void slice_of_scan(struct scan *scan, size_t want)
{
    struct db_txn *txn = &scan->reader->txn;
    bool down = scan->filter->descending;
    scan->count = scan->bytes = 0;
    if (want > SLICE_RECORDS)
        want = SLICE_RECORDS;
    db_read_begin(txn);
    open_source(scan);
    source_seek(&scan->source, scan->at, down);
    size_t least = scan->looks > SLICE_LOOKS ? scan->looks - SLICE_LOOKS : 0;
    for (; scan->looks > least && scan->count < want && scan->bytes < SLICE_BYTES; scan->looks--) {
        uint64_t id;
        const struct db_cursor *cursor = source_here(&scan->source, &id);
        if (!cursor || (down ? id < scan->last : id > scan->last)) {
            scan->ended = true;
        } else if (pass_blocks(scan, id, least)) {
            source_seek(&scan->source, scan->at, down);
        } else {
            look(scan, cursor, id);
            if (scan->jump)
                source_seek(&scan->source, scan->at, down);
            else
                source_move(&scan->source);
            scan->jump = false;
        }
        if (scan->ended || scan->error != STORE_OK)
            break;
    }
    source_close(&scan->source);
    enum store_error error = db_read_end(txn);
    if (scan->error == STORE_OK)
        scan->error = error;
}

static void scan_begin(struct scan *scan, struct store_reader *reader, const struct audit_filter *filter,
                       enum db_table table)
{
    scan->reader = reader;
    scan->filter = filter;
    scan->table = table;
    scan->at = filter->after;
    scan->looks = filter->looks == 0 ? SIZE_MAX : filter->looks;
    scan->last = filter->descending ? filter->effect_id : UINT64_MAX;
    scan->ended = scan->jump = false;
    scan->timed =
        table == DB_AUDIT && (filter->since_ms != 0 || filter->until_ms != 0) && db_has(reader->txn.db, DB_AUDIT_TIME);
    scan->block = UINT64_MAX;
    scan->error = STORE_OK;
    if (filter->descending && filter->after == 0)
        scan->at = UINT64_MAX; /* no id comes that far */
    if (!filter->descending && filter->effect_id > scan->at)
        scan->at = filter->effect_id;
    if (table == DB_AUDIT && filter->key.data)
        scan->table = DB_AUDIT_BY_KEY;
}

/* Looks for one record more than the limit: whether there is a next page is known, not guessed. */
static enum store_error run_scan(struct scan *scan, bool (*each)(void *arg, const struct audit_record *record),
                                 void *arg, uint64_t *next_after)
{
    size_t left = scan->filter->limit;
    uint64_t last = 0;
    uint64_t patience_ms = scan->filter->patience_ms, began_ms = patience_ms == 0 ? 0 : clock_ms();
    bool patient = true;
    *next_after = 0;
    while (!scan->ended && scan->error == STORE_OK && scan->looks > 0 && patient) {
        slice_of_scan(scan, left < SIZE_MAX ? left + 1 : left);
        for (size_t i = 0; i < scan->count && scan->error == STORE_OK; i++) {
            struct slice bytes = {scan->reader->copies.data + scan->copies[i].offset, scan->copies[i].len};
            struct audit_record record;
            if (left == 0) {
                *next_after = last;
                return STORE_OK;
            }
            if (!record_decode(bytes, &record))
                return STORE_FORMAT;
            record.id = scan->copies[i].record_id;
            last = scan->copies[i].id;
            left = each(arg, &record) ? left - 1 : 0;
        }
        patient = patience_ms == 0 || clock_ms() - began_ms < patience_ms;
    }
    if (!scan->ended)
        *next_after = scan->at;
    return scan->error;
}

/* One record, if the rest of the filter lets it through. */
static enum store_error one_record(struct store_reader *reader, const struct audit_filter *filter,
                                   bool (*each)(void *arg, const struct audit_record *record), void *arg)
{
    struct audit_filter at = *filter;
    uint64_t next, id = filter->id;
    bool behind = filter->after != 0 && (filter->descending ? id >= filter->after : id <= filter->after);
    if (behind)
        return STORE_OK;
    at.id = 0;
    at.after = id - 1;
    at.descending = false;
    at.looks = at.limit = 1;
    struct scan scan;
    scan_begin(&scan, reader, &at, DB_AUDIT);
    scan.timed = false; /* the look is for the record */
    scan.table = DB_AUDIT;
    scan.last = id;
    return run_scan(&scan, each, arg, &next);
}

enum store_error store_audit_query(struct store_reader *reader, const struct audit_filter *filter,
                                   bool (*each)(void *arg, const struct audit_record *record), void *arg,
                                   uint64_t *next_after)
{
    const struct audit_filter page = *filter; /* next_after may point into it */
    struct scan scan;
    *next_after = 0;
    reader_settle(reader);
    if (page.id != 0)
        return one_record(reader, &page, each, arg);
    scan_begin(&scan, reader, &page, DB_AUDIT);
    return run_scan(&scan, each, arg, next_after);
}

/* A gateway's own store is served; another's may be or not, and then it stays as it is for this reader. */
static void look_whether_served(struct store_reader *reader)
{
    if (!reader->looked && reader->store->path)
        reader->unserved = !store_served(reader->store->path);
    reader->looked = true;
}

enum store_error store_effects_query(struct store_reader *reader, const struct effects_filter *filter,
                                     bool (*each)(void *arg, const struct audit_record *effect), void *arg,
                                     uint64_t *next_after)
{
    const struct audit_filter audit = {.ns = filter->ns,
                                       .key = filter->key,
                                       .after = filter->after,
                                       .limit = filter->limit,
                                       .looks = filter->looks,
                                       .patience_ms = filter->patience_ms};
    struct scan scan;
    bool unknown = filter->state == EFFECTS_UNKNOWN;
    *next_after = 0;
    if (unknown && !db_has(reader->txn.db, DB_UNKNOWN))
        return STORE_OK;
    reader_settle(reader);
    look_whether_served(reader);
    scan_begin(&scan, reader, &audit, unknown ? DB_UNKNOWN : DB_EFFECTS);
    scan.state = filter->state;
    return run_scan(&scan, each, arg, next_after);
}
