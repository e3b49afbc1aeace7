/*
 * gateway/reply.h - a partner's answer on its way to the client: its head, and the part of its body not yet taken.
 *
 * Filled by upstream, emptied by inbound, both on the worker's thread. The body buffer is bounded: upstream pauses the
 * partner at REPLY_BODY_MAX and goes on when inbound has taken some.
 */
#ifndef FENCEGATE_REPLY_H
#define FENCEGATE_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/headers.h"

enum {
    REPLY_BODY_MAX = 64 * 1024,
    REPLY_KEPT_MAX = 1024, /* a buffer up to this size serves the next answer */
};

struct reply {
    unsigned status;
    unsigned
        partner_status; /* where `status` is ours and the partner speaks another protocol: what it said; 0: the same */
    char *head;         /* what of its fields is relayed: "Name: value" CR LF after each other */
    size_t head_len, head_cap;
    bool dated;     /* Date is among those that are relayed */
    bool nominates; /* Connection names more than the options below; those fields are in `head` until its end */
    bool head_done; /* a final (not 1xx) head is whole */
    bool nonsense;  /* the head can't be trusted or relayed; `complaint` says why */
    bool too_large; /* with nonsense: only because of its size, and the final status line was read */
    const char *complaint;
    unsigned codings;       /* Transfer-Encoding fields: they tell where the body ends (RFC 9112 section 6.3) */
    bool length_and_coding; /* both were there: read by the coding, but the connection is not trusted any more */
    bool has_length;
    uint64_t length;         /* the partner's Content-Length */
    bool chunked, identity;  /* what the last Transfer-Encoding names */
    bool wants_close, keeps; /* Connection (or Proxy-Connection) names `close`; Connection names `keep-alive` */
    char *body;
    size_t body_at, body_end, body_cap; /* body[body_at..body_end) is not yet taken */
    uint64_t received;                  /* body bytes from the partner */
    bool ended;                         /* nothing more will come */
    bool cut_short;                     /* with ended: the body is not whole */
    bool paused;                        /* the partner waits until inbound has taken something */
};

/* The lines of a head, without line ends: a status line starts one (and forgets what was before), fields, the end.
 * False: no memory or nonsense: stop the call. */
bool reply_status_line(struct reply *reply, const char *line, size_t len) __attribute__((warn_unused_result));
bool reply_field_line(struct reply *reply, const char *line, size_t len) __attribute__((warn_unused_result));
bool reply_head_end(struct reply *reply) __attribute__((warn_unused_result));
/* Adds body bytes. False: no memory. */
bool reply_body_add(struct reply *reply, const char *data, size_t len) __attribute__((warn_unused_result));
size_t reply_body_waiting(const struct reply *reply);
const char *reply_body_at(const struct reply *reply);  /* the bytes that wait */
void reply_body_drop(struct reply *reply, size_t len); /* the first `len` of them were taken */
void reply_reset(struct reply *reply);                 /* empty for another answer; small buffers stay */
void reply_free(struct reply *reply);

#endif
