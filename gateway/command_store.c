/*
 * gateway/command_store.c - finds the store, reads it, and brings a change into it.
 *
 * A change belongs to the process that holds the store's lock. When that is a gateway, it is asked over its admin
 * listener, since it also has to tell the calls that are under way; when nobody holds it, this process takes it for the
 * moment. Which of the two is the case may change while it tries (a gateway that starts or stops), so it tries both in
 * turn for a while; nothing is asked twice, since only what reached nobody is tried again.
 */
#include "gateway/command_store.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/config.h"
#include "gateway/admin_address.h"
#include "gateway/admin_guard.h"
#include "gateway/command.h"
#include "gateway/command_admin_client.h"
#include "gateway/log.h"
#include "gateway/timers.h"

#define WHY_CAP 1024
#define PATIENCE_MS 5000 /* for a gateway that is just starting or stopping */
#define PAUSE_MS 50
#define SIZE_UNTOLD ((uint64_t)16 << 30) /* --store alone does not say store.max_size; its default */

void command_complain(const char *command, const char *text)
{
    fprintf(stderr, "fencegate %s: %s\n", command, text);
}

static bool behind; /* said in this process */

void command_tell_behind(const char *command, const struct store *store)
{
    if (!store_behind(store))
        return;
    if (!behind) /* a hint looks a second time */
        command_complain(command, "the gateway can't write data.mdb now (see its log): what it recorded last, in its "
                                  "journal, is not shown");
    behind = true;
}

bool command_behind(void)
{
    return behind;
}

int command_status(int status)
{
    return status == COMMAND_DONE && behind ? COMMAND_STORE : status;
}

bool command_flush(const char *command)
{
    if (!ferror(stdout) && fflush(stdout) == 0) /* after an error, what is left would only be tried again */
        return true;
    if (command != NULL) {
        fprintf(stderr, "fencegate %s: ", command);
        perror("standard output");
    }
    return false;
}

static int fail(const struct store_place *place, int status, const char *text)
{
    command_complain(place->command, text);
    return status;
}

int place_complain(const struct store_place *place, enum store_error error, const char *why)
{
    static const char no_store[] = "; is store.path right? `fencegate check -c FILE` shows it";
    static const char not_ours[] = "; run this as the user that owns the store";
    char text[WHY_CAP + sizeof no_store];
    const char *hint = error == STORE_NOT_FOUND                       ? no_store
                       : strstr(why, strerrordesc_np(EACCES)) != NULL ? not_ours
                                                                      : "";
    snprintf(text, sizeof text, "%s%s", why, hint);
    return fail(place, COMMAND_STORE, text);
}

int place_find(struct store_place *place)
{
    char error[WHY_CAP] = "";
    place->path = place->store_path;
    if (place->config_file == NULL)
        return COMMAND_DONE;
    place->config = config_load(place->config_file, error, sizeof error);
    if (place->config == NULL)
        return fail(place, COMMAND_USAGE, error);
    place->path = place->config->store_path;
    return COMMAND_DONE;
}

void place_free(struct store_place *place)
{
    if (place->config != NULL)
        config_unref(&place->config);
}

int place_read(const struct store_place *place, enum store_error (*read)(struct store_reader *reader, void *arg),
               void *arg)
{
    struct store *store = NULL;
    struct store_reader *reader = NULL;
    char why[WHY_CAP] = "";
    enum store_error error = store_open_readonly(place->path, &store, why, sizeof why);
    if (error != STORE_OK)
        return place_complain(place, error, why);
    command_tell_behind(place->command, store);
    error = store_reader_open(store, &reader);
    if (error == STORE_OK)
        error = read(reader, arg);
    store_reader_close(&reader);
    store_close(&store);
    if (error == STORE_OK)
        return COMMAND_DONE;
    snprintf(why, sizeof why, "%s: %s", place->path,
             error == STORE_FORMAT ? "a record does not decode" : "the store can't be read");
    return fail(place, COMMAND_STORE, why);
}

/* ---- in the store itself ---- */

struct direct {
    struct store_op op;
    sem_t all;   /* of the first of several; counts those that are done */
    sem_t *done; /* that one */
};

static void on_done(struct store_op *op) /* writer thread */
{
    sem_post(((struct direct *)op)->done);
}

static void on_notice(void *arg, enum store_notice weight, const char *text)
{
    (void)weight;
    const struct store_place *place = arg;
    command_complain(place->command, text);
}

static bool write_one(void *arg, const struct audit_record *record)
{
    audit_record_write(arg, record);
    return false;
}

/* What the admin listener would answer. */
static bool write_result(struct store *store, const struct store_op *op, struct jsonout *out)
{
    struct store_reader *reader = NULL;
    struct fence_entry entry = {.ns = op->record.ns, .key = op->record.key};
    struct audit_filter filter = {.after = op->audit_id - 1, .limit = 1};
    uint64_t next, in_flight = 0;
    enum store_error error = store_reader_open(store, &reader);
    if (error == STORE_OK && op->kind == STORE_RAISE) {
        error = store_fence_get(reader, entry.ns, entry.key, &entry.fence);
        fence_write(out, &entry, &in_flight); /* nobody serves this store */
    } else if (error == STORE_OK && op->kind == STORE_RESOLVE) {
        error = store_audit_query(reader, &filter, write_one, out, &next);
    }
    store_reader_close(&reader);
    return error == STORE_OK;
}

static int judge(const struct store_place *place, struct store *store, const struct store_op *op, struct jsonout *out)
{
    char text[WHY_CAP];
    switch (op->error) {
    case STORE_OK: break;
    case STORE_NOT_FOUND:
        return fail(place, COMMAND_REFUSED,
                    op->kind == STORE_RESET
                        ? "No token has been accepted for this key."
                        : "No effect with this id is in doubt or recorded as unknown in the audit.");
    case STORE_ALREADY: return fail(place, COMMAND_REFUSED, "This effect has been resolved before.");
    case STORE_FULL: return fail(place, COMMAND_STORE, "The store is full; nothing was changed.");
    default: return fail(place, COMMAND_STORE, "The store can't be written; nothing was changed.");
    }
    if (op->kind == STORE_RAISE && op->verdict == VERDICT_STALE) {
        snprintf(text, sizeof text, "Token %" PRIu64 " is below %" PRIu64 ", the highest accepted for this key.",
                 op->record.token, op->highest);
        return fail(place, COMMAND_REFUSED, text);
    }
    if (!write_result(store, op, out))
        return fail(place, COMMAND_STORE, "It was done, but the store can't be read.");
    return COMMAND_DONE;
}

/* Opens the store to change it. False: a gateway has it (*status stays), or it can't be opened (*status says so). */
static bool open_to_change(const struct store_place *place, struct store_place *said, struct store **store, int *status)
{
    char why[WHY_CAP] = "";
    struct store_options options = {
        .path = place->path,
        .max_size = place->config == NULL ? SIZE_UNTOLD : place->config->store_max_size,
        .drop_oldest = place->config != NULL && place->config->audit_drop_oldest,
        .notice = on_notice,
        .notice_arg = said,
    };
    *said = *place;
    enum store_error error = store_open(&options, store, why, sizeof why);
    if (error == STORE_OK)
        admin_address_remove(place->path); /* of a gateway that was killed */
    else if (error != STORE_BUSY)
        *status = place_complain(place, error, why);
    return error == STORE_OK;
}

/* All of one batch, if they fit: one sync. `direct` has room for them and one semaphore for all, in the first. */
static void run_directly(struct store *store, struct direct *direct, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        direct[i].op.done = on_done;
        direct[i].done = &direct[0].all;
        store_submit(store, &direct[i].op);
    }
    for (size_t i = 0; i < count; i++)
        while (sem_wait(&direct[0].all) != 0)
            continue;
}

/* False: a gateway has the store; else *status says how it went. */
static bool change_directly(const struct store_place *place, struct direct *direct, struct jsonout *out, int *status)
{
    struct store *store = NULL;
    struct store_place said;
    if (!open_to_change(place, &said, &store, status))
        return *status != COMMAND_DONE;
    run_directly(store, direct, 1);
    *status = judge(place, store, &direct->op, out);
    store_close(&store);
    return true;
}

/* The same for resets; one whose fence is not there is passed over. */
static bool reset_directly(const struct store_place *place, struct direct *direct, size_t count, size_t *done,
                           int *status)
{
    struct store *store = NULL;
    struct store_place said;
    struct jsonout none = {0};
    if (!open_to_change(place, &said, &store, status))
        return *status != COMMAND_DONE;
    run_directly(store, direct, count);
    for (size_t i = 0; i < count && *status == COMMAND_DONE; i++) {
        if (direct[i].op.error != STORE_NOT_FOUND)
            *status = judge(place, store, &direct[i].op, &none);
        *done += direct[i].op.error == STORE_OK;
    }
    store_close(&store);
    return true;
}

/* ---- through the gateway ---- */

static void percent_encode(struct jsonout *out, struct slice text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~";
    for (size_t i = 0; i < text.len; i++) {
        char escape[4];
        snprintf(escape, sizeof escape, "%%%02X", (unsigned)(unsigned char)text.data[i]);
        if (memchr(plain, text.data[i], sizeof plain - 1) != NULL)
            jsonout_raw(out, &text.data[i], 1);
        else
            jsonout_raw(out, escape, 3);
    }
}

static void append(struct jsonout *out, const char *text)
{
    jsonout_raw(out, text, strlen(text));
}

static void append_fence(struct jsonout *target, struct slice ns, struct slice key)
{
    append(target, "/v1/fences/");
    percent_encode(target, ns);
    append(target, "/");
    percent_encode(target, key);
}

static void write_call(enum store_op_kind kind, const struct audit_record *record, struct jsonout *target,
                       struct jsonout *body)
{
    char id[32];
    if (kind == STORE_RESOLVE) {
        snprintf(id, sizeof id, "%" PRIu64, record->effect_id);
        append(target, "/v1/effects/");
        append(target, id);
        append(target, "/resolve");
    } else {
        append_fence(target, record->ns, record->key);
    }
    if (kind == STORE_RESET) {
        append(target, "?reason=");
        percent_encode(target, record->reason);
    } else {
        jsonout_object_begin(body);
        if (kind == STORE_RAISE)
            jsonout_member_id(body, "token", record->token);
        jsonout_member_string(body, kind == STORE_RAISE ? "reason" : "outcome", record->reason.data,
                              record->reason.len);
        jsonout_member_string(body, "note", record->note.data, record->note.len);
        jsonout_object_end(body);
    }
    jsonout_raw(target, "", 1);
}

static int explain_status(const struct store_place *place, long status, const struct jsonout *body)
{
    json_t *problem = json_loadb(body->len == 0 ? "" : body->text, body->len, 0, NULL);
    const char *detail = json_string_value(json_object_get(problem, "detail"));
    int result = status == 404 || status == 409 ? COMMAND_REFUSED : status == 400 ? COMMAND_USAGE : COMMAND_STORE;
    char text[WHY_CAP];
    if (status == 401)
        snprintf(text, sizeof text,
                 "the running gateway does not take this admin token; give -c FILE if its "
                 "configuration names a token_file");
    else if (detail != NULL)
        snprintf(text, sizeof text, "%s", detail);
    else
        snprintf(text, sizeof text, "the running gateway answered with status %ld", status);
    json_decref(problem);
    return fail(place, result, text);
}

static bool load_token(const struct store_place *place, struct admin_token *token, char error[WHY_CAP])
{
    char file[4096];
    const char *named = place->config == NULL ? NULL : place->config->admin_token_file;
    if (named == NULL) { /* named all the same: a missing one must not be made here */
        snprintf(file, sizeof file, "%s/admin.token", place->path);
        named = file;
    }
    log_set_level(LOG_ERROR);
    bool loaded = admin_token_load(named, place->path, token, error, WHY_CAP);
    token->text[loaded ? token->len : 0] = '\0';
    size_t len = strlen(error);
    if (!loaded && place->config == NULL)
        (void)snprintf(error + len, WHY_CAP - len, "; give -c FILE if the gateway's configuration names a token_file");
    return loaded;
}

/* False: it can't be reached (yet); else *status says how it went, and *http the answer's status. A 404 is said unless
 * `absent_is_fine`. */
static bool change_by_gateway(const struct store_place *place, enum store_op_kind kind,
                              const struct audit_record *record, bool absent_is_fine, struct jsonout *out, long *http,
                              int *status)
{
    static const char *const methods[] = {[STORE_RAISE] = "PUT", [STORE_RESET] = "DELETE", [STORE_RESOLVE] = "POST"};
    char address[ADMIN_ADDRESS_CAP], why[128], text[WHY_CAP];
    struct admin_token token;
    struct jsonout target = {0}, body = {0};
    *http = 0;
    if (!admin_address_read(place->path, address))
        return false;
    if (!load_token(place, &token, text)) {
        *status = fail(place, COMMAND_STORE, text);
        return true;
    }
    write_call(kind, record, &target, &body);
    enum client_result result = CLIENT_FAILED;
    snprintf(why, sizeof why, "out of memory");
    if (!target.failed && !body.failed) {
        struct client_call call = {address, token.text, methods[kind], target.text, body.len == 0 ? NULL : body.text};
        result = client_call(&call, http, out, why, sizeof why);
    }
    admin_token_clear(&token);
    jsonout_free(&target);
    jsonout_free(&body);
    if (result == CLIENT_UNREACHABLE)
        return false;
    if (result == CLIENT_ANSWERED && (*http == 200 || *http == 204 || (*http == 404 && absent_is_fine)))
        return true;
    if (result == CLIENT_ANSWERED) {
        *status = explain_status(place, *http, out);
    } else {
        snprintf(text, sizeof text, "the running gateway at %s: %s; whether it was done is not known", address, why);
        *status = fail(place, COMMAND_STORE, text);
    }
    return true;
}

static bool store_there(const struct store_place *place, int *status)
{
    char why[WHY_CAP] = "";
    struct store *store = NULL;
    enum store_error error = store_open_readonly(place->path, &store, why, sizeof why);
    if (error != STORE_OK) {
        *status = place_complain(place, error, why); /* serving would make a new one: a misspelt path must not */
        return false;
    }
    store_close(&store);
    return true;
}

/* Waits a moment for whoever has the store. False: for long enough. */
static bool wait_for_place(const struct store_place *place, uint64_t end, int *status)
{
    const struct timespec pause = {0, PAUSE_MS * 1000000L};
    if (monotonic_ms() < end) {
        nanosleep(&pause, NULL);
        return true;
    }
    *status = fail(place, COMMAND_STORE,
                   "the store is in use by another process, and no running gateway can be reached; run this "
                   "where the gateway runs (in its container, as its user)");
    return false;
}

int place_change(const struct store_place *place, enum store_op_kind kind, const struct audit_record *record,
                 struct jsonout *out)
{
    struct direct direct = {.op = {.kind = kind, .record = *record}};
    uint64_t end = monotonic_ms() + PATIENCE_MS;
    int status = COMMAND_DONE;
    long http;
    if (!store_there(place, &status))
        return status;
    if (sem_init(&direct.all, 0, 0) != 0)
        return fail(place, COMMAND_STORE, "cannot make a semaphore");
    while (!change_directly(place, &direct, out, &status) &&
           !change_by_gateway(place, kind, record, false, out, &http, &status) && wait_for_place(place, end, &status))
        continue;
    sem_destroy(&direct.all);
    return status;
}

/* False: the gateway can't be reached (yet). */
static bool reset_by_gateway(const struct store_place *place, const struct audit_record *records, size_t count,
                             size_t *at, size_t *done, int *status)
{
    for (; *at < count && *status == COMMAND_DONE; ++*at) {
        struct jsonout answer = {0};
        long http;
        bool reached = change_by_gateway(place, STORE_RESET, &records[*at], true, &answer, &http, status);
        jsonout_free(&answer);
        if (!reached)
            return false;
        *done += *status == COMMAND_DONE && http == 204;
    }
    return true;
}

int place_reset(const struct store_place *place, const struct audit_record *records, size_t count, size_t *done)
{
    uint64_t end = monotonic_ms() + PATIENCE_MS;
    size_t at = 0; /* those before it were reset by the gateway */
    int status = COMMAND_DONE;
    struct direct *direct = calloc(count, sizeof *direct);
    *done = 0;
    if (direct == NULL || sem_init(&direct[0].all, 0, 0) != 0) {
        free(direct);
        return fail(place, COMMAND_STORE, "out of memory");
    }
    for (size_t i = 0; i < count; i++)
        direct[i].op = (struct store_op){.kind = STORE_RESET, .record = records[i]};
    while (!(at == 0 && reset_directly(place, direct, count, done, &status)) &&
           !reset_by_gateway(place, records, count, &at, done, &status) && wait_for_place(place, end, &status))
        continue;
    sem_destroy(&direct[0].all);
    free(direct);
    return status;
}

/* The address is believed only while somebody serves the store: one that a crash left behind may be another's by now,
 * and the token must not go there. */
bool place_ask(const struct store_place *place, struct slice ns, struct slice key, const char *rest,
               struct jsonout *out)
{
    char address[ADMIN_ADDRESS_CAP], why[WHY_CAP];
    struct admin_token token;
    struct jsonout target = {0};
    long http = 0;
    if (!store_served(place->path) || !admin_address_read(place->path, address) || !load_token(place, &token, why))
        return false;
    append_fence(&target, ns, key);
    append(&target, rest);
    jsonout_raw(&target, "", 1);
    struct client_call call = {address, token.text, "GET", target.text, NULL};
    bool answered = !target.failed && client_call(&call, &http, out, why, sizeof why) == CLIENT_ANSWERED && http == 200;
    admin_token_clear(&token);
    jsonout_free(&target);
    if (!answered)
        jsonout_reset(out);
    return answered;
}
