/* config/smtp_config.h - routes of kind "smtp": their upstream, the object "smtp", and which keys go with them. */
#ifndef FENCEGATE_CONFIG_SMTP_CONFIG_H
#define FENCEGATE_CONFIG_SMTP_CONFIG_H

#include "config/config.h"
#include "config/reader.h"

CONF_READER(conf_read_smtp);          /* [route] smtp; needs the route's kind */
CONF_READER(conf_read_smtp_upstream); /* [route] upstream_origin: "smtp://host:port" */
/* What must hold between a mail route's keys, after all of them were read. `value` is the route's object. */
void conf_check_smtp(struct conf_reader *reader, const struct conf_where *at, const json_t *value,
                     const struct config_route *route);
/* True when mails and the login cross the network in the clear. */
bool conf_smtp_is_open(const struct config_route *route);

#endif
