/*
 * gateway/mail_address.h - one mail address from outside: `a@b`, `<a@b>`, `Name <a@b>` or `"Name" <a@b>`. Pure.
 *
 * Narrower than RFC 5322: no groups, comments, routes or lists. What comes out can stand in an SMTP command and in a
 * header field as it is: no blanks outside a quoted local part, no control bytes, no brackets.
 */
#ifndef FENCEGATE_MAIL_ADDRESS_H
#define FENCEGATE_MAIL_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

struct arena;

struct mail_address {
    const char *name; /* in the arena, UTF-8; "" when there is none */
    size_t name_len;
    const char *mailbox; /* in the arena, NUL-terminated; an international domain as punycode */
    const char *domain;  /* into mailbox */
    bool utf8;           /* the local part is not ASCII */
};

/* NULL: *out is filled; else static text of what is wrong. "out of memory" is mail_no_memory itself. */
extern const char mail_no_memory[];
const char *mail_address_parse(struct arena *arena, const char *text, size_t len, struct mail_address *out)
    __attribute__((warn_unused_result));
/* The same without a name: `a@b` or `<a@b>`. */
const char *mail_mailbox_parse(struct arena *arena, const char *text, size_t len, struct mail_address *out)
    __attribute__((warn_unused_result));
/* The same mailbox: local parts byte by byte, domains without case. */
bool mail_mailbox_same(const char *a, const char *b);

#endif
