/*
 * gateway/upstream_tls.c - TLS to partners: rules that hold for every context, whatever openssl.cnf and the environment
 * say, and the state of a connection as OpenSSL knows it, since libcurl reports little of it.
 */
#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "gateway/upstream_int.h"

enum { TLS_MESSAGES_MAX = 512 }; /* of a handshake's kind on one connection; an ordinary one has fewer than 20 */

/* Called for a partner's CertificateRequest when the route has no certificate: none is given, and the asking is kept in
 * mind, since what the partner does next (an alert, in TLS 1.3 after the handshake) says less. */
static int on_certificate_asked(SSL *ssl, X509 **certificate, EVP_PKEY **key)
{
    bool *asked = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    (void)certificate, (void)key;
    *asked = true;
    return 0;
}

/* Called for every message of TLS. A partner that sends handshake messages without end (tickets, HelloRequest) would
 * keep OpenSSL inside one call, and the loop with it: after so many the connection reads as ended. */
static void on_message(int write, int version, int type, const void *bytes, size_t len, SSL *ssl, void *arg)
{
    unsigned *count = arg;
    (void)version, (void)bytes, (void)len;
    if (write != 0 || type != SSL3_RT_HANDSHAKE || ++*count != TLS_MESSAGES_MAX)
        return;
    BIO *nothing = BIO_new(BIO_s_null());
    if (nothing != NULL)
        SSL_set0_rbio(ssl, nothing);
    else
        *count = 0; /* again, a little later */
}

/* A renegotiation lets a write wait for the partner, seconds after the last look. A key log would let everybody who
 * reads it decrypt the calls. */
static CURLcode on_context(CURL *easy, void *context, void *arg)
{
    struct tls_seen *seen = arg;
    (void)easy;
    SSL_CTX_set_msg_callback(context, on_message);
    SSL_CTX_set_msg_callback_arg(context, &seen->messages);
    SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_app_data(context, &seen->certificate_asked);
    SSL_CTX_set_client_cert_cb(context, on_certificate_asked);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_keylog_callback(context, NULL);
    bool modern = SSL_CTX_get_min_proto_version(context) >= TLS1_2_VERSION ||
                  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1;
    /* Without finite fields: the partner picks the group, and one exchange can take the loop seconds. */
    bool quick = SSL_CTX_set_cipher_list(context, "DEFAULT:!kDHE") == 1 &&
                 SSL_CTX_set1_groups_list(context, "X25519:P-256:P-384:P-521") == 1;
    return modern && quick ? CURLE_OK : CURLE_SSL_CONNECT_ERROR;
}

bool tls_set_rules(CURL *easy, struct tls_seen *seen)
{
    return curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, on_context) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, seen) == CURLE_OK;
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
