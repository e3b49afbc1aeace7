/*
 * store/make.h - is there a store in a folder, and a new one where there is nothing of one.
 *
 * A new store knows no fence: the next token of any key passes, however old. So one is made only where nothing says
 * that a store was here or is on its way: data.mdb.part (a restore that did not end), an empty data.mdb, a journal with
 * a number and no data.mdb are refused. It is made under another name, data.mdb.new, and renamed when it is whole and
 * synced: what a crash leaves of that is no store, nothing is in it, and the next start makes it again.
 */
#ifndef FENCEGATE_STORE_MAKE_H
#define FENCEGATE_STORE_MAKE_H

#include "store/store.h"

#define NEW_NAME "data.mdb.new"

/* With the folder's lock. STORE_OK: data.mdb is there; *made: just now, since `may` says so. */
enum store_error make_store(const char *path, bool may, uint64_t max_size, bool *made, char *why, size_t why_cap)
    __attribute__((warn_unused_result));
/* The same judgement before the folder is made or its lock is taken. */
enum store_error make_judge(const char *path, bool may, char *why, size_t why_cap) __attribute__((warn_unused_result));

#endif
