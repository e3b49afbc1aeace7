/*
 * gateway/admission.c - what the head of a request settles by itself, in the contract's order: framing, route, loop,
 * size, shutdown and load, missing token, missing key, malformed token, malformed key. The store and the fence come
 * later.
 */
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "gateway/head.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/token.h"
#include "gateway/webhook.h"
#include "gateway/worker.h"

enum { SHOWN_MAX = 200 }; /* bytes of a host or path in an answer */

static enum reason malformed(struct request *request, const char *what)
{
    snprintf(request->detail, sizeof request->detail, "%s", what);
    return REASON_MALFORMED_REQUEST;
}

static enum reason judge_target(struct request *request, const struct screened *screened)
{
    if (strcmp(request->method, "CONNECT") == 0)
        return REASON_METHOD_NOT_IMPLEMENTED;
    if (screened->problem != NULL) {
        snprintf(request->detail, sizeof request->detail, MALFORMED_HEAD, screened->problem);
        return REASON_MALFORMED_REQUEST;
    }
    if (screened->expect_unknown)
        return REASON_EXPECTATION_FAILED;
    if (target_split(request->raw_target, request->raw_target_len, &request->target) != TARGET_OK) {
        request->target = (struct target){0};
        return malformed(request, "The request target is malformed, or has a dot segment or a control character.");
    }
    return REASON_NONE;
}

/* Head and target have been judged: these are visible ASCII, and there is no query in the path. */
static enum reason no_route(struct request *request, const char *host, size_t host_len)
{
    const struct target *target = &request->target;
    int host_shown = host_len > SHOWN_MAX ? SHOWN_MAX : (int)host_len;
    int path_shown = target->path_len > SHOWN_MAX ? SHOWN_MAX : (int)target->path_len;
    const char *more = target->path_len > SHOWN_MAX ? " (which goes on)" : "";
    if (host == NULL)
        return request_tell_client(request, REASON_NO_ROUTE, "No route matches path %.*s%s; the request names no host.",
                                   path_shown, target->path, more);
    return request_tell_client(request, REASON_NO_ROUTE, "No route matches host %.*s and path %.*s%s.", host_shown,
                               host, path_shown, target->path, more);
}

static enum reason find_route(struct request *request, const struct screened *screened)
{
    const struct config *config = request->settings->config;
    const struct config_route *route = NULL;
    const char *host = screened->host == NULL ? NULL : screened->host->value;
    size_t host_len = screened->host == NULL ? 0 : screened->host->value_len;
    if (request->target.host != NULL) {
        host = request->target.host;
        host_len = request->target.host_len;
    }
    switch (route_match(config->routes, config->route_count, host, host_len, &request->target, &route)) {
    case ROUTE_NONE: return no_route(request, host, host_len);
    case ROUTE_AMBIGUOUS: return malformed(request, "Another spelling of this path belongs to another route.");
    case ROUTE_OK: break;
    }
    request->route = &request->settings->routes[route - config->routes];
    request->ns = (struct slice){route->ns, strlen(route->ns)};
    return REASON_NONE;
}

static bool unfenced_method(const struct config_route *route, const char *method)
{
    for (const char *const *name = route->unfenced_methods; name != NULL && *name != NULL; name++)
        if (strcmp(*name, method) == 0)
            return true;
    return false;
}

static enum reason overloaded(struct request *request, const char *limit)
{
    request_tell_limit(request, limit);
    return REASON_OVERLOADED;
}

static enum reason judge_load(struct request *request)
{
    struct gateway *gateway = request->worker->gateway;
    unsigned limit = request->route->config->in_flight;
    if (atomic_load_explicit(&gateway->shutting_down, memory_order_relaxed))
        return REASON_SHUTTING_DOWN;
    if (atomic_load_explicit(&gateway->in_flight, memory_order_relaxed) >=
        atomic_load_explicit(&gateway->in_flight_max, memory_order_relaxed))
        return overloaded(request, "limits.in_flight");
    if (atomic_load_explicit(&request->route->in_flight, memory_order_relaxed) >= limit)
        return overloaded(request, "the route's in_flight");
    if (breaker_is_open(request->route, request->worker->now_ms, &request->retry_after)) {
        request_tell_breaker(request);
        return REASON_OVERLOADED;
    }
    return REASON_NONE;
}

/* Is there room in limits.buffered now? It is taken as the bytes come, not as they are announced. */
static bool fits(const struct request *request, uint64_t length)
{
    uint64_t held = atomic_load_explicit(&request->worker->gateway->buffered, memory_order_relaxed);
    return held + length <= request->settings->config->buffered_max;
}

static enum reason missing_token(struct request *request)
{
    return request_tell_client(
        request, REASON_MISSING_TOKEN,
        "This route is fenced and the request has no fencing token. Send the token that the lock "
        "service issued with the lease in the header %s.",
        request->route->config->token_header);
}

static enum reason missing_key(struct request *request)
{
    return request_tell_client(
        request, REASON_MISSING_KEY,
        "This route is fenced and the request has no workflow key. Name the resource that the lease "
        "protects in the header %s.",
        request->route->config->key_header);
}

static enum reason judge_fence_headers(struct request *request, const struct screened *screened)
{
    bool token_ok = screened->token != NULL && !screened->token_doubled &&
                    token_parse(screened->token->value, screened->token->value_len, &request->token);
    bool key_ok =
        screened->key != NULL && !screened->key_doubled && key_valid(screened->key->value, screened->key->value_len);
    if (key_ok) { /* also of a refused request: its record tells the key */
        request->key.data = arena_copy(&request->arena, screened->key->value, screened->key->value_len);
        request->key.len = screened->key->value_len;
        if (request->key.data == NULL)
            return REASON_OVERLOADED;
    }
    if (screened->token == NULL)
        return missing_token(request);
    if (screened->key == NULL)
        return missing_key(request);
    if (!token_ok)
        return REASON_MALFORMED_TOKEN;
    return key_ok ? REASON_NONE : REASON_MALFORMED_KEY;
}

/* A partner that heeds an override makes a POST of a GET: the method that counts is not the request line's. */
static bool goes_unfenced(const struct request *request, const struct header_field *fields, size_t count)
{
    const struct config_route *route = request->route->config;
    return route->mode == FENCE_OFF ||
           (unfenced_method(route, request->method) && !headers_override_method(fields, count));
}

static enum reason judge_fence(struct request *request, const struct screened *screened,
                               const struct header_field *fields, size_t count)
{
    const struct config_route *route = request->route->config;
    request->fenced = !goes_unfenced(request, fields, count);
    request->observe = route->mode == FENCE_OBSERVE;
    if (!request->fenced)
        return REASON_NONE;
    enum reason reason = judge_fence_headers(request, screened);
    if (reason == REASON_NONE || !request->observe || reason == REASON_OVERLOADED)
        return reason;
    request->would_drop = true;
    request->would_reason = reason;
    return REASON_NONE;
}

enum reason request_judge_head(struct request *request, struct screened *screened, const struct header_field *fields,
                               size_t count)
{
    enum reason reason = judge_target(request, screened);
    if (reason == REASON_NONE)
        reason = find_route(request, screened);
    if (reason != REASON_NONE)
        return reason;
    if (headers_passed_by(fields, count, request->worker->gateway->via + GATEWAY_VIA_PROTOCOL))
        return REASON_LOOP_DETECTED;
    headers_find_fence(fields, count, request->route->config->token_header, request->route->config->key_header,
                       screened);
    if (screened->connection_names_fence)
        return malformed(request, "Connection names a fencing header.");
    if (screened->fence_twin)
        return malformed(request, "A header has a fencing header's name but for \"_\" and \"-\": some partners can't "
                                  "tell the two apart.");
    if (request->head_method && (screened->chunked || (screened->has_length && screened->length > 0)))
        return malformed(request, "A HEAD request with a body can't be forwarded as it is.");
    if (screened->has_length && screened->length > request->settings->config->body_max)
        return REASON_BODY_TOO_LARGE;
    if (screened->has_length && !fits(request, screened->length))
        return overloaded(request, "limits.buffered");
    reason = judge_load(request);
    if (reason != REASON_NONE)
        return reason;
    if (request->route->config->kind == ROUTE_WEBHOOK && !webhook_read(request, fields, count))
        return REASON_OVERLOADED;
    return judge_fence(request, screened, fields, count);
}
