/*
 * gateway/mail.h - a mail to be handed to a relay: envelope and message, made from JSON or taken as it is. Pure.
 *
 * Nothing that a caller gives can become another header line, another recipient or another SMTP command: what could is
 * refused as malformed (SPEC section 8).
 */
#ifndef FENCEGATE_MAIL_H
#define FENCEGATE_MAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

enum {
    MAIL_RECIPIENTS_MAX = 1000,
    MAIL_JSON_VALUES_MAX = 20000, /* in one document: what its tree takes is bounded by it */
    MAIL_WHY = 200,
    MAIL_UNKNOWN_SHOWN = 60, /* bytes */
};

struct mail {
    char *data; /* malloc'ed, the owner's to free: the message as on the wire (CRLF, dots stuffed), without the dot */
    size_t len;
    /* in the arena */
    const char *sender;            /* "" is the null sender <> */
    const char *const *recipients; /* each once */
    size_t recipient_count;
    const char *message_id; /* without angle brackets; NULL: the message has none */
    bool utf8;              /* an address needs SMTPUTF8 */
    bool eight_bit;         /* bytes above 0x7F: needs 8BITMIME */
    const char *unknown; /* MAIL_MALFORMED for a member that is not known: its name's beginning. For the client alone:
                          * it is the document's, and goes into no log. NULL: another cause */
};

/* What makes one mail differ from all others. */
struct mail_stamp {
    uint64_t now_ms;          /* Unix time */
    unsigned char random[32]; /* nobody can foretell them: Message-ID, boundaries */
    const char *id_domain;    /* right of the @ in Message-ID; NULL: the sender's */
};

enum mail_result { MAIL_OK, MAIL_MALFORMED, MAIL_NO_MEMORY };

/* From a JSON document (`from`, `to`, `cc`, `bcc`, `reply_to`, `subject`, `text`, `html`, `headers`, `attachments`).
 * MAIL_MALFORMED: `why` says what, without any value of the document. */
enum mail_result mail_compose(struct arena *arena, const char *json, size_t len, const struct mail_stamp *stamp,
                              struct mail *out, char why[MAIL_WHY]) __attribute__((warn_unused_result));
/* A message/rfc822 body as it is, line ends mended; envelope from the values of Envelope-From and Envelope-To. */
enum mail_result mail_take_raw(struct arena *arena, const char *body, size_t len, const char *from, const char *to,
                               struct mail *out, char why[MAIL_WHY]) __attribute__((warn_unused_result));

/* Adds an address to a list of MAIL_RECIPIENTS_MAX, unless it is there. False: the list is full. */
bool mail_add_recipient(const char **list, size_t *count, const char *mailbox) __attribute__((warn_unused_result));

#endif
