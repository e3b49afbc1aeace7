/*
 * gateway/admin_calls.c - what each admin call answers.
 *
 * A new call is a function and a line in `calls`. Connections and headers are admin.c's; the words of a query are
 * admin_query.c's, those of a body admin_body.c's; tokens and names are admin_guard.c's. Changes are in
 * admin_operate.c, lists in admin_list.c.
 */
#include "gateway/admin_calls.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gateway/admin_int.h"
#include "gateway/admin_operate.h"
#include "gateway/command.h"
#include "gateway/dashboard.h"
#include "gateway/metrics.h"
#include "gateway/unresolved_watch.h"
#include "gateway/problem.h"
#include "gateway/timers.h"
#include "gateway/token.h"
#include "store/store.h"

/* An audit page is cut at this many bytes of JSON, whatever its limit: paths of some thousand bytes each would
 * otherwise add up to tens of megabytes. next_after says where to go on. */
#define AUDIT_PAGE_BYTES (4u << 20)
/* And after about this time, with what was found until then: a filter that hardly anything passes would have the whole
 * audit read while other calls, the probes among them, wait. */
#define AUDIT_PATIENCE_MS 200
#define REFUSED_TOLD_MS 1000u

static const struct {
    unsigned status;
    const char *slug, *title;
} problems[] = {
    [ADMIN_MALFORMED] = {400, "malformed-request", "Malformed request"},
    [ADMIN_UNAUTHORIZED] = {401, "unauthorized", "Unauthorized"},
    [ADMIN_NOT_FOUND] = {404, "not-found", "Not found"},
    [ADMIN_METHOD] = {405, "method-not-allowed", "Method not allowed"},
    [ADMIN_TOO_LARGE] = {413, "body-too-large", "Request body too large"},
    [ADMIN_EXPECTATION] = {417, "expectation-failed", "Expectation failed"},
    [ADMIN_STORE] = {503, "store-unavailable", "Store unavailable"},
    [ADMIN_WOULD_LOWER] = {409, "would-lower", "Token below the fence"},
    [ADMIN_RESOLVED] = {409, "already-resolved", "Effect already resolved"},
    [ADMIN_HEAD_TOO_LARGE] = {431, "headers-too-large", "Request headers too large"},
    [ADMIN_TARGET_TOO_LONG] = {414, "target-too-long", "Request target too long"},
    [ADMIN_VERSION] = {505, "version-not-supported", "HTTP version not supported"},
    [ADMIN_TIMEOUT] = {408, "request-timeout", "Request not received in time"},
    [ADMIN_FULL] = {503, "overloaded", "Overloaded"},
};

const char *admin_problem_title(enum admin_problem kind)
{
    return problems[kind].title;
}

void admin_problem(struct admin_answer *answer, enum admin_problem kind, const char *detail)
{
    admin_problem_about(answer, kind, detail, NULL);
}

void admin_problem_about(struct admin_answer *answer, enum admin_problem kind, const char *detail,
                         const struct admin_subject *subject)
{
    const char *slug = problems[kind].slug, *title = problems[kind].title;
    char type[64], longer[ADMIN_WHY_CAP + sizeof(((struct admin_context *)0)->hint)];
    snprintf(type, sizeof type, "urn:fencegate:problem:%s", slug);
    if (answer->hint != NULL) {
        snprintf(longer, sizeof longer, "%s %s", detail, answer->hint);
        detail = longer;
    }
    struct jsonout *out = &answer->body;
    jsonout_reset(out);
    jsonout_object_begin(out);
    jsonout_member_cstring(out, "type", type);
    jsonout_member_cstring(out, "title", title);
    jsonout_member_number(out, "status", problems[kind].status);
    jsonout_member_cstring(out, "detail", detail);
    jsonout_member_cstring(out, "reason", slug);
    if (answer->hint != NULL) {
        jsonout_member_cstring(out, "effect", effect_name(EFFECT_NOT_SENT));
    }
    if (subject != NULL) {
        jsonout_member_string(out, "namespace", subject->ns.data, subject->ns.len);
        jsonout_member_string(out, "key", subject->key.data, subject->key.len);
        jsonout_member_id(out, "token", subject->token);
        jsonout_member_id(out, "highest", subject->highest);
    }
    jsonout_member_cstring(out, "message", title);
    jsonout_member_cstring(out, "Message", title);
    jsonout_member_number(out, "ErrorCode", 0);
    jsonout_name(out, "error");
    jsonout_object_begin(out);
    jsonout_member_cstring(out, "type", "fencegate_error");
    jsonout_member_cstring(out, "code", slug);
    jsonout_member_cstring(out, "message", detail);
    jsonout_object_end(out);
    jsonout_object_end(out);
    answer->status = problems[kind].status;
    answer->content_type = PROBLEM_CONTENT_TYPE;
    answer->challenge = kind == ADMIN_UNAUTHORIZED;
    answer->retry_after = problems[kind].status == 503 ? 1 : 0;
}

void admin_json_answer(struct admin_answer *answer, unsigned status)
{
    answer->status = status;
    answer->content_type = "application/json";
}

static void answer_healthz(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    (void)context;
    (void)in;
    jsonout_object_begin(&answer->body);
    jsonout_member_cstring(&answer->body, "status", "ok");
    jsonout_object_end(&answer->body);
    admin_json_answer(answer, 200);
}

const char *admin_not_ready(struct admin_context *context, struct store_health *health)
{
    store_health(context->options.store, health);
    if (context->options.shutting_down(context->options.arg))
        return "shutting down";
    if (health->writable)
        return NULL;
    return health->reason != NULL ? health->reason : "store not writable";
}

static void answer_readyz(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct store_health health;
    (void)in;
    const char *reason = admin_not_ready(context, &health);
    jsonout_object_begin(&answer->body);
    jsonout_member_cstring(&answer->body, "status", reason == NULL ? "ready" : "not-ready");
    jsonout_member_cstring(&answer->body, "reason", reason);
    jsonout_object_end(&answer->body);
    admin_json_answer(answer, reason == NULL ? 200 : 503);
}

static void answer_metrics(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct store_health health;
    struct metrics_gauges gauges;
    (void)in;
    memset(&gauges, 0, sizeof gauges);
    store_health(context->options.store, &health);
    context->options.gauges(context->options.arg, &gauges);
    admin_look_at_store(context);
    (void)unresolved_look(context->options.store);
    metrics_write(&answer->body, &gauges, &health, &context->stats);
    answer->status = 200;
    answer->content_type = "text/plain; version=0.0.4; charset=utf-8";
}

bool admin_have_reader(struct admin_context *context, struct admin_answer *answer)
{
    if (context->reader == NULL && store_reader_open(context->options.store, &context->reader) != STORE_OK) {
        context->reader = NULL;
        admin_problem(answer, ADMIN_STORE, "The store can't be read.");
        return false;
    }
    return true;
}

bool admin_fence_path(struct call_input *in, struct slice *ns, struct slice *key, struct admin_answer *answer)
{
    if (!admin_decode(&in->captured[0], false) || !admin_decode(&in->captured[1], false)) {
        admin_problem(answer, ADMIN_MALFORMED, "The path has a broken percent escape.");
        return false;
    }
    *ns = (struct slice){in->captured[0].data, in->captured[0].len};
    *key = (struct slice){in->captured[1].data, in->captured[1].len};
    if (!admin_namespace_valid(*ns)) {
        admin_problem(answer, ADMIN_MALFORMED, "A namespace is 1 to 64 of A-Z a-z 0-9 . _ -");
        return false;
    }
    if (!key_valid(key->data, key->len)) {
        admin_problem(answer, ADMIN_MALFORMED, "A key is 1 to 255 bytes of UTF-8 without control characters.");
        return false;
    }
    return true;
}

static void answer_fence_get(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct fence_entry entry;
    char why[160];
    if (!admin_params_parse(in->query, NULL, 0, why, sizeof why)) {
        admin_problem(answer, ADMIN_MALFORMED, why);
        return;
    }
    if (!admin_fence_path(in, &entry.ns, &entry.key, answer) || !admin_have_reader(context, answer)) {
        return;
    }
    enum store_error error = store_fence_get(context->reader, entry.ns, entry.key, &entry.fence);
    if (error == STORE_NOT_FOUND) {
        admin_problem(answer, ADMIN_NOT_FOUND, "No token has been accepted for this key.");
        return;
    }
    if (error != STORE_OK) {
        admin_problem(answer, ADMIN_STORE, "The store can't be read.");
        return;
    }
    const struct admin_options *options = &context->options;
    uint64_t in_flight = options->in_flight(options->arg, entry.ns, entry.key);
    fence_write(&answer->body, &entry, &in_flight);
    admin_json_answer(answer, 200);
}

struct audit_page {
    struct jsonout *out;
    uint64_t last_id;
    bool cut;
};

static bool add_record(void *arg, const struct audit_record *record)
{
    struct audit_page *page = arg;
    audit_record_write(page->out, record);
    page->last_id = record->id;
    page->cut = page->out->len > AUDIT_PAGE_BYTES;
    return !page->cut && !page->out->failed;
}

static void answer_audit(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct audit_filter filter;
    struct timespec now;
    char why[ADMIN_WHY_CAP];
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    if (!admin_audit_filter(in->query, now_ms, &filter, why, sizeof why)) {
        admin_problem(answer, ADMIN_MALFORMED, why);
        return;
    }
    if (!admin_have_reader(context, answer)) {
        return;
    }
    filter.patience_ms = AUDIT_PATIENCE_MS;
    struct jsonout *out = &answer->body;
    struct audit_page page = {.out = out};
    uint64_t next_after = 0;
    jsonout_object_begin(out);
    jsonout_name(out, "records");
    jsonout_array_begin(out);
    if (store_audit_query(context->reader, &filter, add_record, &page, &next_after) != STORE_OK) {
        admin_problem(answer, ADMIN_STORE, "The store can't be read.");
        return;
    }
    jsonout_array_end(out);
    if (page.cut) {
        next_after = page.last_id;
    }
    jsonout_name(out, "next_after");
    if (next_after != 0) {
        jsonout_id(out, next_after);
    } else {
        jsonout_null(out);
    }
    jsonout_object_end(out);
    admin_json_answer(answer, 200);
}

static void answer_dashboard(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct dashboard_file file;
    (void)context;
    if (!dashboard_find(in->path.data, in->path.len, &file)) {
        admin_problem(answer, ADMIN_NOT_FOUND, "The dashboard has no such file.");
        return;
    }
    answer->status = 200;
    answer->content_type = file.content_type;
    answer->page = file.bytes;
}

/* HEAD is taken wherever GET is. */
static const struct call {
    const char *method, *pattern;
    bool open; /* answered without a token, under any name: probes and scrapers have neither, the dashboard asks for it
                */
    void (*answer)(struct admin_context *context, struct call_input *in, struct admin_answer *answer);
} calls[] = {
    {"GET", "/", true, answer_dashboard},
    {"GET", "/dashboard.css", true, answer_dashboard},
    {"GET", "/dashboard.js", true, answer_dashboard},
    {"GET", "/dashboard/{}", true, answer_dashboard},
    {"GET", "/healthz", true, answer_healthz},
    {"GET", "/readyz", true, answer_readyz},
    {"GET", "/metrics", true, answer_metrics},
    {"GET", "/v1/fences", false, admin_answer_fence_list},
    {"GET", "/v1/fences/{}/{}", false, answer_fence_get},
    {"PUT", "/v1/fences/{}/{}", false, admin_answer_raise},
    {"DELETE", "/v1/fences/{}/{}", false, admin_answer_reset},
    {"GET", "/v1/fences/{}/{}/history", false, admin_answer_history},
    {"GET", "/v1/effects", false, admin_answer_effects},
    {"POST", "/v1/effects/{}/resolve", false, admin_answer_resolve},
    {"GET", "/v1/audit", false, answer_audit},
    {"GET", "/v1/stats", false, admin_answer_stats},
};

struct found {
    const struct call *call;     /* path and method fit */
    const struct call *any_call; /* the path fits; the last one that does */
};

static struct found find_call(const char *method, struct call_input *in, char allow[32])
{
    struct found found = {NULL, NULL};
    size_t used = 0;
    if (strcmp(method, "HEAD") == 0) {
        method = "GET";
    }
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const struct call *call = &calls[i];
        if (!admin_path_match(call->pattern, in->path, in->captured)) {
            continue;
        }
        found.any_call = call;
        if (strcmp(call->method, method) == 0) {
            found.call = call;
            return found;
        }
        const char *shown = strcmp(call->method, "GET") == 0 ? "GET, HEAD" : call->method;
        used += (size_t)snprintf(allow + used, 32 - used, "%s%s", used > 0 ? ", " : "", shown);
    }
    return found;
}

/* Never what was sent as a token: it may be the right one with a slip of the hand. */
static void tell_refused(struct admin_context *context, const struct admin_request *request, const char *why)
{
    struct log_line line;
    uint64_t skipped;
    if (!log_rate_pass(&context->refused_told, monotonic_ms(), REFUSED_TOLD_MS, &skipped) ||
        !log_begin(&line, LOG_WARN, "admin-refused"))
        return;
    log_cstring(&line, "client", request->client);
    log_cstring(&line, "message", why);
    log_number(&line, "skipped", skipped);
    log_end(&line);
}

static bool knows_host(const struct admin_context *context, const char *host)
{
    return admin_host_private(host) || admin_host_named(host, context->options.hosts);
}

/* A name that a stranger's page can have gets malformed-request, before the token is looked at: whether it was right is
 * nothing such a page should learn. */
static bool may_ask(struct admin_context *context, const struct admin_request *request, struct admin_answer *answer)
{
    char named[ADMIN_HOST_CAP]; /* by the target itself, which counts more than Host (RFC 9112, 3.2.2) */
    bool valid = admin_target_host(request->target, named);
    if (!valid || !knows_host(context, request->host) || (named[0] != '\0' && !knows_host(context, named))) {
        tell_refused(context, request, "host of another site");
        admin_problem(
            answer, ADMIN_MALFORMED,
            "Host must be an IP address, a name without a dot, one under localhost, local, internal or svc, or "
            "one that admin.hosts lists: other names could be pointed here by a page in a browser.");
        return false;
    }
    if (!admin_origin_same(request->origin, request->host) ||
        (named[0] != '\0' && !admin_origin_same(request->origin, named))) {
        tell_refused(context, request, "origin of another site");
        admin_problem(answer, ADMIN_MALFORMED, "Origin is that of another site.");
        return false;
    }
    if (!admin_token_matches(&context->token, request->authorization)) {
        tell_refused(context, request, request->authorization == NULL ? "no token" : "wrong token");
        admin_problem(answer, ADMIN_UNAUTHORIZED,
                      request->authorization == NULL ? "This call needs Authorization: Bearer with the admin token."
                                                     : "The admin token is not the right one.");
        return false;
    }
    return true;
}

bool admin_method_changes(const char *method)
{
    return strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0 && strcmp(method, "OPTIONS") != 0;
}

/* A worker with the wrong port learns it from every refusal: until a change is known to be an operator's, it may be a
 * call for a partner. */
struct admin_change *admin_call(struct admin_context *context, const struct admin_request *request,
                                struct admin_answer *answer)
{
    struct call_input in = {.request = request};
    char allow[sizeof answer->allow] = "";
    const char *hint = answer->hint;
    if (admin_method_changes(request->method)) {
        answer->hint = context->hint;
    }
    if (!admin_target_split(request->target, &in.path, &in.query)) {
        admin_problem(answer, ADMIN_MALFORMED,
                      "The request target has no path, or bytes that must be percent-encoded.");
        return NULL;
    }
    struct found found = find_call(request->method, &in, allow);
    /* Under /v1/ a stranger doesn't even learn which calls there are. */
    bool open = found.any_call != NULL ? found.any_call->open : in.path.len < 4 || memcmp(in.path.data, "/v1/", 4) != 0;
    if (!open && !may_ask(context, request, answer)) {
        return NULL;
    }
    if (found.any_call == NULL) {
        admin_problem(answer, ADMIN_NOT_FOUND, "There is no such call. In a key, a slash is written %2F.");
    } else if (found.call == NULL) {
        memcpy(answer->allow, allow, sizeof allow);
        admin_problem(answer, ADMIN_METHOD, "This path does not take that method.");
    } else {
        answer->hint = hint;
        found.call->answer(context, &in, answer);
    }
    return in.change;
}
