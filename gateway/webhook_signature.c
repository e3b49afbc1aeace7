/* gateway/webhook_signature.c - HMAC-SHA256 by OpenSSL, which is in the process anyway: libcurl speaks TLS with it. */
#include "gateway/webhook_signature.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <string.h>

#include "config/config.h"

enum { DIGEST = 32 };

static bool digest(EVP_MAC_CTX *context, const struct config_secret *secret, const struct webhook_message *message,
                   unsigned char out[DIGEST])
{
    static char sha256[] = "SHA256"; /* OpenSSL wants it writable */
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha256, 0),
                                 OSSL_PARAM_construct_end()};
    const struct {
        const char *data;
        size_t len;
    } parts[] = {{message->id, strlen(message->id)},
                 {".", 1},
                 {message->timestamp, strlen(message->timestamp)},
                 {".", 1},
                 {message->body, message->body_len}};
    size_t len = 0;
    if (EVP_MAC_init(context, secret->bytes, secret->len, params) != 1)
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].len > 0 && EVP_MAC_update(context, (const unsigned char *)parts[i].data, parts[i].len) != 1)
            return false;
    return EVP_MAC_final(context, out, &len, DIGEST) == 1 && len == DIGEST;
}

bool webhook_sign(const struct config_secret *secrets, size_t count, const struct webhook_message *message, char *out)
{
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *context = hmac == NULL ? NULL : EVP_MAC_CTX_new(hmac);
    bool ok = context != NULL;
    for (size_t i = 0; ok && i < count; i++) {
        unsigned char bytes[DIGEST];
        ok = digest(context, &secrets[i], message, bytes);
        if (!ok)
            break;
        if (i > 0)
            *out++ = ' ';
        memcpy(out, "v1,", 3);
        out += 3 + EVP_EncodeBlock((unsigned char *)out + 3, bytes, DIGEST); /* adds a NUL */
    }
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(hmac);
    return ok;
}
