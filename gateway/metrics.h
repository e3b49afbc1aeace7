/*
 * gateway/metrics.h - counters for Prometheus. Any thread: relaxed atomics; never a key, path or token as a label.
 *
 * Routes are known by name and kept for the life of the process, so that counters survive a SIGHUP.
 */
#ifndef FENCEGATE_METRICS_H
#define FENCEGATE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/reason.h"
#include "gateway/stats.h"

struct metrics_route; /* lives as long as the process */
struct store_health;
struct store_sample;
struct store_stats;
struct token_watch;
struct alarm;
struct jsonout;

/* Finds or makes the counters of a route; NULL name: those of requests without a route. Takes a lock: called when a
 * configuration is put in force, not per request. NULL: no memory. */
struct metrics_route *metrics_route(const char *name);

/* A configuration that names the route came (or, false, is used by nobody any more). */
void metrics_use(struct metrics_route *route, bool used);

/* Whether its tokens look sound: lives as long as its counters. */
struct token_watch *metrics_watch(struct metrics_route *route);

/* So many of its effects were recorded `unknown` and wait for a resolution. Returns the route's alarm about that. */
struct alarm *metrics_unresolved(struct metrics_route *route, uint64_t count);

/* One request ended, at monotonic time `now_ms`. */
void metrics_request(struct metrics_route *route, enum effect effect, enum reason reason, uint64_t now_ms);
/* One that an earlier process left without an outcome: it counts in the last hour alone. */
void metrics_left(struct metrics_route *route, uint64_t now_ms);
/* Now and then: how long the machine slept is what the monotonic clock does not know. */
void metrics_tick(void);
/* Where the fence stopped it; only reasons whose audit kind is `dropped`. */
enum drop_stage {
    DROP_ARRIVAL,    /* the look at the fence when it came */
    DROP_ADMISSION,  /* the writer's verdict */
    DROP_WAITING,    /* accepted, but a higher token came before its turn */
    DROP_CONNECTING, /* its turn had come: while connecting, or at the last look */
    DROP_STAGES,
};
void metrics_drop(struct metrics_route *route, enum reason reason, enum drop_stage stage);
/* The settings were read: at the start, or for a SIGHUP with this result. `now_ms` is wall time. */
void metrics_started(uint64_t now_ms);
void metrics_reload(bool applied, uint64_t now_ms);
/* How long something took. */
enum metrics_time {
    METRICS_GATEWAY,          /* request whole to last look, without the next one */
    METRICS_PREDECESSOR_WAIT, /* of those that had to wait */
    METRICS_PARTNER,          /* last look to the end of the partner's answer */
    METRICS_TIMES,
};
void metrics_took(struct metrics_route *route, enum metrics_time which, uint64_t us);
/* Effects in flight (from the last look to the end of the partner's answer) and calls that wait for an older one. */
void metrics_in_flight(struct metrics_route *route, int delta);
void metrics_waiting(struct metrics_route *route, int delta);

struct metrics_gauges { /* filled by the caller at scrape time */
    uint64_t connections, requests_live, buffered_bytes;
    uint64_t in_flight;                                    /* as struct gateway counts it */
    uint64_t connections_max, in_flight_max, buffered_max; /* the limits in force */
    const char *libmicrohttpd, *libcurl;                   /* their versions */
    uint64_t started_ms;                                   /* wall time */
};
/* Appends Prometheus text format 0.0.4. */
void metrics_write(struct jsonout *out, const struct metrics_gauges *gauges, const struct store_health *health,
                   const struct store_stats *stats);
/* What a transaction of the store took. */
void metrics_transaction(const struct store_sample *sample);

struct metrics_now {
    uint64_t boot_ms, wall_ms;
    uint64_t window_start_ms; /* wall time: the oldest of the minutes below began */
    uint64_t counted_from_ms; /* wall time: nothing was counted before, for the process began in that minute */
};
void metrics_now(struct metrics_now *out); /* there is a route */

/* The last hour of one route. */
struct metrics_hour {
    const char *name;
    uint64_t in_flight, waiting, unresolved;
    uint32_t counts[STATS_KINDS][STATS_MINUTES]; /* oldest first; the last minute is the running one */
};
/* Each route that is in force, has something unresolved or had requests within the hour, in the order in which they
 * were first named. */
void metrics_hours(const struct metrics_now *now, void (*each)(void *arg, const struct metrics_hour *hour), void *arg);

#endif
