/*
 * gateway/upstream.h - calls to partners, in a worker's loop.
 *
 * At most once: libcurl makes the connection and never sees the request, which is written to it once, after the last
 * look at the token. No byte leaves before that.
 *
 * Worker's thread only. What happened is told by request_last_look() (also from inside upstream_start()), and by
 * request_call_ended(), request_looked() and inbound_reply_ready(), never from inside upstream_start(),
 * upstream_cancel() or upstream_resume().
 */
#ifndef FENCEGATE_UPSTREAM_H
#define FENCEGATE_UPSTREAM_H

#include <stdbool.h>
#include <stdint.h>

struct request;
struct upstream;
struct worker;

bool upstream_global_init(void) __attribute__((warn_unused_result)); /* once, before threads */
const char *upstream_library(void); /* "libcurl/7.88.1", for `version` and the log; any thread */

struct upstream *upstream_new(struct worker *worker) __attribute__((warn_unused_result)); /* NULL: no memory */
void upstream_free(struct upstream **upstream); /* calls under way are dropped without a word */

/* Starts the call of `request` (request->call is set until it has ended). False: no memory, nothing started. */
bool upstream_start(struct request *request) __attribute__((warn_unused_result));
/* Looks where the call would go, without opening a socket: the target's name is looked up and each address is
 * judged as it would be for the call. Ends with request_looked(); else as upstream_start(). */
bool upstream_look(struct request *request) __attribute__((warn_unused_result));
/* Stops it, if it is under way: the connection is closed, request->call is NULL, request_call_ended() will not come. */
void upstream_cancel(struct request *request);
/* The client took some of the answer, or has left: a paused partner goes on. */
void upstream_resume(struct request *request);

/* One step of the loop: due timers, ended calls, answers that began. True: something was done. */
bool upstream_run(struct upstream *upstream);

/* The worker's thread stood still, and nothing was read since: limits of libcurl's move on by so much. */
void upstream_stood_still(struct upstream *upstream, uint64_t ms);

/* Calls that did not get to the end of what their partners have for them, or take, when it was their turn. They are fed
 * once between two looks at clock and descriptors: a partner that never ends must hold up nobody else. */
bool upstream_is_hungry(const struct upstream *upstream);
void upstream_feed(struct upstream *upstream);

#endif
