/* tests/unit/test_metrics.c - what Prometheus reads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/jsonout.h"
#include "gateway/metrics.h"
#include "gateway/timers.h"
#include "store/store.h"

static const struct metrics_gauges gauges = {.connections = 3,
                                             .requests_live = 4,
                                             .buffered_bytes = 5,
                                             .started_ms = 1796051627890,
                                             .libmicrohttpd = "0.9.75",
                                             .libcurl = "libcurl/7"};
static const struct store_health health = {.writable = true,
                                           .commits = 6,
                                           .operations = 60,
                                           .used_bytes = 7,
                                           .max_bytes = 8,
                                           .in_doubt = 9,
                                           .free_pages = 12,
                                           .disk_used_bytes = 14,
                                           .disk_bytes = 27,
                                           .reader_lag = 15,
                                           .reader_held_ms = 16500};

static const struct store_stats stats = {.fences = 10, .audit_records = 11};

static struct jsonout page;

static bool has(const char *line)
{
    jsonout_reset(&page);
    metrics_write(&page, &gauges, &health, &stats);
    assert_false(page.failed);
    const char *at = page.text;
    size_t len = strlen(line);
    for (; (at = strstr(at, line)) != NULL; at += len)
        if ((at == page.text || at[-1] == '\n') && at[len] == '\n')
            return true;
    return false;
}

static void routes_by_name(void **state)
{
    (void)state;
    char name[] = "by-name";
    struct metrics_route *route = metrics_route(name);
    memset(name, 'x', 3); /* the name was copied */
    assert_ptr_equal(metrics_route("by-name"), route);
    assert_ptr_not_equal(metrics_route("xxxname"), route);
    assert_ptr_equal(metrics_route(NULL), metrics_route(NULL));
    assert_ptr_not_equal(metrics_route(NULL), metrics_route(""));
}

static void requests_counted(void **state)
{
    struct metrics_route *route = metrics_route("counted");
    (void)state;
    assert_true(has("fencegate_requests_total{route=\"counted\",effect=\"sent\",reason=\"\"} 0"));
    assert_true(has("fencegate_requests_total{route=\"counted\",effect=\"not-sent\",reason=\"stale-token\"} 0"));
    assert_true(has("fencegate_requests_total{route=\"counted\",effect=\"unknown\",reason=\"upstream-failed\"} 0"));
    assert_true(has("fencegate_requests_total{route=\"counted\",effect=\"unknown\",reason=\"upstream-timeout\"} 0"));
    assert_null(strstr(page.text, "route=\"counted\",effect=\"unfenced\""));
    metrics_request(route, EFFECT_SENT, REASON_NONE, monotonic_ms());
    metrics_request(route, EFFECT_SENT, REASON_NONE, monotonic_ms());
    metrics_request(route, EFFECT_UNKNOWN, REASON_UPSTREAM_FAILED, monotonic_ms());
    metrics_request(route, EFFECT_UNFENCED, REASON_NONE, monotonic_ms());
    metrics_request(metrics_route(NULL), EFFECT_NOT_SENT, REASON_NO_ROUTE, monotonic_ms());
    assert_true(has("fencegate_requests_total{route=\"counted\",effect=\"sent\",reason=\"\"} 2"));
    assert_true(has("fencegate_requests_total{route=\"counted\",effect=\"unknown\",reason=\"upstream-failed\"} 1"));
    assert_true(has("fencegate_requests_total{route=\"counted\",effect=\"unfenced\",reason=\"\"} 1"));
    assert_true(has("fencegate_requests_total{route=\"\",effect=\"not-sent\",reason=\"no-route\"} 1"));
}

static void gauges_shown(void **state)
{
    struct metrics_route *route = metrics_route("gauged");
    (void)state;
    metrics_in_flight(route, 1);
    metrics_in_flight(route, 1);
    metrics_in_flight(route, -1);
    metrics_waiting(route, 1);
    metrics_waiting(route, -1);
    assert_true(has("fencegate_effects_unresolved{route=\"gauged\"} 0"));
    (void)metrics_unresolved(route, 2);
    assert_true(has("fencegate_effects_unresolved{route=\"gauged\"} 2"));
    assert_true(has("fencegate_effects_in_flight{route=\"gauged\"} 1"));
    assert_true(has("fencegate_waiting{route=\"gauged\"} 0"));
    assert_true(has("fencegate_connections 3"));
    assert_true(has("fencegate_requests_live 4"));
    assert_true(has("fencegate_buffered_bytes 5"));
    assert_true(has("fencegate_store_commits_total 6"));
    assert_true(has("fencegate_store_operations_total 60"));
    assert_true(has("fencegate_store_used_bytes 7"));
    assert_true(has("fencegate_store_max_bytes 8"));
    assert_true(has("fencegate_store_writable 1"));
    assert_true(has("fencegate_effects_in_doubt 9"));
    assert_true(has("fencegate_store_keys 10"));
    assert_true(has("fencegate_store_audit_records 11"));
    assert_true(has("fencegate_store_free_pages 12"));
    assert_true(has("fencegate_store_disk_free_bytes 13"));
    assert_true(has("fencegate_store_disk_size_bytes 27"));
    assert_true(has("fencegate_store_oldest_reader_lag 15"));
    assert_true(has("fencegate_store_oldest_reader_held_seconds 16.500000"));
    assert_true(has("process_start_time_seconds 1796051627.890000"));
    assert_non_null(strstr(page.text, ",libmicrohttpd=\"0.9.75\",libcurl=\"libcurl/7\"} 1\n"));
    assert_null(strstr(page.text, "\nprocess_open_fds 0\n"));
    assert_null(strstr(page.text, "\nprocess_resident_memory_bytes 0\n"));
}

static void drops_by_stage(void **state)
{
    struct metrics_route *route = metrics_route("dropping");
    (void)state;
    assert_true(has("fencegate_drops_total{route=\"dropping\",reason=\"stale-token\",stage=\"arrival\"} 0"));
    assert_true(has("fencegate_drops_total{route=\"dropping\",reason=\"superseded\",stage=\"connecting\"} 0"));
    assert_null(strstr(page.text, "route=\"dropping\",reason=\"token-used\""));
    metrics_drop(route, REASON_STALE_TOKEN, DROP_ADMISSION);
    metrics_drop(route, REASON_STALE_TOKEN, DROP_ADMISSION);
    metrics_drop(route, REASON_TOKEN_USED, DROP_ARRIVAL);
    metrics_drop(route, REASON_SUPERSEDED, DROP_WAITING);
    assert_true(has("fencegate_drops_total{route=\"dropping\",reason=\"stale-token\",stage=\"admission\"} 2"));
    assert_true(has("fencegate_drops_total{route=\"dropping\",reason=\"stale-token\",stage=\"arrival\"} 0"));
    assert_true(has("fencegate_drops_total{route=\"dropping\",reason=\"token-used\",stage=\"arrival\"} 1"));
    assert_true(has("fencegate_drops_total{route=\"dropping\",reason=\"superseded\",stage=\"waiting\"} 1"));
}

static void times_as_histograms(void **state)
{
    struct metrics_route *route = metrics_route("timed");
    (void)state;
    metrics_took(route, METRICS_PARTNER, 100);
    metrics_took(route, METRICS_PARTNER, 1234567);
    metrics_took(route, METRICS_PARTNER, 61000000);
    assert_true(has("fencegate_partner_seconds_bucket{route=\"timed\",le=\"0.0001\"} 1"));
    assert_true(has("fencegate_partner_seconds_bucket{route=\"timed\",le=\"1\"} 1"));
    assert_true(has("fencegate_partner_seconds_bucket{route=\"timed\",le=\"2.5\"} 2"));
    assert_true(has("fencegate_partner_seconds_bucket{route=\"timed\",le=\"60\"} 2"));
    assert_true(has("fencegate_partner_seconds_bucket{route=\"timed\",le=\"+Inf\"} 3"));
    assert_true(has("fencegate_partner_seconds_sum{route=\"timed\"} 62.234667"));
    assert_true(has("fencegate_partner_seconds_count{route=\"timed\"} 3"));
    assert_true(has("fencegate_gateway_seconds_count{route=\"timed\"} 0"));
}

static void transactions_measured(void **state)
{
    (void)state;
    metrics_transaction(&(struct store_sample){.batch_us = 3000, .commit_us = 2400, .operations = 5});
    metrics_transaction(&(struct store_sample){.batch_us = 90, .commit_us = 80, .operations = 0}); /* retention */
    assert_true(has("fencegate_store_commit_seconds_bucket{le=\"0.001\"} 1"));
    assert_true(has("fencegate_store_commit_seconds_bucket{le=\"0.0025\"} 2"));
    assert_true(has("fencegate_store_commit_seconds_sum 0.002480"));
    assert_true(has("fencegate_store_batch_seconds_bucket{le=\"0.0025\"} 1"));
    assert_true(has("fencegate_store_batch_seconds_count 2"));
    assert_true(has("fencegate_store_batch_operations_bucket{le=\"4\"} 0"));
    assert_true(has("fencegate_store_batch_operations_bucket{le=\"8\"} 1"));
    assert_true(has("fencegate_store_batch_operations_sum 5"));
    assert_true(has("fencegate_store_batch_operations_count 1"));
}

struct hours {
    unsigned seen;
    struct metrics_hour hour;
};

static void keep_hour(void *arg, const struct metrics_hour *hour)
{
    struct hours *hours = arg;
    if (strcmp(hour->name, "hourly") != 0)
        return;
    hours->seen++;
    hours->hour = *hour;
}

static struct hours hours_at(const struct metrics_now *now)
{
    struct hours hours = {0};
    metrics_hours(now, keep_hour, &hours);
    return hours;
}

static void the_last_hour(void **state)
{
    struct metrics_route *route = metrics_route("hourly");
    struct metrics_now now;
    (void)state;
    metrics_now(&now);
    assert_int_equal(hours_at(&now).seen, 0); /* in no configuration, and nothing happened */
    metrics_request(route, EFFECT_SENT, REASON_NONE, monotonic_ms());
    metrics_request(route, EFFECT_NOT_SENT, REASON_STALE_TOKEN, monotonic_ms());
    metrics_waiting(route, 1);
    metrics_now(&now);
    struct hours found = hours_at(&now);
    uint32_t *sent = found.hour.counts[STATS_SENT], *dropped = found.hour.counts[STATS_DROPPED];
    assert_int_equal(found.seen, 1);
    assert_int_equal(found.hour.waiting, 1);
    assert_int_equal(sent[59] + sent[58], 1); /* the minute may have turned */
    assert_int_equal(dropped[59] + dropped[58], 1);
    metrics_waiting(route, -1);
    now.boot_ms += 3600000 + 60000;
    assert_int_equal(hours_at(&now).seen, 0);
    metrics_use(route, true);
    assert_int_equal(hours_at(&now).seen, 1);
    metrics_use(route, false);
    assert_int_equal(hours_at(&now).seen, 0);
}

static void labels_escaped(void **state)
{
    (void)state;
    metrics_route("a\"b\\c\nd");
    assert_true(has("fencegate_waiting{route=\"a\\\"b\\\\c\\nd\"} 0"));
}

/* Each family once: HELP, TYPE, then its samples; counters end in _total; a line end at the end. */
static void families_in_order(void **state)
{
    char family[128] = "", seen[4096] = "";
    bool histogram = false;
    (void)state;
    assert_true(has("fencegate_connections 3"));
    assert_true(page.text[page.len - 1] == '\n');
    for (char *line = strtok(page.text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            size_t len = strcspn(line + 7, " ");
            assert_in_range(len, 1, sizeof family - 3);
            snprintf(family, sizeof family, "%.*s", (int)len, line + 7);
            char mark[140];
            snprintf(mark, sizeof mark, "|%s|", family);
            assert_null(strstr(seen, mark));
            assert_true(strlen(seen) + strlen(mark) < sizeof seen);
            strcat(seen, mark);
            assert_true(line[7 + len] == ' ' && line[8 + len] != '\0');
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            size_t len = strlen(family);
            assert_int_equal(strncmp(line + 7, family, len), 0);
            bool counter = strcmp(line + 7 + len, " counter") == 0;
            histogram = strcmp(line + 7 + len, " histogram") == 0;
            assert_true(counter || histogram || strcmp(line + 7 + len, " gauge") == 0);
            bool total = len > 6 && strcmp(family + len - 6, "_total") == 0;
            assert_true(counter == total);
        } else {
            size_t len = strlen(family), all = strcspn(line, "{ ");
            assert_int_equal(strncmp(line, family, len), 0);
            const char *suffix = line + len;
            size_t extra = all - len;
            assert_true(histogram ? (extra == 7 && strncmp(suffix, "_bucket", 7) == 0) ||
                                        (extra == 4 && strncmp(suffix, "_sum", 4) == 0) ||
                                        (extra == 6 && strncmp(suffix, "_count", 6) == 0)
                                  : extra == 0);
        }
    }
}

static void parts_left_out(void **state)
{
    struct jsonout out = {0};
    (void)state;
    metrics_write(&out, NULL, NULL, NULL);
    assert_null(strstr(out.text, "fencegate_store_"));
    assert_null(strstr(out.text, "fencegate_connections"));
    assert_non_null(strstr(out.text, "fencegate_build_info"));
    jsonout_free(&out);
}

static void *count_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20000; i++) {
        metrics_request(metrics_route("threads"), EFFECT_SENT, REASON_NONE, monotonic_ms());
        metrics_in_flight(metrics_route("threads"), 1);
        metrics_in_flight(metrics_route("threads"), -1);
    }
    return NULL;
}

static void threads_lose_nothing(void **state)
{
    pthread_t threads[4];
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_many, NULL), 0);
    has("fencegate_connections 3"); /* a scrape in between */
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(has("fencegate_requests_total{route=\"threads\",effect=\"sent\",reason=\"\"} 80000"));
    assert_true(has("fencegate_effects_in_flight{route=\"threads\"} 0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_by_name),        cmocka_unit_test(requests_counted),
        cmocka_unit_test(gauges_shown),          cmocka_unit_test(labels_escaped),
        cmocka_unit_test(families_in_order),     cmocka_unit_test(parts_left_out),
        cmocka_unit_test(drops_by_stage),        cmocka_unit_test(times_as_histograms),
        cmocka_unit_test(transactions_measured), cmocka_unit_test(the_last_hour),
        cmocka_unit_test(threads_lose_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    jsonout_free(&page);
    return failed;
}
