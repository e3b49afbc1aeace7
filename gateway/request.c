/*
 * gateway/request.c - one request's state and memory, and what wakes it; its steps are in request_decide.c (refused or
 * admitted), request_call.c (order, call, end of the call) and request_outcome.c (record, answer). request_move() is
 * the only place that changes the state.
 *
 *   receiving ─► recording ─► done                  refused: answered when the record is durable
 *   receiving ─► looking ─► as from receiving       a webhook, while its target's addresses are looked at
 *   receiving ─► composing ─► as from receiving     a large mail, while another thread makes it
 *   receiving ─► admitting ─► waiting ─► connecting ─► sent ─► settling ─► done
 *   admitting ─► parking ─► waiting                 the intent is on disk as one that may start, and must wait
 *   admitting, waiting ─► starting ─► connecting    the intent is on disk as one that waits, and may start
 *   sent ─► connecting                              the kernel took no byte: nothing was sent
 *
 * What is durable when: the raise and the intent at the end of admitting, a drop at the end of recording, the outcome
 * at the end of settling (or, if the process dies before, as an intent that the next start finds). An intent that waits
 * for an older call is no doubt after a crash: nothing of its call was sent. The gate is told of
 * a raise by the store's writer, not here.
 *
 * Leaves to others: HTTP on both sides (inbound, upstream), the order per key (gate), what is on disk (store), the
 * judgement of the head (admission.c), records and log lines (report.c).
 */
#include "gateway/request.h"

#include <stdarg.h>
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
#include "gateway/upstream.h"
#include "gateway/worker.h"

enum { LATE_MS = 100 }; /* a timer that is later was held up by a pause of the whole process */

#define TO(state) (1u << REQUEST_##state)
static const unsigned legal_moves[] = {
    [REQUEST_RECEIVING] = TO(LOOKING) | TO(COMPOSING) | TO(RECORDING) | TO(ADMITTING) | TO(WAITING) | TO(CONNECTING) |
                          TO(SETTLING) | TO(DONE),
    [REQUEST_LOOKING] = TO(RECORDING) | TO(ADMITTING) | TO(WAITING) | TO(CONNECTING) | TO(SETTLING) | TO(DONE),
    [REQUEST_COMPOSING] = TO(RECORDING) | TO(ADMITTING) | TO(WAITING) | TO(CONNECTING) | TO(SETTLING) | TO(DONE),
    [REQUEST_RECORDING] = TO(DONE),
    [REQUEST_ADMITTING] = TO(PARKING) | TO(WAITING) | TO(STARTING) | TO(CONNECTING) | TO(SETTLING) | TO(DONE),
    [REQUEST_PARKING] = TO(WAITING) | TO(SETTLING) | TO(DONE),
    [REQUEST_WAITING] = TO(STARTING) | TO(CONNECTING) | TO(SETTLING) | TO(DONE),
    [REQUEST_STARTING] = TO(CONNECTING) | TO(SETTLING) | TO(DONE),
    [REQUEST_CONNECTING] = TO(SENT) | TO(SETTLING) | TO(DONE),
    [REQUEST_SENT] = TO(CONNECTING) | TO(SETTLING) | TO(DONE),
    [REQUEST_SETTLING] = TO(DONE),
    [REQUEST_DONE] = 0,
};

void request_move(struct request *request, enum request_state to)
{
    if ((legal_moves[request->state] & (1u << to)) == 0)
        abort(); /* a step out of order could send twice: no going on from here */
    request->state = to;
}

/* ---- beginning and end of the memory ---- */

static void on_store_done(struct store_op *op);
static void on_op_home(struct inbox_item *item);
static void on_notice(struct inbox_item *item);
static void on_timer(struct timer *timer);

struct request *request_new(struct worker *worker, struct connection *conn)
{
    struct request *request = worker_take_spare(worker);
    if (request == NULL && (request = malloc(sizeof *request)) != NULL)
        request->reply = (struct reply){0};
    if (request == NULL)
        return NULL;
    memset(request, 0, offsetof(struct request, reply));
    if (!timers_promise(&worker->timers)) {
        request_free_spare(request);
        return NULL;
    }
    request->magic = REQUEST_MAGIC;
    request->state = REQUEST_RECEIVING;
    request->worker = worker;
    request->settings = settings_ref(worker->settings);
    request->conn = conn;
    request->started_ms = worker->now_ms;
    request->number = ++worker->requests;
    request->timer.fire = on_timer;
    request->op.done = on_store_done;
    request->op.home = worker;
    request->op_item.run = on_op_home;
    request->ticket.item.run = on_notice;
    request->ticket.inbox = &worker->inbox;
    arena_init(&request->arena);
    worker_add(worker, request);
    return request;
}

void request_free_spare(struct request *request)
{
    reply_free(&request->reply);
    free(request);
}

enum reason request_tell_client(struct request *request, enum reason reason, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int len = vsnprintf(NULL, 0, format, list);
    char *text = len < 0 ? NULL : arena_alloc(&request->arena, (size_t)len + 1);
    if (text != NULL)
        vsnprintf(text, (size_t)len + 1, format, again);
    va_end(again);
    va_end(list);
    request->answer_detail = text;
    request->answer_detail_of = reason;
    return reason;
}

void request_tell_breaker(struct request *request)
{
    snprintf(request->detail, sizeof request->detail,
             "The route's breaker is open: the partner has failed several times in a row.");
}

void request_tell_limit(struct request *request, const char *limit)
{
    snprintf(request->detail, sizeof request->detail, "A limit is reached: %s. Try again in a moment.", limit);
}

bool request_lacks_room(struct request *request)
{
    struct store *store = gateway_of(request)->store;
    bool lacks = store_writable(store) && !store_roomy(store);
    if (lacks)
        snprintf(request->detail, sizeof request->detail,
                 "Less than a tenth of store.max_size is left, and is kept for current calls of known keys: nothing "
                 "was sent.");
    return lacks;
}

void request_body_free(struct request *request)
{
    if (request->body == NULL)
        return;
    free(request->body);
    atomic_fetch_sub_explicit(&gateway_of(request)->buffered, request->body_cap, memory_order_relaxed);
    request->body = NULL;
    request->body_len = request->body_cap = 0;
}

void request_maybe_free(struct request *request)
{
    if (request->state != REQUEST_DONE || request->conn != NULL || request->call != NULL || request->op_busy ||
        request->notice_pending)
        return;
    struct worker *worker = request->worker;
    timer_clear(&worker->timers, &request->timer);
    timers_release(&worker->timers);
    worker_remove(worker, request);
    request_body_free(request);
    mail_request_free(request);
    reply_reset(&request->reply);
    arena_free(&request->arena);
    settings_unref(&request->settings);
    request->magic = 0;
    worker_put_spare(worker, request);
}

/* ---- the store ---- */

static struct request *request_of(struct store_op *op)
{
    return (struct request *)((char *)op - offsetof(struct request, op));
}

/* All are of one worker: that is their `home`. */
static void on_store_done(struct store_op *list) /* writer thread */
{
    struct worker *worker = request_of(list)->worker;
    struct inbox_item *first = &request_of(list)->op_item, *last = first;
    while ((list = list->next) != NULL) {
        last->next = &request_of(list)->op_item;
        last = last->next;
    }
    inbox_post_list(&worker->inbox, first, last);
}

void request_submit(struct request *request, enum store_op_kind kind)
{
    request->op.kind = kind;
    request->op_busy = true;
    worker_submit(request->worker, &request->op);
}

/* ---- what wakes it: the gate, the clock, the store ---- */

static void on_notice(struct inbox_item *item)
{
    struct gate_ticket *ticket = (struct gate_ticket *)((char *)item - offsetof(struct gate_ticket, item));
    struct request *request = (struct request *)((char *)ticket - offsetof(struct request, ticket));
    unsigned notices = gate_notices(ticket);
    request->notice_pending = false;
    if (!request->joined) {
        request_maybe_free(request);
        return;
    }
    if ((notices & GATE_SUPERSEDED) != 0)
        request->highest = gate_highest(ticket);
    if (request->state == REQUEST_PARKING || request->state == REQUEST_STARTING)
        request->notices_held |= notices;
    else
        request_heed(request, notices);
}

void request_heed(struct request *request, unsigned notices)
{
    if (request->state == REQUEST_WAITING) {
        if ((notices & GATE_SUPERSEDED) != 0) {
            request_stop_waiting(request, REASON_SUPERSEDED);
        } else if ((notices & GATE_MAY_START) != 0) {
            timer_clear(&request->worker->timers, &request->timer);
            request_wait_over(request);
            request_start(request);
        }
    } else if (request->state == REQUEST_CONNECTING && (notices & GATE_SUPERSEDED) != 0) {
        if (request->observe)
            return; /* the last look will note it */
        upstream_cancel(request);
        request_drop_superseded(request);
    } else if (request->state == REQUEST_SENT && (notices & GATE_CUT) != 0) {
        request_cut_call(request, REASON_ABORTED, "closed for a newer token");
    }
}

static void on_timer(struct timer *timer)
{
    struct request *request = (struct request *)((char *)timer - offsetof(struct request, timer));
    uint64_t now = request->worker->now_ms;
    bool late = request->state == REQUEST_WAITING && now > timer->due_ms + LATE_MS && !request->given_grace;
    request->given_grace = request->given_grace || late; /* once: under load each turn may take so long */
    if (late)                                            /* we stood still: so did the older call */
        timer_set(&request->worker->timers, timer, now + LATE_MS);
    else if (request->state == REQUEST_WAITING)
        request_stop_waiting(request, REASON_PREDECESSOR_IN_FLIGHT);
    else if (request->state == REQUEST_CONNECTING && request->call == NULL)
        request_connect(request);
    else if (request->state == REQUEST_SETTLING && request->op_busy)
        request_answer_settled(request, false);
    else if (request->state == REQUEST_SETTLING)
        request_record_outcome(request);
}

static void on_op_home(struct inbox_item *item)
{
    struct request *request = (struct request *)((char *)item - offsetof(struct request, op_item));
    request->op_busy = false;
    if (request->state == REQUEST_RECORDING)
        request_on_recorded(request);
    else if (request->state == REQUEST_ADMITTING)
        request_on_admitted(request);
    else if (request->state == REQUEST_PARKING)
        request_on_parked(request);
    else if (request->state == REQUEST_STARTING)
        request_on_started(request);
    else if (request->state == REQUEST_SETTLING)
        request_on_settled(request);
    else
        abort(); /* an operation nobody waits for */
}

void request_client_gone(struct request *request)
{
    request->conn = NULL;
    if (request->state == REQUEST_RECEIVING) /* cut short: it never was a request */
        request_move(request, REQUEST_DONE);
    else if (request->reply.paused)
        upstream_resume(request); /* the rest is read and dropped: the record tells what the partner did */
    request_maybe_free(request);
}

/* ---- shutdown ---- */

void request_shutdown(struct request *request)
{
    if (request->state == REQUEST_LOOKING)
        request_stop_looking(request);
    else if (request->state == REQUEST_WAITING)
        request_stop_waiting(request, REASON_SHUTTING_DOWN);
}

/* The process ends and the store is closed: what is not settled stays an intent, in doubt at the next start. */
void request_abandon(struct request *request)
{
    if (request->joined)
        request_leave_gate(request);
    request->state = REQUEST_DONE;
    request->conn = NULL;
    request->op_busy = request->notice_pending = false;
    request_maybe_free(request);
}

void request_cut(struct request *request)
{
    if (request->state == REQUEST_LOOKING) {
        request_stop_looking(request);
    } else if (request->state == REQUEST_CONNECTING) {
        upstream_cancel(request);
        request_settle(request, REASON_SHUTTING_DOWN, EFFECT_NOT_SENT);
    } else if (request->state == REQUEST_SENT) {
        atomic_fetch_add(&gateway_of(request)->cut_effects, 1);
        request_cut_call(request, REASON_SHUTDOWN_CUT, "cut at the end of shutdown_grace");
    }
}
