/*
 * gateway/inbound.h - clients over libmicrohttpd, in a worker's loop. With inbound_answer.c and inbound_linger.c the
 * only user of microhttpd.h on the proxy side.
 *
 * We accept ourselves (to answer 503 above limits.connections) and hand the socket to libmicrohttpd. A request waits
 * with its connection suspended. Worker's thread only.
 */
#ifndef FENCEGATE_INBOUND_H
#define FENCEGATE_INBOUND_H

#include <stdbool.h>
#include <stdint.h>

struct inbound;
struct request;
struct worker;

const char *inbound_library(void); /* "0.9.75" */

/* NULL on failure. `fd` is a listening, non-blocking socket; it stays the caller's. */
struct inbound *inbound_new(struct worker *worker, int fd) __attribute__((warn_unused_result));
/* Closes all clients, answered or not. */
void inbound_free(struct inbound **inbound);

/* Lets libmicrohttpd work on what is due. True: it did something. */
bool inbound_run(struct inbound *inbound);
int inbound_wait_ms(struct inbound *inbound); /* how long it may be left alone; -1: for ever */

/* The gateway's own answer, from request->reason and so on. At most once a request; nothing if the client has left. */
void inbound_answer(struct request *request);
/* There is (more of, or the end of) a partner's answer in request->reply. */
void inbound_reply_ready(struct request *request);

#endif
