/*
 * gateway/request.h - one request from its first line to its settled record: the struct and the steps.
 *
 * A request belongs to one worker and is touched by no other thread, but for these: `op` is the store's while
 * submitted, the lower half of `ticket` is the gate's, `mail_job` and the bytes of `body` are the composer's while the
 * state is COMPOSING. All come back through the worker's inbox.
 *
 * Inbound (the client's side) and upstream (the partner's side) call in here when something happened; the steps in
 * request.c call out to them. The client may leave at any time: then `conn` is NULL and everything else goes on as if
 * it were there.
 */
#ifndef FENCEGATE_REQUEST_H
#define FENCEGATE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/arena.h"
#include "gateway/forward.h"
#include "gateway/gate.h"
#include "gateway/headers.h"
#include "gateway/inbox.h"
#include "gateway/metrics.h"
#include "gateway/reason.h"
#include "gateway/reply.h"
#include "gateway/route.h"
#include "gateway/timers.h"
#include "store/store.h"

struct worker;
struct settings;
struct route_state;
struct config_route;
struct connection;
struct webhook;
struct call;
struct mail;
struct mail_request;
struct mail_job;

enum request_state {
    REQUEST_RECEIVING,  /* head or body still coming */
    REQUEST_LOOKING,    /* webhook: its target's addresses are looked at; nothing is decided yet */
    REQUEST_COMPOSING,  /* a large mail: it is made on another thread, which has `body`; nothing is decided yet */
    REQUEST_RECORDING,  /* refused: the record of it is on its way to disk, then the answer */
    REQUEST_ADMITTING,  /* the writer decides, raises, writes the intent */
    REQUEST_PARKING,    /* it must wait after all: its intent is marked so on disk */
    REQUEST_WAITING,    /* an older call of the key is in flight */
    REQUEST_STARTING,   /* its turn has come: its intent is marked so on disk */
    REQUEST_CONNECTING, /* with the upstream part; no byte has left */
    REQUEST_SENT,       /* the last look is behind us: bytes may have reached the partner */
    REQUEST_SETTLING,   /* the outcome is on its way to disk */
    REQUEST_DONE,       /* nothing left to decide; memory goes when client and inbox let go */
};

struct request {
    uint32_t magic;
    enum request_state state;
    struct worker *worker;
    struct settings *settings;   /* reference; NULL only before the first look */
    struct route_state *route;   /* NULL: no route */
    struct request *next, *prev; /* the worker's list of live requests */
    /* what was asked; text in the arena */
    char *raw_target;
    size_t raw_target_len;
    struct target target;
    const char *method;
    struct forward forward;
    struct webhook *webhook;           /* in the arena; NULL: another kind of route */
    struct mail_request *mail_request; /* what of the head a mail needs; in the arena; NULL: another kind of route */
    struct mail *mail;                 /* the mail, once it was judged; its bytes are `body` */
    struct mail_job *mail_job;         /* how it was made on another thread; NULL: it was not */
    const char *client;                /* "address:port" */
    bool http10, head_method, has_body_header;
    char *body; /* malloc'ed; body_cap bytes are counted against limits.buffered */
    size_t body_len, body_cap, body_announced;
    uint64_t started_ms; /* monotonic, request line seen */
    uint64_t number;     /* of this worker's requests: the last part of request_id in the log */

    /* for the metrics; monotonic, microseconds */
    uint64_t whole_us;      /* the request was whole */
    uint64_t wait_began_us; /* waiting for older calls began */
    uint64_t waited_us;     /* how long it took */
    uint64_t sent_us;       /* the last look */
    enum drop_stage drop_stage;

    /* the fence */
    bool fenced;  /* false: mode off or an unfenced method */
    bool observe; /* mode observe */
    bool would_drop;
    enum reason would_reason;
    uint64_t token;
    struct slice ns, key; /* key in the arena */
    uint64_t highest;
    bool raises; /* the key had a fence when it was looked up, and the token is above it */
    struct gate_ticket ticket;
    unsigned notices_held; /* enum gate_notice: they came while the store was marking the intent */
    bool joined;           /* in the gate */
    bool given_grace;      /* its drain_timeout was over when the process had stood still: a moment more */
    bool notice_pending;   /* left the gate with a notice on its way: memory stays until it came */
    struct store_op op;
    struct inbox_item op_item; /* op's way home */
    bool op_busy;
    bool parked;        /* there is an intent, and on disk it waits: it may not start as it is */
    struct timer timer; /* drain timeout; later the next try to record */
    bool counted;       /* in the in-flight limits */
    bool probe;         /* the one call that an open breaker let through */
    bool unsettled;     /* in gateway's count of what a shutdown waits for */
    bool running;       /* in worker's count of what a shutdown waits for */

    /* the call */
    struct call *call; /* upstream's; NULL: none under way */
    unsigned attempts;
    bool begun;               /* something of it was sent, though nothing that counts: no other attempt */
    uint64_t call_started_ms; /* monotonic, first attempt: timeout.total counts from here */
    bool last_look_failed;

    /* how it ended */
    enum reason reason; /* REASON_NONE: the partner's answer */
    enum effect effect;
    unsigned status;
    unsigned upstream_status;
    uint64_t accepted_ms;                                        /* wall time of the verdict */
    uint64_t effect_id, audit_id, request_bytes, response_bytes; /* bytes: of the bodies */
    char detail[200];
    /* For the answer alone, and only when it has this reason: longer, or with what no log shall have (what a partner
     * said); in the arena. NULL: `detail`. */
    const char *answer_detail;
    enum reason answer_detail_of;
    const char *note;     /* static */
    unsigned retry_after; /* 0: the reason's own */

    /* the client's side: inbound's */
    struct connection *conn; /* NULL: the client has left */
    enum reason refusal;     /* settled by the head, to be given once the body is read */
    bool answer_begun;       /* there is one: its head is sent, or will be before this turn ends */
    bool discard;            /* the body is read but not kept */
    bool room_granted;       /* request_judge_scarce() took it */
    uint64_t discarded;      /* bytes of it */

    /* not cleared for the next request: what small buffers the one has, the other's first block */
    struct reply reply;
    struct arena arena;
};

#define REQUEST_MAGIC 0x46474154u

struct request *request_new(struct worker *worker, struct connection *conn); /* NULL: no memory */
void request_free_spare(struct request *request);                            /* one that has ended: its memory */

/* -- called by inbound -- */
/* The head is judged: the refusal that it settles, or REASON_NONE. Order of SPEC section 3. */
enum reason request_judge_head(struct request *request, struct screened *screened, const struct header_field *fields,
                               size_t count); /* admission.c */
/* The body is whole, or the refusal needs none (early): decide, send, record. The answer comes by inbound_answer(). */
void request_arrived(struct request *request);
/* Early look at the fence (a large body is announced): true when a refusal was found and is being recorded. */
bool request_stale_early(struct request *request);
/* limits.buffered is half taken by others, or its place is needed: the rest is for calls of known keys with a good
 * token. REASON_NONE: this is one; else the refusal. */
enum reason request_judge_scarce(struct request *request);
/* The client's side is gone (answered or left): the request must not touch it any more. */
void request_client_gone(struct request *request);

/* -- called by upstream -- */
/* The last look, right before the first byte, or where the partner's protocol has a later moment of no return, before
 * that: false stops the call. Counts as sent from here. */
bool request_last_look(struct request *request);
/* The kernel took nothing of what followed the last look: the call has not begun. False: a newer token was accepted
 * since, the call must not be tried again. There is another last look before the next try. */
bool request_take_back(struct request *request);
/* With such a protocol, right before the first byte; the last look comes all the same. */
bool request_first_look(struct request *request);
/* Makes answer_detail, and returns `reason`. Without memory for it the reason's own sentence stays. */
enum reason request_tell_client(struct request *request, enum reason reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The call has ended; `detail` (NULL: none) is a sentence about why. */
enum call_end {
    CALL_OK,
    CALL_CUT_SHORT,
    CALL_TOO_LARGE, /* the partner's status was read; the rest of its head is above limits.answer_headers */
    CALL_TIMEOUT,
    CALL_UNREACHABLE,
    CALL_REFUSED_ADDRESS, /* none of the target's addresses may be called */
    CALL_REFUSED,         /* a mail, for good */
    CALL_BUSY,            /* a mail, for now */
    CALL_FAILED,
};
void request_call_ended(struct request *request, enum call_end end, const char *detail);
/* The look at the target's addresses has ended: CALL_REFUSED_ADDRESS, or anything else: the call itself will show. */
void request_looked(struct request *request, enum call_end end);

/* Names the limit that an `overloaded` answer is about. */
void request_tell_breaker(struct request *request); /* the sentence for a call that an open breaker refuses */
void request_tell_limit(struct request *request, const char *limit);
/* Has the store no room for records of calls that the fence refuses, but for others? Then the detail says so. */
bool request_lacks_room(struct request *request);
void request_body_free(struct request *request); /* and its share of limits.buffered */

/* -- called by worker -- */
void request_shutdown(struct request *request); /* shutdown has begun: those that wait are refused */
void request_cut(struct request *request);      /* end of the grace time */
void request_abandon(struct request *request);  /* frees it, whatever its state; its call was cancelled before */

#endif
