/* gateway/webhook_signature.c - HMAC-SHA256 by OpenSSL, which is in the process anyway: libcurl speaks TLS with it. */
#include "gateway/webhook_signature.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

enum { DIGEST = 32 };

struct webhook_signing {
    size_t count;
    EVP_MAC_CTX *contexts[]; /* one a secret */
};

static bool begin(EVP_MAC *hmac, EVP_MAC_CTX **context, const struct config_secret *secret)
{
    static char sha256[] = "SHA256"; /* OpenSSL wants it writable */
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha256, 0),
                                 OSSL_PARAM_construct_end()};
    *context = EVP_MAC_CTX_new(hmac);
    return *context != NULL && EVP_MAC_init(*context, secret->bytes, secret->len, params) == 1;
}

static bool begin_all(struct webhook_signing *signing, const struct config_secret *secrets)
{
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    bool ok = hmac != NULL;
    for (size_t i = 0; ok && i < signing->count; i++)
        ok = begin(hmac, &signing->contexts[i], &secrets[i]);
    EVP_MAC_free(hmac); /* the contexts hold it */
    return ok;
}

struct webhook_signing *webhook_signing_begin(const struct config_secret *secrets, size_t count, const char *id,
                                              const char *timestamp)
{
    struct webhook_signing *signing = calloc(1, sizeof *signing + count * sizeof signing->contexts[0]);
    if (signing == NULL)
        return NULL;
    signing->count = count;
    if (!begin_all(signing, secrets) || !webhook_signing_add(signing, id, strlen(id)) ||
        !webhook_signing_add(signing, ".", 1) || !webhook_signing_add(signing, timestamp, strlen(timestamp)) ||
        !webhook_signing_add(signing, ".", 1))
        webhook_signing_free(&signing);
    return signing;
}

bool webhook_signing_add(struct webhook_signing *signing, const char *data, size_t len)
{
    for (size_t i = 0; len > 0 && i < signing->count; i++)
        if (EVP_MAC_update(signing->contexts[i], (const unsigned char *)data, len) != 1)
            return false;
    return true;
}

bool webhook_signing_end(struct webhook_signing *signing, char *out)
{
    for (size_t i = 0; i < signing->count; i++) {
        unsigned char bytes[DIGEST];
        size_t len = 0;
        if (EVP_MAC_final(signing->contexts[i], bytes, &len, DIGEST) != 1 || len != DIGEST)
            return false;
        if (i > 0)
            *out++ = ' ';
        memcpy(out, "v1,", 3);
        out += 3 + EVP_EncodeBlock((unsigned char *)out + 3, bytes, DIGEST); /* adds a NUL */
    }
    return true;
}

void webhook_signing_free(struct webhook_signing **which)
{
    struct webhook_signing *signing = *which;
    *which = NULL;
    if (signing == NULL)
        return;
    for (size_t i = 0; i < signing->count; i++)
        EVP_MAC_CTX_free(signing->contexts[i]);
    free(signing);
}
