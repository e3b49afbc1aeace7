/*
 * gateway/inbound.h - clients: HTTP/1.1 and 1.0 over connections in a worker's loop. Worker's thread only.
 *
 * A connection serves one request after the other; the next one is looked at when the answer before it is on its way
 * whole. What is told here is only noted: answers are sent, and requests let go, in inbound_run(), so that no step of a
 * request is called from inside another.
 */
#ifndef FENCEGATE_INBOUND_H
#define FENCEGATE_INBOUND_H

#include <stdbool.h>

struct inbound;
struct inbox_item;
struct request;
struct worker;

/* NULL on failure. `fd` is a listening, non-blocking socket; it stays the caller's. */
struct inbound *inbound_new(struct worker *worker, int fd) __attribute__((warn_unused_result));
/* Closes all clients, answered or not. */
void inbound_free(struct inbound **inbound);

/* Sends answers and lets go of what has ended: answered requests, closed connections. True: there was something. */
bool inbound_run(struct inbound *inbound);

/* Connections that have more to be read, or a next request. They are fed once between two looks at clock and
 * descriptors, with one request each: who sends a thousand in a row holds up nobody else. */
bool inbound_is_hungry(const struct inbound *inbound);
void inbound_feed(struct inbound *inbound);

/* Of this worker's place_caller: ends the connections whose places went to others, unless a request has come. */
void inbound_on_called(struct inbox_item *item);

/* The gateway's own answer, from request->reason and so on. At most once a request; nothing if the client has left. */
void inbound_answer(struct request *request);
/* There is (more of, or the end of) a partner's answer in request->reply. */
void inbound_reply_ready(struct request *request);

#endif
