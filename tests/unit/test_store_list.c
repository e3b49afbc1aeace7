/*
 * Tests of store_submit_list(): several operations in one step, and results that come home together.
 */
#include "tests/unit/store_fixture.h"

enum { OPS = 7 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char told[128]; /* the tokens of each call of `done`, in brackets; '*': by the other `done` */
    unsigned count;
} home = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void take_home(struct store_op *list, const char *open)
{
    pthread_mutex_lock(&home.lock);
    (void)strcat(home.told, open);
    for (; list; list = list->next) {
        size_t len = strlen(home.told);
        (void)snprintf(home.told + len, sizeof home.told - len, "%lu%s", (unsigned long)list->record.token,
                       list->next ? " " : "]");
        home.count++;
    }
    pthread_cond_signal(&home.changed);
    pthread_mutex_unlock(&home.lock);
}

static void on_done(struct store_op *list)
{
    take_home(list, "[");
}

static void on_other_done(struct store_op *list)
{
    take_home(list, "*[");
}

static void wait_home(unsigned count)
{
    pthread_mutex_lock(&home.lock);
    while (home.count < count)
        pthread_cond_wait(&home.changed, &home.lock);
    pthread_mutex_unlock(&home.lock);
}

/* Tokens 1, 2, ... of one key, with homes as in `homes`: a letter each, '-' for none, a capital for the other `done`.
 */
static void make_list(struct call calls[OPS], const char *homes)
{
    static const char places[26];
    for (unsigned i = 0; i < OPS; i++) {
        bool other = homes[i] >= 'A' && homes[i] <= 'Z';
        admit_init(&calls[i], "k", i + 1);
        calls[i].op.done = other ? on_other_done : on_done;
        calls[i].op.home = homes[i] == '-' ? NULL : &places[(homes[i] | 0x20) - 'a'];
        calls[i].op.next = i + 1 < OPS ? &calls[i + 1].op : (struct store_op *)&home; /* whatever: the last has none */
    }
    home.told[0] = '\0';
    home.count = 0;
}

static void test_list(void **state)
{
    struct fixture *fx = *state;
    struct call calls[OPS];
    make_list(calls, "aab--Bb");
    struct store_health before = health(fx->store);
    store_submit_list(fx->store, &calls[0].op, &calls[OPS - 1].op);
    wait_home(OPS);
    assert_string_equal(home.told, "[1 2][3][4][5]*[6][7]");
    struct store_health after = health(fx->store);
    assert_int_equal(after.operations - before.operations, OPS);
    assert_int_equal(after.commits - before.commits, 1); /* the writer saw none of them without the others */
    for (unsigned i = 0; i < OPS; i++) {
        assert_int_equal(calls[i].op.error, STORE_OK);
        assert_int_equal(calls[i].op.verdict, VERDICT_ACCEPTED);
        assert_int_equal(calls[i].op.highest, i + 1);
    }
}

static void test_list_without_writer(void **state)
{
    struct fixture *fx = *state;
    struct call calls[OPS];
    struct store *reading;
    char why[256];
    make_list(calls, "-ccdddC");
    store_close(&fx->store);
    assert_int_equal(store_open_readonly(fx->path, &reading, why, sizeof why), STORE_OK);
    store_submit_list(reading, &calls[0].op, &calls[OPS - 1].op);
    assert_int_equal(home.count, OPS);
    assert_string_equal(home.told, "[1][2 3][4 5 6]*[7]");
    for (unsigned i = 0; i < OPS; i++)
        assert_int_equal(calls[i].op.error, STORE_CLOSED);
    store_close(&reading);
}

/* Those of a chunk that fails come home together too. */
static void test_list_that_fails(void **state)
{
    struct fixture *fx = *state;
    struct call calls[OPS];
    make_list(calls, "eeeeee-");
    for (unsigned i = 0; i < OPS; i++)
        calls[i].op.kind = STORE_RESOLVE; /* of no effect: each is judged by itself */
    store_submit_list(fx->store, &calls[0].op, &calls[OPS - 1].op);
    wait_home(OPS);
    assert_string_equal(home.told, "[1 2 3 4 5 6][7]");
    for (unsigned i = 0; i < OPS; i++)
        assert_int_equal(calls[i].op.error, STORE_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_list, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_list_without_writer, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(test_list_that_fails, fixture_open, fixture_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
