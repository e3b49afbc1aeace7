/*
 * gateway/admin_door.h - takes the admin listener's connections and looks at their first head before libmicrohttpd
 * does.
 *
 * The library answers a head that it can't read by a page of its own, or by closing: here it gets a problem body. A
 * head that it can read is left in the socket and the connection handed over. When connections run out, the one that
 * has stood here longest ends first. The library gets all but some of them: those are kept for probes (GET or HEAD of
 * /healthz and /readyz without a body), so that nobody takes a healthy gateway for a dead one. All of it runs on the
 * admin thread.
 */
#ifndef FENCEGATE_ADMIN_DOOR_H
#define FENCEGATE_ADMIN_DOOR_H

#include <stdbool.h>
#include <sys/socket.h>

#include "gateway/admin_calls.h"
#include "gateway/head.h"

struct admin_doors;
struct admin_door_options {
    int listen_fd;            /* borrowed */
    unsigned connections_max; /* at the door and served, together */
    unsigned for_probes;      /* of these */
    unsigned patience_ms;     /* for a head to come whole, or for the next to begin */
    struct head_limits head;  /* the largest that libmicrohttpd can take */
    size_t head_memory;       /* what it has for head and fields together */
    const char *hint;         /* ends each refusal: nobody knows yet who asks */
    unsigned (*served)(void *arg);
    /* The descriptor is the callee's from here on. */
    void (*hand_over)(void *arg, int fd, const struct sockaddr *address, socklen_t len);
    void *arg;
};

/* NULL: no memory, or no descriptor. */
struct admin_doors *admin_doors_new(const struct admin_door_options *options) __attribute__((warn_unused_result));
void admin_doors_free(struct admin_doors **doors);   /* closes what stands there; clears *doors */
int admin_doors_fd(const struct admin_doors *doors); /* readable: run */
/* Accepts, looks, refuses, hands over. Returns after how many milliseconds it wants to be called again; -1: no need. */
int admin_doors_run(struct admin_doors *doors);
/* Writes a problem past the library, which has answered nothing, and ends our side of the connection. `hint` as in
 * struct admin_answer. */
void admin_raw_problem(int fd, enum admin_problem kind, const char *detail, const char *hint);

#endif
