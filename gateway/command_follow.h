/*
 * gateway/command_follow.h - `fencegate audit --follow`: records as they come.
 */
#ifndef FENCEGATE_COMMAND_FOLLOW_H
#define FENCEGATE_COMMAND_FOLLOW_H

#include <stdbool.h>

#include "gateway/command_store.h"
#include "gateway/command_table.h"
#include "store/store.h"

struct follow {
    const struct store_place *place;
    const struct audit_filter *filter;                          /* `limit`: how many of those that are there already */
    struct table *table;                                        /* where `each` puts rows */
    bool (*each)(void *arg, const struct audit_record *record); /* false: stop, the table has failed */
    void *arg;
};

/* Prints the newest records, then every one that comes, once, in order, until SIGINT, SIGTERM, or nobody reads
 * standard output any more: all of these are an orderly end. A gateway may start, stop and start again meanwhile, and
 * a store that is not there is waited for. An exit status; errors were said. */
int follow_run(const struct follow *follow);

#endif
