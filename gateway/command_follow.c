/*
 * gateway/command_follow.c - looks at a store again and again, see command_follow.h.
 *
 * Each look opens the store for reading and closes it: no page and no reader's slot is held while nothing happens, and
 * a gateway that starts again, a larger store, or another one in its place need no care. An idle look costs one
 * record's read. Ids rise in the order of commits, so what lies above the last id seen is what is new; when the newest
 * id is lower, this is another store, and its newest records are shown as at the start.
 */
#include "gateway/command_follow.h"

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS (200 * 1000000L)
#define PAGE 1000       /* rows kept in memory at a time, once it follows */
#define FORMAT_TRIES 10 /* a store that is just being made or copied does not read as one */

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

/* Without SA_RESTART: a write to a reader that stalls ends too. */
static void take_signals(void)
{
    struct sigaction stop = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};
    sigemptyset(&stop.sa_mask);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

struct state {
    const struct follow *follow;
    uint64_t seen; /* the last id that was looked at */
    bool begun;    /* the newest records were shown */
    bool waiting;  /* and it was said */
    bool ended;    /* nobody reads, or a signal came */
    unsigned unreadable;
};

static bool take_id(void *arg, const struct audit_record *record)
{
    *(uint64_t *)arg = record->id;
    return false;
}

static enum store_error newest_id(struct store_reader *reader, uint64_t *out)
{
    uint64_t next;
    struct audit_filter any = {.descending = true, .limit = 1};
    *out = 0;
    return store_audit_query(reader, &any, take_id, out, &next);
}

static bool reader_left(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) > 0 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

/* False: the end, orderly (`ended`) or not (the stream has its error). */
static bool flush(struct state *state, bool reversed)
{
    struct table *table = state->follow->table;
    bool ok = table_print(table, NULL, reversed);
    table_clear(table);
    if (!ok)
        state->ended = stopped != 0 || reader_left();
    return ok;
}

/* The newest records up to `last`, oldest of them first. */
static enum store_error show_newest(struct state *state, struct store_reader *reader, uint64_t last)
{
    const struct follow *follow = state->follow;
    struct audit_filter filter = *follow->filter;
    enum store_error error = STORE_OK;
    filter.descending = true;
    filter.after = last + 1; /* 0 behind the highest id there can be: from the end, the same */
    do {
        filter.limit = follow->filter->limit - follow->table->count;
        error = store_audit_query(reader, &filter, follow->each, follow->arg, &filter.after);
    } while (error == STORE_OK && filter.after != 0 && follow->table->count < follow->filter->limit &&
             !follow->table->failed && !stopped);
    return error;
}

struct counted {
    const struct follow *follow;
    uint64_t last;
};

static bool count(void *arg, const struct audit_record *record)
{
    struct counted *counted = arg;
    counted->last = record->id;
    return counted->follow->each(counted->follow->arg, record);
}

/* Everything above the last id seen. */
static enum store_error show_new(struct state *state, struct store_reader *reader, uint64_t newest)
{
    struct counted counted = {state->follow, newest};
    struct audit_filter filter = *state->follow->filter;
    filter.descending = false;
    filter.after = state->seen;
    filter.limit = PAGE;
    do {
        uint64_t next = 0;
        enum store_error error = store_audit_query(reader, &filter, count, &counted, &next);
        if (error != STORE_OK)
            return error;
        filter.after = next;
        if (state->follow->table->failed || (state->follow->table->count > 0 && !flush(state, false)))
            return STORE_OK;
        if (next != 0)
            state->seen = next;
    } while (filter.after != 0 && !stopped);
    if (!stopped) /* what came after `newest` was read and did not match is looked at again: harmless */
        state->seen = counted.last > newest ? counted.last : newest;
    return STORE_OK;
}

static enum store_error read_new(struct state *state, struct store_reader *reader)
{
    uint64_t newest;
    enum store_error error = newest_id(reader, &newest);
    if (error != STORE_OK)
        return error;
    if (newest == 0) { /* empty: all that comes is new */
        state->seen = 0;
        state->begun = true;
        return STORE_OK;
    }
    if (state->begun && newest < state->seen) {
        command_complain("audit", "the store was replaced; its newest records follow");
        state->begun = false;
    }
    if (state->begun)
        return newest == state->seen ? STORE_OK : show_new(state, reader, newest);
    error = show_newest(state, reader, newest);
    if (error == STORE_OK && !state->follow->table->failed && flush(state, true)) {
        state->begun = true;
        state->seen = newest;
    }
    return error;
}

static void tell_waiting(struct state *state, const char *why)
{
    char text[1200];
    snprintf(text, sizeof text, "%s; waiting for one", why);
    if (!state->waiting)
        command_complain("audit", text);
    state->waiting = true;
}

/* One look; COMMAND_DONE unless it is hopeless. */
static int look(struct state *state)
{
    struct store *store = NULL;
    struct store_reader *reader = NULL;
    char why[1024] = "the store can't be read";
    enum store_error error = store_open_readonly(state->follow->place->path, &store, why, sizeof why);
    if (error == STORE_NOT_FOUND) {
        tell_waiting(state, why);
        state->begun = true; /* all that a store made from now on gets is new */
        return COMMAND_DONE;
    }
    state->waiting = false;
    if (error == STORE_OK)
        error = store_reader_open(store, &reader);
    if (error == STORE_OK)
        error = read_new(state, reader);
    store_reader_close(&reader);
    store_close(&store);
    state->unreadable = error == STORE_OK ? 0 : state->unreadable + 1;
    if (error == STORE_OK || (error == STORE_FORMAT && state->unreadable < FORMAT_TRIES))
        return COMMAND_DONE;
    return place_complain(state->follow->place, error, why);
}

/* Until the next look. A signal that comes after the last look at `stopped` ends the wait, since it is let in only
 * here; so does the end of the reader. */
static bool wait_for_look(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    sigset_t both, before;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    sigprocmask(SIG_BLOCK, &both, &before);
    if (stopped == 0)
        (void)ppoll(&out, 1, &pause, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return stopped == 0 && (out.revents & (POLLERR | POLLHUP | POLLNVAL)) == 0;
}

static int follow_on(struct state *state)
{
    const struct table *table = state->follow->table;
    do {
        int status = look(state);
        if (status != COMMAND_DONE)
            return status;
        if (table->failed) {
            command_complain("audit", "out of memory, try a smaller --limit");
            return COMMAND_STORE;
        }
        if (ferror(stdout) && !state->ended) {
            command_complain("audit", "standard output can't be written");
            return COMMAND_STORE;
        }
    } while (!state->ended && wait_for_look());
    return COMMAND_DONE;
}

int follow_run(const struct follow *follow)
{
    struct state state = {.follow = follow};
    take_signals();
    int status = follow_on(&state);
    if (ferror(stdout)) /* what nobody took would be tried again at the exit, and could stall it */
        __fpurge(stdout);
    return status;
}
