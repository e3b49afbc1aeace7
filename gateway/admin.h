/*
 * gateway/admin.h - the admin listener: health, metrics, fences, effects, audit. SPEC section 7.
 *
 * Own thread, own libmicrohttpd daemon (a proxy full of waiting calls must not shut its operators out), own
 * store reader. Changes go through the store's writer like everybody else's.
 */
#ifndef FENCEGATE_ADMIN_H
#define FENCEGATE_ADMIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

struct admin;
struct header_field;
struct gate_token;
struct metrics_gauges;

struct admin_options {
    const char *address;
    uint16_t port; /* 0: a free one */
    /* NULL: <store_path>/admin.token, made with mode 0600 and 32 random bytes in hex when missing */
    const char *token_file;
    unsigned connections_max; /* a part of them is for probes */
    const char *store_path;
    const char *proxy;        /* where workers' calls belong: address and port */
    const char *const *hosts; /* admin.hosts; lives as long as the listener */
    struct store *store;
    /* Asked on the admin thread. */
    bool (*shutting_down)(void *arg);
    void (*gauges)(void *arg, struct metrics_gauges *out);
    uint64_t (*in_flight)(void *arg, struct slice ns, struct slice key);
    uint64_t (*in_flight_below)(void *arg, struct slice ns, struct slice key,
                                uint64_t token); /* what `token` waits for */
    size_t (*tokens)(void *arg, struct slice ns, struct slice key, struct gate_token *out, size_t cap);
    /* Does it look like a call for a partner? */
    bool (*of_worker)(void *arg, const struct header_field *fields, size_t count);
    void *arg;
};

/* NULL on failure, with one line in `error`. *port gets the real port. */
struct admin *admin_start(const struct admin_options *options, uint16_t *port, char *error, size_t error_cap)
    __attribute__((warn_unused_result));
void admin_stop(struct admin **admin); /* joins its thread; clears *admin */
const char *admin_library(void);       /* libmicrohttpd's version: "0.9.75" */

#endif
