/*
 * store/apply.c - admission, records, operators' changes, retention and crash leftovers as changes to the tables.
 *
 * All runs inside a write transaction, so operations of one batch see each other's effects in their order. Ids of
 * effects and of audit records come from one counter that is kept in `meta` and written in the transaction that uses
 * it: an id is never given out twice, not even when retention has removed everything or a crash came in between.
 *
 * Refusals without an accepted token (`rejected`, of no effect) can be caused by anybody, at will. They lie in tables
 * of their own, a ring: the oldest make room for the newest, and other records never do (batch_trim_rejected()). Stores
 * from before the ring have theirs among the other records, where they stay.
 *
 * An effect that was recorded `unknown` can be resolved once. Until then `unknown` points from its id to that record,
 * afterwards to the `resolved` one. Until it is resolved its record stays, retention and drop-oldest pass it over. What
 * is in doubt has no pointer: its intent stays in `effects` until it is resolved, however old.
 *
 * When to begin, commit and try again is left to writer.c.
 */
#include "store/apply.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/block.h"
#include "store/clock.h"
#include "store/fence.h"
#include "store/record.h"
#include "store/unresolved.h"

static const struct slice next_id_key = {"next_id", 7}, removed_key = {"removed", 7}, clock_key = {"clock", 5},
                          passed_key = {"passed", 6};

uint64_t removed_id(struct db_txn *txn)
{
    struct slice value;
    return db_get(txn, DB_META, removed_key, &value) && value.len == 8 ? get_u64(value.data) : 0;
}

static uint64_t newest_ms(struct db_txn *txn)
{
    struct db_cursor cursor;
    char last[8];
    uint64_t time_ms = 0;
    memset(last, 0xff, sizeof last);
    db_cursor_open(txn, DB_AUDIT, &cursor);
    if (db_cursor_before(&cursor, (struct slice){last, sizeof last}) && !record_time(cursor.value, &time_ms))
        time_ms = 0;
    db_cursor_close(&cursor);
    return time_ms;
}

struct kept_clock kept_clock(struct db_txn *txn)
{
    struct slice value;
    if (db_get(txn, DB_META, clock_key, &value) && value.len == 16)
        return (struct kept_clock){get_u64(value.data), get_u64(value.data + 8)};
    return (struct kept_clock){.trusted_ms = newest_ms(txn)};
}

void batch_keep_clock(struct batch *batch, struct kept_clock clock)
{
    char value[16];
    put_u64(value, clock.trusted_ms);
    put_u64(value + 8, clock.lasted_ms);
    db_put(&batch->txn, DB_META, clock_key, (struct slice){value, sizeof value});
}

static struct slice text(const char *chars)
{
    return (struct slice){chars, strlen(chars)};
}

uint64_t batch_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void batch_begin(struct batch *batch, struct db *db, struct buffer *scratch)
{
    *batch = (struct batch){.scratch = scratch};
    db_begin(db, &batch->txn);
    batch_resume(batch);
}

void batch_resume(struct batch *batch)
{
    struct slice value;
    batch->now_ms = batch_clock_ms();
    batch->begun_us = clock_us();
    batch->resolved = 0;
    if (batch->unresolved)
        unresolved_drop(batch->unresolved);
    batch->next_id = 1;
    if (db_get(&batch->txn, DB_META, next_id_key, &value) && value.len == 8)
        batch->next_id = get_u64(value.data);
    batch->first_id = batch->next_id;
}

void batch_touch(struct batch *batch)
{
    char value[8];
    put_u64(value, batch->next_id);
    db_put(&batch->txn, DB_META, next_id_key, (struct slice){value, sizeof value});
}

void batch_finish(struct batch *batch)
{
    if (batch->next_id != batch->first_id)
        batch_touch(batch);
    block_finish(&batch->txn, batch->first_id, batch->next_id);
}

enum store_error batch_commit(struct batch *batch)
{
    batch_finish(batch);
    return db_commit(&batch->txn);
}

/* The record's bytes in the scratch buffer, after room for one byte. */
static bool encode(struct batch *batch, const struct audit_record *record, struct slice *out)
{
    if (batch->scratch->cap == 0 && !buffer_reserve(batch->scratch, 1)) {
        batch->txn.error = ENOMEM;
        return false;
    }
    size_t len = record_encode(record, batch->scratch->data + 1, batch->scratch->cap - 1);
    if (len > batch->scratch->cap - 1) {
        if (!buffer_reserve(batch->scratch, len + 1)) {
            batch->txn.error = ENOMEM;
            return false;
        }
        len = record_encode(record, batch->scratch->data + 1, batch->scratch->cap - 1);
    }
    *out = (struct slice){batch->scratch->data + 1, len};
    return true;
}

static uint64_t append(struct batch *batch, const struct audit_record *record)
{
    struct slice value;
    if (!encode(batch, record, &value))
        return 0;
    bool ring = record->kind == AUDIT_REJECTED && record->effect_id == 0;
    uint64_t id = batch->next_id++;
    char key[8], by_key[INDEX_KEY_CAP], kind = (char)record->kind;
    put_u64(key, id);
    size_t len = index_key(record->ns, record->key, id, by_key); /* before the change: they may point into the map */
    db_append(&batch->txn, ring ? DB_REJECTED : DB_AUDIT, (struct slice){key, sizeof key}, value);
    if (len > 0) /* a record without a valid key is found by id alone */
        db_put(&batch->txn, ring ? DB_REJECTED_BY_KEY : DB_AUDIT_BY_KEY, (struct slice){by_key, len},
               (struct slice){&kind, 1});
    return id;
}

static void put_effect(struct batch *batch, uint64_t id, enum effect_state state, const struct audit_record *intent)
{
    struct slice value;
    if (!encode(batch, intent, &value))
        return;
    char key[8];
    put_u64(key, id);
    batch->scratch->data[0] = (char)state;
    struct slice bytes = {batch->scratch->data, value.len + 1};
    if (state != EFFECT_IN_DOUBT)
        db_append(&batch->txn, DB_EFFECTS, (struct slice){key, sizeof key}, bytes);
    else
        db_put(&batch->txn, DB_EFFECTS, (struct slice){key, sizeof key}, bytes);
}

#define POINTER_BYTES 9 /* a value in `unknown` */

static void point_to(struct batch *batch, uint64_t effect_id, bool resolved, uint64_t audit_id)
{
    char key[8], value[POINTER_BYTES] = {resolved ? 1 : 0};
    put_u64(key, effect_id);
    put_u64(value + 1, audit_id);
    db_put(&batch->txn, DB_UNKNOWN, (struct slice){key, sizeof key}, (struct slice){value, sizeof value});
}

/* The pointer of an effect. False: none. */
static bool pointer_of(struct batch *batch, uint64_t effect_id, bool *resolved, uint64_t *audit_id)
{
    char key[8];
    struct slice value;
    put_u64(key, effect_id);
    if (!db_get(&batch->txn, DB_UNKNOWN, (struct slice){key, sizeof key}, &value) || value.len != POINTER_BYTES)
        return false;
    *resolved = value.data[0] != 0;
    *audit_id = get_u64(value.data + 1);
    return true;
}

static bool unknown_decode(struct slice value, bool resolved, uint64_t *audit_id)
{
    bool is = value.len == POINTER_BYTES && (value.data[0] != 0) == resolved;
    if (is)
        *audit_id = get_u64(value.data + 1);
    return is;
}

bool unknown_open(struct slice value, uint64_t *audit_id)
{
    return unknown_decode(value, false, audit_id);
}

bool unknown_resolved(struct slice value, uint64_t *audit_id)
{
    return unknown_decode(value, true, audit_id);
}

static void count_unresolved(struct batch *batch, struct slice route, int by)
{
    if (batch->unresolved && !unresolved_change(batch->unresolved, route, by))
        batch->txn.error = ENOMEM;
}

static void end_doubt(struct batch *batch, struct slice bytes)
{
    struct audit_record intent;
    batch->resolved++;
    if (record_decode(bytes, &intent))
        count_unresolved(batch, intent.route, -1);
}

/* An effect's entry in `effects` goes. False: there was none. *intent_ms: the time of its intent, 0 when unknown. */
static bool close_effect(struct batch *batch, uint64_t id, uint64_t *intent_ms)
{
    char bytes[8];
    put_u64(bytes, id);
    struct slice key = {bytes, sizeof bytes}, value;
    if (!db_get(&batch->txn, DB_EFFECTS, key, &value))
        return false;
    if (value.len > 0 && value.data[0] == EFFECT_IN_DOUBT)
        end_doubt(batch, (struct slice){value.data + 1, value.len - 1});
    if (value.len == 0 || !record_time((struct slice){value.data + 1, value.len - 1}, intent_ms))
        *intent_ms = 0;
    db_delete(&batch->txn, DB_EFFECTS, key);
    return true;
}

enum store_verdict store_judge(const struct fence *fence, uint64_t token, bool equal_allowed, uint64_t max_jump)
{
    if (fence->token == 0)
        return VERDICT_ACCEPTED;
    if (token < fence->token)
        return VERDICT_STALE;
    if (token == fence->token)
        return equal_allowed ? VERDICT_ACCEPTED : VERDICT_USED;
    if (max_jump != 0 && !fence->floor && token - fence->token > max_jump)
        return VERDICT_IMPLAUSIBLE;
    return VERDICT_ACCEPTED;
}

static void clear_results(struct store_op *op)
{
    op->error = STORE_OK;
    op->verdict = (enum store_verdict)0;
    op->highest = op->effect_id = op->audit_id = op->time_ms = 0;
}

static void write_intent(struct batch *batch, struct store_op *op, const struct audit_record *intent)
{
    op->effect_id = batch->next_id++;
    put_effect(batch, op->effect_id, op->admit.waits ? EFFECT_WAITING : EFFECT_OPEN, intent);
}

static struct fence get_fence(struct batch *batch, struct slice key)
{
    struct fence fence;
    if (fence_read(&batch->txn, key, &fence) == FENCE_DAMAGED)
        batch->txn.error = EIO;
    return fence;
}

bool batch_admit(struct batch *batch, struct store_op *op)
{
    clear_results(op);
    struct audit_record record = op->record;
    record.kind = (enum audit_kind)0;
    if (record.time_ms == 0)
        record.time_ms = batch->now_ms;
    op->time_ms = record.time_ms;
    if (op->admit.undecided) {
        op->error = batch->known_only ? STORE_FULL : STORE_OK;
        if (op->error != STORE_OK)
            return false;
        op->verdict = VERDICT_ACCEPTED;
        if (op->admit.intent)
            write_intent(batch, op, &record);
        return false;
    }
    char bytes[FENCE_KEY_CAP];
    struct slice key = {bytes, fence_key(op->record.ns, op->record.key, bytes)};
    if (key.len == 0 || op->record.token == 0) {
        op->error = STORE_FORMAT;
        return false;
    }
    struct fence fence = get_fence(batch, key);
    op->verdict = store_judge(&fence, op->record.token, op->admit.equal_allowed, op->admit.max_jump);
    bool refused = op->verdict != VERDICT_ACCEPTED;
    bool raised = !refused && record.token > fence.token;
    if (batch->known_only && (refused || (raised && !fence_has_entry(&batch->txn, key)))) {
        clear_results(op);
        op->error = STORE_FULL;
        return false;
    }
    if (raised)
        fence_put(&batch->txn, key, record.token, record.time_ms);
    op->highest = record.highest = raised ? record.token : fence.token;
    if (refused) {
        record.reason = op->admit.refusal[op->verdict].reason;
        record.would_drop = op->admit.observe;
    }
    if (refused && !op->admit.observe) {
        record.kind = AUDIT_DROPPED;
        record.status = op->admit.refusal[op->verdict].status;
        op->audit_id = append(batch, &record);
    } else if (op->admit.intent) {
        write_intent(batch, op, &record);
    }
    return raised;
}

void batch_record(struct batch *batch, struct store_op *op)
{
    clear_results(op);
    if (op->record.kind == 0) {
        op->error = STORE_FORMAT;
        return;
    }
    if (batch->known_only && op->record.kind == AUDIT_DROPPED && op->record.effect_id == 0) {
        op->error = STORE_FULL;
        return;
    }
    struct audit_record record = op->record;
    if (record.time_ms == 0)
        record.time_ms = batch->now_ms;
    uint64_t intent_ms = 0;
    bool closed = record.effect_id != 0 && close_effect(batch, record.effect_id, &intent_ms);
    if (intent_ms != 0)
        record.accepted_ms = intent_ms;
    op->audit_id = append(batch, &record);
    if (closed && record.kind == AUDIT_UNKNOWN) {
        point_to(batch, record.effect_id, false, op->audit_id);
        count_unresolved(batch, record.route, 1);
    }
}

/* What an operator's change is about, as its record. *key in `bytes`, of length 0 for no valid pair. */
static struct audit_record change(struct batch *batch, struct store_op *op, enum audit_kind kind,
                                  char bytes[FENCE_KEY_CAP], struct slice *key)
{
    clear_results(op);
    struct audit_record record = op->record;
    record.kind = kind;
    record.time_ms = record.time_ms == 0 ? batch->now_ms : record.time_ms;
    *key = (struct slice){bytes, fence_key(record.ns, record.key, bytes)};
    return record;
}

bool batch_raise(struct batch *batch, struct store_op *op)
{
    char bytes[FENCE_KEY_CAP];
    struct slice key;
    struct audit_record record = change(batch, op, AUDIT_RAISED, bytes, &key);
    if (key.len == 0 || record.token == 0) {
        op->error = STORE_FORMAT;
        return false;
    }
    uint64_t fence = get_fence(batch, key).token;
    op->verdict = record.token < fence ? VERDICT_STALE : VERDICT_ACCEPTED;
    op->highest = record.highest = record.token > fence ? record.token : fence;
    if (record.token <= fence)
        return false;
    fence_put(&batch->txn, key, record.token, record.time_ms);
    op->audit_id = append(batch, &record);
    return true;
}

bool batch_reset(struct batch *batch, struct store_op *op)
{
    char bytes[FENCE_KEY_CAP];
    struct slice key;
    struct audit_record record = change(batch, op, AUDIT_RESET, bytes, &key);
    uint64_t fence = key.len == 0 ? 0 : get_fence(batch, key).token;
    if (fence == 0) {
        op->error = STORE_NOT_FOUND;
        return false;
    }
    op->highest = record.highest = fence;
    fence_forget(&batch->txn, key, record.time_ms);
    op->audit_id = append(batch, &record);
    return true;
}

/* What is known of an effect that waits for its resolution. *effect points into the map. */
static enum store_error find_unresolved(struct batch *batch, uint64_t id, struct audit_record *effect, bool *in_doubt)
{
    char bytes[8];
    bool resolved;
    uint64_t audit_id;
    struct slice value;
    put_u64(bytes, id);
    *in_doubt = db_get(&batch->txn, DB_EFFECTS, (struct slice){bytes, sizeof bytes}, &value);
    if (*in_doubt) {
        if (value.len == 0 || value.data[0] != EFFECT_IN_DOUBT) /* it is running */
            return STORE_NOT_FOUND;
        value = (struct slice){value.data + 1, value.len - 1};
    } else {
        if (!pointer_of(batch, id, &resolved, &audit_id))
            return STORE_NOT_FOUND;
        if (resolved)
            return STORE_ALREADY;
        put_u64(bytes, audit_id);
        if (!db_get(&batch->txn, DB_AUDIT, (struct slice){bytes, sizeof bytes}, &value))
            return STORE_NOT_FOUND;
    }
    return record_decode(value, effect) ? STORE_OK : STORE_FORMAT;
}

/* Up to this id all that is left are records of unresolved effects: where the next removal begins. */
static uint64_t passed_id(struct batch *batch)
{
    struct slice value;
    return db_get(&batch->txn, DB_META, passed_key, &value) && value.len == 8 ? get_u64(value.data) : 0;
}

static void put_passed(struct batch *batch, uint64_t id)
{
    char value[8];
    put_u64(value, id);
    db_put(&batch->txn, DB_META, passed_key, (struct slice){value, sizeof value});
}

void batch_resolve(struct batch *batch, struct store_op *op)
{
    struct audit_record effect;
    bool in_doubt;
    clear_results(op);
    op->error = find_unresolved(batch, op->record.effect_id, &effect, &in_doubt);
    if (op->error != STORE_OK)
        return;
    if (!in_doubt) /* else close_effect() counts */
        count_unresolved(batch, effect.route, -1);
    struct audit_record record = {
        .kind = AUDIT_RESOLVED,
        .time_ms = op->record.time_ms == 0 ? batch->now_ms : op->record.time_ms,
        .reason = op->record.reason,
        .effect_id = op->record.effect_id,
        .route = effect.route,
        .ns = effect.ns,
        .key = effect.key,
        .token = effect.token,
        .method = effect.method,
        .path = effect.path,
        .client = op->record.client,
        .target = effect.target,
        .note = op->record.note,
    };
    op->audit_id = append(batch, &record);
    uint64_t intent_ms;
    (void)close_effect(batch, record.effect_id, &intent_ms);
    if (passed_id(batch) > record.effect_id) /* its records lie above this id, and may go now */
        put_passed(batch, record.effect_id);
    point_to(batch, record.effect_id, true, op->audit_id);
}

void batch_turn(struct batch *batch, struct store_op *op)
{
    char bytes[8];
    struct slice key = {bytes, sizeof bytes}, value;
    clear_results(op);
    put_u64(bytes, op->record.effect_id);
    if (!db_get(&batch->txn, DB_EFFECTS, key, &value) || value.len == 0 || value.data[0] == EFFECT_IN_DOUBT) {
        op->error = STORE_NOT_FOUND;
        return;
    }
    if (!buffer_reserve(batch->scratch, value.len)) {
        batch->txn.error = ENOMEM;
        return;
    }
    memcpy(batch->scratch->data, value.data, value.len); /* it points into the map */
    batch->scratch->data[0] = op->admit.waits ? EFFECT_WAITING : EFFECT_OPEN;
    db_put(&batch->txn, DB_EFFECTS, key, (struct slice){batch->scratch->data, value.len});
}

static void forget_pointer(struct batch *batch, uint64_t effect_id, uint64_t audit_id)
{
    char key[8];
    bool resolved;
    uint64_t pointed_to;
    put_u64(key, effect_id);
    if (pointer_of(batch, effect_id, &resolved, &pointed_to) && pointed_to == audit_id)
        db_delete(&batch->txn, DB_UNKNOWN, (struct slice){key, sizeof key});
}

/* Is this the record of an effect that was recorded `unknown` and that nobody has resolved yet? */
static bool is_unresolved(struct batch *batch, const struct db_cursor *cursor)
{
    struct audit_record record;
    bool resolved;
    uint64_t audit_id;
    char key[8];
    struct slice value = cursor->value;
    if (value.len < 2 || value.data[1] != AUDIT_UNKNOWN || cursor->key.len != 8 || !record_decode(value, &record))
        return false;
    put_u64(key, record.effect_id);
    if (db_get(&batch->txn, DB_EFFECTS, (struct slice){key, sizeof key}, &value))
        return value.len > 0 && value.data[0] == EFFECT_IN_DOUBT;
    return pointer_of(batch, record.effect_id, &resolved, &audit_id) && !resolved &&
           audit_id == get_u64(cursor->key.data);
}

/* Removes the record under the cursor, its entry in the index and what points to it. One that does not decode leaves
 * entries behind; queries pass over entries without a record. */
static void remove_record(struct batch *batch, struct db_cursor *cursor)
{
    struct audit_record record = {0};
    char key[INDEX_KEY_CAP];
    size_t len = 0;
    uint64_t id = cursor->key.len == 8 ? get_u64(cursor->key.data) : 0, effect_id = 0;
    if (id != 0 && record_decode(cursor->value, &record)) {
        len = index_key(record.ns, record.key, id, key);
        if (record.kind == AUDIT_UNKNOWN || record.kind == AUDIT_RESOLVED)
            effect_id = record.effect_id;
    }
    enum db_table index = cursor->table == DB_AUDIT ? DB_AUDIT_BY_KEY : DB_REJECTED_BY_KEY;
    db_cursor_delete(cursor);
    if (len > 0)
        db_delete(&batch->txn, index, (struct slice){key, len});
    if (effect_id != 0)
        forget_pointer(batch, effect_id, id);
}

/* Records that are removed, oldest first: the ids of the first and the last. */
struct removal {
    uint64_t first, last;
    size_t count;
};

/* The block of the one before is done with when the next lies in another. */
static void remove_next(struct batch *batch, struct db_cursor *cursor, struct removal *removal)
{
    uint64_t id = cursor->key.len == 8 ? get_u64(cursor->key.data) : removal->last;
    remove_record(batch, cursor);
    if (removal->count++ == 0)
        removal->first = id;
    else if (BLOCK_OF(id) != BLOCK_OF(removal->last))
        block_forget(&batch->txn, BLOCK_OF(removal->last));
    removal->last = id;
}

/* That something is gone can't be seen from what is left: ids have gaps. */
static void remember_removal(struct batch *batch, uint64_t last)
{
    char value[8];
    if (removed_id(&batch->txn) >= last)
        return;
    put_u64(value, last);
    db_put(&batch->txn, DB_META, removed_key, (struct slice){value, sizeof value});
}

static size_t end_removal(struct batch *batch, const struct removal *removal)
{
    if (removal->count > 0) {
        block_forget(&batch->txn, BLOCK_OF(removal->last));
        remember_removal(batch, removal->last);
    }
    return removal->count;
}

uint64_t rejected_pages(struct db_txn *txn)
{
    return db_pages(txn, DB_REJECTED) + db_pages(txn, DB_REJECTED_BY_KEY);
}

static bool seek_behind(struct db_cursor *cursor, uint64_t id)
{
    char key[8];
    put_u64(key, id + 1);
    return db_cursor_seek(cursor, (struct slice){key, sizeof key});
}

/* Records lie in the order of writing, and the clock may have been set back or forth meanwhile. A record from the
 * future was written under a wrong clock: it is passed over, else it would hold up retention until that day. */
size_t batch_expire(struct batch *batch, uint64_t before_ms, size_t limit)
{
    struct db_cursor cursor;
    struct removal removal = {0};
    uint64_t passed = passed_id(batch), was = passed;
    bool gap = false; /* something else was left on the way */
    db_cursor_open(&batch->txn, DB_AUDIT, &cursor);
    bool there = seek_behind(&cursor, passed);
    for (size_t looks = 0; there && looks < 2 * limit && removal.count < limit; looks++) {
        uint64_t time_ms = 0; /* of a damaged record: goes */
        bool known = record_time(cursor.value, &time_ms);
        bool future = known && time_ms > batch->now_ms;
        if (!future && time_ms >= before_ms)
            break;
        if (!future && !is_unresolved(batch, &cursor))
            remove_next(batch, &cursor, &removal);
        else if (future)
            gap = true;
        else if (!gap)
            passed = get_u64(cursor.key.data);
        there = db_cursor_next(&cursor);
    }
    db_cursor_close(&cursor);
    if (passed != was)
        put_passed(batch, passed);
    size_t removed = end_removal(batch, &removal);
    return batch->txn.error == 0 ? removed : 0;
}

/* Ids of this batch stay: somebody is to be told of them. */
size_t batch_trim_rejected(struct batch *batch, uint64_t before_ms, uint64_t pages_max, size_t limit)
{
    struct db_cursor cursor;
    struct removal removal = {0};
    db_cursor_open(&batch->txn, DB_REJECTED, &cursor);
    while (removal.count < limit && db_cursor_next(&cursor)) {
        uint64_t time_ms = 0; /* of a damaged record: goes */
        bool old = !record_time(cursor.value, &time_ms) || time_ms < before_ms;
        bool ours = cursor.key.len == 8 && get_u64(cursor.key.data) >= batch->first_id;
        if (ours || (!old && rejected_pages(&batch->txn) <= pages_max))
            break;
        remove_next(batch, &cursor, &removal);
    }
    db_cursor_close(&cursor);
    if (removal.count > 0)
        block_forget(&batch->txn, BLOCK_OF(removal.last));
    return batch->txn.error == 0 ? removal.count : 0;
}

/* No kind of record was made for this. `reset` is the least misleading: like a fence's reset it says that something
 * kept was given up on an operator's word, and whoever watches for resets should hear of it; it has no namespace and
 * key, and its reason and note say what it is. Among `dropped` or `unknown` it would be counted as a call. */
static void append_loss(struct batch *batch, size_t removed, uint64_t first, uint64_t last)
{
    char note[120];
    (void)snprintf(note, sizeof note, "removed the %zu oldest audit records, ids %" PRIu64 " to %" PRIu64, removed,
                   first, last);
    struct audit_record record = {
        .kind = AUDIT_RESET, .time_ms = batch->now_ms, .reason = text("audit-full"), .note = text(note)};
    (void)append(batch, &record);
}

size_t batch_drop_oldest(struct batch *batch, size_t limit)
{
    struct db_cursor cursor;
    struct removal removal = {0};
    uint64_t passed = passed_id(batch), was = passed;
    db_cursor_open(&batch->txn, DB_AUDIT, &cursor);
    bool there = seek_behind(&cursor, passed);
    for (; there && removal.count < limit; there = db_cursor_next(&cursor)) {
        if (cursor.key.len == 8 && get_u64(cursor.key.data) >= batch->first_id)
            break; /* of this batch: somebody is to be told that it is kept */
        if (is_unresolved(batch, &cursor))
            passed = get_u64(cursor.key.data);
        else
            remove_next(batch, &cursor, &removal);
    }
    db_cursor_close(&cursor);
    if (passed != was)
        put_passed(batch, passed);
    size_t removed = end_removal(batch, &removal);
    if (removed > 0)
        append_loss(batch, removed, removal.first, removal.last);
    return batch->txn.error == 0 ? removed : 0;
}

static void read_intent(const struct batch *batch, struct slice intent, struct audit_record *record)
{
    if (record_decode(intent, record))
        return;
    record->time_ms = batch->now_ms;
    record->note = text("the intent record could not be read");
}

static void append_crash(struct batch *batch, enum audit_kind kind, uint64_t id, struct audit_record record)
{
    record.kind = kind;
    record.accepted_ms = record.time_ms;
    record.time_ms = batch->now_ms;
    record.reason = text("gateway-crash");
    record.effect_id = id;
    (void)append(batch, &record);
}

static void mark_in_doubt(struct batch *batch, uint64_t id, struct slice intent)
{
    struct audit_record record;
    read_intent(batch, intent, &record);
    put_effect(batch, id, EFFECT_IN_DOUBT, &record);
    append_crash(batch, AUDIT_UNKNOWN, id, record);
}

/* Its turn had not come: nothing of it was sent. */
static void end_waiting(struct batch *batch, uint64_t id, struct slice intent)
{
    struct audit_record record;
    uint64_t intent_ms;
    read_intent(batch, intent, &record);
    (void)close_effect(batch, id, &intent_ms);
    append_crash(batch, AUDIT_NOT_SENT, id, record);
}

static void take_leftover(struct batch *batch, struct leftovers *state, bool waited, struct slice intent)
{
    struct audit_record record;
    if (waited) {
        state->waited++;
        end_waiting(batch, state->after, intent);
        return;
    }
    state->in_doubt++;
    state->found++;
    if (state->oldest_ms == 0 && record_decode(intent, &record))
        state->oldest_ms = record.time_ms;
    mark_in_doubt(batch, state->after, intent);
}

/* Seeks anew for every effect, and copies: what a cursor shows is good until the next change only. */
size_t batch_leftovers(struct batch *batch, struct leftovers *state, struct buffer *intent, size_t limit)
{
    struct db_cursor cursor;
    size_t looked = 0;
    char from[8];
    db_cursor_open(&batch->txn, DB_EFFECTS, &cursor);
    for (; looked < limit; looked++) {
        put_u64(from, state->after + 1);
        if (!db_cursor_seek(&cursor, (struct slice){from, sizeof from}) || cursor.key.len != 8)
            break;
        struct audit_record first;
        state->after = get_u64(cursor.key.data);
        char mark = cursor.value.len > 0 ? cursor.value.data[0] : EFFECT_OPEN;
        if (mark == EFFECT_IN_DOUBT) {
            state->in_doubt++;
            if (state->oldest_ms == 0 &&
                record_decode((struct slice){cursor.value.data + 1, cursor.value.len - 1}, &first))
                state->oldest_ms = first.time_ms;
            continue;
        }
        size_t len = cursor.value.len > 0 ? cursor.value.len - 1 : 0;
        if (!buffer_reserve(intent, len + 1)) {
            batch->txn.error = ENOMEM;
            break;
        }
        if (len > 0)
            memcpy(intent->data, cursor.value.data + 1, len);
        take_leftover(batch, state, mark == EFFECT_WAITING && !state->of_copy, (struct slice){intent->data, len});
    }
    db_cursor_close(&cursor);
    return looked;
}
