/*
 * gateway/token_watch.h - whether the tokens that a route gets look like those of a healthy lock service.
 *
 * Two things are looked for. Tokens that are readings of a clock: one clock that runs ahead, or one worker with the
 * wrong unit, and every later holder is shut out. And a lock service that went back (restored from a backup, its
 * counter lost): then the tokens of key after key are stale, and none is accepted any more.
 *
 * Any thread. A call that is accepted costs a few loads; stale tokens take a mutex for some instructions.
 */
#ifndef FENCEGATE_TOKEN_WATCH_H
#define FENCEGATE_TOKEN_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gateway/alarm.h"
#include "store/store.h"

enum { TOKEN_RUN_KEYS = 10 };

/* Stale tokens in a row. Zero-initialise; one thread at a time. Pure. */
struct token_run {
    uint64_t keys[TOKEN_RUN_KEYS]; /* hashes of the distinct keys */
    unsigned count;
    uint64_t last_ms;
};
/* One more. True: it is a regression from now on (told once a run). A run on which nothing came for an hour is not gone
 * on with: single late calls of one day and the next are no regression. */
bool token_run_stale(struct token_run *run, uint64_t key_hash, uint64_t now_ms);
void token_run_end(struct token_run *run);

/* The unit in which `token` is the time since 1970, between 30 days ago (leases can be long) and a day ahead; NULL:
 * none. Pure. */
const char *token_clock_unit(uint64_t token, uint64_t wall_ms);

/* Of one route, for the life of the process. */
struct token_watch {
    struct alarm regression, clock_like;
    atomic_bool running; /* there is a run */
    pthread_mutex_t lock;
    struct token_run run; /* under the lock */
};
void token_watch_init(struct token_watch *watch, const char *route); /* the name must live as long */
void token_watch_arrived(struct token_watch *watch, struct slice ns, struct slice key, uint64_t token);
void token_watch_stale(struct token_watch *watch, struct slice ns, struct slice key, uint64_t now_ms);
/* A token above the fence of a key that had one was accepted. (A key's first token always is, and says nothing; an
 * equal one is a holder at work.) Also when the route goes. */
void token_watch_raised(struct token_watch *watch);

#endif
