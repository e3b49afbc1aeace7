/*
 * gateway/admin.c - the admin listener's thread, socket and connections.
 *
 * Owns a libmicrohttpd daemon of its own, driven by one thread of its own: that thread opens and closes the store
 * reader, so the daemon's internal threads, which give no notice of their end, are not used. A connection whose answer
 * has to wait for the store is suspended meanwhile. What is answered is left to admin_calls.c.
 */
#include "gateway/admin.h"

#include <errno.h>
#include <arpa/inet.h>
#include <limits.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/admin_address.h"
#include "gateway/admin_calls.h"
#include "gateway/admin_change.h"
#include "gateway/admin_door.h"
#include "gateway/admin_head.h"
#include "gateway/admin_receive.h"
#include "gateway/head.h"
#include "gateway/headers.h"
#include "gateway/log.h"
#include "gateway/timers.h"
#include "store/store.h"

#define FIELDS_MAX 64
#define BODY_MAX (64u << 10)
#define BODY_CUT (1u << 20) /* a chunked body is read to its end for the sake of an answer, but not for ever */
#define FOR_PROBES(max) ((max) / 8 + 1)
#define KEPT_MAX(max) ((max) / 2) /* with more, answers end their connections: idle ones hold no place */
#define CONNECTION_MEMORY (32u << 10)
#define TIMEOUT_SECONDS 30u
#define HEAD_MAX (16u << 10)
#define HEAD_MEMORY (CONNECTION_MEMORY - (4u << 10)) /* the rest is for the answer's head */

struct admin {
    struct admin_context context;
    struct MHD_Daemon *daemon;
    int listen_fd;
    struct admin_doors *doors;
    struct admin_receive *receiving;
    int stop_fd;
    pthread_t thread;
    bool thread_runs;
    bool due; /* the daemon must run again at once */
    char *store_path;
};

/* One request, from its first line to the end of its answer. Owned by libmicrohttpd's connection. */
struct exchange {
    struct MHD_Connection *connection;
    bool begun, suspended;
    bool of_worker; /* it has headers of a call for a partner */
    char *body;
    size_t body_len;              /* what came; kept is BODY_MAX at most */
    char client[64];              /* address:port */
    struct admin_request request; /* header values point into the connection's memory */
    struct admin_change *change;  /* NULL: there was no need for one */
    char target[];
};

static int descriptor(struct MHD_Connection *connection)
{
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

/* As long as the connection lives. */
static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    (void)arg;
    (void)connection;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = calloc(1, sizeof(struct admin_receive));
    } else if (*context != NULL) {
        admin_receive_end(*context);
        free(*context);
        *context = NULL;
    }
}

static struct admin_receive *receive_of(struct MHD_Connection *connection)
{
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* A request has ended. If its client sends no more, libmicrohttpd may never have seen that. */
static void watch_end(struct admin *admin, struct MHD_Connection *connection)
{
    int fd = descriptor(connection);
    admin_receive_end(receive_of(connection));
    if (admin_receive_at_end(fd)) {
        admin_receive_begin(&admin->receiving, receive_of(connection), fd, ADMIN_RECEIVE_IDLE);
    }
}

/* The raw target, before libmicrohttpd decodes it. NULL makes on_request() close the connection. */
static void *on_target(void *arg, const char *target, struct MHD_Connection *connection)
{
    (void)arg;
    size_t len = target == NULL ? 0 : strlen(target);
    struct exchange *exchange = calloc(1, sizeof *exchange + len + 1);
    if (exchange == NULL) {
        return NULL;
    }
    exchange->connection = connection;
    if (len > 0) {
        memcpy(exchange->target, target, len);
    }
    return exchange;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **con_cls,
                         enum MHD_RequestTerminationCode code)
{
    struct admin *admin = arg;
    struct exchange *exchange = *con_cls;
    (void)code;
    if (receive_of(connection) != NULL) {
        watch_end(admin, connection);
    }
    if (exchange != NULL) {
        admin_change_release(&exchange->change);
        free(exchange->body);
    }
    free(exchange);
    *con_cls = NULL;
}

/* The page may load what is its own and ask this listener: nothing else, and nobody may frame it. */
#define PAGE_POLICY                                                                                                    \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "    \
    "form-action 'none'; frame-ancestors 'none'"

static bool add_headers(struct MHD_Response *response, const struct admin_answer *answer)
{
    char retry_after[16];
    bool page = answer->page.data != NULL;
    bool document = page && strncmp(answer->content_type, "text/html", 9) == 0;
    snprintf(retry_after, sizeof retry_after, "%u", answer->retry_after);
    bool refused = answer->hint != NULL && answer->status >= 400 && answer->status < 500;
    const struct {
        bool wanted;
        const char *name, *value;
    } headers[] = {
        {answer->content_type != NULL, "Content-Type", answer->content_type},
        {true, "Cache-Control", page ? "no-cache" : "no-store"},
        {true, "X-Content-Type-Options", "nosniff"},
        {answer->allow[0] != '\0', "Allow", answer->allow},
        {answer->challenge, "WWW-Authenticate", "Bearer"},
        {answer->retry_after != 0, "Retry-After", retry_after},
        {answer->hint != NULL, "Fencegate-Effect", "not-sent"},
        {refused, "Stripe-Should-Retry", "false"},
        {refused, "X-Should-Retry", "false"},
        {document, "Content-Security-Policy", PAGE_POLICY},
        {document, "X-Frame-Options", "DENY"},
        {document, "Referrer-Policy", "no-referrer"},
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        if (headers[i].wanted && MHD_add_response_header(response, headers[i].name, headers[i].value) != MHD_YES) {
            return false;
        }
    }
    return true;
}

static unsigned count_served(void *arg)
{
    struct admin *admin = arg;
    return MHD_get_daemon_info(admin->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections;
}

/* Takes over the answer's text, which every answer but 204 and a page has. Without memory for it there is none to say
 * so either: then the connection is closed. */
static enum MHD_Result send_answer(struct admin *admin, struct MHD_Connection *connection, struct admin_answer *answer)
{
    struct jsonout *body = &answer->body;
    struct MHD_Response *response = NULL;
    if (answer->status == 204) {
        response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    } else if (answer->page.data != NULL) {
        response = MHD_create_response_from_buffer(answer->page.len, (void *)(uintptr_t)answer->page.data,
                                                   MHD_RESPMEM_PERSISTENT);
    } else if (!body->failed && body->len > 0) {
        response = MHD_create_response_from_buffer(body->len, body->text, MHD_RESPMEM_MUST_FREE);
        *body = response == NULL ? *body : (struct jsonout){0};
    }
    if (response == NULL) {
        jsonout_free(body);
        return MHD_NO;
    }
    enum MHD_Result result = MHD_NO;
    bool ends = count_served(admin) > KEPT_MAX(admin->context.options.connections_max);
    if (add_headers(response, answer) &&
        (!ends || MHD_add_response_header(response, "Connection", "close") == MHD_YES)) {
        result = MHD_queue_response(connection, answer->status, response);
    }
    MHD_destroy_response(response);
    return result;
}

/* Before it is known which call it is. */
static enum MHD_Result send_problem(struct admin *admin, struct exchange *exchange, enum admin_problem kind,
                                    const char *detail)
{
    bool may_be_workers = exchange->of_worker || admin_method_changes(exchange->request.method);
    struct admin_answer answer = {.hint = may_be_workers ? admin->context.hint : NULL};
    admin_receive_end(receive_of(exchange->connection));
    admin_problem(&answer, kind, detail);
    return send_answer(admin, exchange->connection, &answer);
}

struct fields {
    struct header_field item[FIELDS_MAX];
    size_t count;
    bool overflow;
};

static enum MHD_Result collect_field(void *arg, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                     const char *value, size_t value_len)
{
    struct fields *fields = arg;
    (void)kind;
    if (fields->count == FIELDS_MAX) {
        fields->overflow = true;
        return MHD_NO;
    }
    fields->item[fields->count++] = (struct header_field){name, name_len, value == NULL ? "" : value, value_len};
    return MHD_YES;
}

/* False: the field is there twice, and which one counts would be a guess. */
static bool take_single(const struct fields *fields, const char *name, const char **value)
{
    *value = NULL;
    for (size_t i = 0; i < fields->count; i++) {
        if (!header_is(&fields->item[i], name)) {
            continue;
        }
        if (*value != NULL) {
            return false;
        }
        *value = fields->item[i].value;
    }
    return true;
}

static void name_client(struct exchange *exchange)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char text[INET6_ADDRSTRLEN];
    if (info != NULL && info->client_addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)info->client_addr;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        snprintf(exchange->client, sizeof exchange->client, "%s:%u", text, ntohs(in->sin_port));
    } else if (info != NULL && info->client_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)info->client_addr;
        inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
        snprintf(exchange->client, sizeof exchange->client, "[%s]:%u", text, ntohs(in->sin6_port));
    }
}

/* libmicrohttpd 0.9.x hides from us what it mends or cuts off; from 1.0 on its strict level refuses all that itself. */
static bool is_exact(const struct exchange *exchange, const char *method, const char *version,
                     const struct fields *fields)
{
#if MHD_VERSION >= 0x01000000
    (void)exchange, (void)method, (void)version, (void)fields;
    return true;
#else
    struct head_parts parts = {strlen(method), strlen(exchange->target), strlen(version), fields->item, fields->count};
    size_t size = MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
    return head_is_exact(method, size, &parts);
#endif
}

/* The first call for a request, before its body. An answer given here closes the connection, which is right for what
 * is wrong with the framing: nothing behind it may be read as another request. */
static enum MHD_Result first_look(struct admin *admin, struct exchange *exchange, const char *method,
                                  const char *version)
{
    struct fields fields = {.count = 0};
    struct screened screened;
    memset(&screened, 0, sizeof screened);
    MHD_get_connection_values_n(exchange->connection, MHD_HEADER_KIND, collect_field, &fields);
    exchange->request.method = method;
    exchange->of_worker = admin->context.options.of_worker(admin->context.options.arg, fields.item, fields.count);
    if (fields.overflow) {
        return send_problem(admin, exchange, ADMIN_MALFORMED, "There are too many header fields.");
    }
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
        return send_problem(admin, exchange, ADMIN_MALFORMED, "This HTTP version is not spoken here.");
    }
    if (!is_exact(exchange, method, version, &fields)) {
        return send_problem(admin, exchange, ADMIN_MALFORMED,
                            "The head has something between its fields, or a line that is none.");
    }
    headers_screen(fields.item, fields.count, method, version, &screened);
    if (screened.problem != NULL) {
        return send_problem(admin, exchange, ADMIN_MALFORMED, screened.problem);
    }
    if (!take_single(&fields, "Host", &exchange->request.host) ||
        !take_single(&fields, "Origin", &exchange->request.origin) ||
        !take_single(&fields, "Authorization", &exchange->request.authorization) ||
        !take_single(&fields, "Content-Type", &exchange->request.content_type)) {
        return send_problem(admin, exchange, ADMIN_MALFORMED, "A header field that may come once comes twice.");
    }
    if (screened.expect_unknown) {
        return send_problem(admin, exchange, ADMIN_EXPECTATION, "Only Expect: 100-continue is understood.");
    }
    if (screened.has_length && screened.length > BODY_MAX) {
        return send_problem(admin, exchange, ADMIN_TOO_LARGE, "A body may have 64 KiB here.");
    }
    name_client(exchange);
    return MHD_YES;
}

static enum MHD_Result take_body(struct exchange *exchange, const char *upload, size_t *upload_size)
{
    size_t before = exchange->body_len;
    exchange->body_len += *upload_size;
    if (exchange->body_len > BODY_CUT) {
        return MHD_NO;
    }
    if (exchange->body_len <= BODY_MAX) {
        char *body = realloc(exchange->body, exchange->body_len);
        if (body == NULL) {
            return MHD_NO;
        }
        memcpy(body + before, upload, *upload_size);
        exchange->body = body;
    }
    *upload_size = 0;
    return MHD_YES;
}

static void on_ready(struct admin_change *change, void *arg)
{
    struct exchange *exchange = arg;
    (void)change;
    if (exchange->suspended) {
        exchange->suspended = false;
        MHD_resume_connection(exchange->connection);
    }
}

/* The request is whole. An answer that has to wait for the store suspends the connection, but not in this very call:
 * libmicrohttpd would read from it when it is resumed, and a client that has ended its sending (a half-close) would be
 * closed there without its answer. One run later it knows that there is nothing to read. */
static enum MHD_Result begin_answer(struct admin *admin, struct exchange *exchange, const char *method)
{
    admin_receive_end(receive_of(exchange->connection));
    if (exchange->body_len > BODY_MAX) {
        return send_problem(admin, exchange, ADMIN_TOO_LARGE, "A body may have 64 KiB here.");
    }
    struct admin_answer answer = {.hint = exchange->of_worker ? admin->context.hint : NULL};
    exchange->request.method = method;
    exchange->request.target = exchange->target;
    exchange->request.client = exchange->client;
    exchange->request.body = (struct slice){exchange->body, exchange->body_len};
    exchange->change = admin_call(&admin->context, &exchange->request, &answer);
    if (exchange->change == NULL) {
        return send_answer(admin, exchange->connection, &answer);
    }
    exchange->change->answer.hint = answer.hint;
    exchange->change->on_ready = on_ready;
    exchange->change->arg = exchange;
    admin_change_submit(exchange->change);
    admin->due = true;
    return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **con_cls)
{
    struct admin *admin = arg;
    struct exchange *exchange = *con_cls;
    (void)url;
    if (exchange == NULL || receive_of(connection) == NULL) {
        return MHD_NO;
    }
    if (!exchange->begun) {
        exchange->begun = true;
        admin_receive_begin(&admin->receiving, receive_of(connection), descriptor(connection),
                            monotonic_ms() + TIMEOUT_SECONDS * 1000);
        return first_look(admin, exchange, method, version);
    }
    if (*upload_size > 0) {
        return take_body(exchange, upload, upload_size);
    }
    if (exchange->change == NULL) {
        return begin_answer(admin, exchange, method);
    }
    if (exchange->change->ready) {
        return send_answer(admin, connection, &exchange->change->answer);
    }
    exchange->suspended = true;
    MHD_suspend_connection(connection);
    return MHD_YES;
}

/* The sooner of two waits; -1: for ever. */
static int sooner(int one, int other)
{
    return one < 0 || (other >= 0 && other < one) ? other : one;
}

static int wait_ms(struct admin *admin, int look_ms)
{
    MHD_UNSIGNED_LONG_LONG timeout = 0;
    if (admin->due) {
        return 0;
    }
    if (MHD_get_timeout(admin->daemon, &timeout) != MHD_YES || timeout > INT_MAX) {
        return look_ms;
    }
    return sooner(look_ms, (int)timeout);
}

static void take_connection(void *arg, int fd, const struct sockaddr *address, socklen_t len)
{
    struct admin *admin = arg;
    admin->due = true;                                         /* bytes are waiting in it */
    (void)MHD_add_connection(admin->daemon, fd, address, len); /* closes it when it can't */
}

static void *admin_thread(void *arg)
{
    struct admin *admin = arg;
    pthread_setname_np(pthread_self(), "fg-admin");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(admin->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd waits[4] = {{.fd = admin->stop_fd, .events = POLLIN},
                              {.fd = admin->context.inbox.event_fd, .events = POLLIN},
                              {.fd = info->epoll_fd, .events = POLLIN},
                              {.fd = admin_doors_fd(admin->doors), .events = POLLIN}};
    while (waits[0].revents == 0) {
        int look_ms = admin_changes_run(&admin->context); /* before the daemon runs: it may resume connections */
        admin->due = false;
        look_ms = sooner(look_ms, admin_doors_run(admin->doors));
        bool taken = admin->due;
        admin->due = false;
        MHD_run(admin->daemon);
        admin->due = admin->due || taken;
        look_ms = sooner(look_ms, admin_receive_run(admin->receiving, admin->context.hint));
        if (poll(waits, 4, wait_ms(admin, look_ms)) < 0 && errno != EINTR) {
            log_message(LOG_ERROR, "admin-stopped", "poll: %s", strerror(errno));
            break;
        }
    }
    admin_changes_end(&admin->context); /* none is suspended any more: MHD_stop_daemon() would abort the process */
    MHD_run(admin->daemon);             /* the last answers go out */
    MHD_run(admin->daemon);
    MHD_stop_daemon(admin->daemon);
    admin->daemon = NULL;
    if (admin->context.reader != NULL) {
        store_reader_close(&admin->context.reader);
    }
    return NULL;
}

static bool start_daemon(struct admin *admin)
{
    admin->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, admin,
#if MHD_VERSION >= 0x00097701
        MHD_OPTION_CLIENT_DISCIPLINE_LVL, 2,
#else
        MHD_OPTION_STRICT_FOR_CLIENT, 1,
#endif
        MHD_OPTION_URI_LOG_CALLBACK, on_target, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, admin, MHD_OPTION_CONNECTION_LIMIT,
        admin->context.options.connections_max, MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_SECONDS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_END);
    return admin->daemon != NULL;
}

const char *admin_library(void)
{
    return MHD_get_version();
}

static bool open_doors(struct admin *admin)
{
    struct admin_door_options options = {
        .listen_fd = admin->listen_fd,
        .connections_max = admin->context.options.connections_max,
        .for_probes = FOR_PROBES(admin->context.options.connections_max),
        .patience_ms = TIMEOUT_SECONDS * 1000,
        .head = {HEAD_MAX, HEAD_MAX},
        .head_memory = HEAD_MEMORY,
        .hint = admin->context.hint,
        .served = count_served,
        .hand_over = take_connection,
        .arg = admin,
    };
    admin->doors = admin_doors_new(&options);
    return admin->doors != NULL;
}

/* Signals are the main thread's: all are blocked in this one. */
static bool start_thread(struct admin *admin)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    admin->thread_runs = pthread_create(&admin->thread, NULL, admin_thread, admin) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return admin->thread_runs;
}

struct admin *admin_start(const struct admin_options *options, uint16_t *port, char *error, size_t error_cap)
{
    struct admin *admin = calloc(1, sizeof *admin);
    if (admin == NULL) {
        snprintf(error, error_cap, "admin listener: out of memory");
        return NULL;
    }
    admin->context.options = *options;
    snprintf(admin->context.hint, sizeof admin->context.hint,
             "This is the admin listener, which sends nothing: calls for partners go to the proxy, at %s.",
             options->proxy);
    admin->listen_fd = -1;
    admin->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    admin->store_path = strdup(options->store_path);
    bool ready = inbox_init(&admin->context.inbox) && admin->stop_fd >= 0 && admin->store_path != NULL;
    if (admin_token_load(options->token_file, options->store_path, &admin->context.token, error, error_cap) &&
        (admin->listen_fd = admin_listen(options->address, options->port, port, error, error_cap)) >= 0) {
        admin_address_write(options->store_path, admin->listen_fd);
        store_give_files(options->store_path);
        if (ready && start_daemon(admin) && open_doors(admin) && start_thread(admin)) {
            return admin;
        }
        snprintf(error, error_cap, "admin listener: can't be started: %s", strerror(errno));
    }
    admin_stop(&admin);
    return NULL;
}

void admin_stop(struct admin **admin)
{
    struct admin *stopped = *admin;
    if (stopped == NULL) {
        return;
    }
    *admin = NULL;
    if (stopped->store_path != NULL) {
        admin_address_remove(stopped->store_path);
    }
    if (stopped->thread_runs) {
        eventfd_write(stopped->stop_fd, 1);
        pthread_join(stopped->thread, NULL); /* it stops the daemon */
    } else if (stopped->daemon != NULL) {
        MHD_stop_daemon(stopped->daemon);
    }
    admin_doors_free(&stopped->doors);
    if (stopped->listen_fd >= 0) {
        close(stopped->listen_fd);
    }
    if (stopped->stop_fd >= 0) {
        close(stopped->stop_fd);
    }
    inbox_destroy(&stopped->context.inbox);
    admin_token_clear(&stopped->context.token);
    free(stopped->store_path);
    free(stopped);
}
