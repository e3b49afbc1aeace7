/*
 * gateway/admin_calls.h - the calls of the admin listener, apart from the library that carries them.
 *
 * All of it runs on the admin thread, which owns the context.
 */
#ifndef FENCEGATE_ADMIN_CALLS_H
#define FENCEGATE_ADMIN_CALLS_H

#include <stdbool.h>

#include "gateway/admin.h"
#include "gateway/admin_guard.h"
#include "gateway/jsonout.h"

struct store_reader;

struct admin_context {
    struct admin_options options; /* its callbacks and store; the strings are not used after the start */
    struct admin_token token;
    struct store_reader *reader; /* opened at the first need, by the thread that uses it */
};

struct admin_request {
    const char *method;
    char *target;                              /* raw; decoded in place */
    const char *host, *origin, *authorization; /* NULL: absent */
};

struct admin_answer {
    unsigned status;
    const char *content_type;
    char allow[32];       /* Allow; "" for none */
    bool challenge;       /* WWW-Authenticate */
    unsigned retry_after; /* seconds; 0: none */
    struct jsonout body;  /* never left empty; the caller's to free */
};

enum admin_problem {
    ADMIN_MALFORMED,
    ADMIN_UNAUTHORIZED,
    ADMIN_NOT_FOUND,
    ADMIN_METHOD,
    ADMIN_TOO_LARGE,
    ADMIN_EXPECTATION,
    ADMIN_STORE,
};
/* Makes `answer` a problem in the shape that the proxy's own answers have (SPEC section 4), without an effect. */
void admin_problem(struct admin_answer *answer, enum admin_problem kind, const char *detail);

/* Finds the call, checks who asks, answers. `answer` starts zeroed. */
void admin_call(struct admin_context *context, const struct admin_request *request, struct admin_answer *answer);

#endif
