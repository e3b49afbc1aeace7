/*
 * config/secret.h - values that must not show, and the files that hold them.
 *
 * No message of these functions holds any part of a value; files and environment variables are named.
 */
#ifndef FENCEGATE_CONFIG_SECRET_H
#define FENCEGATE_CONFIG_SECRET_H

#include "config/reader.h"

/* A header value: "text", {"file": path} or {"env": name}. NULL: failed. */
const char *conf_secret_value(struct conf_reader *reader, const struct conf_where *at, json_t *value);

CONF_READER(conf_read_token_file); /* [const char *] absolute; must be readable and hold a usable value; or NULL */
void conf_look_at_mode(struct conf_reader *reader, const struct conf_where *at, const char *path);

#endif
