/*
 * gateway/inbound.c - clients' connections: their beginning, events, time limits and end.
 *
 * What was read is acted on at once. Who has an answer, or more of one, and who has ended, waits in the list `due` for
 * inbound_run(): a request is answered from inside any step of its own, must outlive that step, and has to have kept
 * its books (its place in the limits, counters, the log) before its client hears of it and calls again.
 *
 * Leaves to others: reading (inbound_read.c), answers (inbound_answer.c), bytes out (inbound_send.c).
 */
#include "gateway/inbound.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "config/config.h"
#include "gateway/inbound_int.h"
#include "gateway/request.h"
#include "gateway/settings.h"

enum { LINGER_MS = 3000 };

/* ---- lists and deadlines ---- */

void connection_make_due(struct connection *conn)
{
    if (conn->due)
        return;
    conn->due = true;
    conn->next_due = conn->inbound->due;
    conn->inbound->due = conn;
}

void connection_make_hungry(struct connection *conn)
{
    if (conn->hungry)
        return;
    conn->hungry = true;
    conn->next_hungry = conn->inbound->hungry;
    conn->inbound->hungry = conn;
}

static void sate(struct connection *conn)
{
    if (!conn->hungry)
        return;
    struct connection **at = &conn->inbound->hungry;
    while (*at != conn)
        at = &(*at)->next_hungry;
    *at = conn->next_hungry;
    conn->hungry = false;
}

void connection_set_deadline(struct connection *conn, uint64_t due_ms)
{
    conn->deadline_ms = due_ms;
    if (conn->timer.place == 0 || conn->timer.due_ms > due_ms)
        timer_set(&conn->inbound->worker->timers, &conn->timer, due_ms);
}

/* Its time is over, if it has done nothing that we have not seen: epoll tells of room when a third of the kernel's
 * buffer is empty, and while the process stood still a request may have come. */
static bool still_there(struct connection *conn)
{
    if (conn->step == CONNECTION_IDLE) {
        conn->readable = true;
        connection_read(conn);
        return conn->step != CONNECTION_IDLE;
    }
    if (conn->step != CONNECTION_CALL)
        return false;
    conn->reset = !connection_has_taken(conn); /* nothing of its answer: the end must not look like one */
    if (!conn->reset)
        connection_set_deadline(conn, conn->inbound->worker->now_ms +
                                          conn->inbound->worker->settings->config->idle_timeout_ms);
    return !conn->reset;
}

static void on_timer(struct timer *timer)
{
    struct connection *conn = (struct connection *)((char *)timer - offsetof(struct connection, timer));
    struct worker *worker = conn->inbound->worker;
    if (conn->deadline_ms == 0)
        return;
    if (conn->deadline_ms > worker->now_ms) { /* it was moved since */
        timer_set(&worker->timers, timer, conn->deadline_ms);
        return;
    }
    conn->deadline_ms = 0;
    if (conn->step == CONNECTION_HEAD || conn->step == CONNECTION_BODY)
        connection_cut_short(conn, REASON_REQUEST_TIMEOUT, NULL);
    else if (!still_there(conn))
        connection_end(conn);
}

/* ---- the end ---- */

static void uncount(struct connection *conn)
{
    place_leave(&conn->inbound->worker->gateway->places, &conn->place);
}

void connection_end(struct connection *conn)
{
    if (conn->step == CONNECTION_GONE)
        return;
    if (conn->step == CONNECTION_LINGER)
        conn->inbound->lingering--;
    conn->step = CONNECTION_GONE;
    if (conn->reset) {
        struct linger now = {.l_onoff = 1, .l_linger = 0};
        setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    close(conn->fd); /* epoll forgets it with that */
    timer_clear(&conn->inbound->worker->timers, &conn->timer);
    uncount(conn);
    connection_make_due(conn);
}

static void forget_input(struct connection *conn)
{
    free(conn->in);
    conn->in = NULL;
    conn->in_at = conn->in_len = conn->in_cap = 0;
}

/* Closing with unread input is a reset, which overtakes the answer, and SDKs repeat the call after one (RFC 9112
 * section 9.6): the end is told, the rest read away for a while. */
void connection_linger(struct connection *conn)
{
    struct inbound *inbound = conn->inbound;
    if (conn->step == CONNECTION_GONE)
        return;
    if (conn->step != CONNECTION_LINGER) {
        if (inbound->lingering >= inbound->worker->gateway->shares.lingering) {
            connection_end(conn);
            return;
        }
        inbound->lingering++;
        conn->step = CONNECTION_LINGER;
        forget_input(conn);
        uncount(conn);
        connection_set_deadline(conn, inbound->worker->now_ms + LINGER_MS);
        connection_make_hungry(conn);
    }
    if (!conn->blocked)
        shutdown(conn->fd, SHUT_WR);
}

static void connection_free(struct connection *conn)
{
    struct inbound *inbound = conn->inbound;
    sate(conn);
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        inbound->connections = conn->next;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    forget_input(conn);
    free(conn->out);
    timers_release(&inbound->worker->timers);
    worker_retire(inbound->worker, &conn->io);
}

/* ---- what is due ---- */

static void release_request(struct connection *conn)
{
    struct request *request = conn->request;
    conn->request = NULL;
    if (request != NULL)
        request_client_gone(request);
}

/* All of an answer is with the kernel. */
static void answer_over(struct connection *conn)
{
    struct inbound *inbound = conn->inbound;
    release_request(conn);
    conn->answered = false;
    conn->framing = FRAMING_NONE;
    conn->reason = REASON_NONE;
    if (!conn->keep && (conn->reset || !(conn->readable || conn->unread || conn->in_len > 0))) {
        connection_end(conn);
    } else if (!conn->keep) {
        connection_linger(conn);
    } else {
        conn->step = CONNECTION_IDLE;
        place_idle(&inbound->worker->gateway->places, &conn->place);
        connection_set_deadline(conn, inbound->worker->now_ms + inbound->worker->settings->config->idle_timeout_ms);
        if (conn->readable || conn->in_len > 0)
            connection_make_hungry(conn);
    }
}

bool inbound_run(struct inbound *inbound)
{
    bool any = inbound->due != NULL;
    struct connection *conn;
    while ((conn = inbound->due) != NULL) {
        inbound->due = conn->next_due;
        conn->due = false;
        if (conn->step == CONNECTION_GONE) {
            release_request(conn);
            connection_free(conn);
        } else if (conn->answered) {
            answer_over(conn); /* may make it due again */
        } else if (conn->step == CONNECTION_CALL && conn->request->answer_begun) {
            answer_tell(conn); /* so may this */
        }
    }
    return any;
}

bool inbound_is_hungry(const struct inbound *inbound)
{
    return inbound->hungry != NULL;
}

void inbound_feed(struct inbound *inbound)
{
    struct connection *list = inbound->hungry;
    inbound->hungry = NULL;
    for (struct connection *conn = list; conn != NULL; conn = conn->next_hungry)
        conn->hungry = false;
    for (struct connection *next; list != NULL; list = next) {
        next = list->next_hungry;
        connection_read(list);
    }
}

/* ---- events ---- */

static void on_ready(struct io *io, uint32_t events)
{
    struct connection *conn = (struct connection *)io;
    if (conn->step == CONNECTION_GONE)
        return;
    /* A hang-up without an error: we have said our end, and the client has sent its own. Its input is read away first,
     * since a close with unread bytes is a reset, and the answer may still be on its way. */
    bool over = conn->step == CONNECTION_LINGER ? (events & EPOLLERR) != 0 : (events & (EPOLLERR | EPOLLHUP)) != 0;
    if (over) { /* nobody is there to answer to */
        connection_end(conn);
        return;
    }
    conn->readable = conn->readable || (events & (EPOLLIN | EPOLLRDHUP)) != 0;
    conn->ended = conn->ended || (events & EPOLLRDHUP) != 0;
    if ((events & EPOLLOUT) != 0 && conn->blocked) {
        conn->blocked = false;
        if (conn->step == CONNECTION_CALL)
            conn->deadline_ms = 0;
        answer_go_on(conn);
    }
    if (conn->readable)
        connection_read(conn);
}

/* Its place is another's by now. A request that has come whole is served all the same: closing would lose it. So is one
 * whose body is still coming, if it is of a known key with a good token. */
static void make_room(struct connection *conn)
{
    conn->readable = true;
    connection_read(conn);
    if (conn->step == CONNECTION_IDLE)
        connection_end(conn);
    else if (conn->step == CONNECTION_BODY && connection_keeps_body(conn))
        return;
    else if (conn->step == CONNECTION_HEAD || conn->step == CONNECTION_BODY)
        connection_cut_short(conn, REASON_OVERLOADED,
                             "The connection's place was needed before its request had come (limits.connections).");
}

void inbound_on_called(struct inbox_item *item)
{
    struct worker *worker = (struct worker *)((char *)item - offsetof(struct worker, place_caller.item));
    struct client_place *place;
    while ((place = places_next_called(&worker->gateway->places, &worker->place_caller)) != NULL)
        make_room((struct connection *)((char *)place - offsetof(struct connection, place)));
}

/* ---- the beginning ---- */

static void name_client(char out[CLIENT_NAME_MAX], const struct sockaddr *address)
{
    char text[INET6_ADDRSTRLEN] = "?";
    out[0] = '\0';
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        snprintf(out, CLIENT_NAME_MAX, "%s:%u", text, ntohs(in->sin_port));
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
        snprintf(out, CLIENT_NAME_MAX, "[%s]:%u", text, ntohs(in6->sin6_port));
    }
}

struct connection *connection_new(struct inbound *inbound, int fd, const struct sockaddr *address)
{
    struct worker *worker = inbound->worker;
    struct connection *conn = calloc(1, sizeof *conn);
    if (conn == NULL || !timers_promise(&worker->timers)) {
        free(conn);
        return NULL;
    }
    conn->io.ready = on_ready;
    conn->timer.fire = on_timer;
    conn->inbound = inbound;
    conn->fd = fd;
    name_client(conn->client, address);
    if (!worker_watch(worker, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, &conn->io)) {
        timers_release(&worker->timers);
        free(conn);
        return NULL;
    }
    conn->next = inbound->connections;
    if (conn->next != NULL)
        conn->next->prev = conn;
    inbound->connections = conn;
    connection_set_deadline(conn, worker->now_ms + worker->settings->config->idle_timeout_ms);
    return conn;
}

struct inbound *inbound_new(struct worker *worker, int fd)
{
    struct inbound *inbound = calloc(1, sizeof *inbound);
    char *head = malloc(HEAD_ROOM);
    if (inbound == NULL || head == NULL || !timers_promise(&worker->timers)) {
        free(inbound);
        free(head);
        return NULL;
    }
    inbound->head = head;
    inbound->head_cap = HEAD_ROOM;
    inbound->worker = worker;
    inbound->listen_fd = fd;
    inbound->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    inbound->listen_io.ready = inbound_on_listen_ready;
    inbound->accept_pause.fire = inbound_on_accept_again;
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* each connection inherits it */
    if (!worker_watch(worker, fd, EPOLLIN, &inbound->listen_io))
        inbound_free(&inbound);
    return inbound;
}

void inbound_free(struct inbound **inbound)
{
    struct inbound *gone = *inbound;
    *inbound = NULL;
    if (gone == NULL)
        return;
    for (struct connection *conn = gone->connections; conn != NULL; conn = conn->next)
        connection_end(conn);
    inbound_run(gone);
    jsonout_free(&gone->body);
    free(gone->head);
    if (gone->spare_fd >= 0)
        close(gone->spare_fd);
    timer_clear(&gone->worker->timers, &gone->accept_pause);
    timers_release(&gone->worker->timers);
    free(gone);
}
