/*
 * store/list.c - pages of the fences, by namespace and key.
 *
 * In slices with a transaction of their own, and copies, like the audit's (query.c says why). A filter is not tried on
 * every fence: where the next one that fits can only lie further on, the cursor is moved there, so that a few keys out
 * of millions are found at once.
 */
#include <string.h>

#include "store/fence.h"
#include "store/handle.h"
#include "store/record.h"

#define SLICE_LOOKS 8192
#define SLICE_FENCES 64

struct fence_scan {
    struct store_reader *reader;
    const struct fence_filter *filter;
    char at[FENCE_KEY_CAP + 1]; /* the next look begins at this key or the first one above it */
    size_t at_len;
    bool ended;
    enum store_error error;
    size_t offset[SLICE_FENCES], len[SLICE_FENCES]; /* keys among the copies, each with its value behind it */
    size_t count, bytes;
};

static int compare(struct slice left, struct slice right)
{
    size_t common = left.len < right.len ? left.len : right.len;
    int order = common == 0 ? 0 : memcmp(left.data, right.data, common);
    if (order != 0)
        return order;
    return left.len < right.len ? -1 : left.len > right.len;
}

/* Sets the next look; text that can be no part of a fence's key ends the scan. */
static void go_to(struct fence_scan *scan, struct slice ns, char separator, struct slice rest)
{
    size_t len = ns.len + 1 + rest.len;
    if (len > sizeof scan->at) {
        scan->ended = true;
        return;
    }
    if (ns.len > 0)
        memmove(scan->at, ns.data, ns.len);
    scan->at[ns.len] = separator;
    if (rest.len > 0)
        memcpy(scan->at + ns.len + 1, rest.data, rest.len);
    scan->at_len = len;
}

/* The first byte string above `key`: none of a key's own bytes is NUL. */
static void go_behind(struct fence_scan *scan, struct slice key)
{
    if (key.len >= sizeof scan->at) {
        scan->ended = true;
        return;
    }
    memcpy(scan->at, key.data, key.len);
    scan->at[key.len] = '\0';
    scan->at_len = key.len + 1;
}

static void begin(struct fence_scan *scan)
{
    const struct fence_filter *filter = scan->filter;
    char after[FENCE_KEY_CAP];
    size_t len = fence_key(filter->after_ns, filter->after_key, after);
    if (len > 0)
        go_behind(scan, (struct slice){after, len});
    else if (filter->ns.data)
        go_to(scan, filter->ns, '\0', filter->prefix);
    else
        scan->at[0] = '\0', scan->at_len = 1; /* below every namespace */
}

/* True: it fits. Else the scan was told where to go on. */
static bool fits(struct fence_scan *scan, struct slice bytes)
{
    const struct fence_filter *filter = scan->filter;
    struct slice ns, key;
    if (!fence_key_split(bytes, &ns, &key)) {
        scan->error = STORE_FORMAT;
        return false;
    }
    int order = filter->ns.data ? compare(ns, filter->ns) : 0;
    if (order != 0) {
        scan->ended = order > 0;
        go_to(scan, filter->ns, '\0', filter->prefix);
        return false;
    }
    struct slice head = {key.data, key.len < filter->prefix.len ? key.len : filter->prefix.len};
    order = compare(head, filter->prefix);
    if (order < 0)
        go_to(scan, ns, '\0', filter->prefix);
    else if (order > 0 && filter->ns.data)
        scan->ended = true;
    else if (order > 0)
        go_to(scan, ns, '\1', (struct slice){0}); /* above all keys of this namespace */
    return order == 0;
}

static void copy_out(struct fence_scan *scan, const struct db_cursor *cursor)
{
    struct buffer *copies = &scan->reader->copies;
    struct fence fence;
    enum fence_state state = fence_decode(scan->reader->txn.db, cursor->value, &fence);
    if (state == FENCE_DAMAGED)
        scan->error = STORE_FORMAT;
    if (state != FENCE_THERE)
        return;
    if (!buffer_reserve(copies, scan->bytes + cursor->key.len + FENCE_VALUE_BYTES)) {
        scan->error = STORE_IO;
        return;
    }
    memcpy(copies->data + scan->bytes, cursor->key.data, cursor->key.len);
    memcpy(copies->data + scan->bytes + cursor->key.len, cursor->value.data, FENCE_VALUE_BYTES);
    scan->offset[scan->count] = scan->bytes;
    scan->len[scan->count++] = cursor->key.len;
    scan->bytes += cursor->key.len + FENCE_VALUE_BYTES;
}

/* One transaction: at most `want` fences that fit. */
static void slice_of_fences(struct fence_scan *scan, size_t want)
{
    struct db_cursor cursor;
    struct db_txn *txn = &scan->reader->txn;
    scan->count = scan->bytes = 0;
    if (want > SLICE_FENCES)
        want = SLICE_FENCES;
    db_read_begin(txn);
    db_cursor_open(txn, DB_FENCES, &cursor);
    for (size_t looks = 0; looks < SLICE_LOOKS && scan->count < want && scan->error == STORE_OK; looks++) {
        scan->ended = scan->ended || !db_cursor_seek(&cursor, (struct slice){scan->at, scan->at_len});
        if (scan->ended)
            break;
        if (fits(scan, cursor.key)) {
            copy_out(scan, &cursor);
            go_behind(scan, cursor.key);
        }
    }
    db_cursor_close(&cursor);
    enum store_error error = db_read_end(txn);
    if (scan->error == STORE_OK)
        scan->error = error;
}

static struct fence_entry entry_of(const struct fence_scan *scan, size_t index)
{
    struct fence_entry entry = {0};
    const char *bytes = scan->reader->copies.data + scan->offset[index], *value = bytes + scan->len[index];
    (void)fence_key_split((struct slice){bytes, scan->len[index]}, &entry.ns, &entry.key);
    (void)fence_decode(scan->reader->txn.db, (struct slice){value, FENCE_VALUE_BYTES}, &entry.fence);
    return entry;
}

enum store_error store_fences_query(struct store_reader *reader, const struct fence_filter *filter,
                                    bool (*each)(void *arg, const struct fence_entry *entry), void *arg, bool *more)
{
    struct fence_scan scan = {.reader = reader, .filter = filter};
    size_t left = filter->limit;
    *more = false;
    reader_settle(reader);
    begin(&scan);
    while (!scan.ended && scan.error == STORE_OK) {
        slice_of_fences(&scan, left < SIZE_MAX ? left + 1 : left);
        for (size_t i = 0; i < scan.count && scan.error == STORE_OK; i++) {
            struct fence_entry entry = entry_of(&scan, i);
            if (left == 0) {
                *more = true;
                return STORE_OK;
            }
            left = each(arg, &entry) ? left - 1 : 0;
        }
    }
    return scan.error;
}
