/*
 * gateway/unresolved_watch.h - effects that were recorded `unknown` and wait for a resolution: each route's gauge and
 * alarm. A route that the configuration no longer has keeps both under the name on record.
 */
#ifndef FENCEGATE_UNRESOLVED_WATCH_H
#define FENCEGATE_UNRESOLVED_WATCH_H

#include <stdint.h>

#include "store/store.h"

/* Brings gauges and alarms up to date and returns the sum over all routes. Any thread: for those about to show them. */
uint64_t unresolved_look(struct store *store);

/* Main's, once a second; now_ms is monotonic. Every ten minutes the alarms that are on are logged once more. */
struct unresolved_watch { /* zero-initialise */
    uint64_t told_ms;
};
void unresolved_watch_look(struct unresolved_watch *watch, struct store *store, uint64_t now_ms);

#endif
