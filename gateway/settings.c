/* gateway/settings.c - reference counting of a configuration in force, and the breaker of a route. */
#include "gateway/settings.h"

#include <stdlib.h>

#include "config/config.h"
#include "gateway/metrics.h"

struct settings *settings_new(const struct config *config)
{
    static atomic_ullong made;
    struct settings *settings = calloc(1, sizeof *settings);
    if (settings == NULL)
        return NULL;
    settings->routes = calloc(config->route_count + 1, sizeof *settings->routes);
    if (settings->routes == NULL) {
        free(settings);
        return NULL;
    }
    for (size_t i = 0; i < config->route_count; i++) { /* first what can fail: nothing has to be taken back then */
        settings->routes[i].metrics = metrics_route(config->routes[i].name);
        if (settings->routes[i].metrics == NULL) {
            free(settings->routes);
            free(settings);
            return NULL;
        }
    }
    settings->config = config;
    settings->number = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1;
    atomic_init(&settings->references, 1);
    for (size_t i = 0; i < config->route_count; i++) {
        struct route_state *route = &settings->routes[i];
        route->config = &config->routes[i];
        metrics_use(route->metrics, true);
        atomic_init(&route->in_flight, 0);
        atomic_init(&route->new_keys_us, 0);
        pthread_mutex_init(&route->breaker_mutex, NULL);
    }
    return settings;
}

struct settings *settings_ref(struct settings *settings)
{
    atomic_fetch_add_explicit(&settings->references, 1, memory_order_relaxed);
    return settings;
}

void settings_unref(struct settings **settings)
{
    struct settings *gone = *settings;
    *settings = NULL;
    if (gone == NULL || atomic_fetch_sub_explicit(&gone->references, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < gone->config->route_count; i++) {
        metrics_use(gone->routes[i].metrics, false);
        pthread_mutex_destroy(&gone->routes[i].breaker_mutex);
    }
    free(gone->routes);
    config_unref(&gone->config);
    free(gone);
}

/* With the mutex held. */
static enum breaker_answer ask_breaker(const struct route_state *route, uint64_t now_ms, unsigned *retry_after_s)
{
    if (route->open_until_ms == 0)
        return BREAKER_CLOSED;
    bool over = now_ms >= route->open_until_ms;
    if (over && !route->probing)
        return BREAKER_PROBE;
    *retry_after_s = over ? 1 : (unsigned)((route->open_until_ms - now_ms + 999) / 1000);
    return BREAKER_OPEN;
}

enum breaker_answer breaker_admit(struct route_state *route, uint64_t now_ms, unsigned *retry_after_s)
{
    if (route->config->breaker_failures == 0)
        return BREAKER_CLOSED;
    pthread_mutex_lock(&route->breaker_mutex);
    enum breaker_answer answer = ask_breaker(route, now_ms, retry_after_s);
    if (answer == BREAKER_PROBE)
        route->probing = true;
    pthread_mutex_unlock(&route->breaker_mutex);
    return answer;
}

bool breaker_is_open(struct route_state *route, uint64_t now_ms, unsigned *retry_after_s)
{
    if (route->config->breaker_failures == 0)
        return false;
    pthread_mutex_lock(&route->breaker_mutex);
    enum breaker_answer answer = ask_breaker(route, now_ms, retry_after_s);
    pthread_mutex_unlock(&route->breaker_mutex);
    return answer == BREAKER_OPEN;
}

static void tell_breaker(const struct config_route *route, bool open)
{
    struct log_line line;
    if (open ? !log_begin(&line, LOG_WARN, "breaker-open") : !log_begin(&line, LOG_INFO, "breaker-closed"))
        return;
    log_cstring(&line, "route", route->name);
    if (open)
        log_number(&line, "failures", route->breaker_failures);
    log_end(&line);
}

void breaker_result(struct route_state *route, uint64_t now_ms, bool probe, bool failed)
{
    if (route->config->breaker_failures == 0)
        return;
    pthread_mutex_lock(&route->breaker_mutex);
    bool was_open = route->open_until_ms != 0;
    if (probe)
        route->probing = false;
    if (!failed) {
        route->failures = 0;
        route->open_until_ms = 0; /* a late success of a call begun before it opened counts as well */
    } else if (++route->failures >= route->config->breaker_failures) {
        route->failures = route->config->breaker_failures; /* the next failed probe opens it again at once */
        if (probe || route->open_until_ms == 0)
            route->open_until_ms = now_ms + route->config->breaker_open_ms;
    }
    bool is_open = route->open_until_ms != 0;
    pthread_mutex_unlock(&route->breaker_mutex);
    if (is_open != was_open)
        tell_breaker(route->config, is_open);
}

void breaker_withdraw(struct route_state *route)
{
    pthread_mutex_lock(&route->breaker_mutex);
    route->probing = false;
    pthread_mutex_unlock(&route->breaker_mutex);
}

/* A second's worth may come at once. Each that comes moves the time on by its share of a second; a virtual clock, so
 * that one word is all there is to share. */
bool route_takes_new_key(struct route_state *route, uint64_t now_us)
{
    const uint64_t second_us = 1000000;
    unsigned limit = route->config->new_keys_per_second;
    if (limit == 0)
        return true;
    unsigned long long paid = atomic_load_explicit(&route->new_keys_us, memory_order_relaxed), next;
    do {
        unsigned long long from = paid > now_us ? paid : now_us;
        next = from + second_us / limit;
        if (next > now_us + second_us)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&route->new_keys_us, &paid, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}
