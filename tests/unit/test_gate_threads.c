/*
 * tests/unit/test_gate_threads.c - the gate between threads, as in the gateway. For the thread sanitizer too.
 *
 * Workers run calls as request.c does: join, read the fence, go through the writer when the token is above it, enter,
 * look once more, send for a while, leave. The writer commits a batch (the fences below stand for the disk), tells the
 * gate, notes what it is about to hand out, and hands out.
 *
 * What is checked, from notes that are never ahead of what they are about:
 * - whoever begins to send read, before its last look, what had been handed out and what had been sent: nothing newer;
 * - all calls of a key that send at one time carry one token;
 * - every call ends, within a time that no fair order needs.
 */
#include "tests/unit/gate_case.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORKERS = 3, KEYS = 3, ACTIVE = 6, CALLS = 15000, STUCK_MS = 20000 };

struct key_log {
    _Atomic uint64_t issued, fence; /* of the lock service; on disk */
    _Atomic uint64_t handed_out, begun;
    pthread_mutex_t mutex;
    uint64_t sending_token;
    unsigned sending;
};

enum call_state { CALL_FREE, CALL_ADMITTING, CALL_WAITING, CALL_CONNECTING, CALL_SENDING, CALL_ENDED };

struct call {
    struct holder holder; /* its item is the first thing that the gate posts */
    struct inbox_item verdict;
    struct call *next; /* in the writer's queue */
    struct bench_worker *worker;
    struct key_log *key;
    char name[8];
    enum call_state state;
    bool accepted, in_gate, notice_pending;
    unsigned turns;
};

struct bench_worker {
    struct inbox inbox;
    pthread_t thread;
    struct call *call[ACTIVE];
    uint64_t random;
    unsigned begun, ended, sent, waited;
};

struct bench_writer {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t filled;
    struct call *queue, **end;
    bool closing;
};

static struct key_log keys[KEYS];
static struct bench_worker workers[WORKERS];
static struct bench_writer writer;
static _Atomic(const char *) complaint;

/* cmocka's assertions jump: not out of another thread. */
static void check(bool ok, const char *what)
{
    if (!ok)
        atomic_store(&complaint, what);
}

static uint32_t draw(struct bench_worker *worker, uint32_t bound)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return (uint32_t)((worker->random >> 32) % bound);
}

static void keep_highest(_Atomic uint64_t *kept, uint64_t token)
{
    uint64_t before = atomic_load(kept);
    while (before < token && !atomic_compare_exchange_weak(kept, &before, token))
        ;
}

static void call_leave(struct call *call)
{
    if (call->in_gate)
        call->notice_pending = gate_leave(&call->holder.ticket);
    call->in_gate = false;
    call->state = CALL_ENDED;
}

static void note_begin(struct call *call)
{
    struct key_log *key = call->key;
    uint64_t token = call->holder.ticket.token;
    pthread_mutex_lock(&key->mutex);
    check(key->sending == 0 || key->sending_token == token, "two tokens of one key were in flight at a time");
    key->sending_token = token;
    key->sending++;
    pthread_mutex_unlock(&key->mutex);
}

static void note_end(struct call *call)
{
    pthread_mutex_lock(&call->key->mutex);
    call->key->sending--;
    pthread_mutex_unlock(&call->key->mutex);
}

static void call_enter(struct call *call)
{
    uint64_t highest = 0;
    switch (gate_enter(&call->holder.ticket, &highest)) {
    case GATE_ENTERED: call->state = CALL_CONNECTING; return;
    case GATE_MUST_WAIT:
        call->state = CALL_WAITING;
        call->worker->waited++;
        return;
    case GATE_TOO_LATE: check(highest > call->holder.ticket.token, "too late for nothing"); call_leave(call);
    }
}

static void call_send(struct call *call)
{
    uint64_t token = call->holder.ticket.token, highest = 0;
    uint64_t handed_out = atomic_load(&call->key->handed_out), begun = atomic_load(&call->key->begun);
    if (!gate_begin_send(&call->holder.ticket, &highest)) {
        check(highest > token, "stopped for nothing");
        call_leave(call);
        return;
    }
    check(token >= handed_out, "a token started after a newer one had been accepted");
    check(token >= begun, "a token started after a newer one had been sent");
    keep_highest(&call->key->begun, token);
    note_begin(call);
    call->state = CALL_SENDING;
    call->turns = 1 + draw(call->worker, 4);
    call->worker->sent++;
}

static void call_end(struct call *call)
{
    note_end(call);
    call_leave(call);
}

static void on_call_notice(struct inbox_item *item)
{
    struct call *call = (struct call *)((char *)item - offsetof(struct call, holder.ticket.item));
    unsigned notices = gate_notices(&call->holder.ticket);
    call->notice_pending = false;
    if (!call->in_gate)
        return;
    if ((notices & GATE_SUPERSEDED) != 0)
        check(gate_highest(&call->holder.ticket) > call->holder.ticket.token, "superseded by nothing");
    if ((notices & GATE_SUPERSEDED) != 0 && (call->state == CALL_WAITING || call->state == CALL_CONNECTING))
        call_leave(call);
    else if ((notices & GATE_MAY_START) != 0 && call->state == CALL_WAITING)
        call->state = CALL_CONNECTING;
    else if ((notices & GATE_CUT) != 0 && call->state == CALL_SENDING)
        call_end(call);
}

static void on_verdict(struct inbox_item *item)
{
    struct call *call = (struct call *)((char *)item - offsetof(struct call, verdict));
    if (call->accepted)
        call_enter(call);
    else
        call_leave(call);
}

static void submit(struct call *call)
{
    call->state = CALL_ADMITTING;
    call->next = NULL;
    pthread_mutex_lock(&writer.mutex);
    *writer.end = call;
    writer.end = &call->next;
    pthread_cond_signal(&writer.filled);
    pthread_mutex_unlock(&writer.mutex);
}

static struct call *call_new(struct bench_worker *worker)
{
    uint32_t number = draw(worker, KEYS);
    struct call *call = calloc(1, sizeof *call);
    if (call == NULL)
        abort();
    call->worker = worker;
    call->key = &keys[number];
    snprintf(call->name, sizeof call->name, "k%u", number);
    call->verdict.run = on_verdict;
    uint64_t token =
        draw(worker, 3) == 0 ? atomic_fetch_add(&call->key->issued, 1) + 1 : atomic_load(&call->key->issued);
    if (token > 1 && draw(worker, 4) == 0)
        token--; /* a holder that does not know */
    call->holder.ticket = (struct gate_ticket){.item.run = on_call_notice,
                                               .inbox = &worker->inbox,
                                               .token = token,
                                               .rule = draw(worker, 3) == 0 ? GATE_ABORT : GATE_DRAIN};
    call->in_gate = gate_join(gate, &call->holder.ticket, text("default"), text(call->name));
    check(call->in_gate, "no memory");
    uint64_t fence = atomic_load(&call->key->fence);
    if (token < fence)
        call_leave(call);
    else if (token > fence || draw(worker, 2) == 0)
        submit(call);
    else
        call_enter(call); /* stands on disk already */
    return call;
}

/* True: something moved. */
static bool turn(struct bench_worker *worker, struct call **place)
{
    struct call *call = *place;
    if (call == NULL) {
        if (worker->begun == CALLS)
            return false;
        worker->begun++;
        *place = call_new(worker);
        return true;
    }
    if (call->state == CALL_CONNECTING) {
        call_send(call);
    } else if (call->state == CALL_SENDING) {
        if (--call->turns == 0)
            call_end(call);
    } else if (call->state == CALL_ENDED && !call->notice_pending) {
        free(call);
        *place = NULL;
        worker->ended++;
    } else {
        return false;
    }
    return true;
}

static void *worker_main(void *arg)
{
    struct bench_worker *worker = arg;
    while (worker->ended < CALLS && atomic_load(&complaint) == NULL) {
        bool moved = inbox_drain(&worker->inbox);
        for (unsigned i = 0; i < ACTIVE; i++)
            moved = turn(worker, &worker->call[draw(worker, ACTIVE)]) || moved;
        for (unsigned i = 0; i < ACTIVE && !moved; i++)
            moved = turn(worker, &worker->call[i]);
        if (draw(worker, 4) == 0)
            sched_yield(); /* or on few cores one would be through before the next comes on */
        struct pollfd fd = {.fd = worker->inbox.event_fd, .events = POLLIN};
        if (!moved)
            check(poll(&fd, 1, STUCK_MS) > 0, "a call was never woken");
    }
    return NULL;
}

static void commit(struct call *batch)
{
    for (struct call *call = batch; call != NULL; call = call->next) {
        uint64_t token = call->holder.ticket.token;
        call->accepted = token >= atomic_load(&call->key->fence);
        if (call->accepted)
            atomic_store(&call->key->fence, token); /* one writer */
    }
    sched_yield(); /* readers see the new fences, the gate does not know yet */
    for (struct call *call = batch; call != NULL; call = call->next)
        if (call->accepted)
            gate_raised(gate, text("default"), text(call->name), call->holder.ticket.token);
    for (struct call *call = batch; call != NULL; call = call->next)
        if (call->accepted)
            keep_highest(&call->key->handed_out, call->holder.ticket.token);
    while (batch != NULL) {
        struct call *call = batch;
        batch = batch->next; /* its owner may free it as soon as it is posted */
        inbox_post(&call->worker->inbox, &call->verdict);
    }
}

static void *writer_main(void *arg)
{
    (void)arg;
    for (bool closing = false; !closing;) {
        pthread_mutex_lock(&writer.mutex);
        while (writer.queue == NULL && !writer.closing)
            pthread_cond_wait(&writer.filled, &writer.mutex);
        struct call *batch = writer.queue;
        writer.queue = NULL;
        writer.end = &writer.queue;
        closing = writer.closing && batch == NULL;
        pthread_mutex_unlock(&writer.mutex);
        commit(batch);
    }
    return NULL;
}

static void bench_begin(void)
{
    for (size_t i = 0; i < KEYS; i++) {
        keys[i] = (struct key_log){.issued = 1};
        pthread_mutex_init(&keys[i].mutex, NULL);
    }
    pthread_mutex_init(&writer.mutex, NULL);
    pthread_cond_init(&writer.filled, NULL);
    writer.end = &writer.queue;
    assert_int_equal(pthread_create(&writer.thread, NULL, writer_main, NULL), 0);
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct bench_worker){.random = UINT64_C(0x9E3779B97F4A7C15) * (i + 1)};
        assert_true(inbox_init(&workers[i].inbox));
    }
    for (size_t i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
}

static void bench_end(void)
{
    for (size_t i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_mutex_lock(&writer.mutex);
    writer.closing = true;
    pthread_cond_signal(&writer.filled);
    pthread_mutex_unlock(&writer.mutex);
    pthread_join(writer.thread, NULL);
}

static void order_holds_between_threads(void **state)
{
    (void)state;
    bench_begin();
    bench_end();
    if (atomic_load(&complaint) != NULL)
        fail_msg("%s", atomic_load(&complaint));
    for (size_t i = 0; i < WORKERS; i++) {
        assert_int_equal(workers[i].ended, CALLS);
        assert_in_range(workers[i].sent, CALLS / 20, CALLS); /* it was about something */
        assert_in_range(workers[i].waited, CALLS / 200, CALLS);
        inbox_destroy(&workers[i].inbox);
    }
    for (size_t i = 0; i < KEYS; i++) {
        char name[8];
        snprintf(name, sizeof name, "k%zu", i);
        assert_int_equal(keys[i].sending, 0);
        assert_int_equal(gate_in_flight(gate, text("default"), text(name)), 0);
        pthread_mutex_destroy(&keys[i].mutex);
    }
    pthread_mutex_destroy(&writer.mutex);
    pthread_cond_destroy(&writer.filled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(order_holds_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
