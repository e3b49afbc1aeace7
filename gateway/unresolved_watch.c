/* gateway/unresolved_watch.c - see unresolved_watch.h. */
#include "gateway/unresolved_watch.h"

#include <inttypes.h>
#include <stddef.h>

#include "gateway/alarm.h"
#include "gateway/metrics.h"

#define REMIND_MS (10 * 60 * (uint64_t)1000)

static struct metrics_route *route_of(const struct store_unresolved *is)
{
    return metrics_route(is->route[0] == '\0' ? NULL : is->route);
}

static void look_at_route(void *arg, const struct store_unresolved *is)
{
    uint64_t *total = arg;
    struct metrics_route *route = route_of(is);
    *total += is->count;
    if (route == NULL) /* no memory: the next look */
        return;
    struct alarm *alarm = metrics_unresolved(route, is->count);
    if (is->count == 0) {
        alarm_off(alarm);
        return;
    }
    bool began = !alarm_is_on(alarm);
    alarm_on(alarm, NULL, "%" PRIu64 " %s unknown: ask the partner, then resolve.", is->count,
             is->count == 1 ? "effect is" : "effects are");
    if (began && is->since_ms != 0)
        alarm_began(alarm, is->since_ms);
}

/* Who looks does so under the store's lock: no older number is shown after a newer one. */
uint64_t unresolved_look(struct store *store)
{
    uint64_t total = 0;
    store_unresolved(store, look_at_route, &total);
    return total;
}

static void remind_route(void *arg, const struct store_unresolved *is)
{
    struct metrics_route *route = route_of(is);
    (void)arg;
    if (route != NULL)
        alarm_remind(metrics_unresolved(route, is->count));
}

void unresolved_watch_look(struct unresolved_watch *watch, struct store *store, uint64_t now_ms)
{
    bool due = watch->told_ms != 0 && now_ms - watch->told_ms >= REMIND_MS;
    if (due)
        store_unresolved(store, remind_route, NULL);
    if (due || watch->told_ms == 0)
        watch->told_ms = now_ms;
    (void)unresolved_look(store);
}
