/* store/leftovers.h - effects that have no outcome when a store is opened for serving, or restored. */
#ifndef FENCEGATE_STORE_LEFTOVERS_H
#define FENCEGATE_STORE_LEFTOVERS_H

#include "store/apply.h"

/* Each gets an `unknown` record and is in doubt from then on. *state says how many. */
enum store_error leftovers_take(struct db *db, bool drop_oldest, struct leftovers *state)
    __attribute__((warn_unused_result));

#endif
