/* gateway/metrics_int.h - what a route's counters are: shared by metrics.c (counts) and metrics_write.c (shows). */
#ifndef FENCEGATE_METRICS_INT_H
#define FENCEGATE_METRICS_INT_H

#include <stdatomic.h>

#include "gateway/histogram.h"
#include "gateway/metrics.h"
#include "gateway/stats.h"
#include "gateway/token_watch.h"

#define EFFECT_COUNT (EFFECT_UNFENCED + 1)

struct metrics_route {
    struct metrics_route *_Atomic next; /* in the order in which they were first named */
    char *name;                         /* NULL: requests without a route */
    atomic_uint uses;                   /* configurations in force, or still used by a request, that have it */
    _Atomic uint64_t requests[EFFECT_COUNT][REASON_COUNT];
    _Atomic uint64_t drops[REASON_COUNT][DROP_STAGES];
    atomic_int_least64_t in_flight, waiting;
    struct histogram times[METRICS_TIMES];
    struct stats_ring minutes;
    struct token_watch watch;
    _Atomic uint64_t unresolved;
    struct alarm unresolved_alarm;
};

const struct metrics_route *metrics_first(void);

struct metrics_store {
    struct histogram commit, batch, operations;
};
const struct metrics_store *metrics_of_store(void);

struct metrics_settings {
    _Atomic uint64_t applied, refused; /* reloads */
    _Atomic uint64_t read_ms;          /* wall time: those in force were read */
    atomic_bool last_refused;
};
const struct metrics_settings *metrics_of_settings(void);

static inline uint64_t gauge_of(const atomic_int_least64_t *gauge)
{
    int64_t number = atomic_load_explicit(gauge, memory_order_relaxed);
    return number < 0 ? 0 : (uint64_t)number; /* two halves of a move may be seen the wrong way round */
}

#endif
