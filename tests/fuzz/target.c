/* tests/fuzz/target.c - URLs that a request names as its webhook's target: what is accepted has one reading, libcurl's
 * too, and is the same when it is written again. */
#include <curl/curl.h>

#include "gateway/webhook_target.h"
#include "tests/fuzz/fuzz.h"

static char *part(CURLU *url, CURLUPart what, unsigned flags)
{
    char *text = NULL;
    require(curl_url_get(url, what, &text, flags) == CURLUE_OK);
    return text;
}

/* Its host may be a name that it reads as an address: that is judged when a socket is opened. */
static void as_libcurl_reads_it(const char *text, const struct webhook_target *is)
{
    CURLU *url = curl_url();
    require(url != NULL && curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK);
    char *scheme = part(url, CURLUPART_SCHEME, 0), *port = part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT), *user;
    require(strcmp(scheme, is->https ? "https" : "http") == 0 && strtoul(port, NULL, 10) == is->port);
    require(curl_url_get(url, CURLUPART_USER, &user, 0) != CURLUE_OK);
    require(curl_url_get(url, CURLUPART_FRAGMENT, &user, 0) != CURLUE_OK);
    char *host = part(url, CURLUPART_HOST, 0);
    size_t len = strlen(host);
    if (len > 1 && host[len - 1] == '.')
        host[--len] = '\0';
    require(host[0] == '[' || strcasecmp(host, is->host) == 0 || strspn(host, "0123456789.") == len);
    curl_free(scheme);
    curl_free(port);
    curl_free(host);
    curl_url_cleanup(url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct webhook_target is, again;
    char *text = copy_of(data, size, false);
    if (webhook_target_parse(text, size, &is) == NULL) {
        char origin[WEBHOOK_ORIGIN_MAX], *whole, *terminated = copy_of(data, size, true);
        for (const char *p = is.host; *p != '\0'; p++)
            require((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || strchr("-_.[]:", *p) != NULL);
        require(is.host[0] != '\0' && is.port != 0 && is.parts.path[0] == '/');
        require(strlen(terminated) == size && strchr(terminated, '\\') == NULL);
        as_libcurl_reads_it(terminated, &is);
        webhook_target_origin(&is, origin);
        int len = asprintf(&whole, "%s%.*s%.*s", origin, (int)is.parts.path_len, is.parts.path, (int)is.parts.query_len,
                           is.parts.query == NULL ? "" : is.parts.query);
        require(len > 0 && webhook_target_parse(whole, (size_t)len, &again) == NULL);
        require(is.https == again.https && is.port == again.port && strcmp(is.host, again.host) == 0);
        require(is.parts.path_len == again.parts.path_len && is.parts.query_len == again.parts.query_len);
        free(whole);
        free(terminated);
    }
    free(text);
    return 0;
}
