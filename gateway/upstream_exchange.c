/*
 * gateway/upstream_exchange.c - one request out, one answer in.
 *
 * On a connected, silent link comes the last look, and right after it the request's first byte is handed to the kernel.
 * From then on the link belongs to this call until the answer is whole (wire.c says when); whatever goes wrong ends the
 * link and the call with it. Nothing here sends a request a second time.
 *
 * Leaves to others: making and keeping links (upstream_link.c), telling of ends (upstream.c), what an end means for
 * record and answer (request_call.c).
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "config/config.h"
#include "gateway/log.h"
#include "gateway/report.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/token.h"
#include "gateway/upstream_int.h"
#include "gateway/webhook.h"

enum {
    TLS_TOLD_MS = 60000,
    READS_PER_TURN = 8,    /* of one call: the others have their turn too */
    JOINED_BODY_MAX = 4096 /* a body up to this size goes out in one piece with the head */
};

/* ---- the end of a call ---- */

static void tell_trouble(const struct call *call, const char *detail)
{
    struct log_line line;
    if (!log_begin(&line, LOG_DEBUG, "upstream"))
        return;
    report_id(&line, call->request->worker, call->request->number);
    log_cstring(&line, "route", call->request->route->config->name);
    log_cstring(&line, "message", detail);
    log_end(&line);
}

/* Told in upstream_run(): what ends a call may be a step that its request has called. */
void call_finish(struct call *call, enum call_end end, const char *detail)
{
    if (call->step == CALL_ENDED)
        return;
    bool begun = call->step == CALL_EXCHANGING;
    call->step = CALL_ENDED;
    call->end = end;
    snprintf(call->detail, sizeof call->detail, "%s", detail == NULL ? "" : detail);
    if (detail != NULL)
        tell_trouble(call, detail);
    timer_clear(&call->upstream->worker->timers, &call->timer);
    call_sate(call);
    webhook_stop_signing(call->request);
    if (call->link != NULL && begun && (end == CALL_FAILED || end == CALL_TIMEOUT || end == CALL_CUT_SHORT))
        link_abandon(call->link);
    if (call->link != NULL)
        link_close(&call->link);
    list_add(&call->upstream->ended, &call->ended);
    call->upstream->activity = true;
}

/* The exchange went wrong after bytes may have left. Only a whole final head is an answer; one that is too large still
 * has told what the partner did. */
void call_break(struct call *call, const char *detail)
{
    const struct reply *reply = &call->request->reply;
    char text[sizeof call->detail];
    if (reply->complaint != NULL)
        snprintf(text, sizeof text, "%c%s.%s", toupper((unsigned char)reply->complaint[0]), reply->complaint + 1,
                 reply->too_large ? " Its status was read: do not repeat the call." : "");
    else
        snprintf(text, sizeof text, "%s", detail);
    enum call_end nothing = call->request->state == REQUEST_SENT ? CALL_FAILED : CALL_UNREACHABLE; /* a mail: no dot */
    call_finish(call, reply->head_done ? CALL_CUT_SHORT : reply->too_large ? CALL_TOO_LARGE : nothing, text);
}

static uint64_t connect_end_ms(const struct call *call)
{
    return call->link->born_ms + call->link->route->connect_timeout_ms;
}

static bool is_connecting(const struct call *call)
{
    return call->step == CALL_CONNECTING && call->link->fd < 0;
}

void call_set_timer(struct call *call)
{
    uint64_t end = call->total_end_ms;
    if (is_connecting(call) && connect_end_ms(call) < end)
        end = connect_end_ms(call);
    timer_set(&call->upstream->worker->timers, &call->timer, end);
}

void call_on_timeout(struct timer *timer)
{
    struct call *call = (struct call *)((char *)timer - offsetof(struct call, timer));
    const struct config_route *route = call->request->route->config;
    char text[sizeof call->detail];
    if (is_connecting(call)) {
        call->upstream->activity = true;
        upstream_hear(call->upstream);
        if (!is_connecting(call)) /* connected, or not, just now */
            return;
    }
    if (is_connecting(call) && call->upstream->worker->now_ms < call->total_end_ms) {
        snprintf(text, sizeof text, "%s within %" PRIu64 " ms (timeout.connect).",
                 call->link->lookup != NULL ? "The partner's name was not resolved" : "No connection",
                 route->connect_timeout_ms);
        call_finish(call, CALL_TIMEOUT, text);
        return;
    }
    bool begun = call->step == CALL_EXCHANGING;
    const char *missing = call->step == CALL_STARTING ? "room to send" : "connection";
    snprintf(text, sizeof text, "No %s within %" PRIu64 " ms (timeout.total).", begun ? "whole answer" : missing,
             route->total_timeout_ms);
    call_finish(call, begun && call->request->reply.head_done ? CALL_CUT_SHORT : CALL_TIMEOUT, text);
}

/* The answer is whole: the link may serve another call if both sides want that and nothing is left over on it. */
static void end_well(struct call *call, bool left_over)
{
    bool again = call->wire.keep_alive && !left_over && !call->send_failed && call->out[0].len + call->out[1].len == 0;
    if (again) {
        link_watch(call->link, EPOLLIN | EPOLLRDHUP);
        link_put(call->link);
        call->link = NULL;
    }
    call_finish(call, CALL_OK, NULL);
}

/* A partner's certificate that no longer holds fails every call of a route: told as a warning, once a minute. The rest
 * is in the access line. */
static void tell_tls_trouble(const struct call *call, const char *detail)
{
    struct request *request = call->request;
    struct log_line line;
    uint64_t skipped;
    if (!log_rate_pass(&request->route->tls_told, request->worker->now_ms, TLS_TOLD_MS, &skipped) ||
        !log_begin(&line, LOG_WARN, "partner-tls"))
        return;
    report_id(&line, request->worker, request->number);
    log_cstring(&line, "route", request->route->config->name);
    log_cstring(&line, "message", detail);
    log_number(&line, "skipped", skipped);
    log_end(&line);
}

/* ---- the first byte ---- */

/* Connected, and not fit for a call: the partner spoke, or hung up. With TLS 1.3 its alert about the handshake comes
 * here.
 */
static void end_unfit(struct call *call)
{
    const struct link *link = call->link;
    char text[sizeof call->detail];
    link_explain(link, "The partner spoke or closed before it was asked; nothing was sent", text, sizeof text);
    if (link->tls && (link->seen.certificate_asked || link->error[0] != '\0'))
        tell_tls_trouble(call, text);
    call_finish(call, CALL_UNREACHABLE, text);
}

static void stop_unsent(struct call *call)
{
    if (!call->link->loaded) {
        link_watch(call->link, EPOLLIN | EPOLLRDHUP);
        link_put(call->link); /* nothing was said on it */
        call->link = NULL;
    }
    call_finish(call, CALL_UNREACHABLE, NULL);
}

static void send_on(struct call *call);

/* On a link that is connected and silent. The last look is the last thing before the first byte. When the kernel took
 * none, the call has not begun: there is another look before the next try. */
static void begin_sending(struct call *call)
{
    struct request *request = call->request;
    if (!link_may_send(call->link)) {
        link_watch_needed(call->link);
        return;
    }
    if (!request_last_look(request)) {
        stop_unsent(call);
        return;
    }
    call->step = CALL_EXCHANGING;
    link_expect(call->link);
    send_on(call);
    if (call->link->taken)
        return;
    call->step = CALL_STARTING;
    if (!request_take_back(request))
        stop_unsent(call);
    else if (call->send_failed)
        end_unfit(call);
}

static void start_on(struct call *call)
{
    if (webhook_is_signing(call->request))
        return; /* sign_on() will come */
    if (link_is_silent(call->link))
        begin_sending(call);
    else
        end_unfit(call);
}

/* ---- the exchange ---- */

/* The answer that came before all was sent (a 413, say) counts, whatever becomes of the rest. */
static void send_on(struct call *call)
{
    for (size_t part = 0; part < 2 && !call->send_failed;) {
        struct slice *out = &call->out[part];
        size_t sent;
        if (out->len == 0) {
            part++;
            continue;
        }
        enum link_io io = link_send(call->link, out->data, out->len, &sent);
        if (io == LINK_AGAIN)
            break;
        call->send_failed = io != LINK_OK;
        out->data += sent;
        out->len -= sent;
    }
    if (!call->request->reply.paused)
        link_watch_needed(call->link);
}

/* False: no memory. */
static bool take_in(struct call *call, const char *data, size_t len, size_t *left_over)
{
    struct reply *reply = &call->request->reply;
    size_t at = 0;
    while (at < len && call->wire.state != WIRE_DONE && call->wire.state != WIRE_BROKEN) {
        struct slice body;
        at += wire_take(&call->wire, reply, data + at, len - at, &body);
        if (body.len > 0 && call->request->conn != NULL && !reply_body_add(reply, body.data, body.len))
            return false;
        reply->received += body.len;
    }
    *left_over = len - at;
    if (reply->head_done)
        call_touch(call);
    return true;
}

static void on_closed(struct call *call)
{
    bool well = link_ended_well(call->link);
    const char *why = call->link->used ? "The kept-alive connection was closed before an answer came; the call was not "
                                         "sent again."
                                       : "The partner closed the connection without an answer.";
    if (well)
        wire_closed(&call->wire);
    if (call->request->reply.head_done)
        why = well ? "The partner closed the connection inside its answer."
                   : "The connection was cut: nobody can say whether the answer is whole.";
    if (call->wire.state == WIRE_DONE)
        end_well(call, false);
    else
        call_break(call, why);
}

/* True: there may be more to read at once. */
static bool read_some(struct call *call)
{
    struct upstream *upstream = call->upstream;
    size_t got, left_over = 0;
    switch (link_recv(call->link, upstream->scratch, READ_BYTES, &got)) {
    case LINK_AGAIN: link_watch_needed(call->link); return false;
    case LINK_FAILED: {
        char text[sizeof call->detail];
        link_explain(call->link, "The connection failed", text, sizeof text);
        call_break(call, text);
        return false;
    }
    case LINK_CLOSED: on_closed(call); return false;
    case LINK_OK: break;
    }
    if (!take_in(call, upstream->scratch, got, &left_over))
        call_break(call, "The gateway is out of memory.");
    else if (call->wire.state == WIRE_DONE)
        end_well(call, left_over > 0);
    else if (call->wire.state == WIRE_BROKEN)
        call_break(call, "The partner's answer can't be read.");
    return call->step == CALL_EXCHANGING && (call->link->tls || got == READ_BYTES);
}

/* A client that is slow to take the answer holds the partner up: only so much is kept. Not registered at all then,
 * since the kernel would go on telling of a partner that hung up. */
static bool client_is_full(struct call *call)
{
    struct reply *reply = &call->request->reply;
    if (call->request->conn == NULL || reply_body_waiting(reply) < REPLY_BODY_MAX)
        return false;
    reply->paused = true;
    link_watch(call->link, 0);
    return true;
}

/* TLS may hold what epoll knows nothing of: read until there is no more, or come back. */
void call_read(struct call *call)
{
    if (call->link->smtp != NULL) {
        mail_talk(call);
        return;
    }
    for (int reads = 0; reads < READS_PER_TURN; reads++)
        if (client_is_full(call) || !read_some(call))
            return;
    call_make_hungry(call);
}

void upstream_link_ready(struct link *link, uint32_t events)
{
    struct call *call = link->call;
    if (call->step == CALL_STARTING)
        start_on(call);
    if (call->step != CALL_EXCHANGING)
        return;
    if (link->smtp != NULL) {
        mail_talk(call);
        return;
    }
    bool read = (events & ~(uint32_t)EPOLLOUT) != 0 || link->recv_waits_out;
    if ((events & EPOLLOUT) != 0 || link->send_waits_in)
        send_on(call);
    if (read)
        call_read(call);
}

/* ---- the beginning of a call ---- */

/* Host as RFC 9112 section 3.2 wants it: the upstream's authority, without a port that the scheme implies. */
static struct slice host_of(const char *origin)
{
    const char *host = strstr(origin, "://") + 3;
    size_t len = strlen(host);
    const char *usual = strncmp(origin, "https:", 6) == 0 ? ":443" : ":80";
    size_t cut = strlen(usual);
    if (len > cut && memcmp(host + len - cut, usual, cut) == 0)
        len -= cut;
    return (struct slice){host, len};
}

static char *put(char *at, const char *data, size_t len)
{
    if (len > 0)
        memcpy(at, data, len);
    return at + len;
}

static char *put_text(char *at, const char *text)
{
    return put(at, text, strlen(text));
}

/* Those of a signature end in "name: " and a value. */
static size_t hook_lines_len(const struct webhook *hook)
{
    size_t len = 0;
    for (size_t i = 0; hook != NULL && i < WEBHOOK_LINES && hook->lines[i] != NULL; i++)
        len += strlen(hook->lines[i]) + 2;
    return len;
}

static char *put_lines(char *at, const struct request *request)
{
    const struct webhook *hook = request->webhook;
    at = put(at, request->forward.lines, request->forward.lines_len);
    for (size_t i = 0; hook != NULL && i < WEBHOOK_LINES && hook->lines[i] != NULL; i++)
        at = put_text(put_text(at, hook->lines[i]), "\r\n");
    return at;
}

/* The head in one piece, a small body with it. False: no memory. */
static bool make_out(struct call *call)
{
    struct request *request = call->request;
    const char *target = request->forward.target;
    struct slice host = host_of(call->link->origin);
    bool has_body = !request->head_method && (request->has_body_header || request->body_len > 0);
    size_t joined = has_body && request->body_len <= JOINED_BODY_MAX ? request->body_len : 0;
    size_t most = strlen(request->method) + strlen(target) + host.len + request->forward.lines_len +
                  hook_lines_len(request->webhook) + joined + 96;
    char *head = arena_alloc(&request->arena, most);
    if (head == NULL)
        return false;
    char *at = put_text(put_text(put_text(put_text(head, request->method), " "), target), " HTTP/1.1\r\nHost: ");
    at = put_lines(put_text(put(at, host.data, host.len), "\r\n"), request);
    if (has_body) {
        at = put_text(at, "Content-Length: ");
        at = put_text(at + token_format(request->body_len, at), "\r\n");
    }
    at = put(put_text(at, "\r\n"), request->body, joined);
    call->out[0] = (struct slice){head, (size_t)(at - head)};
    call->out[1] = has_body && joined == 0 ? (struct slice){request->body, request->body_len} : (struct slice){NULL, 0};
    return true;
}

void call_out_of_memory(struct call *call)
{
    call_finish(call, CALL_UNREACHABLE, "The gateway is out of memory.");
}

/* True: it is signed, and ready to be sent. */
static bool sign_some(struct call *call)
{
    enum webhook_step step = webhook_sign_some(call->request);
    if (step == WEBHOOK_MORE) {
        call_make_hungry(call);
        return false;
    }
    if (step == WEBHOOK_SIGNED && make_out(call))
        return true;
    call_out_of_memory(call);
    return false;
}

/* A partner may have hung up meanwhile. */
static void sign_on(struct call *call)
{
    if (sign_some(call))
        start_on(call);
}

void call_go_on(struct call *call)
{
    if (webhook_is_signing(call->request))
        sign_on(call);
    else
        call_read(call);
}

void call_begin(struct call *call)
{
    struct request *request = call->request;
    call_set_timer(call);
    if (call->link->smtp != NULL) {
        mail_begin(call);
        return;
    }
    if (!webhook_prepare(request)) {
        call_out_of_memory(call);
        return;
    }
    call->step = CALL_STARTING;
    call->wire =
        (struct wire){.head_method = request->head_method, .head_max = request->settings->config->answer_headers_max};
    call->send_failed = false;
    if (sign_some(call))
        begin_sending(call);
}

static bool is_tls_trouble(CURLcode result)
{
    switch (result) {
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS: return true;
    default: return false;
    }
}

/* libcurl's own words name the host, the certificate's fault and the like; the general ones are for when it has none.
 */
static void end_unconnected(struct call *call, CURLcode result)
{
    const struct config_route *route = call->request->route->config;
    const struct link *link = call->link;
    char text[sizeof call->detail];
    bool late = result == CURLE_OPERATION_TIMEDOUT;
    if (result == CURLE_COULDNT_CONNECT && link->refused > 0 && link->allowed == 0) {
        call_finish(call, CALL_REFUSED_ADDRESS, NULL);
        return;
    }
    if (!late && link->smtp != NULL && mail_unconnected(call, result))
        return;
    if (late)
        snprintf(text, sizeof text, "No connection within %" PRIu64 " ms (timeout.connect).",
                 route->connect_timeout_ms);
    else
        link_explain(link, curl_easy_strerror(result), text, sizeof text);
    if (is_tls_trouble(result))
        tell_tls_trouble(call, text);
    call_finish(call, late ? CALL_TIMEOUT : CALL_UNREACHABLE, text);
}

void upstream_connected(struct link *link, CURLcode result)
{
    struct call *call = link->call;
    if (result == CURLE_OK && !link->look && link_adopt(link))
        call_begin(call);
    else if (result == CURLE_OK)
        end_unfit(call);
    else
        end_unconnected(call, result);
}
