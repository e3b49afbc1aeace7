/*
 * gateway/command_admin_client.h - one call to the admin listener of a running gateway, for the command line. Blocks.
 */
#ifndef FENCEGATE_COMMAND_ADMIN_CLIENT_H
#define FENCEGATE_COMMAND_ADMIN_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/jsonout.h"

struct client_call {
    const char *address; /* "127.0.0.1:8081" */
    const char *token;
    const char *method;
    const char *target; /* path and query, percent-encoded */
    const char *body;   /* JSON; NULL: none */
};

enum client_result {
    CLIENT_ANSWERED,
    CLIENT_UNREACHABLE, /* no connection: nothing was asked */
    CLIENT_FAILED,      /* whether the call was carried out is not known */
};

/* The answer's status and body; `why` gets a few words unless there was an answer. */
enum client_result client_call(const struct client_call *call, long *status, struct jsonout *body, char *why,
                               size_t why_cap) __attribute__((warn_unused_result));

#endif
