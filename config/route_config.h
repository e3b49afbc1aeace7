/* config/route_config.h - one element of "routes". */
#ifndef FENCEGATE_CONFIG_ROUTE_CONFIG_H
#define FENCEGATE_CONFIG_ROUTE_CONFIG_H

#include "config/config.h"
#include "config/reader.h"
#include "config/units.h"

#define CONF_DRAIN_DEFAULT (30 * CONF_SECOND)
#define CONF_TOTAL_DEFAULT (60 * CONF_SECOND)
#define CONF_ROUTES_MAX 1000

/* Reads the array `value` into config->routes: each route by itself, then names and places against each other. */
void conf_read_routes(struct conf_reader *reader, const struct conf_where *at, json_t *value, struct config *config);

#endif
