/*
 * gateway/upstream_socket.c - libcurl's sockets in the worker's epoll set, and whether one may be spoken on.
 *
 * libcurl takes its socket off the poll set after each call and puts it back for the next. That would cost two system
 * calls a request, so the registration outlives the call: a socket stays in the epoll set until it is closed, or until
 * something comes while it idles (its partner closed it: libcurl will find out when it takes it up again).
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/config.h"
#include "gateway/address_rule.h"
#include "gateway/upstream_int.h"

struct socket_io {
    struct io io; /* first: worker_retire() frees by it */
    struct upstream *upstream;
    curl_socket_t fd;
    uint32_t events;         /* registered for; 0: not registered */
    bool wanted;             /* by libcurl, now */
    bool spoken;             /* a call began on it: its close will be told. Other sockets vanish without a word */
    uint16_t port;           /* local; 0: not yet asked for */
    struct socket_io **list; /* the list it is in: upstream's newborn, or a chain of by_port; NULL: none */
    struct socket_io *next;
};

static void enlist(struct socket_io **list, struct socket_io *socket_io)
{
    socket_io->list = list;
    socket_io->next = *list;
    *list = socket_io;
}

static void delist(struct socket_io *socket_io)
{
    struct socket_io **link = socket_io->list;
    if (link == NULL)
        return;
    while (*link != socket_io)
        link = &(*link)->next;
    *link = socket_io->next;
    socket_io->list = NULL;
}

static uint16_t local_port(curl_socket_t fd)
{
    struct sockaddr_storage storage;
    socklen_t len = sizeof storage;
    if (getsockname(fd, (struct sockaddr *)&storage, &len) != 0)
        return 0;
    return storage.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&storage)->sin6_port)
                                         : ntohs(((struct sockaddr_in *)&storage)->sin_port);
}

static struct socket_io **chain_of(struct upstream *upstream, unsigned port)
{
    return &upstream->by_port[port % PORT_CHAINS];
}

/* A socket has its port from connect() on, which is after it was opened and before a call begins. */
static void chain_newborn(struct upstream *upstream)
{
    struct socket_io *next;
    for (struct socket_io *socket_io = upstream->newborn; socket_io != NULL; socket_io = next) {
        next = socket_io->next;
        socket_io->port = local_port(socket_io->fd);
        if (socket_io->port == 0)
            continue;
        delist(socket_io);
        enlist(chain_of(upstream, socket_io->port), socket_io);
    }
}

static void unregister(struct socket_io *socket_io)
{
    if (socket_io->events != 0)
        worker_unwatch(socket_io->upstream->worker, socket_io->fd);
    socket_io->events = 0;
}

static void on_socket_ready(struct io *io, uint32_t events)
{
    struct socket_io *socket_io = (struct socket_io *)io;
    struct upstream *upstream = socket_io->upstream;
    int mask = ((events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP)) != 0 ? CURL_CSELECT_IN : 0) |
               ((events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) | ((events & EPOLLERR) != 0 ? CURL_CSELECT_ERR : 0);
    if (!socket_io->wanted) {
        unregister(socket_io);
        return;
    }
    upstream->activity = true;
    upstream_step(upstream, socket_io->fd, mask); /* may free socket_io */
}

static struct socket_io *socket_of(struct upstream *upstream, curl_socket_t fd)
{
    size_t place = (size_t)fd;
    if (place >= upstream->socket_cap) {
        size_t cap = place * 2 + 64;
        struct socket_io **bigger = realloc(upstream->sockets, cap * sizeof(struct socket_io *));
        if (bigger == NULL)
            return NULL;
        memset(bigger + upstream->socket_cap, 0, (cap - upstream->socket_cap) * sizeof(struct socket_io *));
        upstream->sockets = bigger;
        upstream->socket_cap = cap;
    }
    struct socket_io *socket_io = upstream->sockets[place];
    if (socket_io == NULL) {
        socket_io = upstream->sockets[place] = calloc(1, sizeof *socket_io);
        if (socket_io == NULL)
            return NULL;
        *socket_io = (struct socket_io){.io.ready = on_socket_ready, .upstream = upstream, .fd = fd};
    }
    return socket_io;
}

static void forget_socket(struct upstream *upstream, curl_socket_t fd)
{
    size_t place = (size_t)fd;
    if (place >= upstream->socket_cap || upstream->sockets[place] == NULL)
        return;
    unregister(upstream->sockets[place]);
    delist(upstream->sockets[place]);
    worker_retire(upstream->worker, &upstream->sockets[place]->io);
    upstream->sockets[place] = NULL;
}

int upstream_on_socket_change(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    (void)easy, (void)socket_arg;
    struct upstream *upstream = arg;
    struct socket_io *socket_io = socket_of(upstream, fd);
    if (socket_io == NULL)
        return -1; /* libcurl fails the transfer */
    socket_io->wanted = what != CURL_POLL_REMOVE;
    if (!socket_io->wanted) {
        if (!socket_io->spoken)
            forget_socket(upstream, fd);
        return 0;
    }
    uint32_t events =
        (what == CURL_POLL_OUT ? 0u : (uint32_t)EPOLLIN) | (what == CURL_POLL_IN ? 0u : (uint32_t)EPOLLOUT);
    if (events == socket_io->events)
        return 0;
    if (socket_io->events != 0)
        worker_rewatch(upstream->worker, fd, events, &socket_io->io);
    else if (!worker_watch(upstream->worker, fd, events, &socket_io->io))
        return -1;
    socket_io->events = events;
    return 0;
}

/* May the call go there? Of a webhook's target every address passes here, however it was written or resolved. */
static bool may_open(struct call *call, const struct curl_sockaddr *address)
{
    const struct config_route *route = call->route;
    if (route->kind != ROUTE_WEBHOOK || route->webhook.allow_private ||
        address_is_public(&address->addr, address->addrlen)) {
        call->allowed++;
        return !call->look;
    }
    call->refused++;
    if (!call->again) {
        call->next_again = call->upstream->again;
        call->upstream->again = call;
    }
    call->again = true;
    return false;
}

curl_socket_t upstream_on_socket_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct call *call = arg;
    struct upstream *upstream = call->upstream;
    (void)purpose;
    if (!may_open(call, address))
        return CURL_SOCKET_BAD; /* libcurl goes on with the next address */
    curl_socket_t fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    forget_socket(upstream, fd); /* of an earlier socket with this number */
    struct socket_io *socket_io = socket_of(upstream, fd);
    if (socket_io == NULL) {
        close(fd);
        return CURL_SOCKET_BAD;
    }
    enlist(&upstream->newborn, socket_io);
    return fd;
}

/* Before the close, and so before the number can come back as another socket. */
int upstream_on_socket_close(void *arg, curl_socket_t fd)
{
    forget_socket(arg, fd);
    return close(fd);
}

bool upstream_port_is_silent(struct upstream *upstream, int port, bool may_have_bytes)
{
    chain_newborn(upstream);
    struct socket_io *socket_io = *chain_of(upstream, (unsigned)port);
    for (; socket_io != NULL; socket_io = socket_io->next) {
        char byte;
        if (socket_io->port != port)
            continue;
        socket_io->spoken = true;
        if (!may_have_bytes &&
            (recv(socket_io->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR)))
            return false;
    }
    return true;
}

void upstream_forget_sockets(struct upstream *upstream)
{
    for (size_t fd = 0; fd < upstream->socket_cap; fd++)
        forget_socket(upstream, (curl_socket_t)fd);
    free(upstream->sockets);
}
