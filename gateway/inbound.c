/*
 * gateway/inbound.c - accepts clients, screens and collects requests, and sees to their time limits.
 *
 * The handler is called by libmicrohttpd: once with the head (a refusal queued there makes it drop the rest of the
 * input and close: right for broken framing and for large bodies), then with pieces of the body, then once more with
 * all read; and again each time after a suspended connection was resumed.
 *
 * Leaves to others: the judgement (admission.c), what happens to a whole request (request.c), responses
 * (inbound_answer.c).
 */
#include "gateway/inbound.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <linux/tcp.h> /* netinet/tcp.h has no tcpi_bytes_received */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/config.h"
#include "gateway/head.h"
#include "gateway/headers.h"
#include "gateway/inbound_int.h"
#include "gateway/log.h"
#include "gateway/mail_request.h"
#include "gateway/report.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/webhook.h"

enum {
    FIRST_LOOK_MS = 1000,   /* after an answer, at whether a request line has begun */
    EARLY_BODY = 64 * 1024, /* an announced body above this is not read when the head settles a refusal */
    HEAD_SPARE = 4 * 1024,  /* of a connection's memory above limits.headers; all of it is cleared for each request */
};

const char *inbound_library(void)
{
    return MHD_get_version();
}

/* ---- connections ---- */

static uint64_t bytes_received(int fd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
        return 0;
    return info.tcpi_bytes_received;
}

static void watch_idle(struct connection *conn)
{
    conn->looked = conn->partial = false;
    timer_set(&conn->inbound->worker->timers, &conn->timer, conn->inbound->worker->now_ms + FIRST_LOOK_MS);
}

/* libmicrohttpd notices and closes. What was begun was never accepted. */
static void close_for_time(struct connection *conn)
{
    inbound_raw_answer(conn->fd, REASON_REQUEST_TIMEOUT, NULL);
    report_turned_away(conn->inbound->worker, NULL, conn->client, REASON_REQUEST_TIMEOUT);
    shutdown(conn->fd, SHUT_RD);
    conn->inbound->due = true;
}

/* Due: a request took too long to arrive, or nothing has begun for a while. Whether bytes of a request line came in
 * between only the kernel's count tells; it is read here, not for every request: a connection in use never gets here. A
 * line that has begun must be whole within request_timeout, give or take half of it. An idle connection is closed by
 * libmicrohttpd's own inactivity timeout. */
static void on_connection_timer(struct timer *timer)
{
    struct connection *conn = (struct connection *)((char *)timer - offsetof(struct connection, timer));
    struct worker *worker = conn->inbound->worker;
    if (conn->request != NULL || conn->partial) {
        close_for_time(conn);
        return;
    }
    uint64_t bytes = bytes_received(conn->fd);
    conn->partial = conn->looked && bytes > conn->bytes_seen;
    conn->looked = true;
    conn->bytes_seen = bytes;
    timer_set(&worker->timers, timer, worker->now_ms + worker->settings->config->request_timeout_ms / 2 + 1);
}

void inbound_name_client(char out[CLIENT_NAME_MAX], const struct sockaddr *address)
{
    char text[INET6_ADDRSTRLEN] = "?";
    out[0] = '\0';
    if (address != NULL && address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        snprintf(out, CLIENT_NAME_MAX, "%s:%u", text, ntohs(in->sin_port));
    } else if (address != NULL && address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
        snprintf(out, CLIENT_NAME_MAX, "[%s]:%u", text, ntohs(in6->sin6_port));
    }
}

static struct connection *connection_new(struct inbound *inbound, struct MHD_Connection *mhd)
{
    struct connection *conn = calloc(1, sizeof *conn);
    if (conn == NULL || !timers_promise(&inbound->worker->timers)) {
        free(conn);
        return NULL;
    }
    conn->magic = CONNECTION_MAGIC;
    conn->inbound = inbound;
    conn->mhd = mhd;
    conn->timer.fire = on_connection_timer;
    conn->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    inbound_name_client(conn->client, MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
    const struct config *config = inbound->worker->settings->config; /* may have changed since the daemon's start */
    MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)((config->idle_timeout_ms + 999) / 1000));
    watch_idle(conn);
    return conn;
}

static void release_request(struct connection *conn)
{
    struct request *request = conn->request;
    if (request == NULL)
        return;
    conn->request = NULL;
    if (request->response != NULL) {
        MHD_destroy_response(request->response);
        request->response = NULL;
    }
    request_client_gone(request);
}

static void connection_free(struct connection *conn)
{
    struct worker *worker = conn->inbound->worker;
    release_request(conn); /* its handler never ran, so there was no completion notice */
    timer_clear(&worker->timers, &conn->timer);
    timers_release(&worker->timers);
    atomic_fetch_sub_explicit(&worker->gateway->connections, 1, memory_order_relaxed);
    conn->magic = 0;
    free(conn);
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **socket_arg,
                          enum MHD_ConnectionNotificationCode code)
{
    struct inbound *inbound = arg;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        inbound->announced = true;
        *socket_arg = connection_new(inbound, mhd);
        if (*socket_arg == NULL)
            atomic_fetch_sub_explicit(&inbound->worker->gateway->connections, 1, memory_order_relaxed);
    } else if (*socket_arg != NULL) {
        connection_free(*socket_arg);
        *socket_arg = NULL;
    }
}

static struct connection *connection_of(struct MHD_Connection *mhd)
{
    struct connection *conn = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    if (conn != NULL && conn->magic != CONNECTION_MAGIC)
        abort();
    return conn;
}

/* ---- the body ---- */

/* Makes room for `need` bytes within limits.buffered. */
static bool body_room(struct request *request, size_t need)
{
    struct gateway *gateway = request->worker->gateway;
    if (need <= request->body_cap)
        return true;
    size_t cap = request->body_cap * 2;
    if (cap > request->body_announced && need <= request->body_announced)
        cap = request->body_announced;
    if (cap < need)
        cap = need;
    size_t more = cap - request->body_cap;
    uint64_t before = atomic_fetch_add_explicit(&gateway->buffered, more, memory_order_relaxed);
    char *body = before + more > request->settings->config->buffered_max ? NULL : realloc(request->body, cap);
    if (body == NULL) {
        atomic_fetch_sub_explicit(&gateway->buffered, more, memory_order_relaxed);
        return false;
    }
    request->body = body;
    request->body_cap = cap;
    return true;
}

static void refuse_after_body(struct request *request, enum reason reason)
{
    request->refusal = reason;
    request->discard = true;
    request_body_free(request);
}

static enum MHD_Result close_in_body(struct request *request, enum reason reason)
{
    inbound_raw_answer(request->conn->fd, reason, NULL);
    report_turned_away(request->worker, request->route == NULL ? NULL : request->route->config->name,
                       request->conn->client, reason);
    request->conn->linger = true;
    return MHD_NO;
}

static enum MHD_Result take_body(struct request *request, const char *data, size_t *len)
{
    size_t size = *len;
    *len = 0;
    uint64_t limit = request->settings->config->body_max;
    if (request->discard) { /* a refused body is read to its end, but not for ever */
        request->discarded += size;
        uint64_t most = request->body_announced > limit ? EARLY_BODY : limit; /* a length is known to be small */
        return request->discarded > most ? close_in_body(request, REASON_BODY_TOO_LARGE) : MHD_YES;
    }
    if (size > limit - request->body_len)
        return close_in_body(request, REASON_BODY_TOO_LARGE);
    if (!body_room(request, request->body_len + size)) {
        request_tell_limit(request, "limits.buffered");
        refuse_after_body(request, REASON_OVERLOADED);
        return MHD_YES;
    }
    memcpy(request->body + request->body_len, data, size);
    request->body_len += size;
    return MHD_YES;
}

/* ---- the head ---- */

struct field_list {
    struct header_field *fields;
    size_t count, cap;
};

static enum MHD_Result on_field(void *arg, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                const char *value, size_t value_len)
{
    (void)kind;
    struct field_list *list = arg;
    if (list->count == list->cap) {
        list->count++; /* tells that there are too many */
        return MHD_NO;
    }
    while (value_len > 0 && (value[value_len - 1] == ' ' || value[value_len - 1] == '\t'))
        value_len--; /* libmicrohttpd keeps it (RFC 9112 section 5.1: not part of the value) */
    list->fields[list->count++] =
        (struct header_field){name, name_len, value == NULL ? "" : value, value == NULL ? 0 : value_len};
    return MHD_YES;
}

static enum reason copy_head(struct request *request, const char *method, const char *version,
                             const struct screened *screened)
{
    request->method = arena_copy(&request->arena, method, strlen(method));
    request->client = arena_copy(&request->arena, request->conn->client, strlen(request->conn->client));
    if (request->method == NULL || request->client == NULL)
        return REASON_OVERLOADED;
    request->head_method = strcmp(method, "HEAD") == 0;
    request->http10 = strcmp(version, "HTTP/1.0") == 0;
    request->has_body_header = screened->has_length || screened->chunked || strcmp(method, "POST") == 0 ||
                               strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0;
    return REASON_NONE;
}

/* What libmicrohttpd takes of the connection's memory for a Cookie field: a copy, and a piece for each cookie. */
static size_t cookie_cost(const struct header_field *field)
{
    if (!header_is(field, "Cookie"))
        return 0;
    size_t cost = field->value_len + HEAD_FIELD_COST;
    for (size_t i = 0; i < field->value_len; i++)
        cost += field->value[i] == ';' ? HEAD_FIELD_COST : 0;
    return cost;
}

/* Also how large the answer's head may be: it is built in what the request's head leaves of the connection's memory,
 * and one that does not fit would close the connection without a word. */
static enum reason judge_size(struct request *request, const struct field_list *list)
{
    if (request->raw_target_len > request->settings->config->headers_max / 2)
        return REASON_TARGET_TOO_LONG;
    size_t size = MHD_get_connection_info(request->conn->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
    if (list->count > HEAD_FIELDS_MAX || size > request->settings->config->headers_max)
        return REASON_HEADERS_TOO_LARGE;
    size_t used = size + list->count * HEAD_FIELD_COST + REPLY_HEAD_OWN;
    for (size_t i = 0; i < list->count; i++)
        used += cookie_cost(&list->fields[i]);
    size_t memory = request->conn->inbound->connection_memory;
    if (memory < used + REPLY_HEAD_MIN)
        return REASON_HEADERS_TOO_LARGE; /* no room for an answer */
    request->reply_head_max = memory - used < REPLY_HEAD_MAX ? memory - used : REPLY_HEAD_MAX;
    return REASON_NONE;
}

/* libmicrohttpd 0.9.x hides from us what it mends or cuts off; from 1.0 on its strict level refuses all that itself. */
static bool is_exact(const struct request *request, const char *method, const char *version,
                     const struct field_list *list)
{
#if MHD_VERSION >= 0x01000000
    (void)request, (void)method, (void)version, (void)list;
    return true;
#else
    if (list->count > HEAD_FIELDS_MAX)
        return true; /* refused for that */
    struct head_parts parts = {strlen(method), request->raw_target_len, strlen(version), list->fields, list->count};
    size_t size = MHD_get_connection_info(request->conn->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
    return head_is_exact(method, size, &parts);
#endif
}

/* Everything the head settles; what goes to the partner is copied here, the client's memory may go at any time. */
static enum reason look_at_head(struct request *request, const char *method, const char *version,
                                struct screened *screened)
{
    struct header_field fields[HEAD_FIELDS_MAX];
    struct field_list list = {fields, 0, HEAD_FIELDS_MAX};
    MHD_get_connection_values_n(request->conn->mhd, MHD_HEADER_KIND, on_field, &list);
    size_t count = list.count > HEAD_FIELDS_MAX ? HEAD_FIELDS_MAX : list.count;
    headers_screen(fields, count, method, version, screened);
    enum reason reason = copy_head(request, method, version, screened);
    if (reason == REASON_NONE && strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        reason = REASON_VERSION_NOT_SUPPORTED;
    if (reason == REASON_NONE && !is_exact(request, method, version, &list))
        screened->problem = "the head holds bytes that belong to no line, or lines folded or not ended by CRLF";
    if (reason == REASON_NONE)
        reason = judge_size(request, &list);
    if (reason == REASON_NONE)
        reason = request_judge_head(request, screened, fields, count);
    if (reason != REASON_NONE)
        return reason;
    if (request->route->config->kind == ROUTE_SMTP)
        return mail_request_take_head(request, fields, count) ? REASON_NONE : REASON_OVERLOADED;
    const struct target *target = request->webhook != NULL ? &request->webhook->parts : &request->target;
    switch (forward_build(&request->arena, request->route->config, fields, count, target, &request->forward)) {
    case FORWARD_OK: return REASON_NONE;
    case FORWARD_NO_MEMORY: return REASON_OVERLOADED;
    case FORWARD_MALFORMED: break;
    }
    return REASON_MALFORMED_REQUEST;
}

/* Broken framing and whatever leaves no sound body to read: answered at once, the connection is closed. */
static bool unreadable(enum reason reason, const struct screened *screened)
{
    return screened->problem != NULL || reason == REASON_HEADERS_TOO_LARGE || reason == REASON_METHOD_NOT_IMPLEMENTED ||
           reason == REASON_VERSION_NOT_SUPPORTED || reason == REASON_EXPECTATION_FAILED ||
           reason == REASON_TARGET_TOO_LONG;
}

static enum MHD_Result suspend(struct request *request)
{
    request->suspended = true;
    MHD_suspend_connection(request->conn->mhd);
    return MHD_YES;
}

/* Refused without reading the body: by now, or when the record of it is durable. */
static enum MHD_Result go_early(struct request *request)
{
    request->early = true;
    request->conn->linger = true;
    request->phase = INBOUND_EARLY;
    timer_clear(&request->worker->timers, &request->conn->timer);
    return request->answer_begun ? inbound_queue(request) : suspend(request);
}

static enum MHD_Result on_head(struct request *request, const char *method, const char *version)
{
    struct screened screened = {0};
    enum reason reason = look_at_head(request, method, version, &screened);
    bool large = screened.expect_continue || (screened.has_length && screened.length > EARLY_BODY);
    request->phase = INBOUND_BODY;
    request->body_announced = screened.has_length ? (size_t)screened.length : 0;
    if (reason != REASON_NONE && (large || unreadable(reason, &screened))) {
        request->early = true; /* before the answer is made: it says Connection: close */
        request->refusal = reason;
        request_arrived(request);
        return go_early(request);
    }
    if (reason == REASON_NONE && large) {
        request->early = true;
        if (request_stale_early(request))
            return go_early(request);
        request->early = false;
    }
    if (reason != REASON_NONE)
        refuse_after_body(request, reason);
    return MHD_YES;
}

/* ---- the handler ---- */

/* Not suspended yet if there is no answer: a connection suspended in this call is read from when it is resumed, and a
 * client that has ended its sending (a half-close) would be closed there without its answer. One idle round of
 * libmicrohttpd later it knows that there is nothing to read; the handler then suspends. */
static enum MHD_Result on_whole(struct request *request)
{
    timer_clear(&request->worker->timers, &request->conn->timer);
    request->phase = INBOUND_WAITING;
    request->started_ms = request->worker->now_ms;
    request_arrived(request);
    request->conn->inbound->due = true;
    return request->answer_begun ? inbound_queue(request) : MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *data_len, void **request_arg)
{
    (void)arg, (void)url, (void)mhd;
    struct request *request = *request_arg;
    if (request == NULL) /* no memory when the line came */
        return MHD_NO;
    if (request->magic != REQUEST_MAGIC)
        abort();
    switch (request->phase) {
    case INBOUND_HEAD: return on_head(request, method, version);
    case INBOUND_BODY: return *data_len > 0 ? take_body(request, data, data_len) : on_whole(request);
    case INBOUND_EARLY:
    case INBOUND_WAITING: return request->answer_begun ? inbound_queue(request) : suspend(request);
    case INBOUND_QUEUED: break;
    }
    *data_len = 0;
    return MHD_YES;
}

/* The request line, before anything of it is decoded. What this returns is the handler's *request_arg. */
static void *on_request_line(void *arg, const char *target, struct MHD_Connection *mhd)
{
    struct inbound *inbound = arg;
    struct connection *conn = connection_of(mhd);
    if (conn == NULL)
        return NULL;
    struct request *request = request_new(inbound->worker, conn);
    if (request == NULL)
        return NULL;
    request->raw_target_len = strlen(target);
    request->raw_target = arena_copy(&request->arena, target, request->raw_target_len);
    if (request->raw_target == NULL)
        request->raw_target_len = 0;
    conn->request = request;
    timer_set(&inbound->worker->timers, &conn->timer,
              inbound->worker->now_ms + request->settings->config->request_timeout_ms);
    return request;
}

/* Answered, or the client left. A connection that lingers is kept open by a copy of its descriptor. */
static void on_completed(void *arg, struct MHD_Connection *mhd, void **request_arg,
                         enum MHD_RequestTerminationCode code)
{
    struct inbound *inbound = arg;
    struct connection *conn = connection_of(mhd);
    (void)code;
    *request_arg = NULL;
    if (conn == NULL)
        return;
    release_request(conn);
    if (conn->linger) {
        conn->linger = false;
        int fd = dup(conn->fd);
        if (fd >= 0) {
            shutdown(fd, SHUT_WR);
            linger_start(inbound, fd);
        }
        return;
    }
    watch_idle(conn);
}

/* ---- the daemon ---- */

static void on_daemon_ready(struct io *io, uint32_t events)
{
    struct inbound *inbound = (struct inbound *)((char *)io - offsetof(struct inbound, daemon_io));
    (void)events;
    inbound->due = true;
}

static void on_daemon_log(void *arg, const char *format, va_list args)
{
    (void)arg;
    char text[256];
    vsnprintf(text, sizeof text, format, args);
    log_message(LOG_DEBUG, "libmicrohttpd", "%s", text);
}

static struct MHD_Daemon *start_daemon(struct inbound *inbound)
{
    const struct config *config = inbound->worker->settings->config;
    unsigned timeout = (unsigned)((config->idle_timeout_ms + 999) / 1000);
    inbound->connection_memory = (size_t)config->headers_max + HEAD_SPARE;
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0,
                            NULL, NULL, on_request, inbound, MHD_OPTION_EXTERNAL_LOGGER, on_daemon_log, NULL,
                            MHD_OPTION_URI_LOG_CALLBACK, on_request_line, inbound, MHD_OPTION_NOTIFY_COMPLETED,
                            on_completed, inbound, MHD_OPTION_NOTIFY_CONNECTION, on_connection, inbound,
                            MHD_OPTION_CONNECTION_LIMIT, 1000000u, MHD_OPTION_CONNECTION_TIMEOUT, timeout,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, inbound->connection_memory,
#if MHD_VERSION >= 0x01000000
                            MHD_OPTION_CLIENT_DISCIPLINE_LVL, 2,
#else
                            MHD_OPTION_STRICT_FOR_CLIENT, 1,
#endif
                            MHD_OPTION_END);
}

struct inbound *inbound_new(struct worker *worker, int fd)
{
    struct inbound *inbound = calloc(1, sizeof *inbound);
    if (inbound == NULL)
        return NULL;
    inbound->worker = worker;
    inbound->listen_fd = fd;
    inbound->listen_io.ready = inbound_on_listen_ready;
    inbound->daemon_io.ready = on_daemon_ready;
    inbound->accept_pause.fire = inbound_on_accept_again;
    if (!timers_promise(&worker->timers)) {
        free(inbound);
        return NULL;
    }
    inbound->door_cap = (size_t)worker->settings->config->headers_max + 1;
    inbound->door_bytes = malloc(inbound->door_cap);
    inbound->daemon = inbound->door_bytes == NULL ? NULL : start_daemon(inbound);
    bool ready = false;
    if (inbound->daemon != NULL) {
        int epoll_fd = MHD_get_daemon_info(inbound->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
        ready = worker_watch(worker, epoll_fd, EPOLLIN, &inbound->daemon_io) &&
                worker_watch(worker, fd, EPOLLIN, &inbound->listen_io);
    }
    if (!ready)
        inbound_free(&inbound);
    return inbound;
}

static void resume_all(struct inbound *inbound)
{
    for (struct request *request = inbound->worker->live; request != NULL; request = request->next)
        if (request->suspended && request->conn != NULL) {
            request->suspended = false;
            MHD_resume_connection(request->conn->mhd);
        }
}

void inbound_free(struct inbound **inbound)
{
    struct inbound *gone = *inbound;
    *inbound = NULL;
    if (gone == NULL)
        return;
    if (gone->daemon != NULL) {
        resume_all(gone); /* MHD_stop_daemon() aborts the process over a suspended connection */
        MHD_stop_daemon(gone->daemon);
    }
    inbound_close_door(gone);
    linger_free_all(gone);
    free(gone->door_bytes);
    timer_clear(&gone->worker->timers, &gone->accept_pause);
    timers_release(&gone->worker->timers);
    free(gone);
}

bool inbound_run(struct inbound *inbound)
{
    if (!inbound->due)
        return false;
    inbound->due = false;
    MHD_run(inbound->daemon);
    return true;
}

int inbound_wait_ms(struct inbound *inbound)
{
    MHD_UNSIGNED_LONG_LONG wait;
    if (MHD_get_timeout(inbound->daemon, &wait) != MHD_YES)
        return -1;
    if (wait == 0)
        inbound->due = true;
    return wait > 60000 ? 60000 : (int)wait;
}
