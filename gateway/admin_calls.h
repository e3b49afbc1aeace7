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
#include "gateway/inbox.h"
#include "gateway/jsonout.h"
#include "gateway/log.h"
#include "store/store.h"

struct admin_change;

struct admin_context {
    struct admin_options options; /* its callbacks, hosts and store; the strings are not used after the start */
    char hint[256];               /* for workers that have the wrong port: what this is, and where the proxy is */
    struct admin_token token;
    struct log_rate refused_told;
    struct store_reader *reader; /* opened at the first need, by the thread that uses it */
    struct store_stats stats;    /* as last seen */
    /* admin_change.c's */
    struct inbox inbox;
    struct admin_change *changes; /* under way */
    unsigned submitted, waits;    /* how many of them are at the store; how many wait for calls to end */
    bool ending;
};

struct admin_request {
    const char *method;
    char *target;                                             /* raw; decoded in place */
    const char *host, *origin, *authorization, *content_type; /* NULL: absent */
    const char *client;                                       /* address:port */
    struct slice body;
};

struct admin_answer {
    unsigned status;
    const char *hint; /* to be set before the answer is made, for what a worker may have sent: ends the detail of a
                       * problem; the answer then says that nothing was sent. NULL: for operators */
    const char *content_type;
    char allow[32];       /* Allow; "" for none */
    bool challenge;       /* WWW-Authenticate */
    unsigned retry_after; /* seconds; 0: none */
    struct slice page;    /* a file of the dashboard, in place of a body; never freed */
    struct jsonout body;  /* empty only with status 204 or a page; the caller's to free */
};

enum admin_problem {
    ADMIN_MALFORMED,
    ADMIN_UNAUTHORIZED,
    ADMIN_NOT_FOUND,
    ADMIN_METHOD,
    ADMIN_TOO_LARGE,
    ADMIN_EXPECTATION,
    ADMIN_STORE,
    ADMIN_WOULD_LOWER,
    ADMIN_RESOLVED,
    ADMIN_HEAD_TOO_LARGE,
    ADMIN_TARGET_TOO_LONG,
    ADMIN_VERSION,
    ADMIN_TIMEOUT,
    ADMIN_FULL,
};
const char *admin_problem_title(enum admin_problem kind);
/* Makes `answer` a problem in the shape that the proxy's own answers have (SPEC section 4), without an effect unless
 * there is a hint. */
void admin_problem(struct admin_answer *answer, enum admin_problem kind, const char *detail);
struct admin_subject {
    struct slice ns, key;
    uint64_t token, highest;
};
void admin_problem_about(struct admin_answer *answer, enum admin_problem kind, const char *detail,
                         const struct admin_subject *subject);

/* Can a request with this method change anything? A worker's call mostly can. */
bool admin_method_changes(const char *method);

/* Finds the call, checks who asks, answers. `answer` starts zeroed but for its hint. What it returns, if not NULL, is a
 * change that the caller owns and has to submit; it brings the answer. */
struct admin_change *admin_call(struct admin_context *context, const struct admin_request *request,
                                struct admin_answer *answer);

#endif
