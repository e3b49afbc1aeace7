/*
 * gateway/settings.h - a configuration in force, with what runs beside it for each route.
 *
 * Shared by reference count: every worker holds one, every request the one it began under, so a SIGHUP changes nothing
 * for requests under way. The route's counters below are atomic or under its mutex and touched by all workers.
 */
#ifndef FENCEGATE_SETTINGS_H
#define FENCEGATE_SETTINGS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gateway/log.h"

struct config;
struct config_route;
struct metrics_route;

struct route_state {
    const struct config_route *config;
    struct metrics_route *metrics;
    atomic_uint in_flight; /* against the route's own limit */
    pthread_mutex_t breaker_mutex;
    unsigned failures;      /* consecutive results that were not-sent, unknown or 5xx */
    uint64_t open_until_ms; /* monotonic; 0: closed */
    bool probing;           /* after open_for one call was let through and has not ended */
    struct log_rate tls_told;
    atomic_ullong new_keys_us; /* monotonic: when the keys let in so far are paid for at new_keys.per_second */
};

struct settings {
    const struct config *config; /* owned */
    struct route_state *routes;  /* beside config->routes */
    atomic_uint references;
    uint64_t number; /* later ones have a higher one */
};

/* Takes over the reference to `config`. NULL: no memory. One reference is the caller's. */
struct settings *settings_new(const struct config *config) __attribute__((warn_unused_result));
struct settings *settings_ref(struct settings *settings); /* any thread */
void settings_unref(struct settings **settings);          /* any thread; clears it */

enum breaker_answer { BREAKER_CLOSED, BREAKER_PROBE, BREAKER_OPEN };
/* The breaker of a route. OPEN: refused, *retry_after_s is set. PROBE: the one call that is let through after open_for;
 * breaker_result() or breaker_withdraw() must follow for it. */
enum breaker_answer breaker_admit(struct route_state *route, uint64_t now_ms, unsigned *retry_after_s);
/* Would it be OPEN? For what is refused anyway: nothing is let through. */
bool breaker_is_open(struct route_state *route, uint64_t now_ms, unsigned *retry_after_s);
void breaker_result(struct route_state *route, uint64_t now_ms, bool probe, bool failed); /* of any call */
/* A probe was refused before it reached the partner and says nothing about it: another may try. */
void breaker_withdraw(struct route_state *route);

/* May a call make a new key now? One that may is counted. Any thread. */
bool route_takes_new_key(struct route_state *route, uint64_t now_us) __attribute__((warn_unused_result));

#endif
