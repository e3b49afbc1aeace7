/*
 * gateway/route.h - from a raw request target and Host to a route and the target to send. Pure.
 *
 * Works on the raw bytes as they came (percent-encoding untouched), since signatures depend on them and
 * since every decoding step is a way around a fence. SPEC section 3, "Paths".
 */
#ifndef FENCEGATE_ROUTE_H
#define FENCEGATE_ROUTE_H

#include <stddef.h>

struct config_route;

enum target_verdict {
    TARGET_OK,
    TARGET_MALFORMED, /* dot segment, control byte, byte above 0x7E, "*", no "/", a fragment, ... */
};

/* Parts of a request target; they point into the given text, nothing is copied. */
struct target {
    const char *path; /* starts with '/'; for absolute-form with an empty path: "/" (static) */
    size_t path_len;
    const char *query; /* with its '?'; NULL when there is none */
    size_t query_len;
    const char
        *host; /* absolute-form: its authority, which overrides the Host header (RFC 9112 section 3.2.2); else NULL */
    size_t host_len;
};

/* Splits origin-form and absolute-form (http:// or https://, any case; user info is refused) and judges it:
 * control bytes and bytes above 0x7E anywhere, dot segments ("." or "..", plain or after decoding once, with
 * '/', '\' and ';' as borders) and broken percent-encoding ("%zz", "%4") in the path, encoded control bytes anywhere.
 */
enum target_verdict target_split(const char *raw, size_t len, struct target *out) __attribute__((warn_unused_result));

enum route_verdict {
    ROUTE_OK,
    ROUTE_NONE,
    ROUTE_AMBIGUOUS, /* another spelling of the same path would match another route (or one at all): 400 */
};

/* Finds the route for a split target. `host` is the authority to route by (with or without port, any case;
 * NULL or "" when the request has none). Routes with a matching host come first, then the longest path. A
 * route's host without a port matches any port. The path is then matched once more in its plain spelling
 * (percent-encoded unreserved characters decoded, repeated slashes joined, ';' parameters of each segment cut):
 * if that gives a different route, also when the raw one gives none, it is ROUTE_AMBIGUOUS. */
enum route_verdict route_match(const struct config_route *routes, size_t count, const char *host, size_t host_len,
                               const struct target *target, const struct config_route **out)
    __attribute__((warn_unused_result));

/* Writes the target to send: upstream path + (strip_path ? path after the route's prefix : whole path) + query, a
 * leading '/' added where that is missing; the bytes are the client's. NUL-terminated. Returns the length, or 0 when
 * `cap` is too small. */
size_t route_rewrite(const struct config_route *route, const struct target *target, char *out, size_t cap);

#endif
