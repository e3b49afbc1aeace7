/* gateway/crash_count.h - counts, in the last hour of /v1/stats, the calls that this start found cut by a crash. */
#ifndef FENCEGATE_CRASH_COUNT_H
#define FENCEGATE_CRASH_COUNT_H

#include <stdint.h>

struct store;

/* Main's, once, after the store is open and before anything is served: records `unknown` (gateway-crash) not older than
 * since_ms (wall time) count in the running minute of their routes. What can't be read is left out. */
void crash_count(struct store *store, uint64_t since_ms);

#endif
