/*
 * gateway/problem.c - the body of what the gateway itself answers.
 *
 * Only the text: which reason applies and which headers go with it (Retry-After, Fencegate-Effect) is decided
 * by those who answer. Programs read `reason`; the sentence in `detail` is for the person who reads the worker's log,
 * so it says what was found and, where a person can do something, what.
 */
#include "gateway/problem.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "gateway/jsonout.h"
#include "gateway/token.h"

unsigned problem_status(const struct problem *problem)
{
    return problem->status != 0 ? problem->status : reason_table[problem->reason].status;
}

bool problem_no_retry(const struct problem *problem)
{
    unsigned status = problem_status(problem);
    return (status >= 400 && status <= 499) || problem->effect != EFFECT_NOT_SENT;
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
    [REASON_LOOP_DETECTED] =
        "The request's Via header names this gateway: an upstream or a webhook's target leads back to "
        "it. Nothing was sent.",
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
    [REASON_ANSWER_TOO_LARGE] = "The partner answered, and the head of its answer is larger than limits.answer_headers "
                                "allows. The call has taken effect as the partner's status says: do not repeat it.",
    [REASON_UPSTREAM_FAILED] = "The connection to the upstream failed after the request was sent, or its answer was "
                               "not valid HTTP. The call may have taken effect: ask the partner before anything is "
                               "repeated.",
};

static const char timeout_unknown[] = "The upstream did not answer in time, after the request was sent. The call may "
                                      "have taken effect: ask the partner before anything is repeated.";

/* Sentences around numbers: the token, and where there is an `end` the highest. Trusted: no byte needs an escape. */
static const struct {
    const char *begin, *middle, *end;
} numbered_detail[REASON_COUNT] = {
    [REASON_STALE_TOKEN] = {"Token ", " is below ", ", the highest accepted for this key."},
    [REASON_SUPERSEDED] = {"Token ", " is below ",
                           ", which was accepted for this key while this call waited to be sent."},
    [REASON_TOKEN_USED] = {"Token ",
                           " has been used, and on this route each token works once. Take a new lease for "
                           "the next call.",
                           NULL},
    [REASON_IMPLAUSIBLE_TOKEN] = {"Token ", " is further above ",
                                  ", the highest accepted for this key, than the "
                                  "route's max_jump allows. If it is right, an operator can raise the fence."},
};

/* NULL: it is one with numbers. */
static const char *fixed_detail(const struct problem *problem)
{
    if (problem->detail != NULL)
        return problem->detail;
    if (problem->reason == REASON_UPSTREAM_TIMEOUT && problem->effect == EFFECT_UNKNOWN)
        return timeout_unknown;
    bool numbers = numbered_detail[problem->reason].begin != NULL && problem->token != 0 && problem->highest != 0;
    return numbers ? NULL : general_detail[problem->reason];
}

static void put(struct jsonout *out, const char *text)
{
    jsonout_raw(out, text, strlen(text));
}

static void put_number(struct jsonout *out, uint64_t number)
{
    char digits[TOKEN_DIGITS_MAX + 1];
    size_t len = token_format(number, digits);
    jsonout_raw(out, digits, len);
}

/* Without quotes. */
static void write_detail(struct jsonout *out, const struct problem *problem)
{
    const char *fixed = fixed_detail(problem);
    if (fixed != NULL) {
        jsonout_escaped(out, fixed, strlen(fixed));
        return;
    }
    put(out, numbered_detail[problem->reason].begin);
    put_number(out, problem->token);
    put(out, numbered_detail[problem->reason].middle);
    if (numbered_detail[problem->reason].end != NULL) {
        put_number(out, problem->highest);
        put(out, numbered_detail[problem->reason].end);
    }
}

/* What a reason writes whatever the request, in the order of the members. Trusted text: nothing in it needs an escape.
 */
struct frame {
    struct slice until_status, until_effect, until_message;
};
#define PIECE(text)                                                                                                    \
    {                                                                                                                  \
        (text), sizeof(text) - 1                                                                                       \
    }
static const struct frame frames[REASON_COUNT] = {
#define REASON(id, slug, status, kind, retry_after, title)                                                             \
    [REASON_##id] = {                                                                                                  \
        PIECE("\"type\":\"urn:fencegate:problem:" slug "\",\"title\":\"" title "\",\"status\":"),                      \
        PIECE("\",\"reason\":\"" slug "\",\"effect\":"),                                                               \
        PIECE(",\"message\":\"" title "\",\"Message\":\"" title "\",\"ErrorCode\":0,\"error\":{\"type\":"              \
              "\"fencegate_error\",\"code\":\"" slug "\",\"message\":\""),                                             \
    },
#include "gateway/reason.def"
#undef REASON
};

static void put_frame(struct jsonout *out, const struct slice *piece)
{
    jsonout_raw(out, piece->data, piece->len);
}

static void member_id_if_set(struct jsonout *out, const char *name, uint64_t value)
{
    if (value != 0)
        jsonout_member_id(out, name, value);
}

void problem_write(struct jsonout *out, const struct problem *problem)
{
    assert(problem->reason > REASON_NONE && problem->reason < REASON_COUNT);
    const struct frame *frame = &frames[problem->reason];
    jsonout_object_begin(out);
    put_frame(out, &frame->until_status);
    jsonout_number(out, problem_status(problem));
    put(out, ",\"detail\":\"");
    write_detail(out, problem);
    put_frame(out, &frame->until_effect);
    jsonout_cstring(out, effect_name(problem->effect));
    jsonout_member_string(out, "namespace", problem->ns.data, problem->ns.len);
    jsonout_member_string(out, "key", problem->key.data, problem->key.len);
    member_id_if_set(out, "token", problem->token);
    member_id_if_set(out, "highest", problem->highest);
    member_id_if_set(out, "audit_id", problem->audit_id);
    put_frame(out, &frame->until_message);
    write_detail(out, problem);
    put(out, "\"}");
    jsonout_object_end(out);
}
