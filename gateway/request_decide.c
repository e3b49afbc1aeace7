/*
 * gateway/request_decide.c - what becomes of a request that has arrived whole: limits, the look at its fence, and where
 * something must be written the writer's decision.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "gateway/inbound.h"
#include "gateway/mail_request.h"
#include "gateway/metrics.h"
#include "gateway/report.h"
#include "gateway/request_int.h"
#include "gateway/settings.h"
#include "gateway/token_watch.h"
#include "gateway/upstream.h"
#include "gateway/webhook.h"
#include "gateway/worker.h"

static void admit(struct request *request)
{
    const struct config_route *route = route_of(request);
    request_move(request, REQUEST_ADMITTING);
    report_fill_intent(request);
    request->op.admit.equal_allowed = route->equal_allowed;
    request->op.admit.max_jump = route->max_jump;
    request->op.admit.intent = route->ledger_effects;
    request->op.admit.observe = request->observe;
    request->op.admit.undecided = !request->joined;
    request->op.admit.waits = request->joined && gate_would_wait(&request->ticket);
    request_submit(request, STORE_ADMIT);
}

/* Reads the fence; REASON_NONE: the token may go on as far as is known now. */
static enum reason look_up(struct request *request, struct fence *fence)
{
    const struct config_route *route = route_of(request);
    enum store_error error = store_fence_get(request->worker->reader, request->ns, request->key, fence);
    if (error == STORE_NOT_FOUND)
        *fence = (struct fence){0};
    else if (error != STORE_OK)
        return REASON_STORE_UNAVAILABLE;
    request->highest = fence->token;
    enum store_verdict verdict = store_judge(fence, request->token, route->equal_allowed, route->max_jump);
    return verdict == VERDICT_ACCEPTED ? REASON_NONE : report_verdict_reason(verdict);
}

/* Refused before acceptance, with the gate joined or not. */
static void turn_down(struct request *request, enum reason reason)
{
    request->would_drop = false; /* `observe` forwards what the fence refuses; this is refused for something else */
    request_leave_gate(request);
    request_refuse(request, reason);
}

/* True: what is to be sent stands: a mail is one, a webhook's target may be called. Else the request was refused, or
 * its target's addresses are looked at first, or its mail is made first: request_looked() and request_composed() go on
 * then. */
static bool content_stands(struct request *request)
{
    enum reason reason = webhook_judge(request);
    if (reason == REASON_NONE && mail_request_begin(request)) {
        request_move(request, REQUEST_COMPOSING);
        return false;
    }
    if (reason == REASON_NONE)
        reason = mail_request_judge(request);
    if (reason != REASON_NONE) {
        turn_down(request, reason);
        return false;
    }
    if (request->webhook == NULL || request->webhook->seen || route_of(request)->webhook.allow_private)
        return true;
    request_move(request, REQUEST_LOOKING);
    if (!upstream_look(request)) {
        snprintf(request->detail, sizeof request->detail, "The gateway is out of memory.");
        turn_down(request, REASON_OVERLOADED);
    }
    return false;
}

static void decide(struct request *request)
{
    const struct config_route *route = route_of(request);
    struct fence fence = {0};
    token_watch_arrived(metrics_watch(request->route->metrics), request->ns, request->key, request->token);
    enum reason reason =
        store_writable(gateway_of(request)->store) ? look_up(request, &fence) : REASON_STORE_UNAVAILABLE;
    if (reason != REASON_NONE && request_lacks_room(request))
        reason = REASON_STORE_UNAVAILABLE;
    if (reason == REASON_STORE_UNAVAILABLE || (reason != REASON_NONE && !request->observe)) {
        turn_down(request, reason);
        return;
    }
    if (!content_stands(request))
        return;
    bool new_key = fence.token == 0 || fence.floor;
    if (new_key && !route_takes_new_key(request->route, request->worker->now_us)) {
        request_tell_limit(request, "the route's fence.new_keys");
        turn_down(request, REASON_OVERLOADED);
        return;
    }
    request->raises = fence.token != 0 && request->token > fence.token;
    if (route->ledger_effects || (reason == REASON_NONE && request->token > fence.token))
        admit(request);
    else if (reason != REASON_NONE)
        request_go_on_observed(request, reason);
    else
        request_enter_gate(request); /* the fence stands at this token already, durably: nothing to write */
}

/* Join first, then read: a raise in between is told to the entry, one before is read. */
static bool join(struct request *request)
{
    request->ticket.token = request->token;
    request->ticket.rule = (enum gate_rule)route_of(request)->on_supersede;
    request->joined = gate_join(gateway_of(request)->gate, &request->ticket, request->ns, request->key);
    return request->joined;
}

/* From the place taken, or from the look at a webhook's addresses, on. */
static void proceed(struct request *request)
{
    if (request->joined)
        decide(request);
    else if (!content_stands(request))
        return;
    else if (request->would_drop && route_of(request)->ledger_effects)
        admit(request);
    else
        request_connect(request);
}

static bool take_place(struct request *request)
{
    struct gateway *gateway = gateway_of(request);
    unsigned limit = request->route->config->in_flight;
    unsigned most = atomic_load_explicit(&gateway->in_flight_max, memory_order_relaxed);
    unsigned all = atomic_fetch_add_explicit(&gateway->in_flight, 1, memory_order_relaxed);
    unsigned of_route = atomic_fetch_add_explicit(&request->route->in_flight, 1, memory_order_relaxed);
    if (all < most && (limit == 0 || of_route < limit)) {
        enum breaker_answer breaker = breaker_admit(request->route, request->worker->now_ms, &request->retry_after);
        if (breaker != BREAKER_OPEN) {
            request->probe = breaker == BREAKER_PROBE;
            request->counted = request->unsettled = true;
            atomic_fetch_add_explicit(&gateway->unsettled, 1, memory_order_relaxed);
            return true;
        }
        request_tell_breaker(request);
    } else {
        request_tell_limit(request, all < most ? "the route's in_flight" : "limits.in_flight");
    }
    atomic_fetch_sub_explicit(&request->route->in_flight, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&gateway->in_flight, 1, memory_order_relaxed);
    return false;
}

void request_arrived(struct request *request)
{
    enum reason refusal = request->refusal;
    request->whole_us = request->worker->now_us; /* its last byte was there when this turn began */
    request->request_bytes = request->body_len;
    if (refusal == REASON_NONE && atomic_load(&gateway_of(request)->shutting_down))
        refusal = REASON_SHUTTING_DOWN;
    if (refusal == REASON_NONE && !take_place(request))
        refusal = REASON_OVERLOADED;
    if (refusal != REASON_NONE) {
        request_refuse(request, refusal);
        return;
    }
    if (request->would_drop && request_lacks_room(request)) {
        turn_down(request, REASON_STORE_UNAVAILABLE);
        return;
    }
    bool undecided = !request->fenced || request->would_drop; /* observe, without a usable token or key */
    if (undecided || join(request))
        proceed(request);
    else
        request_refuse(request, REASON_OVERLOADED);
}

void request_looked(struct request *request, enum call_end end)
{
    request->webhook->seen = true;
    if (end == CALL_REFUSED_ADDRESS) {
        snprintf(request->detail, sizeof request->detail, "%s", webhook_refused_address);
        turn_down(request, REASON_TARGET_REFUSED);
    } else {
        proceed(request);
    }
}

/* A shutdown waits for it: what waits behind others then comes back unmade. */
void request_composed(struct request *request)
{
    enum reason reason = mail_request_end(request);
    if (atomic_load(&gateway_of(request)->shutting_down))
        reason = REASON_SHUTTING_DOWN;
    if (reason == REASON_NONE)
        proceed(request);
    else
        turn_down(request, reason);
}

void request_stop_looking(struct request *request)
{
    upstream_cancel(request);
    turn_down(request, REASON_SHUTTING_DOWN);
}

bool request_stale_early(struct request *request)
{
    struct fence fence;
    if (!request->fenced || request->observe)
        return false;
    enum reason reason = look_up(request, &fence);
    if (reason == REASON_NONE)
        reason = webhook_judge(request);
    if (reason == REASON_NONE)
        reason = mail_request_judge_head(request);
    if (reason == REASON_NONE)
        return false;
    request_refuse(request, reason);
    return true;
}

enum reason request_judge_scarce(struct request *request)
{
    struct fence fence = {0};
    bool judged = request->fenced && !request->would_drop;
    enum reason reason = judged ? look_up(request, &fence) : REASON_NONE;
    if (reason != REASON_NONE && (!request->observe || reason == REASON_STORE_UNAVAILABLE))
        return reason;
    if (reason == REASON_NONE && fence.token != 0)
        return REASON_NONE;
    request_tell_limit(request, "limits.buffered");
    return REASON_OVERLOADED;
}

/* The writer has decided. */
void request_on_admitted(struct request *request)
{
    const struct store_op *op = &request->op;
    if (op->error != STORE_OK) {
        (void)request_lacks_room(request);
        request->would_drop = false; /* nothing happened that a record could tell */
        request_settle(request, REASON_STORE_UNAVAILABLE, EFFECT_NOT_SENT);
        return;
    }
    request->highest = op->highest;
    request->effect_id = op->effect_id;
    request->parked = op->effect_id != 0 && op->admit.waits;
    request->accepted_ms = op->time_ms;
    if (op->verdict != VERDICT_ACCEPTED && !request->observe) { /* its record came with the verdict */
        request->audit_id = op->audit_id;
        request->reason = report_verdict_reason(op->verdict);
        request->drop_stage = DROP_ADMISSION;
        request->effect = EFFECT_NOT_SENT;
        request_leave_gate(request);
        request_answer(request);
        request_finish(request);
        return;
    }
    if (atomic_load(&gateway_of(request)->shutting_down)) {
        request_settle(request, REASON_SHUTTING_DOWN, EFFECT_NOT_SENT);
        return;
    }
    if (request->raises && op->verdict == VERDICT_ACCEPTED)
        token_watch_raised(metrics_watch(request->route->metrics));
    if (op->verdict != VERDICT_ACCEPTED)
        request_go_on_observed(request, report_verdict_reason(op->verdict));
    else if (request->joined)
        request_enter_gate(request);
    else
        request_connect(request);
}
