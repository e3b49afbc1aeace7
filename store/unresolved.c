/* store/unresolved.c - a sorted table of routes; see unresolved.h. */
#include "store/unresolved.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/apply.h"
#include "store/record.h"

#define ROWS_FIRST 16

void unresolved_init(struct unresolved *unresolved)
{
    *unresolved = (struct unresolved){.lock = PTHREAD_MUTEX_INITIALIZER};
}

void unresolved_free(struct unresolved *unresolved)
{
    for (size_t i = 0; i < unresolved->count; i++)
        free(unresolved->rows[i].route);
    free(unresolved->rows);
    pthread_mutex_destroy(&unresolved->lock);
    *unresolved = (struct unresolved){0};
}

/* Where the route is, or belongs. A name on record is no longer than a C string of it. */
static size_t place_of(const struct unresolved *unresolved, struct slice route, bool *there)
{
    size_t from = 0, to = unresolved->count;
    *there = false;
    while (from < to && !*there) {
        size_t middle = from + (to - from) / 2;
        const char *name = unresolved->rows[middle].route;
        size_t len = strlen(name), least = len < route.len ? len : route.len;
        int order = least == 0 ? 0 : memcmp(name, route.data, least);
        if (order == 0 && len != route.len)
            order = len < route.len ? -1 : 1;
        *there = order == 0;
        if (order < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return to;
}

static bool make_place(struct unresolved *unresolved)
{
    if (unresolved->count < unresolved->cap)
        return true;
    size_t cap = unresolved->cap == 0 ? ROWS_FIRST : 2 * unresolved->cap;
    struct unresolved_row *rows = realloc(unresolved->rows, cap * sizeof *rows);
    if (!rows)
        return false;
    unresolved->rows = rows;
    unresolved->cap = cap;
    return true;
}

static struct unresolved_row *make_row(struct unresolved *unresolved, struct slice route, size_t at)
{
    char *name = make_place(unresolved) ? malloc(route.len + 1) : NULL;
    if (!name)
        return NULL;
    if (route.len > 0)
        memcpy(name, route.data, route.len);
    name[route.len] = '\0';
    struct unresolved_row *row = unresolved->rows + at;
    memmove(row + 1, row, (unresolved->count - at) * sizeof *row);
    *row = (struct unresolved_row){.route = name};
    unresolved->count++;
    return row;
}

static struct unresolved_row *row_of(struct unresolved *unresolved, struct slice route)
{
    bool there;
    route.len = route.data ? strnlen(route.data, route.len) : 0;
    size_t at = place_of(unresolved, route, &there);
    return there ? unresolved->rows + at : make_row(unresolved, route, at);
}

bool unresolved_change(struct unresolved *unresolved, struct slice route, int by)
{
    pthread_mutex_lock(&unresolved->lock);
    struct unresolved_row *row = row_of(unresolved, route);
    if (row)
        row->pending += by;
    pthread_mutex_unlock(&unresolved->lock);
    unresolved->changed = unresolved->changed || row;
    return row;
}

static void settle(struct unresolved *unresolved, bool keep)
{
    if (!unresolved->changed)
        return;
    pthread_mutex_lock(&unresolved->lock);
    for (size_t i = 0; i < unresolved->count; i++) {
        struct unresolved_row *row = unresolved->rows + i;
        if (keep)
            row->count += (uint64_t)row->pending;
        if (row->count == 0)
            row->since_ms = 0;
        row->pending = 0;
    }
    pthread_mutex_unlock(&unresolved->lock);
    unresolved->changed = false;
}

void unresolved_keep(struct unresolved *unresolved)
{
    settle(unresolved, true);
}

void unresolved_drop(struct unresolved *unresolved)
{
    settle(unresolved, false);
}

void unresolved_each(struct unresolved *unresolved, void (*each)(void *arg, const struct store_unresolved *route),
                     void *arg)
{
    pthread_mutex_lock(&unresolved->lock);
    for (size_t i = 0; i < unresolved->count; i++) {
        const struct unresolved_row *row = unresolved->rows + i;
        const struct store_unresolved route = {row->route, row->count, row->since_ms};
        each(arg, &route);
    }
    pthread_mutex_unlock(&unresolved->lock);
}

/* What is in the tables. */

static void add(struct unresolved *unresolved, struct db_txn *txn, const struct audit_record *record)
{
    uint64_t since_ms = record->accepted_ms != 0 ? record->accepted_ms : record->time_ms;
    struct unresolved_row *row = row_of(unresolved, record->route);
    if (!row) {
        txn->error = ENOMEM;
        return;
    }
    row->count++;
    if (row->since_ms == 0 || since_ms < row->since_ms)
        row->since_ms = since_ms;
}

/* A pointer to no record that can be read is damage, which `verify` finds. Nobody can resolve that effect, so it does
 * not count. */
static void add_recorded(struct unresolved *unresolved, struct db_txn *txn)
{
    struct db_cursor cursor;
    db_cursor_open(txn, DB_UNKNOWN, &cursor);
    while (txn->error == 0 && db_cursor_next(&cursor)) {
        struct audit_record record;
        struct slice value;
        uint64_t id;
        char key[8];
        if (!unknown_open(cursor.value, &id))
            continue;
        put_u64(key, id);
        if (db_get(txn, DB_AUDIT, (struct slice){key, sizeof key}, &value) && record_decode(value, &record))
            add(unresolved, txn, &record);
    }
    db_cursor_close(&cursor);
}

static void add_in_doubt(struct unresolved *unresolved, struct db_txn *txn)
{
    struct db_cursor cursor;
    db_cursor_open(txn, DB_EFFECTS, &cursor);
    while (txn->error == 0 && db_cursor_next(&cursor)) {
        struct audit_record intent;
        struct slice value = cursor.value;
        if (value.len > 0 && value.data[0] == EFFECT_IN_DOUBT &&
            record_decode((struct slice){value.data + 1, value.len - 1}, &intent))
            add(unresolved, txn, &intent);
    }
    db_cursor_close(&cursor);
}

enum store_error unresolved_read(struct unresolved *unresolved, struct db *db)
{
    struct db_txn txn;
    enum store_error error = db_read_open(db, &txn);
    if (error != STORE_OK)
        return error;
    db_read_begin(&txn);
    add_recorded(unresolved, &txn);
    add_in_doubt(unresolved, &txn);
    error = db_read_end(&txn);
    db_read_close(&txn);
    return error;
}
