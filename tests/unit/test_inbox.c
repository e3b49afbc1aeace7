/* tests/unit/test_inbox.c - handing over to a loop: order, the wake-up, and many posters at a time. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/inbox.h"

static struct inbox inbox;
static unsigned ran[8], ran_count;

struct numbered {
    struct inbox_item item;
    unsigned number;
};

static void on_run(struct inbox_item *item)
{
    assert_true(ran_count < sizeof ran / sizeof ran[0]);
    ran[ran_count++] = ((struct numbered *)item)->number;
}

static int set_up(void **state)
{
    (void)state;
    ran_count = 0;
    return inbox_init(&inbox) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    inbox_destroy(&inbox);
    inbox_destroy(&inbox); /* of one that was never made, or twice: nothing */
    return inbox.event_fd == -1 ? 0 : -1;
}

static bool readable(int timeout_ms)
{
    struct pollfd fd = {.fd = inbox.event_fd, .events = POLLIN};
    return poll(&fd, 1, timeout_ms) == 1;
}

static void empty(void **state)
{
    (void)state;
    assert_false(readable(0));
    assert_false(inbox_drain(&inbox));
}

static void in_order(void **state)
{
    struct numbered a = {{NULL, on_run}, 1}, b = {{NULL, on_run}, 2}, c = {{NULL, on_run}, 3};
    (void)state;
    inbox_post(&inbox, &a.item);
    assert_true(readable(0));
    inbox_post(&inbox, &b.item);
    inbox_post(&inbox, &c.item);
    assert_int_equal(ran_count, 0); /* not before the owner looks */
    assert_true(inbox_drain(&inbox));
    assert_int_equal(ran_count, 3);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(ran[i], i + 1);
    assert_false(readable(0));
    assert_false(inbox_drain(&inbox));
    inbox_post(&inbox, &b.item); /* free again, and wakes again */
    assert_true(readable(0));
    assert_true(inbox_drain(&inbox));
    assert_int_equal(ran[3], 2);
}

static void several_in_one_step(void **state)
{
    struct numbered a = {{NULL, on_run}, 3}, b = {{&a.item, on_run}, 2}, c = {{&b.item, on_run}, 1},
                    d = {{NULL, on_run}, 4};
    (void)state;
    inbox_post_list(&inbox, &c.item, &a.item);
    inbox_post(&inbox, &d.item);
    assert_true(readable(0));
    assert_true(inbox_drain(&inbox));
    assert_int_equal(ran_count, 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(ran[i], i + 1);
    assert_false(readable(0)); /* one wake-up was enough */
}

static void on_run_again(struct inbox_item *item)
{
    on_run(item);
    if (ran_count < 3)
        inbox_post(&inbox, item);
}

static void posted_again_in_its_run(void **state)
{
    struct numbered a = {{NULL, on_run_again}, 1}, b = {{NULL, on_run}, 2};
    (void)state;
    inbox_post(&inbox, &a.item);
    inbox_post(&inbox, &b.item);
    assert_true(inbox_drain(&inbox)); /* does not go round for ever: the loop has other work */
    assert_int_equal(ran_count, 2);
    assert_int_equal(ran[1], 2);
    assert_true(readable(0));
    assert_true(inbox_drain(&inbox));
    assert_int_equal(ran_count, 3);
    assert_false(readable(0));
}

static void on_run_free(struct inbox_item *item)
{
    on_run(item);
    free(item);
}

static void freed_in_its_run(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct numbered *one = malloc(sizeof *one);
        assert_non_null(one);
        *one = (struct numbered){{NULL, on_run_free}, i};
        inbox_post(&inbox, &one->item);
    }
    assert_true(inbox_drain(&inbox));
    assert_int_equal(ran_count, 3);
}

/* ---- threads ---- */

enum { POSTERS = 4, POSTS = 20000 };

struct poster {
    pthread_t thread;
    struct numbered item; /* posted again when it has come: as a ticket's or an operation's */
    _Atomic unsigned back;
    unsigned got;
    struct numbered burst[POSTS / 10];
    unsigned burst_next;
    bool in_order;
};

static struct poster posters[POSTERS];
static unsigned total;

static void on_single(struct inbox_item *item)
{
    struct poster *poster = (struct poster *)((char *)item - offsetof(struct poster, item.item));
    poster->got++;
    total++;
    atomic_store(&poster->back, poster->item.number + 1); /* from here on it is the poster's again */
}

static void on_burst(struct inbox_item *item)
{
    struct numbered *one = (struct numbered *)item;
    struct poster *poster = &posters[one->number / POSTS];
    poster->in_order = poster->in_order && one->number % POSTS == poster->burst_next;
    poster->burst_next++;
    total++;
}

static void *post_many(void *arg)
{
    struct poster *poster = arg;
    for (unsigned i = 0; i < POSTS; i++) {
        if (atomic_load(&poster->back) == i) { /* ours */
            poster->item.number = i;
            inbox_post(&inbox, &poster->item.item);
        }
        if (i % 10 == 0)
            inbox_post(&inbox, &poster->burst[i / 10].item);
        while (atomic_load(&poster->back) != i + 1)
            sched_yield();
    }
    return NULL;
}

static void many_posters_lose_nothing(void **state)
{
    (void)state;
    for (unsigned i = 0; i < POSTERS; i++) {
        posters[i].item.item.run = on_single;
        posters[i].in_order = true;
        for (unsigned j = 0; j < POSTS / 10; j++)
            posters[i].burst[j] = (struct numbered){{NULL, on_burst}, i * POSTS + j};
    }
    for (unsigned i = 0; i < POSTERS; i++)
        assert_int_equal(pthread_create(&posters[i].thread, NULL, post_many, &posters[i]), 0);
    while (total < POSTERS * (POSTS + POSTS / 10)) {
        assert_true(readable(20000)); /* a lost wake-up would be a hang */
        inbox_drain(&inbox);
    }
    for (unsigned i = 0; i < POSTERS; i++) {
        pthread_join(posters[i].thread, NULL);
        assert_int_equal(posters[i].got, POSTS);
        assert_int_equal(posters[i].burst_next, POSTS / 10);
        assert_true(posters[i].in_order);
    }
    while (readable(0)) /* a wake-up may come late; nothing comes with it */
        assert_false(inbox_drain(&inbox));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(empty),
        CASE(in_order),
        CASE(several_in_one_step),
        CASE(posted_again_in_its_run),
        CASE(freed_in_its_run),
        CASE(many_posters_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
