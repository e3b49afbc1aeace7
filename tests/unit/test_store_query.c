/* Tests of store/query.c: every filter, paging, and reading beside a process that writes. */
#include "tests/unit/store_fixture.h"

/* Twelve records whose clock jumped back twice. Ids are 1 to 12. */
static const struct {
    const char *ns, *key, *reason, *route;
    enum audit_kind kind;
    uint64_t time_ms;
} history[] = {
    {"default", "a", "stale-token", "pay", AUDIT_DROPPED, 1000},
    {"default", "b", NULL, "pay", AUDIT_SENT, 1001},
    {"other", "a", "stale-token", "mail", AUDIT_DROPPED, 5000}, /* a wrong clock */
    {"default", "a", "upstream-timeout", "pay", AUDIT_UNKNOWN, 1002},
    {"default", NULL, "missing-key", "pay", AUDIT_REJECTED, 1003},
    {"default", "ab", "stale-token", "pay", AUDIT_DROPPED, 1004},
    {"default", "a", NULL, "mail", AUDIT_SENT, 900},
    {"default", "a", NULL, "pay", AUDIT_RAISED, 1005},
    {"defaul", "ta", NULL, "pay", AUDIT_SENT, 1006},
    {"default", "a\x01", NULL, "pay", AUDIT_NOT_SENT, 1007},
    {"default", "a", "superseded", "pay", AUDIT_DROPPED, 1008},
    {NULL, "a", NULL, NULL, AUDIT_RESET, 1009},
};
#define HISTORY_COUNT (sizeof history / sizeof *history)

static struct slice maybe(const char *chars)
{
    return chars ? text(chars) : (struct slice){0};
}

static void write_history(struct store *store)
{
    for (size_t i = 0; i < HISTORY_COUNT; i++) {
        struct audit_record subject = {
            .kind = history[i].kind,
            .time_ms = history[i].time_ms,
            .ns = maybe(history[i].ns),
            .key = maybe(history[i].key),
            .reason = maybe(history[i].reason),
            .route = maybe(history[i].route),
        };
        assert_int_equal(record(store, &subject).audit_id, i + 1);
    }
}

static int setup_history(void **state)
{
    if (fixture_open(state) != 0)
        return -1;
    write_history(((struct fixture *)*state)->store);
    return 0;
}

/* The ids a filter must give, by the plainest reading of the filter. */
static size_t expected(const struct audit_filter *filter, uint64_t out[HISTORY_COUNT])
{
    size_t count = 0;
    for (size_t step = 0; step < HISTORY_COUNT; step++) {
        size_t i = filter->descending ? HISTORY_COUNT - 1 - step : step;
        const struct slice wanted[] = {filter->ns, filter->key, filter->reason, filter->route};
        const char *is[] = {history[i].ns, history[i].key, history[i].reason, history[i].route};
        bool match = filter->kind == 0 || filter->kind == history[i].kind;
        match = match && (!filter->key.data || history[i].ns); /* a key without a namespace is not in the index */
        for (size_t f = 0; f < 4 && match; f++)
            match = !wanted[f].data || (is[f] && strcmp(is[f], wanted[f].data) == 0);
        uint64_t id = i + 1;
        match = match && history[i].time_ms >= filter->since_ms;
        match = match && (filter->until_ms == 0 || history[i].time_ms < filter->until_ms);
        if (filter->after != 0)
            match = match && (filter->descending ? id < filter->after : id > filter->after);
        if (match)
            out[count++] = id;
    }
    return count;
}

/* Once in one page, once in pages of `limit`: the same ids in the same order, and the last page says so. */
static void check_filter(struct store *store, struct audit_filter filter, size_t limit)
{
    uint64_t ids[HISTORY_COUNT];
    size_t count = expected(&filter, ids), at = 0;
    filter.limit = limit;
    for (;;) {
        struct page page = query(store, &filter);
        assert_int_equal(page.error, STORE_OK);
        assert_true(page.count <= limit);
        for (size_t i = 0; i < page.count; i++, at++) {
            assert_true(at < count);
            assert_int_equal(page.item[i].id, ids[at]);
            assert_int_equal(page.item[i].time_ms, history[ids[at] - 1].time_ms);
        }
        if (page.next_after == 0)
            break;
        assert_true(at < count); /* a next page is promised only when there is one */
        assert_int_equal(page.next_after, ids[at - 1]);
        filter.after = page.next_after;
    }
    assert_int_equal(at, count);
}

static void test_every_filter(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    const struct audit_filter filters[] = {
        {.limit = 1},
        {.ns = text("default")},
        {.ns = text("defaul"), .key = text("ta")},
        {.ns = text("nothing"), .key = text("a")},
        {.ns = text("default"), .key = text("a")},
        {.ns = text("default"), .key = text("a\x01")},
        {.ns = text("default"), .key = text("")},
        {.key = text("a")},
        {.reason = text("stale-token")},
        {.reason = text("stale")},
        {.route = text("mail")},
        {.kind = AUDIT_DROPPED},
        {.kind = AUDIT_RESET},
        {.since_ms = 1003},
        {.until_ms = 1003},
        {.since_ms = 1002, .until_ms = 1005},
        {.since_ms = 1002, .until_ms = 1002},
        {.since_ms = 4000},
        {.after = 5},
        {.after = 12},
        {.after = UINT64_MAX},
        {.after = 1},
        {.ns = text("default"), .key = text("a"), .after = 4},
        {.ns = text("default"), .key = text("a"), .kind = AUDIT_DROPPED, .since_ms = 1001},
        {.ns = text("default"), .key = text("a"), .reason = text("superseded"), .route = text("pay")},
        {.ns = text("default"), .route = text("pay"), .kind = AUDIT_SENT, .until_ms = 1002},
    };
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        for (int down = 0; down < 2; down++) {
            struct audit_filter filter = filters[i];
            filter.descending = down == 1;
            for (size_t limit = 1; limit <= HISTORY_COUNT + 1; limit++)
                check_filter(store, filter, limit);
        }
    }
}

static bool stop_at_second(void *arg, const struct audit_record *is)
{
    size_t *count = arg;
    (void)is;
    return ++*count < 2;
}

static void test_each_stops(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    struct store_reader *reader;
    size_t count = 0;
    uint64_t next = 99;
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    struct audit_filter filter = {.limit = 10};
    assert_int_equal(store_audit_query(reader, &filter, stop_at_second, &count, &next), STORE_OK);
    store_reader_close(&reader);
    assert_int_equal(count, 2);
    assert_int_equal(next, 2);
}

/* More than a slice holds, by number of looks and by bytes; long values are copied whole. */
static void test_long_history(void **state)
{
    struct fixture *fx = *state;
    enum { COUNT = 20000 };
    struct call *calls = calloc(COUNT, sizeof *calls);
    char *path = malloc(30000);
    assert_non_null(calls);
    assert_non_null(path);
    memset(path, 'p', 30000);
    for (size_t i = 0; i < COUNT; i++) {
        call_init(&calls[i]);
        calls[i].op.kind = STORE_RECORD;
        calls[i].op.record.kind = i % 5000 == 4999 ? AUDIT_RESET : AUDIT_SENT;
        calls[i].op.record.path = (struct slice){path, i % 1000 == 0 ? 30000 : 5};
        store_submit(fx->store, &calls[i].op);
    }
    assert_true(call_wait(&calls[COUNT - 1], 60000));
    struct page page = query(fx->store, &(struct audit_filter){.kind = AUDIT_RESET, .limit = 10});
    assert_int_equal(page.count, 4);
    assert_int_equal(page.item[3].id, COUNT);
    assert_int_equal(page.next_after, 0);
    page = query(fx->store, &(struct audit_filter){.kind = AUDIT_RESET, .limit = 1, .descending = true});
    assert_int_equal(page.item[0].id, COUNT);
    assert_int_equal(page.next_after, COUNT);
    page = query(fx->store, &(struct audit_filter){.limit = 200, .after = 950});
    assert_int_equal(page.count, 200);
    assert_int_equal(page.next_after, 1150);
    free(calls);
    free(path);
}

/* A bound on the work ends pages early; going on from where they end gives everything once. */
static bool count_record(void *arg, const struct audit_record *record)
{
    (void)record;
    ++*(size_t *)arg;
    return true;
}

/* The next page's beginning may be written into the filter. */
static void test_pages_with_one_filter(void **state)
{
    struct fixture *fx = *state;
    struct store_reader *reader;
    size_t count = 0, pages = 0;
    size_t all = query(fx->store, &(struct audit_filter){.limit = 1000}).count;
    struct audit_filter filter = {.limit = 3};
    assert_true(all > 6 && all < 1000);
    assert_int_equal(store_reader_open(fx->store, &reader), STORE_OK);
    do {
        assert_int_equal(store_audit_query(reader, &filter, count_record, &count, &filter.after), STORE_OK);
        assert_true(++pages <= all);
    } while (filter.after != 0);
    store_reader_close(&reader);
    assert_int_equal(count, all);
    assert_int_equal(pages, (all + 2) / 3);
}

static void test_bounded_looks(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    for (int down = 0; down < 2; down++) {
        struct audit_filter filter = {.kind = AUDIT_DROPPED, .limit = 10, .looks = 5, .descending = down == 1};
        uint64_t ids[HISTORY_COUNT];
        size_t count = expected(&filter, ids), at = 0, pages = 0;
        do {
            struct page page = query(store, &filter);
            assert_int_equal(page.error, STORE_OK);
            for (size_t i = 0; i < page.count; i++)
                assert_int_equal(page.item[i].id, ids[at++]);
            filter.after = page.next_after;
            pages++;
        } while (filter.after != 0);
        assert_int_equal(at, count);
        assert_int_equal(pages, 3);
    }
    struct page page = query(store, &(struct audit_filter){.limit = 2, .looks = 2});
    assert_int_equal(page.count, 2);
    assert_int_equal(page.next_after, 2);
}

/* One key in many namespaces, more than are merged, beside other keys and namespaces whose names begin alike. */
static void test_a_key_in_all_namespaces(void **state)
{
    struct fixture *fx = *state;
    static const char *const keys[] = {"k", "k2", "kk"};
    for (unsigned spaces = 1; spaces <= 20; spaces++) {
        char ns[16];
        (void)snprintf(ns, sizeof ns, "n%.*s%u", (int)(spaces % 3), "--", spaces);
        for (unsigned i = 0; i < 3; i++) {
            struct audit_record subject = {.kind = AUDIT_SENT, .ns = text(ns), .key = text(keys[(spaces + i) % 3])};
            assert_int_equal(record(fx->store, &subject).error, STORE_OK);
        }
        for (int down = 0; down < 2; down++) {
            struct audit_filter filter = {.key = text("k"), .limit = 3, .descending = down == 1};
            unsigned seen = 0;
            uint64_t last = 0;
            do {
                struct page page = query(fx->store, &filter);
                for (size_t i = 0; i < page.count; i++, seen++) {
                    assert_string_equal(page.item[i].key, "k");
                    assert_true(last == 0 || (down == 1 ? page.item[i].id < last : page.item[i].id > last));
                    last = page.item[i].id;
                }
                filter.after = page.next_after;
            } while (filter.after != 0);
            assert_int_equal(seen, spaces);
        }
    }
}

static void *write_many(void *arg)
{
    struct fixture *fx = arg;
    for (size_t written = 0; written < 1500;) {
        struct call calls[10];
        for (size_t i = 0; i < 10; i++) {
            call_init(&calls[i]);
            calls[i].op.kind = STORE_RECORD;
            calls[i].op.record =
                (struct audit_record){.kind = AUDIT_SENT, .ns = text("default"), .key = text(i % 2 ? "odd" : "even")};
        }
        if (calls_run(fx->store, calls, 10, &written) != STORE_OK)
            return arg;
    }
    return NULL;
}

/* Ids rise in the order of writing: who pages while others write sees every record once. */
static void test_paging_while_writing(void **state)
{
    struct fixture *fx = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_many, fx), 0);
    struct audit_filter all = {.limit = 7}, odd = {.ns = text("default"), .key = text("odd"), .limit = 3};
    uint64_t seen = 0, seen_odd = 0;
    while (seen < 1500 || seen_odd < 750) {
        struct page page = query(fx->store, &all);
        for (size_t i = 0; i < page.count; i++)
            assert_int_equal(page.item[i].id, ++seen);
        all.after = seen;
        page = query(fx->store, &odd);
        for (size_t i = 0; i < page.count; i++)
            assert_int_equal(page.item[i].id, 2 * ++seen_odd);
        odd.after = 2 * seen_odd;
    }
    void *failed;
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}

/* Reading only. */

static void test_readonly_alone(void **state)
{
    struct fixture *fx = *state;
    (void)admit(fx->store, "k", 42);
    store_close(&fx->store);
    char why[256];
    struct store *store;
    assert_int_equal(store_open_readonly(fx->path, &store, why, sizeof why), STORE_OK);
    assert_int_equal(fence_of(store, "k"), 42);
    assert_int_equal(all_records(store).count, HISTORY_COUNT);
    assert_false(health(store).writable);
    struct call call;
    admit_init(&call, "k", 43);
    store_submit(store, &call.op);
    assert_int_equal(call.op.error, STORE_CLOSED);
    assert_int_equal(fence_of(store, "k"), 42);
    store_close(&store);
}

/* A reader in another process, beside one that writes, and beside its successor with a larger map. */
struct beside {
    int go[2], done[2];
    pid_t pid;
};

static void wait_byte(int fd)
{
    char byte;
    assert_int_equal(read(fd, &byte, 1), 1);
}

static void tell_byte(int fd)
{
    assert_int_equal(write(fd, "x", 1), 1);
}

static void read_beside(const struct fixture *fx, const struct beside *link)
{
    char why[256];
    struct store *store;
    struct store_reader *reader;
    if (store_open_readonly(fx->path, &store, why, sizeof why) != STORE_OK)
        _exit(2);
    if (store_reader_open(store, &reader) != STORE_OK) /* open all the time */
        _exit(3);
    if (fence_of(store, "grow") != 1)
        _exit(4);
    tell_byte(link->done[1]);
    wait_byte(link->go[0]);
    struct fence fence;
    if (store_fence_get(reader, text("default"), text("grow"), &fence) != STORE_OK || fence.token != 2)
        _exit(5);
    if (all_records(store).count < HISTORY_COUNT)
        _exit(6);
    store_reader_close(&reader);
    store_close(&store);
    _exit(0);
}

static void start_beside(struct fixture *fx, struct beside *link)
{
    assert_int_equal(pipe(link->go), 0);
    assert_int_equal(pipe(link->done), 0);
    (void)fflush(stdout);
    link->pid = fork();
    assert_true(link->pid >= 0);
    if (link->pid == 0) {
        wait_byte(link->go[0]);
        read_beside(fx, link);
    }
}

static void grow(struct store *store)
{
    char path[2000];
    memset(path, 'p', sizeof path);
    for (size_t written = 0; written < 2000;) {
        struct call calls[20];
        for (size_t i = 0; i < 20; i++) {
            call_init(&calls[i]);
            calls[i].op.kind = STORE_RECORD;
            calls[i].op.record = (struct audit_record){.kind = AUDIT_SENT, .path = {path, sizeof path}};
        }
        assert_int_equal(calls_run(store, calls, 20, &written), STORE_OK);
    }
}

/* The child is forked before this process opens the store: LMDB must not go through a fork. */
static void test_readonly_beside_a_growing_map(void **state)
{
    struct fixture *fx = *state;
    struct beside link;
    start_beside(fx, &link);
    fx->options.max_size = MIB;
    open_store(fx);
    write_history(fx->store);
    (void)admit(fx->store, "grow", 1);
    tell_byte(link.go[1]);
    wait_byte(link.done[0]);
    store_close(&fx->store);
    fx->options.max_size = 64 * MIB;
    open_store(fx);
    grow(fx->store);
    (void)admit(fx->store, "grow", 2);
    tell_byte(link.go[1]);
    int status;
    assert_int_equal(waitpid(link.pid, &status, 0), link.pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    (void)admit(fx->store, "grow", 3);
    for (int i = 0; i < 2; i++) {
        close(link.go[i]);
        close(link.done[i]);
    }
}

static void test_fence_get_absent(void **state)
{
    struct fixture *fx = *state;
    struct store_reader *reader;
    struct fence fence;
    (void)admit(fx->store, "k", 5);
    assert_int_equal(store_reader_open(fx->store, &reader), STORE_OK);
    assert_int_equal(store_fence_get(reader, text("default"), text("k2"), &fence), STORE_NOT_FOUND);
    assert_int_equal(store_fence_get(reader, text("defaul"), text("tk"), &fence), STORE_NOT_FOUND);
    assert_int_equal(store_fence_get(reader, text("default"), text(""), &fence), STORE_NOT_FOUND);
    assert_int_equal(store_fence_get(reader, text("default"), text("k"), &fence), STORE_OK);
    assert_int_equal(fence.token, 5);
    (void)admit(fx->store, "k", 6);
    assert_int_equal(store_fence_get(reader, text("default"), text("k"), &fence), STORE_OK);
    assert_int_equal(fence.token, 6); /* the newest durable state, not that of the opening */
    store_reader_close(&reader);
}

static size_t ids_of(struct store *store, struct audit_filter filter, uint64_t ids[8])
{
    struct store_reader *reader;
    uint64_t next;
    struct page page = {.count = 0};
    filter.limit = 8;
    assert_int_equal(store_reader_open(store, &reader), STORE_OK);
    assert_int_equal(store_audit_query(reader, &filter, keep_record, &page, &next), STORE_OK);
    store_reader_close(&reader);
    assert_int_equal(next, 0);
    for (size_t i = 0; i < page.count && i < 8; i++)
        ids[i] = page.item[i].id;
    return page.count;
}

#define IDS(...) ids_of(fx->store, (struct audit_filter){__VA_ARGS__}, ids)

static void test_one_record_and_those_of_an_effect(void **state)
{
    struct fixture *fx = *state;
    struct call call;
    uint64_t ids[8], unknown, resolved;
    struct store_op sent = admit_effect(fx->store, "k", 5), lost = admit_effect(fx->store, "k", 5);
    struct audit_record end = {
        .kind = AUDIT_UNKNOWN, .effect_id = lost.effect_id, .ns = text("default"), .key = text("k")};
    unknown = record(fx->store, &end).audit_id;
    for (uint64_t i = 0; i < 200; i++)
        (void)admit(fx->store, "k", 1);
    end.kind = AUDIT_SENT;
    end.effect_id = sent.effect_id;
    uint64_t last = record(fx->store, &end).audit_id;
    call_init(&call);
    call.op.kind = STORE_RESOLVE;
    call.op.record = (struct audit_record){.effect_id = lost.effect_id, .reason = text("sent")};
    call_run(fx->store, &call);
    resolved = call.op.audit_id;
    (void)admit(fx->store, "k", 1);
    for (int down = 0; down < 2; down++) {
        assert_int_equal(IDS(.id = unknown, .descending = down != 0), 1);
        assert_int_equal(ids[0], unknown);
        assert_int_equal(IDS(.id = unknown, .descending = down != 0, .ns = text("default"), .key = text("k")), 1);
        assert_int_equal(IDS(.id = unknown, .descending = down != 0, .ns = text("default"), .key = text("j")), 0);
        assert_int_equal(IDS(.id = unknown, .descending = down != 0, .kind = AUDIT_SENT), 0);
        assert_int_equal(IDS(.id = lost.effect_id, .descending = down != 0), 0); /* no record's */
        assert_int_equal(IDS(.id = UINT64_MAX, .descending = down != 0), 0);
        assert_int_equal(IDS(.effect_id = lost.effect_id, .descending = down != 0), 2);
        assert_int_equal(ids[down], unknown);
        assert_int_equal(ids[1 - down], resolved);
        assert_int_equal(IDS(.effect_id = sent.effect_id, .descending = down != 0), 1);
        assert_int_equal(ids[0], last);
        assert_int_equal(IDS(.effect_id = lost.effect_id, .kind = AUDIT_RESOLVED, .descending = down != 0), 1);
        assert_int_equal(IDS(.effect_id = 999999, .descending = down != 0), 0);
    }
    assert_int_equal(IDS(.id = unknown, .after = unknown), 0);
    assert_int_equal(IDS(.effect_id = lost.effect_id, .after = unknown), 1);
    assert_int_equal(IDS(.effect_id = lost.effect_id, .looks = 3), 2); /* what lies between is not looked at */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_filter, setup_history, fixture_close),
        cmocka_unit_test_setup_teardown(test_one_record_and_those_of_an_effect, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_each_stops, setup_history, fixture_close),
        cmocka_unit_test_setup_teardown(test_a_key_in_all_namespaces, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_pages_with_one_filter, setup_history, fixture_close),
        cmocka_unit_test_setup_teardown(test_bounded_looks, setup_history, fixture_close),
        cmocka_unit_test_setup_teardown(test_long_history, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_paging_while_writing, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_readonly_alone, setup_history, fixture_close),
        cmocka_unit_test_setup_teardown(test_readonly_beside_a_growing_map, fixture_folder, fixture_close),
        cmocka_unit_test_setup_teardown(test_fence_get_absent, fixture_open, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
