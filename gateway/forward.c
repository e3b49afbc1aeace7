/* gateway/forward.c - builds the head of the call from the request's and the route's rules. */
#include "gateway/forward.h"

#include <string.h>

#include "config/config.h"
#include "gateway/arena.h"
#include "gateway/headers.h"
#include "gateway/route.h"
#include "gateway/webhook.h"

static bool listed(const struct header_field *field, const char *const *names)
{
    for (; names != NULL && *names != NULL; names++)
        if (header_is(field, *names))
            return true;
    return false;
}

static bool set_by_route(const struct header_field *field, const struct config_route *route)
{
    for (size_t i = 0; i < route->set_header_count; i++)
        if (header_is(field, route->set_headers[i].name))
            return true;
    return false;
}

static bool passes(const struct header_field *field, const struct config_route *route, const struct hop_names *hops)
{
    if (webhook_holds_back(route, field) || !headers_pass_request(field, hops) ||
        listed(field, route->remove_headers) || set_by_route(field, route))
        return false;
    return route->forward_fencing_headers ||
           (!header_is(field, route->token_header) && !header_is(field, route->key_header));
}

static size_t line_len(const struct header_field *field)
{
    return field->name_len + 1 + (field->value_len > 0 ? field->value_len + 1 : 0) + 2;
}

static void add_line(struct forward *out, const struct header_field *field)
{
    char *at = out->lines + out->lines_len;
    memcpy(at, field->name, field->name_len);
    at += field->name_len;
    *at++ = ':';
    if (field->value_len > 0) {
        *at++ = ' ';
        memcpy(at, field->value, field->value_len);
        at += field->value_len;
    }
    memcpy(at, "\r\n", 2);
    out->lines_len += line_len(field);
}

static struct header_field of_set(const struct config_header *set)
{
    return (struct header_field){set->name, strlen(set->name), set->value, strlen(set->value)};
}

static bool add_lines(struct arena *arena, const struct config_route *route, const struct hop_names *hops,
                      const struct header_field *fields, size_t count, const char *passed_by, struct forward *out)
{
    const struct header_field via = {"Via", 3, passed_by, strlen(passed_by)};
    size_t most = line_len(&via);
    for (size_t i = 0; i < count; i++)
        most += line_len(&fields[i]);
    for (size_t i = 0; i < route->set_header_count; i++) {
        struct header_field field = of_set(&route->set_headers[i]);
        most += line_len(&field);
    }
    out->lines = arena_alloc(arena, most);
    if (out->lines == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        if (passes(&fields[i], route, hops))
            add_line(out, &fields[i]);
    for (size_t i = 0; i < route->set_header_count; i++) {
        struct header_field field = of_set(&route->set_headers[i]);
        add_line(out, &field);
    }
    add_line(out, &via);
    return true;
}

enum forward_error forward_build(struct arena *arena, const struct config_route *route,
                                 const struct header_field *fields, size_t count, const struct target *target,
                                 const char *via, struct forward *out)
{
    struct hop_names hops;
    hop_names_collect(fields, count, &hops);
    if (hops.overflow)
        return FORWARD_MALFORMED;
    size_t cap = strlen(route->upstream_path) + target->path_len + target->query_len + 2;
    char *text = arena_alloc(arena, cap);
    *out = (struct forward){.target = text};
    if (text == NULL || route_rewrite(route, target, text, cap) == 0)
        return FORWARD_NO_MEMORY;
    return add_lines(arena, route, &hops, fields, count, via, out) ? FORWARD_OK : FORWARD_NO_MEMORY;
}
