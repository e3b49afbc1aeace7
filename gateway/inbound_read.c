/*
 * gateway/inbound_read.c - reads requests: heads, bodies, and what the head settles.
 *
 * Bytes are read into the worker's scratch memory and taken apart there; a body with a length is read where it will
 * stay. Only what can't be used yet is kept with the connection: part of a head, the beginning of a next request. Once
 * a request is whole nothing is read until its answer is on its way whole: a client that goes on sending fills its own
 * socket.
 *
 * Leaves to others: what makes a head sound (head.c, headers.c, chunks.c), the judgement (admission.c), what happens to
 * a whole request (request.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "gateway/inbound_int.h"
#include "gateway/mail_request.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/webhook.h"

enum {
    READS_PER_TURN = 8,     /* of one connection: the others have their turn too */
    EARLY_BODY = 64 * 1024, /* an announced body above this is not read when the head settles a refusal */
    BODY_STEP = 16 * 1024,  /* room for so much of a body is made before it is there */
    IN_STEP = 1024,
};

static const struct config *config_of(const struct connection *conn)
{
    return conn->inbound->worker->settings->config;
}

/* ---- the end of a request's coming ---- */

/* `more`: bytes of a next one have come with it. */
static void on_whole(struct connection *conn, bool more)
{
    struct request *request = conn->request;
    if (conn->body_waits)
        place_busy(&request->worker->gateway->places, &conn->place); /* if it is not */
    conn->body_waits = false;
    conn->next_begun = more;
    conn->step = CONNECTION_CALL;
    conn->deadline_ms = 0;
    request->started_ms = request->worker->now_ms;
    request_arrived(request);
}

/* Refused before it was read whole: the answer is the connection's last. */
static void stop_early(struct connection *conn, enum reason reason)
{
    struct request *request = conn->request;
    conn->body_waits = false;
    conn->step = CONNECTION_CALL;
    conn->deadline_ms = 0;
    conn->keep = false;
    conn->unread = true;
    request->refusal = reason;
    request_body_free(request);
    request_arrived(request);
}

bool connection_keeps_body(struct connection *conn)
{
    struct request *request = conn->request;
    if (request->refusal != REASON_NONE || request_judge_scarce(request) != REASON_NONE)
        return false;
    place_busy(&request->worker->gateway->places, &conn->place);
    return true; /* body_waits stays: it is not made idle again */
}

void connection_cut_short(struct connection *conn, enum reason reason, const char *detail)
{
    if (conn->step != CONNECTION_BODY) {
        answer_no_request(conn, reason, detail);
        return;
    }
    if (detail != NULL)
        snprintf(conn->request->detail, sizeof conn->request->detail, "%s", detail);
    stop_early(conn, reason);
}

/* ---- the body ---- */

static void refuse_after_body(struct request *request, enum reason reason)
{
    request->refusal = reason;
    request->discard = true;
    request_body_free(request);
}

/* May it have `more` bytes beside the `taken` ones that all bodies have? */
static enum reason judge_room(struct request *request, uint64_t taken, size_t more)
{
    uint64_t limit = request->settings->config->buffered_max;
    if (taken + more > limit) {
        request_tell_limit(request, "limits.buffered");
        return REASON_OVERLOADED;
    }
    if (taken - request->body_cap <= limit / 2 || request->room_granted)
        return REASON_NONE;
    enum reason reason = request_judge_scarce(request);
    request->room_granted = reason == REASON_NONE;
    return reason;
}

/* Makes room for `need` bytes within limits.buffered. False: there is none, and the request was refused. */
static bool body_room(struct request *request, size_t need)
{
    struct gateway *gateway = request->worker->gateway;
    if (need <= request->body_cap)
        return true;
    size_t cap = request->body_cap * 2;
    size_t most = request->body_announced > 0 ? request->body_announced : (size_t)request->settings->config->body_max;
    if (cap > most)
        cap = most;
    if (cap < need)
        cap = need;
    size_t more = cap - request->body_cap;
    uint64_t before = atomic_fetch_add_explicit(&gateway->buffered, more, memory_order_relaxed);
    enum reason reason = judge_room(request, before, more);
    char *body = reason != REASON_NONE ? NULL : realloc(request->body, cap);
    if (body == NULL) {
        atomic_fetch_sub_explicit(&gateway->buffered, more, memory_order_relaxed);
        if (reason == REASON_NONE)
            snprintf(request->detail, sizeof request->detail, "The gateway is out of memory.");
        refuse_after_body(request, reason != REASON_NONE ? reason : REASON_OVERLOADED);
        return false;
    }
    request->body = body;
    request->body_cap = cap;
    return true;
}

/* May so much more of the body come? A refused body is read to its end, but not for ever. */
static bool body_fits(const struct request *request, uint64_t more)
{
    uint64_t limit = request->settings->config->body_max, held = request->body_len;
    if (request->discard) {
        held = request->discarded;
        if (request->body_announced > limit) /* a length is known to be small */
            limit = EARLY_BODY;
    }
    return held <= limit && more <= limit - held;
}

static void too_large(struct connection *conn)
{
    enum reason refusal = conn->request->refusal; /* of several refusals the first one counts */
    bool earlier = refusal == REASON_MALFORMED_REQUEST || refusal == REASON_NO_ROUTE || refusal == REASON_LOOP_DETECTED;
    stop_early(conn, earlier ? refusal : REASON_BODY_TOO_LARGE);
}

/* False: it is too large, and was refused. */
static bool add_body(struct connection *conn, const char *data, size_t len)
{
    struct request *request = conn->request;
    if (!body_fits(request, len)) {
        too_large(conn);
        return false;
    }
    if (request->discard) {
        request->discarded += len;
    } else if (body_room(request, request->body_len + len)) {
        memcpy(request->body + request->body_len, data, len);
        request->body_len += len;
    }
    return true;
}

static size_t take_chunks(struct connection *conn, const char *data, size_t len)
{
    size_t at = 0;
    while (at < len && conn->chunks.state < CHUNKS_DONE) {
        struct slice body;
        at += chunks_take(&conn->chunks, data + at, len - at, &body);
        if (body.len > 0) {
            if (!add_body(conn, body.data, body.len))
                return at;
        } else if (conn->chunks.state == CHUNKS_DATA && !body_fits(conn->request, conn->chunks.left)) {
            too_large(conn); /* by its size line: its data need not come */
            return at;
        }
    }
    if (conn->chunks.state == CHUNKS_BROKEN) {
        snprintf(conn->request->detail, sizeof conn->request->detail, "The body's chunks are malformed.");
        stop_early(conn, REASON_MALFORMED_REQUEST);
    } else if (conn->chunks.state == CHUNKS_DONE) {
        on_whole(conn, at < len);
    }
    return at;
}

static size_t take_body(struct connection *conn, const char *data, size_t len)
{
    if (conn->chunked)
        return take_chunks(conn, data, len);
    size_t taken = conn->body_left < len ? (size_t)conn->body_left : len;
    if (add_body(conn, data, taken)) {
        conn->body_left -= taken;
        if (conn->body_left == 0)
            on_whole(conn, taken < len);
    }
    return taken;
}

/* ---- the head ---- */

static enum reason copy_head(struct request *request, const struct head *head, const struct screened *screened)
{
    struct slice method = head->method;
    const char *client = request->conn->client;
    request->head_method = method.len == 4 && memcmp(method.data, "HEAD", 4) == 0; /* first: an answer asks for these */
    request->http10 = head->http10;
    request->raw_target_len = head->target.len;
    request->raw_target = arena_copy(&request->arena, head->target.data, head->target.len);
    request->method = arena_copy(&request->arena, method.data, method.len);
    request->client = arena_copy(&request->arena, client, strlen(client));
    if (request->method == NULL || request->client == NULL || request->raw_target == NULL) {
        request->raw_target_len = 0;
        return REASON_OVERLOADED;
    }
    request->has_body_header = screened->has_length || screened->chunked || strcmp(request->method, "POST") == 0 ||
                               strcmp(request->method, "PUT") == 0 || strcmp(request->method, "PATCH") == 0;
    return REASON_NONE;
}

/* Everything the head settles; what goes to the partner is copied here, the bytes of the head are gone afterwards. */
static enum reason look_at_head(struct request *request, const struct head *head, struct screened *screened)
{
    const struct header_field *fields = head->fields;
    enum reason reason = copy_head(request, head, screened);
    if (reason == REASON_NONE)
        reason = request_judge_head(request, screened, fields, head->count);
    if (reason != REASON_NONE)
        return reason;
    if (request->route->config->kind == ROUTE_SMTP)
        return mail_request_take_head(request, fields, head->count) ? REASON_NONE : REASON_OVERLOADED;
    const struct target *target = request->webhook != NULL ? &request->webhook->parts : &request->target;
    const char *via = request->worker->gateway->via;
    switch (
        forward_build(&request->arena, request->route->config, fields, head->count, target, via, &request->forward)) {
    case FORWARD_OK: return REASON_NONE;
    case FORWARD_NO_MEMORY: return REASON_OVERLOADED;
    case FORWARD_MALFORMED: break;
    }
    return REASON_MALFORMED_REQUEST;
}

/* Broken framing and whatever leaves no sound body to read: answered at once, the connection is closed. */
static bool unreadable(enum reason reason, const struct screened *screened)
{
    return screened->problem != NULL || reason == REASON_METHOD_NOT_IMPLEMENTED || reason == REASON_EXPECTATION_FAILED;
}

/* Refused with its body unread: by now, or when the record of it is durable. */
static bool refused_by_fence(struct connection *conn)
{
    bool keep = conn->keep;
    conn->step = CONNECTION_CALL;
    conn->deadline_ms = 0; /* before: an answer that the kernel does not take sets its own */
    conn->keep = false;
    conn->unread = true;
    if (request_stale_early(conn->request))
        return true;
    conn->step = CONNECTION_BODY;
    conn->keep = keep;
    conn->unread = false;
    return false;
}

static void begin_body(struct connection *conn, const struct screened *screened, bool some_is_here)
{
    conn->step = CONNECTION_BODY;
    conn->chunked = screened->chunked;
    conn->chunks = (struct chunks){0};
    conn->body_left = screened->has_length ? screened->length : 0;
    if (!conn->chunked && conn->body_left == 0)
        on_whole(conn, some_is_here);
    else if (screened->expect_continue && !some_is_here)
        answer_continue(conn);
}

static void on_head(struct connection *conn, const struct head *head, bool some_is_here)
{
    struct request *request = request_new(conn->inbound->worker, conn);
    place_busy(&conn->inbound->worker->gateway->places, &conn->place);
    if (request == NULL) {
        answer_no_request(conn, REASON_OVERLOADED, "The gateway is out of memory.");
        return;
    }
    conn->request = request;
    struct screened screened;
    headers_frame(head->fields, head->count, head->http10, &screened);
    enum reason reason = look_at_head(request, head, &screened);
    bool large = screened.expect_continue || (screened.has_length && screened.length > EARLY_BODY);
    request->body_announced = screened.has_length ? (size_t)screened.length : 0;
    conn->keep = !screened.close && (!head->http10 || screened.keep_alive);
    if (reason != REASON_NONE && (large || unreadable(reason, &screened))) {
        stop_early(conn, reason);
        return;
    }
    if (reason == REASON_NONE && large && refused_by_fence(conn))
        return;
    if (reason != REASON_NONE)
        refuse_after_body(request, reason);
    begin_body(conn, &screened, some_is_here);
}

/* What is no request can't be told from what follows: the rest is not read. */
static size_t refuse_head(struct connection *conn, enum reason reason, const char *problem, size_t len)
{
    char text[200];
    snprintf(text, sizeof text, MALFORMED_HEAD, problem == NULL ? "" : problem);
    answer_no_request(conn, reason, problem == NULL ? NULL : text);
    return len;
}

/* How much of it was taken: all of the head, or nothing yet. */
static size_t take_head(struct connection *conn, const char *data, size_t len)
{
    struct worker *worker = conn->inbound->worker;
    const struct head_limits limits = {(size_t)config_of(conn)->headers_max, (size_t)config_of(conn)->headers_max / 2};
    struct head head = {.fields = conn->inbound->fields};
    if (conn->step == CONNECTION_IDLE) {
        conn->step = CONNECTION_HEAD;
        conn->begun_ms = worker->now_ms;
        conn->progress = (struct head_progress){0, 0};
    }
    switch (head_read(&conn->progress, data, len, &limits, &head)) {
    case HEAD_MORE: return 0;
    case HEAD_WHOLE: on_head(conn, &head, len > head.size); return head.size;
    case HEAD_BROKEN: return refuse_head(conn, REASON_MALFORMED_REQUEST, head.problem, len);
    case HEAD_TOO_LARGE: return refuse_head(conn, REASON_HEADERS_TOO_LARGE, NULL, len);
    case HEAD_TARGET_TOO_LONG: return refuse_head(conn, REASON_TARGET_TOO_LONG, NULL, len);
    case HEAD_FOREIGN_VERSION: return refuse_head(conn, REASON_VERSION_NOT_SUPPORTED, NULL, len);
    }
    return len;
}

/* ---- bytes ---- */

static bool wants_input(const struct connection *conn)
{
    return conn->step != CONNECTION_CALL && conn->step != CONNECTION_GONE;
}

/* How much was taken; up to one whole request. */
static size_t take_apart(struct connection *conn, const char *data, size_t len)
{
    size_t at = 0;
    while (at < len && (conn->step == CONNECTION_IDLE || conn->step == CONNECTION_HEAD)) {
        size_t taken = take_head(conn, data + at, len - at);
        if (taken == 0)
            return at;
        at += taken;
    }
    if (at < len && conn->step == CONNECTION_BODY)
        at += take_body(conn, data + at, len - at);
    return conn->step == CONNECTION_LINGER ? len : at;
}

static bool in_room(struct connection *conn, size_t more)
{
    if (conn->in_at > 0) {
        memmove(conn->in, conn->in + conn->in_at, conn->in_len - conn->in_at);
        conn->in_len -= conn->in_at;
        conn->in_at = 0;
    }
    if (conn->in_cap - conn->in_len >= more)
        return true;
    size_t need = (conn->in_len + more + IN_STEP - 1) / IN_STEP * IN_STEP, cap = conn->in_cap * 2;
    size_t most = (size_t)config_of(conn)->headers_max + IN_STEP; /* a head that is larger is refused */
    if (cap > most)
        cap = most;
    if (cap < need)
        cap = need;
    char *in = realloc(conn->in, cap);
    if (in == NULL)
        return false;
    conn->in = in;
    conn->in_cap = cap;
    return true;
}

static void take_kept(struct connection *conn)
{
    size_t taken = take_apart(conn, conn->in + conn->in_at, conn->in_len - conn->in_at);
    if (conn->in == NULL) /* a connection that lingers has dropped it */
        return;
    conn->in_at += taken;
    if (conn->in_at < conn->in_len)
        return;
    free(conn->in);
    conn->in = NULL;
    conn->in_at = conn->in_len = conn->in_cap = 0;
}

static void take_fresh(struct connection *conn, const char *data, size_t len)
{
    size_t taken = take_apart(conn, data, len);
    if (taken == len || conn->step == CONNECTION_GONE)
        return;
    if (!in_room(conn, len - taken)) { /* the answer to what was taken is the last one; else none was due */
        conn->keep = false;
        conn->unread = true;
        if (conn->step != CONNECTION_CALL)
            connection_end(conn);
        return;
    }
    memcpy(conn->in, data + taken, len - taken);
    conn->in_len = len - taken;
}

struct room {
    char *data;
    size_t len;
    enum { ROOM_SCRATCH, ROOM_KEPT, ROOM_BODY } kind;
};

/* Where the next bytes go; no room: the connection has ended. */
static bool find_room(struct connection *conn, struct room *room)
{
    struct request *request = conn->request;
    *room = (struct room){conn->inbound->scratch, sizeof conn->inbound->scratch, ROOM_SCRATCH};
    if (conn->step == CONNECTION_BODY && !conn->chunked && !request->discard) {
        size_t step = conn->body_left < BODY_STEP ? (size_t)conn->body_left : BODY_STEP;
        if (request->body_len == request->body_cap && !body_room(request, request->body_len + step))
            return true;
        room->data = request->body + request->body_len;
        room->len = request->body_cap - request->body_len;
        if (room->len > conn->body_left)
            room->len = (size_t)conn->body_left;
        room->kind = ROOM_BODY;
    } else if (conn->in_len > conn->in_at) {
        if (!in_room(conn, IN_STEP)) {
            connection_end(conn);
            return false;
        }
        room->data = conn->in + conn->in_len;
        room->len = conn->in_cap - conn->in_len;
        room->kind = ROOM_KEPT;
    }
    return true;
}

static void take_in(struct connection *conn, const struct room *room, size_t len)
{
    if (conn->step == CONNECTION_LINGER)
        return;
    switch (room->kind) {
    case ROOM_SCRATCH: take_fresh(conn, room->data, len); return;
    case ROOM_KEPT:
        conn->in_len += len;
        take_kept(conn);
        return;
    case ROOM_BODY:
        conn->request->body_len += len;
        conn->body_left -= len;
        if (conn->body_left == 0)
            on_whole(conn, false);
        return;
    }
}

/* A read that was shorter than it could be has taken all there was: epoll tells of more. */
static void read_some(struct connection *conn)
{
    struct room room;
    if (!find_room(conn, &room))
        return;
    ssize_t got = recv(conn->fd, room.data, room.len, 0);
    if (got > 0) {
        conn->readable = conn->ended || (size_t)got == room.len;
        take_in(conn, &room, (size_t)got);
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        conn->readable = false;
    } else if (got == 0 || errno != EINTR) { /* what was cut short never was a request */
        connection_end(conn);
    }
}

void connection_read(struct connection *conn)
{
    if (conn->step == CONNECTION_IDLE && conn->in_len > conn->in_at)
        take_kept(conn);
    for (int reads = 0; conn->readable && wants_input(conn); reads++) {
        if (reads == READS_PER_TURN) {
            connection_make_hungry(conn);
            break;
        }
        read_some(conn);
    }
    if (conn->step == CONNECTION_BODY && !conn->readable && !conn->body_waits) {
        conn->body_waits = true;
        place_idle(&conn->inbound->worker->gateway->places, &conn->place);
    }
    if (conn->step == CONNECTION_HEAD || conn->step == CONNECTION_BODY)
        connection_set_deadline(conn, conn->begun_ms + config_of(conn)->request_timeout_ms);
}
