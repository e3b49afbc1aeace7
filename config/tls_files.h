/*
 * config/tls_files.h - certificates and keys that the configuration names, loaded as TLS will load them.
 *
 * A file that TLS could not use is refused here, by `check`, at a start and at SIGHUP, and not call by call afterwards.
 * What was loaded is not kept: libcurl reads the files again for its connections.
 */
#ifndef FENCEGATE_CONFIG_TLS_FILES_H
#define FENCEGATE_CONFIG_TLS_FILES_H

#include "config/reader.h"

/* [const char *] the absolute path of a PEM file (RFC 7468), or NULL. Every block of certificates must be one. */
CONF_READER(conf_read_certificates);
CONF_READER(conf_read_private_key); /* the same for a key, which has no password */

/* The first certificate of `cert_file` has the public key that belongs to `key_file`; both were read before. `at` is
 * the object that names them. */
void conf_check_key_pair(struct conf_reader *reader, const struct conf_where *at, const char *cert_file,
                         const char *key_file);

#endif
