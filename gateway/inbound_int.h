/* gateway/inbound_int.h - shared by the inbound*.c files only. */
#ifndef FENCEGATE_INBOUND_INT_H
#define FENCEGATE_INBOUND_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "gateway/chunks.h"
#include "gateway/head.h"
#include "gateway/headers.h"
#include "gateway/jsonout.h"
#include "gateway/places.h"
#include "gateway/reason.h"
#include "gateway/timers.h"
#include "gateway/worker.h"

enum {
    CLIENT_NAME_MAX = 64,
    READ_BYTES = 32 * 1024, /* of one look at a socket */
    HEAD_ROOM = 32 * 1024,  /* for an answer's head, to begin with */
    HEAD_OWN = 1024,        /* what we add to a partner's, with the size line of a chunk */
    DATE_LEN = 37,          /* "Date: Mon, 30 Nov 2026 12:00:00 GMT" CR LF */
};

enum connection_step {
    CONNECTION_IDLE,   /* nothing of a request has come */
    CONNECTION_HEAD,   /* part of a head */
    CONNECTION_BODY,   /* of `request` */
    CONNECTION_CALL,   /* `request` is whole, or refused: its answer is awaited, or on its way */
    CONNECTION_LINGER, /* all was said; what the client still sends is thrown away, then it is closed */
    CONNECTION_GONE,   /* closed; its memory goes in inbound_run() */
};

/* Where the answer that is on its way ends, on the wire. */
enum framing {
    FRAMING_NONE,     /* none is on its way */
    FRAMING_MADE,     /* our own: it was made whole */
    FRAMING_BODILESS, /* a partner's, from here on */
    FRAMING_LENGTH,
    FRAMING_CHUNKED,
    FRAMING_CLOSE,
};

/* One client's connection. Its socket is registered once, edge-triggered: `readable` and `blocked` keep what epoll has
 * told and what the kernel has refused. It holds bytes only where it must: part of a head, the beginning of a next
 * request, what the kernel did not take of an answer. */
struct connection {
    struct io io; /* first: worker_retire() frees by it */
    struct inbound *inbound;
    int fd;
    enum connection_step step;
    struct request *request;   /* under way; NULL: none */
    struct client_place place; /* of limits.connections: idle until a request is whole, and once it is answered */
    bool readable;             /* the kernel may have bytes, or the end */
    bool ended;                /* the client has ended its sending, be that read or not */
    bool blocked;              /* the kernel takes no more for now */
    bool keep;                 /* another request may follow the one under way */
    bool next_begun;           /* bytes of that one have come with the one under way */
    bool unread;               /* the request under way was answered before it had come whole: more may be on its way */
    bool reset;                /* closing must not look like an end */
    bool answered;             /* the answer is with the kernel whole */
    bool body_waits;           /* the rest of the body has not come yet: the place was made an idle one */
    bool due, hungry;          /* in the list of that name */

    /* what comes */
    char *in; /* malloc'ed; in[in_at, in_len) is not taken apart yet */
    size_t in_at, in_len, in_cap;
    struct head_progress progress;
    bool chunked;
    struct chunks chunks;
    uint64_t body_left; /* not chunked */
    uint64_t begun_ms;  /* monotonic, the request's first byte */

    /* what goes: out, then `piece` bytes of request->reply's body, then post */
    char *out; /* malloc'ed; out[out_at, out_len) */
    size_t out_at, out_len;
    enum framing framing;
    enum reason reason; /* of an answer of our own; REASON_NONE: a partner's */
    size_t piece;
    struct slice post;
    uint64_t answer_left; /* FRAMING_LENGTH: bytes of the body behind this piece */
    bool last;            /* nothing comes behind this piece */
    int unacked;          /* while it is blocked: bytes with the kernel that the client's has not taken yet */

    struct timer timer;   /* at `deadline_ms` or before: it is moved only when it must come sooner */
    uint64_t deadline_ms; /* monotonic; 0: none */
    struct connection *next, *prev, *next_due, *next_hungry;
    char client[CLIENT_NAME_MAX]; /* "address:port" */
};

struct inbound {
    struct worker *worker;
    struct io listen_io;
    struct timer accept_pause; /* out of descriptors: try again then */
    int listen_fd;
    int spare_fd; /* given up for a moment to answer a client when no descriptor is left; -1: none */
    struct connection *connections, *due, *hungry;
    unsigned lingering;
    struct jsonout body; /* of an answer of our own */
    uint64_t date_s;     /* what `date` says */
    char date[DATE_LEN]; /* the header line */
    char scratch[READ_BYTES];
    char *head; /* of the answer that is being made */
    size_t head_cap;
    struct header_field fields[HEAD_FIELDS_MAX]; /* of the head that is being read */
};

/* ---- inbound.c ---- */

/* NULL: no memory; the descriptor is the caller's then. */
struct connection *connection_new(struct inbound *inbound, int fd, const struct sockaddr *address);
void connection_end(struct connection *conn);    /* closes it now */
void connection_linger(struct connection *conn); /* closes it gently, once all that waits was sent */
void connection_make_due(struct connection *conn);
void connection_make_hungry(struct connection *conn);
void connection_set_deadline(struct connection *conn, uint64_t due_ms);

/* ---- inbound_accept.c ---- */

void inbound_on_listen_ready(struct io *io, uint32_t events);
void inbound_on_accept_again(struct timer *timer);

/* ---- inbound_read.c ---- */

/* Reads and takes apart what has come, as far as the connection wants it. */
void connection_read(struct connection *conn);
/* Its body is waited for, its place is needed: true when it takes a place all the same, to its end. */
bool connection_keeps_body(struct connection *conn);
/* Its request will not come whole: it takes too long, or the place is needed. `detail` may be NULL. */
void connection_cut_short(struct connection *conn, enum reason reason, const char *detail);

/* ---- inbound_send.c ---- */

/* Sends what waits, `first` between `out` and the piece. True: all of it is with the kernel; else it is kept, or the
 * connection has ended. */
bool connection_send(struct connection *conn, struct slice first) __attribute__((warn_unused_result));
/* Of a blocked connection: the client has taken something since the last look. */
bool connection_has_taken(struct connection *conn);

/* ---- inbound_answer.c ---- */

void answer_continue(struct connection *conn); /* 100 Continue */
/* Sends what its request has to say by now: all of it, the beginning, or more. */
void answer_tell(struct connection *conn);
/* Answers what is no request (yet), and lingers. `detail`: NULL, or a sentence. */
void answer_no_request(struct connection *conn, enum reason reason, const char *detail);
void answer_go_on(struct connection *conn); /* the kernel takes more */

#endif
