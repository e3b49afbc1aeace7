/*
 * gateway/upstream.c - libcurl in a worker's epoll loop, and the mapping of its results to what may be said of an
 * effect.
 *
 * Easy handles are kept for reuse, set up once for a route; what belongs to a request is set for each call, all of it,
 * every time (a forgotten option of the last call would be a wrong call to a partner).
 *
 * Leaves to others: what a result means for record and answer (request.c), the answer's way to the client (inbound).
 */
#include "gateway/upstream.h"

#include <curl/curl.h>
#include <errno.h>
#include <malloc.h>
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
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/worker.h"

enum {
    IDLE_CONNECTION_S =
        4, /* below the idle limit of the servers in use (Node.js: 5 s), else they close just as we send */
    CONNECTION_LIFETIME_S = 55, /* a changed DNS answer is followed within a minute */
    POOLED_CONNECTIONS = 1024,
    SPARE_HANDLES = 256,
    PORT_CHAINS = 1024,
    READ_BUFFER = 16 * 1024,
};

struct call {
    CURL *easy;
    struct upstream *upstream;
    struct request *request;   /* NULL: spare */
    struct settings *settings; /* reference: the handle is set up for `route` of these */
    const struct config_route *route;
    struct call *next_spare;
    struct call *next_touched; /* got something of an answer in this turn */
    bool touched;
    bool custom;                /* CUSTOMREQUEST is set */
    bool unclean;               /* its connection was not silent before the sending */
    bool fresh;                 /* FRESH_CONNECT is set */
    unsigned sendings;          /* how often libcurl wanted to send: more than one is refused */
    struct curl_slist *headers; /* nodes in the request's arena */
    char error[CURL_ERROR_SIZE];
};

struct upstream {
    struct worker *worker;
    CURLM *multi;
    struct timer timer;
    struct call *spare;
    unsigned spare_count, freed;
    struct call *touched;
    struct socket_io **sockets; /* by descriptor */
    size_t socket_cap;
    struct socket_io *by_port[PORT_CHAINS];
    bool due; /* libcurl wants to be called at once */
    bool activity;
};

bool upstream_global_init(void)
{
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

const char *upstream_library(void)
{
    return curl_version();
}

/* ---- libcurl's sockets and timer ---- */

/* libcurl takes its socket off the poll set after each call and puts it back for the next. That would cost two system
 * calls a request, so the registration outlives the call: a socket stays in the epoll set until it is closed, or until
 * something comes while it idles (its partner closed it: libcurl will find out when it takes it up again). */
struct socket_io {
    struct io io; /* first: worker_retire() frees by it */
    struct upstream *upstream;
    curl_socket_t fd;
    uint32_t events; /* registered for; 0: not registered */
    bool wanted;     /* by libcurl, now */
    bool connection; /* to a partner; else one of libcurl's own (its resolver's), which it closes without a word */
    uint16_t port;   /* local; 0: not yet known, not in a chain */
    struct socket_io *next_of_port;
};

static struct socket_io **chain_of(struct upstream *upstream, unsigned port)
{
    return &upstream->by_port[port % PORT_CHAINS];
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

static void chain(struct upstream *upstream, struct socket_io *socket_io)
{
    socket_io->port = local_port(socket_io->fd);
    if (socket_io->port == 0)
        return;
    struct socket_io **head = chain_of(upstream, socket_io->port);
    socket_io->next_of_port = *head;
    *head = socket_io;
}

static void unchain(struct upstream *upstream, struct socket_io *socket_io)
{
    if (socket_io->port == 0)
        return;
    struct socket_io **link = chain_of(upstream, socket_io->port);
    while (*link != socket_io)
        link = &(*link)->next_of_port;
    *link = socket_io->next_of_port;
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
    int running;
    int mask = ((events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP)) != 0 ? CURL_CSELECT_IN : 0) |
               ((events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) | ((events & EPOLLERR) != 0 ? CURL_CSELECT_ERR : 0);
    if (!socket_io->wanted) {
        unregister(socket_io);
        return;
    }
    upstream->activity = true;
    curl_multi_socket_action(upstream->multi, socket_io->fd, mask, &running); /* may free socket_io */
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
    unchain(upstream, upstream->sockets[place]);
    worker_retire(upstream->worker, &upstream->sockets[place]->io);
    upstream->sockets[place] = NULL;
}

static int on_socket_change(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    (void)easy, (void)socket_arg;
    struct upstream *upstream = arg;
    struct socket_io *socket_io = socket_of(upstream, fd);
    if (socket_io == NULL)
        return -1; /* libcurl fails the transfer */
    socket_io->wanted = what != CURL_POLL_REMOVE;
    if (!socket_io->wanted) {
        if (!socket_io->connection)
            forget_socket(upstream, fd);
        return 0;
    }
    if (socket_io->connection && socket_io->port == 0)
        chain(upstream, socket_io); /* connect() has been called: it has a port */
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

static curl_socket_t on_socket_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    curl_socket_t fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    struct socket_io *socket_io = socket_of(arg, fd);
    if (socket_io == NULL) {
        close(fd);
        return CURL_SOCKET_BAD;
    }
    socket_io->connection = true;
    return fd;
}

/* Before the close, and so before the number can come back as another socket. */
static int on_socket_close(void *arg, curl_socket_t fd)
{
    forget_socket(arg, fd);
    return close(fd);
}

static int on_timer_change(CURLM *multi, long timeout_ms, void *arg)
{
    (void)multi;
    struct upstream *upstream = arg;
    timer_clear(&upstream->worker->timers, &upstream->timer);
    upstream->due = timeout_ms == 0;
    if (timeout_ms > 0)
        timer_set(&upstream->worker->timers, &upstream->timer, upstream->worker->now_ms + (uint64_t)timeout_ms);
    return 0;
}

static void on_timer(struct timer *timer)
{
    struct upstream *upstream = (struct upstream *)((char *)timer - offsetof(struct upstream, timer));
    upstream->due = true;
}

/* ---- what libcurl tells of a call ---- */

/* Something waits on a connection that we have not spoken on yet: a close (libcurl would send into it and then again on
 * another one), or bytes nobody asked for, which libcurl takes for the answer to what it sends next. libcurl does not
 * tell its socket here, only the local port; of several sockets with that port each must be silent. On a fresh TLS
 * connection the peer's session tickets may wait. */
static bool is_silent(struct call *call, int port)
{
    long connects = 0;
    curl_easy_getinfo(call->easy, CURLINFO_NUM_CONNECTS, &connects);
    if (connects > 0 && strncmp(call->route->upstream_origin, "https:", 6) == 0)
        return true;
    struct socket_io *socket_io = *chain_of(call->upstream, (unsigned)port);
    for (; socket_io != NULL; socket_io = socket_io->next_of_port) {
        char byte;
        if (socket_io->port == port && (recv(socket_io->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN))
            return false;
    }
    return true;
}

static int on_before_sending(void *arg, char *peer, char *local, int peer_port, int port)
{
    (void)peer, (void)local, (void)peer_port;
    struct call *call = arg;
    if (call->sendings == 0 && !is_silent(call, port)) {
        call->unclean = true; /* nothing was sent: on_call_done() takes a fresh connection, once */
        return CURL_PREREQFUNC_ABORT;
    }
    if (++call->sendings > 1) /* libcurl's own second try: the partner may have acted on the first */
        return CURL_PREREQFUNC_ABORT;
    return request_last_look(call->request) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

static void touch(struct call *call)
{
    if (call->touched)
        return;
    call->touched = true;
    call->next_touched = call->upstream->touched;
    call->upstream->touched = call;
}

static size_t on_head_line(char *line, size_t size, size_t count, void *arg)
{
    struct call *call = arg;
    struct reply *reply = &call->request->reply;
    if (!reply_head_line(reply, line, size * count))
        return 0; /* libcurl stops with CURLE_WRITE_ERROR */
    if (reply->head_done)
        touch(call);
    return size * count;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct call *call = arg;
    struct request *request = call->request;
    struct reply *reply = &request->reply;
    size_t len = size * count;
    if (request->conn != NULL) {
        if (reply_body_waiting(reply) >= REPLY_BODY_MAX) {
            reply->paused = true;
            return CURL_WRITEFUNC_PAUSE;
        }
        if (!reply_body_add(reply, data, len))
            return 0;
    }
    reply->received += len;
    touch(call);
    return len;
}

/* ---- setting up a handle ---- */

static bool set_fixed(struct call *call)
{
    CURL *easy = call->easy;
    CURLcode bad = CURLE_OK;
#define SET(option, value) (bad = bad != CURLE_OK ? bad : curl_easy_setopt(easy, CURLOPT_##option, value))
    SET(PRIVATE, call);
    SET(ERRORBUFFER, call->error);
    SET(NOSIGNAL, 1L);
    SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(PROTOCOLS_STR, "http,https");
    SET(FOLLOWLOCATION, 0L);
    SET(PROXY, "");
    SET(NETRC, (long)CURL_NETRC_IGNORED);
    SET(PATH_AS_IS, 1L);
    SET(HTTP_CONTENT_DECODING, 0L);
    SET(BUFFERSIZE, (long)READ_BUFFER);
    SET(MAXAGE_CONN, (long)IDLE_CONNECTION_S);
    SET(MAXLIFETIME_CONN, (long)CONNECTION_LIFETIME_S);
    SET(TCP_KEEPALIVE, 1L);
    SET(SSL_VERIFYPEER, 1L);
    SET(SSL_VERIFYHOST, 2L);
    SET(OPENSOCKETFUNCTION, on_socket_open);
    SET(OPENSOCKETDATA, call->upstream);
    SET(CLOSESOCKETFUNCTION, on_socket_close);
    SET(CLOSESOCKETDATA, call->upstream);
    SET(PREREQFUNCTION, on_before_sending);
    SET(PREREQDATA, call);
    SET(HEADERFUNCTION, on_head_line);
    SET(HEADERDATA, call);
    SET(WRITEFUNCTION, on_body);
    SET(WRITEDATA, call);
    const struct config_route *route = call->route;
    SET(URL, route->upstream_origin);
    SET(CONNECTTIMEOUT_MS, (long)route->connect_timeout_ms);
    if (route->tls_ca_file != NULL) {
        SET(CAINFO, route->tls_ca_file);
        SET(CAPATH, NULL);
    }
    if (route->tls_cert_file != NULL) {
        SET(SSLCERT, route->tls_cert_file);
        SET(SSLKEY, route->tls_key_file);
    }
    return bad == CURLE_OK;
}

static struct curl_slist *add_node(struct arena *arena, struct curl_slist **tail, const char *line)
{
    struct curl_slist *node = arena_alloc(arena, sizeof *node);
    if (node == NULL)
        return NULL;
    node->data = (char *)(uintptr_t)line; /* libcurl only reads it */
    node->next = NULL;
    if (*tail != NULL)
        (*tail)->next = node;
    *tail = node;
    return node;
}

/* The request's lines, and for each field that libcurl would make up: not to. */
static bool set_header_list(struct call *call, struct request *request)
{
    const struct forward *forward = &request->forward;
    struct curl_slist *tail = NULL;
    call->headers = add_node(&request->arena, &tail, "Expect:");
    bool ok = call->headers != NULL;
    if (!forward->has_accept)
        ok = ok && add_node(&request->arena, &tail, "Accept:") != NULL;
    if (!forward->has_content_type)
        ok = ok && add_node(&request->arena, &tail, "Content-Type:") != NULL;
    for (size_t i = 0; ok && i < forward->line_count; i++)
        ok = add_node(&request->arena, &tail, forward->lines[i]) != NULL;
    return ok;
}

/* What libcurl sends by itself after HTTPGET, POST or NOBODY. */
static bool own_method(const struct request *request)
{
    if (request->head_method)
        return true;
    bool body = request->has_body_header || request->body_len > 0;
    return strcmp(request->method, body ? "POST" : "GET") == 0;
}

static bool set_call(struct call *call, struct request *request)
{
    CURL *easy = call->easy;
    CURLcode bad = CURLE_OK;
    if (!set_header_list(call, request))
        return false;
    SET(POSTFIELDS, NULL); /* sets the method to POST, NULL or not: before HTTPGET */
    SET(POSTFIELDSIZE_LARGE, (curl_off_t)-1);
    SET(HTTPGET, 1L); /* takes back body and HEAD of the last call */
    if (request->head_method) {
        SET(NOBODY, 1L);
    } else if (request->has_body_header || request->body_len > 0) {
        SET(POST, 1L);
        SET(POSTFIELDSIZE_LARGE, (curl_off_t)request->body_len);
        SET(POSTFIELDS, request->body_len > 0 ? request->body : "");
    }
    const char *custom = own_method(request) ? NULL : request->method;
    if (custom != NULL || call->custom) /* copied by libcurl: not for nothing */
        SET(CUSTOMREQUEST, custom);
    call->custom = custom != NULL;
    SET(REQUEST_TARGET, request->forward.target);
    uint64_t spent = request->worker->now_ms - request->call_started_ms; /* by tries before */
    uint64_t total = call->route->total_timeout_ms;
    SET(TIMEOUT_MS, total > spent ? (long)(total - spent) : 1L);
    if (call->fresh)
        SET(FRESH_CONNECT, 0L);
    call->fresh = false;
    SET(HTTPHEADER, call->headers);
    return bad == CURLE_OK;
#undef SET
}

static void call_free(struct call *call)
{
    if (call->easy != NULL)
        curl_easy_cleanup(call->easy);
    settings_unref(&call->settings);
    free(call);
}

static bool set_up(struct call *call, struct request *request)
{
    if (call->easy == NULL)
        call->easy = curl_easy_init();
    if (call->easy == NULL)
        return false;
    if (call->route != request->route->config) {
        curl_easy_reset(call->easy);
        call->custom = call->fresh = false;
        settings_unref(&call->settings);
        call->settings = settings_ref(request->settings);
        call->route = request->route->config;
        if (!set_fixed(call))
            return false;
    }
    return set_call(call, request);
}

/* The last one put back fits best: one route is the common case. */
static struct call *take_spare(struct upstream *upstream)
{
    struct call *call = upstream->spare;
    if (call == NULL)
        return calloc(1, sizeof *call);
    upstream->spare = call->next_spare;
    upstream->spare_count--;
    return call;
}

static void put_back(struct upstream *upstream, struct call *call)
{
    call->request = NULL;
    call->headers = NULL;
    if (upstream->spare_count >= SPARE_HANDLES) { /* coming down from a spike */
        call_free(call);
        if (++upstream->freed % SPARE_HANDLES == 0)
            malloc_trim(0); /* glibc keeps what lies between live pieces: some 12 KiB a call */
        return;
    }
    call->next_spare = upstream->spare;
    upstream->spare = call;
    upstream->spare_count++;
}

bool upstream_start(struct request *request)
{
    struct upstream *upstream = request->worker->upstream;
    struct call *call = take_spare(upstream);
    if (call == NULL)
        return false;
    call->upstream = upstream;
    call->request = request;
    call->sendings = 0;
    call->unclean = false;
    call->error[0] = '\0';
    reply_free(&request->reply); /* of a try that did not connect */
    request->reply = (struct reply){.head_max = request->reply_head_max};
    if (!set_up(call, request) || curl_multi_add_handle(upstream->multi, call->easy) != CURLM_OK) {
        call_free(call);
        return false;
    }
    request->call = call;
    upstream->activity = true;
    return true;
}

static void untouch(struct upstream *upstream, struct call *call)
{
    if (!call->touched)
        return;
    struct call **link = &upstream->touched;
    while (*link != call)
        link = &(*link)->next_touched;
    *link = call->next_touched;
    call->touched = false;
}

static void detach(struct call *call)
{
    struct upstream *upstream = call->upstream;
    untouch(upstream, call);
    curl_multi_remove_handle(upstream->multi, call->easy);
    call->request->call = NULL;
    put_back(upstream, call);
}

void upstream_cancel(struct request *request)
{
    if (request->call != NULL)
        detach(request->call);
}

void upstream_resume(struct request *request)
{
    if (request->call == NULL || !request->reply.paused)
        return;
    request->reply.paused = false;
    request->call->upstream->activity = true;
    curl_easy_pause(request->call->easy, CURLPAUSE_CONT); /* may call on_body() at once */
}

/* ---- results ---- */

static bool body_is_whole(const struct request *request)
{
    const struct reply *reply = &request->reply;
    return reply->has_length && (reply->received == reply->length || request->head_method);
}

/* What libcurl's result means for the effect. Bytes may have left once a sending was let through; whatever libcurl says
 * then, only a whole final head is an answer. A result that is not 0 beside a status 200 happens (a body cut short). */
static enum call_end judge(const struct call *call, CURLcode result)
{
    const struct request *request = call->request;
    const struct reply *reply = &request->reply;
    if (call->sendings == 0 || request->last_look_failed)
        return result == CURLE_OPERATION_TIMEDOUT && !request->last_look_failed ? CALL_TIMEOUT : CALL_UNREACHABLE;
    if (reply->head_done && !reply->nonsense)
        return result == CURLE_OK || body_is_whole(request) ? CALL_OK : CALL_CUT_SHORT;
    return result == CURLE_OPERATION_TIMEDOUT ? CALL_TIMEOUT : CALL_FAILED;
}

static void describe(const struct call *call, CURLcode result, enum call_end end, char *out, size_t cap)
{
    const struct reply *reply = &call->request->reply;
    out[0] = '\0';
    if (end == CALL_OK)
        return;
    if (call->unclean)
        snprintf(out, cap, "The partner spoke or closed before it was asked; nothing was sent.");
    else if (reply->complaint != NULL)
        snprintf(out, cap, "%s.", reply->complaint);
    else if (call->sendings > 1)
        snprintf(out, cap, "The kept-alive connection was closed before an answer came; the call was not sent again.");
    else if (result == CURLE_OK)
        snprintf(out, cap, "The partner closed the connection without an answer.");
    else
        snprintf(out, cap, "%s.", curl_easy_strerror(result));
}

/* The pooled connection was no good and nothing was sent on it: once more, on a new one. */
static bool start_fresh(struct call *call)
{
    if (!call->unclean || call->fresh)
        return false;
    call->unclean = false;
    call->fresh = true;
    curl_multi_remove_handle(call->upstream->multi, call->easy);
    if (curl_easy_setopt(call->easy, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
        curl_multi_add_handle(call->upstream->multi, call->easy) == CURLM_OK)
        return true;
    return false;
}

static void on_call_done(struct call *call, CURLcode result)
{
    struct request *request = call->request;
    if (start_fresh(call))
        return;
    enum call_end end = judge(call, result);
    char detail[160];
    describe(call, result, end, detail, sizeof detail);
    if (end != CALL_OK && log_enabled(LOG_DEBUG))
        log_message(LOG_DEBUG, "upstream", "%s: libcurl result %d: %s", call->route->name, (int)result, call->error);
    request->reply.ended = true;
    request->reply.cut_short = end == CALL_CUT_SHORT;
    if (end != CALL_OK && end != CALL_CUT_SHORT)
        request->reply.head_done = false; /* not an answer: nothing of it is relayed */
    detach(call);
    request_call_ended(request, end, detail[0] == '\0' ? NULL : detail);
}

static bool take_results(struct upstream *upstream)
{
    bool any = false;
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(upstream->multi, &left)) != NULL) {
        if (message->msg != CURLMSG_DONE)
            continue;
        struct call *call = NULL;
        CURLcode result = message->data.result; /* the message dies with remove_handle */
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        on_call_done(call, result);
        any = true;
    }
    return any;
}

/* After the results: an answer that came whole in this turn has ended by now and goes out in one piece. */
static bool tell_touched(struct upstream *upstream)
{
    bool any = false;
    while (upstream->touched != NULL) {
        struct call *call = upstream->touched;
        upstream->touched = call->next_touched;
        call->touched = false;
        if (call->request->reply.head_done)
            inbound_reply_ready(call->request);
        any = true;
    }
    return any;
}

bool upstream_run(struct upstream *upstream)
{
    int running;
    bool any = upstream->activity;
    upstream->activity = false;
    while (upstream->due) {
        upstream->due = false;
        any = true;
        curl_multi_socket_action(upstream->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    if (any) {
        take_results(upstream);
        tell_touched(upstream);
    }
    return any;
}

struct upstream *upstream_new(struct worker *worker)
{
    struct upstream *upstream = calloc(1, sizeof *upstream);
    if (upstream == NULL)
        return NULL;
    upstream->worker = worker;
    upstream->timer.fire = on_timer;
    upstream->multi = curl_multi_init();
    if (upstream->multi == NULL || !timers_promise(&worker->timers)) {
        if (upstream->multi != NULL)
            curl_multi_cleanup(upstream->multi);
        free(upstream);
        return NULL;
    }
    curl_multi_setopt(upstream->multi, CURLMOPT_SOCKETFUNCTION, on_socket_change);
    curl_multi_setopt(upstream->multi, CURLMOPT_SOCKETDATA, upstream);
    curl_multi_setopt(upstream->multi, CURLMOPT_TIMERFUNCTION, on_timer_change);
    curl_multi_setopt(upstream->multi, CURLMOPT_TIMERDATA, upstream);
    curl_multi_setopt(upstream->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(upstream->multi, CURLMOPT_MAXCONNECTS, (long)POOLED_CONNECTIONS);
    return upstream;
}

void upstream_free(struct upstream **upstream)
{
    struct upstream *gone = *upstream;
    *upstream = NULL;
    if (gone == NULL)
        return;
    while (gone->spare != NULL) {
        struct call *next = gone->spare->next_spare;
        call_free(gone->spare);
        gone->spare = next;
    }
    curl_multi_cleanup(gone->multi); /* closes pooled sockets: on_socket_close() still runs */
    for (size_t fd = 0; fd < gone->socket_cap; fd++)
        forget_socket(gone, (curl_socket_t)fd);
    free(gone->sockets);
    timer_clear(&gone->worker->timers, &gone->timer);
    timers_release(&gone->worker->timers);
    free(gone);
}
