/*
 * gateway/smtp_dialogue.h - the transaction that hands one mail to a relay: MAIL, RCPT, DATA, the message, the final
 * dot. Pure: bytes in, bytes out; the connection, greeting, TLS and login are upstream_mail.c's.
 *
 * The final dot is the moment of no return. All before it is given out first; then smtp_wants_look() is true and
 * nothing more comes out until smtp_send_dot(). A relay that speaks before it is asked has lost the thread, and so is
 * what it says later: nonsense.
 */
#ifndef FENCEGATE_SMTP_DIALOGUE_H
#define FENCEGATE_SMTP_DIALOGUE_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/smtp_reply.h"

struct arena;
struct jsonout;
struct mail;

struct smtp_abilities { /* what the relay's answer to EHLO offers */
    bool eight_bit, utf8, size;
    bool plain, login, cram_md5; /* ways to log in */
};
bool smtp_offers_login(const struct smtp_abilities *abilities);
/* One line of that answer, e.g. "250-SIZE 10240000". */
void smtp_learn_ability(struct smtp_abilities *abilities, const char *line, size_t len);

enum smtp_outcome {
    SMTP_GOING,
    SMTP_TAKEN,    /* 2xx to the final dot */
    SMTP_REFUSED,  /* 5xx, or the relay lacks what the mail needs */
    SMTP_BUSY,     /* 4xx */
    SMTP_NONSENSE, /* no reply, or none that belongs here */
};
enum smtp_step { SMTP_MAIL, SMTP_RCPT, SMTP_DATA, SMTP_MESSAGE, SMTP_DOT };

struct smtp_dialogue {
    enum smtp_outcome outcome;
    enum smtp_step step;
    const struct mail *mail;
    struct arena *arena;   /* for the replies that are kept */
    size_t recipient;      /* the one under way */
    const char **refusals; /* for each recipient: the relay's reply; NULL: taken */
    size_t refused;
    const char *busy;        /* a 4xx among them */
    unsigned busy_code;      /* its code */
    struct smtp_reply reply; /* the one coming, or the last */
    const char *explanation; /* of SMTP_REFUSED without a reply; static */
    char command[512];
    const char *out;
    size_t out_len;
    bool waiting; /* for a reply */
    bool no_memory;
    bool extra; /* the relay said more than it was asked */
};

void smtp_begin(struct smtp_dialogue *dialogue, const struct mail *mail, const struct smtp_abilities *abilities,
                struct arena *arena);
/* What is to be sent now; 0 bytes: nothing, until a reply comes. */
size_t smtp_output(const struct smtp_dialogue *dialogue, const char **data);
void smtp_was_sent(struct smtp_dialogue *dialogue, size_t len);
void smtp_input(struct smtp_dialogue *dialogue, const char *data, size_t len);
bool smtp_wants_look(const struct smtp_dialogue *dialogue);
void smtp_send_dot(struct smtp_dialogue *dialogue);
void smtp_take_back_dot(struct smtp_dialogue *dialogue);  /* nothing of it was sent: smtp_wants_look() again */
bool smtp_reusable(const struct smtp_dialogue *dialogue); /* the connection is good for another mail */
bool smtp_may_quit(const struct smtp_dialogue *dialogue); /* it is not, but the relay waits for a command */

/* The reply to be shown for this outcome; "" when there is none. */
const char *smtp_verdict(const struct smtp_dialogue *dialogue);
unsigned smtp_code(const struct smtp_dialogue *dialogue); /* of that reply; 0: none */
/* A sentence for the client with that reply in it, NUL-terminated and cut to `cap`; and one without it, for the log. */
void smtp_explain(const struct smtp_dialogue *dialogue, char *out, size_t cap);
void smtp_explain_briefly(const struct smtp_dialogue *dialogue, char *out, size_t cap);
/* The body of the 202 answer. */
void smtp_answer_write(const struct smtp_dialogue *dialogue, struct jsonout *out);

#endif
