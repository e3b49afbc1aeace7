/*
 * store/backup.c - a copy of a store beside whoever serves it. The copying is lmdb_file.c's, its name part.c's.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "store/fence.h"
#include "store/folder.h"
#include "store/handle.h"
#include "store/owner.h"
#include "store/part.h"

#define MAP_SPARE ((uint64_t)64 << 20)

static uint64_t count_fences(struct db_txn *txn)
{
    struct db_cursor cursor;
    struct fence fence;
    uint64_t count = 0;
    if (db_floor(txn->db).token == 0)
        return db_entries(txn, DB_FENCES);
    db_cursor_open(txn, DB_FENCES, &cursor);
    while (db_cursor_next(&cursor))
        count += fence_decode(txn->db, cursor.value, &fence) == FENCE_THERE ? 1 : 0;
    db_cursor_close(&cursor);
    return count;
}

static void look_at_records(struct db_txn *txn, enum db_table table, struct store_contents *out)
{
    struct db_cursor cursor;
    char last[8];
    if (!db_has(txn->db, table))
        return;
    memset(last, 0xff, sizeof last);
    out->records += db_entries(txn, table);
    db_cursor_open(txn, table, &cursor);
    if (db_cursor_before(&cursor, (struct slice){last, sizeof last}) && cursor.key.len == 8 &&
        get_u64(cursor.key.data) > out->newest_id) {
        out->newest_id = get_u64(cursor.key.data);
        if (!record_time(cursor.value, &out->newest_ms))
            out->newest_ms = 0;
    }
    db_cursor_close(&cursor);
}

static void look(struct db_txn *txn, struct store_contents *out)
{
    *out = (struct store_contents){.bytes = db_file_bytes(txn->db),
                                   .fences = count_fences(txn),
                                   .effects = db_entries(txn, DB_EFFECTS),
                                   .floor = db_floor(txn->db).token};
    look_at_records(txn, DB_AUDIT, out);
    look_at_records(txn, DB_REJECTED, out);
}

/* What was copied is told from the copy: the store itself has gone on meanwhile. */
static enum store_error look_into(const char *file, struct store_contents *out, char *why, size_t why_cap)
{
    struct db *db;
    struct db_txn txn;
    enum store_error error = db_open_file(file, 0, &db, why, why_cap);
    if (error != STORE_OK)
        return error;
    error = db_read_open(db, &txn);
    if (error == STORE_OK) {
        db_read_begin(&txn);
        look(&txn, out);
        error = db_read_end(&txn);
        db_read_close(&txn);
    }
    db_close(&db);
    if (error != STORE_OK)
        (void)snprintf(why, why_cap, "%s: the copy cannot be read", file);
    return error;
}

/* The journal stays behind: what it has the copy has, too. */
static enum store_error leave_journal(const struct part *part, char *why, size_t why_cap)
{
    struct stat st;
    struct db *db;
    struct db_txn txn;
    if (fstat(part->fd, &st) != 0)
        return part_say(errno, part->path, "cannot look at it", why, why_cap);
    uint64_t room = 2 * (uint64_t)st.st_size + MAP_SPARE; /* of this process alone */
    enum store_error error = db_open_copy(part->path, room, &db, why, why_cap);
    if (error != STORE_OK)
        return error;
    db_begin(db, &txn);
    if (txn.error == 0 && db_journal(&txn).id == 0) {
        db_abort(&txn);
    } else {
        db_put_journal(&txn, (struct db_journal){0});
        error = db_commit(&txn);
    }
    db_close(&db);
    if (error != STORE_OK)
        (void)snprintf(why, why_cap, "%s: the copy cannot be written", part->path);
    return error;
}

enum store_error store_backup(struct store *store, const char *folder, struct store_contents *out, char *why,
                              size_t why_cap)
{
    struct part part;
    const char *reason;
    *out = (struct store_contents){0};
    if (store->behind) {
        (void)snprintf(why, why_cap,
                       "%s: its gateway can't write data.mdb now, and a copy would lack what is in the journal",
                       store->path);
        return STORE_IO;
    }
    int number = folder_make(folder, NULL);
    if (number != 0)
        return part_say(number, folder, "cannot make the folder", why, why_cap);
    enum store_error error = part_begin(&part, folder, NULL, 0, why, why_cap);
    if (error == STORE_OK) {
        if (store->writer)
            writer_settle(store->writer);
        error = db_copy(store->db, part.fd, &reason);
        if (error != STORE_OK)
            (void)snprintf(why, why_cap, "cannot copy the store to %s: %s", part.path, reason);
    }
    if (error == STORE_OK)
        error = leave_journal(&part, why, why_cap);
    if (error == STORE_OK)
        error = look_into(part.path, out, why, why_cap);
    if (error == STORE_OK)
        error = part_finish(&part, why, why_cap);
    owner_of_files(folder);
    part_drop(&part);
    return error;
}
