/*
 * gateway/inbound_accept.c - accepts connections, counts them, and keeps each at the door until its first head is
 * whole.
 *
 * libmicrohttpd answers some heads with a page of its own (too large, another HTTP version) and closes slow ones
 * without a word. At the door we look at the first bytes without taking them (MSG_PEEK) and can answer in our own
 * words; then the socket is handed over. Later requests of a connection are not seen here: what is wrong with those
 * libmicrohttpd says.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/config.h"
#include "gateway/head.h"
#include "gateway/inbound_int.h"
#include "gateway/log.h"
#include "gateway/report.h"
#include "gateway/settings.h"

enum { ACCEPTS_PER_TURN = 64, ACCEPT_PAUSE_MS = 100 };

struct door {
    struct io io; /* first: worker_retire() frees by it */
    struct timer timer;
    struct inbound *inbound;
    struct door *next, *prev;
    int fd;
    bool begun; /* bytes have come: request_timeout runs */
    struct sockaddr_storage address;
    socklen_t address_len;
};

static const struct config *config_of(const struct inbound *inbound)
{
    return inbound->worker->settings->config;
}

static void uncount(struct inbound *inbound)
{
    atomic_fetch_sub_explicit(&inbound->worker->gateway->connections, 1, memory_order_relaxed);
}

/* Takes the connection from the door; the descriptor is the caller's. */
static int door_leave(struct door *door)
{
    struct inbound *inbound = door->inbound;
    int fd = door->fd;
    worker_unwatch(inbound->worker, fd);
    timer_clear(&inbound->worker->timers, &door->timer);
    timers_release(&inbound->worker->timers);
    if (door->prev != NULL)
        door->prev->next = door->next;
    else
        inbound->at_door = door->next;
    if (door->next != NULL)
        door->next->prev = door->prev;
    worker_retire(inbound->worker, &door->io);
    return fd;
}

static void close_at_door(struct door *door)
{
    uncount(door->inbound);
    close(door_leave(door));
}

static void refuse_at_door(struct door *door, enum reason reason, const char *detail)
{
    struct inbound *inbound = door->inbound;
    uncount(inbound);
    char client[CLIENT_NAME_MAX];
    inbound_name_client(client, (struct sockaddr *)&door->address);
    int fd = door_leave(door);
    inbound_raw_answer(fd, reason, detail);
    report_turned_away(inbound->worker, NULL, client, reason);
    linger_start(inbound, fd);
}

static void hand_over(struct door *door)
{
    struct inbound *inbound = door->inbound;
    struct sockaddr_storage address = door->address;
    socklen_t address_len = door->address_len;
    int fd = door_leave(door);
    inbound->due = true;
    inbound->announced = false;
    if (MHD_add_connection(inbound->daemon, fd, (struct sockaddr *)&address, address_len) != MHD_YES &&
        !inbound->announced)
        uncount(inbound); /* else its close notice did; the descriptor is closed */
}

/* The framing is judged here too: libmicrohttpd 1.0.x would refuse most of what is wrong with it by its own page. */
static void let_in(struct door *door, size_t len)
{
    const char *problem = head_problem(door->inbound->door_bytes, len);
    if (problem == NULL)
        hand_over(door);
    else
        refuse_at_door(door, REASON_MALFORMED_REQUEST, problem);
}

static void look(struct door *door, bool ended)
{
    struct inbound *inbound = door->inbound;
    const struct config *config = config_of(inbound);
    ssize_t got = recv(door->fd, inbound->door_bytes, inbound->door_cap, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        close_at_door(door);
        return;
    }
    struct glance_limits limits = {(size_t)config->headers_max, (size_t)config->headers_max / 2,
                                   inbound->connection_memory};
    switch (head_glance(inbound->door_bytes, (size_t)got, &limits)) {
    case GLANCE_PASS: let_in(door, (size_t)got); return;
    case GLANCE_HEAD_TOO_LARGE: refuse_at_door(door, REASON_HEADERS_TOO_LARGE, NULL); return;
    case GLANCE_TARGET_TOO_LONG: refuse_at_door(door, REASON_TARGET_TOO_LONG, NULL); return;
    case GLANCE_VERSION: refuse_at_door(door, REASON_VERSION_NOT_SUPPORTED, NULL); return;
    case GLANCE_MORE: break;
    }
    if ((size_t)got == inbound->door_cap) { /* limits.headers was raised after the start: let libmicrohttpd judge */
        hand_over(door);
        return;
    }
    if (ended) { /* the client will send no more: it never was a request */
        close_at_door(door);
        return;
    }
    if (!door->begun)
        timer_set(&inbound->worker->timers, &door->timer, inbound->worker->now_ms + config->request_timeout_ms);
    door->begun = true;
}

static void on_door_ready(struct io *io, uint32_t events)
{
    struct door *door = (struct door *)io;
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 && (events & EPOLLIN) == 0)
        close_at_door(door);
    else
        look(door, (events & (EPOLLRDHUP | EPOLLHUP)) != 0);
}

static void on_door_timer(struct timer *timer)
{
    struct door *door = (struct door *)((char *)timer - offsetof(struct door, timer));
    if (door->begun)
        refuse_at_door(door, REASON_REQUEST_TIMEOUT, NULL);
    else
        close_at_door(door);
}

static struct door *door_new(struct inbound *inbound, int fd, const struct sockaddr *address, socklen_t len)
{
    struct worker *worker = inbound->worker;
    struct door *door = calloc(1, sizeof *door);
    if (door == NULL || !timers_promise(&worker->timers)) {
        free(door);
        return NULL;
    }
    door->io.ready = on_door_ready;
    door->timer.fire = on_door_timer;
    door->inbound = inbound;
    door->fd = fd;
    memcpy(&door->address, address, len);
    door->address_len = len;
    /* Edge: the bytes are left where they are, so a level would never fall. */
    if (!worker_watch(worker, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, &door->io)) {
        timers_release(&worker->timers);
        free(door);
        return NULL;
    }
    door->next = inbound->at_door;
    if (door->next != NULL)
        door->next->prev = door;
    inbound->at_door = door;
    timer_set(&worker->timers, &door->timer, worker->now_ms + config_of(inbound)->idle_timeout_ms);
    return door;
}

void inbound_close_door(struct inbound *inbound)
{
    while (inbound->at_door != NULL)
        close_at_door(inbound->at_door);
}

/* ---- accepting ---- */

static void turn_away(struct inbound *inbound, int fd, const struct sockaddr *address)
{
    char client[CLIENT_NAME_MAX];
    inbound_name_client(client, address);
    inbound_raw_answer(fd, REASON_OVERLOADED, "All connections are in use (limits.connections).");
    report_turned_away(inbound->worker, NULL, client, REASON_OVERLOADED);
    linger_start(inbound, fd);
}

static void welcome(struct inbound *inbound, int fd, const struct sockaddr *address, socklen_t len)
{
    unsigned before = atomic_fetch_add_explicit(&inbound->worker->gateway->connections, 1, memory_order_relaxed);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (before >= config_of(inbound)->connections) {
        uncount(inbound);
        turn_away(inbound, fd, address);
    } else if (door_new(inbound, fd, address, len) == NULL) {
        uncount(inbound);
        close(fd);
    }
}

static void pause_accepting(struct inbound *inbound)
{
    worker_unwatch(inbound->worker, inbound->listen_fd);
    timer_set(&inbound->worker->timers, &inbound->accept_pause, inbound->worker->now_ms + ACCEPT_PAUSE_MS);
}

/* Tried ten times a second while it lasts; told once a second, by whichever worker. */
static void tell_accept_trouble(const struct inbound *inbound)
{
    static struct log_rate told;
    int error = errno;
    struct log_line line;
    uint64_t skipped;
    if (!log_rate_pass(&told, inbound->worker->now_ms, 1000, &skipped) || !log_begin(&line, LOG_WARN, "accept"))
        return;
    log_cstring(&line, "message", "new connections can't be taken for the moment");
    log_cstring(&line, "error", strerror(error));
    log_number(&line, "skipped", skipped);
    log_end(&line);
}

void inbound_on_accept_again(struct timer *timer)
{
    struct inbound *inbound = (struct inbound *)((char *)timer - offsetof(struct inbound, accept_pause));
    if (!worker_watch(inbound->worker, inbound->listen_fd, EPOLLIN, &inbound->listen_io))
        timer_set(&inbound->worker->timers, timer, inbound->worker->now_ms + ACCEPT_PAUSE_MS);
}

void inbound_on_listen_ready(struct io *io, uint32_t events)
{
    struct inbound *inbound = (struct inbound *)((char *)io - offsetof(struct inbound, listen_io));
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage address;
        socklen_t len = sizeof address;
        int fd = accept4(inbound->listen_fd, (struct sockaddr *)&address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            welcome(inbound, fd, (struct sockaddr *)&address, len);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            tell_accept_trouble(inbound);
            pause_accepting(inbound); /* the event stays: without a pause the loop would spin on it */
            return;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } /* else the client was gone before we came: next */
    }
}
