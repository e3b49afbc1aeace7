/*
 * gateway/problem.c - the body of what the gateway itself answers.
 *
 * Only the text: which reason applies and which headers go with it (Retry-After, Fencegate-Effect) is decided
 * by those who answer. Programs read `reason`; the sentence in `detail` is for the person who reads the worker's log,
 * so it says what was found and, where a person can do something, what.
 */
#include "gateway/problem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "gateway/jsonout.h"

#define DETAIL_CAP 320

unsigned problem_status(const struct problem *problem)
{
    return problem->status != 0 ? problem->status : reason_table[problem->reason].status;
}

bool problem_no_retry(const struct problem *problem)
{
    unsigned status = problem_status(problem);
    return (status >= 400 && status <= 499) || problem->effect == EFFECT_UNKNOWN;
}

/* What holds without numbers. */
static const char *const general_detail[REASON_COUNT] = {
    [REASON_MISSING_TOKEN] = "This route is fenced and the request has no fencing token. Send the token that the lock "
                             "service issued with the lease in the route's token header (Fencing-Token unless "
                             "configured otherwise).",
    [REASON_MISSING_KEY] = "This route is fenced and the request has no workflow key. Name the resource that the lease "
                           "protects in the route's key header (Workflow-Key unless configured otherwise).",
    [REASON_MALFORMED_TOKEN] = "The fencing token must be given once, as 1 to 20 decimal digits with a value from 1 to "
                               "18446744073709551615.",
    [REASON_MALFORMED_KEY] = "The workflow key must be given once, as 1 to 255 bytes of UTF-8 without control "
                             "characters.",
    [REASON_MALFORMED_REQUEST] = "The request's target, header or framing is not valid HTTP or has more than one "
                                 "reading.",
    [REASON_STALE_TOKEN] = "The fencing token is below the highest accepted for this key. The lease has passed to "
                           "another worker: stop work on this key.",
    [REASON_SUPERSEDED] =
        "A newer token was accepted for this key, or its fence was reset, while this call waited to be "
        "sent. Stop work on this key until you hold a new lease.",
    [REASON_TOKEN_USED] = "This fencing token has been used, and on this route each token works once. Take a new lease "
                          "for the next call.",
    [REASON_IMPLAUSIBLE_TOKEN] = "The fencing token is further above the highest accepted for this key than the "
                                 "route's max_jump allows. If it is right, an operator can raise the fence.",
    [REASON_PREDECESSOR_IN_FLIGHT] = "A call with an older token for this key was still in flight at the end of the "
                                     "route's drain_timeout. Nothing was sent; repeat the call.",
    [REASON_NO_ROUTE] = "No route matches this host and path.",
    [REASON_BODY_TOO_LARGE] = "The request body is larger than limits.body allows.",
    [REASON_HEADERS_TOO_LARGE] = "The request headers are larger than limits.headers allows, or too many.",
    [REASON_OVERLOADED] = "A limit on connections, calls in flight or buffered bytes is reached, or the route's "
                          "breaker is open. Nothing was sent; repeat the call later.",
    [REASON_STORE_UNAVAILABLE] = "The fence can't be read or written, so nothing was sent. Repeat the call later.",
    [REASON_SHUTTING_DOWN] = "The gateway is shutting down. Nothing was sent; repeat the call.",
    [REASON_UPSTREAM_UNREACHABLE] = "The upstream's name, connection or TLS failed. Nothing was sent.",
    [REASON_UPSTREAM_TIMEOUT] = "No connection to the upstream came about in time. Nothing was sent.",
    [REASON_ABORTED] = "A newer token was accepted for this key and this call was cut off while it ran. It may have "
                       "taken effect: ask the partner before anything is repeated.",
    [REASON_SHUTDOWN_CUT] = "The call was still running at the end of the gateway's shutdown. It may have taken "
                            "effect: ask the partner before anything is repeated.",
    [REASON_METHOD_NOT_IMPLEMENTED] = "This method is not implemented.",
    [REASON_VERSION_NOT_SUPPORTED] = "Only HTTP/1.1 and HTTP/1.0 are supported.",
    [REASON_TARGET_TOO_LONG] = "The request target is too long.",
    [REASON_REQUEST_TIMEOUT] = "The request did not arrive whole within limits.request_timeout. Nothing was sent.",
    [REASON_EXPECTATION_FAILED] = "The only expectation supported is 100-continue.",
    [REASON_TARGET_REFUSED] = "The target that Fencegate-Target names is not one that this route may call. Nothing was "
                              "sent.",
    [REASON_MALFORMED_MESSAGE] = "The message is malformed.",
    [REASON_METHOD_NOT_ALLOWED] = "Only POST is allowed on this route.",
    [REASON_MESSAGE_REFUSED] = "The relay refused the message. Nothing was sent.",
    [REASON_RELAY_BUSY] = "The relay does not take the message now. Nothing was sent; repeat the call.",
    [REASON_UPSTREAM_FAILED] = "The connection to the upstream failed after the request was sent, or its answer was "
                               "not valid HTTP. The call may have taken effect: ask the partner before anything is "
                               "repeated.",
};

static const char timeout_unknown[] = "The upstream did not answer in time, after the request was sent. The call may "
                                      "have taken effect: ask the partner before anything is repeated.";

/* The sentence with its numbers, made in `text` where there are any to tell. */
static const char *detail_for(const struct problem *problem, char text[DETAIL_CAP])
{
    uint64_t token = problem->token, highest = problem->highest;
    if (problem->detail != NULL)
        return problem->detail;
    if (problem->reason == REASON_UPSTREAM_TIMEOUT && problem->effect == EFFECT_UNKNOWN)
        return timeout_unknown;
    if (token == 0 || highest == 0)
        return general_detail[problem->reason];
    switch (problem->reason) {
    case REASON_STALE_TOKEN:
        snprintf(text, DETAIL_CAP, "Token %" PRIu64 " is below %" PRIu64 ", the highest accepted for this key.", token,
                 highest);
        return text;
    case REASON_SUPERSEDED:
        snprintf(text, DETAIL_CAP,
                 "Token %" PRIu64 " is below %" PRIu64 ", which was accepted for this key while this call waited to be "
                 "sent.",
                 token, highest);
        return text;
    case REASON_TOKEN_USED:
        snprintf(text, DETAIL_CAP,
                 "Token %" PRIu64 " has been used, and on this route each token works once. Take a new lease for the "
                 "next call.",
                 token);
        return text;
    case REASON_IMPLAUSIBLE_TOKEN:
        snprintf(text, DETAIL_CAP,
                 "Token %" PRIu64 " is further above %" PRIu64 ", the highest accepted for this key, than the route's "
                 "max_jump allows. If it is right, an operator can raise the fence.",
                 token, highest);
        return text;
    default: return general_detail[problem->reason];
    }
}

static void write_type(struct jsonout *out, const char *slug)
{
    char type[96];
    snprintf(type, sizeof type, "urn:fencegate:problem:%s", slug);
    jsonout_member_cstring(out, "type", type);
}

static void member_id_if_set(struct jsonout *out, const char *name, uint64_t value)
{
    if (value != 0)
        jsonout_member_id(out, name, value);
}

void problem_write(struct jsonout *out, const struct problem *problem)
{
    assert(problem->reason > REASON_NONE && problem->reason < REASON_COUNT);
    const struct reason_info *info = &reason_table[problem->reason];
    char text[DETAIL_CAP];
    const char *detail = detail_for(problem, text);
    jsonout_object_begin(out);
    write_type(out, info->slug);
    jsonout_member_cstring(out, "title", info->title);
    jsonout_member_number(out, "status", problem_status(problem));
    jsonout_member_cstring(out, "detail", detail);
    jsonout_member_cstring(out, "reason", info->slug);
    jsonout_member_cstring(out, "effect", effect_name(problem->effect));
    jsonout_member_string(out, "namespace", problem->ns.data, problem->ns.len);
    jsonout_member_string(out, "key", problem->key.data, problem->key.len);
    member_id_if_set(out, "token", problem->token);
    member_id_if_set(out, "highest", problem->highest);
    member_id_if_set(out, "audit_id", problem->audit_id);
    jsonout_member_cstring(out, "message", info->title);
    jsonout_member_cstring(out, "Message", info->title);
    jsonout_member_number(out, "ErrorCode", 0);
    jsonout_name(out, "error");
    jsonout_object_begin(out);
    jsonout_member_cstring(out, "type", "fencegate_error");
    jsonout_member_cstring(out, "code", info->slug);
    jsonout_member_cstring(out, "message", detail);
    jsonout_object_end(out);
    jsonout_object_end(out);
}
