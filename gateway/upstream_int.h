/* gateway/upstream_int.h - shared by the upstream*.c files only. */
#ifndef FENCEGATE_UPSTREAM_INT_H
#define FENCEGATE_UPSTREAM_INT_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#include "gateway/request.h"
#include "gateway/smtp_dialogue.h"
#include "gateway/timers.h"
#include "gateway/wire.h"
#include "gateway/worker.h"

enum { IDLE_CHAINS = 64, READ_BYTES = 32 * 1024 };

struct config_route;
struct lookup;
struct request;
struct settings;
struct smtp_link;
struct socket_io;
struct tls_memory;

/* Where a call or link stands in one of the lists below. A list has each at most once, the newest first. */
struct place {
    struct place *next;
    bool listed;
};

/* A connection to a partner. libcurl makes it (name, address, TCP, TLS) and then leaves it to us (CONNECT_ONLY).
 * Connecting, in a call, or idle. */
/* What the partner did in TLS; written from within libcurl's and OpenSSL's calls for the link. */
struct tls_seen {
    bool certificate_asked; /* it wanted one of the client, and the route has none */
    unsigned messages;      /* of a handshake's kind that it sent */
};

struct link {
    struct io io; /* first: worker_retire() frees by it */
    CURL *easy;   /* in the multi handle as long as it lives; NULL: the connection is ours alone */
    struct upstream *upstream;
    struct call *call;         /* NULL: idle */
    struct settings *settings; /* reference: `route` is of these */
    struct tls_memory *tls_memory;
    const struct config_route *route;
    char *origin;                 /* scheme, host and port */
    struct lookup *lookup;        /* its name is being looked up; `easy` comes after that */
    struct curl_slist *addresses; /* what was found; NULL: the origin has the address */
    bool look;                    /* gets no socket: where it would lead is looked at */
    unsigned allowed, refused;    /* addresses that a socket was wanted for: by what the route allows */
    struct place again;           /* an address may have failed in this step of libcurl */
    bool tls;
    struct tls_seen seen;
    bool used;   /* has carried a call */
    bool torn;   /* the kernel said so when we sent, and says it once: reading finds what looks like an end */
    bool taken;  /* the kernel took bytes of what was given to link_send() since link_expect() */
    bool loaded; /* TLS holds a record of a call of which the kernel took nothing: closing must not let it out */
    bool send_waits_out, send_waits_in, recv_waits_out; /* the last link_send() or link_recv() gave LINK_AGAIN: for */
    int fd;                                             /* -1: not yet connected */
    uint32_t events;                                    /* registered for; 0: not registered */
    uint64_t born_ms, idle_since_ms;
    uint64_t connect_ms; /* libcurl's limit: timeout.connect, and the time in which the process stood still */
    struct link *next_idle, *prev_idle; /* in the order they fell idle */
    size_t chain;                       /* of `idle`: by route and origin */
    struct link *next_same, *prev_same; /* idle ones of it */
    struct smtp_link *smtp;             /* to a mail relay; NULL: another kind of partner */
    char error[CURL_ERROR_SIZE];
};

enum call_step {
    CALL_CONNECTING,
    CALL_STARTING, /* connected; it is being signed, or the kernel has taken no byte of it */
    CALL_EXCHANGING,
    CALL_ENDED
};

/* One request's call. */
struct call {
    struct upstream *upstream;
    struct request *request; /* NULL: spare */
    struct link *link;       /* NULL: none (any more) */
    enum call_step step;
    struct timer timer; /* timeout.total; while it connects timeout.connect as well */
    uint64_t total_end_ms;
    struct wire wire;
    struct slice out[2]; /* what is still to be sent: head, body */
    bool send_failed;    /* the partner takes no more; it may have answered all the same */
    struct place touched, ended, hungry;
    bool look;         /* no call: where it would go is looked at */
    enum call_end end; /* with CALL_ENDED */
    char detail[160];
    struct call *next_spare;
};

struct upstream {
    struct worker *worker;
    CURLM *multi;
    struct tls_memory *tls_memory; /* what new links share; NULL: nothing yet */
    struct timer timer;
    struct call *spare;
    unsigned spare_count;
    unsigned running; /* calls under way */
    unsigned peak;    /* most of them since memory was last given back */
    struct place *touched;
    struct place *ended;  /* to be told of: upstream_run() */
    struct place *hungry; /* to go on, whatever epoll says */
    struct place *again;  /* links */
    struct link *idle[IDLE_CHAINS];
    struct link *idle_first, *idle_last;
    unsigned idle_count;
    struct timer idle_timer;
    struct socket_io **sockets; /* libcurl's, by descriptor */
    size_t socket_cap;
    char *scratch; /* READ_BYTES: what was just read */
    bool due;      /* libcurl wants to be called at once */
    bool activity;
    bool stepping; /* in curl_multi_socket_action() */
    bool broken;   /* libcurl ran out of memory: the multi handle must not be used again */
};

/* ---- upstream.c ---- */

void list_add(struct place **list, struct place *place);    /* nothing happens if it is there */
void list_remove(struct place **list, struct place *place); /* nothing happens if it is not */
struct place *list_take(struct place **list);               /* the first one, or NULL */
/* One step of libcurl: curl_multi_socket_action(), and what must follow. */
void upstream_step(struct upstream *upstream, curl_socket_t fd, int mask);
void call_touch(struct call *call);       /* its client can be given something, at the end of this turn */
void call_make_hungry(struct call *call); /* it goes on in the loop's next turn, whatever epoll says */
void call_sate(struct call *call);

/* upstream_memory.c. True: an allocation of libcurl failed on this thread since the last time. */
bool upstream_starved(void);

/* ---- upstream_exchange.c ---- */

/* The link of a call is connected, or (result is not CURLE_OK) will not be. */
void upstream_connected(struct link *link, CURLcode result);
/* Something came or can be written on the link of a call. */
void upstream_link_ready(struct link *link, uint32_t events);
void call_begin(struct call *call); /* on a link that is connected and silent */
void call_read(struct call *call);
void call_go_on(struct call *call); /* of one that is hungry: signs on, or reads on */
/* The end, told in upstream_run(): what ends a call may be a step that its request has called. The link is closed, if
 * it is still the call's. */
void call_finish(struct call *call, enum call_end end, const char *detail);
/* The same for an exchange that went wrong: bytes may have left, and only a whole final head is an answer. */
void call_break(struct call *call, const char *detail);
void call_out_of_memory(struct call *call);    /* before anything was sent */
void call_set_timer(struct call *call);        /* by what it does now */
void upstream_hear(struct upstream *upstream); /* libcurl goes on, and tells who is connected */
void call_on_timeout(struct timer *timer);

/* ---- upstream_mail.c: the same for mails ---- */

bool mail_link_is_tls(const struct config_route *route);
bool mail_link_set_up(struct link *link) __attribute__((warn_unused_result)); /* false: no memory */
void mail_link_good_bye(struct link *link);                                   /* before it is closed */
void mail_begin(struct call *call);                                           /* as call_begin() */
void mail_talk(struct call *call);                                            /* as call_read(), and sends */
/* True: the relay's own words are that there is no session, and the call was finished with them, or goes on to connect
 * with another way to log in. */
bool mail_unconnected(struct call *call, CURLcode result) __attribute__((warn_unused_result));

/* ---- upstream_link.c ---- */

void link_pool_init(struct upstream *upstream);
void link_pool_free(struct upstream *upstream); /* after the last link */

/* An idle link that fits the call and is silent, or NULL. */
struct link *link_take(struct upstream *upstream, struct request *request);
/* Begins to connect, or only to look; upstream_connected() will come, not from in here. NULL: no memory. */
struct link *link_open(struct upstream *upstream, struct request *request, bool look)
    __attribute__((warn_unused_result));
/* libcurl's limit: divided among the addresses it tries. False: no such option. */
bool link_limit_connect(struct link *link, uint64_t ms) __attribute__((warn_unused_result));
/* libcurl has connected it: it is ours. False: the partner spoke, or hung up, before it was asked; or
 * link->error says more. */
bool link_adopt(struct link *link) __attribute__((warn_unused_result));
void link_put(struct link *link); /* its call has ended well: it waits for another */
/* The call on it is given up: bytes of it that the kernel still holds are dropped when the link is closed, by a reset.
 * A newer call may start meanwhile, and the older one must not go on to leave. */
void link_abandon(struct link *link);
void link_close(struct link **link);
void link_close_idle(struct upstream *upstream);

enum link_io { LINK_OK, LINK_AGAIN, LINK_CLOSED, LINK_FAILED };
enum link_io link_recv(struct link *link, char *data, size_t cap, size_t *got);
/* After LINK_AGAIN the same bytes have to be given again. */
enum link_io link_send(struct link *link, const char *data, size_t len, size_t *sent);
/* What is sent next decides whether a call has begun: link->taken tells from here on. */
void link_expect(struct link *link);
/* False: TLS has to read or write something of its own before it can send. */
bool link_may_send(const struct link *link);
/* For what the last LINK_AGAIN waits, and for what comes unasked. */
void link_watch_needed(struct link *link);
/* Why it failed, in a sentence: by the error of the last step, else by the words `otherwise`. */
void link_explain(const struct link *link, const char *otherwise, char *out, size_t cap);
/* After LINK_CLOSED: the partner ended it, and nothing that it said is missing. */
bool link_ended_well(const struct link *link);
/* Nothing waits to be read: neither a close nor bytes that would be taken for the next answer. */
bool link_is_silent(struct link *link);
void link_watch(struct link *link, uint32_t events); /* 0: not at all */

/* ---- upstream_tls.c ---- */

/* TLS 1.2 at least, no renegotiation, no key log, no finite-field key exchange, an end to handshake messages. *seen
 * lives as long as the handle. False: no memory. */
bool tls_set_rules(CURL *easy, struct tls_seen *seen);
bool tls_said_good_bye(CURL *easy);   /* on a connection that has ended: by the partner's own word */
bool tls_is_busy(CURL *easy);         /* a handshake message is half there: nothing can be sent before the rest */
bool tls_owes_key_update(CURL *easy); /* the partner asked for one: it would go out in front of the next write */
bool tls_wants_read(CURL *easy);      /* after CURLE_AGAIN */
bool tls_wants_write(CURL *easy);
/* Bytes that the kernel took on this connection. False: not known. */
bool tls_written(CURL *easy, uint64_t *bytes) __attribute__((warn_unused_result));

/* ---- upstream_socket.c: libcurl's sockets in the worker's epoll set ---- */

/* Their argument is the upstream, but for the opening (the link). */
int upstream_on_socket_change(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg);
curl_socket_t upstream_on_socket_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address);
int upstream_on_socket_close(void *arg, curl_socket_t fd);
void upstream_release_socket(struct upstream *upstream, curl_socket_t fd); /* it is ours from now on */
void upstream_forget_sockets(struct upstream *upstream);

#endif
