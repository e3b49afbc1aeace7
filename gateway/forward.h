/*
 * gateway/forward.h - what of a request goes to the partner: header lines and target.
 *
 * Everything is copied into the request's arena: the client may leave, and its connection's memory with it, while the
 * call goes on (G8).
 */
#ifndef FENCEGATE_FORWARD_H
#define FENCEGATE_FORWARD_H

#include <stdbool.h>
#include <stddef.h>

struct arena;
struct config_route;
struct header_field;
struct target;

struct forward {
    const char *target; /* as sent in the request line */
    char *lines;        /* "Name: value" CR LF after each other, not NUL-terminated */
    size_t lines_len;
};

enum forward_error { FORWARD_OK, FORWARD_NO_MEMORY, FORWARD_MALFORMED };

/* End-to-end fields in their order, without Host and (unless the route lets them through) the fencing headers, route
 * rules applied, Via added with the value `via`. FORWARD_MALFORMED: Connection names more fields than can be followed.
 */
enum forward_error forward_build(struct arena *arena, const struct config_route *route,
                                 const struct header_field *fields, size_t count, const struct target *target,
                                 const char *via, struct forward *out) __attribute__((warn_unused_result));

#endif
