/* store/handle.h - what struct store and struct store_reader hold; for store.c and query.c. */
#ifndef FENCEGATE_STORE_HANDLE_H
#define FENCEGATE_STORE_HANDLE_H

#include "store/folder.h"
#include "store/lmdb.h"
#include "store/writer.h"

struct store {
    struct folder *folder;
    struct db *db;
    struct writer *writer; /* NULL: opened for reading */
};

#endif
