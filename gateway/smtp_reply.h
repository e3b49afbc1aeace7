/*
 * gateway/smtp_reply.h - one reply of a mail relay: its code, and its text as far as it is shown. Pure.
 *
 * Replies can be endless; only SMTP_TEXT_MAX bytes of one are kept.
 */
#ifndef FENCEGATE_SMTP_REPLY_H
#define FENCEGATE_SMTP_REPLY_H

#include <stdbool.h>
#include <stddef.h>

enum { SMTP_TEXT_MAX = 2048 };

/* Zero-initialise before each reply. */
struct smtp_reply {
    unsigned code;                /* 200 to 599 once a line is here; 0 before */
    bool done;                    /* its last line has come */
    bool nonsense;                /* it is no reply; nothing more is read */
    char text[SMTP_TEXT_MAX + 1]; /* "250 2.0.0 ok queued": the code, then the lines with blanks between; control bytes
                                     are "?"; NUL-terminated, not cut inside a UTF-8 sequence */
    size_t len;
    /* ---- inside ---- */
    char head[4]; /* of the line under way */
    size_t at;    /* bytes of it */
    bool last, cr;
};

/* Takes bytes up to the end of the reply; returns how many. */
size_t smtp_reply_feed(struct smtp_reply *reply, const char *data, size_t len);

#endif
