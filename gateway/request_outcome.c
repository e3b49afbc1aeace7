/*
 * gateway/request_outcome.c - how a request ends: refused or settled, recorded, answered, in that order where the
 * contract wants it (a drop is not told before it is on disk).
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
#include "gateway/worker.h"

enum {
    RECORD_RETRY_MS = 1000,
    RECORD_PATIENCE_MS = 2000, /* how long an answer of ours waits for its record */
};

static void uncount(struct request *request)
{
    if (!request->counted)
        return;
    request->counted = false;
    atomic_fetch_sub_explicit(&request->route->in_flight, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&gateway_of(request)->in_flight, 1, memory_order_relaxed);
}

static void withdraw_probe(struct request *request)
{
    if (request->probe)
        breaker_withdraw(request->route);
    request->probe = false;
}

/* Last step: nothing left to decide. */
void request_finish(struct request *request)
{
    request_move(request, REQUEST_DONE);
    withdraw_probe(request);
    uncount(request);
    if (request->unsettled)
        atomic_fetch_sub_explicit(&gateway_of(request)->unsettled, 1, memory_order_release);
    request->unsettled = false;
    timer_clear(&request->worker->timers, &request->timer);
    request_body_free(request);
    report_ended(request);
    request_maybe_free(request);
}

/* ---- refused before acceptance ---- */

void request_answer(struct request *request)
{
    request->status = report_status(request);
    inbound_answer(request);
}

void request_refuse(struct request *request, enum reason reason)
{
    request->reason = reason;
    request->effect = EFFECT_NOT_SENT;
    int kind = reason_table[reason].audit_kind;
    if (request->route != NULL && (kind == AUDIT_DROPPED || kind == AUDIT_REJECTED)) {
        request_move(request, REQUEST_RECORDING);
        request->status = report_status(request);
        report_fill(request, (enum audit_kind)kind);
        request_submit(request, STORE_RECORD);
        return;
    }
    request_answer(request);
    request_finish(request);
}

void request_on_recorded(struct request *request)
{
    if (request->op.error == STORE_OK)
        request->audit_id = request->op.audit_id;
    else if (reason_table[request->reason].audit_kind == AUDIT_DROPPED) {
        (void)request_lacks_room(request);
        request->reason = REASON_STORE_UNAVAILABLE; /* a drop that is not on disk is not told (G1) */
    }
    request_answer(request);
    request_finish(request);
}

/* ---- outcome of what was accepted ---- */

void request_leave_gate(struct request *request)
{
    if (!request->joined)
        return;
    request->joined = false;
    request->notice_pending = gate_leave(&request->ticket);
}

static enum audit_kind outcome_kind(const struct request *request)
{
    if (reason_table[request->reason].audit_kind == AUDIT_DROPPED)
        return AUDIT_DROPPED;
    if (request->reason == REASON_TARGET_REFUSED) /* the address it had by now: see request_looked() for the others */
        return AUDIT_REJECTED;
    switch (request->effect) {
    case EFFECT_NOT_SENT: return AUDIT_NOT_SENT;
    case EFFECT_UNKNOWN: return AUDIT_UNKNOWN;
    default: return AUDIT_SENT;
    }
}

void request_record_outcome(struct request *request)
{
    report_fill(request, outcome_kind(request));
    request_submit(request, STORE_RECORD);
}

static void tell_breaker(struct request *request, enum effect effect)
{
    enum audit_kind kind = outcome_kind(request);
    bool says_nothing = request->attempts == 0 || kind == AUDIT_DROPPED || kind == AUDIT_REJECTED ||
                        request->reason == REASON_SHUTTING_DOWN || request->reason == REASON_OVERLOADED;
    if (says_nothing) {
        withdraw_probe(request);
        return;
    }
    bool failed = effect != EFFECT_SENT || request->reply.status >= 500;
    breaker_result(request->route, request->worker->now_ms, request->probe, failed);
    request->probe = false;
}

void request_settle(struct request *request, enum reason reason, enum effect effect)
{
    struct worker *worker = request->worker;
    timer_clear(&worker->timers, &request->timer);
    request->drop_stage = request->state == REQUEST_CONNECTING ? DROP_CONNECTING : DROP_WAITING;
    request->reason = reason;
    request->effect = effect == EFFECT_SENT && !request->fenced ? EFFECT_UNFENCED : effect;
    request->status = report_status(request);
    tell_breaker(request, effect);
    request_leave_gate(request); /* the call is over: the next token may go, its record can't change that */
    uncount(request);
    request_body_free(request); /* before the answer's end: a next call may fit into limits.buffered only then */
    if (reason == REASON_NONE)
        inbound_reply_ready(request);
    enum audit_kind kind = outcome_kind(request);
    bool record = request->effect_id != 0 || request->would_drop || kind == AUDIT_DROPPED || kind == AUDIT_REJECTED;
    if (record) {
        request_move(request, REQUEST_SETTLING);
        request_record_outcome(request);
        if (reason != REASON_NONE)
            timer_set(&worker->timers, &request->timer, worker->now_ms + RECORD_PATIENCE_MS);
        return;
    }
    if (reason != REASON_NONE)
        inbound_answer(request);
    request_finish(request);
}

/* Our own answers wait for their record; if that can't be written the truth is told all the same, a drop excepted (G1).
 */
void request_answer_settled(struct request *request, bool kept)
{
    if (request->reason == REASON_NONE || request->answer_begun)
        return;
    enum reason reason = request->reason;
    if (!kept && outcome_kind(request) == AUDIT_DROPPED)
        request->reason = REASON_STORE_UNAVAILABLE;
    request_answer(request);
    request->reason = reason;
}

/* The store holds on to what closes an effect until it is durable. Another record of what has happened (`would_drop`
 * without an effect) is tried again here. */
void request_on_settled(struct request *request)
{
    bool kept = request->op.error == STORE_OK;
    if (kept)
        request->audit_id = request->op.audit_id;
    request_answer_settled(request, kept);
    if (kept || request->op.error == STORE_CLOSED || outcome_kind(request) == AUDIT_DROPPED)
        request_finish(request);
    else
        timer_set(&request->worker->timers, &request->timer, request->worker->now_ms + RECORD_RETRY_MS);
}
