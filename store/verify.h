/* store/verify.h - the check of a whole store, for store_verify() and store_restore(). */
#ifndef FENCEGATE_STORE_VERIFY_H
#define FENCEGATE_STORE_VERIFY_H

#include "store/lmdb.h"

/* `txn` is from db_read_open(). */
enum store_error verify_db(struct db_txn *txn, const struct store_checker *checker, struct store_contents *out,
                           uint64_t *findings) __attribute__((warn_unused_result));

#endif
