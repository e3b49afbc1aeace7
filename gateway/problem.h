/*
 * gateway/problem.h - the JSON body of what the gateway itself answers (RFC 9457, SPEC section 4). Pure.
 *
 * The members error, message, Message and ErrorCode are there for partners' SDKs: without an `error` object a
 * payment SDK reports success on any refusal.
 */
#ifndef FENCEGATE_PROBLEM_H
#define FENCEGATE_PROBLEM_H

#include <stdint.h>

#include "gateway/reason.h"
#include "store/store.h"

#define PROBLEM_CONTENT_TYPE "application/problem+json; charset=utf-8"

struct problem {
    enum reason reason;
    unsigned status; /* 0: the reason's own */
    enum effect effect;
    const char *detail;                /* NULL: a sentence that fits the reason and its numbers is made */
    struct slice ns, key;              /* absent: not shown */
    uint64_t token, highest, audit_id; /* 0: not shown */
};

struct jsonout;
unsigned problem_status(const struct problem *problem);
void problem_write(struct jsonout *out, const struct problem *problem); /* appends one object, no line end */

/* True when the answer must carry Stripe-Should-Retry: false and X-Should-Retry: false: every 4xx of ours and
 * every effect `unknown` (the SDK's own repeat would go out again under the same token). */
bool problem_no_retry(const struct problem *problem);

#endif
