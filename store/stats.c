/* store/stats.c - how much is in the store, for those who watch it. */
#include "store/handle.h"

enum store_error store_stats(struct store_reader *reader, struct store_stats *out)
{
    db_read_begin(&reader->txn);
    out->fences = db_entries(&reader->txn, DB_FENCES);
    out->audit_records = db_entries(&reader->txn, DB_AUDIT);
    return db_read_end(&reader->txn);
}
