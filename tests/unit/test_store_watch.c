/* tests/unit/test_store_watch.c - when the store gives cause for an alarm, and when it no longer does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/alarm.h"
#include "gateway/jsonout.h"
#include "gateway/log.h"
#include "gateway/store_watch.h"

#define MINUTE 60000u

static void full_comes_at_80_and_goes_below_75(void **state)
{
    (void)state;
    assert_false(nearly_full(false, 0, 0));
    assert_false(nearly_full(true, 0, 0)); /* unknown */
    assert_false(nearly_full(false, 7999, 10000));
    assert_true(nearly_full(false, 8000, 10000));
    assert_true(nearly_full(true, 7999, 10000));
    assert_true(nearly_full(true, 7500, 10000));
    assert_false(nearly_full(true, 7499, 10000));
    assert_true(nearly_full(false, UINT64_MAX / 10 * 9, UINT64_MAX));
    assert_false(nearly_full(false, UINT64_MAX / 10 * 7, UINT64_MAX));
}

static void a_reader_is_old_after_a_minute_of_old_pages(void **state)
{
    struct store_health health = {.reader_lag = 5, .reader_held_ms = MINUTE + 1};
    (void)state;
    assert_true(reader_too_old(&health));
    health.reader_held_ms = MINUTE;
    assert_false(reader_too_old(&health));
    health = (struct store_health){.reader_lag = 0, .reader_held_ms = 10 * MINUTE};
    assert_false(reader_too_old(&health));
}

static void doubt_is_told_when_it_grows_and_every_ten_minutes(void **state)
{
    struct doubt_watch watch = {0};
    uint64_t now = 5;
    (void)state;
    assert_int_equal(doubt_watch(&watch, 0, now), DOUBT_NOTHING);
    assert_int_equal(doubt_watch(&watch, 3, now), DOUBT_BEGAN);
    assert_int_equal(doubt_watch(&watch, 3, now += 1000), DOUBT_NOTHING);
    assert_int_equal(doubt_watch(&watch, 4, now += 1000), DOUBT_MORE);
    assert_int_equal(doubt_watch(&watch, 4, now + 10 * MINUTE - 1), DOUBT_NOTHING);
    assert_int_equal(doubt_watch(&watch, 4, now += 10 * MINUTE), DOUBT_REMINDER);
    assert_int_equal(doubt_watch(&watch, 4, now + 1000), DOUBT_NOTHING);
    assert_int_equal(doubt_watch(&watch, 2, now + 2000), DOUBT_LESS); /* does not put the reminder off */
    assert_int_equal(doubt_watch(&watch, 2, now += 10 * MINUTE), DOUBT_REMINDER);
    assert_int_equal(doubt_watch(&watch, 3, now += 1000), DOUBT_MORE); /* more than the lower one */
    assert_int_equal(doubt_watch(&watch, 0, now += 1000), DOUBT_OVER);
    assert_int_equal(doubt_watch(&watch, 0, now += 20 * MINUTE), DOUBT_NOTHING);
    assert_int_equal(doubt_watch(&watch, 1, now += 1000), DOUBT_BEGAN);
}

static struct jsonout shown;

static bool lists(const char *name)
{
    jsonout_reset(&shown);
    jsonout_array_begin(&shown);
    alarms_write(&shown);
    jsonout_array_end(&shown);
    return strstr(shown.text, name) != NULL;
}

static void alarms_come_and_go_with_their_cause(void **state)
{
    struct store_watch watch = {0};
    const struct store_health fine = {
        .writable = true, .used_bytes = 10, .max_bytes = 100, .disk_used_bytes = 10, .disk_bytes = 100};
    struct store_health health = fine;
    (void)state;
    store_watch_look(&watch, &health, 1000);
    assert_true(lists("[]"));

    health = (struct store_health){.reason = "the store is full",
                                   .in_doubt = 2,
                                   .in_doubt_since_ms = 1000,
                                   .used_bytes = 97,
                                   .max_bytes = 100,
                                   .disk_used_bytes = 81,
                                   .disk_bytes = 100,
                                   .reader_lag = 9,
                                   .reader_held_ms = 2 * MINUTE,
                                   .reader_pid = 4711};
    store_watch_look(&watch, &health, 2000);
    assert_true(lists("\"name\":\"store-not-writable\",\"since\":\"20"));
    assert_true(lists("Nothing is sent: the store is full."));
    assert_true(lists("\"name\":\"in-doubt\",\"since\":\"1970-01-01T00:00:01.000Z\"") &&
                lists("2 effects are in doubt"));
    assert_true(lists("\"name\":\"store-nearly-full\"") && lists("97 % used"));
    assert_true(lists("\"name\":\"disk-nearly-full\"") && lists("81 % used"));
    assert_true(lists("\"name\":\"old-reader\"") && lists("Process 4711 has been reading the store for 120 s"));
    assert_true(alarm_is_on(alarm_of_process(ALARM_OLD_READER)));

    health.in_doubt = 1; /* resolved: the sentence keeps up */
    health.used_bytes = 76;
    health.disk_used_bytes = 74;
    store_watch_look(&watch, &health, 3000);
    assert_true(lists("1 effect is in doubt"));
    assert_true(lists("76 % used"));
    assert_false(lists("disk-nearly-full"));

    store_watch_look(&watch, &fine, 4000);
    assert_true(lists("[]"));
    assert_false(alarm_is_on(alarm_of_process(ALARM_OLD_READER)));
    store_watch_look(&watch, &health, 5000);
    assert_true(lists("old-reader"));
    store_watch_look(&watch, &fine, 6000);
    assert_true(lists("[]"));
}

/* Whichever goes, the others stay, and the list goes on at its end. */
static void alarms_leave_in_any_order(void **state)
{
    static const enum alarm_kind all[] = {ALARM_IN_DOUBT, ALARM_STORE_NEARLY_FULL, ALARM_OLD_READER};
    (void)state;
    for (unsigned gone = 0; gone < 3; gone++) {
        for (unsigned i = 0; i < 3; i++)
            alarm_on(alarm_of_process(all[i]), NULL, "number %u.", i);
        alarm_off(alarm_of_process(all[gone]));
        alarm_off(alarm_of_process(all[gone]));
        for (unsigned i = 0; i < 3; i++) {
            char text[] = "number ?.";
            text[7] = (char)('0' + i);
            assert_int_equal(lists(text), i != gone);
        }
        alarm_on(alarm_of_process(all[gone]), NULL, "again.");
        assert_true(lists("again.\"}]"));
        for (unsigned i = 0; i < 3; i++)
            alarm_off(alarm_of_process(all[i]));
        assert_true(lists("[]"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_comes_at_80_and_goes_below_75),
        cmocka_unit_test(a_reader_is_old_after_a_minute_of_old_pages),
        cmocka_unit_test(doubt_is_told_when_it_grows_and_every_ten_minutes),
        cmocka_unit_test(alarms_come_and_go_with_their_cause),
        cmocka_unit_test(alarms_leave_in_any_order),
    };
    log_set_level(LOG_ERROR); /* alarms are warnings */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    jsonout_free(&shown);
    return failed;
}
