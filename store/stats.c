/*
 * store/stats.c - how much is in the store, how fast it is, and who holds it up: for those who watch it.
 *
 * What to make of it is the gateway's business.
 */
#include "store/handle.h"
#include "store/writer_int.h"

enum store_error store_stats(struct store_reader *reader, struct store_stats *out)
{
    reader_settle(reader);
    db_read_begin(&reader->txn);
    out->fences = db_entries(&reader->txn, DB_FENCES);
    out->audit_records = db_entries(&reader->txn, DB_AUDIT);
    if (db_has(reader->txn.db, DB_REJECTED))
        out->audit_records += db_entries(&reader->txn, DB_REJECTED);
    return db_read_end(&reader->txn);
}

void stats_committed(const struct writer *w, uint64_t begun_us, uint64_t committing_us, uint64_t operations)
{
    if (w->options.measured == NULL)
        return;
    uint64_t now_us = clock_us();
    struct store_sample sample = {now_us - begun_us, now_us - committing_us, operations};
    w->options.measured(w->options.notice_arg, &sample);
}

/* How long the oldest reader has kept pages that are not the newest: the same one that sees the same transaction. */
static uint64_t held_us(struct writer *w, const struct db_reader *reader)
{
    uint64_t now_us = clock_us();
    bool same = w->old_reader.pid == reader->pid && w->old_reader.snapshot == reader->snapshot;
    if (reader->snapshot >= reader->newest)
        same = false;
    if (!same) {
        w->old_reader.pid = reader->pid;
        w->old_reader.snapshot = reader->snapshot;
        w->old_reader.since_us = now_us;
    }
    return now_us - w->old_reader.since_us;
}

void stats_look(struct writer *w)
{
    struct db_reader reader;
    uint64_t disk_free = 0, disk_size = 0, held = 0, lag = 0;
    if (db_oldest_reader(w->db, &reader)) {
        lag = reader.newest > reader.snapshot ? reader.newest - reader.snapshot : 0;
        held = held_us(w, &reader);
    }
    (void)db_disk(w->db, &disk_free, &disk_size);
    pthread_mutex_lock(&w->health_lock);
    w->health.reader_lag = lag;
    w->health.reader_held_ms = lag > 0 ? held / 1000 : 0;
    w->health.reader_pid = lag > 0 ? reader.pid : 0;
    w->health.disk_bytes = disk_size;
    w->health.disk_used_bytes = disk_size - disk_free;
    pthread_mutex_unlock(&w->health_lock);
}
