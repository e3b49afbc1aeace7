/*
 * gateway/stats.h - what became of a route's requests, minute by minute, over the last hour. Any thread; no lock.
 *
 * Minutes are counted by a clock that only goes forwards and goes on while the machine sleeps (CLOCK_BOOTTIME), shifted
 * so that they begin where the wall clock's did at the start. Setting the wall clock changes where they are shown to
 * lie, and no count. Time comes in as an argument.
 */
#ifndef FENCEGATE_STATS_H
#define FENCEGATE_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#include "gateway/reason.h"

enum {
    STATS_MINUTES = 60, /* shown, the running one included */
    STATS_SLOTS = 64,   /* kept: a request counted as the minute turns takes the place of none that is shown */
};

enum stats_kind {
    STATS_SENT,     /* forwarded and answered by the partner, fenced or not */
    STATS_DROPPED,  /* by the fence */
    STATS_NOT_SENT, /* any other refusal or failure before the first byte */
    STATS_UNKNOWN,
    STATS_REJECTED, /* token or key missing or malformed */
    STATS_KINDS,
};
enum stats_kind stats_kind_of(enum effect effect, enum reason reason);

/* A slot is the minute it is about, and below that its count: one atomic, so that the first request of a new minute
 * clears and counts in one step. Zero-initialise. */
struct stats_ring {
    _Atomic uint64_t slots[STATS_KINDS][STATS_SLOTS];
};

/* What to add to the boot clock for minutes that begin with the wall clock's. */
uint64_t stats_offset(uint64_t boot_ms, uint64_t wall_ms);
uint32_t stats_minute(uint64_t boot_ms, uint64_t offset_ms);
/* Wall time at which the oldest shown minute began, to the second. */
uint64_t stats_window_start(uint64_t boot_ms, uint64_t offset_ms, uint64_t wall_ms);
/* Wall time, to the second, from which on the shown minutes were counted: in the minute in which the counting began
 * (begun_boot_ms), or where the window starts when that was before it. */
uint64_t stats_counted_from(uint64_t begun_boot_ms, uint64_t boot_ms, uint64_t offset_ms, uint64_t window_start_ms);

void stats_count(struct stats_ring *ring, enum stats_kind kind, uint32_t minute);
/* The minutes up to `minute`, oldest first. */
void stats_read(const struct stats_ring *ring, enum stats_kind kind, uint32_t minute, uint32_t out[STATS_MINUTES]);

#endif
