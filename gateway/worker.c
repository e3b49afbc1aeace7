/*
 * gateway/worker.c - the event loop. One turn: wait, serve ready descriptors, fire due timers, then let inbox, partners
 * and clients work until none has anything left to do.
 *
 * Leaves to others: everything a request is about.
 */
#include "gateway/worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/config.h"
#include "gateway/inbound.h"
#include "gateway/log.h"
#include "gateway/metrics.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/upstream.h"
#include "store/store.h"

enum {
    EVENTS_PER_TURN = 256,
    SHORT_MS = 250,    /* of turns that did not read all: a limit is late by that much, or one turn */
    SHORT_TURNS = 128, /* that filled the list: each descriptor has been in it */
    HUNGRY_COST = 4,   /* of those, for a turn that left only bytes: 32 such turns empty a socket's buffer, 6 MiB */
    LISTEN_BACKLOG = 4096,
    PAUSE_MS = 100,
};

#if defined(__SANITIZE_ADDRESS__)
enum { SPARE_REQUESTS = 0 }; /* reuse would hide a use after free */
#else
enum { SPARE_REQUESTS = 256 };
#endif

enum message_kind { MESSAGE_RELOAD, MESSAGE_BEGIN_SHUTDOWN, MESSAGE_CUT, MESSAGE_LEAVE };

struct worker_message {
    struct inbox_item item;
    struct worker *worker;
    enum message_kind kind;
    struct settings *settings; /* RELOAD: reference */
};

/* ---- descriptors ---- */

bool worker_watch(struct worker *worker, int fd, uint32_t events, struct io *io)
{
    struct epoll_event event = {.events = events, .data.ptr = io};
    return epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

void worker_rewatch(struct worker *worker, int fd, uint32_t events, struct io *io)
{
    struct epoll_event event = {.events = events, .data.ptr = io};
    epoll_ctl(worker->epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

void worker_unwatch(struct worker *worker, int fd)
{
    epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, fd, NULL); /* fails when it was closed before: gone is gone */
}

static void ignore_event(struct io *io, uint32_t events)
{
    (void)io, (void)events;
}

void worker_retire(struct worker *worker, struct io *io)
{
    io->ready = ignore_event; /* an event of this turn may still name it */
    io->next_retired = worker->retired;
    worker->retired = io;
}

static void free_retired(struct worker *worker)
{
    while (worker->retired != NULL) {
        struct io *next = worker->retired->next_retired;
        free(worker->retired);
        worker->retired = next;
    }
}

/* ---- live requests ---- */

void worker_add(struct worker *worker, struct request *request)
{
    request->prev = NULL;
    request->next = worker->live;
    if (worker->live != NULL)
        worker->live->prev = request;
    worker->live = request;
    atomic_fetch_add_explicit(&worker->busy, 1, memory_order_relaxed);
}

void worker_remove(struct worker *worker, struct request *request)
{
    if (request->prev != NULL)
        request->prev->next = request->next;
    else
        worker->live = request->next;
    if (request->next != NULL)
        request->next->prev = request->prev;
    atomic_fetch_sub_explicit(&worker->busy, 1, memory_order_release);
}

struct request *worker_take_spare(struct worker *worker)
{
    struct request *request = worker->spare;
    if (request != NULL) {
        worker->spare = request->next;
        worker->spare_count--;
    }
    return request;
}

void worker_put_spare(struct worker *worker, struct request *request)
{
    if (worker->spare_count + 1 > SPARE_REQUESTS) {
        request_free_spare(request);
        return;
    }
    request->next = worker->spare;
    worker->spare = request;
    worker->spare_count++;
}

unsigned worker_busy(struct worker *worker)
{
    return atomic_load_explicit(&worker->busy, memory_order_acquire);
}

/* ---- messages from main ---- */

/* A step may free the request it is for, and no other. */
static void each_live(struct worker *worker, void (*step)(struct request *request))
{
    struct request *next;
    for (struct request *request = worker->live; request != NULL; request = next) {
        next = request->next;
        step(request);
    }
}

static void on_message(struct inbox_item *item)
{
    struct worker_message *message = (struct worker_message *)item;
    struct worker *worker = message->worker;
    switch (message->kind) {
    case MESSAGE_RELOAD:
        settings_unref(&worker->settings);
        worker->settings = message->settings;
        free(message);
        return;
    case MESSAGE_BEGIN_SHUTDOWN: each_live(worker, request_shutdown); return;
    case MESSAGE_CUT: each_live(worker, request_cut); return;
    case MESSAGE_LEAVE: worker->stop = true; return;
    }
}

static struct worker_message *message_new(struct worker *worker, enum message_kind kind)
{
    struct worker_message *message = calloc(1, sizeof *message);
    if (message != NULL) {
        message->item.run = on_message;
        message->worker = worker;
        message->kind = kind;
    }
    return message;
}

bool worker_reload(struct worker *worker, struct settings *settings)
{
    struct worker_message *message = message_new(worker, MESSAGE_RELOAD);
    if (message == NULL)
        return false;
    message->settings = settings_ref(settings);
    inbox_post(&worker->inbox, &message->item);
    return true;
}

void worker_begin_shutdown(struct worker *worker)
{
    inbox_post(&worker->inbox, &worker->begin_shutdown->item);
}

void worker_cut(struct worker *worker)
{
    inbox_post(&worker->inbox, &worker->cut->item);
}

void worker_stop(struct worker *worker)
{
    inbox_post(&worker->inbox, &worker->leave->item);
}

/* ---- what the store is to do ---- */

void worker_submit(struct worker *worker, struct store_op *op)
{
    op->next = NULL;
    if (worker->first_op == NULL)
        worker->first_op = op;
    else
        worker->last_op->next = op;
    worker->last_op = op;
}

/* Once a turn: one lock and one wake-up, and the writer does not begin a commit with the first of them alone. */
static void hand_over(struct worker *worker)
{
    struct store_op *first = worker->first_op;
    worker->first_op = NULL;
    if (first != NULL)
        store_submit_list(worker->gateway->store, first, worker->last_op);
}

/* ---- the loop ---- */

static void on_inbox_ready(struct io *io, uint32_t events)
{
    (void)events;
    struct worker *worker = (struct worker *)((char *)io - offsetof(struct worker, inbox_io));
    worker->inbox_due = true;
}

/* Each part may make work for the others: go round until all are quiet. */
static void work(struct worker *worker)
{
    bool more;
    do {
        more = worker->inbox_due && inbox_drain(&worker->inbox);
        worker->inbox_due = false;
        more = upstream_run(worker->upstream) || more;
        hand_over(worker); /* before answers go out: what a client does next is recorded after what it was told */
        more = inbound_run(worker->inbound) || more;
    } while (more && !worker->stop);
}

static bool is_hungry(const struct worker *worker)
{
    return upstream_is_hungry(worker->upstream) || inbound_is_hungry(worker->inbound);
}

static int wait_ms(struct worker *worker, uint64_t now_ms)
{
    if (is_hungry(worker))
        return 0;
    return timers_wait_ms(&worker->timers, now_ms);
}

/* A time limit is believed when all that had come by then was read: the process may have stood still, with an answer in
 * the socket. So a timer fires after a wait that began when it was due and told of every ready socket, each read to its
 * end. A wait that a signal broke off (SIGCONT does) tells of none, one that filled the list maybe not of all. */
static void run_timers(struct worker *worker, uint64_t asked_ms, int count)
{
    bool listed = count >= 0 && count < EVENTS_PER_TURN, all = listed && !is_hungry(worker);
    if (!all && worker->short_turns == 0)
        worker->short_since_ms = asked_ms;
    if (!all)
        worker->short_turns += listed ? HUNGRY_COST : 1;
    if (!all && worker->short_turns < SHORT_TURNS && worker->now_ms < worker->short_since_ms + SHORT_MS)
        return;
    /* After so many, each that was ready at the first of them has had its turn. A partner that never stops talking
     * makes every turn a short one: the limits of all others wait for these, and no longer. */
    timers_run(&worker->timers, all ? asked_ms : worker->short_since_ms);
    worker->short_turns = 0;
}

static void read_clock(struct worker *worker)
{
    worker->now_us = monotonic_us();
    worker->now_ms = worker->now_us / 1000;
}

/* Much later than it was to end, or begun much later than the last one ended: this thread, or the whole process, stood
 * still. */
static void look_for_pause(struct worker *worker, uint64_t before_ms, uint64_t asked_ms, int waited_ms)
{
    uint64_t end_ms = waited_ms < 0 ? worker->now_ms : asked_ms + (uint64_t)waited_ms, late_ms = asked_ms - before_ms;
    if (worker->now_ms > end_ms)
        late_ms += worker->now_ms - end_ms;
    if (late_ms > PAUSE_MS)
        upstream_stood_still(worker->upstream, late_ms + PAUSE_MS); /* to read what came takes time */
}

static void *worker_run(void *arg)
{
    struct worker *worker = arg;
    struct epoll_event events[EVENTS_PER_TURN];
    char name[16]; /* the kernel's limit; workers are 256 at most */
    snprintf(name, sizeof name, "fg-worker-%u", worker->number);
    pthread_setname_np(pthread_self(), name);
    while (!worker->stop) {
        uint64_t before_ms = worker->now_ms, asked_ms = monotonic_ms();
        int waited_ms = wait_ms(worker, asked_ms);
        int count = epoll_wait(worker->epoll_fd, events, EVENTS_PER_TURN, waited_ms);
        read_clock(worker);
        look_for_pause(worker, before_ms, asked_ms, waited_ms);
        for (int i = 0; i < count; i++) {
            struct io *io = events[i].data.ptr;
            io->ready(io, events[i].events);
        }
        if (worker->inbox_due) /* what has come home while we were away is not late */
            inbox_drain(&worker->inbox);
        worker->inbox_due = false;
        run_timers(worker, asked_ms, count);
        upstream_feed(worker->upstream);
        inbound_feed(worker->inbound);
        work(worker);
        hand_over(worker);
        free_retired(worker);
    }
    return NULL;
}

/* ---- beginning and end ---- */

/* Workers share the port by SO_REUSEPORT. The first one binds without it, so that a port that another process listens
 * on (a second gateway with another store: two sets of fences) is refused, and lets its fellows in afterwards. */
static bool take_port(int fd, const struct sockaddr *address, socklen_t len, bool first)
{
    int on = 1;
    return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
           (first || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0) && bind(fd, address, len) == 0 &&
           (!first || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0);
}

static int open_socket(const char *address, uint16_t port, bool first, char *error, size_t error_cap)
{
    struct sockaddr_storage storage = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&storage;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&storage;
    socklen_t len = sizeof *in;
    if (inet_pton(AF_INET, address, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
    } else if (inet_pton(AF_INET6, address, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        len = sizeof *in6;
    } else {
        snprintf(error, error_cap, "listen.address %s is no IP address", address);
        return -1;
    }
    int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || !take_port(fd, (struct sockaddr *)&storage, len, first) || listen(fd, LISTEN_BACKLOG) != 0) {
        snprintf(error, error_cap, "cannot listen on %s port %u: %s", address, port, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage storage;
    socklen_t len = sizeof storage;
    if (getsockname(fd, (struct sockaddr *)&storage, &len) != 0)
        return 0;
    return storage.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&storage)->sin6_port)
                                         : ntohs(((struct sockaddr_in *)&storage)->sin_port);
}

static bool make_parts(struct worker *worker)
{
    worker->begin_shutdown = message_new(worker, MESSAGE_BEGIN_SHUTDOWN);
    worker->cut = message_new(worker, MESSAGE_CUT);
    worker->leave = message_new(worker, MESSAGE_LEAVE);
    worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!inbox_init(&worker->inbox) || worker->epoll_fd < 0 || worker->begin_shutdown == NULL || worker->cut == NULL ||
        worker->leave == NULL)
        return false;
    worker->inbox_io.ready = on_inbox_ready;
    worker->place_caller = (struct place_caller){.item.run = inbound_on_called, .inbox = &worker->inbox};
    if (!worker_watch(worker, worker->inbox.event_fd, EPOLLIN, &worker->inbox_io) ||
        store_reader_open(worker->gateway->store, &worker->reader) != STORE_OK)
        return false;
    worker->upstream = upstream_new(worker);
    worker->inbound = inbound_new(worker, worker->listen_fd);
    return worker->upstream != NULL && worker->inbound != NULL;
}

struct worker *worker_new(const struct worker_options *options, uint16_t *port, char *error, size_t error_cap)
{
    struct worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL) {
        snprintf(error, error_cap, "out of memory");
        return NULL;
    }
    worker->gateway = options->gateway;
    worker->number = options->number;
    snprintf(worker->id_prefix, sizeof worker->id_prefix, "%" PRIx64 "-%u-", worker->gateway->started_ms,
             worker->number);
    worker->settings = settings_ref(options->settings);
    worker->no_route = metrics_route(NULL);
    worker->epoll_fd = worker->inbox.event_fd = -1;
    read_clock(worker);
    worker->listen_fd =
        open_socket(options->settings->config->listen_address, options->port, options->number == 0, error, error_cap);
    if (worker->listen_fd < 0) {
        worker_free(&worker);
        return NULL;
    }
    if (worker->no_route == NULL || !make_parts(worker)) {
        snprintf(error, error_cap, "cannot start a worker: %s", strerror(errno));
        worker_free(&worker);
        return NULL;
    }
    *port = port_of(worker->listen_fd);
    if (*port == 0) {
        snprintf(error, error_cap, "cannot learn the port that was bound: %s", strerror(errno));
        worker_free(&worker);
        return NULL;
    }
    return worker;
}

bool worker_start(struct worker *worker)
{
    worker->started = pthread_create(&worker->thread, NULL, worker_run, worker) == 0;
    return worker->started;
}

static void cancel_call(struct request *request)
{
    if (request->call != NULL)
        upstream_cancel(request);
}

void worker_join(struct worker *worker)
{
    if (worker->started)
        pthread_join(worker->thread, NULL);
    worker->started = false;
    each_live(worker, cancel_call);
    inbound_free(&worker->inbound);
    upstream_free(&worker->upstream);
    hand_over(worker); /* nothing that was decided on the way out stays behind */
    store_reader_close(&worker->reader);
}

void worker_free(struct worker **worker)
{
    struct worker *gone = *worker;
    *worker = NULL;
    if (gone == NULL)
        return;
    worker_join(gone);
    each_live(gone, request_abandon);
    for (struct request *spare; (spare = worker_take_spare(gone)) != NULL;)
        request_free_spare(spare);
    free_retired(gone);
    timers_free(&gone->timers);
    inbox_destroy(&gone->inbox);
    if (gone->epoll_fd >= 0)
        close(gone->epoll_fd);
    if (gone->listen_fd >= 0)
        close(gone->listen_fd);
    free(gone->begin_shutdown);
    free(gone->cut);
    free(gone->leave);
    settings_unref(&gone->settings);
    free(gone);
}
