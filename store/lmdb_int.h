/* store/lmdb_int.h - what the lmdb*.c share: the environment, and the engine's values and codes. */
#ifndef FENCEGATE_STORE_LMDB_INT_H
#define FENCEGATE_STORE_LMDB_INT_H

#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>

#include "store/lmdb.h"

#define LMDB_FREE_TABLE 0 /* LMDB's own table of given-back pages: under a transaction's id a list of page numbers */

struct db {
    MDB_env *env;
    MDB_dbi table[DB_TABLE_COUNT];
    bool has[DB_TABLE_COUNT];
    bool readonly;
    bool file;     /* opened as a file, without locks */
    bool unlocked; /* reading without LMDB's locks: nobody serves it as long as it is open */
    struct db_floor floor;
    uint64_t id;            /* 0: not open for writing */
    bool copy;              /* a copy that is being made: its journal is another's */
    bool making;            /* a file that is being made: it has no tables yet */
    atomic_uint commits;    /* begun by this process; see db_read_begin() */
    const char *dead;       /* the writer's: why, once it is */
    char *path;             /* of the folder; of the file when opened as one */
    pthread_mutex_t resize; /* readonly: one look at a time, since the map may have to move between two looks */
};

enum store_error lmdb_translate(int rc);
MDB_val lmdb_val(struct slice bytes);

/* How many pages that may be in use lie behind the file's end. A few that are free may rightly lie there: LMDB does not
 * write pages that one transaction takes and gives back. 0 or an engine's code. */
int lmdb_pages_missing(const struct db *db, uint64_t *missing);

#endif
