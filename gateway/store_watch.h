/*
 * gateway/store_watch.h - which alarms the store gives cause for. Main's: it has nothing else to do, and what it asks
 * for the store's writer has measured already, once a second.
 */
#ifndef FENCEGATE_STORE_WATCH_H
#define FENCEGATE_STORE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

/* At 80 per cent it comes, below 75 it goes: at the edge it must not come and go with every record. Pure. */
bool nearly_full(bool before, uint64_t used, uint64_t size);

/* Has a reader kept the same old pages for over a minute? Pure. */
bool reader_too_old(const struct store_health *health);

/* What to say about a number of effects in doubt: zero-initialise. Pure. */
struct doubt_watch {
    uint64_t told; /* the number that was said last, or a lower one since */
    uint64_t told_ms;
};
enum doubt_news { DOUBT_NOTHING, DOUBT_BEGAN, DOUBT_MORE, DOUBT_LESS, DOUBT_REMINDER, DOUBT_OVER };
enum doubt_news doubt_watch(struct doubt_watch *watch, uint64_t in_doubt, uint64_t now_ms);

struct store_watch { /* zero-initialise */
    struct doubt_watch doubt;
};
/* Once a second; now_ms is monotonic. */
void store_watch_look(struct store_watch *watch, const struct store_health *health, uint64_t now_ms);

#endif
