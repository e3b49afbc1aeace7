/*
 * config/route_config.c - the keys of a route, with type, range and default, and what must hold between them.
 *
 * Names, URLs and header lists are read in route_text.c; this file has the tables and the rules across keys.
 */
#include "config/route_config.h"

#include <string.h>
#include <strings.h>

#include "config/net.h"
#include "config/route_text.h"
#include "config/secret.h"
#include "config/smtp_config.h"
#include "config/tls_files.h"
#include "config/webhook_config.h"

_Static_assert(sizeof(enum route_kind) == sizeof(unsigned), "conf_read_choice writes an unsigned");
_Static_assert(sizeof(enum fence_mode) == sizeof(unsigned), "conf_read_choice writes an unsigned");
_Static_assert(sizeof(enum supersede_rule) == sizeof(unsigned), "conf_read_choice writes an unsigned");

static const char *const kinds[] = {[ROUTE_HTTP] = "http", [ROUTE_SMTP] = "smtp", [ROUTE_WEBHOOK] = "webhook", NULL};
static const char *const modes[] = {
    [FENCE_ENFORCE] = "enforce", [FENCE_OBSERVE] = "observe", [FENCE_OFF] = "off", NULL};
static const char *const supersedes[] = {
    [SUPERSEDE_DRAIN] = "drain", [SUPERSEDE_ABORT] = "abort", [SUPERSEDE_OVERLAP] = "overlap", NULL};
static const char *const equals[] = {"reject", "allow", NULL};
static const char *const ledgers[] = {"drops", "effects", NULL};

#define AT(member) offsetof(struct config_route, member)

/* Without the key there is no such limit; with it, even empty, the members count. */
static void read_if_there(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                          const struct conf_field *field, void *to)
{
    if (value != NULL)
        conf_read_object(reader, at, value, field, to);
}

static const struct conf_field new_keys_fields[] = {
    {.name = "per_second",
     .read = conf_read_number,
     .offset = AT(new_keys_per_second),
     .min = 1,
     .max = 1000000,
     .required = true},
    {0},
};

static const struct conf_field fence_fields[] = {
    {.name = "mode", .read = conf_read_choice, .offset = AT(mode), .choices = modes, .fallback = FENCE_ENFORCE},
    {.name = "equal", .read = conf_read_switch, .offset = AT(equal_allowed), .choices = equals, .fallback = 1},
    {.name = "unfenced_methods", .read = conf_read_methods, .offset = AT(unfenced_methods)},
    {.name = "max_jump", .read = conf_read_max_jump, .offset = AT(max_jump)},
    {.name = "new_keys", .read = read_if_there, .fields = new_keys_fields},
    {.name = "token_header", .read = conf_read_fence_header, .offset = AT(token_header), .text = "Fencing-Token"},
    {.name = "key_header", .read = conf_read_fence_header, .offset = AT(key_header), .text = "Workflow-Key"},
    {0},
};

static const struct conf_field timeout_fields[] = {
    {.name = "connect",
     .read = conf_read_duration,
     .offset = AT(connect_timeout_ms),
     .min = 1,
     .max = CONF_HOUR,
     .fallback = 5 * CONF_SECOND},
    {.name = "total",
     .read = conf_read_duration,
     .offset = AT(total_timeout_ms),
     .min = 1,
     .max = CONF_DAY,
     .fallback = CONF_TOTAL_DEFAULT},
    {0},
};

static const struct conf_field breaker_fields[] = {
    {.name = "failures",
     .read = conf_read_number,
     .offset = AT(breaker_failures),
     .min = 1,
     .max = 1000000,
     .fallback = 5},
    {.name = "open_for",
     .read = conf_read_duration,
     .offset = AT(breaker_open_ms),
     .min = 1,
     .max = CONF_DAY,
     .fallback = 30 * CONF_SECOND},
    {0},
};

static const struct conf_field header_fields[] = {
    {.name = "set", .read = conf_read_set_headers},
    {.name = "remove", .read = conf_read_remove_headers, .offset = AT(remove_headers)},
    {0},
};

static const struct conf_field tls_fields[] = {
    {.name = "ca_file", .read = conf_read_certificates, .offset = AT(tls_ca_file)},
    {.name = "cert_file", .read = conf_read_certificates, .offset = AT(tls_cert_file)},
    {.name = "key_file", .read = conf_read_private_key, .offset = AT(tls_key_file)},
    {0},
};

/* A webhook's request names its target; every other route has a partner. */
static void read_upstream(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                          const struct conf_field *field, void *to)
{
    const struct config_route *route = to;
    if (route->kind == ROUTE_WEBHOOK && value != NULL)
        conf_fail(reader, at, "a webhook route has none: each request names its target in Fencegate-Target");
    else if (route->kind != ROUTE_WEBHOOK && value == NULL)
        conf_fail(reader, at->parent, "\"upstream\" is required");
    else if (route->kind == ROUTE_SMTP)
        conf_read_smtp_upstream(reader, at, value, field, to);
    else if (value != NULL)
        conf_read_upstream(reader, at, value, field, to);
}

static void read_strip_path(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                            const struct conf_field *field, void *to)
{
    struct config_route *route = to;
    if (route->kind != ROUTE_WEBHOOK)
        conf_read_bool(reader, at, value, field, &route->strip_path);
    else if (value != NULL)
        conf_fail(reader, at, "a webhook route has none: the path is the target's");
}

static const struct conf_field route_fields[] = {
    /* first: what the other keys must be depends on it */
    {.name = "kind", .read = conf_read_choice, .offset = AT(kind), .choices = kinds, .fallback = ROUTE_HTTP},
    {.name = "name", .read = conf_read_name, .offset = AT(name), .required = true},
    {.name = "path", .read = conf_read_route_path, .offset = AT(path), .required = true},
    {.name = "host", .read = conf_read_route_host, .offset = AT(host)},
    {.name = "upstream", .read = read_upstream},
    {.name = "smtp", .read = conf_read_smtp},
    {.name = "webhook", .read = conf_read_webhook},
    {.name = "namespace", .read = conf_read_name, .offset = AT(ns), .text = "default"},
    {.name = "strip_path", .read = read_strip_path, .fallback = true},
    {.name = "fence", .read = conf_read_object, .fields = fence_fields},
    {.name = "stale_status",
     .read = conf_read_number,
     .offset = AT(stale_status),
     .min = 400,
     .max = 499,
     .fallback = 412},
    {.name = "missing_status",
     .read = conf_read_number,
     .offset = AT(missing_status),
     .min = 400,
     .max = 499,
     .fallback = 428},
    {.name = "ledger", .read = conf_read_switch, .offset = AT(ledger_effects), .choices = ledgers, .fallback = 1},
    {.name = "on_supersede",
     .read = conf_read_choice,
     .offset = AT(on_supersede),
     .choices = supersedes,
     .fallback = SUPERSEDE_DRAIN},
    {.name = "drain_timeout",
     .read = conf_read_duration,
     .offset = AT(drain_timeout_ms),
     .max = CONF_DAY,
     .fallback = CONF_DRAIN_DEFAULT},
    {.name = "timeout", .read = conf_read_object, .fields = timeout_fields},
    {.name = "retry_connect", .read = conf_read_number, .offset = AT(retry_connect), .max = 10},
    {.name = "in_flight", .read = conf_read_number, .offset = AT(in_flight), .min = 1, .max = 1000000},
    {.name = "breaker", .read = read_if_there, .fields = breaker_fields},
    {.name = "request_headers", .read = conf_read_object, .fields = header_fields},
    {.name = "forward_fencing_headers", .read = conf_read_bool, .offset = AT(forward_fencing_headers)},
    {.name = "tls", .read = conf_read_object, .fields = tls_fields},
    {0},
};

static bool is_fencing_header(const struct config_route *route, const char *name)
{
    return strcasecmp(name, route->token_header) == 0 || strcasecmp(name, route->key_header) == 0;
}

static void check_headers(struct conf_reader *reader, const struct conf_where *at, const struct config_route *route)
{
    const struct conf_where headers = {at, "request_headers", 0};
    const struct conf_where set = {&headers, "set", 0}, remove = {&headers, "remove", 0};
    for (size_t i = 0; i < route->set_header_count; i++) {
        const char *name = route->set_headers[i].name;
        if (is_fencing_header(route, name))
            conf_fail(reader, &(struct conf_where){&set, name, 0}, "a fencing header of this route can't be set");
    }
    for (size_t i = 0; route->remove_headers[i] != NULL; i++) {
        const char *name = route->remove_headers[i];
        const struct conf_where here = {&remove, NULL, i};
        if (is_fencing_header(route, name))
            conf_fail(reader, &here, "\"%s\" is a fencing header: see forward_fencing_headers", name);
        for (size_t j = 0; j < route->set_header_count; j++) {
            if (strcasecmp(name, route->set_headers[j].name) == 0)
                conf_fail(reader, &here, "\"%s\" is in \"set\" too, which replaces it", name);
        }
    }
}

static void check_route(struct conf_reader *reader, const struct conf_where *at, const json_t *value,
                        const struct config_route *route)
{
    const struct conf_where fence = {at, "fence", 0}, tls = {at, "tls", 0};
    if (strcasecmp(route->token_header, route->key_header) == 0)
        conf_fail(reader, &(struct conf_where){&fence, "key_header", 0},
                  "expected another name than that of token_header, both are \"%s\"", route->token_header);
    check_headers(reader, at, route);
    if ((route->tls_cert_file == NULL) != (route->tls_key_file == NULL))
        conf_fail(reader, &tls, "\"cert_file\" and \"key_file\" go together, \"%s\" is missing",
                  route->tls_cert_file == NULL ? "cert_file" : "key_file");
    else if (route->tls_cert_file != NULL && !reader->failed)
        conf_check_key_pair(reader, &tls, route->tls_cert_file, route->tls_key_file);
    if (route->kind == ROUTE_WEBHOOK) {
        conf_check_webhook(reader, at, route);
        return;
    }
    if (route->kind == ROUTE_SMTP) {
        conf_check_smtp(reader, at, value, route);
        return;
    }
    if ((route->tls_ca_file != NULL || route->tls_cert_file != NULL) &&
        strncmp(route->upstream_origin, "https://", 8) != 0)
        conf_fail(reader, &tls, "expected an https upstream: over plain http these files would not be used");
}

static bool same_place(const struct config_route *a, const struct config_route *b)
{
    if ((a->host == NULL) != (b->host == NULL) || strcmp(a->path, b->path) != 0)
        return false;
    return a->host == NULL || strcmp(a->host, b->host) == 0;
}

static void check_apart(struct conf_reader *reader, const struct conf_where *at, const struct config_route *routes,
                        size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (strcmp(routes[i].name, routes[index].name) == 0)
            conf_fail(reader, &(struct conf_where){at, "name", 0}, "\"%s\" is the name of $.routes[%zu] already",
                      routes[i].name, i);
        if (same_place(&routes[i], &routes[index]))
            conf_fail(reader, at, "route \"%s\" has the same host and path as route \"%s\" ($.routes[%zu])",
                      routes[index].name, routes[i].name, i);
    }
}

void conf_read_routes(struct conf_reader *reader, const struct conf_where *at, json_t *value, struct config *config)
{
    const struct conf_field element = {.fields = route_fields};
    size_t count = json_array_size(value);
    if (!json_is_array(value)) {
        conf_fail_type(reader, at, value, "an array of routes");
        return;
    }
    if (count < 1 || count > CONF_ROUTES_MAX) {
        conf_fail(reader, at, "expected 1 to %d routes, got %zu", CONF_ROUTES_MAX, count);
        return;
    }
    struct config_route *routes = conf_store_array(reader, count, sizeof(*routes));
    if (routes == NULL)
        return;
    for (size_t i = 0; i < count; i++) {
        const struct conf_where here = {at, NULL, i};
        conf_read_object(reader, &here, json_array_get(value, i), &element, &routes[i]);
        if (reader->failed)
            return;
        if (routes[i].in_flight == 0) /* one slow partner must not hold all of limits.in_flight */
            routes[i].in_flight = config->in_flight - config->in_flight / 2;
        check_route(reader, &here, json_array_get(value, i), &routes[i]);
        check_apart(reader, &here, routes, i);
    }
    config->routes = routes;
    config->route_count = count;
}
