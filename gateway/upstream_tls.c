/*
 * gateway/upstream_tls.c - asks OpenSSL how a TLS connection has ended: libcurl does not tell.
 */
#include <openssl/ssl.h>

#include "gateway/upstream_int.h"

/* Without the partner's close_notify anybody on the way may have closed the connection. */
bool tls_said_good_bye(CURL *easy)
{
    const struct curl_tlssessioninfo *info = NULL;
    return curl_easy_getinfo(easy, CURLINFO_TLS_SSL_PTR, &info) == CURLE_OK && info != NULL &&
           info->backend == CURLSSLBACKEND_OPENSSL && info->internals != NULL &&
           (SSL_get_shutdown(info->internals) & SSL_RECEIVED_SHUTDOWN) != 0;
}
