/*
 * gateway/command_admin_client.c - libcurl's easy interface, for one call and no more. What is asked and what an answer
 * means is left to command_store.c.
 */
#include "gateway/command_admin_client.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#define CONNECT_MS 3000L
#define ANSWER_MS 30000L
#define ANSWER_BYTES (16u << 20) /* a thousand tokens with a dozen long names each */

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct jsonout *body = arg;
    size_t len = size * count;
    if (body->len + len > ANSWER_BYTES)
        return 0;
    jsonout_raw(body, data, len);
    return body->failed ? 0 : len;
}

static bool add_header(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer != NULL)
        *list = longer;
    return longer != NULL;
}

static bool set_headers(CURL *curl, const struct client_call *call, struct curl_slist **list)
{
    char line[1200];
    int len = snprintf(line, sizeof line, "Authorization: Bearer %s", call->token);
    bool ok = len > 0 && (size_t)len < sizeof line && add_header(list, line) && add_header(list, "Expect:");
    explicit_bzero(line, sizeof line);
    if (call->body != NULL)
        ok = ok && add_header(list, "Content-Type: application/json");
    return ok && curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *list) == CURLE_OK;
}

/* No proxy, no other protocol, no redirect: the token goes to the gateway or nowhere. */
static bool set_call(CURL *curl, const struct client_call *call, struct jsonout *body)
{
    char url[4096];
    int len = snprintf(url, sizeof url, "http://%s%s", call->address, call->target);
    bool ok = len > 0 && (size_t)len < sizeof url && curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_PROXY, "") == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, ANSWER_MS) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_WRITEDATA, body) == CURLE_OK;
    if (call->body != NULL)
        ok = ok && curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body) == CURLE_OK;
    return ok && curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method) == CURLE_OK;
}

enum client_result client_call(const struct client_call *call, long *status, struct jsonout *body, char *why,
                               size_t why_cap)
{
    struct curl_slist *headers = NULL;
    CURLcode code = CURLE_OUT_OF_MEMORY;
    *status = 0;
    CURL *curl = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_easy_init() : NULL;
    if (curl != NULL && set_call(curl, call, body) && set_headers(curl, call, &headers))
        code = curl_easy_perform(curl);
    if (code == CURLE_OK)
        code = curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status);
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    if (code == CURLE_OK)
        return CLIENT_ANSWERED;
    snprintf(why, why_cap, "%s", curl_easy_strerror(code));
    return code == CURLE_COULDNT_CONNECT ? CLIENT_UNREACHABLE : CLIENT_FAILED;
}
