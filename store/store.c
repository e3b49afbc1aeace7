/*
 * store/store.c - opens and closes a store.
 *
 * The order matters both ways: the folder's lock before LMDB's files, the leftovers before the first new change; and
 * back: the writer ends before LMDB closes, LMDB before the lock goes.
 */
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/apply.h"
#include "store/handle.h"
#include "store/leftovers.h"
#include "store/make.h"
#include "store/owner.h"
#include "store/tail.h"

#define MAX_SIZE_LEAST ((uint64_t)1 << 20) /* below this nothing would be left beside the reserve */

static void tell_leftovers(const struct store_options *options, const struct leftovers *state)
{
    char line[240];
    if (!options->notice || state->found + state->waited == 0)
        return;
    (void)snprintf(line, sizeof line,
                   "store: %" PRIu64 " effects had no recorded outcome when the gateway stopped; %" PRIu64
                   " are in doubt now; %" PRIu64 " more waited for an older call and were not sent",
                   state->found, state->in_doubt, state->waited);
    options->notice(options->notice_arg, STORE_NOTICE_ODD, line);
}

static void tell_recovered(const struct store_options *options, const struct tail_found *found)
{
    char line[240];
    if (!options->notice || (found->batches == 0 && !found->torn))
        return;
    (void)snprintf(line, sizeof line,
                   "store: the gateway did not end in good order; %" PRIu64 " batches came back from the journal%s",
                   found->batches,
                   found->torn
                       ? "; one more is not whole and was dropped: unless the disk is damaged, its write had not "
                         "ended and nothing of it was acknowledged"
                       : "");
    options->notice(options->notice_arg, STORE_NOTICE_ODD, line);
}

static enum store_error read_clock(struct db *db, struct kept_clock *out)
{
    struct db_txn txn;
    db_begin(db, &txn);
    *out = kept_clock(&txn);
    enum store_error error = db_txn_error(&txn);
    db_abort(&txn);
    return error;
}

static enum store_error start(struct store *store, const struct store_options *options, char *why, size_t why_cap)
{
    struct leftovers state = {0};
    struct tail_found found;
    (void)db_clear_dead_readers(store->db);
    enum store_error error = tail_recover(store->db, options->path, &found, why, why_cap);
    if (error != STORE_OK)
        return error;
    tell_recovered(options, &found);
    error = read_clock(store->db, &state.clock);
    if (error == STORE_OK)
        error = leftovers_take(store->db, options->drop_oldest, &state);
    if (error != STORE_OK) {
        (void)snprintf(why, why_cap, "store %s: cannot record what the last stop left behind: %s", options->path,
                       error == STORE_FULL ? "no room; raise store.max_size or free disk space" : "write failed");
        return error;
    }
    tell_leftovers(options, &state);
    error = unresolved_read(&store->unresolved, store->db);
    if (error != STORE_OK) {
        (void)snprintf(why, why_cap, "store %s: cannot count the effects that nobody has resolved: read failed",
                       options->path);
        return error;
    }
    error = writer_start(store->db, options, &state, &store->unresolved, &store->writer);
    if (error != STORE_OK)
        (void)snprintf(why, why_cap, "store %s: cannot start the writer", options->path);
    return error;
}

static enum store_error open_folder(const char *path, bool readonly, struct store **out, char *why, size_t why_cap)
{
    *out = calloc(1, sizeof **out);
    if (!*out) {
        (void)snprintf(why, why_cap, "store %s: out of memory", path);
        return STORE_IO;
    }
    unresolved_init(&(*out)->unresolved);
    return folder_enter(path, readonly, &(*out)->folder, why, why_cap);
}

enum store_error store_open(const struct store_options *options, struct store **out, char *why, size_t why_cap)
{
    uint64_t max_size = options->max_size > MAX_SIZE_LEAST ? options->max_size : MAX_SIZE_LEAST;
    bool made = false;
    *out = NULL;
    enum store_error error = make_judge(options->path, options->make, why, why_cap);
    if (error == STORE_OK)
        error = open_folder(options->path, false, out, why, why_cap);
    if (error == STORE_OK)
        error = make_store(options->path, options->make, max_size, &made, why, why_cap);
    if (made && options->notice)
        options->notice(options->notice_arg, STORE_NOTICE_MADE, options->path);
    if (error == STORE_OK)
        error = db_open(options->path, max_size, false, &(*out)->db, why, why_cap);
    if (error == STORE_OK)
        error = folder_sync(options->path, why, why_cap);
    if (error == STORE_OK)
        error = start(*out, options, why, why_cap);
    if (*out != NULL && (*out)->folder != NULL)
        owner_of_files(options->path);
    if (error != STORE_OK)
        store_close(out);
    return error;
}

/* What a killed gateway left in the journal can't be seen before it is in data.mdb. The map has the size that the
 * gateway gave it, which kept room for that: a larger one would be written into data.mdb for good. */
static enum store_error recover(const char *path, char *why, size_t why_cap)
{
    struct store *store;
    struct tail_found found;
    enum store_error error = open_folder(path, false, &store, why, why_cap);
    if (error == STORE_OK)
        error = db_open(path, 0, false, &store->db, why, why_cap);
    if (error == STORE_OK)
        error = tail_recover(store->db, path, &found, why, why_cap);
    store_close(&store);
    return error == STORE_BUSY ? STORE_OK : error; /* a gateway has come: it does it */
}

static enum store_error open_for_reading(const char *path, struct store **out, char *why, size_t why_cap)
{
    enum store_error error = open_folder(path, true, out, why, why_cap);
    if (error == STORE_OK)
        error = db_open(path, 0, true, &(*out)->db, why, why_cap);
    owner_of_files(path); /* LMDB makes lock.mdb */
    if (error == STORE_OK && ((*out)->path = strdup(path)) == NULL) {
        (void)snprintf(why, why_cap, "store %s: out of memory", path);
        error = STORE_IO;
    }
    if (error != STORE_OK)
        store_close(out);
    return error;
}

enum store_error store_open_readonly(const char *path, struct store **out, char *why, size_t why_cap)
{
    enum store_error error = open_for_reading(path, out, why, why_cap);
    if (error != STORE_OK || tail_wait((*out)->db, path))
        return error;
    if (!store_served(path)) {
        store_close(out);
        error = recover(path, why, why_cap);
        if (error == STORE_OK)
            error = open_for_reading(path, out, why, why_cap);
        if (error != STORE_OK || tail_wait((*out)->db, path))
            return error;
    }
    (*out)->behind = true;
    return STORE_OK;
}

void store_give_files(const char *path)
{
    owner_of_files(path);
}

bool store_behind(const struct store *store)
{
    return store->behind;
}

bool store_served(const char *path)
{
    return folder_served(path);
}

void store_close(struct store **store)
{
    if (!*store)
        return;
    writer_stop(&(*store)->writer);
    db_close(&(*store)->db);
    folder_leave(&(*store)->folder);
    unresolved_free(&(*store)->unresolved);
    free((*store)->path);
    free(*store);
    *store = NULL;
}

void store_submit_list(struct store *store, struct store_op *first, struct store_op *last)
{
    last->next = NULL;
    if (store && store->writer)
        writer_submit(store->writer, first, last);
    else
        writer_refuse(first, STORE_CLOSED);
}

uint64_t store_id(const struct store *store)
{
    return db_id(store->db);
}

void store_submit(struct store *store, struct store_op *op)
{
    store_submit_list(store, op, op);
}

void store_retention(struct store *store, uint64_t retain_ms, bool drop_oldest, uint64_t rejected_max)
{
    if (store->writer)
        writer_retention(store->writer, retain_ms, drop_oldest, rejected_max);
}

void store_unresolved(struct store *store, void (*each)(void *arg, const struct store_unresolved *route), void *arg)
{
    unresolved_each(&store->unresolved, each, arg);
}

bool store_writable(struct store *store)
{
    return store->writer && writer_writable(store->writer);
}

bool store_roomy(struct store *store)
{
    return store->writer && writer_roomy(store->writer);
}

void store_health(struct store *store, struct store_health *out)
{
    if (store->writer)
        writer_health(store->writer, out);
    else
        *out = (struct store_health){.reason = "opened for reading only"};
}
