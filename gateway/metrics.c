/*
 * gateway/metrics.c - counts what happened per route, since the start and minute by minute.
 *
 * Counting takes no lock: relaxed atomics, since a scrape that is one request behind harms nobody. Routes form a list
 * that only grows. Writing it down is left to metrics_write.c and admin_stats.c.
 */
#include "gateway/metrics.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gateway/metrics_int.h"
#include "gateway/timers.h"

static pthread_mutex_t routes_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the adding */
static struct metrics_route *_Atomic routes;
static struct metrics_route *last_route; /* under the lock */
static uint64_t minutes_offset_ms;       /* set before the first route is published, then const; so is the next */
static uint64_t begun_boot_ms;           /* the counting began */
static atomic_ullong slept_ms;           /* boot clock over monotonic clock */

static struct metrics_store store;
static struct metrics_settings settings;

static uint64_t boot_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void metrics_tick(void)
{
    uint64_t monotonic = monotonic_ms(), boot = boot_ms(); /* in this order: the difference is not below 0 */
    atomic_store_explicit(&slept_ms, boot - monotonic, memory_order_relaxed);
}

const struct metrics_route *metrics_first(void)
{
    return atomic_load(&routes);
}

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
    token_watch_init(&route->watch, route->name);
    route->unresolved_alarm.kind = ALARM_UNRESOLVED;
    route->unresolved_alarm.route = route->name;
    if (last_route == NULL) {
        begun_boot_ms = boot_ms();
        minutes_offset_ms = stats_offset(begun_boot_ms, realtime_ms());
        metrics_tick();
    }
    atomic_store(last_route == NULL ? &routes : &last_route->next, route);
    last_route = route;
    return route;
}

struct metrics_route *metrics_route(const char *name)
{
    pthread_mutex_lock(&routes_lock);
    struct metrics_route *route = atomic_load(&routes);
    while (route != NULL && !same_route(route, name))
        route = atomic_load(&route->next);
    if (route == NULL)
        route = make_route(name);
    pthread_mutex_unlock(&routes_lock);
    return route;
}

void metrics_use(struct metrics_route *route, bool used)
{
    if (used)
        atomic_fetch_add_explicit(&route->uses, 1, memory_order_relaxed);
    else if (atomic_fetch_sub_explicit(&route->uses, 1, memory_order_relaxed) == 1)
        token_watch_raised(&route->watch); /* nothing could end its run any more */
}

struct token_watch *metrics_watch(struct metrics_route *route)
{
    return &route->watch;
}

struct alarm *metrics_unresolved(struct metrics_route *route, uint64_t count)
{
    atomic_store_explicit(&route->unresolved, count, memory_order_relaxed);
    return &route->unresolved_alarm;
}

static void count_minute(struct metrics_route *route, enum stats_kind kind, uint64_t now_ms)
{
    uint64_t now_boot_ms = now_ms + atomic_load_explicit(&slept_ms, memory_order_relaxed);
    stats_count(&route->minutes, kind, stats_minute(now_boot_ms, minutes_offset_ms));
}

void metrics_request(struct metrics_route *route, enum effect effect, enum reason reason, uint64_t now_ms)
{
    atomic_fetch_add_explicit(&route->requests[effect][reason], 1, memory_order_relaxed);
    count_minute(route, stats_kind_of(effect, reason), now_ms);
}

void metrics_left(struct metrics_route *route, uint64_t now_ms)
{
    count_minute(route, STATS_UNKNOWN, now_ms);
}

void metrics_drop(struct metrics_route *route, enum reason reason, enum drop_stage stage)
{
    atomic_fetch_add_explicit(&route->drops[reason][stage], 1, memory_order_relaxed);
}

void metrics_took(struct metrics_route *route, enum metrics_time which, uint64_t us)
{
    histogram_add(&route->times[which], &histogram_time, us);
}

void metrics_in_flight(struct metrics_route *route, int delta)
{
    atomic_fetch_add_explicit(&route->in_flight, delta, memory_order_relaxed);
}

void metrics_waiting(struct metrics_route *route, int delta)
{
    atomic_fetch_add_explicit(&route->waiting, delta, memory_order_relaxed);
}

const struct metrics_settings *metrics_of_settings(void)
{
    return &settings;
}

void metrics_started(uint64_t now_ms)
{
    atomic_store(&settings.read_ms, now_ms);
}

void metrics_reload(bool applied, uint64_t now_ms)
{
    atomic_fetch_add(applied ? &settings.applied : &settings.refused, 1);
    atomic_store(&settings.last_refused, !applied);
    if (applied)
        atomic_store(&settings.read_ms, now_ms);
}

const struct metrics_store *metrics_of_store(void)
{
    return &store;
}

void metrics_transaction(const struct store_sample *sample)
{
    histogram_add(&store.commit, &histogram_time, sample->commit_us);
    histogram_add(&store.batch, &histogram_time, sample->batch_us);
    if (sample->operations > 0)
        histogram_add(&store.operations, &histogram_batch, sample->operations);
}

/* Is there something to see of it: it is in force, something waits for a resolution, or its last hour was not empty. */
static bool read_hour(const struct metrics_route *route, uint32_t minute, struct metrics_hour *out)
{
    uint32_t any = atomic_load_explicit(&route->uses, memory_order_relaxed);
    out->name = route->name;
    out->unresolved = atomic_load_explicit(&route->unresolved, memory_order_relaxed);
    any |= out->unresolved != 0;
    out->in_flight = gauge_of(&route->in_flight);
    out->waiting = gauge_of(&route->waiting);
    for (int kind = 0; kind < STATS_KINDS; kind++) {
        stats_read(&route->minutes, (enum stats_kind)kind, minute, out->counts[kind]);
        for (int i = 0; i < STATS_MINUTES; i++)
            any |= out->counts[kind][i];
    }
    return any != 0;
}

void metrics_hours(const struct metrics_now *now, void (*each)(void *arg, const struct metrics_hour *hour), void *arg)
{
    struct metrics_hour hour;
    uint32_t minute = stats_minute(now->boot_ms, minutes_offset_ms);
    for (const struct metrics_route *route = metrics_first(); route != NULL; route = atomic_load(&route->next))
        if (route->name != NULL && read_hour(route, minute, &hour))
            each(arg, &hour);
}

void metrics_now(struct metrics_now *out)
{
    *out = (struct metrics_now){.boot_ms = boot_ms(), .wall_ms = realtime_ms()};
    out->window_start_ms = stats_window_start(out->boot_ms, minutes_offset_ms, out->wall_ms);
    out->counted_from_ms = stats_counted_from(begun_boot_ms, out->boot_ms, minutes_offset_ms, out->window_start_ms);
}
