/*
 * gateway/histogram.h - how often values fell between fixed bounds. Any thread; no lock.
 *
 * Adding is two relaxed atomics. What is read is never torn, and a reader may be one value behind in the sum.
 */
#ifndef FENCEGATE_HISTOGRAM_H
#define FENCEGATE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

enum { HISTOGRAM_BOUNDS_MAX = 18 };

/* Ascending; a value belongs to the first bound that is not below it, or to none (+Inf). */
struct histogram_scale {
    unsigned count;
    struct {
        uint64_t upto;
        const char *label; /* as Prometheus reads it in `le` */
    } bounds[HISTOGRAM_BOUNDS_MAX];
    uint64_t unit; /* the sum is divided by this when shown: 1000000 for microseconds shown as seconds */
};
extern const struct histogram_scale histogram_time;  /* microseconds: 100 us to 60 s */
extern const struct histogram_scale histogram_batch; /* operations: 1 to 1024 */

/* Zero-initialise; always used with the same scale. */
struct histogram {
    _Atomic uint64_t cells[HISTOGRAM_BOUNDS_MAX + 1]; /* the last one in use: above all bounds */
    _Atomic uint64_t sum;
};
void histogram_add(struct histogram *histogram, const struct histogram_scale *scale, uint64_t value);

struct histogram_reading {
    uint64_t upto[HISTOGRAM_BOUNDS_MAX + 1]; /* cumulative, beside scale->bounds; then all */
    uint64_t count, sum;
};
void histogram_read(const struct histogram *histogram, const struct histogram_scale *scale,
                    struct histogram_reading *out);

#endif
