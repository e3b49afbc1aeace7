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
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "gateway/address_rule.h"
#include "gateway/inbound.h"
#include "gateway/log.h"
#include "gateway/report.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/upstream_int.h"
#include "gateway/webhook.h"
#include "gateway/worker.h"

enum {
    TLS_TOLD_MS = 60000,
    POOLED_CONNECTIONS = 1024,
    SPARE_HANDLES = 128,
    TRIM_ABOVE = 128, /* calls under way at once: a spike that is worth giving memory back after */
};

/* libcurl does not tell of every failed allocation, and after some (7.88: a failed entry in a socket's table of
 * transfers) its next step is a division by zero. So we listen for ourselves, by thread. */
static _Thread_local bool starved;

static void *hear(void *memory)
{
    starved = starved || memory == NULL;
    return memory;
}

static void *heard_malloc(size_t size)
{
    return hear(malloc(size));
}

static void *heard_calloc(size_t count, size_t size)
{
    return hear(calloc(count, size));
}

static void *heard_realloc(void *old, size_t size)
{
    return hear(realloc(old, size));
}

static char *heard_strdup(const char *text)
{
    return hear(strdup(text));
}

bool upstream_global_init(void)
{
    return curl_global_init_mem(CURL_GLOBAL_DEFAULT, heard_malloc, free, heard_realloc, heard_strdup, heard_calloc) ==
           CURLE_OK;
}

bool upstream_starved(void)
{
    bool was = starved;
    starved = false;
    return was;
}

const char *upstream_library(void)
{
    static char text[64];
    snprintf(text, sizeof text, "libcurl/%s",
             curl_version_info(CURLVERSION_NOW)->version); /* curl_version() starts LDAP */
    return text;
}

/* ---- libcurl's timer ---- */

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
    bool tickets = connects > 0 && upstream_call_is_tls(call);
    return upstream_port_is_silent(call->upstream, port, tickets);
}

/* A pooled connection may have been opened by another route, whose rule is another. */
static bool peer_allowed(const struct call *call, const char *peer)
{
    const struct config_route *route = call->route;
    return route->kind != ROUTE_WEBHOOK || route->webhook.allow_private || address_text_is_public(peer);
}

int upstream_on_before_sending(void *arg, char *peer, char *local, int peer_port, int port)
{
    (void)local, (void)peer_port;
    struct call *call = arg;
    if (call->look) /* can't be: it gets no socket */
        return CURL_PREREQFUNC_ABORT;
    if (call->sendings == 0 && (!peer_allowed(call, peer) || !is_silent(call, port))) {
        call->unclean = true; /* nothing was sent: on_call_done() takes a fresh connection, once */
        return CURL_PREREQFUNC_ABORT;
    }
    if (call->sendings == 0 && !webhook_sign_now(call->request))
        return CURL_PREREQFUNC_ABORT;
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

size_t upstream_on_head_line(char *line, size_t size, size_t count, void *arg)
{
    struct call *call = arg;
    struct reply *reply = &call->request->reply;
    if (!reply_head_line(reply, line, size * count))
        return 0; /* libcurl stops with CURLE_WRITE_ERROR */
    if (reply->head_done)
        touch(call);
    return size * count;
}

size_t upstream_on_body(char *data, size_t size, size_t count, void *arg)
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

/* ---- beginning and end of a call ---- */

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

/* Before 8.1.1 libcurl keeps a pointer to the last answer's last header line, which it frees when the handle is used
 * again; a folded first line of the next answer is then written through it. */
static bool handles_keep_dangling(void)
{
    return curl_version_info(CURLVERSION_NOW)->version_num < 0x080101;
}

/* Only a handle whose call ended well is used again: after a failure libcurl may hold on to things (a read buffer, a
 * resolver) that make its next setting up fail. */
static void put_back(struct upstream *upstream, struct call *call, bool sound)
{
    call->request = NULL;
    call->headers = NULL;
    if (!sound || upstream->one_use || upstream->spare_count >= SPARE_HANDLES) {
        upstream_call_free(call);
    } else {
        call->next_spare = upstream->spare;
        upstream->spare = call;
        upstream->spare_count++;
    }
    if (--upstream->running < upstream->peak / 2 && upstream->peak > TRIM_ABOVE) {
        malloc_trim(0); /* after a spike: glibc keeps what lies between live pieces, some 12 KiB a call */
        upstream->peak = upstream->running;
    }
}

static bool make_multi(struct upstream *upstream);

static bool start(struct request *request, bool look)
{
    struct upstream *upstream = request->worker->upstream;
    if (upstream->multi == NULL && !make_multi(upstream))
        return false;
    struct call *call = take_spare(upstream);
    if (call == NULL)
        return false;
    call->upstream = upstream;
    call->request = request;
    call->look = look;
    call->allowed = call->refused = call->sendings = 0;
    call->unclean = false;
    call->error[0] = '\0';
    reply_free(&request->reply); /* of a try that did not connect */
    request->reply = (struct reply){.head_max = request->reply_head_max};
    if (!upstream_set_up(call, request) || curl_multi_add_handle(upstream->multi, call->easy) != CURLM_OK) {
        upstream_call_free(call);
        return false;
    }
    request->call = call;
    if (++upstream->running > upstream->peak)
        upstream->peak = upstream->running;
    upstream->activity = true;
    return true;
}

bool upstream_start(struct request *request)
{
    return start(request, false);
}

bool upstream_look(struct request *request)
{
    return start(request, true);
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

static void detach(struct call *call, bool sound)
{
    struct upstream *upstream = call->upstream;
    untouch(upstream, call);
    if (upstream->multi != NULL)
        curl_multi_remove_handle(upstream->multi, call->easy);
    call->request->call = NULL;
    put_back(upstream, call, sound);
}

void upstream_cancel(struct request *request)
{
    if (request->call != NULL)
        detach(request->call, false);
}

void upstream_resume(struct request *request)
{
    if (request->call == NULL || !request->reply.paused)
        return;
    request->reply.paused = false;
    request->call->upstream->activity = true;
    struct upstream *upstream = request->call->upstream;
    curl_easy_pause(request->call->easy, CURLPAUSE_CONT); /* may call upstream_on_body() at once */
    upstream->broken = upstream_starved() || upstream->broken;
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
    if (call->sendings == 0 && result == CURLE_COULDNT_CONNECT && call->refused > 0 && call->allowed == 0)
        return CALL_REFUSED_ADDRESS;
    if (call->sendings == 0 || request->last_look_failed)
        return result == CURLE_OPERATION_TIMEDOUT && !request->last_look_failed ? CALL_TIMEOUT : CALL_UNREACHABLE;
    if (reply->head_done && !reply->nonsense)
        return result == CURLE_OK || body_is_whole(request) ? CALL_OK : CALL_CUT_SHORT;
    return result == CURLE_OPERATION_TIMEDOUT ? CALL_TIMEOUT : CALL_FAILED;
}

/* libcurl's own words name the host, the certificate's fault and the like; the general ones are for when it has none.
 */
static void describe(const struct call *call, CURLcode result, enum call_end end, char *out, size_t cap)
{
    const struct reply *reply = &call->request->reply;
    const struct config_route *route = call->route;
    out[0] = '\0';
    if (end == CALL_OK)
        return;
    if (call->unclean)
        snprintf(out, cap, "The partner spoke or closed before it was asked; nothing was sent.");
    else if (reply->complaint != NULL)
        snprintf(out, cap, "%s.", reply->complaint);
    else if (call->sendings > 1)
        snprintf(out, cap, "The kept-alive connection was closed before an answer came; the call was not sent again.");
    else if (result == CURLE_OPERATION_TIMEDOUT && call->sendings == 0)
        snprintf(out, cap, "No connection within %" PRIu64 " ms (timeout.connect).", route->connect_timeout_ms);
    else if (result == CURLE_OPERATION_TIMEDOUT)
        snprintf(out, cap, "No whole answer within %" PRIu64 " ms (timeout.total).", route->total_timeout_ms);
    else if (result == CURLE_OK)
        snprintf(out, cap, "The partner closed the connection without an answer.");
    else
        snprintf(out, cap, "%.150s.", call->error[0] != '\0' ? call->error : curl_easy_strerror(result));
}

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

/* A partner's certificate that no longer holds fails every call of a route: told as a warning, once a minute. The rest
 * is in the access line. */
static void tell_trouble(const struct call *call, CURLcode result, const char *detail)
{
    struct request *request = call->request;
    struct log_line line;
    uint64_t skipped;
    if (is_tls_trouble(result) &&
        log_rate_pass(&request->route->tls_told, request->worker->now_ms, TLS_TOLD_MS, &skipped) &&
        log_begin(&line, LOG_WARN, "partner-tls")) {
        report_id(&line, request->worker, request->number);
        log_cstring(&line, "route", call->route->name);
        log_cstring(&line, "message", detail);
        log_number(&line, "skipped", skipped);
        log_end(&line);
    }
    if (!log_begin(&line, LOG_DEBUG, "upstream"))
        return;
    report_id(&line, request->worker, request->number);
    log_cstring(&line, "route", call->route->name);
    log_number(&line, "curl_code", (uint64_t)result);
    log_cstring(&line, "message", call->error);
    log_end(&line);
}

static void on_call_done(struct call *call, CURLcode result)
{
    struct request *request = call->request;
    if (start_fresh(call))
        return;
    enum call_end end = judge(call, result);
    if (call->look) {
        detach(call, false);
        request_looked(request, end);
        return;
    }
    char detail[160];
    describe(call, result, end, detail, sizeof detail);
    if (end != CALL_OK)
        tell_trouble(call, result, detail);
    request->reply.ended = true;
    request->reply.cut_short = end == CALL_CUT_SHORT;
    if (end != CALL_OK && end != CALL_CUT_SHORT)
        request->reply.head_done = false; /* not an answer: nothing of it is relayed */
    detach(call, end == CALL_OK);
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

/* Out of memory libcurl leaves its multi handle in a state that can't be gone on with (it loses calls, and 7.88 divides
 * by zero when it meets the same socket again). Its calls end here as far as they came; a new one takes over. */
static void start_over(struct upstream *upstream)
{
    struct call *calls = NULL;
    upstream->broken = false;
    for (struct request *request = upstream->worker->live; request != NULL; request = request->next) {
        if (request->call == NULL)
            continue;
        curl_multi_remove_handle(upstream->multi, request->call->easy);
        request->call->next_spare = calls;
        calls = request->call;
    }
    curl_multi_cleanup(upstream->multi);
    upstream->multi = NULL;
    (void)make_multi(upstream);
    while (calls != NULL) {
        struct call *next = calls->next_spare;
        calls->unclean = false;
        on_call_done(calls, CURLE_OUT_OF_MEMORY);
        calls = next;
    }
}

/* After a refused socket libcurl 7.88 tries the next address, but looks at what became of it only when a timer runs
 * out: half of the time to connect for each. A change of the pause puts the handle's turn to now. */
static void go_on(struct upstream *upstream)
{
    while (upstream->again != NULL) {
        struct call *call = upstream->again;
        upstream->again = call->next_again;
        call->again = false;
        if (upstream->broken)
            continue;
        curl_easy_pause(call->easy, CURLPAUSE_RECV);
        curl_easy_pause(call->easy, CURLPAUSE_CONT); /* nothing was received: no callback comes */
    }
}

void upstream_step(struct upstream *upstream, curl_socket_t fd, int mask)
{
    int running;
    if (!upstream->broken && upstream->multi != NULL &&
        curl_multi_socket_action(upstream->multi, fd, mask, &running) != CURLM_OK)
        upstream->broken = true;
    go_on(upstream);
    upstream->broken = upstream_starved() || upstream->broken;
}

bool upstream_run(struct upstream *upstream)
{
    bool any = upstream->activity;
    upstream->activity = false;
    while (upstream->due) {
        upstream->due = false;
        any = true;
        upstream_step(upstream, CURL_SOCKET_TIMEOUT, 0);
    }
    if (any) {
        if (upstream->multi != NULL)
            take_results(upstream);
        if (upstream_starved() || upstream->broken)
            start_over(upstream);
        tell_touched(upstream);
    }
    return any;
}

static bool make_multi(struct upstream *upstream)
{
    upstream->multi = curl_multi_init();
    if (upstream->multi == NULL)
        return false;
    curl_multi_setopt(upstream->multi, CURLMOPT_SOCKETFUNCTION, upstream_on_socket_change);
    curl_multi_setopt(upstream->multi, CURLMOPT_SOCKETDATA, upstream);
    curl_multi_setopt(upstream->multi, CURLMOPT_TIMERFUNCTION, on_timer_change);
    curl_multi_setopt(upstream->multi, CURLMOPT_TIMERDATA, upstream);
    curl_multi_setopt(upstream->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(upstream->multi, CURLMOPT_MAXCONNECTS, (long)POOLED_CONNECTIONS);
    return true;
}

struct upstream *upstream_new(struct worker *worker)
{
    struct upstream *upstream = calloc(1, sizeof *upstream);
    if (upstream == NULL)
        return NULL;
    upstream->worker = worker;
    upstream->timer.fire = on_timer;
    upstream->one_use = handles_keep_dangling();
    if (!make_multi(upstream) || !timers_promise(&worker->timers)) {
        if (upstream->multi != NULL)
            curl_multi_cleanup(upstream->multi);
        free(upstream);
        return NULL;
    }
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
        upstream_call_free(gone->spare);
        gone->spare = next;
    }
    if (gone->multi != NULL)
        curl_multi_cleanup(gone->multi); /* closes pooled sockets: upstream_on_socket_close() still runs */
    upstream_forget_sockets(gone);
    timer_clear(&gone->worker->timers, &gone->timer);
    timers_release(&gone->worker->timers);
    free(gone);
}
