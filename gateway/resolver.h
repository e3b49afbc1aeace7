/*
 * gateway/resolver.h - names to addresses, on few threads of its own.
 *
 * getaddrinfo() can't be stopped and may hang for as long as a name server is silent, so each look-up has a thread for
 * its time, and their number is bounded. Names that requests choose (LOOKUP_CHOSEN) get half of the threads at most,
 * and never the last one there is: the names of the configuration (LOOKUP_FIXED) go on however many of the others hang.
 * Who asks for a name that is being looked up, or was found less than 10 s ago, shares that look-up; failures are not
 * kept.
 *
 * Any thread. Answers come through the inbox given, on its owner's thread. Threads start on demand, one with the
 * resolver; one that had nothing to do for 30 s leaves.
 */
#ifndef FENCEGATE_RESOLVER_H
#define FENCEGATE_RESOLVER_H

#include <stdbool.h>

struct inbox;
struct lookup;
struct resolver;

enum lookup_class { LOOKUP_FIXED, LOOKUP_CHOSEN };

/* `addresses`: as inet_ntop() writes them, IPv6 ones in brackets, with commas between, in the order to be tried. NULL:
 * there is none, and `problem` has why; it is NULL when memory was short. Both last as long as the call. */
typedef void lookup_done(void *arg, const char *addresses, const char *problem);

/* Up to `threads` at once (2 at least). NULL: no memory, or no thread. */
struct resolver *resolver_new(unsigned threads) __attribute__((warn_unused_result));
void resolver_limit(struct resolver *resolver, unsigned threads); /* for what begins from now on */
/* After the last inbox was drained for good. A thread whose look-up hangs is left behind with what it needs. */
void resolver_free(struct resolver **resolver);

/* Never answers from inside. NULL: no memory. The lookup lives until `done` is called or it is cancelled. */
struct lookup *resolver_ask(struct resolver *resolver, const char *name, enum lookup_class class, struct inbox *inbox,
                            lookup_done *done, void *arg) __attribute__((warn_unused_result));
/* On the thread of its inbox: `done` will not be called. Clears *lookup; nothing happens to NULL. */
void lookup_cancel(struct lookup **lookup);

#endif
