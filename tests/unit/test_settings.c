/* tests/unit/test_settings.c - the breaker of a route, and the life of a configuration in force. */
#include "tests/unit/config_case.h"

#include <pthread.h>

#include "gateway/settings.h"

/* ---- the breaker ---- */

static struct config_route limits;
static struct route_state route;
static unsigned retry_after;

static int breaker_set_up(void **state)
{
    (void)state;
    limits = (struct config_route){.name = "a", .breaker_failures = 3, .breaker_open_ms = 30000};
    route = (struct route_state){.config = &limits};
    retry_after = 0;
    return pthread_mutex_init(&route.breaker_mutex, NULL);
}

static int breaker_tear_down(void **state)
{
    (void)state;
    return pthread_mutex_destroy(&route.breaker_mutex);
}

static bool probe; /* the last admitted call is one */

static bool admit(uint64_t now_ms)
{
    enum breaker_answer answer = breaker_admit(&route, now_ms, &retry_after);
    probe = answer == BREAKER_PROBE;
    return answer != BREAKER_OPEN;
}

static void result(uint64_t now_ms, bool failed)
{
    breaker_result(&route, now_ms, probe, failed);
}

static void fail_at(uint64_t now_ms, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        assert_true(admit(now_ms));
        result(now_ms, true);
    }
}

static unsigned keys_taken(uint64_t now_us, unsigned tried)
{
    unsigned taken = 0;
    for (unsigned i = 0; i < tried; i++)
        taken += route_takes_new_key(&route, now_us);
    return taken;
}

static void new_keys_a_second(void **state)
{
    (void)state;
    assert_int_equal(keys_taken(5000000, 1000), 1000); /* no limit */
    limits.new_keys_per_second = 10;
    assert_int_equal(keys_taken(5000000, 100), 10);
    assert_int_equal(keys_taken(5099999, 100), 0);
    assert_int_equal(keys_taken(5100000, 100), 1);
    assert_int_equal(keys_taken(5400000, 100), 3);
    assert_int_equal(keys_taken(60000000, 100), 10); /* no more is saved up */
    limits.new_keys_per_second = 1;
    assert_int_equal(keys_taken(80000000, 100), 1);
    assert_int_equal(keys_taken(80999999, 100), 0);
    assert_int_equal(keys_taken(81000000, 100), 1);
}

static void absent(void **state)
{
    (void)state;
    limits.breaker_failures = 0;
    fail_at(1000, 100);
    breaker_withdraw(&route);
    assert_true(admit(1000));
    assert_int_equal(retry_after, 0);
}

static void opens_after_so_many_failures(void **state)
{
    (void)state;
    fail_at(1000, 2);
    assert_true(admit(1000));
    assert_int_equal(retry_after, 0);
    result(1001, true);
    assert_false(admit(1001));
    assert_int_equal(retry_after, 30);
    assert_false(admit(30002)); /* 999 ms are left */
    assert_int_equal(retry_after, 1);
    assert_false(admit(30000));
    assert_int_equal(retry_after, 2); /* rounded up: not too early */
}

static void one_failure_is_enough_if_told_so(void **state)
{
    (void)state;
    limits.breaker_failures = 1;
    fail_at(1, 1);
    assert_false(admit(1));
}

static void only_failures_in_a_row_count(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        fail_at(1000, 2);
        assert_true(admit(1000));
        result(1000, false);
    }
    fail_at(1000, 2);
    assert_true(admit(1000));
}

static void lets_one_call_through_when_time_is_over(void **state)
{
    (void)state;
    fail_at(1000, 3);
    assert_false(admit(30999));
    assert_true(admit(31000));
    assert_false(admit(31000));
    assert_int_equal(retry_after, 1);
    assert_false(admit(99000)); /* however long it takes */
    result(99000, false);
    fail_at(99000, 2); /* closed, and counts from the beginning */
    assert_true(admit(99000));
}

static void a_failed_probe_opens_again_at_once(void **state)
{
    (void)state;
    fail_at(1000, 3);
    assert_true(admit(31000));
    result(32000, true);
    assert_false(admit(32000));
    assert_int_equal(retry_after, 30);
    assert_false(admit(61999));
    assert_true(admit(62000));
    assert_false(admit(62000));
}

/* A probe that the fence refused has not reached the partner: the next call is the probe. */
static void a_withdrawn_probe_leaves_its_place(void **state)
{
    (void)state;
    fail_at(1000, 3);
    assert_true(admit(31000));
    breaker_withdraw(&route);
    assert_true(admit(31000));
    assert_false(admit(31000));
    result(31000, true);
    assert_false(admit(31001));
}

static void a_withdrawn_call_says_nothing(void **state)
{
    (void)state;
    fail_at(1000, 2);
    assert_true(admit(1000));
    breaker_withdraw(&route);
    fail_at(1000, 1); /* the third */
    assert_false(admit(1000));
}

/* Calls that had begun before it opened end later. */
static void late_results(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        assert_true(admit(1000));
    for (unsigned i = 0; i < 3; i++)
        result(1000, true);
    assert_false(admit(1000));
    probe = false;
    result(11000, true); /* the partner fails still: known */
    assert_false(admit(30999));
    assert_int_equal(retry_after, 1);
    result(30999, false); /* it is back */
    assert_true(admit(30999));
    assert_false(probe);
    assert_true(admit(30999));
}

enum { THREADS = 4, ROUNDS = 20000 };

static void *use_breaker(void *arg)
{
    unsigned *admitted = arg;
    unsigned wait;
    for (unsigned i = 0; i < ROUNDS; i++)
        if (breaker_admit(&route, 31000, &wait) != BREAKER_OPEN)
            ++*admitted;
    return NULL;
}

static void one_probe_among_threads(void **state)
{
    pthread_t thread[THREADS];
    unsigned admitted[THREADS] = {0}, all = 0;
    (void)state;
    fail_at(1000, 3);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, use_breaker, &admitted[i]), 0);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        all += admitted[i];
    }
    assert_int_equal(all, 1);
}

/* ---- settings ---- */

static struct settings *two_routes(void)
{
    const struct config *config = load_good("{'routes': [{" BASE ", 'breaker': {'failures': 7, 'open_for': '2s'}},"
                                            "{'name': 'b', 'path': '/b', 'upstream': 'https://h.example'}]}");
    struct settings *settings = settings_new(config);
    assert_non_null(settings);
    return settings;
}

static void one_state_for_each_route(void **state)
{
    (void)state;
    struct settings *settings = two_routes();
    assert_int_equal(settings->config->route_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_ptr_equal(settings->routes[i].config, &settings->config->routes[i]);
        assert_int_equal(atomic_load(&settings->routes[i].in_flight), 0);
        assert_non_null(settings->routes[i].metrics);
        unsigned wait = 0;
        assert_int_equal(breaker_admit(&settings->routes[i], 1, &wait), BREAKER_CLOSED);
    }
    assert_int_equal(settings->routes[0].config->breaker_failures, 7);
    assert_int_equal(settings->routes[0].config->breaker_open_ms, 2000);
    assert_ptr_not_equal(settings->routes[0].metrics, settings->routes[1].metrics);
    settings_unref(&settings);
    assert_null(settings);
    settings_unref(&settings); /* of nothing */
}

static void metrics_outlive_settings(void **state)
{
    (void)state;
    struct settings *before = two_routes(), *after = two_routes();
    assert_ptr_equal(before->routes[1].metrics, after->routes[1].metrics); /* counters go on over a reload */
    settings_unref(&before);
    assert_string_equal(after->routes[1].config->name, "b");
    settings_unref(&after);
}

static void *take_and_give(void *arg)
{
    struct settings *mine = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct settings *more = settings_ref(mine);
        if (more->routes[0].config->name[0] != 'a')
            abort();
        settings_unref(&more);
    }
    settings_unref(&mine); /* the last one frees it: the sanitizers look on */
    return NULL;
}

static void references_from_many_threads(void **state)
{
    pthread_t thread[THREADS];
    (void)state;
    struct settings *settings = two_routes();
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_and_give, settings_ref(settings)), 0);
    settings_unref(&settings);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

#define BREAKER(name) cmocka_unit_test_setup_teardown(name, breaker_set_up, breaker_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BREAKER(absent),
        BREAKER(new_keys_a_second),
        BREAKER(opens_after_so_many_failures),
        BREAKER(one_failure_is_enough_if_told_so),
        BREAKER(only_failures_in_a_row_count),
        BREAKER(lets_one_call_through_when_time_is_over),
        BREAKER(a_failed_probe_opens_again_at_once),
        BREAKER(a_withdrawn_probe_leaves_its_place),
        BREAKER(a_withdrawn_call_says_nothing),
        BREAKER(late_results),
        BREAKER(one_probe_among_threads),
        cmocka_unit_test(one_state_for_each_route),
        cmocka_unit_test(metrics_outlive_settings),
        cmocka_unit_test(references_from_many_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
