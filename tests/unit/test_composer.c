/* tests/unit/test_composer.c - gateway/composer.c: the order of jobs, their way home, the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <poll.h>
#include <pthread.h>
#include <cmocka.h>

#include "gateway/composer.h"

enum { JOBS = 100 };

static struct inbox inbox;
static pthread_t here;
static unsigned worked, home; /* the first: the composer's; read when a job has come home */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

struct job {
    struct composer_job job;
    unsigned number, worked_as;
    bool elsewhere;
};

static void work(struct composer_job *job)
{
    struct job *mine = (struct job *)job;
    pthread_mutex_lock(&gate); /* held by a test that wants jobs to wait */
    mine->worked_as = worked++;
    mine->elsewhere = !pthread_equal(pthread_self(), here);
    pthread_mutex_unlock(&gate);
}

static void come_home(struct inbox_item *item)
{
    const struct job *mine = (const struct job *)((char *)item - offsetof(struct job, job.item));
    assert_true(mine->elsewhere);
    assert_int_equal(mine->worked_as, mine->number);
    assert_int_equal(mine->number, home);
    home++;
}

static void make(struct job *jobs, size_t count)
{
    worked = home = 0;
    here = pthread_self();
    for (unsigned i = 0; i < count; i++)
        jobs[i] = (struct job){.job = {.work = work, .home = &inbox, .item = {.run = come_home}}, .number = i};
}

static void wait_home(unsigned count)
{
    while (home < count) {
        struct pollfd fd = {.fd = inbox.event_fd, .events = POLLIN};
        assert_int_equal(poll(&fd, 1, 10000), 1);
        inbox_drain(&inbox);
    }
    assert_int_equal(home, count);
}

static void in_order_on_another_thread(void **state)
{
    static struct job jobs[JOBS];
    struct composer *composer = composer_new();
    (void)state;
    assert_non_null(composer);
    make(jobs, JOBS);
    for (size_t i = 0; i < JOBS; i++)
        assert_true(composer_submit(composer, &jobs[i].job));
    wait_home(JOBS);
    composer_free(&composer);
    assert_null(composer);
}

/* A job that was begun comes home before composer_free() returns; one that waited is left alone. */
static void the_end(void **state)
{
    static struct job jobs[2];
    struct composer *composer = composer_new();
    (void)state;
    make(jobs, 2);
    pthread_mutex_lock(&gate);
    assert_true(composer_submit(composer, &jobs[0].job));
    assert_true(composer_submit(composer, &jobs[1].job));
    pthread_mutex_unlock(&gate);
    composer_free(&composer);
    inbox_drain(&inbox);
    assert_true(home == worked);
    assert_true(home <= 2);
    composer_free(&composer); /* nothing */
}

static void without_a_job(void **state)
{
    (void)state;
    struct composer *composer = composer_new();
    assert_non_null(composer);
    composer_free(&composer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_on_another_thread),
        cmocka_unit_test(the_end),
        cmocka_unit_test(without_a_job),
    };
    if (!inbox_init(&inbox))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    inbox_destroy(&inbox);
    return failed;
}
