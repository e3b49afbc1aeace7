/* gateway/upstream_int.h - shared by the upstream*.c files only. */
#ifndef FENCEGATE_UPSTREAM_INT_H
#define FENCEGATE_UPSTREAM_INT_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#include "gateway/timers.h"
#include "gateway/worker.h"

enum { PORT_CHAINS = 1024 };

struct config_route;
struct request;
struct settings;
struct socket_io;

/* One easy handle; under way, or spare. */
struct call {
    CURL *easy;
    struct upstream *upstream;
    struct request *request;   /* NULL: spare */
    struct settings *settings; /* reference: the handle is set up for `route` of these */
    const struct config_route *route;
    struct call *next_spare;
    struct call *next_touched; /* got something of an answer in this turn */
    bool touched;
    bool custom;             /* CUSTOMREQUEST is set */
    bool unclean;            /* its connection was not silent before the sending */
    bool fresh;              /* FRESH_CONNECT is set */
    bool look;               /* no call: where it would go is looked at */
    struct call *next_again; /* was refused an address in this step of libcurl */
    bool again;
    unsigned allowed, refused;  /* addresses that a socket was wanted for: by what the route allows */
    unsigned sendings;          /* how often libcurl wanted to send: more than one is refused */
    struct curl_slist *headers; /* nodes in the request's arena */
    char error[CURL_ERROR_SIZE];
};

struct upstream {
    struct worker *worker;
    CURLM *multi;
    struct timer timer;
    struct call *spare;
    unsigned spare_count;
    unsigned running; /* calls under way */
    unsigned peak;    /* most of them since memory was last given back */
    bool one_use;     /* handles can't be used twice */
    struct call *touched;
    struct call *again;
    struct socket_io **sockets; /* by descriptor */
    size_t socket_cap;
    struct socket_io *newborn;              /* opened, port not yet known */
    struct socket_io *by_port[PORT_CHAINS]; /* by local port */
    bool due;                               /* libcurl wants to be called at once */
    bool activity;
    bool broken; /* libcurl ran out of memory: the multi handle must not be used again */
};

/* upstream.c: what libcurl tells of a call; their argument is the call. */
int upstream_on_before_sending(void *arg, char *peer, char *local, int peer_port, int port);
size_t upstream_on_head_line(char *line, size_t size, size_t count, void *arg);
size_t upstream_on_body(char *data, size_t size, size_t count, void *arg);

/* One step of libcurl: curl_multi_socket_action(), and what must follow. */
void upstream_step(struct upstream *upstream, curl_socket_t fd, int mask);
/* True: an allocation of libcurl failed on this thread since the last time. */
bool upstream_starved(void);

/* upstream_setup.c: makes the handle ready for the request, or for the look. False: no memory. */
bool upstream_set_up(struct call *call, struct request *request) __attribute__((warn_unused_result));
void upstream_call_free(struct call *call);

bool upstream_call_is_tls(const struct call *call);

/* upstream_socket.c: libcurl's sockets in the worker's epoll set; their argument is the upstream, but for the opening
 * (the call). */
int upstream_on_socket_change(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg);
curl_socket_t upstream_on_socket_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address);
int upstream_on_socket_close(void *arg, curl_socket_t fd);
/* A call is about to begin on the connection with that local port. True when nothing waits to be read there; with
 * `may_have_bytes` always. */
bool upstream_port_is_silent(struct upstream *upstream, int port, bool may_have_bytes);
void upstream_forget_sockets(struct upstream *upstream);

#endif
