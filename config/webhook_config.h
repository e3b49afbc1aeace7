/* config/webhook_config.h - the object "webhook" of a route, and which other keys go with it. */
#ifndef FENCEGATE_CONFIG_WEBHOOK_CONFIG_H
#define FENCEGATE_CONFIG_WEBHOOK_CONFIG_H

#include "config/config.h"
#include "config/reader.h"

CONF_READER(conf_read_webhook); /* [route] webhook; needs the route's kind */
/* What must hold between a webhook route's keys, after all of them were read. */
void conf_check_webhook(struct conf_reader *reader, const struct conf_where *at, const struct config_route *route);

#endif
