/*
 * gateway/descriptors.h - how many file descriptors the process may have, and who gets which share when they are fewer
 * than the settings need: clients and calls are refused with 503 before connections to partners, look-ups, the store
 * or the admin listener find none. Pure but for descriptors_raise().
 */
#ifndef FENCEGATE_DESCRIPTORS_H
#define FENCEGATE_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

struct descriptor_shares {
    unsigned connections, in_flight; /* limits.connections and limits.in_flight in force */
    unsigned lingering, idle;        /* of each worker: clients that have their last answer, kept links to partners */
    unsigned admin;                  /* connections of the admin listener */
    uint64_t needed;                 /* for the settings as they are */
    bool short_of;                   /* `needed` is not there: the shares above are smaller */
};

/* Raises the soft limit to the hard one. Returns what is in force. */
uint64_t descriptors_raise(void);
void descriptors_share(uint64_t have, unsigned workers, unsigned connections, unsigned in_flight,
                       struct descriptor_shares *out);
/* One sentence with the numbers; only when short_of. */
void descriptors_tell(const struct descriptor_shares *shares, uint64_t have, char *out, unsigned cap);

#endif
