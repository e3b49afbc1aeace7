/*
 * gateway/inbound_answer.c - makes answers: the gateway's own problem bodies, and a partner's answer as it comes.
 *
 * A head is made in the worker's own memory and goes out in one call with what there is of the body. A partner's answer
 * that has ended by the time its head is made gets its length; any other is streamed as it came: with the partner's
 * length, in chunks, or to an HTTP/1.0 client up to the connection's end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/config.h"
#include "gateway/inbound.h"
#include "gateway/inbound_int.h"
#include "gateway/phrase.h"
#include "gateway/problem.h"
#include "gateway/report.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/token.h"

/* ---- pieces of a head ---- */

static char *put(char *at, const char *data, size_t len)
{
    memcpy(at, data, len);
    return at + len;
}

#define PUT(at, literal) put(at, literal, sizeof(literal) - 1)

static char *put_text(char *at, const char *text)
{
    return put(at, text, strlen(text));
}

static char *put_number(char *at, uint64_t number)
{
    char digits[TOKEN_DIGITS_MAX + 1];
    size_t len = token_format(number, digits);
    return put(at, digits, len);
}

static char *put_status(char *at, unsigned status)
{
    at = PUT(at, "HTTP/1.1 ");
    *at++ = (char)('0' + status / 100 % 10);
    *at++ = (char)('0' + status / 10 % 10);
    *at++ = (char)('0' + status % 10);
    *at++ = ' ';
    return PUT(put_text(at, status_phrase(status)), "\r\n");
}

static char *put_length(char *at, uint64_t length)
{
    return PUT(put_number(PUT(at, "Content-Length: "), length), "\r\n");
}

/* Made once a second. */
static char *put_date(char *at, struct inbound *inbound)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (inbound->date_s != (uint64_t)now.tv_sec) {
        static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
        char text[96];
        struct tm utc;
        gmtime_r(&now.tv_sec, &utc);
        snprintf(text, sizeof text, "Date: %.3s, %02d %.3s %04d %02d:%02d:%02d GMT\r\n", days + utc.tm_wday * 3,
                 utc.tm_mday, months + utc.tm_mon * 3, (utc.tm_year + 1900) % 10000, utc.tm_hour, utc.tm_min,
                 utc.tm_sec);
        memcpy(inbound->date, text, DATE_LEN);
        inbound->date_s = (uint64_t)now.tv_sec;
    }
    return put(at, inbound->date, DATE_LEN);
}

/* During a shutdown the answer is the connection's last, if nothing waits behind it: the process may be gone when the
 * next request comes, and a reset would be all that its client gets. */
static void part_in_time(struct connection *conn)
{
    bool waits = conn->readable || conn->next_begun;
    bool leaving = atomic_load_explicit(&conn->inbound->worker->gateway->shutting_down, memory_order_relaxed);
    conn->keep = conn->keep && (waits || !leaving);
}

static char *put_connection(char *at, const struct connection *conn)
{
    if (!conn->keep)
        return PUT(at, "Connection: close\r\n");
    return conn->request->http10 ? PUT(at, "Connection: keep-alive\r\n") : at;
}

/* The end of every head: what became of the effect. */
static char *put_effect(char *at, enum effect effect, uint64_t effect_id)
{
    at = PUT(put_text(PUT(at, "Fencegate-Effect: "), effect_name(effect)), "\r\n");
    if (effect_id != 0)
        at = PUT(put_number(PUT(at, "Fencegate-Effect-Id: "), effect_id), "\r\n");
    return PUT(at, "\r\n");
}

static struct slice head_up_to(const struct inbound *inbound, const char *at)
{
    return (struct slice){inbound->head, (size_t)(at - inbound->head)};
}

/* ---- on its way ---- */

static void answer_sent(struct connection *conn)
{
    conn->answered = true;
    connection_make_due(conn);
}

/* An answer that was cut short must not look whole: a missing length or last chunk shows it, else the close must. */
static void cut(struct connection *conn)
{
    conn->keep = false;
    conn->reset = conn->framing == FRAMING_CLOSE;
}

/* The size line of a chunk goes behind what `first` holds. */
static struct slice put_chunk_size(struct connection *conn, struct slice first)
{
    static const char hex[] = "0123456789abcdef";
    char *begin = conn->inbound->head + first.len, *at = begin;
    for (int shift = 60; shift >= 0; shift -= 4)
        if (at > begin || conn->piece >> shift != 0)
            *at++ = hex[conn->piece >> shift & 15];
    at = PUT(at, "\r\n");
    return head_up_to(conn->inbound, at);
}

/* What goes next of a partner's body. */
static struct slice next_piece(struct connection *conn, struct slice first)
{
    static const struct slice chunk_end = {"\r\n", 2}, body_end = {"\r\n0\r\n\r\n", 7};
    const struct reply *reply = &conn->request->reply;
    bool whole = reply->ended && !reply->cut_short;
    size_t waiting = reply_body_waiting(reply);
    conn->last = reply->ended;
    switch (conn->framing) {
    case FRAMING_LENGTH:
        conn->piece = waiting < conn->answer_left ? waiting : (size_t)conn->answer_left;
        conn->answer_left -= conn->piece;
        break;
    case FRAMING_CHUNKED:
        conn->piece = waiting;
        if (waiting > 0) {
            conn->post = whole ? body_end : chunk_end;
            first = put_chunk_size(conn, first);
        } else if (whole) {
            conn->post = (struct slice){body_end.data + 2, body_end.len - 2};
        }
        break;
    case FRAMING_CLOSE: conn->piece = waiting; break;
    default: break;
    }
    if (reply->ended && reply->cut_short)
        cut(conn);
    return first;
}

/* `first` is in inbound->head, or nothing. */
static void stream(struct connection *conn, struct slice first)
{
    for (;;) {
        bool between = conn->piece == 0 && conn->post.len == 0;
        if (between && !conn->last)
            first = next_piece(conn, first);
        if (!connection_send(conn, first))
            return;
        first = (struct slice){NULL, 0};
        if (conn->last)
            answer_sent(conn);
        if (conn->last || (reply_body_waiting(&conn->request->reply) == 0 && !conn->request->reply.ended))
            return;
    }
}

void answer_go_on(struct connection *conn)
{
    static const struct slice nothing = {NULL, 0};
    if (conn->framing != FRAMING_NONE && conn->framing != FRAMING_MADE)
        stream(conn, nothing);
    else if (!connection_send(conn, nothing))
        return;
    else if (conn->step == CONNECTION_LINGER)
        connection_linger(conn);
    else if (conn->framing == FRAMING_MADE)
        answer_sent(conn);
}

void answer_continue(struct connection *conn)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!connection_send(conn, (struct slice){text, sizeof text - 1}))
        return; /* what does not go yet is kept */
}

/* ---- the gateway's own answers ---- */

static struct problem problem_of(const struct request *request)
{
    struct problem problem = {
        .reason = request->conn->reason,
        .status = request->status,
        .effect = request->effect,
        .detail = request->detail[0] == '\0' ? NULL : request->detail,
        .key = request->key,
        .token = request->token,
        .highest = request->highest,
        .audit_id = request->audit_id,
    };
    if (request->answer_detail != NULL && request->answer_detail_of == problem.reason)
        problem.detail = request->answer_detail;
    if (request->key.data != NULL)
        problem.ns = request->ns;
    return problem;
}

/* What stands in the way, as far as the store knows it now, else the request's own detail. */
static const char *store_detail(const struct request *request, char *text, size_t cap)
{
    struct store_health health;
    store_health(request->worker->gateway->store, &health);
    if (health.reason == NULL)
        return request->detail[0] == '\0' ? NULL : request->detail;
    snprintf(text, cap, "Nothing can be recorded, so nothing was sent: %s. Repeat the call later.", health.reason);
    return text;
}

static bool make_body(struct inbound *inbound, const struct problem *problem)
{
    jsonout_reset(&inbound->body);
    problem_write(&inbound->body, problem);
    jsonout_raw(&inbound->body, "\n", 1);
    return !inbound->body.failed;
}

/* Up to where the effect is told. */
static char *put_problem_head(struct inbound *inbound, const struct problem *problem, unsigned retry_after)
{
    char *at = put_status(inbound->head, problem_status(problem));
    at = put_length(PUT(put_date(at, inbound), "Content-Type: " PROBLEM_CONTENT_TYPE "\r\n"), inbound->body.len);
    if (retry_after == 0)
        retry_after = reason_table[problem->reason].retry_after;
    if (retry_after != 0)
        at = PUT(put_number(PUT(at, "Retry-After: "), retry_after), "\r\n");
    if (problem_no_retry(problem))
        at = PUT(at, "Stripe-Should-Retry: false\r\nX-Should-Retry: false\r\n");
    if (problem->reason == REASON_METHOD_NOT_ALLOWED)
        at = PUT(at, "Allow: POST\r\n");
    return at;
}

static bool send_made(struct connection *conn, struct slice head, bool with_body)
{
    const struct jsonout *body = &conn->inbound->body;
    conn->framing = FRAMING_MADE;
    conn->post = with_body ? (struct slice){body->text, body->len} : (struct slice){NULL, 0};
    return connection_send(conn, head);
}

static void answer_ourselves(struct connection *conn)
{
    const struct request *request = conn->request;
    struct problem problem = problem_of(request);
    char text[200];
    if (problem.reason == REASON_STORE_UNAVAILABLE)
        problem.detail = store_detail(request, text, sizeof text);
    if (!make_body(conn->inbound, &problem)) {
        connection_end(conn); /* no memory for an answer */
        return;
    }
    part_in_time(conn);
    char *at = put_problem_head(conn->inbound, &problem, request->retry_after);
    at = put_effect(put_connection(at, conn), request->effect, request->effect_id);
    if (send_made(conn, head_up_to(conn->inbound, at), !request->head_method))
        answer_sent(conn);
}

void answer_no_request(struct connection *conn, enum reason reason, const char *detail)
{
    struct inbound *inbound = conn->inbound;
    struct problem problem = {.reason = reason, .effect = EFFECT_NOT_SENT, .detail = detail};
    report_turned_away(inbound->worker, NULL, conn->client, reason);
    conn->keep = false;
    if (!make_body(inbound, &problem)) {
        connection_end(conn);
        return;
    }
    char *at = put_connection(put_problem_head(inbound, &problem, 0), conn);
    at = put_effect(at, EFFECT_NOT_SENT, 0);
    if (send_made(conn, head_up_to(inbound, at), true) || conn->blocked)
        connection_linger(conn);
}

/* ---- a partner's answer ---- */

/* And a Date where the partner gave none. */
static char *put_fields(char *at, struct inbound *inbound, const struct reply *reply)
{
    if (reply->head_len > 0)
        at = put(at, reply->head, reply->head_len);
    return reply->dated ? at : put_date(at, inbound);
}

static char *put_framing(char *at, struct connection *conn)
{
    const struct request *request = conn->request;
    const struct reply *reply = &request->reply;
    if (request->head_method || reply->status == 204 || reply->status == 304) {
        conn->framing = FRAMING_BODILESS;
        return reply->has_length && reply->status != 204 ? put_length(at, reply->length) : at;
    }
    bool whole = reply->ended && !reply->cut_short;
    if (whole || reply->has_length) {
        conn->framing = FRAMING_LENGTH;
        conn->answer_left = whole ? reply_body_waiting(reply) : reply->length;
        return put_length(at, conn->answer_left);
    }
    conn->framing = request->http10 ? FRAMING_CLOSE : FRAMING_CHUNKED;
    conn->keep = conn->keep && !request->http10;
    return request->http10 ? at : PUT(at, "Transfer-Encoding: chunked\r\n");
}

/* False: no memory. */
static bool make_head_room(struct inbound *inbound, size_t len)
{
    if (len <= inbound->head_cap)
        return true;
    char *bigger = realloc(inbound->head, len);
    if (bigger == NULL)
        return false;
    inbound->head = bigger;
    inbound->head_cap = len;
    return true;
}

static struct slice begin(struct connection *conn)
{
    const struct request *request = conn->request;
    conn->last = false;
    part_in_time(conn);
    char *at = put_status(conn->inbound->head, request->status);
    at = put_framing(put_fields(at, conn->inbound, &request->reply), conn);
    at = put_effect(put_connection(at, conn), request->effect, request->effect_id);
    return head_up_to(conn->inbound, at);
}

/* ---- what requests tell ---- */

void inbound_answer(struct request *request)
{
    struct connection *conn = request->conn;
    if (conn == NULL || request->answer_begun)
        return;
    request->answer_begun = true;
    conn->reason = request->reason;
    connection_make_due(conn);
}

void inbound_reply_ready(struct request *request)
{
    struct connection *conn = request->conn;
    if (conn == NULL)
        return;
    if (!request->answer_begun) {
        request->answer_begun = true;
        request->effect = request->fenced ? EFFECT_SENT : EFFECT_UNFENCED;
        request->status = request->reply.status;
    }
    connection_make_due(conn);
}

void answer_tell(struct connection *conn)
{
    if (conn->framing == FRAMING_NONE && conn->reason != REASON_NONE)
        answer_ourselves(conn);
    else if (conn->framing == FRAMING_NONE && !make_head_room(conn->inbound, conn->request->reply.head_len + HEAD_OWN))
        connection_end(conn); /* no memory for the answer */
    else if (conn->framing == FRAMING_NONE)
        stream(conn, begin(conn));
    else if (conn->framing != FRAMING_MADE && !conn->blocked)
        stream(conn, (struct slice){NULL, 0});
}
