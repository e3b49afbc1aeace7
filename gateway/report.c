/* gateway/report.c - fills audit records and writes the access line from a request's fields. */
#include "gateway/report.h"

#include <string.h>

#include "config/config.h"
#include "gateway/log.h"
#include "gateway/metrics.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/token.h"
#include "gateway/token_watch.h"
#include "gateway/webhook.h"
#include "gateway/worker.h"

static struct slice of(const char *text)
{
    return text == NULL ? (struct slice){NULL, 0} : (struct slice){text, strlen(text)};
}

enum { PATH_MAX_BYTES = 1024, METHOD_MAX_BYTES = 64 };
static const char cut_mark[] = "\xe2\x80\xa6"; /* an ellipsis: no method or path has it, both are ASCII here */

/* Is this the percent-encoded form of a byte that goes on a UTF-8 character? */
static bool goes_on(const char *text)
{
    return text[0] == '%' && strchr("89abAB", text[1]) != NULL && text[1] != '\0';
}

/* Where text may be cut at or before `at`, with three bytes behind it: not inside a percent-encoded byte, nor between
 * those of one UTF-8 character. */
static size_t cut_at(const char *text, size_t at)
{
    if (text[at - 1] == '%')
        at -= 1;
    else if (text[at - 2] == '%')
        at -= 2;
    for (int step = 0; step < 3 && goes_on(text + at) && text[at - 3] == '%'; step++)
        at -= 3;
    return at;
}

/* As records have it: at most `max` bytes, with a mark at its end where it was cut. What anybody can send must not
 * fill the store. */
static struct slice cut(struct request *request, const char *text, size_t len, size_t max)
{
    if (len <= max)
        return (struct slice){text, len};
    size_t kept = cut_at(text, max - (sizeof cut_mark - 1));
    char *out = arena_alloc(&request->arena, kept + sizeof cut_mark);
    if (out == NULL)
        return (struct slice){text, kept};
    memcpy(out, text, kept);
    memcpy(out + kept, cut_mark, sizeof cut_mark);
    return (struct slice){out, kept + sizeof cut_mark - 1};
}

/* Of a webhook: scheme, host and port. Absent where they could not be read. */
static struct slice target_of(const struct request *request)
{
    const char *origin = request->webhook == NULL ? "" : request->webhook->origin;
    return of(origin[0] == '\0' ? NULL : origin);
}

unsigned report_status(const struct request *request)
{
    const struct config_route *route = request->route == NULL ? NULL : request->route->config;
    switch (request->reason) {
    case REASON_NONE: return request->reply.status;
    case REASON_STALE_TOKEN:
    case REASON_SUPERSEDED:
    case REASON_TOKEN_USED:
        if (route != NULL)
            return route->stale_status;
        break;
    case REASON_MISSING_TOKEN:
    case REASON_MISSING_KEY:
        if (route != NULL)
            return route->missing_status;
        break;
    default: break;
    }
    return reason_table[request->reason].status;
}

enum reason report_verdict_reason(enum store_verdict verdict)
{
    switch (verdict) {
    case VERDICT_STALE: return REASON_STALE_TOKEN;
    case VERDICT_USED: return REASON_TOKEN_USED;
    case VERDICT_IMPLAUSIBLE: return REASON_IMPLAUSIBLE_TOKEN;
    case VERDICT_ACCEPTED: break;
    }
    return REASON_NONE;
}

static struct audit_record subject(struct request *request)
{
    return (struct audit_record){
        .effect_id = request->effect_id,
        .route = of(request->route->config->name),
        .ns = request->ns,
        .key = request->key,
        .token = request->token,
        .highest = request->highest,
        .method = cut(request, request->method, strlen(request->method), METHOD_MAX_BYTES),
        .path = cut(request, request->target.path, request->target.path_len, PATH_MAX_BYTES),
        .client = of(request->client),
        .target = target_of(request),
    };
}

void report_fill(struct request *request, enum audit_kind kind)
{
    struct audit_record *record = &request->op.record;
    enum reason reason = request->would_drop ? request->would_reason : request->reason;
    *record = subject(request);
    record->kind = kind;
    record->would_drop = request->would_drop;
    record->reason = reason == REASON_NONE ? (struct slice){NULL, 0} : of(reason_table[reason].slug);
    record->status = request->status;
    record->upstream_status = request->upstream_status;
    record->note = of(request->note);
    if (request->would_drop && request->note == NULL && request->reason != REASON_NONE)
        record->note = of(reason_table[request->reason].slug);
    if (kind == AUDIT_SENT || kind == AUDIT_NOT_SENT || kind == AUDIT_UNKNOWN) {
        record->has_bytes = true;
        record->request_bytes = request->request_bytes;
        record->response_bytes = request->response_bytes;
        record->duration_ms = request->worker->now_ms - request->started_ms;
    } else if (request->reason == REASON_SUPERSEDED) {
        record->accepted_ms = request->accepted_ms;
    }
}

void report_fill_intent(struct request *request)
{
    struct store_op *op = &request->op;
    const struct config_route *route = request->route->config;
    op->record = subject(request);
    op->record.highest = 0;
    op->record.would_drop = request->would_drop;
    if (request->would_drop)
        op->record.reason = of(reason_table[request->would_reason].slug);
    static const enum store_verdict refusals[] = {VERDICT_STALE, VERDICT_USED, VERDICT_IMPLAUSIBLE};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        enum reason reason = report_verdict_reason(refusals[i]);
        op->admit.refusal[refusals[i]].reason = of(reason_table[reason].slug);
        op->admit.refusal[refusals[i]].status =
            reason == REASON_IMPLAUSIBLE_TOKEN ? reason_table[reason].status : route->stale_status;
    }
}

void report_id(struct log_line *line, const struct worker *worker, uint64_t number)
{
    char id[sizeof worker->id_prefix + TOKEN_DIGITS_MAX + 1];
    size_t len = strlen(worker->id_prefix);
    memcpy(id, worker->id_prefix, len);
    len += token_format(number, id + len);
    log_string(line, "request_id", id, len);
}

static void access_line(const struct request *request)
{
    struct log_line line;
    enum log_level level = request->effect == EFFECT_UNKNOWN ? LOG_WARN : LOG_INFO;
    if (!log_begin(&line, level, "request"))
        return;
    report_id(&line, request->worker, request->number);
    log_cstring(&line, "client", request->client);
    log_cstring(&line, "route", request->route == NULL ? NULL : request->route->config->name);
    log_cstring(&line, "method", request->method);
    log_string(&line, "path", request->target.path, request->target.path_len);
    struct slice target = target_of(request);
    log_string(&line, "target", target.data, target.len);
    log_string(&line, "namespace", request->key.data == NULL ? NULL : request->ns.data, request->ns.len);
    log_string(&line, "key", request->key.data, request->key.len);
    log_id(&line, "token", request->token);
    log_id(&line, "highest", request->highest);
    log_number(&line, "status", request->status);
    log_cstring(&line, "effect", effect_name(request->effect));
    log_cstring(&line, "reason", request->reason == REASON_NONE ? NULL : reason_table[request->reason].slug);
    log_id(&line, "effect_id", request->effect_id);
    log_id(&line, "audit_id", request->audit_id);
    if (request->would_drop)
        log_cstring(&line, "would_drop", reason_table[request->would_reason].slug);
    log_cstring(&line, "note", request->note);
    log_cstring(&line, "detail", request->detail[0] == '\0' ? NULL : request->detail);
    log_number(&line, "request_bytes", request->request_bytes);
    log_number(&line, "response_bytes", request->response_bytes);
    log_number(&line, "duration_ms", request->worker->now_ms - request->started_ms);
    log_end(&line);
}

void report_ended(const struct request *request)
{
    metrics_request(request->route == NULL ? request->worker->no_route : request->route->metrics, request->effect,
                    request->reason, request->worker->now_ms);
    if (request->route != NULL && reason_table[request->reason].audit_kind == AUDIT_DROPPED)
        metrics_drop(request->route->metrics, request->reason, request->drop_stage);
    if (request->reason == REASON_STALE_TOKEN || (request->would_drop && request->would_reason == REASON_STALE_TOKEN))
        token_watch_stale(metrics_watch(request->route->metrics), request->ns, request->key, request->worker->now_ms);
    if (request->settings->config->log_access || request->effect == EFFECT_UNKNOWN)
        access_line(request);
}

void report_turned_away(struct worker *worker, const char *route, const char *client, enum reason reason)
{
    struct log_line line;
    metrics_request(route == NULL ? worker->no_route : metrics_route(route), EFFECT_NOT_SENT, reason, worker->now_ms);
    if (!worker->settings->config->log_access || !log_begin(&line, LOG_INFO, "request"))
        return;
    report_id(&line, worker, ++worker->requests);
    log_cstring(&line, "client", client);
    log_cstring(&line, "route", route);
    log_number(&line, "status", reason_table[reason].status);
    log_cstring(&line, "effect", effect_name(EFFECT_NOT_SENT));
    log_cstring(&line, "reason", reason_table[reason].slug);
    log_end(&line);
}
