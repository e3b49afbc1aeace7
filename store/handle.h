/* store/handle.h - what struct store and struct store_reader hold; for those who open, read and copy one. */
#ifndef FENCEGATE_STORE_HANDLE_H
#define FENCEGATE_STORE_HANDLE_H

#include "store/apply.h"
#include "store/folder.h"
#include "store/lmdb.h"
#include "store/unresolved.h"
#include "store/writer.h"

struct store {
    struct folder *folder;
    struct db *db;
    struct writer *writer;        /* NULL: opened for reading */
    struct unresolved unresolved; /* of a store that is served */
    char *path;                   /* of a store opened for reading; else NULL */
    bool behind;                  /* opened for reading, and its gateway could not settle it */
};

struct store_reader {
    struct store *store;
    struct db_txn txn;
    struct buffer copies; /* what a slice of a query took out of the map */
    bool looked;          /* whether somebody serves this store */
    bool unserved;
};

/* Before a look at more than one fence: data.mdb has all that is durable. Waits for the writer where it has to. */
void reader_settle(struct store_reader *reader);

#endif
