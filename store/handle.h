/* store/handle.h - what struct store and struct store_reader hold; for store.c, query.c and list.c. */
#ifndef FENCEGATE_STORE_HANDLE_H
#define FENCEGATE_STORE_HANDLE_H

#include "store/apply.h"
#include "store/folder.h"
#include "store/lmdb.h"
#include "store/writer.h"

struct store {
    struct folder *folder;
    struct db *db;
    struct writer *writer; /* NULL: opened for reading */
    char *path;            /* of a store opened for reading; else NULL */
};

struct store_reader {
    struct db_txn txn;
    struct buffer copies;        /* what a slice of a query took out of the map */
    const struct store *looking; /* until it was looked whether somebody serves this store */
    bool unserved;
};

#endif
