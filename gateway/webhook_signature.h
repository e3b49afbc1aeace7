/* gateway/webhook_signature.h - signatures as the Standard Webhooks specification says. Only user of OpenSSL. Pure. */
#ifndef FENCEGATE_WEBHOOK_SIGNATURE_H
#define FENCEGATE_WEBHOOK_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config_secret;

/* Of the value for that many secrets, without its NUL: "v1," and 44 bytes each, a space between. */
#define WEBHOOK_SIGNATURE_LEN(count) ((count)*48 - 1)
#define WEBHOOK_TIMESTAMP_MAX 20 /* digits */

/* What is signed: "<id>.<timestamp>.<body>", once for each secret. The body may come in pieces: 8 MiB under 16 secrets
 * take a loop's thread longer than its other calls can wait. */
struct webhook_signing;

/* `timestamp`: Unix seconds in decimal; count >= 1. NULL, and false of the others: OpenSSL has no memory. */
struct webhook_signing *webhook_signing_begin(const struct config_secret *secrets, size_t count, const char *id,
                                              const char *timestamp) __attribute__((warn_unused_result));
bool webhook_signing_add(struct webhook_signing *signing, const char *data, size_t len)
    __attribute__((warn_unused_result));
/* Writes the value of webhook-signature, NUL-terminated: `out` holds WEBHOOK_SIGNATURE_LEN(count) + 1 bytes. Once, as
 * the last. */
bool webhook_signing_end(struct webhook_signing *signing, char *out) __attribute__((warn_unused_result));
void webhook_signing_free(struct webhook_signing **which); /* clears *which */

#endif
