/*
 * gateway/gate.h - order per key: who may start, who waits, who is too late.
 *
 * Every fenced request holds a ticket for its (namespace, key) from before its fence is read until its call has ended.
 * The writer tells the gate of every raised fence after the commit and before any verdict of that batch is handed out;
 * so once a token was accepted (its worker knows), each older call either has begun to send, and a newer one waits for
 * it, or it will be stopped: at gate_enter(), by a notice while it waits or connects, or at gate_begin_send(), the last
 * look. That is G3 and G4 of the contract.
 *
 * A reset of the fence is told the same way. It ends the order that was: what has not begun to send by then is stopped
 * as if a higher token had come, since its token was judged by a fence that is gone; what is sending counts as older
 * than every token that comes later, whatever its own.
 *
 *   gate_join ── JOINED ── gate_enter ──► STARTING ── gate_begin_send ──► SENDING ── gate_leave
 *                              └► WAITING ──┘ (by the leave of the last older call)     └► gate_retract: STARTING
 *
 * Threads: any. A shard's mutex is held for a few instructions and never while anything waits. A ticket's memory is its
 * owner's (one worker); the fields below the line are the gate's and only touched under the shard's mutex.
 */
#ifndef FENCEGATE_GATE_H
#define FENCEGATE_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/inbox.h"
#include "store/store.h"

struct gate;
struct gate_entry;

enum gate_rule { GATE_DRAIN, GATE_ABORT, GATE_OVERLAP }; /* what a newer call does about older ones in flight */
enum gate_state { GATE_OUT, GATE_JOINED, GATE_WAITING, GATE_STARTING, GATE_SENDING };
enum gate_notice {
    GATE_MAY_START = 1,  /* was waiting, is now STARTING */
    GATE_SUPERSEDED = 2, /* a higher token was accepted, or the fence reset; still in the gate until gate_leave() */
    GATE_CUT = 4,        /* sending, and a newer call's rule is abort: close it */
};

struct gate_ticket {
    struct inbox_item item; /* item.run is the owner's: it calls gate_notices() */
    struct inbox *inbox;    /* where notices go */
    uint64_t token;
    enum gate_rule rule;
    /* ---- the gate's ---- */
    struct gate_entry *entry;
    struct gate_ticket *next, *prev; /* in the entry's list of its state */
    enum gate_state state;
    uint64_t epoch; /* of the entry when this ticket joined: another one, and the fence was reset since */
    uint64_t order; /* in flight: its token, or 0, below every token, once the fence was reset */
    unsigned notices;
    bool posted; /* the item is in the inbox, or running and has not yet asked for its notices */
};

struct gate *gate_new(void) __attribute__((warn_unused_result)); /* NULL: no memory */
void gate_free(struct gate **gate);                              /* all tickets have left */

/* Takes part in the key's order. False: no memory, nothing happened. */
bool gate_join(struct gate *gate, struct gate_ticket *ticket, struct slice ns, struct slice key)
    __attribute__((warn_unused_result));

/* Will it have to wait, with older calls in flight or on their way in? A guess: what comes until it enters is not
 * known, nor which of them are turned away. */
bool gate_would_wait(const struct gate_ticket *ticket) __attribute__((warn_unused_result));

enum gate_answer { GATE_ENTERED, GATE_MUST_WAIT, GATE_TOO_LATE };
/* May this token start now? GATE_TOO_LATE: a higher token was accepted since it was read, *highest tells which; or the
 * fence was reset, then *highest is 0 unless there is a higher token by now. */
enum gate_answer gate_enter(struct gate_ticket *ticket, uint64_t *highest) __attribute__((warn_unused_result));

/* The last look, with the first byte about to leave: true, and the call counts as sending from now on; or false with
 * *highest set as above. Atomic with gate_raised() and gate_reset(). */
bool gate_begin_send(struct gate_ticket *ticket, uint64_t *highest) __attribute__((warn_unused_result));

/* No byte left after that look: STARTING again, and the next try begins with another look. False as above. */
bool gate_retract(struct gate_ticket *ticket, uint64_t *highest) __attribute__((warn_unused_result));

/* A look before that, for a call that has more to do until then: false as above. */
bool gate_is_current(struct gate_ticket *ticket, uint64_t *highest) __attribute__((warn_unused_result));

/* The call has ended or will not start. Wakes those who waited for it. True: a notice is still under way to the owner's
 * inbox, so the ticket's memory must stay until its item has run (gate_notices() then returns 0). */
bool gate_leave(struct gate_ticket *ticket) __attribute__((warn_unused_result));

/* Takes the notices that came since the last call (enum gate_notice); called by item.run. */
unsigned gate_notices(struct gate_ticket *ticket);

/* What the gate was last told for this key; 0: nothing, or what was before a reset and is not above the ticket. */
uint64_t gate_highest(struct gate_ticket *ticket);

/* A fence was raised durably: by the writer (every raise passes here), before any verdict of its batch. */
void gate_raised(struct gate *gate, struct slice ns, struct slice key, uint64_t token);

/* A fence was reset durably: by the writer, in the order of the raises, before any verdict of its batch. */
void gate_reset(struct gate *gate, struct slice ns, struct slice key);

/* Calls of this key that are connecting or sending; and those of them that a call with `token` would wait for. */
uint64_t gate_in_flight(struct gate *gate, struct slice ns, struct slice key);
uint64_t gate_in_flight_below(struct gate *gate, struct slice ns, struct slice key, uint64_t token);

/* The same by token, with those that wait. Returns how many tokens there are in `out`; past `cap` the rest is left
 * out. */
struct gate_token {
    uint64_t token, in_flight, waiting;
};
size_t gate_tokens(struct gate *gate, struct slice ns, struct slice key, struct gate_token *out, size_t cap);

#endif
