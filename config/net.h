/*
 * config/net.h - judge hosts, URLs, paths and header names as text. Pure.
 *
 * Functions named *_problem return NULL when all is well, else static text that goes after "expected ". No text of
 * the input is in it: an upstream with a password in it must not end in a log.
 */
#ifndef FENCEGATE_CONFIG_NET_H
#define FENCEGATE_CONFIG_NET_H

#include <stdbool.h>
#include <stddef.h>

struct conf_authority {
    const char *host; /* points into the input; an IPv6 address with its brackets */
    size_t host_len;
    unsigned port; /* 0: none given */
};
/* A URL where a host is wanted: NULL when it is none. */
const char *conf_url_problem(const char *text, size_t len);
/* "host", "host:port", "[v6]:port". A dot at the end of a name is left out of host_len when `cut_dot`, else refused. */
const char *conf_authority_problem(const char *text, size_t len, bool cut_dot, struct conf_authority *out);

/* The path of an upstream URL ("" or from its first slash on): bytes, encoding, dot segments. */
const char *conf_upstream_path_problem(const char *path, size_t len);
/* A route's path. Stricter: what the router would never match, or would match in one spelling only, is refused. */
const char *conf_route_path_problem(const char *path, size_t len);
/* True when every byte is unreserved or a slash, so that there is no second spelling of the path. */
bool conf_path_is_plain(const char *path);

bool conf_is_token(const char *text); /* a non-empty RFC 9110 token */
/* True for names that HTTP or the gateway itself owns: hop-by-hop, framing, Host, Expect, Fencegate-*. */
bool conf_header_reserved(const char *name);

bool conf_is_ip(const char *text);                        /* IPv4 or IPv6 literal, without brackets */
bool conf_host_is_loopback(const char *host, size_t len); /* literal (brackets allowed) or localhost */

#endif
