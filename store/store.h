/*
 * store/store.h - what the gateway keeps on disk: fences, open effects, the audit.
 *
 * The only public header of store/. No type of the engine shows here and every change completes by
 * callback, so that another engine can stand behind it. Nothing here knows gateway/ or config/.
 *
 * Threads: store_submit() may be called from any thread. `done` and `raised` run on the store's writer thread
 * and must only hand over (post to an inbox, set a flag); only STORE_CLOSED is told from within store_submit().
 * A store_reader belongs to the thread that opened it. One store per process: LMDB drops its locks when a file
 * is opened twice.
 */
#ifndef FENCEGATE_STORE_H
#define FENCEGATE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes with a length, not owned, not NUL-terminated. {NULL, 0} is "absent". */
struct slice {
    const char *data;
    size_t len;
};

enum store_error {
    STORE_OK = 0,
    STORE_NOT_FOUND,
    STORE_FULL,    /* max_size or the disk is reached: nothing of this operation was kept */
    STORE_IO,      /* the engine or the disk failed: nothing of this operation was kept */
    STORE_BUSY,    /* open: another process serves this folder */
    STORE_FORMAT,  /* open: unknown format version, or a record that does not decode */
    STORE_CLOSED,  /* submitted after store_close() began */
    STORE_ALREADY, /* RESOLVE: somebody has resolved this effect; backup, restore: the folder has something in it */
    STORE_DAMAGED, /* restore: the backup has findings */
};

enum audit_kind {
    AUDIT_DROPPED = 1,
    AUDIT_REJECTED,
    AUDIT_SENT,
    AUDIT_NOT_SENT,
    AUDIT_UNKNOWN,
    AUDIT_RAISED,
    AUDIT_RESET,
    AUDIT_RESOLVED,
};
const char *audit_kind_name(enum audit_kind kind); /* "dropped", ..., "not-sent", ... */
bool audit_kind_parse(struct slice text, enum audit_kind *out);

/* One audit record, or (kind unset) the intent of an effect. Zero and absent fields are not stored and
 * not shown. All slices are borrowed. `id` is set by the store; so is `time_ms` where it is 0. */
struct audit_record {
    uint64_t id;
    uint64_t time_ms; /* Unix time in milliseconds */
    enum audit_kind kind;
    struct slice reason; /* the `reason` of SPEC section 4; absent for a plain "sent" */
    uint64_t effect_id;
    struct slice route, ns, key;
    uint64_t token;   /* 0: none */
    uint64_t highest; /* 0: none */
    struct slice method, path, client, target, note;
    uint32_t status, upstream_status; /* 0: none */
    bool has_bytes;                   /* request_bytes, response_bytes, duration_ms apply */
    uint64_t request_bytes, response_bytes, duration_ms;
    bool would_drop;
    /* When its call was accepted, 0: not known. The store sets it in what closes an effect, after a crash too. Shown
     * nowhere; the story of a key needs it. */
    uint64_t accepted_ms;
};
/* When the call of a record was accepted, as near as it is known. */
uint64_t audit_accepted_ms(const struct audit_record *record);

enum store_op_kind {
    STORE_ADMIT,  /* decide on a token; raise the fence; write the intent or the drop: one transaction */
    STORE_RECORD, /* append `record`; with record.effect_id set, that effect's intent goes in the same step */
    /* What operators and lock services do. Each is judged and recorded in one transaction; record.client says who. */
    STORE_RAISE,   /* the fence of record.ns and key goes up to record.token: `raised` record. No max_jump applies. */
    STORE_RESET,   /* the fence goes: `reset` record with the old fence as `highest`. STORE_NOT_FOUND without one. */
    STORE_RESOLVE, /* what became of effect record.effect_id is known now: `resolved` record with the effect's subject,
                    * record.reason ("sent" or "not-sent") and record.note. STORE_NOT_FOUND: no such effect is in doubt
                    * or in the audit as `unknown`; STORE_ALREADY: a second time. */
    STORE_TURN,    /* the call of effect record.effect_id may start, or (`waits`) waits for an older one again.
                    * STORE_NOT_FOUND: it has no intent */
};

enum store_verdict {
    VERDICT_ACCEPTED = 1,
    VERDICT_STALE,       /* token < fence */
    VERDICT_USED,        /* token == fence and !equal_allowed */
    VERDICT_IMPLAUSIBLE, /* token - fence > max_jump; the fence stays */
};

/* One change. Owned by the submitter, untouched by it from store_submit() until `done`, which is called
 * exactly once, after the sync that made the change durable (or with `error` set: then nothing was kept). A RECORD that
 * closes an effect is kept through failed commits and tried again until it is durable or the store is closed: its
 * `done` may take long.
 * Strings it points to must live as long. A RECORD that closes an effect says what a partner did and is not failed
 * for a full or failing disk: it is tried again until it is kept, at the longest until store_close().
 * A full store still takes resets, resolutions and, as long as half of the room kept for such things is left, raises.
 */
struct store_op {
    struct store_op *next; /* the store's while submitted */
    enum store_op_kind kind;
    void (*done)(struct store_op *op);
    const void *home; /* NULL: `done` is called for this one alone. Else it may get several at once, linked by `next`:
                       * operations of one batch that follow each other and have the same `done` and `home` */

    /* in. ADMIT: the subject (route, ns, key, token, method, path, client, ...); on a refusal it becomes
     * the drop's record with `reason` and `status` taken from `refusal[verdict]`. RECORD: as it is. RAISE, RESET and
     * RESOLVE: what their kinds name above; `reason` of the first two is the operator's text. */
    struct audit_record record;
    struct {
        bool equal_allowed;
        uint64_t max_jump; /* 0: any */
        bool intent;       /* write an intent record and give out an effect id (ledger: effects) */
        bool waits; /* it waits for an older call: a crash leaves a `not-sent` record of it, and no doubt. TURN too */
        bool undecided; /* nothing to decide on (`observe` without a usable token or key): only the intent is written */
        bool observe; /* a refusal is only told: verdict as decided, no drop record; with `intent` the intent is written
                       */
        struct {
            struct slice reason;
            uint32_t status;
        } refusal[5]; /* by enum store_verdict */
    } admit;

    /* out */
    enum store_error error;
    enum store_verdict
        verdict;        /* of ADMIT; of RAISE: ACCEPTED (raised, or there already: no record), or STALE (lower) */
    uint64_t highest;   /* the fence after this operation; of RESET: the one that was deleted */
    uint64_t effect_id; /* ADMIT with an intent written; else 0 */
    uint64_t time_ms;   /* ADMIT: of the intent or the drop, written or not */
    uint64_t audit_id;  /* the record appended by this operation; else 0 */
};

struct fence {
    uint64_t token;
    uint64_t updated_ms;
    bool floor; /* the floor of a restored store: no token of this key, so no jump is measured from it */
};
/* The rule by itself, pure: what a token meets at a fence (token 0: none yet; a first token has no jump). The verdict
 * that counts is the one computed inside STORE_ADMIT's transaction; this one serves an early look. max_jump 0: any. */
enum store_verdict store_judge(const struct fence *fence, uint64_t token, bool equal_allowed, uint64_t max_jump);

struct store;

/* FINE: an end of trouble. ODD: somebody should look. TROUBLE: nothing is sent. MADE: this start made the store; the
 * text is its path. */
enum store_notice { STORE_NOTICE_FINE, STORE_NOTICE_ODD, STORE_NOTICE_TROUBLE, STORE_NOTICE_MADE };

struct store_sample {
    uint64_t batch_us, commit_us; /* from its begin to the end of its commit; the commit alone, with its syncs */
    uint64_t operations;
};

struct store_options {
    const char *path; /* folder */
    bool make;        /* a new, empty store where there is nothing of one, and the folder with mode 0700, but none above
                       * it; else STORE_NOT_FOUND */
    uint64_t max_size;     /* bytes */
    uint64_t retain_ms;    /* audit records older than this are removed in small steps; 0: none is */
    bool drop_oldest;      /* audit.when_full */
    uint64_t rejected_max; /* bytes that rejected records may take; at most an eighth of max_size, which 0 stands for */
    bool journal; /* for who serves calls: changes are durable with one sync, in a file beside data.mdb. The store
                   * is then written to data.mdb some tenths of a second later; readers of this process don't
                   * notice, but for a wait */
    /* Called on the writer thread for every fence that a batch raised: after its commit, before any verdict
     * of the batch is handed out. The gate learns of a raise here; later would be too late (G3). May be NULL. */
    void (*raised)(void *arg, struct slice ns, struct slice key, uint64_t token);
    /* The same for every fence that was reset, in the order of both. May be NULL. */
    void (*reset)(void *arg, struct slice ns, struct slice key);
    void *raised_arg; /* of both */
    /* Something an operator should know (retry after an error, recovered, leftovers found). May be NULL. */
    void (*notice)(void *arg, enum store_notice weight, const char *text);
    /* What a transaction took that changed something, after it. On the writer thread. May be NULL. */
    void (*measured)(void *arg, const struct store_sample *sample);
    void *notice_arg; /* of both */
};

/* What a start would find in this folder. THERE: a data.mdb. REFUSED: no store, and something that says that one was
 * here or is on its way, or no place for a folder: `why` has a line with what to do. NOT_SEEN: `why` has the reason.
 * Looks only. */
enum store_presence { STORE_THERE, STORE_WOULD_BE_MADE, STORE_REFUSED, STORE_NOT_SEEN };
enum store_presence store_look(const char *path, char *why, size_t why_cap) __attribute__((warn_unused_result));

/* Opens for serving: exclusive lock, leftovers of a crash become `unknown` records (reason
 * `gateway-crash`) and stay listed as in doubt (those that waited for an older call: `not-sent`, and no more), the
 * writer thread starts. On error *out is NULL and `why` has one line for a person that names the path. */
enum store_error store_open(const struct store_options *options, struct store **out, char *why, size_t why_cap)
    __attribute__((warn_unused_result));
/* Opens for reading only, beside a serving process or without one: for the command line. No writer. What a killed
 * process left in the journal is brought into data.mdb first, for which it has to be writable. */
enum store_error store_open_readonly(const char *path, struct store **out, char *why, size_t why_cap)
    __attribute__((warn_unused_result));
/* After files were made in it beside the store's own: by root, in a folder of another user, they become that user's. */
void store_give_files(const char *path);
/* Opened for reading: its gateway could not write data.mdb for some time, and what is newer can't be read. */
bool store_behind(const struct store *store);
/* Does a process have this folder open for serving? A look: it holds the lock, shared, for that moment. */
bool store_served(const char *path); /* true also when it may not look */
/* Finishes what was submitted, then closes. Readers must be closed before. Clears *store. */
void store_close(struct store **store);
/* Random; stays with the store. A restored copy has another one. */
uint64_t store_id(const struct store *store);

void store_submit(struct store *store, struct store_op *op);
/* Several in one step, in this order: linked by `next` from `first` to `last`. */
void store_submit_list(struct store *store, struct store_op *first, struct store_op *last);
/* New values for those three options, from now on. Any thread. */
void store_retention(struct store *store, uint64_t retain_ms, bool drop_oldest, uint64_t rejected_max);

struct store_health {
    bool writable;       /* the last commit succeeded and there is room for new work */
    const char *reason;  /* static text when not writable */
    uint64_t commits;    /* since start */
    uint64_t operations; /* applied by those commits */
    uint64_t used_bytes, max_bytes, free_pages;
    uint64_t in_doubt;                    /* effects listed as in doubt */
    uint64_t in_doubt_since_ms;           /* when the oldest at the start was accepted; wall time, 0: unknown */
    uint64_t disk_used_bytes, disk_bytes; /* of the file system that it lies on; 0: unknown */
    /* The reader that keeps the oldest pages (this process or another): how many transactions it is behind, and for how
     * long it has kept them since they were not the newest. Looked at once a second. */
    uint64_t reader_lag, reader_held_ms, reader_pid;
};
void store_health(struct store *store, struct store_health *out); /* any thread */
/* Effects of a route that were recorded `unknown` and that nobody has resolved; those in doubt are among them. */
struct store_unresolved {
    const char *route; /* as on record; the configuration may not have it any more. "": no route is on record */
    uint64_t count;    /* 0: it had some since the start */
    uint64_t since_ms; /* when the oldest at the start was accepted; wall time, 0: unknown, or they are newer */
};
/* Any thread; in the order of the names. `each` must be short: the writer waits for it. */
void store_unresolved(struct store *store, void (*each)(void *arg, const struct store_unresolved *route), void *arg);
bool store_writable(struct store *store); /* health.writable alone, without a lock */
/* False: what is left of the room is for current calls of known keys. New keys' calls are STORE_FULL, and so are
 * drops and calls without a verdict. Any thread, without a lock. */
bool store_roomy(struct store *store);

/* Reads: straight from the engine's map, never blocked by the writer, only what is durable. */
struct store_reader;
enum store_error store_reader_open(struct store *store, struct store_reader **out) __attribute__((warn_unused_result));
void store_reader_close(struct store_reader **reader);

struct store_stats {
    uint64_t fences, audit_records;
};
enum store_error store_stats(struct store_reader *reader, struct store_stats *out) __attribute__((warn_unused_result));

/* The highest id of an audit record that retention removed, or a full store with drop_oldest; 0: none. */
enum store_error store_removed(struct store_reader *reader, uint64_t *id) __attribute__((warn_unused_result));

/* The floor that a restore put under all keys; STORE_NOT_FOUND: none. */
enum store_error store_floor_get(const struct store_reader *reader, struct fence *out)
    __attribute__((warn_unused_result));

enum store_error store_fence_get(struct store_reader *reader, struct slice ns, struct slice key, struct fence *out)
    __attribute__((warn_unused_result));

/* Fences by namespace, then key, in the order of their bytes. */
struct fence_filter {
    struct slice ns, prefix;          /* the namespace; what keys begin with; absent: any */
    struct slice after_ns, after_key; /* go on behind this fence, there or not; absent: from the start */
    size_t limit;                     /* most fences to deliver; at least 1 */
};
struct fence_entry {
    struct slice ns, key;
    struct fence fence;
};
/* Calls `each` in order, entry valid only within the call; false from it stops. *more: there is one more than `limit`
 * that fits. */
enum store_error store_fences_query(struct store_reader *reader, const struct fence_filter *filter,
                                    bool (*each)(void *arg, const struct fence_entry *entry), void *arg, bool *more)
    __attribute__((warn_unused_result));

/* Effects without an outcome that is known, by what is known of them. In a store that was opened for reading and that
 * nobody serves nothing runs: what a crash left is in doubt there too, before a start has recorded it. */
enum effects_state {
    EFFECTS_IN_DOUBT, /* each as its intent, with the effect's id in `id` */
    EFFECTS_RUNNING,  /* the same; those that wait to be sent are among them */
    EFFECTS_UNKNOWN,  /* recorded `unknown` and not resolved since; each as that record */
};
struct effects_filter {
    enum effects_state state;
    struct slice ns, key; /* absent: any. There is no index for them */
    uint64_t after;       /* ids of effects above */
    size_t limit;         /* at least 1 */
    size_t looks;         /* these two as with audits */
    uint64_t patience_ms;
};
/* By the effects' ids, oldest first. *next_after is such an id; the rest as with audits. */
enum store_error store_effects_query(struct store_reader *reader, const struct effects_filter *filter,
                                     bool (*each)(void *arg, const struct audit_record *effect), void *arg,
                                     uint64_t *next_after) __attribute__((warn_unused_result));

/* Audit query. Absent slices and zeroes do not filter. */
struct audit_filter {
    struct slice ns, key, reason, route;
    enum audit_kind kind;        /* 0: any */
    uint64_t id, effect_id;      /* this record; records of this effect, which all lie above its id */
    uint64_t since_ms, until_ms; /* since inclusive, until exclusive; 0: open */
    uint64_t after;              /* ascending: ids above; descending: ids below; 0: from the end it starts at */
    bool descending;
    size_t limit; /* most records to deliver; at least 1 */
    /* Bounds on the work; 0: none. Past them the page ends, with few records or none. The time is looked at now and
     * then: a few thousand records are always looked at. */
    size_t looks; /* most records to look at */
    uint64_t patience_ms;
};
/* Calls `each` in order, record valid only within the call; false from it stops. *next_after is the id to
 * pass as `after` for the next page, 0 when there is none. With a key given an index is used; a
 * record whose namespace and key are no valid pair is not in it. */
enum store_error store_audit_query(struct store_reader *reader, const struct audit_filter *filter,
                                   bool (*each)(void *arg, const struct audit_record *record), void *arg,
                                   uint64_t *next_after) __attribute__((warn_unused_result));

/* Backup, restore, verify: for a process of its own (the command line); they block. All three read what a disk may have
 * damaged through a map of the file: a broken page can end the process by SIGSEGV, SIGBUS or SIGABRT, so the caller
 * should have handlers that say so. `why` gets one line for a person on an error. */

struct store_contents {
    uint64_t bytes; /* of the file */
    uint64_t fences, records;
    uint64_t effects;              /* without an outcome: running or in doubt */
    uint64_t newest_id, newest_ms; /* of the audit; 0: it is empty */
    uint64_t floor;                /* 0: none */
    uint64_t raised;               /* by a restore: fences that were below min_token */
};

/* A consistent, compacted, synced copy, beside a gateway that runs or without one. `folder` is made with mode 0700 when
 * missing, and must be empty (STORE_ALREADY). The copy gets its name when it is whole: what an error or a crash leaves
 * is no store. */
enum store_error store_backup(struct store *store, const char *folder, struct store_contents *out, char *why,
                              size_t why_cap) __attribute__((warn_unused_result));

/* Something that is not as it should be. All borrowed. */
struct store_finding {
    const char *table;
    struct slice ns, key; /* absent where it is not about a key */
    uint64_t id;          /* of a record or an effect; 0: of none */
    const char *text;
};
struct store_checker {
    void (*finding)(void *arg, const struct store_finding *finding);
    void (*alive)(void *arg); /* called often: the check is getting on. May be NULL */
    void *arg;
};
/* Looks at everything and changes nothing, in slices: beside a gateway that runs it pins old pages only for moments,
 * and what is written meanwhile makes no finding. *findings: how many. An error: it could not be read to the end. */
enum store_error store_verify(struct store *store, const struct store_checker *checker, struct store_contents *out,
                              uint64_t *findings) __attribute__((warn_unused_result));

/* Puts the backup in the folder `from` into the folder `path`: missing, or empty but for what a gateway leaves beside a
 * store (STORE_ALREADY). It is verified before (STORE_DAMAGED). Every fence below min_token is raised to it, and it is
 * the fence of every key that has none; 0: fences are as they were. A record in the audit says so; effects that were
 * running are in doubt now; ids go on far above those that may have been given out since the backup. */
struct store_restore {
    const char *from, *path;
    uint64_t min_token;
    struct store_checker checker;
};
enum store_error store_restore(const struct store_restore *restore, struct store_contents *out, char *why,
                               size_t why_cap) __attribute__((warn_unused_result));

#endif
