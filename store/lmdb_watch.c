/* store/lmdb_watch.c - who reads the store, and what is left of the disk under it. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "store/lmdb_int.h"

/* One line a reader, which is all that LMDB gives: pid, thread in hex, and the transaction, or a dash for one that sees
 * none now. The line of column heads does not begin with a number. */
static int take_reader(const char *line, void *arg)
{
    struct db_reader *oldest = arg;
    uint64_t pid, snapshot;
    if (sscanf(line, "%" SCNu64 " %*x %" SCNu64, &pid, &snapshot) == 2 && snapshot < oldest->snapshot) {
        oldest->pid = pid;
        oldest->snapshot = snapshot;
    }
    return 0;
}

bool db_oldest_reader(struct db *db, struct db_reader *out)
{
    MDB_envinfo info;
    *out = (struct db_reader){.snapshot = UINT64_MAX};
    if (mdb_reader_list(db->env, take_reader, out) < 0 || out->snapshot == UINT64_MAX ||
        mdb_env_info(db->env, &info) != 0)
        return false;
    out->newest = info.me_last_txnid;
    return true;
}

bool db_disk(const struct db *db, uint64_t *free_bytes, uint64_t *size_bytes)
{
    struct statvfs disk;
    if (statvfs(db->path, &disk) != 0)
        return false;
    *free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    *size_bytes = (uint64_t)(disk.f_blocks - disk.f_bfree + disk.f_bavail) * disk.f_frsize;
    return true;
}

int db_clear_dead_readers(struct db *db)
{
    int dead = 0;
    return mdb_reader_check(db->env, &dead) == 0 ? dead : 0;
}
