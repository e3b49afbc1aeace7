/*
 * store/clock.h - the wall clock as far as retention may trust it: records must not go because a clock was wrong for an
 * hour. A leap ahead is believed once it has lasted a day; a step back at once. One thread.
 */
#ifndef FENCEGATE_STORE_CLOCK_H
#define FENCEGATE_STORE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct trusted_clock { /* zero-initialise */
    bool known;
    int64_t offset;   /* wall clock over time since boot, as far as it is trusted; milliseconds */
    uint64_t leap_ms; /* since boot, when it leapt; 0: it has not */
};

uint64_t clock_us(void); /* monotonic, microseconds */
uint64_t clock_ms(void); /* the same, milliseconds */

/* The trusted time for the wall clock's `wall_ms`, `boot_ms` after boot. *leapt: a leap was noticed just now. Pure. */
uint64_t trusted_ms(struct trusted_clock *clock, uint64_t wall_ms, uint64_t boot_ms, bool *leapt);

#endif
