/*
 * gateway/inbound_answer.c - makes responses: the gateway's own problem bodies, and a partner's answer as it comes.
 *
 * A partner's answer that has ended by the time its head is told goes out from memory in one piece; any other is
 * streamed: libmicrohttpd asks for more, and when there is none the connection is suspended until upstream has some.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "config/config.h"
#include "gateway/headers.h"
#include "gateway/inbound.h"
#include "gateway/inbound_int.h"
#include "gateway/jsonout.h"
#include "gateway/log.h"
#include "gateway/problem.h"
#include "gateway/report.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/token.h"
#include "gateway/upstream.h"
#include "gateway/worker.h"

enum { READ_PIECE = 16 * 1024 }; /* largest piece libmicrohttpd asks for */

static void resume(struct request *request)
{
    if (!request->suspended)
        return;
    request->suspended = false;
    request->conn->inbound->due = true;
    MHD_resume_connection(request->conn->mhd);
}

/* libmicrohttpd refuses what it can't send (CR, LF, an empty value): such a field is left out, never a crash. */
static bool add_header(struct request *request, const char *name, const char *value)
{
    if (value[0] == '\0')
        value = " "; /* the same on the wire; libmicrohttpd refuses an empty one */
    if (MHD_add_response_header(request->response, name, value) == MHD_YES)
        return true;
    struct log_line line;
    if (log_begin(&line, LOG_DEBUG, "header-left-out")) {
        report_id(&line, request->worker, request->number);
        log_cstring(&line, "header", name);
        log_end(&line);
    }
    return false;
}

/* An answer that does not say what became of the effect is worse than none: the connection is closed instead. */
static void add_effect(struct request *request)
{
    bool told = add_header(request, "Fencegate-Effect", effect_name(request->effect));
    if (told && request->effect_id != 0) {
        char id[TOKEN_DIGITS_MAX + 1];
        token_format(request->effect_id, id);
        told = add_header(request, "Fencegate-Effect-Id", id);
    }
    if (!told) {
        MHD_destroy_response(request->response);
        request->response = NULL;
    }
}

/* ---- the gateway's own answers ---- */

static struct problem problem_of(const struct request *request)
{
    struct problem problem = {
        .reason = request->reason,
        .status = request->status,
        .effect = request->effect,
        .detail = request->detail[0] == '\0' ? NULL : request->detail,
        .key = request->key,
        .token = request->token,
        .highest = request->highest,
        .audit_id = request->audit_id,
    };
    if (request->answer_detail != NULL)
        problem.detail = request->answer_detail;
    if (request->key.data != NULL)
        problem.ns = request->ns;
    return problem;
}

static void add_problem_headers(struct request *request, const struct problem *problem)
{
    add_header(request, "Content-Type", PROBLEM_CONTENT_TYPE);
    unsigned retry_after = request->retry_after != 0 ? request->retry_after : reason_table[problem->reason].retry_after;
    if (retry_after != 0) {
        char text[16];
        snprintf(text, sizeof text, "%u", retry_after);
        add_header(request, "Retry-After", text);
    }
    if (problem_no_retry(problem)) {
        add_header(request, "Stripe-Should-Retry", "false");
        add_header(request, "X-Should-Retry", "false");
    }
    if (problem->reason == REASON_METHOD_NOT_ALLOWED)
        add_header(request, "Allow", "POST");
    if (request->early)
        add_header(request, "Connection", "close");
}

/* What stands in the way, as far as the store knows it now; NULL: it has passed, or it was a read that failed. */
static const char *store_detail(const struct request *request, char *text, size_t cap)
{
    struct store_health health;
    store_health(request->worker->gateway->store, &health);
    if (health.reason == NULL)
        return NULL;
    snprintf(text, cap, "Nothing can be recorded, so nothing was sent: %s. Repeat the call later.", health.reason);
    return text;
}

void inbound_answer(struct request *request)
{
    if (request->conn == NULL || request->answer_begun)
        return;
    struct problem problem = problem_of(request);
    struct jsonout body = {0};
    char text[200];
    if (problem.reason == REASON_STORE_UNAVAILABLE)
        problem.detail = store_detail(request, text, sizeof text);
    problem_write(&body, &problem);
    jsonout_raw(&body, "\n", 1);
    if (!body.failed)
        request->response = MHD_create_response_from_buffer(body.len, body.text, MHD_RESPMEM_MUST_FREE);
    if (request->response == NULL)
        jsonout_free(&body); /* inbound_queue() closes the connection: no memory for an answer */
    else {
        add_problem_headers(request, &problem);
        add_effect(request);
    }
    request->answer_begun = true;
    resume(request);
}

void inbound_raw_answer(int fd, enum reason reason, const char *detail)
{
    struct problem problem = {.reason = reason, .effect = EFFECT_NOT_SENT, .detail = detail};
    struct jsonout body = {0};
    char head[512];
    problem_write(&body, &problem);
    jsonout_raw(&body, "\n", 1);
    if (!body.failed) {
        const char *no_retry =
            problem_no_retry(&problem) ? "Stripe-Should-Retry: false\r\nX-Should-Retry: false\r\n" : "";
        const char *retry = reason_table[reason].retry_after != 0 ? "Retry-After: 1\r\n" : "";
        int len = snprintf(head, sizeof head,
                           "HTTP/1.1 %u %s\r\nContent-Type: " PROBLEM_CONTENT_TYPE "\r\nContent-Length: %zu\r\n"
                           "Fencegate-Effect: not-sent\r\n%s%sConnection: close\r\n\r\n",
                           problem_status(&problem), reason_table[reason].title, body.len, no_retry, retry);
        struct iovec parts[2] = {{head, (size_t)len}, {body.text, body.len}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)sent; /* a fresh socket buffer takes it; else there is nobody to read it */
    }
    jsonout_free(&body);
    shutdown(fd, SHUT_WR);
}

/* ---- a partner's answer ---- */

/* An answer cut short must not look complete: without a length an HTTP/1.0 client would take the close for its end. */
static void reset(int fd)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    connect(fd, &none, sizeof none); /* on TCP: reset now. libmicrohttpd would end its side in good order first */
}

static ssize_t on_more_body(void *arg, uint64_t offset, char *out, size_t cap)
{
    (void)offset;
    struct request *request = arg;
    struct reply *reply = &request->reply;
    size_t got = reply_body_take(reply, out, cap);
    if (got > 0) {
        if (reply->paused && reply_body_waiting(reply) < REPLY_BODY_MAX / 2)
            upstream_resume(request);
        return (ssize_t)got;
    }
    if (reply->paused)
        upstream_resume(request); /* may add to the buffer at once */
    if (reply_body_waiting(reply) > 0)
        return (ssize_t)reply_body_take(reply, out, cap);
    if (reply->ended && !reply->cut_short)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (reply->ended) {
        if (request->http10 && !reply->has_length)
            reset(request->conn->fd);
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    request->suspended = true;
    MHD_suspend_connection(request->conn->mhd);
    return 0;
}

static void add_partner_headers(struct request *request)
{
    const struct reply *reply = &request->reply;
    struct hop_names hops = {.count = 0};
    struct header_field field;
    size_t at = 0;
    while (reply_next_field(reply, &at, &field))
        if (header_is(&field, "Connection"))
            hop_names_add(&hops, field.value, field.value_len);
    at = 0;
    while (reply_next_field(reply, &at, &field))
        if (headers_pass_response(&field, &hops))
            add_header(request, field.name, field.value);
}

static bool bodiless(const struct request *request)
{
    return request->head_method || request->reply.status == 304;
}

static struct MHD_Response *make_partner_response(struct request *request)
{
    struct reply *reply = &request->reply;
    if (reply->status == 204 || (reply->ended && !reply->cut_short && !bodiless(request)))
        return MHD_create_response_from_buffer(reply_body_waiting(reply), reply->body + reply->body_at,
                                               MHD_RESPMEM_PERSISTENT); /* the request outlives it */
    uint64_t length = reply->has_length ? reply->length : MHD_SIZE_UNKNOWN;
    struct MHD_Response *response = MHD_create_response_from_callback(length, READ_PIECE, on_more_body, request, NULL);
    /* Without a length libmicrohttpd would announce a chunked body, and some clients would wait for one; after HEAD it
     * even sends the last chunk, which the next answer would begin with. This costs the connection. */
    if (response != NULL && bodiless(request) && !reply->has_length)
        MHD_set_response_options(response, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    return response;
}

void inbound_reply_ready(struct request *request)
{
    if (request->conn == NULL)
        return;
    if (request->answer_begun) {
        resume(request);
        return;
    }
    request->effect = request->fenced ? EFFECT_SENT : EFFECT_UNFENCED;
    request->status = request->reply.status;
    request->response = make_partner_response(request);
    if (request->response != NULL) {
        add_partner_headers(request);
        add_effect(request);
    }
    request->answer_begun = true;
    resume(request);
}

enum MHD_Result inbound_queue(struct request *request)
{
    struct MHD_Response *response = request->response;
    request->response = NULL;
    request->phase = INBOUND_QUEUED;
    if (response == NULL)
        return MHD_NO;
    enum MHD_Result result = MHD_queue_response(request->conn->mhd, request->status, response);
    MHD_destroy_response(response);
    return result;
}
