/*
 * gateway/admin_guard.h - who may use the admin listener: the bearer token, and which names it answers to.
 */
#ifndef FENCEGATE_ADMIN_GUARD_H
#define FENCEGATE_ADMIN_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"

struct header_field;

struct admin_token {
    char text[CONFIG_TOKEN_MAX + 3]; /* room for a line end and for seeing that the file is longer */
    size_t len;
};

/* Reads token_file, or, when that is NULL, <store_path>/admin.token, which is made with mode 0600 when missing. One
 * line end is cut. False with one line in `error` that names the file and never its text: unreadable, or no usable
 * token (config_token_problem()). Files that others can read are taken, with a warning in the log (a mounted secret
 * often is). */
bool admin_token_load(const char *token_file, const char *store_path, struct admin_token *out, char *error,
                      size_t error_cap) __attribute__((warn_unused_result));
void admin_token_clear(struct admin_token *token);

/* Does an Authorization header (NULL: absent) carry the token? Takes as long for a near miss as for a far one. */
bool admin_token_matches(const struct admin_token *token, const char *authorization);

/* Is a Host header one that a page on the internet can't have? IP literals, names without a dot, and names under
 * localhost, local, internal and svc. NULL (HTTP/1.0) is: no browser leaves it out. */
bool admin_host_private(const char *host);
/* Is it one of `hosts` (admin.hosts; NULL-terminated), with whatever port? */
bool admin_host_named(const char *host, const char *const *hosts);

/* Does a request carry a header of those that go with calls for partners: Fencing-Token, Workflow-Key, what the routes
 * have in their place, Fencegate-Target? Its worker has the wrong port. */
bool admin_fields_of_worker(const struct config *config, const struct header_field *fields, size_t count);

/* The host and port of an absolute-form target into `out`, as a Host header has them; "" for a target that is none.
 * False: they are not well-formed, or too long. */
#define ADMIN_HOST_CAP 300
bool admin_target_host(const char *target, char out[ADMIN_HOST_CAP]);

/* Is an Origin header (NULL: absent) that of the host asked? */
bool admin_origin_same(const char *origin, const char *host);

#endif
