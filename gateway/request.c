/*
 * gateway/request.c - the steps of one request, each in a function of its own; request_move() is the only place that
 * changes its state.
 *
 *   receiving ─► recording ─► done                  refused: answered when the record is durable
 *   receiving ─► admitting ─► waiting ─► connecting ─► sent ─► settling ─► done
 *
 * What is durable when: the raise and the intent at the end of admitting, a drop at the end of recording, the outcome
 * at the end of settling (or, if the process dies before, as an intent that the next start finds). The gate is told of
 * a raise by the store's writer, not here.
 *
 * Leaves to others: HTTP on both sides (inbound, upstream), the order per key (gate), what is on disk (store), the
 * judgement of the head (admission.c), records and log lines (report.c).
 */
#include "gateway/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "gateway/inbound.h"
#include "gateway/metrics.h"
#include "gateway/report.h"
#include "gateway/settings.h"
#include "gateway/upstream.h"
#include "gateway/worker.h"

enum {
    RECORD_RETRY_MS = 1000,
    RECORD_PATIENCE_MS = 2000, /* how long an answer of ours waits for its record */
    CONNECT_PAUSE_MS = 100,    /* between tries to connect (retry_connect) */
};

#define TO(state) (1u << REQUEST_##state)
static const unsigned legal_moves[] = {
    [REQUEST_RECEIVING] = TO(RECORDING) | TO(ADMITTING) | TO(WAITING) | TO(CONNECTING) | TO(SETTLING) | TO(DONE),
    [REQUEST_RECORDING] = TO(DONE),
    [REQUEST_ADMITTING] = TO(WAITING) | TO(CONNECTING) | TO(SETTLING) | TO(DONE),
    [REQUEST_WAITING] = TO(CONNECTING) | TO(SETTLING) | TO(DONE),
    [REQUEST_CONNECTING] = TO(SENT) | TO(SETTLING) | TO(DONE),
    [REQUEST_SENT] = TO(SETTLING) | TO(DONE),
    [REQUEST_SETTLING] = TO(DONE),
    [REQUEST_DONE] = 0,
};

static void request_move(struct request *request, enum request_state to)
{
    if ((legal_moves[request->state] & (1u << to)) == 0)
        abort(); /* a step out of order could send twice: no going on from here */
    request->state = to;
}

static struct gateway *gateway_of(const struct request *request)
{
    return request->worker->gateway;
}

static const struct config_route *route_of(const struct request *request)
{
    return request->route->config;
}

/* ---- beginning and end of the memory ---- */

static void on_store_done(struct store_op *op);
static void on_op_home(struct inbox_item *item);
static void on_notice(struct inbox_item *item);
static void on_timer(struct timer *timer);

struct request *request_new(struct worker *worker, struct connection *conn)
{
    struct request *request = worker_take_spare(worker);
    if (request == NULL)
        request = malloc(sizeof *request);
    if (request == NULL)
        return NULL;
    memset(request, 0, offsetof(struct request, arena));
    if (!timers_promise(&worker->timers)) {
        free(request);
        return NULL;
    }
    request->magic = REQUEST_MAGIC;
    request->state = REQUEST_RECEIVING;
    request->worker = worker;
    request->settings = settings_ref(worker->settings);
    request->conn = conn;
    request->started_ms = worker->now_ms;
    request->timer.fire = on_timer;
    request->op.done = on_store_done;
    request->op_item.run = on_op_home;
    request->ticket.item.run = on_notice;
    request->ticket.inbox = &worker->inbox;
    arena_init(&request->arena);
    worker_add(worker, request);
    return request;
}

void request_body_free(struct request *request)
{
    free(request->body);
    atomic_fetch_sub_explicit(&gateway_of(request)->buffered, request->body_cap, memory_order_relaxed);
    request->body = NULL;
    request->body_len = request->body_cap = 0;
}

static void maybe_free(struct request *request)
{
    if (request->state != REQUEST_DONE || request->conn != NULL || request->call != NULL || request->op_busy ||
        request->notice_pending)
        return;
    struct worker *worker = request->worker;
    timer_clear(&worker->timers, &request->timer);
    timers_release(&worker->timers);
    worker_remove(worker, request);
    request_body_free(request);
    reply_free(&request->reply);
    arena_free(&request->arena);
    settings_unref(&request->settings);
    request->magic = 0;
    worker_put_spare(worker, request);
}

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
static void finish(struct request *request)
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
    maybe_free(request);
}

/* ---- the store ---- */

static void on_store_done(struct store_op *op) /* writer thread */
{
    struct request *request = (struct request *)((char *)op - offsetof(struct request, op));
    inbox_post(&request->worker->inbox, &request->op_item);
}

static void submit(struct request *request, enum store_op_kind kind)
{
    request->op.kind = kind;
    request->op_busy = true;
    store_submit(gateway_of(request)->store, &request->op);
}

/* ---- refused before acceptance ---- */

static void answer(struct request *request)
{
    request->status = report_status(request);
    inbound_answer(request);
}

static void refuse(struct request *request, enum reason reason)
{
    request->reason = reason;
    request->effect = EFFECT_NOT_SENT;
    int kind = reason_table[reason].audit_kind;
    if (request->route != NULL && (kind == AUDIT_DROPPED || kind == AUDIT_REJECTED)) {
        request_move(request, REQUEST_RECORDING);
        request->status = report_status(request);
        report_fill(request, (enum audit_kind)kind);
        submit(request, STORE_RECORD);
        return;
    }
    answer(request);
    finish(request);
}

static void on_recorded(struct request *request)
{
    if (request->op.error == STORE_OK)
        request->audit_id = request->op.audit_id;
    else if (reason_table[request->reason].audit_kind == AUDIT_DROPPED)
        request->reason = REASON_STORE_UNAVAILABLE; /* a drop that is not on disk is not told (G1) */
    answer(request);
    finish(request);
}

/* ---- outcome of what was accepted ---- */

static void leave_gate(struct request *request)
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
    switch (request->effect) {
    case EFFECT_NOT_SENT: return AUDIT_NOT_SENT;
    case EFFECT_UNKNOWN: return AUDIT_UNKNOWN;
    default: return AUDIT_SENT;
    }
}

static void record_outcome(struct request *request)
{
    report_fill(request, outcome_kind(request));
    submit(request, STORE_RECORD);
}

static void tell_breaker(struct request *request, enum effect effect)
{
    bool says_nothing = request->attempts == 0 || outcome_kind(request) == AUDIT_DROPPED ||
                        request->reason == REASON_SHUTTING_DOWN || request->reason == REASON_OVERLOADED;
    if (says_nothing) {
        withdraw_probe(request);
        return;
    }
    bool failed = effect != EFFECT_SENT || request->reply.status >= 500;
    breaker_result(request->route, request->worker->now_ms, request->probe, failed);
    request->probe = false;
}

static void settle(struct request *request, enum reason reason, enum effect effect)
{
    struct worker *worker = request->worker;
    timer_clear(&worker->timers, &request->timer);
    request->reason = reason;
    request->effect = effect == EFFECT_SENT && !request->fenced ? EFFECT_UNFENCED : effect;
    request->status = report_status(request);
    tell_breaker(request, effect);
    leave_gate(request); /* the call is over: the next token may go, its record can't change that */
    uncount(request);
    if (reason == REASON_NONE)
        inbound_reply_ready(request);
    bool record = request->effect_id != 0 || request->would_drop || outcome_kind(request) == AUDIT_DROPPED;
    if (record) {
        request_move(request, REQUEST_SETTLING);
        record_outcome(request);
        if (reason != REASON_NONE)
            timer_set(&worker->timers, &request->timer, worker->now_ms + RECORD_PATIENCE_MS);
        return;
    }
    if (reason != REASON_NONE)
        inbound_answer(request);
    finish(request);
}

/* Our own answers wait for their record; if that can't be written the truth is told all the same, a drop excepted (G1).
 */
static void answer_settled(struct request *request, bool kept)
{
    if (request->reason == REASON_NONE || request->answer_begun)
        return;
    enum reason reason = request->reason;
    if (!kept && outcome_kind(request) == AUDIT_DROPPED)
        request->reason = REASON_STORE_UNAVAILABLE;
    answer(request);
    request->reason = reason;
}

/* The store holds on to what closes an effect until it is durable. Another record of what has happened (`would_drop`
 * without an effect) is tried again here. */
static void on_settled(struct request *request)
{
    bool kept = request->op.error == STORE_OK;
    if (kept)
        request->audit_id = request->op.audit_id;
    answer_settled(request, kept);
    if (kept || request->op.error == STORE_CLOSED || outcome_kind(request) == AUDIT_DROPPED)
        finish(request);
    else
        timer_set(&request->worker->timers, &request->timer, request->worker->now_ms + RECORD_RETRY_MS);
}

/* ---- the call ---- */

static void connect_upstream(struct request *request)
{
    if (request->state != REQUEST_CONNECTING)
        request_move(request, REQUEST_CONNECTING);
    if (request->attempts++ == 0)
        request->call_started_ms = request->worker->now_ms;
    request->detail[0] = '\0';
    if (!upstream_start(request)) {
        snprintf(request->detail, sizeof request->detail, "The gateway is out of memory.");
        settle(request, REASON_OVERLOADED, EFFECT_NOT_SENT);
    }
}

static void drop_superseded(struct request *request)
{
    settle(request, REASON_SUPERSEDED, EFFECT_NOT_SENT);
}

/* `observe` forwards what enforce would refuse, outside the key's order, and says so in the record. */
static void go_on_observed(struct request *request, enum reason reason)
{
    request->would_drop = true;
    request->would_reason = reason;
    timer_clear(&request->worker->timers, &request->timer);
    leave_gate(request);
    connect_upstream(request);
}

static void enter_gate(struct request *request)
{
    switch (gate_enter(&request->ticket, &request->highest)) {
    case GATE_ENTERED: connect_upstream(request); return;
    case GATE_MUST_WAIT:
        request_move(request, REQUEST_WAITING);
        metrics_waiting(request->route->metrics, 1);
        timer_set(&request->worker->timers, &request->timer,
                  request->worker->now_ms + route_of(request)->drain_timeout_ms);
        return;
    case GATE_TOO_LATE:
        if (request->observe)
            go_on_observed(request, REASON_SUPERSEDED);
        else
            drop_superseded(request);
        return;
    }
}

static void stop_waiting(struct request *request, enum reason reason)
{
    metrics_waiting(request->route->metrics, -1);
    if (request->observe && reason != REASON_SHUTTING_DOWN)
        go_on_observed(request, reason);
    else
        settle(request, reason, EFFECT_NOT_SENT);
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
    metrics_in_flight(request->route->metrics, 1);
    return true;
}

/* Once more after a pause, if the route allows it, no byte was sent and there is time left. */
static bool try_again(struct request *request)
{
    const struct config_route *route = route_of(request);
    uint64_t now = request->worker->now_ms;
    if (request->state != REQUEST_CONNECTING || request->last_look_failed || request->attempts > route->retry_connect ||
        now + CONNECT_PAUSE_MS >= request->call_started_ms + route->total_timeout_ms)
        return false;
    timer_set(&request->worker->timers, &request->timer, now + CONNECT_PAUSE_MS);
    return true;
}

void request_call_ended(struct request *request, enum call_end end, const char *detail)
{
    bool sent = request->state == REQUEST_SENT;
    if (end != CALL_OK && try_again(request))
        return;
    request->upstream_status = request->reply.head_done ? request->reply.status : 0;
    request->response_bytes = request->reply.received;
    if (sent)
        metrics_in_flight(request->route->metrics, -1);
    if (detail != NULL && !request->last_look_failed)
        snprintf(request->detail, sizeof request->detail, "%s", detail);
    switch (end) {
    case CALL_CUT_SHORT:
        if (request->note == NULL)
            request->note = "the partner's answer ended early";
        settle(request, REASON_NONE, EFFECT_SENT);
        return;
    case CALL_OK: settle(request, REASON_NONE, EFFECT_SENT); return;
    case CALL_TIMEOUT: settle(request, REASON_UPSTREAM_TIMEOUT, sent ? EFFECT_UNKNOWN : EFFECT_NOT_SENT); return;
    case CALL_UNREACHABLE:
        if (request->last_look_failed)
            drop_superseded(request);
        else
            settle(request, REASON_UPSTREAM_UNREACHABLE, EFFECT_NOT_SENT);
        return;
    case CALL_FAILED: settle(request, REASON_UPSTREAM_FAILED, EFFECT_UNKNOWN); return;
    }
}

/* Stops a call that has begun to send. An answer whose head is here says what the partner did: that is `sent`. */
static void cut_call(struct request *request, enum reason reason, const char *note)
{
    bool answered = request->reply.head_done;
    upstream_cancel(request);
    metrics_in_flight(request->route->metrics, -1);
    request->upstream_status = answered ? request->reply.status : 0;
    request->response_bytes = request->reply.received;
    bool whole = request->reply.has_length && request->reply.received == request->reply.length;
    request->reply.ended = true;
    request->reply.cut_short = !whole;
    request->note = note;
    if (answered)
        settle(request, REASON_NONE, EFFECT_SENT);
    else
        settle(request, reason, EFFECT_UNKNOWN);
}

/* ---- what comes from other threads and from the clock ---- */

static void on_notice(struct inbox_item *item)
{
    struct gate_ticket *ticket = (struct gate_ticket *)((char *)item - offsetof(struct gate_ticket, item));
    struct request *request = (struct request *)((char *)ticket - offsetof(struct request, ticket));
    unsigned notices = gate_notices(ticket);
    request->notice_pending = false;
    if (!request->joined) {
        maybe_free(request);
        return;
    }
    if ((notices & GATE_SUPERSEDED) != 0)
        request->highest = gate_highest(ticket);
    if (request->state == REQUEST_WAITING) {
        if ((notices & GATE_SUPERSEDED) != 0) {
            stop_waiting(request, REASON_SUPERSEDED);
        } else if ((notices & GATE_MAY_START) != 0) {
            timer_clear(&request->worker->timers, &request->timer);
            metrics_waiting(request->route->metrics, -1);
            connect_upstream(request);
        }
    } else if (request->state == REQUEST_CONNECTING && (notices & GATE_SUPERSEDED) != 0) {
        if (request->observe)
            return; /* the last look will note it */
        upstream_cancel(request);
        drop_superseded(request);
    } else if (request->state == REQUEST_SENT && (notices & GATE_CUT) != 0) {
        cut_call(request, REASON_ABORTED, "closed for a newer token");
    }
}

static void on_timer(struct timer *timer)
{
    struct request *request = (struct request *)((char *)timer - offsetof(struct request, timer));
    if (request->state == REQUEST_WAITING)
        stop_waiting(request, REASON_PREDECESSOR_IN_FLIGHT);
    else if (request->state == REQUEST_CONNECTING && request->call == NULL)
        connect_upstream(request);
    else if (request->state == REQUEST_SETTLING && request->op_busy)
        answer_settled(request, false);
    else if (request->state == REQUEST_SETTLING)
        record_outcome(request);
}

/* ---- the decision ---- */

/* The writer has decided. */
static void on_admitted(struct request *request)
{
    const struct store_op *op = &request->op;
    if (op->error != STORE_OK) {
        request->would_drop = false; /* nothing happened that a record could tell */
        settle(request, REASON_STORE_UNAVAILABLE, EFFECT_NOT_SENT);
        return;
    }
    request->highest = op->highest;
    request->effect_id = op->effect_id;
    if (op->verdict != VERDICT_ACCEPTED && !request->observe) { /* its record came with the verdict */
        request->audit_id = op->audit_id;
        request->reason = report_verdict_reason(op->verdict);
        request->effect = EFFECT_NOT_SENT;
        leave_gate(request);
        answer(request);
        finish(request);
        return;
    }
    if (atomic_load(&gateway_of(request)->shutting_down)) {
        settle(request, REASON_SHUTTING_DOWN, EFFECT_NOT_SENT);
        return;
    }
    if (op->verdict != VERDICT_ACCEPTED)
        go_on_observed(request, report_verdict_reason(op->verdict));
    else if (request->joined)
        enter_gate(request);
    else
        connect_upstream(request);
}

static void on_op_home(struct inbox_item *item)
{
    struct request *request = (struct request *)((char *)item - offsetof(struct request, op_item));
    request->op_busy = false;
    if (request->state == REQUEST_RECORDING)
        on_recorded(request);
    else if (request->state == REQUEST_ADMITTING)
        on_admitted(request);
    else if (request->state == REQUEST_SETTLING)
        on_settled(request);
    else
        abort(); /* an operation nobody waits for */
}

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
    submit(request, STORE_ADMIT);
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
    enum store_verdict verdict = store_judge(fence->token, request->token, route->equal_allowed, route->max_jump);
    return verdict == VERDICT_ACCEPTED ? REASON_NONE : report_verdict_reason(verdict);
}

static void decide(struct request *request)
{
    const struct config_route *route = route_of(request);
    request->ticket.token = request->token;
    request->ticket.rule = (enum gate_rule)route->on_supersede;
    /* Join first, then read: a raise in between is told to the entry, one before is read. */
    request->joined = gate_join(gateway_of(request)->gate, &request->ticket, request->ns, request->key);
    if (!request->joined) {
        refuse(request, REASON_OVERLOADED);
        return;
    }
    struct fence fence;
    enum reason reason =
        store_writable(gateway_of(request)->store) ? look_up(request, &fence) : REASON_STORE_UNAVAILABLE;
    if (reason == REASON_STORE_UNAVAILABLE || (reason != REASON_NONE && !request->observe)) {
        leave_gate(request);
        refuse(request, reason);
        return;
    }
    if (route->ledger_effects || (reason == REASON_NONE && request->token > fence.token))
        admit(request);
    else if (reason != REASON_NONE)
        go_on_observed(request, reason);
    else
        enter_gate(request); /* the fence stands at this token already, durably: nothing to write */
}

static bool take_place(struct request *request)
{
    struct gateway *gateway = gateway_of(request);
    unsigned limit = request->route->config->in_flight;
    unsigned all = atomic_fetch_add_explicit(&gateway->in_flight, 1, memory_order_relaxed);
    unsigned of_route = atomic_fetch_add_explicit(&request->route->in_flight, 1, memory_order_relaxed);
    if (all < request->settings->config->in_flight && (limit == 0 || of_route < limit)) {
        enum breaker_answer breaker = breaker_admit(request->route, request->worker->now_ms, &request->retry_after);
        if (breaker != BREAKER_OPEN) {
            request->probe = breaker == BREAKER_PROBE;
            request->counted = request->unsettled = true;
            atomic_fetch_add_explicit(&gateway->unsettled, 1, memory_order_relaxed);
            return true;
        }
        snprintf(request->detail, sizeof request->detail,
                 "The partner has failed several times in a row; calls are let through again after a while.");
    }
    atomic_fetch_sub_explicit(&request->route->in_flight, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&gateway->in_flight, 1, memory_order_relaxed);
    return false;
}

void request_arrived(struct request *request)
{
    enum reason refusal = request->refusal;
    request->request_bytes = request->body_len;
    if (refusal == REASON_NONE && atomic_load(&gateway_of(request)->shutting_down))
        refusal = REASON_SHUTTING_DOWN;
    if (refusal == REASON_NONE && !take_place(request))
        refusal = REASON_OVERLOADED;
    if (refusal != REASON_NONE) {
        refuse(request, refusal);
        return;
    }
    if (!request->fenced) {
        connect_upstream(request);
    } else if (request->would_drop) { /* observe, without a usable token or key */
        if (route_of(request)->ledger_effects)
            admit(request);
        else
            connect_upstream(request);
    } else {
        decide(request);
        return;
    }
}

bool request_stale_early(struct request *request)
{
    struct fence fence;
    if (!request->fenced || request->observe)
        return false;
    enum reason reason = look_up(request, &fence);
    if (reason == REASON_NONE)
        return false;
    refuse(request, reason);
    return true;
}

void request_client_gone(struct request *request)
{
    request->conn = NULL;
    if (request->state == REQUEST_RECEIVING) /* cut short: it never was a request */
        request_move(request, REQUEST_DONE);
    else if (request->reply.paused)
        upstream_resume(request); /* the rest is read and dropped: the record tells what the partner did */
    maybe_free(request);
}

/* ---- shutdown ---- */

void request_shutdown(struct request *request)
{
    if (request->state == REQUEST_WAITING)
        stop_waiting(request, REASON_SHUTTING_DOWN);
}

/* The process ends and the store is closed: what is not settled stays an intent, in doubt at the next start. */
void request_abandon(struct request *request)
{
    if (request->joined)
        leave_gate(request);
    request->state = REQUEST_DONE;
    request->conn = NULL;
    request->op_busy = request->notice_pending = false;
    maybe_free(request);
}

void request_cut(struct request *request)
{
    if (request->state == REQUEST_CONNECTING) {
        upstream_cancel(request);
        settle(request, REASON_SHUTTING_DOWN, EFFECT_NOT_SENT);
    } else if (request->state == REQUEST_SENT) {
        atomic_fetch_add(&gateway_of(request)->cut_effects, 1);
        cut_call(request, REASON_SHUTDOWN_CUT, "cut at the end of shutdown_grace");
    }
}
