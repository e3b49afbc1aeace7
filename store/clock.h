/*
 * store/clock.h - the wall clock as far as retention may trust it: records must not go because a clock was wrong for an
 * hour. A leap ahead is believed once it has lasted a day; a step back at once. One thread.
 *
 * A start is no exception: the first reading is held against the time that was trusted last, which the store keeps, so
 * that a wrong clock at a start is a leap like any other. Time without a gateway looks the same and costs no more than
 * a day of later removal.
 */
#ifndef FENCEGATE_STORE_CLOCK_H
#define FENCEGATE_STORE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct trusted_clock { /* zero-initialise: the first reading is believed; else trusted_from() */
    bool known, leaping;
    int64_t offset;     /* wall clock over time since boot, as far as it is trusted; milliseconds */
    int64_t leap_ms;    /* since boot, when it leapt */
    uint64_t from_ms;   /* trusted before the first reading; 0: nothing */
    uint64_t lasted_ms; /* of a leap that was under way then */
};

uint64_t clock_us(void); /* monotonic, microseconds */
uint64_t clock_ms(void); /* the same, milliseconds */

/* Before the first reading: `from_ms` was trusted last (0: nothing is known), and a leap had lasted for so long. */
void trusted_from(struct trusted_clock *clock, uint64_t from_ms, uint64_t lasted_ms);
/* The trusted time for the wall clock's `wall_ms`, `boot_ms` after boot. *leapt_ms: by so much it leapt ahead, noticed
 * just now; else 0. Pure. */
uint64_t trusted_ms(struct trusted_clock *clock, uint64_t wall_ms, uint64_t boot_ms, uint64_t *leapt_ms);
/* How long the leap under way has lasted; 0: there is none. */
uint64_t trusted_lasted_ms(const struct trusted_clock *clock, uint64_t boot_ms);

#endif
