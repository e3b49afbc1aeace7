/* store/source.c - see source.h. What is looked at and what passes is query.c's. */
#include "store/source.h"

#include <string.h>

static bool begins_with(struct slice text, const char *prefix, size_t len)
{
    return text.len >= len && memcmp(text.data, prefix, len) == 0;
}

static void open_part(struct source *source, enum db_table table, const char *prefix, size_t len)
{
    struct source_part *part = &source->part[source->count++];
    memcpy(part->prefix, prefix, len);
    part->prefix_len = len;
    part->there = false;
    db_cursor_open(source->txn, table, &part->cursor);
}

/* One more namespace; false: too many. */
static bool try_namespace(struct source *source, struct db_cursor *cursor, struct slice ns, struct slice key)
{
    char prefix[INDEX_KEY_CAP];
    size_t len = index_key(ns, key, 0, prefix);
    if (len == 0 || !db_cursor_seek(cursor, (struct slice){prefix, len}) || !begins_with(cursor->key, prefix, len - 8))
        return true;
    if (source->count == SOURCE_PARTS_MAX)
        return false;
    open_part(source, cursor->table, prefix, len - 8);
    return true;
}

/* From one namespace to the next by a seek each. */
static bool open_namespaces(struct source *source, enum db_table table, struct slice key)
{
    struct db_cursor cursor;
    char after[NS_BYTES_MAX + 1];
    bool fits = true;
    db_cursor_open(source->txn, table, &cursor);
    bool there = db_cursor_next(&cursor);
    while (there && fits) {
        struct slice ns, other;
        uint64_t id;
        if (!index_key_split(cursor.key, &ns, &other, &id)) { /* damaged */
            there = db_cursor_next(&cursor);
            continue;
        }
        size_t len = ns.len;
        memcpy(after, ns.data, len);
        after[len] = 1; /* above the NUL behind this namespace, below what any name goes on with */
        fits = try_namespace(source, &cursor, (struct slice){after, len}, key);
        there = db_cursor_seek(&cursor, (struct slice){after, len + 1});
    }
    db_cursor_close(&cursor);
    return fits;
}

/* One table's part of the source. */
static bool open_table(struct source *source, enum db_table table, struct slice ns, struct slice key)
{
    char prefix[INDEX_KEY_CAP];
    if (!db_has(source->txn->db, table))
        return true;
    if (table != DB_AUDIT_BY_KEY && table != DB_REJECTED_BY_KEY) {
        open_part(source, table, "", 0);
        return true;
    }
    if (!ns.data)
        return open_namespaces(source, table, key);
    size_t len = index_key(ns, key, 0, prefix); /* 0: no such pair can be there */
    if (len > 0)
        open_part(source, table, prefix, len - 8);
    return true;
}

bool source_open(struct source *source, struct db_txn *txn, enum db_table table, struct slice ns, struct slice key)
{
    source->txn = txn;
    source->count = source->best = 0;
    bool fits = open_table(source, table, ns, key);
    if (table == DB_AUDIT)
        fits = open_table(source, DB_REJECTED, ns, key);
    else if (table == DB_AUDIT_BY_KEY && fits)
        fits = open_table(source, DB_REJECTED_BY_KEY, ns, key);
    if (!fits)
        source_close(source);
    return fits;
}

void source_close(struct source *source)
{
    while (source->count > 0)
        db_cursor_close(&source->part[--source->count].cursor);
}

static void read_part(struct source_part *part, bool moved)
{
    const struct slice key = part->cursor.key;
    part->there = moved && key.len == part->prefix_len + 8 && begins_with(key, part->prefix, part->prefix_len);
    if (part->there)
        part->id = get_u64(key.data + part->prefix_len);
}

static void choose(struct source *source)
{
    source->best = source->count;
    for (size_t i = 0; i < source->count; i++) {
        const struct source_part *part = &source->part[i];
        if (!part->there)
            continue;
        uint64_t best = source->best < source->count ? source->part[source->best].id : part->id;
        if (source->best == source->count || (source->down ? part->id > best : part->id < best))
            source->best = i;
    }
}

void source_seek(struct source *source, uint64_t at, bool down)
{
    source->down = down;
    for (size_t i = 0; i < source->count; i++) {
        struct source_part *part = &source->part[i];
        struct slice key = {part->prefix, part->prefix_len + 8};
        put_u64(part->prefix + part->prefix_len, down ? at : at + 1);
        bool beyond = !down && at == UINT64_MAX;
        read_part(part, !beyond && (down ? db_cursor_before(&part->cursor, key) : db_cursor_seek(&part->cursor, key)));
    }
    choose(source);
}

const struct db_cursor *source_here(const struct source *source, uint64_t *id)
{
    if (source->best == source->count)
        return NULL;
    *id = source->part[source->best].id;
    return &source->part[source->best].cursor;
}

void source_move(struct source *source)
{
    struct source_part *part = &source->part[source->best];
    read_part(part, source->down ? db_cursor_prev(&part->cursor) : db_cursor_next(&part->cursor));
    choose(source);
}
