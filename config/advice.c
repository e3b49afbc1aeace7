/*
 * config/advice.c - what is allowed but worth a line: warnings for `check` and the start, and what a SIGHUP can't
 * change.
 *
 * Each line starts with the JSON path. Only what a careful operator would want to know: a warning that everybody gets
 * is read by nobody, so the defaults alone give none.
 */
#include "config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/net.h"
#include "config/route_config.h"
#include "config/smtp_config.h"
#include "config/units.h"

enum { WEAK_SECRET = 24 }; /* bytes: what the Standard Webhooks specification asks for at least */

struct advice {
    void (*warn)(void *arg, const char *line);
    void *arg;
    size_t route; /* the one looked at */
};

static void say(const struct advice *advice, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct advice *advice, const char *format, ...)
{
    char line[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof(line), format, list);
    va_end(list);
    advice->warn(advice->arg, line);
}

static bool loopback(const char *address)
{
    return conf_host_is_loopback(address, strlen(address));
}

static void listeners(const struct advice *advice, const struct config *config)
{
    bool credentials = false;
    for (size_t i = 0; i < config->route_count; i++)
        credentials = credentials || config->routes[i].set_header_count > 0 || config->routes[i].smtp.username != NULL;
    if (!loopback(config->listen_address) && credentials)
        say(advice, "$.listen.address: everybody who reaches %s can call partners with the credentials set here",
            config->listen_address);
    if (!loopback(config->admin_address))
        say(advice, "$.admin.address: the admin listener on %s is plain HTTP, its token can be read on the network",
            config->admin_address);
}

static void limits(const struct advice *advice, const struct config *config)
{
    if (config->buffered_max < config->body_max) {
        char body[CONF_UNITS_TEXT], buffered[CONF_UNITS_TEXT];
        conf_format_units(config->body_max, conf_size_units, body);
        conf_format_units(config->buffered_max, conf_size_units, buffered);
        say(advice, "$.limits.buffered: %s is below limits.body (%s), a body between the two gets 503 every time",
            buffered, body);
    }
    if (config->audit_retain_ms < CONF_DAY) {
        char retain[CONF_UNITS_TEXT];
        conf_format_units(config->audit_retain_ms, conf_duration_units, retain);
        say(advice, "$.audit.retain: audit records are removed after %s", retain);
    }
}

static void fence(const struct advice *advice, const struct config_route *route)
{
    static const char *const safe[] = {"GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH"};
    if (route->mode == FENCE_OFF)
        say(advice, "$.routes[%zu].fence.mode: route \"%s\" forwards every call unfenced", advice->route, route->name);
    if (route->mode == FENCE_OBSERVE)
        say(advice, "$.routes[%zu].fence.mode: route \"%s\" forwards stale calls and only records them", advice->route,
            route->name);
    for (size_t i = 0; route->unfenced_methods[i] != NULL; i++) {
        bool is_safe = false;
        for (size_t j = 0; j < sizeof(safe) / sizeof(safe[0]); j++)
            is_safe = is_safe || strcmp(route->unfenced_methods[i], safe[j]) == 0;
        if (!is_safe)
            say(advice, "$.routes[%zu].fence.unfenced_methods[%zu]: route \"%s\" forwards every %s unfenced",
                advice->route, i, route->name, route->unfenced_methods[i]);
    }
}

static void order(const struct advice *advice, const struct config_route *route)
{
    bool defaults = route->drain_timeout_ms == CONF_DRAIN_DEFAULT && route->total_timeout_ms == CONF_TOTAL_DEFAULT;
    if (route->mode == FENCE_OFF)
        return;
    if (route->on_supersede == SUPERSEDE_OVERLAP)
        say(advice,
            "$.routes[%zu].on_supersede: on route \"%s\" a newer call starts while an older one is still running",
            advice->route, route->name);
    if (route->on_supersede == SUPERSEDE_DRAIN && route->drain_timeout_ms < route->total_timeout_ms && !defaults) {
        char drain[CONF_UNITS_TEXT], total[CONF_UNITS_TEXT];
        conf_format_units(route->drain_timeout_ms, conf_duration_units, drain);
        conf_format_units(route->total_timeout_ms, conf_duration_units, total);
        say(advice,
            "$.routes[%zu].drain_timeout: on route \"%s\" a newer call is refused after %s, an older one may run for "
            "%s",
            advice->route, route->name, drain, total);
    }
}

static void status(const struct advice *advice, const char *name, unsigned value)
{
    if (value == 408 || value == 409 || value == 425 || value == 429)
        say(advice, "$.routes[%zu].%s: many clients repeat a %u by themselves, a refused worker must stop",
            advice->route, name, value);
}

static bool allows_any_host(const struct config_webhook *webhook)
{
    for (size_t i = 0; webhook->allow_hosts[i] != NULL; i++)
        if (strcmp(webhook->allow_hosts[i], "*") == 0)
            return true;
    return false;
}

static void webhook(const struct advice *advice, const struct config_route *route)
{
    const struct config_webhook *hook = &route->webhook;
    bool any = allows_any_host(hook);
    if (hook->allow_private)
        say(advice, "$.routes[%zu].webhook.allow_private: requests can point route \"%s\" at %s", advice->route,
            route->name,
            any ? "every host of your own network, this one and the metadata service included (allow_hosts has \"*\")"
                : "addresses of your own network, wherever the names in allow_hosts lead");
    if (hook->allow_http)
        say(advice, "$.routes[%zu].webhook.allow_http: route \"%s\" sends over plain http where the target says so",
            advice->route, route->name);
    if (any && route->set_header_count > 0)
        say(advice,
            "$.routes[%zu].request_headers.set: route \"%s\" sends these headers to whatever host a request names",
            advice->route, route->name);
    for (size_t i = 0; i < hook->secret_count; i++)
        if (hook->secrets[i].len < WEAK_SECRET)
            say(advice, "$.routes[%zu].webhook.secrets[%zu]: a secret of %zu bytes, %d at least are usual",
                advice->route, i, hook->secrets[i].len, WEAK_SECRET);
}

static void partner(const struct advice *advice, const struct config_route *route)
{
    const char *origin = route->upstream_origin;
    if (route->kind == ROUTE_WEBHOOK)
        webhook(advice, route);
    if (route->kind == ROUTE_SMTP && conf_smtp_is_open(route))
        say(advice, "$.routes[%zu].smtp.starttls: route \"%s\" sends mails%s in the clear to %s", advice->route,
            route->name, route->smtp.username != NULL ? " and its password" : "", origin + strlen("smtp://"));
    if (origin != NULL && strncmp(origin, "http://", 7) == 0) {
        struct conf_authority authority;
        const char *rest = origin + 7;
        if (conf_authority_problem(rest, strlen(rest), false, &authority) == NULL &&
            !conf_host_is_loopback(authority.host, authority.host_len))
            say(advice, "$.routes[%zu].upstream: route \"%s\" sends over plain http to %s", advice->route, route->name,
                rest);
    }
    if (!conf_path_is_plain(route->path))
        say(advice,
            "$.routes[%zu].path: %s can be spelled in more than one way, a request that spells it differently does not "
            "match route \"%s\"",
            advice->route, route->path, route->name);
}

void config_warnings(const struct config *config, void (*warn)(void *arg, const char *line), void *arg)
{
    struct advice advice = {.warn = warn, .arg = arg};
    for (const struct config_remark *remark = config->remarks; remark != NULL; remark = remark->next)
        warn(arg, remark->line);
    listeners(&advice, config);
    limits(&advice, config);
    for (size_t i = 0; i < config->route_count; i++) {
        const struct config_route *route = &config->routes[i];
        advice.route = i;
        partner(&advice, route);
        fence(&advice, route);
        order(&advice, route);
        status(&advice, "stale_status", route->stale_status);
        status(&advice, "missing_status", route->missing_status);
    }
}

static bool same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_list(const char *const *a, const char *const *b)
{
    while (*a != NULL && *b != NULL && strcmp(*a, *b) == 0) {
        a++;
        b++;
    }
    return *a == NULL && *b == NULL;
}

void config_fixed_changes(const struct config *running, const struct config *fresh,
                          void (*report)(void *arg, const char *name), void *arg)
{
    if (!same(running->listen_address, fresh->listen_address) || running->listen_port != fresh->listen_port)
        report(arg, "listen");
    if (!same(running->admin_address, fresh->admin_address) || running->admin_port != fresh->admin_port ||
        !same(running->admin_token_file, fresh->admin_token_file) ||
        !same_list(running->admin_hosts, fresh->admin_hosts))
        report(arg, "admin");
    if (!same(running->store_path, fresh->store_path) || running->store_max_size != fresh->store_max_size)
        report(arg, "store");
    if (running->workers != fresh->workers)
        report(arg, "workers");
}
