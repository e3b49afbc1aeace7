/* tests/unit/tail_case.h - for tests of a store with a journal: chunks of a known size, the folder as a crash would
 * leave it at a known moment, and all that is in a store as text. */
#ifndef FENCEGATE_TESTS_TAIL_CASE_H
#define FENCEGATE_TESTS_TAIL_CASE_H

#include "tests/unit/store_fixture.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "store/journal.h"

#define TAIL_SIZE (256 * MIB) /* with less there is no journal */
#define FIRST_BLOCK 4096      /* of the journal; batches come behind it */

struct tail_case {
    struct fixture fx; /* first: fixture_close() and others get its address */
    char crashed[64];  /* a folder for copies */
    struct fixture copy;
};

static inline int tail_case_folder(void **state)
{
    struct tail_case *at = calloc(1, sizeof *at);
    struct fixture *fx;
    if (at == NULL || fixture_folder((void **)&fx) != 0)
        return -1;
    at->fx = *fx;
    free(fx);
    pthread_mutex_init(&at->fx.lock, NULL);
    at->fx.options.path = at->fx.path;
    at->fx.options.notice_arg = &at->fx;
    at->fx.options.max_size = TAIL_SIZE;
    at->fx.options.journal = true;
    (void)snprintf(at->crashed, sizeof at->crashed, "/tmp/store-crash-XXXXXX");
    if (!mkdtemp(at->crashed))
        return -1;
    at->copy.options = (struct store_options){
        .path = at->crashed, .max_size = TAIL_SIZE, .journal = true, .notice = keep_notice, .notice_arg = &at->copy};
    pthread_mutex_init(&at->copy.lock, NULL);
    *state = at;
    return 0;
}

static inline int tail_case_open(void **state)
{
    if (tail_case_folder(state) != 0)
        return -1;
    struct tail_case *at = *state;
    open_store(&at->fx);
    return 0;
}

static inline void path_in(char out[128], const char *folder, const char *name)
{
    (void)snprintf(out, 128, "%s/%s", folder, name);
}

static inline void remove_from(const char *folder, const char *name)
{
    char path[128];
    path_in(path, folder, name);
    (void)unlink(path);
}

static inline int tail_case_close(void **state)
{
    static const char *const files[] = {"data.mdb", "lock.mdb", "gateway.lock", JOURNAL_NAME, "aside"};
    struct tail_case *at = *state;
    store_close(&at->copy.store);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        remove_from(at->crashed, files[i]);
    (void)rmdir(at->crashed);
    pthread_mutex_destroy(&at->copy.lock);
    store_close(&at->fx.store);
    remove_from(at->fx.path, JOURNAL_NAME);
    remove_from(at->fx.path, "aside");
    return fixture_close(state);
}

static inline void copy_file(const char *from_folder, const char *to_folder, const char *name)
{
    static char bytes[1 << 20];
    char from[128], to[128];
    ssize_t len;
    path_in(from, from_folder, name);
    path_in(to, to_folder, name);
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (in < 0 || out < 0)
        abort();
    while ((len = read(in, bytes, sizeof bytes)) > 0)
        if (write(out, bytes, (size_t)len) != len)
            abort();
    if (len < 0)
        abort();
    close(in);
    close(out);
}

/* What a kill at this moment leaves. On the writer's thread, or while it can't move: else the files don't fit. */
static inline void copy_crashed(struct tail_case *at)
{
    remove_from(at->crashed, "lock.mdb");
    remove_from(at->crashed, "gateway.lock");
    copy_file(at->fx.path, at->crashed, "data.mdb");
    copy_file(at->fx.path, at->crashed, JOURNAL_NAME);
}

/* An operation that changes nothing and holds the writer until it may go on. */
struct holder {
    struct call call;
    pthread_cond_t freed;
    bool held, go; /* under call.lock */
};

static inline void hold_here(struct store_op *op)
{
    struct holder *holder = (struct holder *)op;
    pthread_mutex_lock(&holder->call.lock);
    holder->held = true;
    pthread_cond_broadcast(&holder->freed);
    while (!holder->go)
        pthread_cond_wait(&holder->freed, &holder->call.lock);
    holder->call.done++;
    pthread_cond_signal(&holder->call.changed);
    pthread_mutex_unlock(&holder->call.lock);
}

static inline void hold_writer(struct store *store, struct holder *holder)
{
    *holder = (struct holder){.go = false};
    call_init(&holder->call);
    pthread_cond_init(&holder->freed, NULL);
    holder->call.op.kind = STORE_RESOLVE; /* of no effect that there is */
    holder->call.op.done = hold_here;
    store_submit(store, &holder->call.op);
    pthread_mutex_lock(&holder->call.lock);
    while (!holder->held)
        pthread_cond_wait(&holder->freed, &holder->call.lock);
    pthread_mutex_unlock(&holder->call.lock);
}

static inline void let_go(struct holder *holder)
{
    pthread_mutex_lock(&holder->call.lock);
    holder->go = true;
    pthread_cond_broadcast(&holder->freed);
    pthread_mutex_unlock(&holder->call.lock);
    assert_true(call_wait(&holder->call, 30000));
}

/* What is to be done on the writer's thread when a chunk is durable and nobody can have settled it. */
struct moment {
    struct call last; /* first */
    void (*act)(void *arg);
    void *arg;
};

static inline void moment_done(struct store_op *op)
{
    struct moment *moment = (struct moment *)op;
    moment->act(moment->arg);
    call_done(op);
}

/* One chunk of all `calls`, and `act` (may be NULL) as above: one more operation then ends the chunk, which changes
 * nothing. */
static inline void run_chunk(struct store *store, struct call **calls, size_t count, void (*act)(void *arg), void *arg)
{
    struct holder holder;
    struct moment moment = {.act = act, .arg = arg};
    call_init(&moment.last);
    moment.last.op.kind = STORE_RESOLVE;
    moment.last.op.done = moment_done;
    hold_writer(store, &holder);
    for (size_t i = 0; i < count; i++) {
        calls[i]->done = 0;
        store_submit(store, &calls[i]->op);
    }
    if (act != NULL)
        store_submit(store, &moment.last.op);
    let_go(&holder);
    for (size_t i = 0; i < count; i++)
        assert_true(call_wait(calls[i], 30000));
    if (act != NULL)
        assert_true(call_wait(&moment.last, 30000));
}

static inline void take_copy(void *at)
{
    copy_crashed(at);
}

/* Two keys, so that no chunk comes alone: admitted in one chunk with a record each of an effect, and a copy. */
static inline void admit_two(struct tail_case *at, uint64_t token, void (*act)(void *arg))
{
    struct call one, two;
    admit_init(&one, "one", token);
    admit_init(&two, "two", token);
    one.op.admit.intent = two.op.admit.intent = true;
    run_chunk(at->fx.store, (struct call *[]){&one, &two}, 2, act, at);
    assert_int_equal(one.op.error, STORE_OK);
    assert_int_equal(two.op.error, STORE_OK);
}

/* All that is in a store, but for times. To be freed. */
static inline void put_slice(FILE *out, struct slice bytes)
{
    (void)fprintf(out, " %.*s", (int)bytes.len, bytes.data ? bytes.data : "");
}

static inline bool put_record(void *arg, const struct audit_record *is)
{
    FILE *out = arg;
    (void)fprintf(out, "%" PRIu64 " %d e%" PRIu64 " t%" PRIu64 " h%" PRIu64 " s%u w%d", is->id, (int)is->kind,
                  is->effect_id, is->token, is->highest, is->status, is->would_drop);
    put_slice(out, is->reason);
    put_slice(out, is->route);
    put_slice(out, is->ns);
    put_slice(out, is->key);
    put_slice(out, is->path);
    put_slice(out, is->note);
    (void)fputc('\n', out);
    return true;
}

static inline bool put_fence(void *arg, const struct fence_entry *entry)
{
    FILE *out = arg;
    (void)fprintf(out, "f%" PRIu64, entry->fence.token);
    put_slice(out, entry->ns);
    put_slice(out, entry->key);
    (void)fputc('\n', out);
    return true;
}

static inline char *contents(struct store *store)
{
    char *text_of_it = NULL;
    size_t len;
    uint64_t next;
    bool more;
    struct store_reader *reader;
    FILE *out = open_memstream(&text_of_it, &len);
    assert_non_null(out);
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    assert_int_equal(store_fences_query(reader, &(struct fence_filter){.limit = SIZE_MAX}, put_fence, out, &more),
                     STORE_OK);
    assert_int_equal(store_audit_query(reader, &(struct audit_filter){.limit = SIZE_MAX}, put_record, out, &next),
                     STORE_OK);
    for (int state = EFFECTS_IN_DOUBT; state <= EFFECTS_UNKNOWN; state++) {
        struct effects_filter filter = {.state = (enum effects_state)state, .limit = SIZE_MAX};
        (void)fprintf(out, "effects %d\n", state);
        assert_int_equal(store_effects_query(reader, &filter, put_record, out, &next), STORE_OK);
    }
    store_reader_close(&reader);
    (void)fclose(out);
    return text_of_it;
}

static inline void count_finding(void *arg, const struct store_finding *finding)
{
    (void)arg;
    (void)fprintf(stderr, "%s %" PRIu64 ": %s\n", finding->table, finding->id, finding->text);
}

static inline void assert_sound(struct store *store)
{
    struct store_contents out;
    struct store_checker checker = {.finding = count_finding};
    uint64_t findings;
    assert_int_equal(store_verify(store, &checker, &out, &findings), STORE_OK);
    assert_int_equal(findings, 0);
}

static inline enum store_error open_copy(struct tail_case *at, bool readonly)
{
    char why[512] = "";
    at->copy.notices[0] = '\0';
    enum store_error error = readonly ? store_open_readonly(at->crashed, &at->copy.store, why, sizeof why)
                                      : store_open(&at->copy.options, &at->copy.store, why, sizeof why);
    assert_int_equal(error == STORE_OK, why[0] == '\0');
    assert_int_equal(error == STORE_OK, at->copy.store != NULL);
    return error;
}

/* Changes the copy's journal: nothing was written behind `len` bytes, or (len 0) the byte at `at_byte` is another. */
static inline void spoil_copy(struct tail_case *at, off_t len, off_t at_byte)
{
    char path[128], byte = 0;
    path_in(path, at->crashed, JOURNAL_NAME);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    if (len > 0) {
        off_t all = lseek(fd, 0, SEEK_END);
        assert_int_equal(ftruncate(fd, len), 0);
        assert_int_equal(ftruncate(fd, all), 0);
    } else
        assert_int_equal(pread(fd, &byte, 1, at_byte), 1);
    byte = (char)~byte;
    if (len == 0)
        assert_int_equal(pwrite(fd, &byte, 1, at_byte), 1);
    close(fd);
}

#endif
