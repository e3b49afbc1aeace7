/*
 * store/verify.c - looks at every entry of every table, alone and against the other tables.
 *
 * One table after the other, in slices with a reading transaction of their own. Whatever is compared is read in one
 * transaction, and every commit keeps the tables in agreement, so a gateway that writes meanwhile makes no finding. A
 * walk goes on behind the last key it saw, and a key that is not above the one before ends it: no damage makes it run
 * for ever.
 *
 * Fences against the audit. No fence may be below a token that the audit shows as accepted for its key since the last
 * reset. The walk along the index adds up the highest token of each key without regard for resets; only where the fence
 * is below that the key is looked at again, in the one transaction that also read the fence. What says nothing there:
 * an effect that began before the last reset, and one that began before the oldest record, since the reset's record
 * may be gone.
 */
#include "store/verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "store/apply.h"
#include "store/block.h"
#include "store/fence.h"
#include "store/handle.h"
#include "store/record.h"

#define SLICE_LOOKS 2048
#define KEY_CAP 512 /* LMDB's longest key is 511 bytes */

struct check {
    struct db_txn *txn;
    const struct store_checker *checker;
    struct store_contents contents;
    uint64_t findings;

    enum db_table table; /* the walk under way */
    char at[KEY_CAP];
    size_t at_len;
    uint64_t next_id, oldest_id; /* as of this slice */

    char key[FENCE_KEY_CAP]; /* whose records the walk along the index is at */
    size_t key_len;
    uint64_t accepted; /* the highest token among them */
};

struct subject {
    struct slice ns, key;
    uint64_t id;
};

__attribute__((format(printf, 3, 4))) static void find(struct check *check, const struct subject *subject,
                                                       const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct store_finding finding = {db_table_name(check->table), subject->ns, subject->key, subject->id, text};
    check->findings++;
    if (check->checker->finding)
        check->checker->finding(check->checker->arg, &finding);
}

static bool get_by_id(struct check *check, enum db_table table, uint64_t id, struct slice *value)
{
    char key[8];
    put_u64(key, id);
    return db_get(check->txn, table, (struct slice){key, sizeof key}, value);
}

static bool get_record(struct check *check, uint64_t id, struct audit_record *out)
{
    struct slice value;
    return get_by_id(check, DB_AUDIT, id, &value) && record_decode(value, out);
}

/* The key of a table that is kept by ids. */
static bool take_id(struct check *check, struct slice key, struct subject *subject)
{
    *subject = (struct subject){.id = key.len == 8 ? get_u64(key.data) : 0};
    if (subject->id == 0)
        find(check, subject, "a key of %zu bytes is no id", key.len);
    else if (subject->id >= check->next_id)
        find(check, subject, "this id has not been given out yet, the next one is %" PRIu64, check->next_id);
    return subject->id != 0;
}

/* Fences against what was accepted. */

static bool is_accepted(const struct audit_record *record)
{
    switch (record->kind) {
    case AUDIT_SENT:
    case AUDIT_NOT_SENT:
    case AUDIT_UNKNOWN:
    case AUDIT_RESOLVED: return record->effect_id != 0 && record->token != 0 && !record->would_drop;
    case AUDIT_RAISED: return true;
    default: return false;
    }
}

/* Goes through all records of a key: what was accepted since its last reset, and when that was. */
static uint64_t accepted_since_reset(struct check *check, struct slice key, uint64_t *reset_id)
{
    struct db_cursor cursor;
    struct audit_record record;
    char from[INDEX_KEY_CAP];
    uint64_t accepted = 0;
    *reset_id = 0;
    memcpy(from, key.data, key.len);
    memset(from + key.len, 0, 9);
    db_cursor_open(check->txn, DB_AUDIT_BY_KEY, &cursor);
    bool there = db_cursor_seek(&cursor, (struct slice){from, key.len + 9});
    for (uint64_t last = 0; there; there = db_cursor_next(&cursor)) {
        if (cursor.key.len != key.len + 9 || memcmp(cursor.key.data, from, key.len + 1) != 0)
            break;
        uint64_t id = get_u64(cursor.key.data + key.len + 1);
        if (id <= last)
            break;
        last = id;
        if (!get_record(check, id, &record))
            continue;
        if (record.kind == AUDIT_RESET) {
            *reset_id = id;
            accepted = 0;
        } else if (is_accepted(&record) && record.token > accepted &&
                   (record.kind == AUDIT_RAISED ||
                    (record.effect_id > *reset_id && record.effect_id >= check->oldest_id))) {
            accepted = record.token;
        }
    }
    db_cursor_close(&cursor);
    return accepted;
}

static uint64_t fence_now(struct check *check, struct slice key)
{
    struct fence fence;
    return fence_read(check->txn, key, &fence) == FENCE_THERE ? fence.token : 0;
}

static void end_of_key(struct check *check)
{
    struct slice key = {check->key, check->key_len};
    struct subject subject = {0};
    uint64_t reset_id, accepted = check->accepted;
    check->key_len = 0;
    check->accepted = 0;
    if (accepted == 0 || fence_now(check, key) >= accepted)
        return;
    accepted = accepted_since_reset(check, key, &reset_id);
    uint64_t fence = fence_now(check, key);
    if (fence >= accepted || !fence_key_split(key, &subject.ns, &subject.key))
        return;
    find(check, &subject, "the fence is at %" PRIu64 ", but token %" PRIu64 " is on record as accepted", fence,
         accepted);
}

static void check_fence(struct check *check, const struct db_cursor *cursor)
{
    struct subject subject = {0};
    struct fence fence;
    if (!fence_key_split(cursor->key, &subject.ns, &subject.key)) {
        find(check, &subject, "an entry of %zu bytes is no namespace and key", cursor->key.len);
        return;
    }
    enum fence_state state = fence_decode(check->txn->db, cursor->value, &fence);
    if (state == FENCE_DAMAGED)
        find(check, &subject, "a value of %zu bytes is no fence", cursor->value.len);
    check->contents.fences += state == FENCE_THERE ? 1 : 0;
}

static void check_effect(struct check *check, const struct db_cursor *cursor)
{
    struct subject subject;
    struct audit_record intent;
    char bytes[FENCE_KEY_CAP];
    uint64_t reset_id;
    check->contents.effects++;
    if (!take_id(check, cursor->key, &subject))
        return;
    if (cursor->value.len == 0 || (unsigned char)cursor->value.data[0] > EFFECT_WAITING ||
        !record_decode((struct slice){cursor->value.data + 1, cursor->value.len - 1}, &intent) || intent.kind != 0) {
        find(check, &subject, "a value of %zu bytes is no open effect", cursor->value.len);
        return;
    }
    struct slice key = {bytes, fence_key(intent.ns, intent.key, bytes)};
    if (key.len == 0 || intent.token == 0 || intent.would_drop || subject.id < check->oldest_id ||
        fence_now(check, key) >= intent.token)
        return;
    subject.ns = intent.ns;
    subject.key = intent.key;
    (void)accepted_since_reset(check, key, &reset_id);
    if (reset_id < subject.id)
        find(check, &subject, "the fence is at %" PRIu64 ", below this open effect's token %" PRIu64,
             fence_now(check, key), intent.token);
}

static void check_effect_of(struct check *check, const struct subject *subject, const struct audit_record *record)
{
    struct slice open, pointer;
    bool is_open = get_by_id(check, DB_EFFECTS, record->effect_id, &open);
    bool points = get_by_id(check, DB_UNKNOWN, record->effect_id, &pointer) && pointer.len == 9;
    bool to_this = points && get_u64(pointer.data + 1) == subject->id;
    if (record->effect_id >= check->next_id)
        find(check, subject, "it is about effect %" PRIu64 ", an id that has not been given out yet",
             record->effect_id);
    else if (is_open && (record->kind != AUDIT_UNKNOWN || open.len == 0 || open.data[0] != EFFECT_IN_DOUBT))
        find(check, subject, "effect %" PRIu64 " has this outcome and is open all the same", record->effect_id);
    else if (record->kind == AUDIT_RESOLVED && !(to_this && pointer.data[0] == 1))
        find(check, subject, "effect %" PRIu64 " could be resolved a second time", record->effect_id);
    else if (record->kind == AUDIT_UNKNOWN && !is_open && !points)
        find(check, subject, "effect %" PRIu64 " is neither in doubt nor can it be resolved", record->effect_id);
}

/* Blocks without an entry are read record by record: nothing is hidden. */
static void check_time_of(struct check *check, const struct subject *subject, const struct audit_record *record)
{
    struct slice value;
    if (!db_has(check->txn->db, DB_AUDIT_TIME) || !get_by_id(check, DB_AUDIT_TIME, BLOCK_OF(subject->id), &value) ||
        value.len != 16)
        return;
    if (record->time_ms < get_u64(value.data) || record->time_ms > get_u64(value.data + 8))
        find(check, subject, "the times of its block leave it out: a query by time would not show it");
}

static void check_block(struct check *check, const struct db_cursor *cursor)
{
    struct block_times times;
    uint64_t block;
    if (!block_read(cursor, &block, &times))
        find(check, &(struct subject){0}, "a value of %zu bytes has no times of a block", cursor->value.len);
    else if (times.min_ms > times.max_ms)
        find(check, &(struct subject){0}, "block %" PRIu64 " ends before it begins", block);
}

static void check_record(struct check *check, const struct db_cursor *cursor)
{
    struct subject subject;
    struct audit_record record;
    struct slice value;
    char bytes[INDEX_KEY_CAP];
    check->contents.records++;
    if (!take_id(check, cursor->key, &subject))
        return;
    if (!record_decode(cursor->value, &record) || record.kind == 0) {
        find(check, &subject, "a value of %zu bytes is no audit record", cursor->value.len);
        return;
    }
    bool rejected = check->table == DB_REJECTED;
    if (rejected && record.kind != AUDIT_REJECTED)
        find(check, &subject, "it is %s, and lies among what was rejected", audit_kind_name(record.kind));
    if (subject.id > check->contents.newest_id) {
        check->contents.newest_id = subject.id;
        check->contents.newest_ms = record.time_ms;
    }
    subject.ns = record.ns;
    subject.key = record.key;
    struct slice key = {bytes, index_key(record.ns, record.key, subject.id, bytes)};
    if (key.len > 0 && !db_get(check->txn, rejected ? DB_REJECTED_BY_KEY : DB_AUDIT_BY_KEY, key, &value))
        find(check, &subject, "the index by key does not have this record");
    check_time_of(check, &subject, &record);
    if (record.effect_id != 0)
        check_effect_of(check, &subject, &record);
}

static void check_index(struct check *check, const struct db_cursor *cursor)
{
    struct subject subject;
    struct audit_record record;
    char bytes[INDEX_KEY_CAP];
    if (!index_key_split(cursor->key, &subject.ns, &subject.key, &subject.id)) {
        find(check, &(struct subject){0}, "an entry of %zu bytes is no namespace, key and id", cursor->key.len);
        return;
    }
    struct slice key = {cursor->key.data, cursor->key.len - 9};
    if (key.len != check->key_len || memcmp(key.data, check->key, key.len) != 0) {
        end_of_key(check);
        memcpy(check->key, key.data, key.len);
        check->key_len = key.len;
    }
    struct slice value;
    if (!get_by_id(check, check->table == DB_AUDIT_BY_KEY ? DB_AUDIT : DB_REJECTED, subject.id, &value)) {
        find(check, &subject, "the audit does not have this record");
        return;
    }
    if (!record_decode(value, &record))
        return; /* told by the walk along the audit */
    size_t len = index_key(record.ns, record.key, subject.id, bytes);
    if (len != cursor->key.len || memcmp(bytes, cursor->key.data, len) != 0)
        find(check, &subject, "the audit has this record under another key");
    else if (cursor->value.len > 1 || (cursor->value.len == 1 && cursor->value.data[0] != (char)record.kind))
        find(check, &subject, "the audit has this record with another kind");
    else if (is_accepted(&record) && record.token > check->accepted)
        check->accepted = record.token;
}

static void check_pointer(struct check *check, const struct db_cursor *cursor)
{
    struct subject subject;
    struct audit_record record;
    if (!take_id(check, cursor->key, &subject))
        return;
    if (cursor->value.len != 9 || (unsigned char)cursor->value.data[0] > 1) {
        find(check, &subject, "a value of %zu bytes is no pointer to a record", cursor->value.len);
        return;
    }
    uint64_t id = get_u64(cursor->value.data + 1);
    enum audit_kind kind = cursor->value.data[0] == 1 ? AUDIT_RESOLVED : AUDIT_UNKNOWN;
    if (!get_record(check, id, &record) || record.kind != kind || record.effect_id != subject.id)
        find(check, &subject, "record %" PRIu64 " should say that it is %s, and does not", id, audit_kind_name(kind));
}

/* The walk. */

static void read_ids(struct check *check)
{
    struct db_cursor oldest;
    struct slice value;
    check->next_id = 1;
    if (db_get(check->txn, DB_META, (struct slice){"next_id", 7}, &value) && value.len == 8)
        check->next_id = get_u64(value.data);
    db_cursor_open(check->txn, DB_AUDIT, &oldest);
    check->oldest_id = db_cursor_next(&oldest) && oldest.key.len == 8 ? get_u64(oldest.key.data) : check->next_id;
    db_cursor_close(&oldest);
}

static bool above(struct slice key, struct slice last)
{
    int order = memcmp(key.data, last.data, key.len < last.len ? key.len : last.len);
    return order > 0 || (order == 0 && key.len > last.len);
}

/* False: the walk must not go on. */
static bool step(struct check *check, const struct db_cursor *cursor,
                 void (*each)(struct check *, const struct db_cursor *))
{
    if (cursor->key.len == 0 || cursor->key.len >= KEY_CAP ||
        (check->at_len > 0 && !above(cursor->key, (struct slice){check->at, check->at_len}))) {
        find(check, &(struct subject){0}, "the entries are out of order; the rest of this table was not looked at");
        return false;
    }
    memcpy(check->at, cursor->key.data, cursor->key.len);
    check->at_len = cursor->key.len;
    each(check, cursor);
    return check->txn->error == 0;
}

/* One transaction. False: the walk has ended. */
static bool slice_of_walk(struct check *check, void (*each)(struct check *, const struct db_cursor *))
{
    struct db_cursor cursor;
    bool there;
    read_ids(check);
    db_cursor_open(check->txn, check->table, &cursor);
    if (check->at_len == 0) {
        there = db_cursor_next(&cursor);
    } else { /* the last one, or where it was: retention may have taken it */
        struct slice last = {check->at, check->at_len};
        there = db_cursor_seek(&cursor, last);
        if (there && cursor.key.len == last.len && memcmp(cursor.key.data, last.data, last.len) == 0)
            there = db_cursor_next(&cursor);
    }
    for (size_t looks = 0; there && looks < SLICE_LOOKS; looks++)
        there = step(check, &cursor, each) && db_cursor_next(&cursor);
    db_cursor_close(&cursor);
    if (!there && check->table == DB_AUDIT_BY_KEY) /* the other index has no accepted token */
        end_of_key(check);
    return there;
}

static enum store_error walk(struct check *check, enum db_table table,
                             void (*each)(struct check *, const struct db_cursor *))
{
    enum store_error error = STORE_OK;
    check->table = table;
    check->at_len = 0;
    for (bool more = true; more && error == STORE_OK;) {
        db_read_begin(check->txn);
        more = slice_of_walk(check, each);
        error = db_read_end(check->txn);
        if (check->checker->alive)
            check->checker->alive(check->checker->arg);
    }
    return error;
}

/* "format" and "floor" were judged when the store was opened. */
static enum store_error check_meta(struct check *check)
{
    struct slice value;
    struct subject none = {0};
    check->table = DB_META;
    db_read_begin(check->txn);
    bool there = db_get(check->txn, DB_META, (struct slice){"next_id", 7}, &value);
    if (there && (value.len != 8 || get_u64(value.data) == 0))
        find(check, &none, "next_id is no id");
    if (!there && (db_entries(check->txn, DB_AUDIT) > 0 || db_entries(check->txn, DB_EFFECTS) > 0))
        find(check, &none, "next_id is missing: ids would be given out a second time");
    return db_read_end(check->txn);
}

enum store_error verify_db(struct db_txn *txn, const struct store_checker *checker, struct store_contents *out,
                           uint64_t *findings)
{
    static const struct {
        enum db_table table;
        void (*each)(struct check *, const struct db_cursor *);
    } tables[] = {{DB_FENCES, check_fence},       {DB_EFFECTS, check_effect},       {DB_AUDIT, check_record},
                  {DB_AUDIT_BY_KEY, check_index}, {DB_AUDIT_TIME, check_block},     {DB_UNKNOWN, check_pointer},
                  {DB_REJECTED, check_record},    {DB_REJECTED_BY_KEY, check_index}};
    struct check check = {.txn = txn, .checker = checker};
    enum store_error error = check_meta(&check);
    for (size_t i = 0; i < sizeof tables / sizeof *tables && error == STORE_OK; i++)
        if (db_has(txn->db, tables[i].table))
            error = walk(&check, tables[i].table, tables[i].each);
    check.contents.floor = db_floor(txn->db).token;
    check.contents.bytes = db_file_bytes(txn->db);
    *out = check.contents;
    *findings = check.findings;
    return error;
}

enum store_error store_verify(struct store *store, const struct store_checker *checker, struct store_contents *out,
                              uint64_t *findings)
{
    struct db_txn txn;
    *out = (struct store_contents){0};
    *findings = 0;
    if (store->writer)
        writer_settle(store->writer);
    enum store_error error = db_read_open(store->db, &txn);
    if (error == STORE_OK)
        error = verify_db(&txn, checker, out, findings);
    db_read_close(&txn);
    return error;
}
