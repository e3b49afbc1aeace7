/* gateway/token_watch.c - see token_watch.h. */
#include "gateway/token_watch.h"

#include "gateway/timers.h"

#define RUN_GAP_MS (60 * 60 * (uint64_t)1000)
#define DAY_MS (24 * 60 * 60 * (uint64_t)1000)
#define PAST_MS (30 * DAY_MS)
#define AHEAD_MS DAY_MS
#define CLOCK_LEAST 1000000000u /* seconds in 2001: below this nobody's clock is read */

bool token_run_stale(struct token_run *run, uint64_t key_hash, uint64_t now_ms)
{
    if (run->count < TOKEN_RUN_KEYS && now_ms > run->last_ms + RUN_GAP_MS)
        run->count = 0;
    if (now_ms > run->last_ms) /* each worker has a clock of its own turn */
        run->last_ms = now_ms;
    if (run->count == TOKEN_RUN_KEYS)
        return false;
    for (unsigned i = 0; i < run->count; i++)
        if (run->keys[i] == key_hash)
            return false;
    run->keys[run->count++] = key_hash;
    return run->count == TOKEN_RUN_KEYS;
}

void token_run_end(struct token_run *run)
{
    run->count = 0;
}

const char *token_clock_unit(uint64_t token, uint64_t wall_ms)
{
    static const struct {
        const char *name;
        uint64_t per_ms, ms_per; /* one of them is 1 */
    } units[] = {{"seconds", 1, 1000}, {"milliseconds", 1, 1}, {"microseconds", 1000, 1}, {"nanoseconds", 1000000, 1}};
    uint64_t from = wall_ms > PAST_MS ? wall_ms - PAST_MS : 0, upto = wall_ms + AHEAD_MS;
    for (unsigned i = 0; i < sizeof units / sizeof units[0]; i++) {
        /* Whole milliseconds; a number of seconds that would not fit is none of this time. */
        uint64_t ms = units[i].ms_per == 1                   ? token / units[i].per_ms
                      : token < UINT64_MAX / units[i].ms_per ? token * units[i].ms_per
                                                             : UINT64_MAX;
        if (ms >= from && ms <= upto)
            return units[i].name;
    }
    return NULL;
}

void token_watch_init(struct token_watch *watch, const char *route)
{
    watch->regression.kind = ALARM_TOKEN_REGRESSION;
    watch->clock_like.kind = ALARM_CLOCK_LIKE_TOKEN;
    watch->regression.route = watch->clock_like.route = route;
    pthread_mutex_init(&watch->lock, NULL);
}

void token_watch_arrived(struct token_watch *watch, struct slice ns, struct slice key, uint64_t token)
{
    if (token < CLOCK_LEAST || alarm_is_on(&watch->clock_like)) /* once until restart */
        return;
    const char *unit = token_clock_unit(token, realtime_ms());
    if (unit == NULL)
        return;
    struct alarm_subject subject = {ns, key, token};
    alarm_on(&watch->clock_like, &subject,
             "Tokens look like %s since 1970 (first seen for key %.*s, namespace %.*s): one clock that runs ahead "
             "shuts out every later holder; let the lock "
             "service count, or bound the harm with the route's fence.max_jump.",
             unit, (int)key.len, key.len == 0 ? "" : key.data, (int)ns.len, ns.len == 0 ? "" : ns.data);
}

/* FNV-1a. Two keys with the same hash count as one. */
static uint64_t hash(struct slice ns, struct slice key)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < ns.len; i++)
        h = (h ^ (unsigned char)ns.data[i]) * 1099511628211u;
    h = (h ^ 0xFF) * 1099511628211u; /* in no namespace */
    for (size_t i = 0; i < key.len; i++)
        h = (h ^ (unsigned char)key.data[i]) * 1099511628211u;
    return h;
}

/* The alarm is switched under the lock: it and the run must not tell two stories. */
void token_watch_stale(struct token_watch *watch, struct slice ns, struct slice key, uint64_t now_ms)
{
    if (alarm_is_on(&watch->regression))
        return;
    pthread_mutex_lock(&watch->lock);
    bool regression = token_run_stale(&watch->run, hash(ns, key), now_ms);
    atomic_store_explicit(&watch->running, true, memory_order_relaxed);
    if (regression)
        alarm_on(&watch->regression, NULL,
                 "The tokens of %d keys in a row were stale, and no key that has a fence got a higher one meanwhile: "
                 "the lock service may have gone back.",
                 TOKEN_RUN_KEYS);
    pthread_mutex_unlock(&watch->lock);
}

void token_watch_raised(struct token_watch *watch)
{
    if (!atomic_load_explicit(&watch->running, memory_order_relaxed))
        return;
    pthread_mutex_lock(&watch->lock);
    token_run_end(&watch->run);
    atomic_store_explicit(&watch->running, false, memory_order_relaxed);
    alarm_off(&watch->regression);
    pthread_mutex_unlock(&watch->lock);
}
