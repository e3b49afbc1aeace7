/*
 * gateway/upstream_socket.c - libcurl's sockets in the worker's epoll set, while it connects.
 */
#include <errno.h>
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
    uint32_t events; /* registered for; 0: not registered */
};

static void on_socket_ready(struct io *io, uint32_t events)
{
    struct socket_io *socket_io = (struct socket_io *)io;
    struct upstream *upstream = socket_io->upstream;
    int mask = ((events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP)) != 0 ? CURL_CSELECT_IN : 0) |
               ((events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) | ((events & EPOLLERR) != 0 ? CURL_CSELECT_ERR : 0);
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
    struct socket_io *socket_io = upstream->sockets[place];
    if (socket_io->events != 0)
        worker_unwatch(upstream->worker, fd);
    worker_retire(upstream->worker, &socket_io->io);
    upstream->sockets[place] = NULL;
}

int upstream_on_socket_change(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    (void)socket_arg;
    struct upstream *upstream = arg;
    if (what == CURL_POLL_REMOVE) {
        struct link *link = NULL;
        forget_socket(upstream, fd);
        if (upstream->stepping && curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&link) == CURLE_OK && link != NULL)
            list_add(&upstream->again, &link->again); /* this address may have failed: there may be another */
        return 0;
    }
    struct socket_io *socket_io = socket_of(upstream, fd);
    if (socket_io == NULL)
        return -1; /* libcurl fails the transfer */
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

/* May the link go there? Of a webhook's target every address passes here, however it was written or resolved. */
static bool may_open(struct link *link, const struct curl_sockaddr *address)
{
    const struct config_route *route = link->route;
    if (route->kind != ROUTE_WEBHOOK || route->webhook.allow_private ||
        address_is_public(&address->addr, address->addrlen)) {
        link->allowed++;
        return !link->look;
    }
    link->refused++;
    list_add(&link->upstream->again, &link->again);
    return false;
}

/* libcurl 7.88 closes a socket that did not get connected without a word. If the next address's socket gets its number,
 * libcurl takes it for the one that it asked to have watched, and does not ask again. */
static void inherit(struct upstream *upstream, curl_socket_t fd)
{
    size_t place = (size_t)fd;
    uint32_t events =
        place < upstream->socket_cap && upstream->sockets[place] != NULL ? upstream->sockets[place]->events : 0;
    forget_socket(upstream, fd);
    if (events == 0)
        return;
    struct socket_io *socket_io = socket_of(upstream, fd); /* without: the connect's timer ends it */
    if (socket_io != NULL && worker_watch(upstream->worker, fd, events, &socket_io->io))
        socket_io->events = events;
}

curl_socket_t upstream_on_socket_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    struct link *link = arg;
    if (!may_open(link, address))
        return CURL_SOCKET_BAD; /* libcurl goes on with the next address */
    curl_socket_t fd = socket(address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    inherit(link->upstream, fd);
    return fd;
}

/* Before the close, and so before the number can come back as another socket. */
int upstream_on_socket_close(void *arg, curl_socket_t fd)
{
    forget_socket(arg, fd);
    return close(fd);
}

void upstream_release_socket(struct upstream *upstream, curl_socket_t fd)
{
    forget_socket(upstream, fd);
}

void upstream_forget_sockets(struct upstream *upstream)
{
    for (size_t fd = 0; fd < upstream->socket_cap; fd++)
        forget_socket(upstream, (curl_socket_t)fd);
    free(upstream->sockets);
}
