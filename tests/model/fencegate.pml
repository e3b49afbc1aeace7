/*
 * tests/model/fencegate.pml - order and durability of the gateway as a model that spin explores in every interleaving.
 * Its steps carry the names of the code's functions; check.sh runs it, as it is and with planted mistakes.
 *
 * What runs: N requests, the writer, and something that crashes and restarts the process. Each step that the code takes
 * under one lock, in one transaction, or where nobody else can look, is one step here; between two steps anything else
 * may happen.
 *
 * What is left out, and why that is no loss:
 * - Every request has a thread of its own. Two workers, or any number, run their requests' steps one after the other:
 *   whatever they can do is among what these can do. For the same reason inboxes and the writer's queue keep no order:
 *   what arrived may be taken in any order, and any part of it.
 * - Tokens are 1 to TOKENS, the fence stands anywhere from 0 to TOKENS at the beginning: only comparisons count.
 *   Requests are numbered by token, since they are alike in all else.
 * - The gate's lowest token in flight and its lists are worked out anew from the tickets' states here, while the code
 *   keeps them up to date: tests/unit/test_gate_model.c compares those two. The order of its list does not matter here:
 *   whoever may be woken carries the highest token.
 * - A chunk is durable in one step (the journal's sync, or LMDB's commit), and readers see it in a second one, before
 *   anybody is told: in the overlay or in data.mdb, which is one here. That a disk keeps what it has synced is an
 *   assumption; the power cut tests try it.
 * - The drain timeout is an event that may come at any time (TIMERS), or never: then a waiting request that nobody
 *   wakes is a deadlock. A shutdown takes the same steps as timeouts do, and its end those of a crash. Connecting and
 *   waiting for an answer always end, well or badly: each has a timeout of its own. Another try to connect, or a fresh
 *   connection for one that was closed before anything was sent, changes nothing that shows here.
 * - A worker that repeats a call is one more request with an equal token.
 * - Memory: only that no op is submitted while the store has it, and that a notice under way after the leave is waited
 *   for.
 * - Not here: `observe`, `overlap`, resolutions, retention, max_jump, a start that fails.
 *
 * A last look that passes is the moment a call starts; its bytes leave in a later step, and a token accepted in between
 * finds that call in flight. When the kernel has no room for the first of them (or TLS would have to wait for the
 * partner), the beginning is taken back in a step of its own, and there is another look before the next try. A token is accepted when somebody was told so: its worker, or who asked for the raise. A
 * glance at the store (a fence shown by the admin listener, a copy of the files) may come between the commit and the
 * gate's hearing of it, and tells nobody anything here. After a crash nobody knows what the partner is still doing, so
 * order starts anew.
 *
 * Properties: the CHECKs below, by name; and that every run ends with every request ended (spin's invalid end states).
 * EVENT counts how often something happened at all: check.sh fails when a thing that matters never did.
 *
 * Switches: N, KEYS, TOKENS; FAILING (commits and reads may fail), DYING (the root page may fail: the store is dead
 * until a restart, and what was committed is known after it), TIMERS, ABORT (on_supersede), REJECT (equal), RESETS
 * (of a fence), CRASHES (how often the process may die). MUTANT_… plants a mistake: check.sh lists them.
 */

#ifndef N
#define N 3 /* requests, at most 5 */
#endif
#ifndef KEYS
#define KEYS 1 /* request r is of key r % KEYS */
#endif
#ifndef TOKENS
#define TOKENS 3
#endif
#ifndef CRASHES
#define CRASHES 0
#endif

#define KEY(r) ((r) % KEYS)

#if N == 2
#define ANY(what) (what(0) || what(1))
#elif N == 3
#define ANY(what) (what(0) || what(1) || what(2))
#elif N == 4
#define ANY(what) (what(0) || what(1) || what(2) || what(3))
#else
#define ANY(what) (what(0) || what(1) || what(2) || what(3) || what(4))
#endif

c_decl {
#define EVENTS(X) \
    X(refused_by_look_up) X(refused_in_transaction) X(used_in_transaction) X(stands_at_it_already) \
    X(several_in_a_chunk) X(read_before_the_gate_was_told) X(too_late_at_gate_enter) X(must_wait) X(may_start) \
    X(superseded_waiting) X(superseded_connecting) X(superseded_and_may_start) X(stopped_by_last_look) \
    X(equal_side_by_side) X(taken_back) X(too_late_when_taken_back) X(cut) X(answered) X(died_before_bytes) X(died_after_bytes) X(waited_too_long) \
    X(notice_after_leaving) X(store_unavailable) X(commit_failed) X(outcome_held) X(outcomes_kept_alone) \
    X(root_page_failed_but_kept) X(crash_in_flight) X(crash_before_hand_out) X(sent_and_in_doubt) \
    X(not_sent_and_in_doubt) X(stale_after_crash) X(reset_in_flight) X(reset_overtook_its_chunk) \
    X(parked) X(turned) X(waited_in_a_crash) X(judged_by_a_fence_that_is_gone) X(waits_for_a_higher_token)
#define X(name) ev_##name,
enum { EVENTS(X) EVENT_COUNT };
#undef X
static unsigned long events[EVENT_COUNT];
static void show_events(void)
{
#define X(name) #name,
    static const char *const names[] = {EVENTS(X)};
#undef X
    int n;
    for (n = 0; n < EVENT_COUNT; n++)
        printf("event %s %lu\n", names[n], events[n]);
}
}
#define EVENT(name) c_code { events[ev_##name]++; }
#define EVENT_IF(condition, name) if :: (condition) -> EVENT(name) :: else fi

/* A property. What spin prints is the text in assert(), so each has a name there; none is part of the state. */
#define CHECK(holds, broken) if :: (holds) :: else -> assert(!broken) fi
hidden byte G1_fence_not_durable = 1;  /* sent, and a power cut could take its token from the fence */
hidden byte G1_intent_not_durable = 1; /* the same for the intent (ledger: effects) */
hidden byte G2_fence_went_down = 1;    /* by a commit or in a crash */
hidden byte G3_stale_start = 1;        /* a last look passed after a higher token's acceptance was told */
hidden byte G3_late_first_byte = 1; /* it waited for the partner or the kernel, and left after a higher token's acceptance */
hidden byte G3_start_after_reset = 1;  /* the same, after the reset of the fence that it was judged by was told */
hidden byte G3_overtaken_call_let_off = 1; /* the gate let a call start that it knew to be too late */
hidden byte G4_newer_beside_older = 1;     /* a call started while one with a lower token was in flight,
                                            * or one from before a reset */
hidden byte G4_older_beside_newer = 1;     /* the other way round */
hidden byte G5_sent_twice = 1;
hidden byte G7_sent_but_recorded_not_sent = 1;
hidden byte G7_not_sent_but_recorded_sent = 1;
hidden byte G8_sent_and_forgotten = 1; /* an effect was sent, and neither a record nor the in-doubt list tells of it */
hidden byte G8_not_one_outcome = 1;    /* an accepted effect ended, or the restart after a crash, without one */
hidden byte G8_two_outcomes = 1;
hidden byte G8_waiting_in_doubt = 1;      /* a crash leaves a call in doubt whose turn had not come */
hidden byte G8_sent_but_left_waiting = 1; /* a crash leaves it as one that waited, but it was sent */
hidden byte equal_reject_token_worked_twice = 1;
hidden byte op_submitted_while_busy = 1;

/* ---- what is lost in a crash ---- */

/* enum request_state; LOOKING and ENTERING are the middle of decide(), SETTLE the way into request_settle(). The code's
 * SENT is PASSED until the bytes have left, its STARTING is TURNING. A request that a crash ended is DONE. */
mtype:state = { RECEIVING, LOOKING, ENTERING, RECORDING, ADMITTING, PARKING, WAITING, TURNING, CONNECTING, PASSED, SENT, SETTLE, SETTLING,
                DONE };
mtype:ticket = { OUT, JOINED, TICKET_WAITING, STARTING, SENDING }; /* enum gate_state */
mtype:result = { NO_RESULT, ACCEPTED, STALE, USED, FAILED };       /* of the op: verdict, or an error */
mtype:outcome = { NO_OUTCOME, SUPERSEDED, NOT_SENT, ANSWERED, UNKNOWN };

mtype:state st[N];
mtype:ticket ticket[N];
bool superseded[N], may_start[N], cut[N], posted[N]; /* the ticket's notices */
bool old_epoch[N];  /* ticket->epoch != entry->epoch: the fence was reset since it joined */
bool order_0[N];    /* ticket->order == 0: in flight when the fence was reset */
byte highest[KEYS]; /* the gate's entry; 0 without one */
mtype:result result[N];
mtype:outcome outcome[N];
bool queued[N];    /* the op is with the writer: submitted, or an outcome that is held */
bool in_chunk[N];  /* in the transaction; after it, `done` is to come */
bool raised[N];    /* the gate is to hear of it: a raise, or a reset */
byte place[N];     /* when, in the order of the chunk */
byte places, turn; /* given out in this chunk; told of it */
bool home[N];      /* `done` was called */
bool guess[N];     /* gate_would_wait(), when it was submitted */
bool up;           /* the process runs */
bool dead;         /* db_dead() */

/* ---- what stays ---- */

mtype:intent = { NO_INTENT, OPEN, WAITS, CLOSED, IN_DOUBT };
byte fence[KEYS];   /* what readers see */
bool unshown;        /* durable, and readers do not see it yet */
bool was_reset[KEYS]; /* in the transaction under way, or in one that is unshown */
byte durable[KEYS]; /* what a power cut leaves of it: the same, unless a mistake is planted */
mtype:intent intent[N];
byte records[N]; /* of how the request ended */
byte crashes;

/* ---- for the properties only ---- */

byte accepted[KEYS]; /* highest token whose acceptance was told */
mtype:judged = { NOT_YET, STANDS, GONE, TOLD }; /* accepted; and the fence was reset since; and that was told */
mtype:judged judged[N];
bool flying[N];      /* between the last look and the end of the call */
#ifdef MUTANT_NOT_TAKEN_BACK
bool held_back[N]; /* the kernel had no room for its first byte */
#endif
byte arrived[N];     /* times that the partner saw this request */
byte worked[KEYS];   /* a bit for each token that went out, with equal: reject */
bool finished;

/* ---- what is asked ---- */

mtype:kind = { EFFECTS, DROPS, RAISE, RESET }; /* a call under one of the two ledgers; or an operator's change */
mtype:kind kind[N];
byte token[N];
#define IS_CALL(r) (kind[r] == EFFECTS || kind[r] == DROPS)
#define IS_RESET(o) (kind[o] == RESET)
bool equal_allowed = true;

#define IS_OPEN(o) (intent[o] == OPEN || intent[o] == WAITS)
#define IS_QUEUED(o) queued[o]
#define IS_IN_CHUNK(o) in_chunk[o]
#define IS_RAISED(o) raised[o]
#define IS_FLYING(o) flying[o]

hidden byte i; /* scratch: within one step only, since it is no part of the state */

/* ======== gateway/gate.c: each under the shard's mutex ======== */

#define IN_FLIGHT(o) (ticket[o] == STARTING || ticket[o] == SENDING)
#define JOINED_HERE(o) (KEY(o) == here && ticket[o] != OUT)
#define OLDER_HERE(o) (KEY(o) == here && IN_FLIGHT(o) && (token[o] < below || order_0[o]))
#define OLDER_COMING(o) (KEY(o) == here && ticket[o] == JOINED && token[o] < below)
#define HIGHER_HERE(o) (KEY(o) == here && IN_FLIGHT(o) && token[o] > below)
#define TOO_LATE(r) (old_epoch[r] || token[r] < highest[KEY(r)])
hidden byte here, below;

inline notify(o, notice)
{
    notice = true;
    posted[o] = true
}

inline take_off(o)
{
    CHECK(!TOO_LATE(o), G3_overtaken_call_let_off);
    ticket[o] = STARTING
}

inline wake_waiting(k)
{
    i = 0;
    do
    :: i < N ->
        here = k; below = token[i];
        if
#ifdef MUTANT_TRUST_NOTICE
        :: KEY(i) == k && ticket[i] == TICKET_WAITING && !superseded[i] && !ANY(OLDER_HERE) ->
#else
        :: KEY(i) == k && ticket[i] == TICKET_WAITING && !TOO_LATE(i) && !ANY(OLDER_HERE) ->
#endif
            take_off(i);
            notify(i, may_start[i])
        :: else
        fi;
        i++
    :: else -> break
    od;
    skip
}

inline gate_join(r)
{
    ticket[r] = JOINED
}

inline hear_of(k, t)
{
    if
    :: t > highest[k] ->
        highest[k] = t;
        i = 0;
        do
        :: i < N ->
            if
            :: KEY(i) == k && token[i] < t && (ticket[i] == TICKET_WAITING || ticket[i] == STARTING) ->
                notify(i, superseded[i])
            :: else
            fi;
            i++
        :: else -> break
        od
    :: else
    fi
}

inline cut_older(r)
{
    i = 0;
    do
    :: i < N ->
        if
        :: KEY(i) == KEY(r) && (token[i] < token[r] || order_0[i]) && ticket[i] == SENDING -> notify(i, cut[i])
        :: else
        fi;
        i++
    :: else -> break
    od;
    skip
}

inline request_submit(r)
{
    CHECK(!queued[r] && !in_chunk[r] && !home[r], op_submitted_while_busy);
    queued[r] = true
}

inline request_start(r)
{
    if
#ifndef MUTANT_TURN_NOT_WRITTEN
    :: intent[r] == WAITS -> request_submit(r); EVENT(turned); st[r] = TURNING
#endif
    :: else -> st[r] = CONNECTING
    fi
}

/* With the request's move that follows from the answer. */
inline gate_enter(r)
{
    EVENT_IF(st[r] == ENTERING && highest[KEY(r)] < token[r] && ANY(IS_RAISED), read_before_the_gate_was_told);
#ifndef MUTANT_NO_HEAR_OF
    if
    :: !old_epoch[r] -> hear_of(KEY(r), token[r])
    :: else
    fi;
#endif
    here = KEY(r); below = token[r];
    if
    :: TOO_LATE(r) ->
        EVENT_IF(old_epoch[r] && token[r] >= highest[KEY(r)], judged_by_a_fence_that_is_gone);
        printf("request %d (token %d): gate_enter: too late\n", r, token[r]);
        EVENT(too_late_at_gate_enter);
        outcome[r] = SUPERSEDED;
        st[r] = SETTLE
    :: else ->
        if
        :: ANY(OLDER_HERE) ->
            printf("request %d (token %d): gate_enter: must wait\n", r, token[r]);
            EVENT(must_wait);
            EVENT_IF(ANY(HIGHER_HERE), waits_for_a_higher_token);
            ticket[r] = TICKET_WAITING;
#ifdef ABORT
            cut_older(r);
#endif
            if
#ifndef MUTANT_NOT_PARKED
            :: intent[r] == OPEN -> request_submit(r); EVENT(parked); st[r] = PARKING
#endif
            :: else -> st[r] = WAITING
            fi
        :: else ->
            printf("request %d (token %d): gate_enter: entered\n", r, token[r]);
            take_off(r);
            request_start(r)
        fi
    fi
}

inline gate_leave(r)
{
    ticket[r] = OUT;
    old_epoch[r] = false; order_0[r] = false;
    superseded[r] = false; may_start[r] = false; cut[r] = false;
#ifndef MUTANT_LOST_WAKE
    wake_waiting(KEY(r));
#endif
    here = KEY(r);
    if
    :: ANY(JOINED_HERE)
    :: else -> highest[KEY(r)] = 0 /* entry_free() */
    fi
}

inline gate_notices(r)
{
    superseded[r] = false; may_start[r] = false; cut[r] = false; posted[r] = false
}

inline gate_raised(k, t)
{
    here = k;
    if
    :: ANY(JOINED_HERE) -> hear_of(k, t)
    :: else
    fi
}

/* forget_order(); nothing to do where there is no entry */
inline gate_reset(k)
{
    highest[k] = 0;
    i = 0;
    do
    :: i < N ->
        if
        :: KEY(i) == k && (ticket[i] == TICKET_WAITING || ticket[i] == STARTING) -> notify(i, superseded[i])
        :: else
        fi;
        if
        :: KEY(i) == k && IN_FLIGHT(i) ->
            EVENT(reset_in_flight);
#ifndef MUTANT_RESET_FORGETS_FLIGHT
            order_0[i] = true
#endif
        :: else
        fi;
        if
#ifndef MUTANT_RESET_KEEPS_EPOCH
        :: KEY(i) == k && ticket[i] != OUT -> old_epoch[i] = true
#endif
        :: else
        fi;
        i++
    :: else -> break
    od;
    skip
}

/* ======== request_decide.c, request_call.c, request_outcome.c, request.c ======== */

/* Acceptance is told: to the request's own worker, or to who asked for a raise. */
inline told_accepted(r)
{
    if
    :: judged[r] == STANDS && token[r] > accepted[KEY(r)] -> accepted[KEY(r)] = token[r]
    :: else
    fi
}

/* The books of a request that has ended: nothing open, nothing lost, nothing twice. Then they can be forgotten: nobody
 * has hold of its op any more. */
inline close_books(r)
{
    CHECK(kind[r] != EFFECTS || arrived[r] == 0 || records[r] == 1, G8_sent_and_forgotten);
    CHECK(intent[r] == NO_INTENT || (!IS_OPEN(r) && records[r] == 1), G8_not_one_outcome);
    CHECK(records[r] <= 1 && !queued[r] && !in_chunk[r] && !home[r], G8_two_outcomes);
    arrived[r] = 0;
    records[r] = 0;
    intent[r] = NO_INTENT
}

inline request_finish(r)
{
    if
    :: dead && IS_OPEN(r) /* the next start finds it */
    :: else -> close_books(r)
    fi;
    result[r] = NO_RESULT;
    outcome[r] = NO_OUTCOME;
    judged[r] = NOT_YET;
    guess[r] = false;
    st[r] = DONE
}

/* decide(), after gate_join(): the look, and what follows from it. A refusal leaves the gate in the same step; staying
 * longer would be like the stay of a request that has not looked yet. */
inline look_up(r)
{
    if
    :: token[r] < fence[KEY(r)] || (token[r] == fence[KEY(r)] && !equal_allowed) ->
        printf("request %d (token %d): look_up: refused at %d\n", r, token[r], fence[KEY(r)]);
        EVENT(refused_by_look_up);
        EVENT_IF(crashes > 0, stale_after_crash);
        gate_leave(r);
        outcome[r] = SUPERSEDED;
        request_submit(r);
        st[r] = RECORDING
    :: else ->
        if
        :: kind[r] == EFFECTS || token[r] > fence[KEY(r)] ->
            printf("request %d (token %d): look_up: %d, admit\n", r, token[r], fence[KEY(r)]);
#ifdef MUTANT_VERDICT_OUTSIDE
            result[r] = ACCEPTED;
#endif
            here = KEY(r); below = token[r];
            guess[r] = ANY(OLDER_HERE) || ANY(OLDER_COMING);
            request_submit(r);
            st[r] = ADMITTING
        :: else ->
            printf("request %d (token %d): look_up: stands at it already\n", r, token[r]);
            judged[r] = (unshown && was_reset[KEY(r)] -> GONE : STANDS); /* by a fence that is gone already */
            EVENT(stands_at_it_already);
            st[r] = ENTERING
        fi
    fi
}

inline request_on_admitted(r)
{
    home[r] = false;
    if
    :: !IS_CALL(r) -> request_finish(r) /* admin_operate_answer() */
    :: IS_CALL(r) && result[r] == FAILED ->
        EVENT(store_unavailable);
        outcome[r] = NOT_SENT;
        st[r] = SETTLE
    :: IS_CALL(r) && (result[r] == STALE || result[r] == USED) -> /* its record came with the verdict */
        EVENT_IF(result[r] == STALE, refused_in_transaction);
        EVENT_IF(result[r] == USED, used_in_transaction);
        gate_leave(r);
        request_finish(r)
    :: IS_CALL(r) && result[r] == ACCEPTED -> gate_enter(r)
    fi
}

/* The end of a call, or of what was to be one. The record is submitted in the same step: later would be like a longer
 * way through the queue. */
inline request_settle(r)
{
    printf("request %d (token %d): request_settle\n", r, token[r]);
    CHECK(arrived[r] == 0 || (outcome[r] != SUPERSEDED && outcome[r] != NOT_SENT), G7_sent_but_recorded_not_sent);
    CHECK(arrived[r] > 0 || outcome[r] != ANSWERED, G7_not_sent_but_recorded_sent);
    gate_leave(r);
    judged[r] = NOT_YET;
    if
    :: (kind[r] == EFFECTS && result[r] == ACCEPTED) || outcome[r] == SUPERSEDED ->
        request_submit(r);
        if
        :: outcome[r] != SUPERSEDED -> outcome[r] = NO_OUTCOME /* what it was makes no more difference */
        :: else
        fi;
        st[r] = SETTLING
    :: else -> request_finish(r)
    fi
}

/* request_on_parked(), request_on_started(). What the gate has told meanwhile is still `posted`. */
inline turn_is_marked(r)
{
    home[r] = false;
    if
    :: result[r] == FAILED ->
        EVENT(store_unavailable);
        result[r] = ACCEPTED; /* of the admission: there is an intent */
        outcome[r] = NOT_SENT;
        st[r] = SETTLE
    :: result[r] != FAILED && st[r] == PARKING -> st[r] = WAITING
    :: result[r] != FAILED && st[r] == TURNING && superseded[r] -> outcome[r] = SUPERSEDED; st[r] = SETTLE
    :: result[r] != FAILED && st[r] == TURNING && !superseded[r] -> st[r] = CONNECTING
    fi
}

inline request_on_settled(r)
{
    home[r] = false;
    if
    :: result[r] == FAILED && outcome[r] != SUPERSEDED -> /* by a dead store: on_timer() tries again */
        result[r] = ACCEPTED;
        request_submit(r)
    :: else -> request_finish(r)
    fi
}

/* call_finish(), request_call_ended() */
inline call_ended(r, how)
{
    flying[r] = false;
    judged[r] = NOT_YET;
    outcome[r] = how;
    st[r] = SETTLE
}

inline on_notice(r)
{
    if
    :: st[r] == WAITING && superseded[r] ->
        printf("request %d (token %d): on_notice: superseded while it waits\n", r, token[r]);
        EVENT(superseded_waiting);
        EVENT_IF(may_start[r], superseded_and_may_start);
        outcome[r] = SUPERSEDED;
        st[r] = SETTLE
    :: st[r] == WAITING && !superseded[r] && may_start[r] ->
        printf("request %d (token %d): on_notice: may start\n", r, token[r]);
        EVENT(may_start);
        request_start(r)
    :: st[r] == CONNECTING && superseded[r] ->
        printf("request %d (token %d): on_notice: superseded while it connects\n", r, token[r]);
        EVENT(superseded_connecting);
        outcome[r] = SUPERSEDED;
        st[r] = SETTLE
    :: (st[r] == PASSED || st[r] == SENT) && cut[r] ->
        printf("request %d (token %d): request_cut_call\n", r, token[r]);
        EVENT(cut);
        call_ended(r, UNKNOWN) /* upstream_cancel() closes the connection */
    :: else -> EVENT_IF(ticket[r] == OUT, notice_after_leaving)
    fi;
    gate_notices(r)
}

#define NEWER_STARTED(o) (KEY(o) == here && flying[o] && judged[o] != TOLD && token[o] > below)
#define OLDER_RUNS(o) (KEY(o) == here && flying[o] && (judged[o] == TOLD || token[o] < below))
#define EQUAL_RUNS(o) (KEY(o) == here && o != self && flying[o] && token[o] == below)
hidden byte self;

/* call_begin(), request_last_look() and gate_begin_send() */
inline last_look(r)
{
    if
#ifdef MUTANT_NO_LAST_LOOK
    :: true ->
#else
    :: !TOO_LATE(r) ->
#endif
        printf("request %d (token %d): request_last_look: passed\n", r, token[r]);
        CHECK(token[r] >= accepted[KEY(r)], G3_stale_start);
        CHECK(judged[r] != TOLD, G3_start_after_reset);
        here = KEY(r); below = token[r]; self = r;
        EVENT_IF(ANY(EQUAL_RUNS), equal_side_by_side);
        CHECK(!ANY(NEWER_STARTED), G4_older_beside_newer);
        CHECK(!ANY(OLDER_RUNS), G4_newer_beside_older);
        if
        :: !equal_allowed && judged[r] == STANDS ->
            CHECK((worked[KEY(r)] & (1 << token[r])) == 0, equal_reject_token_worked_twice);
            worked[KEY(r)] = worked[KEY(r)] | (1 << token[r])
        :: else
        fi;
        ticket[r] = SENDING;
        flying[r] = true;
        st[r] = PASSED
#ifndef MUTANT_NO_LAST_LOOK
    :: else ->
        printf("request %d (token %d): request_last_look: too late\n", r, token[r]);
        EVENT(stopped_by_last_look);
        outcome[r] = SUPERSEDED;
        st[r] = SETTLE
#endif
    fi
}

/* gate_retract(), request_take_back(): the kernel took nothing. */
inline take_back(r)
{
    printf("request %d (token %d): the kernel took nothing\n", r, token[r]);
    EVENT(taken_back);
#ifdef MUTANT_NOT_TAKEN_BACK
    held_back[r] = true
#else
    ticket[r] = STARTING;
    flying[r] = false;
    if
    :: !equal_allowed && judged[r] == STANDS -> worked[KEY(r)] = worked[KEY(r)] & (255 - (1 << token[r]))
    :: else
    fi;
    if
    :: TOO_LATE(r) ->
        EVENT(too_late_when_taken_back);
        outcome[r] = SUPERSEDED;
        st[r] = SETTLE
    :: else -> st[r] = CONNECTING
    fi
#endif
}

inline bytes_leave(r)
{
    printf("request %d (token %d): bytes leave\n", r, token[r]);
    arrived[r]++;
    CHECK(arrived[r] == 1, G5_sent_twice);
#ifdef MUTANT_NOT_TAKEN_BACK
    CHECK(!held_back[r] || token[r] >= accepted[KEY(r)], G3_late_first_byte);
#endif
    CHECK(durable[KEY(r)] >= token[r] || judged[r] != STANDS, G1_fence_not_durable);
    CHECK(kind[r] != EFFECTS || intent[r] == OPEN, G1_intent_not_durable);
    st[r] = SENT
}

proctype request(byte r)
{
    do
    :: d_step { up && st[r] == RECEIVING ->
        if
        :: !IS_CALL(r) ->
            if
            :: IS_RESET(r) -> printf("operator %d: reset, submitted\n", r)
            :: else -> printf("operator %d: raise to %d, submitted\n", r, token[r])
            fi;
            request_submit(r);
            st[r] = ADMITTING
        :: else ->
#ifndef MUTANT_READ_BEFORE_JOIN
            gate_join(r);
#endif
            st[r] = LOOKING
        fi }
#if defined(FAILING) || defined(DYING)
    :: d_step { st[r] == LOOKING -> /* not store_writable(), or the look failed */
        gate_leave(r);
        request_finish(r) }
#endif
    :: d_step { st[r] == LOOKING && !dead ->
        look_up(r);
#ifdef MUTANT_READ_BEFORE_JOIN
        if
        :: st[r] == ADMITTING -> gate_join(r)
        :: else
        fi
#endif
        }
    :: d_step { st[r] == ENTERING ->
#ifdef MUTANT_READ_BEFORE_JOIN
        gate_join(r);
#endif
        gate_enter(r);
        if
        :: st[r] != SETTLE -> told_accepted(r)
        :: else
        fi }
    :: d_step { st[r] == ADMITTING && home[r] -> request_on_admitted(r) }
    :: d_step { (st[r] == PARKING || st[r] == TURNING) && home[r] -> turn_is_marked(r) }
    :: d_step { (st[r] == RECORDING || st[r] == SETTLING) && home[r] -> request_on_settled(r) }
    :: d_step { posted[r] && (st[r] == WAITING || st[r] == CONNECTING || st[r] == PASSED || st[r] == SENT ||
                              st[r] == SETTLING || st[r] == DONE) -> on_notice(r) }
#ifdef TIMERS
    :: d_step { st[r] == WAITING ->
        printf("request %d (token %d): on_timer: waited too long\n", r, token[r]);
        EVENT(waited_too_long);
        outcome[r] = NOT_SENT;
        st[r] = SETTLE }
    :: d_step { st[r] == ADMITTING && home[r] && IS_CALL(r) && result[r] == ACCEPTED -> /* shutting down */
        home[r] = false;
        outcome[r] = NOT_SENT;
        st[r] = SETTLE }
#endif
    :: d_step { st[r] == CONNECTING ->
        printf("request %d (token %d): no connection\n", r, token[r]);
        outcome[r] = NOT_SENT;
        st[r] = SETTLE }
    :: d_step { st[r] == CONNECTING -> last_look(r) }
    :: d_step { st[r] == PASSED -> take_back(r) }
    :: d_step { st[r] == PASSED -> bytes_leave(r);
#ifdef MUTANT_LEFT_EARLY
        gate_leave(r);
#endif
        }
    :: d_step { st[r] == PASSED || st[r] == SENT ->
        printf("request %d (token %d): the connection died\n", r, token[r]);
        EVENT_IF(st[r] == PASSED, died_before_bytes);
        EVENT_IF(st[r] == SENT, died_after_bytes);
#ifdef MUTANT_DIED_NOT_SENT
        call_ended(r, NOT_SENT)
#else
        call_ended(r, UNKNOWN)
#endif
        }
#ifdef MUTANT_SECOND_SENDING
    :: d_step { st[r] == SENT -> /* a new connection is taken for it */
        printf("request %d (token %d): the connection died, once more\n", r, token[r]);
        flying[r] = false;
        last_look(r) }
#endif
    :: d_step { st[r] == SENT ->
        printf("request %d (token %d): an answer\n", r, token[r]);
        EVENT(answered);
        call_ended(r, ANSWERED) }
    :: d_step { st[r] == SETTLE -> request_settle(r) }
    :: st[r] == DONE && !posted[r] -> break
    od
}

/* ======== store/writer.c, store/apply.c ======== */

byte txn_fence[KEYS];  /* the transaction's own view of the fence; 0 without one */
bool reserve_only;     /* the first attempt failed, this is attempt(w, true) */
#define IS_OUTCOME(r) (st[r] == SETTLING && kind[r] == EFFECTS && result[r] == ACCEPTED) /* is_outcome() */

/* from_reserve(): what the second attempt of a failed chunk takes along */
#define IS_RESERVED(r) (IS_OUTCOME(r) || !IS_CALL(r))

/* The gate is to hear of it, in the order of the chunk. */
inline tell_later(r)
{
    raised[r] = true;
    places++;
    place[r] = places
}

/* A reset within the chunk: acceptances before it are over before they are told. */
inline forget_chunk(k)
{
    i = 0;
    do
    :: i < N ->
        if
        :: KEY(i) == k && in_chunk[i] && judged[i] == STANDS -> EVENT(reset_overtook_its_chunk); judged[i] = GONE
        :: else
        fi;
        i++
    :: else -> break
    od;
    skip
}

/* batch_admit() */
inline judge_and_raise(r)
{
#ifndef MUTANT_VERDICT_OUTSIDE
    if
    :: token[r] < txn_fence[KEY(r)] -> result[r] = STALE
    :: token[r] == txn_fence[KEY(r)] && !equal_allowed && kind[r] != RAISE -> result[r] = USED
    :: else -> result[r] = ACCEPTED; judged[r] = STANDS
    fi;
    if
    :: result[r] == ACCEPTED && token[r] > txn_fence[KEY(r)] ->
        txn_fence[KEY(r)] = token[r];
        tell_later(r)
    :: else
    fi
#else
    result[r] = ACCEPTED; judged[r] = STANDS;
    if
#ifdef MUTANT_ONLY_UPWARDS
    :: token[r] > txn_fence[KEY(r)] -> txn_fence[KEY(r)] = token[r]; tell_later(r)
#else
    :: token[r] != txn_fence[KEY(r)] -> txn_fence[KEY(r)] = token[r]; tell_later(r)
#endif
    :: else
    fi
#endif
}

/* apply_one(): what the op decides. What it writes is done at the commit. */
inline apply(r)
{
    EVENT_IF(ANY(IS_IN_CHUNK), several_in_a_chunk);
    if
    :: reserve_only && !IS_RESERVED(r) -> result[r] = FAILED
    :: !(reserve_only && !IS_RESERVED(r)) && st[r] == ADMITTING && kind[r] == RESET ->
        result[r] = FAILED; /* STORE_NOT_FOUND */
        if
        :: txn_fence[KEY(r)] > 0 ->
            result[r] = ACCEPTED;
            txn_fence[KEY(r)] = 0;
            was_reset[KEY(r)] = true;
            forget_chunk(KEY(r));
            tell_later(r)
        :: else
        fi
    :: !(reserve_only && !IS_RESERVED(r)) && st[r] == ADMITTING && kind[r] != RESET -> judge_and_raise(r)
    :: else
    fi;
    queued[r] = false;
    in_chunk[r] = true
}

inline keep_op(r)
{
    if
    :: result[r] == FAILED
    :: st[r] == ADMITTING && result[r] == ACCEPTED ->
#ifndef MUTANT_NO_INTENT
        if
        :: kind[r] == EFFECTS -> intent[r] = (guess[r] -> WAITS : OPEN); guess[r] = false
        :: else
        fi
#endif
    :: st[r] == PARKING && result[r] != FAILED -> intent[r] = WAITS
    :: st[r] == TURNING && result[r] != FAILED -> intent[r] = OPEN
    :: st[r] == ADMITTING && (result[r] == STALE || result[r] == USED) && IS_CALL(r) -> records[r]++
    :: result[r] != FAILED && (st[r] == RECORDING || st[r] == SETTLING) ->
        EVENT_IF(reserve_only, outcomes_kept_alone);
#ifdef MUTANT_TWO_TRANSACTIONS
        if
        :: IS_OUTCOME(r) -> in_chunk[r] = false; queued[r] = true; intent[r] = CLOSED /* its record comes next */
        :: else -> records[r]++
        fi;
#else
        records[r]++;
        if
        :: IS_OPEN(r) -> intent[r] = CLOSED
        :: else
        fi;
#endif
        CHECK(records[r] <= 1, G8_two_outcomes)
    :: else
    fi
}

/* What the transaction has changed is durable at once or not at all. Readers see it by be_seen(). */
inline batch_commit()
{
    i = 0;
    do
    :: i < N ->
        if
        :: in_chunk[i] -> keep_op(i)
        :: else
        fi;
        if
        :: was_reset[KEY(i)] && (!in_chunk[i] || st[i] == PARKING || st[i] == TURNING) && judged[i] == STANDS -> judged[i] = GONE
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < KEYS ->
        CHECK(txn_fence[i] >= fence[i] || was_reset[i], G2_fence_went_down);
#ifndef MUTANT_NO_SYNC
        durable[i] = txn_fence[i];
#endif
        i++
    :: else -> break
    od;
    skip
}

inline be_seen()
{
    i = 0;
    do
    :: i < KEYS ->
        if
        :: was_reset[i] -> accepted[i] = 0; worked[i] = 0
        :: else
        fi;
        fence[i] = txn_fence[i];
        i++
    :: else -> break
    od;
    unshown = false
}

/* New work and operators' changes fail. Outcomes of effects are held for the next chunk, unless the store died. */
inline commit_failed()
{
    EVENT(commit_failed);
    i = 0;
    do
    :: i < N ->
        raised[i] = false;
        place[i] = 0;
        if
#ifndef MUTANT_OUTCOME_GIVEN_UP
        :: in_chunk[i] && IS_OUTCOME(i) && !dead -> EVENT(outcome_held); in_chunk[i] = false; queued[i] = true
#endif
        :: in_chunk[i] && (!IS_OUTCOME(i) || dead) -> result[i] = FAILED; judged[i] = NOT_YET
        :: else
        fi;
        i++
    :: else -> break
    od;
    places = 0
}

inline done(r)
{
    in_chunk[r] = false;
    home[r] = true;
    if
    :: st[r] == ADMITTING && kind[r] != RESET && result[r] == ACCEPTED -> told_accepted(r)
    :: else
    fi
}

/* A reset is told: from now on what was accepted before it counts as older than all, and must not start any more. */
#define RESETS_HERE(o) (KEY(o) == here && in_chunk[o] && IS_RESET(o) && result[o] == ACCEPTED)
inline tell_reset()
{
    i = 0;
    do
    :: i < N ->
        here = KEY(i);
        if
        :: judged[i] == GONE && ANY(RESETS_HERE) -> judged[i] = TOLD
        :: else
        fi;
        i++
    :: else -> break
    od;
    skip
}

/* The `done` calls of a chunk. One step: a worker that is slow to see its own is like a late call. */
inline hand_out()
{
    tell_reset();
    places = 0;
    i = 0;
    do
    :: i < N ->
        if
        :: in_chunk[i] -> done(i)
        :: else
        fi;
        i++
    :: else -> break
    od;
    skip
}

inline begin_txn(second)
{
    i = 0;
    do
    :: i < KEYS -> txn_fence[i] = fence[i]; i++
    :: else -> break
    od;
    reserve_only = second
}

inline end_txn()
{
    i = 0;
    do
    :: i < KEYS -> txn_fence[i] = 0; was_reset[i] = false; i++
    :: else -> break
    od;
    reserve_only = false
}

inline tell(r)
{
    raised[r] = false;
    place[r] = 0;
    turn = (ANY(IS_RAISED) -> turn + 1 : 0);
    if
    :: kind[r] == RESET -> printf("writer: reset\n"); gate_reset(KEY(r))
    :: else -> printf("writer: raised %d\n", token[r]); gate_raised(KEY(r), token[r])
    fi
}

#define NOT_DONE(o) (st[o] != DONE)
#define IDLE (!ANY(IS_IN_CHUNK) && !ANY(IS_RAISED) && !unshown)
#define ALL_ENDED (up && !dead && !ANY(NOT_DONE) && !ANY(IS_QUEUED) && IDLE)
#define TAKE(o) :: d_step { queued[o] -> apply(o) }

proctype writer()
{
    do
    :: atomic { up && IDLE && ANY(IS_QUEUED) -> /* take(), run(), run_chunk() */
        if
        :: d_step { true -> begin_txn(false) }
#ifdef FAILING
        :: d_step { !dead -> begin_txn(true) }
#endif
        fi;
        do /* any part of the queue in any order */
        TAKE(0)
        TAKE(1)
#if N > 2
        TAKE(2)
#endif
#if N > 3
        TAKE(3)
#endif
#if N > 4
        TAKE(4)
#endif
        :: ANY(IS_IN_CHUNK) -> break
        od;
        if
        :: d_step { !dead ->
            batch_commit();
            unshown = true;
            printf("writer: durable, fence %d\n", txn_fence[0]) }
#ifdef FAILING
        :: d_step { !dead && !reserve_only -> printf("writer: commit failed\n"); commit_failed(); end_txn() }
#endif
#ifdef DYING
        :: d_step { !dead && !reserve_only ->
            printf("writer: died, nothing kept\n");
            dead = true;
            commit_failed();
            end_txn() }
        :: d_step { !dead && !reserve_only -> /* nobody sees it before the restart */
            printf("writer: died, kept\n");
            EVENT(root_page_failed_but_kept);
            batch_commit();
            dead = true;
            commit_failed();
            end_txn() }
        :: d_step { dead -> commit_failed(); end_txn() }
#endif
        fi }
#ifdef MUTANT_SHOWN_LATE
#define SHOW_TURN (!ANY(IS_IN_CHUNK) && !ANY(IS_RAISED))
#define SHOWN true
#else
#define SHOW_TURN true
#define SHOWN !unshown
#endif
#ifdef MUTANT_RAISED_LATE
#define RAISE_TURN (SHOWN && !ANY(IS_IN_CHUNK))
#define DONE_TURN SHOWN
#else
#define RAISE_TURN SHOWN
#define DONE_TURN (SHOWN && !ANY(IS_RAISED))
#endif
    :: d_step { up && unshown && SHOW_TURN -> be_seen(); printf("writer: shown\n"); end_txn() }
#define TELL(o) :: d_step { raised[o] && place[o] == turn + 1 && RAISE_TURN -> tell(o) }
    TELL(0)
    TELL(1)
#if N > 2
    TELL(2)
#endif
#if N > 3
    TELL(3)
#endif
#if N > 4
    TELL(4)
#endif
    :: d_step { ANY(IS_IN_CHUNK) && DONE_TURN -> printf("writer: hand_out\n"); hand_out() }
#ifdef MUTANT_NO_SYNC
    :: d_step { up && durable[0] != fence[0] -> printf("kernel: writes pages back\n"); durable[0] = fence[0] }
#endif
    :: ALL_ENDED -> finished = true; break
    od
}

/* ======== a crash at any point, and store_open() ======== */

inline lose_memory()
{
    EVENT_IF(ANY(IS_FLYING), crash_in_flight);
    EVENT_IF(ANY(IS_IN_CHUNK), crash_before_hand_out);
    up = false;
    places = 0; turn = 0;
    i = 0;
    do
    :: i < N ->
        CHECK(st[i] != WAITING || intent[i] != OPEN, G8_waiting_in_doubt);
        guess[i] = false;
        if
        :: st[i] != RECEIVING && st[i] != DONE -> st[i] = DONE
        :: else
        fi;
        ticket[i] = OUT;
        superseded[i] = false; may_start[i] = false; cut[i] = false; posted[i] = false;
        result[i] = NO_RESULT; outcome[i] = NO_OUTCOME;
        queued[i] = false; in_chunk[i] = false; raised[i] = false; home[i] = false;
        place[i] = 0; old_epoch[i] = false; order_0[i] = false;
        flying[i] = false; judged[i] = NOT_YET;
        i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < KEYS ->
        highest[i] = 0;
        if
#ifdef RESETS
        :: (dead || unshown) && durable[i] < fence[i] -> accepted[i] = 0; worked[i] = 0 /* one that nobody saw shows now */
#endif
        :: else -> CHECK(durable[i] >= fence[i], G2_fence_went_down)
        fi;
        fence[i] = durable[i];
        txn_fence[i] = 0; was_reset[i] = false;
        i++
    :: else -> break
    od;
    unshown = false;
    dead = false
}


/* batch_leftovers(): one transaction for each here, several effects in one in the code. */
inline take_leftover()
{
    i = 0;
    do
    :: i < N && intent[i] == OPEN ->
        printf("store_open: request %d is in doubt\n", i);
        EVENT_IF(arrived[i] > 0, sent_and_in_doubt);
        EVENT_IF(arrived[i] == 0, not_sent_and_in_doubt);
        intent[i] = IN_DOUBT;
        records[i]++;
        CHECK(records[i] == 1, G8_two_outcomes);
        break
    :: i < N && intent[i] == WAITS ->
        printf("store_open: request %d had waited\n", i);
        EVENT(waited_in_a_crash);
        CHECK(arrived[i] == 0, G8_sent_but_left_waiting);
        intent[i] = CLOSED;
        records[i]++;
        CHECK(records[i] == 1, G8_two_outcomes);
        break
    :: i < N && !IS_OPEN(i) -> i++
    :: else -> break
    od;
    skip
}

inline start()
{
    printf("start\n");
    i = 0;
    do
    :: i < N ->
        if
        :: st[i] == DONE -> close_books(i)
        :: else
        fi;
        i++
    :: else -> break
    od;
    up = true
}

proctype process()
{
end:
    do
    :: d_step { !finished && (crashes < CRASHES || dead) && (up || crashes > 0) ->
        printf("crash\n");
        if
        :: crashes < CRASHES -> crashes++
        :: else
        fi;
        lose_memory() }
    :: d_step { !up && ANY(IS_OPEN) -> take_leftover() }
    :: d_step { !up && !ANY(IS_OPEN) -> start() }
    od
}

/* Of all beginnings that differ in nothing but names one is enough: values without gaps from the lowest on, a fence
 * below all tokens is 0, of equal tokens the kinds are in order. */
#define IS_VALUE(o) (KEY(o) == here && token[o] == below && kind[o] != RESET)
#define AT_OR_BELOW(o) (KEY(o) == here && token[o] <= fence[here] && kind[o] != RESET)
#define USED_HERE (fence[here] == below || ANY(IS_VALUE))

inline choose(value, from)
{
    value = from;
    do
    :: value < TOKENS -> value++
    :: break
    od
}

init {
    byte r, v;
    bool good = true;
    atomic {
        c_code { atexit(show_events); };
        r = 0;
        do
        :: r < N ->
            if
            :: r < KEYS -> choose(token[r], 1)
            :: else -> choose(token[r], token[r - KEYS])
            fi;
            if
            :: kind[r] = EFFECTS
            :: kind[r] = DROPS
            :: kind[r] = RAISE
#ifdef RESETS /* they have no token and are numbered first */
            :: token[r] == 1 && (r < KEYS || kind[(r < KEYS -> 0 : r - KEYS)] == RESET) -> kind[r] = RESET
#endif
            fi;
            st[r] = RECEIVING; ticket[r] = OUT; result[r] = NO_RESULT; outcome[r] = NO_OUTCOME; intent[r] = NO_INTENT;
            judged[r] = NOT_YET;
            r++
        :: else -> break
        od;
        r = 0;
        do
        :: r < KEYS ->
            choose(fence[r], 0);
            durable[r] = fence[r];
            accepted[r] = fence[r];
            r++
        :: else -> break
        od;
#ifdef REJECT
        if
        :: equal_allowed = false
        :: equal_allowed = true
        fi;
#endif
        skip;
        d_step {
            here = 0;
            do
            :: here < KEYS ->
                good = good && (fence[here] == 0 || ANY(AT_OR_BELOW));
                v = TOKENS;
                do
                :: v > 1 ->
                    below = v;
                    if
                    :: USED_HERE -> below--; good = good && USED_HERE
                    :: else
                    fi;
                    v--
                :: else -> break
                od;
                here++
            :: else -> break
            od;
            r = KEYS;
            do
            :: r < N ->
                good = good && (token[r] != token[r - KEYS] || kind[r] <= kind[r - KEYS] || kind[r - KEYS] == RESET);
                r++
            :: else -> break
            od;
            r = 0; v = 0
        }
        if
        :: good ->
            up = true;
            run writer();
            run process();
            do
            :: r < N -> run request(r); r++
            :: else -> break
            od;
            r = 0
        :: else
        fi
    }
}
