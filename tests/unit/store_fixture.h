/* tests/unit/store_fixture.h - a store in a folder of its own, and operations that wait for their result. */
#ifndef FENCEGATE_TESTS_STORE_FIXTURE_H
#define FENCEGATE_TESTS_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/store.h"

#define MIB ((uint64_t)1 << 20)

static inline struct slice text(const char *chars)
{
    return (struct slice){chars, strlen(chars)};
}

struct fixture {
    char path[64];
    struct store *store;
    struct store_options options;
    pthread_mutex_t lock;
    char notices[4096]; /* under lock */
};

static inline void keep_notice(void *arg, enum store_notice weight, const char *line)
{
    (void)weight;
    struct fixture *fx = arg;
    pthread_mutex_lock(&fx->lock);
    size_t len = strlen(fx->notices);
    (void)snprintf(fx->notices + len, sizeof fx->notices - len, "%s\n", line);
    pthread_mutex_unlock(&fx->lock);
}

static inline bool noticed(struct fixture *fx, const char *part)
{
    pthread_mutex_lock(&fx->lock);
    bool is = strstr(fx->notices, part) != NULL;
    pthread_mutex_unlock(&fx->lock);
    return is;
}

static inline void open_store(struct fixture *fx)
{
    char why[512] = "";
    if (store_open(&fx->options, &fx->store, why, sizeof why) != STORE_OK)
        fail_msg("%s", why);
}

static inline void reopen(struct fixture *fx)
{
    store_close(&fx->store);
    assert_null(fx->store);
    open_store(fx);
}

/* A folder and settings, nothing open. */
static inline int fixture_folder(void **state)
{
    struct fixture *fx = calloc(1, sizeof *fx);
    if (!fx)
        return -1;
    (void)snprintf(fx->path, sizeof fx->path, "/tmp/store-test-XXXXXX");
    if (!mkdtemp(fx->path))
        return -1;
    pthread_mutex_init(&fx->lock, NULL);
    fx->options = (struct store_options){
        .path = fx->path, .make = true, .max_size = 64 * MIB, .notice = keep_notice, .notice_arg = fx};
    *state = fx;
    return 0;
}

static inline int fixture_open(void **state)
{
    if (fixture_folder(state) != 0)
        return -1;
    open_store(*state);
    return 0;
}

/* The same with so little room that it fills up soon. */
static inline int fixture_small(void **state)
{
    if (fixture_folder(state) != 0)
        return -1;
    struct fixture *fx = *state;
    fx->options.max_size = 4 * MIB;
    open_store(fx);
    return 0;
}

static inline int fixture_close(void **state)
{
    static const char *const files[] = {"data.mdb", "lock.mdb", "gateway.lock"};
    struct fixture *fx = *state;
    char file[128];
    store_close(&fx->store);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        (void)snprintf(file, sizeof file, "%s/%s", fx->path, files[i]);
        (void)unlink(file);
    }
    (void)rmdir(fx->path);
    pthread_mutex_destroy(&fx->lock);
    free(fx);
    return 0;
}

/* An operation that can be waited for. */
struct call {
    struct store_op op; /* first: `done` gets its address */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int done; /* how many times; under lock */
};

static inline void call_done(struct store_op *op)
{
    struct call *call = (struct call *)op;
    pthread_mutex_lock(&call->lock);
    call->done++;
    pthread_cond_signal(&call->changed);
    pthread_mutex_unlock(&call->lock);
}

static inline void call_init(struct call *call)
{
    *call = (struct call){.op = {.done = call_done}};
    pthread_mutex_init(&call->lock, NULL);
    pthread_cond_init(&call->changed, NULL);
}

/* False after `ms` without a result. */
static inline bool call_wait(struct call *call, int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&call->lock);
    int rc = 0;
    while (call->done == 0 && rc == 0)
        rc = pthread_cond_timedwait(&call->changed, &call->lock, &until);
    bool done = call->done > 0;
    if (done)
        assert_int_equal(call->done, 1);
    pthread_mutex_unlock(&call->lock);
    return done;
}

static inline void call_run(struct store *store, struct call *call)
{
    call->done = 0;
    store_submit(store, &call->op);
    assert_true(call_wait(call, 30000));
}

/* Many at once, in few commits: with one each a test would take as long as that many syncs of the disk. The error of
 * the first that failed; *done rises by those that did not. */
static inline enum store_error calls_run(struct store *store, struct call *calls, size_t count, size_t *done)
{
    enum store_error error = STORE_OK;
    for (size_t i = 0; i < count; i++)
        store_submit(store, &calls[i].op);
    for (size_t i = 0; i < count; i++) {
        assert_true(call_wait(&calls[i], 30000));
        error = error == STORE_OK ? calls[i].op.error : error;
        *done += calls[i].op.error == STORE_OK;
    }
    return error;
}

static inline void admit_init(struct call *call, const char *key, uint64_t token)
{
    call_init(call);
    call->op.kind = STORE_ADMIT;
    call->op.record = (struct audit_record){
        .route = text("payments"),
        .ns = text("default"),
        .key = text(key),
        .token = token,
        .method = text("POST"),
        .path = text("/v1/charges"),
        .client = text("127.0.0.1:5000"),
    };
    call->op.admit.equal_allowed = true;
    call->op.admit.refusal[VERDICT_STALE].reason = text("stale-token");
    call->op.admit.refusal[VERDICT_STALE].status = 412;
    call->op.admit.refusal[VERDICT_USED].reason = text("token-used");
    call->op.admit.refusal[VERDICT_USED].status = 413;
    call->op.admit.refusal[VERDICT_IMPLAUSIBLE].reason = text("implausible-token");
    call->op.admit.refusal[VERDICT_IMPLAUSIBLE].status = 422;
}

static inline struct store_op admit(struct store *store, const char *key, uint64_t token)
{
    struct call call;
    admit_init(&call, key, token);
    call_run(store, &call);
    return call.op;
}

static inline struct store_op admit_effect(struct store *store, const char *key, uint64_t token)
{
    struct call call;
    admit_init(&call, key, token);
    call.op.admit.intent = true;
    call_run(store, &call);
    return call.op;
}

static inline struct store_op record(struct store *store, const struct audit_record *subject)
{
    struct call call;
    call_init(&call);
    call.op.kind = STORE_RECORD;
    call.op.record = *subject;
    call_run(store, &call);
    return call.op;
}

/* What a query gave, in copies of the parts that tests look at. */
struct seen {
    uint64_t id, time_ms, effect_id, token, highest;
    enum audit_kind kind;
    uint32_t status;
    bool would_drop;
    char reason[64], key[64], route[64], note[128], method[16], path[64];
};
struct page {
    struct seen item[256];
    size_t count;
    uint64_t next_after;
    enum store_error error;
};

static inline void keep_text(char *out, size_t cap, struct slice bytes)
{
    (void)snprintf(out, cap, "%.*s", (int)bytes.len, bytes.data ? bytes.data : "");
}

static inline bool keep_record(void *arg, const struct audit_record *is)
{
    struct page *page = arg;
    assert_true(page->count < sizeof page->item / sizeof *page->item);
    struct seen *seen = &page->item[page->count++];
    *seen = (struct seen){is->id,
                          is->time_ms,
                          is->effect_id,
                          is->token,
                          is->highest,
                          is->kind,
                          is->status,
                          is->would_drop,
                          "",
                          "",
                          "",
                          "",
                          "",
                          ""};
    keep_text(seen->reason, sizeof seen->reason, is->reason);
    keep_text(seen->key, sizeof seen->key, is->key);
    keep_text(seen->route, sizeof seen->route, is->route);
    keep_text(seen->note, sizeof seen->note, is->note);
    keep_text(seen->method, sizeof seen->method, is->method);
    keep_text(seen->path, sizeof seen->path, is->path);
    return true;
}

static inline struct page query(struct store *store, const struct audit_filter *filter)
{
    struct page page = {.count = 0};
    struct store_reader *reader;
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    page.error = store_audit_query(reader, filter, keep_record, &page, &page.next_after);
    store_reader_close(&reader);
    assert_null(reader);
    return page;
}

static inline struct page all_records(struct store *store)
{
    return query(store, &(struct audit_filter){.limit = 250});
}

static inline uint64_t fence_of(struct store *store, const char *key)
{
    struct store_reader *reader;
    struct fence fence;
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    enum store_error error = store_fence_get(reader, text("default"), text(key), &fence);
    store_reader_close(&reader);
    if (error == STORE_NOT_FOUND)
        return 0;
    assert_int_equal(error, STORE_OK);
    assert_true(fence.updated_ms > 1600000000000);
    return fence.token;
}

static inline struct store_health health(struct store *store)
{
    struct store_health out;
    store_health(store, &out);
    return out;
}

/* Runs `child` in a process of its own, that must end with status 0. */
static inline void in_child(struct fixture *fx, void (*child)(struct fixture *fx))
{
    (void)fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        child(fx);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
