/*
 * gateway/inbound_accept.c - accepts connections and takes their places (places.h). Where there is none they get their
 * 503 and are closed: a close without an answer is repeated by SDKs.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "config/config.h"
#include "gateway/inbound_int.h"
#include "gateway/log.h"
#include "gateway/settings.h"

enum { ACCEPTS_PER_TURN = 64, ACCEPT_PAUSE_MS = 100, TOLD_MS = 1000 };

/* Once a second while it lasts, by whichever worker. */
static void tell_full(const struct inbound *inbound, const char *limit)
{
    static struct log_rate told;
    struct log_line line;
    uint64_t skipped;
    if (!log_rate_pass(&told, inbound->worker->now_ms, TOLD_MS, &skipped) ||
        !log_begin(&line, LOG_WARN, "connections-full"))
        return;
    log_cstring(&line, "message", "a new connection was refused: all are in use, none is idle");
    log_cstring(&line, "limit", limit);
    log_number(&line, "skipped", skipped);
    log_end(&line);
}

static void welcome(struct inbound *inbound, int fd, const struct sockaddr *address)
{
    struct worker *worker = inbound->worker;
    const struct config *config = worker->settings->config;
    struct connection *conn = connection_new(inbound, fd, address);
    if (conn == NULL) {
        close(fd);
        return;
    }
    switch (places_take(&worker->gateway->places, &conn->place, &worker->place_caller, address,
                        atomic_load_explicit(&worker->gateway->connections_max, memory_order_relaxed),
                        config->connections_per_address)) {
    case PLACE_TAKEN: return;
    case PLACE_FULL:
        tell_full(inbound, "limits.connections");
        answer_no_request(conn, REASON_OVERLOADED, "All connections are in use (limits.connections).");
        return;
    case PLACE_ADDRESS_FULL:
        tell_full(inbound, "limits.connections_per_address");
        answer_no_request(conn, REASON_OVERLOADED,
                          "All connections of this address are in use (limits.connections_per_address).");
        return;
    case PLACE_NO_MEMORY: answer_no_request(conn, REASON_OVERLOADED, "The gateway is out of memory."); return;
    }
}

/* Without a descriptor left: the spare one answers for it, once. What the client has sent is read, since a close with
 * unread bytes would be a reset that overtakes the answer. False: there was none to answer. */
static bool turn_away(struct inbound *inbound)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    (void)places_call_one(&inbound->worker->gateway->places); /* the next one may find its descriptor */
    if (inbound->spare_fd < 0)
        return false;
    close(inbound->spare_fd);
    int fd = accept4(inbound->listen_fd, (struct sockaddr *)&address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct connection *conn = fd < 0 ? NULL : connection_new(inbound, fd, (struct sockaddr *)&address);
    if (conn != NULL) {
        while (recv(fd, inbound->scratch, sizeof inbound->scratch, 0) == (ssize_t)sizeof inbound->scratch)
            continue;
        answer_no_request(conn, REASON_OVERLOADED, "No file descriptor is left for this connection.");
        connection_end(conn);
    } else if (fd >= 0) {
        close(fd);
    }
    inbound->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd >= 0;
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
    if (!log_rate_pass(&told, inbound->worker->now_ms, TOLD_MS, &skipped) || !log_begin(&line, LOG_WARN, "accept"))
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
            welcome(inbound, fd, (struct sockaddr *)&address);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            bool none_left = errno == EMFILE || errno == ENFILE;
            tell_accept_trouble(inbound);
            if (none_left && turn_away(inbound))
                continue;
            pause_accepting(inbound); /* the event stays: without a pause the loop would spin on it */
            return;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } /* else the client was gone before we came: next */
    }
}
