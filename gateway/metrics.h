/*
 * gateway/metrics.h - counters for Prometheus. Any thread: relaxed atomics; never a key, path or token as a label.
 *
 * Routes are known by name and kept for the life of the process, so that counters survive a SIGHUP.
 */
#ifndef FENCEGATE_METRICS_H
#define FENCEGATE_METRICS_H

#include <stdint.h>

#include "gateway/reason.h"

struct metrics_route; /* lives as long as the process */
struct store_health;
struct jsonout;

/* Finds or makes the counters of a route; NULL name: those of requests without a route. Takes a lock: called when a
 * configuration is put in force, not per request. NULL: no memory. */
struct metrics_route *metrics_route(const char *name);

/* One request ended. */
void metrics_request(struct metrics_route *route, enum effect effect, enum reason reason);
/* Effects in flight (from the last look to the end of the partner's answer) and calls that wait for an older one. */
void metrics_in_flight(struct metrics_route *route, int delta);
void metrics_waiting(struct metrics_route *route, int delta);

struct metrics_gauges { /* filled by the caller at scrape time */
    uint64_t connections, requests_live, buffered_bytes;
};
/* Appends Prometheus text format 0.0.4. */
void metrics_write(struct jsonout *out, const struct metrics_gauges *gauges, const struct store_health *health);

#endif
