/*
 * config/route_text.h - readers for the texts of a route: names, paths, hosts, URLs, headers. See conf_field.
 *
 * In brackets the member they store into; those marked "route" take the whole struct config_route.
 */
#ifndef FENCEGATE_CONFIG_ROUTE_TEXT_H
#define FENCEGATE_CONFIG_ROUTE_TEXT_H

#include "config/reader.h"

CONF_READER(conf_read_name);           /* [const char *] 1 to 64 of A-Z a-z 0-9 . _ -, for names and namespaces */
CONF_READER(conf_read_route_path);     /* [const char *] without slash at the end */
CONF_READER(conf_read_route_host);     /* [const char *] lower case, or NULL */
CONF_READER(conf_read_upstream);       /* [route] upstream_origin and upstream_path */
CONF_READER(conf_read_max_jump);       /* [uint64_t] 0: absent */
CONF_READER(conf_read_methods);        /* [const char *const *] NULL-terminated, never NULL */
CONF_READER(conf_read_fence_header);   /* [const char *] */
CONF_READER(conf_read_set_headers);    /* [route] set_headers and set_header_count */
CONF_READER(conf_read_remove_headers); /* [const char *const *] NULL-terminated, never NULL */

#endif
