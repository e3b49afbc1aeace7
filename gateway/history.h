/*
 * gateway/history.h - the story of one key: every token that is known of it, what became of its calls, the resets.
 *
 * Made of the key's audit records, its fence and its effects that run or are in doubt; the gate's part (what runs and
 * waits now) is added by whoever has a gate. history_collect() reads, everything else is pure. Whoever collects owns
 * the history and frees it, also after an error. One thread.
 */
#ifndef FENCEGATE_HISTORY_H
#define FENCEGATE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/jsonout.h"
#include "store/store.h"

#define HISTORY_LIMIT_DEFAULT 100
#define HISTORY_LIMIT_MAX 1000 /* tokens; of resets there are never more than this */
#define HISTORY_LOOKS 100000   /* most records of the key that are looked at, newest first */
#define HISTORY_NAMES 12       /* most routes, and most reasons, told of one token */

enum history_count {
    HISTORY_SENT,
    HISTORY_NOT_SENT,
    HISTORY_DROPPED,
    HISTORY_REJECTED,
    HISTORY_UNKNOWN,
    HISTORY_RESOLVED,
    HISTORY_WOULD_DROP, /* among those above: forwarded by a route that observes */
    HISTORY_COUNTS,
};

/* Who made a token the fence. */
enum history_by {
    HISTORY_BY_NONE,     /* nobody, as far as is on record */
    HISTORY_BY_EVIDENCE, /* the fence, or a record that names it as the highest: accepted by then, by whom is unknown */
    HISTORY_BY_CALL,
    HISTORY_BY_RESTORE, /* no token of this key: the floor of a restored store */
    HISTORY_BY_RAISE,
};

struct history_name {
    char *text;
    uint64_t count;
};

struct history_token {
    uint64_t token;
    size_t era;                           /* how many resets came later */
    bool own;                             /* a record is about this token; else one named it as the highest */
    uint64_t first_ms, first_id, last_id; /* of those records; 0: none */
    uint64_t last_ms;                     /* of the last call; 0: none is known */
    uint64_t count[HISTORY_COUNTS];
    uint64_t in_flight, waiting; /* at the gate, now */
    uint64_t in_doubt;
    struct {
        enum history_by by;
        uint64_t order, time_ms, audit_id; /* order: the effect's or the record's id, the lower the earlier */
        char *client, *route, *reason;     /* NULL: absent */
    } accepted;
    struct history_name routes[HISTORY_NAMES], reasons[HISTORY_NAMES];
};

struct history_reset {
    uint64_t id, time_ms, highest;
    char *client, *reason;
};

/* Zero-initialise, then set `limit`; or history_collect(). */
struct history {
    size_t limit;                  /* most tokens to keep: the newest */
    struct fence fence;            /* token 0: none */
    struct history_token **tokens; /* newest first: by era, then from the highest token down */
    size_t token_count, token_cap;
    bool more_tokens;             /* older ones were left out */
    struct history_reset *resets; /* newest first */
    size_t reset_count, reset_cap;
    bool resets_known; /* second pass: eras can be told */
    uint64_t newest_id;
    uint64_t records;         /* that were looked at */
    bool cut;                 /* there are more resets than are kept: nothing older was looked at */
    bool complete;            /* these are all there are */
    uint64_t removed_id;      /* records up to this one are no longer kept, perhaps some of this key; 0: none */
    uint64_t oldest_audit_id; /* the last one looked at */
    bool live;                /* in_flight and waiting are known */
    uint64_t in_flight;
    bool failed; /* out of memory */
};

/* The key's records, newest first. False: enough, or out of memory (`failed`). */
bool history_add(struct history *history, const struct audit_record *record);
/* After the last record: true when there were resets, so that all has to be added once more (the same records). A
 * call's record can come after the reset that ended its order; which ones did is known when the resets are. */
bool history_again(struct history *history) __attribute__((warn_unused_result));
/* Then, in any order. An intent is in doubt, or runs. */
void history_add_intent(struct history *history, const struct audit_record *intent, bool in_doubt);
void history_set_fence(struct history *history, const struct fence *fence);
/* Behind all these: does the floor of a restored store tell who made a token of this key the fence? Then who did. */
bool history_needs_floor(const struct history *history, const struct fence *floor);
void history_set_floor(struct history *history, const struct fence *floor, uint64_t audit_id);
void history_set_live(struct history *history, uint64_t token, uint64_t in_flight, uint64_t waiting);

/* All of it but the gate's part. STORE_NOT_FOUND: no fence, no record, no effect in doubt. Records are read for about
 * patience_ms (0: no such bound). */
enum store_error history_collect(struct store_reader *reader, struct slice ns, struct slice key, size_t limit,
                                 uint64_t patience_ms, struct history *out) __attribute__((warn_unused_result));
void history_free(struct history *history);

/* As GET /v1/fences/{namespace}/{key}/history answers. */
void history_write(struct jsonout *out, struct slice ns, struct slice key, const struct history *history);
const char *history_by_name(enum history_by by); /* NULL: not known */

#endif
