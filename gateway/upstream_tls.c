/*
 * gateway/upstream_tls.c - TLS to partners: rules that hold for every context, whatever openssl.cnf and the environment
 * say, and the state of a connection as OpenSSL knows it, since libcurl reports little of it.
 */
#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "gateway/upstream_int.h"

/* Called for a partner's CertificateRequest when the route has no certificate: none is given, and the asking is kept in
 * mind, since what the partner does next (an alert, in TLS 1.3 after the handshake) says less. */
static int on_certificate_asked(SSL *ssl, X509 **certificate, EVP_PKEY **key)
{
    bool *asked = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    (void)certificate, (void)key;
    *asked = true;
    return 0;
}

/* A renegotiation lets a write wait for the partner, seconds after the last look. A key log would let everybody who
 * reads it decrypt the calls. */
static CURLcode on_context(CURL *easy, void *context, void *arg)
{
    (void)easy;
    SSL_CTX_set_app_data(context, arg);
    SSL_CTX_set_client_cert_cb(context, on_certificate_asked);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_keylog_callback(context, NULL);
    bool modern = SSL_CTX_get_min_proto_version(context) >= TLS1_2_VERSION ||
                  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1;
    return modern ? CURLE_OK : CURLE_SSL_CONNECT_ERROR;
}

bool tls_set_rules(CURL *easy, bool *certificate_asked)
{
    return curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, on_context) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, certificate_asked) == CURLE_OK;
}

/* NULL: libcurl has no TLS connection for this handle. */
static SSL *ssl_of(CURL *easy)
{
    const struct curl_tlssessioninfo *info = NULL;
    bool known = curl_easy_getinfo(easy, CURLINFO_TLS_SSL_PTR, &info) == CURLE_OK && info != NULL &&
                 info->backend == CURLSSLBACKEND_OPENSSL;
    return known ? info->internals : NULL;
}

/* Without the partner's close_notify anybody on the way may have closed the connection. */
bool tls_said_good_bye(CURL *easy)
{
    const SSL *ssl = ssl_of(easy);
    return ssl != NULL && (SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
}

bool tls_is_busy(CURL *easy)
{
    const SSL *ssl = ssl_of(easy);
    return ssl != NULL && SSL_in_init(ssl);
}

bool tls_owes_key_update(CURL *easy)
{
    const SSL *ssl = ssl_of(easy);
    return ssl != NULL && SSL_get_key_update_type(ssl) != SSL_KEY_UPDATE_NONE;
}

bool tls_wants_read(CURL *easy)
{
    const SSL *ssl = ssl_of(easy);
    return ssl != NULL && SSL_want_read(ssl);
}

bool tls_wants_write(CURL *easy)
{
    const SSL *ssl = ssl_of(easy);
    return ssl != NULL && SSL_want_write(ssl);
}

bool tls_written(CURL *easy, uint64_t *bytes)
{
    SSL *ssl = ssl_of(easy);
    BIO *bio = ssl == NULL ? NULL : SSL_get_wbio(ssl);
    if (bio != NULL)
        *bytes = BIO_number_written(bio);
    return bio != NULL;
}
