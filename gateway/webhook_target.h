/*
 * gateway/webhook_target.h - the URL that a request names as its webhook's target. Pure.
 *
 * One reading only: what has another one in some URL parser is refused. libcurl never gets this text; it gets a URL
 * made of the parts (`origin`), and the path and query as they are, as the request target.
 */
#ifndef FENCEGATE_WEBHOOK_TARGET_H
#define FENCEGATE_WEBHOOK_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/route.h"

struct config_webhook;

struct webhook_target {
    bool https;
    char host[256]; /* lower case, no dot at the end; IPv6 in brackets, as inet_ntop() writes it */
    uint16_t port;
    struct target parts; /* path and query; they point into the text given */
};

#define WEBHOOK_ORIGIN_MAX 288
/* "https://customer.example:443": with the port, always. */
void webhook_target_origin(const struct webhook_target *target, char out[WEBHOOK_ORIGIN_MAX]);

/* Takes the URL apart. Returns NULL, or a static sentence about what is wrong with it. Refused: another scheme than
 * https and http, user info, a fragment, percent-encoding or anything but ASCII letters, digits, "-", "_" and "." in a
 * host, empty labels, a zone, an empty or padded port, and what SPEC section 3 refuses in a target; a backslash
 * anywhere. Numbers as hosts (2130706433, 0x7f.1) are names here: what they mean is judged when a socket is opened. */
const char *webhook_target_parse(const char *text, size_t len, struct webhook_target *out)
    __attribute__((warn_unused_result));

/* May this route call it, as far as its text tells? NULL, or a static sentence. */
const char *webhook_target_problem(const struct config_webhook *rules, const struct webhook_target *target)
    __attribute__((warn_unused_result));

#endif
