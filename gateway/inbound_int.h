/* gateway/inbound_int.h - shared by the inbound*.c files only. */
#ifndef FENCEGATE_INBOUND_INT_H
#define FENCEGATE_INBOUND_INT_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/reason.h"
#include "gateway/timers.h"
#include "gateway/worker.h"

enum { CLIENT_NAME_MAX = 64 };

#define CONNECTION_MAGIC 0x46434F4Eu

/* One client connection; made and freed by libmicrohttpd's start and close notices. */
struct connection {
    uint32_t magic;
    struct inbound *inbound;
    struct MHD_Connection *mhd;
    int fd;
    struct request *request;      /* under way; NULL: idle */
    struct timer timer;           /* next answer or next request must have made progress by then */
    uint64_t bytes_seen;          /* received in all, at the last look */
    bool looked;                  /* since it became idle: bytes_seen is a base */
    bool partial;                 /* a request line has begun */
    bool linger;                  /* close gently: the client may still be sending */
    char client[CLIENT_NAME_MAX]; /* "address:port" */
};

struct inbound {
    struct worker *worker;
    struct MHD_Daemon *daemon;
    struct io daemon_io, listen_io;
    struct timer accept_pause; /* out of descriptors: try again then */
    int listen_fd;
    bool announced;           /* libmicrohttpd gave the start notice of the connection that is being added */
    size_t connection_memory; /* bytes libmicrohttpd has for one connection */
    bool due;                 /* libmicrohttpd has something to do */
    struct door *at_door;     /* accepted, first head not yet whole */
    char *door_bytes;         /* scratch for a look at one */
    size_t door_cap;
    struct farewell *lingering;
    unsigned lingering_count;
};

/* inbound_answer.c */
enum MHD_Result inbound_queue(struct request *request); /* the response made before goes out; from the handler only */
/* Writes an answer with `Connection: close` past libmicrohttpd, which can't answer in the middle of a body and has
 * written nothing for this request. Best effort: the client may be gone. */
void inbound_raw_answer(int fd, enum reason reason, const char *detail);

/* inbound.c: "address:port"; empty when it has neither form. */
void inbound_name_client(char out[CLIENT_NAME_MAX], const struct sockaddr *address);

/* inbound_accept.c */
void inbound_on_listen_ready(struct io *io, uint32_t events);
void inbound_on_accept_again(struct timer *timer);
void inbound_close_door(struct inbound *inbound);

/* inbound_linger.c: a closing connection whose client may still be sending is read on for a while and only then
 * closed, else the kernel resets it and the client never sees the answer (and SDKs repeat the call). Takes over `fd`.
 */
void linger_start(struct inbound *inbound, int fd);
void linger_free_all(struct inbound *inbound);

#endif
