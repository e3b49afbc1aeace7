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

/* What is signed: "<id>.<timestamp>.<body>". */
struct webhook_message {
    const char *id, *timestamp; /* the timestamp: Unix seconds in decimal */
    const char *body;
    size_t body_len;
};

/* Writes the value of webhook-signature, NUL-terminated: `out` holds WEBHOOK_SIGNATURE_LEN(count) + 1 bytes; count
 * >= 1. False: OpenSSL has no memory. */
bool webhook_sign(const struct config_secret *secrets, size_t count, const struct webhook_message *message, char *out)
    __attribute__((warn_unused_result));

#endif
