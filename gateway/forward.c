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

static char *make_line(struct arena *arena, const struct header_field *field)
{
    char *line = arena_alloc(arena, field->name_len + field->value_len + 3);
    if (line == NULL)
        return NULL;
    memcpy(line, field->name, field->name_len);
    if (field->value_len == 0) {
        memcpy(line + field->name_len, ";", 2);
        return line;
    }
    memcpy(line + field->name_len, ": ", 2);
    memcpy(line + field->name_len + 2, field->value, field->value_len);
    line[field->name_len + 2 + field->value_len] = '\0';
    return line;
}

static bool add_line(struct arena *arena, struct forward *out, const struct header_field *field)
{
    char *line = make_line(arena, field);
    if (line == NULL)
        return false;
    out->lines[out->line_count++] = line;
    out->has_content_type = out->has_content_type || header_is(field, "Content-Type");
    out->has_accept = out->has_accept || header_is(field, "Accept");
    return true;
}

static bool add_lines(struct arena *arena, const struct config_route *route, const struct hop_names *hops,
                      const struct header_field *fields, size_t count, struct forward *out)
{
    for (size_t i = 0; i < count; i++)
        if (passes(&fields[i], route, hops) && !add_line(arena, out, &fields[i]))
            return false;
    for (size_t i = 0; i < route->set_header_count; i++) {
        const struct config_header *set = &route->set_headers[i];
        struct header_field field = {set->name, strlen(set->name), set->value, strlen(set->value)};
        if (!add_line(arena, out, &field))
            return false;
    }
    struct header_field via = {"Via", 3, "1.1 fencegate", 13};
    return add_line(arena, out, &via);
}

enum forward_error forward_build(struct arena *arena, const struct config_route *route,
                                 const struct header_field *fields, size_t count, const struct target *target,
                                 struct forward *out)
{
    struct hop_names hops;
    hop_names_collect(fields, count, &hops);
    if (hops.overflow)
        return FORWARD_MALFORMED;
    size_t cap = strlen(route->upstream_path) + target->path_len + target->query_len + 2;
    char *text = arena_alloc(arena, cap);
    *out = (struct forward){.target = text};
    out->lines = arena_alloc(arena, (count + route->set_header_count + 1) * sizeof *out->lines);
    if (text == NULL || out->lines == NULL || route_rewrite(route, target, text, cap) == 0)
        return FORWARD_NO_MEMORY;
    return add_lines(arena, route, &hops, fields, count, out) ? FORWARD_OK : FORWARD_NO_MEMORY;
}
