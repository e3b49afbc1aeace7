/* gateway/mail_compose_int.h - shared by mail_compose.c and mail_body.c only. */
#ifndef FENCEGATE_MAIL_COMPOSE_INT_H
#define FENCEGATE_MAIL_COMPOSE_INT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "gateway/mail.h"
#include "gateway/mail_address.h"
#include "gateway/mail_text.h"

struct address_list {
    struct mail_address *items;
    size_t count;
};

struct composer {
    struct arena *arena;
    json_t *root;
    const struct mail_stamp *stamp;
    struct mail *out;
    struct mail_text text;
    char *why; /* [MAIL_WHY] */
    bool no_memory;
    struct mail_address from;
    struct address_list to, cc, bcc, reply_to;
};

/* Says in `why` what is wrong; always false. */
bool compose_fail(struct composer *composer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* No other members than these; `where` ends the sentence about one. */
bool compose_known_members(struct composer *composer, json_t *object, const char *where, const char *const *names);
bool compose_one_line(const char *value, size_t len); /* no CR, LF or NUL */

/* mail_body.c: Content-Type and all that is behind it, from text, html and attachments. */
bool compose_body(struct composer *composer);

#endif
