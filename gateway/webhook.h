/*
 * gateway/webhook.h - what a webhook route adds to a request: its target, which the request names, and its signature.
 *
 * Kept in the request's arena as `request->webhook`, made from the head, judged after the fence's look-up. Worker's
 * thread.
 */
#ifndef FENCEGATE_WEBHOOK_H
#define FENCEGATE_WEBHOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/reason.h"
#include "gateway/route.h"
#include "gateway/webhook_target.h"

struct header_field;
struct request;
struct webhook_signing;

enum { WEBHOOK_LINES = 3 };

struct webhook {
    const char *problem;             /* static: why the target is refused by its text; NULL: it is not */
    const char *id_problem;          /* static: what is wrong with the worker's Webhook-Id; NULL: nothing */
    char origin[WEBHOOK_ORIGIN_MAX]; /* scheme, host and port; "": it could not be read */
    struct target parts;             /* path and query, in the arena; "/" when they could not be read */
    const char *id;                  /* the worker's Webhook-Id, or the one made for it; NULL: none yet */
    bool seen;                       /* its addresses were looked at: one of them may be called */
    char *lines[WEBHOOK_LINES];      /* webhook-id, -timestamp, -signature; NULL: not signed, or not yet made */
    struct webhook_signing *signing; /* under way; NULL: not begun, or done */
    size_t signed_len;               /* bytes of the body that it has */
};

/* Makes request->webhook from the head. False: no memory. */
bool webhook_read(struct request *request, const struct header_field *fields, size_t count)
    __attribute__((warn_unused_result));
/* True for a field that does not go to the target of such a route: the gateway's own, and what it makes anew. */
struct config_route;
bool webhook_holds_back(const struct config_route *route, const struct header_field *field);
/* The text's judgement; a sentence is in request->detail. REASON_NONE also for a request of another kind of route. */
enum reason webhook_judge(struct request *request);

/* The sentence for a target none of whose addresses may be called. */
extern const char webhook_refused_address[];

/* Before the call: makes the three lines (if the route signs), with room for what is not known yet. False: no memory.
 */
bool webhook_prepare(struct request *request) __attribute__((warn_unused_result));
/* Right before the first byte: writes time and signature into them. WEBHOOK_MORE: the body is large, and this was a
 * part of it; call again in the loop's next turn. */
enum webhook_step { WEBHOOK_SIGNED, WEBHOOK_MORE, WEBHOOK_NO_MEMORY };
enum webhook_step webhook_sign_some(struct request *request) __attribute__((warn_unused_result));
bool webhook_is_signing(const struct request *request); /* the last answer was WEBHOOK_MORE */
void webhook_stop_signing(struct request *request);     /* nothing happens if it is not; every call's end */

#endif
