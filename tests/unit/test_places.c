/* tests/unit/test_places.c - places of limits.connections: who is called when they run out, and that counts stay true.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/places.h"

enum { WORKERS = 2, ROOM = 64 };

static struct places places;
static struct inbox inboxes[WORKERS];
static struct place_caller callers[WORKERS];
static struct client_place seat[ROOM], *called[ROOM];
static size_t called_count;
static unsigned runs, calls_meanwhile;

static void on_called(struct inbox_item *item)
{
    struct client_place *place;
    assert_true(++runs < ROOM);
    while ((place = places_next_called(&places, (struct place_caller *)(void *)item)) != NULL) {
        called[called_count++] = place;
        if (calls_meanwhile > 0 && calls_meanwhile-- > 0)
            (void)places_call_one(&places);
    }
}

static int set_up(void **state)
{
    (void)state;
    memset(seat, 0, sizeof seat);
    called_count = 0;
    runs = calls_meanwhile = 0;
    for (size_t i = 0; i < WORKERS; i++) {
        if (!inbox_init(&inboxes[i]))
            return -1;
        callers[i] = (struct place_caller){.item.run = on_called, .inbox = &inboxes[i]};
    }
    return places_init(&places) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROOM; i++)
        place_leave(&places, &seat[i]);
    assert_int_equal(places_taken(&places), 0);
    places_destroy(&places);
    for (size_t i = 0; i < WORKERS; i++)
        inbox_destroy(&inboxes[i]);
    return 0;
}

static enum place_verdict take_from(size_t i, const char *text, unsigned max, unsigned max_of_address)
{
    struct sockaddr_storage storage = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&storage;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&storage;
    if (inet_pton(AF_INET, text, &in->sin_addr) == 1)
        in->sin_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1)
        in6->sin6_family = AF_INET6;
    return places_take(&places, &seat[i], &callers[i % WORKERS], (struct sockaddr *)&storage, max, max_of_address);
}

static enum place_verdict take(size_t i, unsigned max)
{
    return take_from(i, "10.0.0.1", max, 0);
}

static void drain(void)
{
    for (size_t i = 0; i < WORKERS; i++)
        inbox_drain(&inboxes[i]);
}

static void the_longest_idle_one_is_called(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(take(i, 4), PLACE_TAKEN);
    place_busy(&places, &seat[0]);
    place_busy(&places, &seat[1]);
    place_idle(&places, &seat[0]); /* the newest of the idle ones: 2, 3, 0 */
    assert_int_equal(take(4, 4), PLACE_TAKEN);
    drain();
    assert_int_equal(called_count, 1);
    assert_ptr_equal(called[0], &seat[2]);
    assert_int_equal(take(5, 4), PLACE_TAKEN);
    assert_int_equal(take(6, 4), PLACE_TAKEN);
    drain();
    assert_int_equal(called_count, 3);
    assert_true((called[1] == &seat[3] && called[2] == &seat[0]) || (called[1] == &seat[0] && called[2] == &seat[3]));
    assert_int_equal(places_taken(&places), 4);
}

static void the_busy_are_not_called(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(take(i, 3), PLACE_TAKEN);
        place_busy(&places, &seat[i]);
    }
    assert_int_equal(take(3, 3), PLACE_FULL);
    place_leave(&places, &seat[3]); /* has none: nothing happens */
    place_leave(&places, &seat[0]);
    assert_int_equal(take(3, 3), PLACE_TAKEN);
    drain();
    assert_int_equal(called_count, 0);
}

/* A request that came before the call was heard: it is served, and the next ones make up for it. */
static void who_was_called_may_still_be_served(void **state)
{
    (void)state;
    assert_int_equal(take(0, 2), PLACE_TAKEN);
    assert_int_equal(take(1, 2), PLACE_TAKEN);
    assert_int_equal(take(2, 2), PLACE_TAKEN); /* calls 0 */
    place_busy(&places, &seat[0]);
    drain();
    assert_int_equal(called_count, 0);
    assert_int_equal(places_taken(&places), 3);
    assert_int_equal(take(3, 2), PLACE_TAKEN); /* calls 1 and 2 */
    assert_int_equal(places_taken(&places), 2);
    drain();
    assert_int_equal(called_count, 2);
}

static void who_was_heard_may_still_be_served(void **state)
{
    (void)state;
    assert_int_equal(take(0, 1), PLACE_TAKEN);
    assert_int_equal(take(1, 1), PLACE_TAKEN);
    drain();
    assert_ptr_equal(called[0], &seat[0]);
    place_busy(&places, &seat[0]);
    assert_int_equal(places_taken(&places), 2);
    place_idle(&places, &seat[0]);
    place_leave(&places, &seat[0]);
    assert_int_equal(places_taken(&places), 1);
}

static void who_has_left_is_not_called(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(take(2 * i, 3), PLACE_TAKEN); /* all of one worker */
    for (size_t i = 3; i < 6; i++)
        assert_int_equal(take(2 * i, 3), PLACE_TAKEN); /* calls 0, 2, 4 */
    place_leave(&places, &seat[2]);
    place_leave(&places, &seat[0]);
    drain();
    assert_int_equal(called_count, 1);
    assert_ptr_equal(called[0], &seat[4]);
}

static void an_address_loses_its_own(void **state)
{
    (void)state;
    assert_int_equal(take_from(0, "10.0.0.1", 10, 2), PLACE_TAKEN);
    assert_int_equal(take_from(1, "10.0.0.2", 10, 2), PLACE_TAKEN);
    assert_int_equal(take_from(2, "10.0.0.2", 10, 2), PLACE_TAKEN);
    assert_int_equal(take_from(3, "10.0.0.2", 10, 2), PLACE_TAKEN);
    assert_int_equal(take_from(4, "::ffff:10.0.0.1", 10, 2), PLACE_TAKEN); /* the same address as the first */
    drain();
    assert_int_equal(called_count, 1);
    assert_ptr_equal(called[0], &seat[1]);
    place_busy(&places, &seat[2]);
    place_busy(&places, &seat[3]);
    assert_int_equal(take_from(5, "10.0.0.2", 10, 2), PLACE_ADDRESS_FULL);
    assert_int_equal(take_from(5, "10.0.0.3", 10, 2), PLACE_TAKEN);
    assert_int_equal(take_from(6, "10.0.0.1", 10, 2), PLACE_TAKEN);
    drain();
    assert_int_equal(called_count, 2);
    assert_ptr_equal(called[1], &seat[0]);
    assert_int_equal(places_taken(&places), 5);
}

static void one_can_be_called_for_its_descriptor(void **state)
{
    (void)state;
    assert_false(places_call_one(&places));
    assert_int_equal(take(0, 10), PLACE_TAKEN);
    assert_int_equal(take(1, 10), PLACE_TAKEN);
    place_busy(&places, &seat[0]);
    assert_true(places_call_one(&places));
    assert_false(places_call_one(&places));
    drain();
    assert_int_equal(called_count, 1);
    assert_ptr_equal(called[0], &seat[1]);
}

/* ---- threads ---- */

enum { ROUNDS = 20000, SEATS_EACH = 16, MAX = 12 };

struct worker {
    struct place_caller caller; /* first */
    struct inbox inbox;
    struct client_place seats[SEATS_EACH];
    unsigned ended;
    unsigned seed;
};

static void end_called(struct inbox_item *item)
{
    struct worker *worker = (struct worker *)(void *)item;
    struct client_place *place;
    while ((place = places_next_called(&places, &worker->caller)) != NULL) {
        if (rand_r(&worker->seed) % 8 == 0) {
            place_busy(&places, place);
            place_idle(&places, place);
        } else {
            place_leave(&places, place);
            worker->ended++;
        }
    }
}

static void *live(void *arg)
{
    struct worker *worker = arg;
    struct sockaddr_in address = {.sin_family = AF_INET};
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct client_place *place = &worker->seats[rand_r(&worker->seed) % SEATS_EACH];
        address.sin_addr.s_addr = (uint32_t)rand_r(&worker->seed) % 5;
        switch (rand_r(&worker->seed) % 4) {
        case 0:
            if (place->caller == NULL) {
                enum place_verdict verdict =
                    places_take(&places, place, &worker->caller, (struct sockaddr *)&address, MAX, 4);
                assert_true(verdict == PLACE_TAKEN || verdict == PLACE_FULL || verdict == PLACE_ADDRESS_FULL);
            }
            break;
        case 1: place_busy(&places, place); break;
        case 2: place_idle(&places, place); break;
        default: place_leave(&places, place); break;
        }
        inbox_drain(&worker->inbox);
    }
    for (size_t i = 0; i < SEATS_EACH; i++)
        place_leave(&places, &worker->seats[i]);
    return NULL;
}

static void workers_side_by_side(void **state)
{
    (void)state;
    static struct worker workers[4];
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (struct worker){.seed = i + 1};
        workers[i].caller = (struct place_caller){.item.run = end_called, .inbox = &workers[i].inbox};
        assert_true(inbox_init(&workers[i].inbox));
    }
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, live, &workers[i]), 0);
    unsigned ended = 0;
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        ended += workers[i].ended;
    }
    for (unsigned i = 0; i < 4; i++)
        inbox_destroy(&workers[i].inbox);
    assert_true(ended > 0);
    assert_int_equal(places_taken(&places), 0);
}

/* The inbox must never hold a worker's item twice. */
static void calls_while_calls_are_heard_are_posted_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(take(i * WORKERS, ROOM), PLACE_TAKEN);
    calls_meanwhile = 3;
    assert_true(places_call_one(&places));
    assert_true(inbox_drain(&inboxes[0]));
    while (inbox_drain(&inboxes[0]))
        ;
    assert_int_equal(called_count, 4);
    assert_true(places_call_one(&places));
    assert_true(inbox_drain(&inboxes[0]));
    assert_int_equal(called_count, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_longest_idle_one_is_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_busy_are_not_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_was_called_may_still_be_served, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_was_heard_may_still_be_served, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_has_left_is_not_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_address_loses_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_can_be_called_for_its_descriptor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(calls_while_calls_are_heard_are_posted_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(workers_side_by_side, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
