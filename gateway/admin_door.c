/*
 * gateway/admin_door.c - see admin_door.h. What makes a head a bad one is head.c's, the words of a problem are
 * admin_calls.c's.
 */
#include "gateway/admin_door.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gateway/admin_head.h"
#include "gateway/headers.h"
#include "gateway/jsonout.h"
#include "gateway/log.h"
#include "gateway/timers.h"

enum {
    EVENTS_A_TURN = 64,
    ACCEPTS_A_TURN = 64,
    ACCEPT_PAUSE_MS = 100, /* out of descriptors */
    CROWD_MS = 1000,
    CROWD_PAUSE_MS = 5,
    LINGER_MS = 3000, /* after a refusal: for the client to read it */
    LINGER_READS = 64,
    TOLD_MS = 1000,
};

struct doors_list {
    struct door *first, *last; /* the first has stood there longest */
};

struct door {
    struct doors_list *list;
    struct door *next, *prev;
    int fd;
    uint64_t end_ms;
    bool begun;   /* bytes have come */
    bool leaving; /* it has its refusal; what still comes is thrown away */
    struct sockaddr_storage address;
    socklen_t address_len;
};

struct admin_doors {
    struct admin_door_options options;
    int epoll_fd;
    struct doors_list waiting_list, leaving_list;
    unsigned waiting, leaving;
    uint64_t accept_again_ms; /* 0: accepting */
    uint64_t full_since_ms;   /* 0: there is a place */
    struct log_rate told;
    char *bytes; /* of the head under the eye; one more than the largest */
    struct header_field fields[HEAD_FIELDS_MAX];
};

static bool watch_listener(const struct admin_doors *doors)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    return epoll_ctl(doors->epoll_fd, EPOLL_CTL_ADD, doors->options.listen_fd, &event) == 0;
}

struct admin_doors *admin_doors_new(const struct admin_door_options *options)
{
    struct admin_doors *doors = calloc(1, sizeof *doors);
    if (doors == NULL) {
        return NULL;
    }
    doors->options = *options;
    doors->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    doors->bytes = malloc(options->head.head + 1);
    if (doors->epoll_fd < 0 || doors->bytes == NULL || !watch_listener(doors)) {
        admin_doors_free(&doors);
    }
    return doors;
}

static void enlist(struct doors_list *list, struct door *door)
{
    door->list = list;
    door->next = NULL;
    door->prev = list->last;
    *(list->last != NULL ? &list->last->next : &list->first) = door;
    list->last = door;
}

static void delist(struct door *door)
{
    *(door->prev != NULL ? &door->prev->next : &door->list->first) = door->next;
    *(door->next != NULL ? &door->next->prev : &door->list->last) = door->prev;
}

/* Takes it off its list and frees it; the descriptor is the caller's. */
static int leave(struct admin_doors *doors, struct door *door)
{
    int fd = door->fd;
    delist(door);
    if (door->leaving) {
        doors->leaving--;
    } else {
        doors->waiting--;
    }
    epoll_ctl(doors->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    free(door);
    return fd;
}

static void close_door(struct admin_doors *doors, struct door *door)
{
    close(leave(doors, door));
}

void admin_doors_free(struct admin_doors **doors)
{
    struct admin_doors *freed = *doors;
    *doors = NULL;
    if (freed == NULL) {
        return;
    }
    while (freed->waiting_list.first != NULL) {
        close_door(freed, freed->waiting_list.first);
    }
    while (freed->leaving_list.first != NULL) {
        close_door(freed, freed->leaving_list.first);
    }
    if (freed->epoll_fd >= 0) {
        close(freed->epoll_fd);
    }
    free(freed->bytes);
    free(freed);
}

int admin_doors_fd(const struct admin_doors *doors)
{
    return doors->epoll_fd;
}

void admin_raw_problem(int fd, enum admin_problem kind, const char *detail, const char *hint)
{
    struct admin_answer answer = {.hint = hint};
    char head[512];
    admin_problem(&answer, kind, detail);
    if (!answer.body.failed) {
        int len =
            snprintf(head, sizeof head,
                     "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                     "X-Content-Type-Options: nosniff\r\nFencegate-Effect: not-sent\r\n%sConnection: close\r\n\r\n",
                     answer.status, admin_problem_title(kind), answer.content_type, answer.body.len,
                     answer.retry_after != 0 ? "Retry-After: 1\r\n" : "");
        struct iovec parts[2] = {{head, (size_t)len}, {answer.body.text, answer.body.len}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)sent; /* a fresh socket's buffer takes it; else there is nobody to read it */
    }
    jsonout_free(&answer.body);
    shutdown(fd, SHUT_WR);
}

/* Closing at once would reset the connection if the client still sends, and the refusal would be lost. */
static void refuse(struct admin_doors *doors, struct door *door, enum admin_problem kind, const char *detail)
{
    admin_raw_problem(door->fd, kind, detail, doors->options.hint);
    if (doors->leaving > doors->options.connections_max / 2) {
        close_door(doors, door);
        return;
    }
    delist(door);
    enlist(&doors->leaving_list, door);
    door->leaving = true;
    door->end_ms = monotonic_ms() + LINGER_MS;
    doors->waiting--;
    doors->leaving++;
}

static void read_away(struct admin_doors *doors, struct door *door)
{
    char sink[4096];
    for (int i = 0; i < LINGER_READS; i++) {
        ssize_t got = recv(door->fd, sink, sizeof sink, MSG_DONTWAIT);
        if (got > 0 || (got < 0 && errno == EINTR)) {
            continue;
        }
        if (got == 0 || errno != EAGAIN) {
            close_door(doors, door);
        }
        return;
    }
    close_door(doors, door); /* it sends without end and does not listen */
}

static void hand_over(struct admin_doors *doors, struct door *door)
{
    struct sockaddr_storage address = door->address;
    socklen_t len = door->address_len;
    int fd = leave(doors, door);
    doors->options.hand_over(doors->options.arg, fd, (struct sockaddr *)&address, len);
}

static void tell_full(struct admin_doors *doors)
{
    struct log_line line;
    uint64_t skipped;
    if (!log_rate_pass(&doors->told, monotonic_ms(), TOLD_MS, &skipped) || !log_begin(&line, LOG_WARN, "admin-full")) {
        return;
    }
    log_number(&line, "connections", doors->options.connections_max);
    log_number(&line, "skipped", skipped);
    log_end(&line);
}

static void refuse_for_room(struct admin_doors *doors, struct door *door)
{
    tell_full(doors);
    refuse(doors, door, ADMIN_FULL, "All connections of the admin listener are in use.");
}

static bool same(const struct slice *text, const char *wanted)
{
    return text->len == strlen(wanted) && memcmp(text->data, wanted, text->len) == 0;
}

static bool is_probe(const struct head *head, const struct screened *screened)
{
    bool reads = same(&head->method, "GET") || same(&head->method, "HEAD");
    bool named = same(&head->target, "/healthz") || same(&head->target, "/readyz");
    return reads && named && !screened->chunked && (!screened->has_length || screened->length == 0);
}

/* A head that can be read: its framing, and whether libmicrohttpd has room for it. */
static void judge(struct admin_doors *doors, struct door *door, const struct head *head)
{
    struct screened screened;
    unsigned room = doors->options.connections_max - doors->options.for_probes;
    headers_frame(head->fields, head->count, head->http10, &screened);
    if (head->size + head->count * ADMIN_FIELD_COST > doors->options.head_memory) {
        refuse(doors, door, ADMIN_HEAD_TOO_LARGE, "A head may have 16 KiB here.");
    } else if (screened.problem != NULL) {
        refuse(doors, door, ADMIN_MALFORMED, screened.problem);
    } else if (doors->options.served(doors->options.arg) >= room && !is_probe(head, &screened)) {
        refuse_for_room(doors, door);
    } else {
        hand_over(doors, door);
    }
}

static void look(struct admin_doors *doors, struct door *door, bool ended)
{
    size_t cap = doors->options.head.head + 1;
    ssize_t got = recv(door->fd, doors->bytes, cap, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got <= 0) {
        close_door(doors, door);
        return;
    }
    struct head head = {.fields = doors->fields};
    struct head_progress progress = {0, 0}; /* the bytes are left where they are: each look is the first */
    switch (head_read(&progress, doors->bytes, (size_t)got, &doors->options.head, &head)) {
    case HEAD_WHOLE: judge(doors, door, &head); return;
    case HEAD_BROKEN: refuse(doors, door, ADMIN_MALFORMED, head.problem); return;
    case HEAD_TOO_LARGE: refuse(doors, door, ADMIN_HEAD_TOO_LARGE, "A head may have 16 KiB here."); return;
    case HEAD_TARGET_TOO_LONG: refuse(doors, door, ADMIN_TARGET_TOO_LONG, "A target may have 16 KiB here."); return;
    case HEAD_FOREIGN_VERSION: refuse(doors, door, ADMIN_VERSION, "HTTP/1.1 and HTTP/1.0 are spoken here."); return;
    case HEAD_MORE: break;
    }
    if (ended) {
        refuse(doors, door, ADMIN_MALFORMED, "The request ends inside its head.");
        return;
    }
    if (!door->begun) {
        door->end_ms = monotonic_ms() + doors->options.patience_ms;
    }
    door->begun = true;
}

static void on_event(struct admin_doors *doors, struct door *door, uint32_t events)
{
    bool ended = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (door->leaving) {
        read_away(doors, door);
    } else if (ended && (events & EPOLLIN) == 0) {
        close_door(doors, door);
    } else {
        look(doors, door, ended);
    }
}

/* ---- accepting ---- */

/* The one that has stood here longest goes: on, if its head has come by now, else away. False: there is none. */
static bool make_room(struct admin_doors *doors)
{
    struct door *oldest = doors->waiting_list.first;
    if (oldest == NULL) {
        return false;
    }
    unsigned before = doors->waiting;
    look(doors, oldest, false); /* its head may have come by now */
    oldest = doors->waiting_list.first;
    if (doors->waiting < before || oldest == NULL) {
        return true;
    }
    if (oldest->begun) {
        refuse_for_room(doors, oldest);
    } else {
        close_door(doors, oldest);
    }
    return true;
}

static bool is_full(const struct admin_doors *doors)
{
    return doors->waiting + doors->options.served(doors->options.arg) >= doors->options.connections_max;
}

static void welcome(struct admin_doors *doors, int fd, const struct sockaddr_storage *address, socklen_t len)
{
    struct door *door = calloc(1, sizeof *door);
    /* Edge: the bytes are left where they are, so a level would never fall. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = door};
    if (door == NULL || epoll_ctl(doors->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(door);
        close(fd);
        return;
    }
    door->fd = fd;
    door->end_ms = monotonic_ms() + doors->options.patience_ms;
    door->address = *address;
    door->address_len = len;
    bool full = is_full(doors);
    enlist(&doors->waiting_list, door);
    doors->waiting++;
    if (full) {
        refuse_for_room(doors, door);
    }
}

/* The event stays: without a pause the loop would spin on it. */
static void pause_accepting(struct admin_doors *doors, uint64_t ms)
{
    epoll_ctl(doors->epoll_fd, EPOLL_CTL_DEL, doors->options.listen_fd, NULL);
    doors->accept_again_ms = monotonic_ms() + ms;
}

/* All places are the library's: a crowd of probes has its answers in a moment, so the next ones wait in the backlog.
 * Who waits for longer is refused. */
static bool is_crowded(struct admin_doors *doors)
{
    while (is_full(doors) && make_room(doors)) /* the oldest may only have moved on to the library */
        ;
    uint64_t now = monotonic_ms();
    if (!is_full(doors)) {
        doors->full_since_ms = 0;
    } else if (doors->full_since_ms == 0) {
        doors->full_since_ms = now;
    }
    return doors->full_since_ms != 0 && now - doors->full_since_ms < CROWD_MS;
}

static void accept_some(struct admin_doors *doors)
{
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        if (is_crowded(doors)) {
            pause_accepting(doors, CROWD_PAUSE_MS);
            return;
        }
        struct sockaddr_storage address;
        socklen_t len = sizeof address;
        int fd = accept4(doors->options.listen_fd, (struct sockaddr *)&address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            welcome(doors, fd, &address, len);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_accepting(doors, ACCEPT_PAUSE_MS);
            return;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } /* else the client was gone before we came: next */
    }
}

/* What is due, and how long until the next. */
static int keep_time(struct admin_doors *doors)
{
    uint64_t now = monotonic_ms(), next = UINT64_MAX;
    if (doors->accept_again_ms != 0 && now >= doors->accept_again_ms) {
        doors->accept_again_ms = watch_listener(doors) ? 0 : now + ACCEPT_PAUSE_MS;
    }
    if (doors->accept_again_ms != 0) {
        next = doors->accept_again_ms;
    }
    struct door *after;
    for (struct door *door = doors->waiting_list.first; door != NULL; door = after) {
        after = door->next;
        if (now < door->end_ms) {
            next = door->end_ms < next ? door->end_ms : next;
        } else if (!door->begun) {
            close_door(doors, door);
        } else {
            refuse(doors, door, ADMIN_TIMEOUT, "The request did not arrive in time.");
        }
    }
    for (struct door *door = doors->leaving_list.first; door != NULL; door = after) {
        after = door->next;
        if (now < door->end_ms) {
            next = door->end_ms < next ? door->end_ms : next;
        } else {
            close_door(doors, door);
        }
    }
    return next == UINT64_MAX ? -1 : (int)(next - now);
}

int admin_doors_run(struct admin_doors *doors)
{
    struct epoll_event events[EVENTS_A_TURN];
    int count = epoll_wait(doors->epoll_fd, events, EVENTS_A_TURN, 0);
    bool knocked = false;
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == NULL) {
            knocked = true;
        } else {
            on_event(doors, events[i].data.ptr, events[i].events);
        }
    }
    if (knocked) { /* after the others: it may close some that they name */
        accept_some(doors);
    }
    return keep_time(doors);
}
