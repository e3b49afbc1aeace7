/* gateway/inbound_linger.c - see inbound_int.h: closing without a reset (RFC 9112 section 9.6). */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/inbound_int.h"

enum { LINGER_MS = 3000, LINGER_MAX = 1024, LINGER_READS = 64 };

struct farewell {
    struct io io; /* first: worker_retire() frees by it */
    struct timer timer;
    struct inbound *inbound;
    struct farewell *next, *prev;
    int fd;
};

static void linger_end(struct farewell *linger)
{
    struct inbound *inbound = linger->inbound;
    worker_unwatch(inbound->worker, linger->fd);
    close(linger->fd);
    timer_clear(&inbound->worker->timers, &linger->timer);
    timers_release(&inbound->worker->timers);
    if (linger->prev != NULL)
        linger->prev->next = linger->next;
    else
        inbound->lingering = linger->next;
    if (linger->next != NULL)
        linger->next->prev = linger->prev;
    inbound->lingering_count--;
    worker_retire(inbound->worker, &linger->io);
}

static void on_readable(struct io *io, uint32_t events)
{
    struct farewell *linger = (struct farewell *)io;
    char sink[16384];
    (void)events;
    for (int i = 0; i < LINGER_READS; i++) {
        ssize_t got = recv(linger->fd, sink, sizeof sink, MSG_DONTWAIT);
        if (got > 0)
            continue;
        if (got == 0 || (errno != EAGAIN && errno != EINTR))
            linger_end(linger);
        return;
    }
}

static void on_over(struct timer *timer)
{
    linger_end((struct farewell *)((char *)timer - offsetof(struct farewell, timer)));
}

void linger_start(struct inbound *inbound, int fd)
{
    struct worker *worker = inbound->worker;
    struct farewell *linger = inbound->lingering_count < LINGER_MAX ? calloc(1, sizeof *linger) : NULL;
    if (linger == NULL || !timers_promise(&worker->timers)) {
        free(linger);
        close(fd);
        return;
    }
    linger->io.ready = on_readable;
    linger->timer.fire = on_over;
    linger->inbound = inbound;
    linger->fd = fd;
    if (!worker_watch(worker, fd, EPOLLIN | EPOLLRDHUP, &linger->io)) {
        timers_release(&worker->timers);
        free(linger);
        close(fd);
        return;
    }
    linger->next = inbound->lingering;
    if (linger->next != NULL)
        linger->next->prev = linger;
    inbound->lingering = linger;
    inbound->lingering_count++;
    timer_set(&worker->timers, &linger->timer, worker->now_ms + LINGER_MS);
}

void linger_free_all(struct inbound *inbound)
{
    while (inbound->lingering != NULL)
        linger_end(inbound->lingering);
}
