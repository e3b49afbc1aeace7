/*
 * gateway/metrics.c - counts what happened per route and writes it for Prometheus.
 *
 * Counting takes no lock: relaxed atomics, since a scrape that is one request behind harms nobody. Routes form a list
 * that only grows. The labels are a route's name, an effect and a reason, all from the configuration or from tables:
 * keys and paths as labels have filled other people's monitoring.
 */
#include "gateway/metrics.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/jsonout.h"
#include "gateway/version.h"
#include "store/store.h"

#define EFFECT_COUNT (EFFECT_UNFENCED + 1)

struct metrics_route {
    struct metrics_route *next; /* set before the route is published, then const */
    char *name;                 /* NULL: requests without a route */
    _Atomic uint64_t requests[EFFECT_COUNT][REASON_COUNT];
    atomic_int_least64_t in_flight, waiting;
};

static pthread_mutex_t routes_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the adding */
static struct metrics_route *_Atomic routes;

static bool same_route(const struct metrics_route *route, const char *name)
{
    if (name == NULL || route->name == NULL)
        return name == route->name;
    return strcmp(route->name, name) == 0;
}

static struct metrics_route *make_route(const char *name)
{
    struct metrics_route *route = calloc(1, sizeof *route);
    if (route == NULL)
        return NULL;
    if (name != NULL && (route->name = strdup(name)) == NULL) {
        free(route);
        return NULL;
    }
    route->next = atomic_load(&routes);
    atomic_store(&routes, route);
    return route;
}

struct metrics_route *metrics_route(const char *name)
{
    pthread_mutex_lock(&routes_lock);
    struct metrics_route *route = atomic_load(&routes);
    while (route != NULL && !same_route(route, name))
        route = route->next;
    if (route == NULL)
        route = make_route(name);
    pthread_mutex_unlock(&routes_lock);
    return route;
}

void metrics_request(struct metrics_route *route, enum effect effect, enum reason reason)
{
    atomic_fetch_add_explicit(&route->requests[effect][reason], 1, memory_order_relaxed);
}

void metrics_in_flight(struct metrics_route *route, int delta)
{
    atomic_fetch_add_explicit(&route->in_flight, delta, memory_order_relaxed);
}

void metrics_waiting(struct metrics_route *route, int delta)
{
    atomic_fetch_add_explicit(&route->waiting, delta, memory_order_relaxed);
}

static void text(struct jsonout *out, const char *string)
{
    jsonout_raw(out, string, strlen(string));
}

static void value(struct jsonout *out, uint64_t number)
{
    char line[32];
    int len = snprintf(line, sizeof line, " %" PRIu64 "\n", number);
    jsonout_raw(out, line, (size_t)len);
}

static void family(struct jsonout *out, const char *name, const char *type, const char *help)
{
    const char *const parts[] = {"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        text(out, parts[i]);
}

static void single(struct jsonout *out, const char *name, const char *type, const char *help, uint64_t number)
{
    family(out, name, type, help);
    text(out, name);
    value(out, number);
}

static void label_value(struct jsonout *out, const char *string)
{
    for (; *string != '\0'; string++) {
        if (*string == '\n')
            text(out, "\\n");
        else if (*string == '"' || *string == '\\')
            jsonout_raw(out, (const char[]){'\\', *string}, 2);
        else
            jsonout_raw(out, string, 1);
    }
}

static void route_label(struct jsonout *out, const char *metric, const struct metrics_route *route)
{
    text(out, metric);
    text(out, "{route=\"");
    label_value(out, route->name == NULL ? "" : route->name);
    text(out, "\"");
}

/* Shown from the start, so that a rate over the first drop is not lost for want of a zero before it. */
static bool always_shown(const struct metrics_route *route, enum effect effect, enum reason reason)
{
    return route->name != NULL && ((effect == EFFECT_SENT && reason == REASON_NONE) ||
                                   (effect == EFFECT_NOT_SENT && reason == REASON_STALE_TOKEN));
}

static void write_requests(struct jsonout *out, const struct metrics_route *first)
{
    static const char name[] = "fencegate_requests_total";
    family(out, name, "counter",
           "Requests ended, by what happened to the effect and why; an empty reason is the partner's own answer, an "
           "empty route none.");
    for (const struct metrics_route *route = first; route != NULL; route = route->next)
        for (int effect = 0; effect < EFFECT_COUNT; effect++)
            for (int reason = 0; reason < REASON_COUNT; reason++) {
                uint64_t count = atomic_load_explicit(&route->requests[effect][reason], memory_order_relaxed);
                if (count == 0 && !always_shown(route, (enum effect)effect, (enum reason)reason))
                    continue;
                route_label(out, name, route);
                text(out, ",effect=\"");
                text(out, effect_name((enum effect)effect));
                text(out, "\",reason=\"");
                text(out, reason_table[reason].slug);
                text(out, "\"}");
                value(out, count);
            }
}

static void route_gauge(struct jsonout *out, const char *name, const struct metrics_route *route, int64_t number)
{
    if (route->name == NULL)
        return;
    route_label(out, name, route);
    text(out, "}");
    value(out, number < 0 ? 0 : (uint64_t)number);
}

static void write_route_gauges(struct jsonout *out, const struct metrics_route *first)
{
    static const char in_flight[] = "fencegate_effects_in_flight", waiting[] = "fencegate_waiting";
    family(out, in_flight, "gauge", "Calls that are being sent or answered by the partner.");
    for (const struct metrics_route *route = first; route != NULL; route = route->next)
        route_gauge(out, in_flight, route, atomic_load_explicit(&route->in_flight, memory_order_relaxed));
    family(out, waiting, "gauge", "Calls that wait for an older token's call of the same key to end.");
    for (const struct metrics_route *route = first; route != NULL; route = route->next)
        route_gauge(out, waiting, route, atomic_load_explicit(&route->waiting, memory_order_relaxed));
}

static void write_store(struct jsonout *out, const struct store_health *health)
{
    single(out, "fencegate_store_commits_total", "counter", "Transactions committed with sync.", health->commits);
    single(out, "fencegate_store_operations_total", "counter", "Operations applied by those commits.",
           health->operations);
    single(out, "fencegate_store_used_bytes", "gauge", "Bytes of the store in use.", health->used_bytes);
    single(out, "fencegate_store_max_bytes", "gauge", "Bytes that the store may use.", health->max_bytes);
    single(out, "fencegate_store_writable", "gauge", "1 when the store takes new work, else 0.",
           health->writable ? 1 : 0);
    single(out, "fencegate_effects_in_doubt", "gauge", "Effects whose outcome nobody recorded and nobody resolved.",
           health->in_doubt);
}

void metrics_write(struct jsonout *out, const struct metrics_gauges *gauges, const struct store_health *health)
{
    const struct metrics_route *first = atomic_load(&routes);
    family(out, "fencegate_build_info", "gauge", "Always 1; the label has the version.");
    text(out, "fencegate_build_info{version=\"" FENCEGATE_VERSION "\"}");
    value(out, 1);
    write_requests(out, first);
    write_route_gauges(out, first);
    if (gauges != NULL) {
        single(out, "fencegate_connections", "gauge", "Client connections being served.", gauges->connections);
        single(out, "fencegate_requests_live", "gauge", "Requests that have begun and not ended.",
               gauges->requests_live);
        single(out, "fencegate_buffered_bytes", "gauge", "Bytes of request bodies held.", gauges->buffered_bytes);
    }
    if (health != NULL)
        write_store(out, health);
}
