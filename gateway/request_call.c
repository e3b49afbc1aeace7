/*
 * gateway/request_call.c - from an accepted token to the end of the call: the wait for older calls, the connection, the
 * last look, and what the call's end means.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "gateway/inbound.h"
#include "gateway/metrics.h"
#include "gateway/report.h"
#include "gateway/request_int.h"
#include "gateway/settings.h"
#include "gateway/upstream.h"
#include "gateway/webhook.h"
#include "gateway/worker.h"

enum { CONNECT_PAUSE_MS = 100 }; /* between tries to connect (retry_connect) */

void request_connect(struct request *request)
{
    if (request->state != REQUEST_CONNECTING)
        request_move(request, REQUEST_CONNECTING);
    if (request->attempts++ == 0)
        request->call_started_ms = request->worker->now_ms;
    request->detail[0] = '\0';
    if (!upstream_start(request)) {
        snprintf(request->detail, sizeof request->detail, "The gateway is out of memory.");
        request_settle(request, REASON_OVERLOADED, EFFECT_NOT_SENT);
    }
}

/* ---- the intent on disk: does its call wait, or may it start? ---- */

static void mark_turn(struct request *request, bool waits)
{
    request->op.record.effect_id = request->effect_id;
    request->op.admit.waits = waits;
    request_submit(request, STORE_TURN);
}

void request_start(struct request *request)
{
    if (!request->parked) {
        request_connect(request);
        return;
    }
    request_move(request, REQUEST_STARTING);
    mark_turn(request, false);
}

/* False: the request has ended. *notices came meanwhile. */
static bool turn_is_marked(struct request *request, unsigned *notices)
{
    *notices = request->notices_held;
    request->notices_held = 0;
    if (request->op.error == STORE_OK) {
        request->parked = request->op.admit.waits;
        return true;
    }
    request->would_drop = false; /* nothing is forwarded */
    request_settle(request, REASON_STORE_UNAVAILABLE, EFFECT_NOT_SENT);
    return false;
}

void request_on_started(struct request *request)
{
    unsigned notices;
    if (!turn_is_marked(request, &notices))
        return;
    if (atomic_load(&gateway_of(request)->shutting_down))
        request_settle(request, REASON_SHUTTING_DOWN, EFFECT_NOT_SENT);
    else if ((notices & GATE_SUPERSEDED) != 0 && !request->observe)
        request_drop_superseded(request);
    else
        request_connect(request);
}

static void wait_for_turn(struct request *request)
{
    uint64_t waited_ms = (monotonic_us() - request->wait_began_us) / 1000,
             most_ms = route_of(request)->drain_timeout_ms;
    request_move(request, REQUEST_WAITING);
    timer_set(&request->worker->timers, &request->timer,
              request->worker->now_ms + (waited_ms < most_ms ? most_ms - waited_ms : 0));
}

void request_on_parked(struct request *request)
{
    unsigned notices;
    if (request->op.error != STORE_OK)
        request_wait_over(request);
    if (!turn_is_marked(request, &notices))
        return;
    wait_for_turn(request);
    if (atomic_load(&gateway_of(request)->shutting_down))
        request_stop_waiting(request, REASON_SHUTTING_DOWN);
    else
        request_heed(request, notices);
}

/* ---- order ---- */

void request_drop_superseded(struct request *request)
{
    request_settle(request, REASON_SUPERSEDED, EFFECT_NOT_SENT);
}

/* `observe` forwards what enforce would refuse, outside the key's order, and says so in the record. */
void request_go_on_observed(struct request *request, enum reason reason)
{
    request->would_drop = true;
    request->would_reason = reason;
    timer_clear(&request->worker->timers, &request->timer);
    request_leave_gate(request);
    request_start(request);
}

void request_enter_gate(struct request *request)
{
    switch (gate_enter(&request->ticket, &request->highest)) {
    case GATE_ENTERED: request_start(request); return;
    case GATE_MUST_WAIT:
        metrics_waiting(request->route->metrics, 1);
        request->wait_began_us = monotonic_us();
        if (request->effect_id == 0 || request->parked) {
            wait_for_turn(request);
        } else {
            request_move(request, REQUEST_PARKING);
            mark_turn(request, true);
        }
        return;
    case GATE_TOO_LATE:
        if (request->observe)
            request_go_on_observed(request, REASON_SUPERSEDED);
        else
            request_drop_superseded(request);
        return;
    }
}

void request_wait_over(struct request *request)
{
    request->waited_us = monotonic_us() - request->wait_began_us;
    metrics_waiting(request->route->metrics, -1);
    metrics_took(request->route->metrics, METRICS_PREDECESSOR_WAIT, request->waited_us);
}

void request_stop_waiting(struct request *request, enum reason reason)
{
    request_wait_over(request);
    if (request->observe && reason != REASON_SHUTTING_DOWN)
        request_go_on_observed(request, reason);
    else
        request_settle(request, reason, EFFECT_NOT_SENT);
}

/* Up to here the time was the gateway's. */
static void now_the_partner(struct request *request)
{
    request->sent_us = monotonic_us();
    metrics_took(request->route->metrics, METRICS_GATEWAY, request->sent_us - request->whole_us - request->waited_us);
}

bool request_last_look(struct request *request)
{
    if (request->joined && !gate_begin_send(&request->ticket, &request->highest)) {
        if (!request->observe) {
            request->last_look_failed = true;
            return false;
        }
        request->would_drop = true;
        request->would_reason = REASON_SUPERSEDED;
    }
    request_move(request, REQUEST_SENT);
    if (request->sent_us == 0)
        now_the_partner(request);
    metrics_in_flight(request->route->metrics, 1);
    return true;
}

bool request_take_back(struct request *request)
{
    bool current = !request->joined || gate_retract(&request->ticket, &request->highest) || request->observe;
    request_move(request, REQUEST_CONNECTING);
    metrics_in_flight(request->route->metrics, -1);
    request->last_look_failed = !current;
    return current;
}

bool request_first_look(struct request *request)
{
    if (request->joined && !request->observe && !gate_is_current(&request->ticket, &request->highest)) {
        request->last_look_failed = true;
        return false;
    }
    request->begun = true;
    now_the_partner(request);
    return true;
}

static void sending_over(struct request *request)
{
    metrics_in_flight(request->route->metrics, -1);
    uint64_t now_us = request->worker->now_us; /* the answer's end was there when this turn began, unless ... */
    if (now_us < request->sent_us)
        now_us = monotonic_us();
    metrics_took(request->route->metrics, METRICS_PARTNER, now_us - request->sent_us);
}

/* Once more after a pause, if the route allows it, no byte was sent and there is time left. */
static bool try_again(struct request *request)
{
    const struct config_route *route = route_of(request);
    uint64_t now = request->worker->now_ms;
    if (request->state != REQUEST_CONNECTING || request->last_look_failed || request->begun ||
        request->attempts > route->retry_connect ||
        now + CONNECT_PAUSE_MS >= request->call_started_ms + route->total_timeout_ms)
        return false;
    timer_set(&request->worker->timers, &request->timer, now + CONNECT_PAUSE_MS);
    return true;
}

void request_call_ended(struct request *request, enum call_end end, const char *detail)
{
    bool sent = request->state == REQUEST_SENT;
    if (end != CALL_OK && end != CALL_REFUSED_ADDRESS && try_again(request))
        return;
    bool known = request->reply.head_done || end == CALL_TOO_LARGE;
    request->upstream_status = known ? request->reply.status : 0;
    if (request->reply.partner_status != 0)
        request->upstream_status = request->reply.partner_status;
    request->response_bytes = request->reply.received;
    if (sent)
        sending_over(request);
    if (detail != NULL && !request->last_look_failed)
        snprintf(request->detail, sizeof request->detail, "%s", detail);
    switch (end) {
    case CALL_CUT_SHORT:
        if (request->note == NULL)
            request->note = "the partner's answer ended early";
        request_settle(request, REASON_NONE, EFFECT_SENT);
        return;
    case CALL_OK: request_settle(request, REASON_NONE, EFFECT_SENT); return;
    case CALL_TOO_LARGE: request_settle(request, REASON_ANSWER_TOO_LARGE, EFFECT_SENT); return;
    case CALL_TIMEOUT:
        request_settle(request, REASON_UPSTREAM_TIMEOUT, sent ? EFFECT_UNKNOWN : EFFECT_NOT_SENT);
        return;
    case CALL_UNREACHABLE:
        if (request->last_look_failed)
            request_drop_superseded(request);
        else
            request_settle(request, REASON_UPSTREAM_UNREACHABLE, EFFECT_NOT_SENT);
        return;
    case CALL_REFUSED_ADDRESS:
        snprintf(request->detail, sizeof request->detail, "%s", webhook_refused_address);
        request_settle(request, REASON_TARGET_REFUSED, EFFECT_NOT_SENT);
        return;
    case CALL_REFUSED: request_settle(request, REASON_MESSAGE_REFUSED, EFFECT_NOT_SENT); return;
    case CALL_BUSY: request_settle(request, REASON_RELAY_BUSY, EFFECT_NOT_SENT); return;
    case CALL_FAILED: request_settle(request, REASON_UPSTREAM_FAILED, EFFECT_UNKNOWN); return;
    }
}

/* Stops a call that has begun to send. An answer whose head is here says what the partner did: that is `sent`. */
void request_cut_call(struct request *request, enum reason reason, const char *note)
{
    bool answered = request->reply.head_done;
    upstream_cancel(request);
    sending_over(request);
    request->upstream_status = answered ? request->reply.status : 0;
    request->response_bytes = request->reply.received;
    bool whole = request->reply.has_length && request->reply.received == request->reply.length;
    request->reply.ended = true;
    request->reply.cut_short = !whole;
    request->note = note;
    if (answered)
        request_settle(request, REASON_NONE, EFFECT_SENT);
    else
        request_settle(request, reason, EFFECT_UNKNOWN);
}
