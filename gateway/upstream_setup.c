/*
 * gateway/upstream_setup.c - sets up libcurl's handles: what is fixed for a route once, what belongs to a request for
 * each call, all of it, every time (a forgotten option of the last call would be a wrong call to a partner).
 */
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/upstream_int.h"
#include "gateway/webhook.h"

enum {
    /* Below the idle limit of the servers in use (Node.js: 5 s), else they close just as we send. */
    IDLE_CONNECTION_S = 4,
    CONNECTION_LIFETIME_S = 55, /* a changed DNS answer is followed within a minute */
};

static bool set_fixed(struct call *call)
{
    CURL *easy = call->easy;
    CURLcode bad = CURLE_OK;
#define SET(option, value) (bad = bad != CURLE_OK ? bad : curl_easy_setopt(easy, CURLOPT_##option, value))
    SET(PRIVATE, call);
    SET(ERRORBUFFER, call->error);
    SET(NOSIGNAL, 1L);
    SET(QUICK_EXIT,
        1L); /* else the end of a call joins its resolver's thread, and the whole loop waits for a slow server */
    SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(FOLLOWLOCATION, 0L);
    SET(PROXY, "");
    SET(NETRC, (long)CURL_NETRC_IGNORED);
    SET(PATH_AS_IS, 1L);
    SET(HTTP_CONTENT_DECODING, 0L);
    SET(MAXAGE_CONN, (long)IDLE_CONNECTION_S);
    SET(MAXLIFETIME_CONN, (long)CONNECTION_LIFETIME_S);
    SET(TCP_KEEPALIVE, 1L);
    SET(SSL_VERIFYPEER, 1L);
    SET(SSL_VERIFYHOST, 2L);
    SET(OPENSOCKETFUNCTION, upstream_on_socket_open);
    SET(OPENSOCKETDATA, call);
    SET(CLOSESOCKETFUNCTION, upstream_on_socket_close);
    SET(CLOSESOCKETDATA, call->upstream);
    SET(PREREQFUNCTION, upstream_on_before_sending);
    SET(PREREQDATA, call);
    SET(HEADERFUNCTION, upstream_on_head_line);
    SET(HEADERDATA, call);
    SET(WRITEFUNCTION, upstream_on_body);
    SET(WRITEDATA, call);
    const struct config_route *route = call->route;
    if (route->upstream_origin != NULL)
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
    ok = ok && webhook_prepare(request);
    const struct webhook *hook = request->webhook;
    for (size_t i = 0; ok && hook != NULL && i < WEBHOOK_LINES && hook->lines[i] != NULL; i++)
        ok = add_node(&request->arena, &tail, hook->lines[i]) != NULL;
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
    if (request->webhook != NULL)
        SET(URL, request->webhook->origin);
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
}

/* A pooled connection would keep libcurl from asking for a socket; of the two families' addresses none is waited for.
 */
static bool set_look(struct call *call, struct request *request)
{
    CURL *easy = call->easy;
    CURLcode bad = CURLE_OK;
    SET(URL, request->webhook->origin);
    SET(HTTPHEADER, NULL); /* those of the call before are gone */
    SET(FRESH_CONNECT, 1L);
    SET(HAPPY_EYEBALLS_TIMEOUT_MS, 1L);
    return bad == CURLE_OK;
#undef SET
}

bool upstream_call_is_tls(const struct call *call)
{
    const struct webhook *hook = call->request->webhook;
    return strncmp(hook != NULL ? hook->origin : call->route->upstream_origin, "https:", 6) == 0;
}

void upstream_call_free(struct call *call)
{
    if (call->easy != NULL)
        curl_easy_cleanup(call->easy);
    settings_unref(&call->settings);
    free(call);
}

bool upstream_set_up(struct call *call, struct request *request)
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
    return call->look ? set_look(call, request) : set_call(call, request);
}
