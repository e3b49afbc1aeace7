/*
 * gateway/metrics_write.c - the counters as Prometheus reads them (text format 0.0.4).
 *
 * The labels are a route's name, an effect and a reason, all from the configuration or from tables: keys and paths as
 * labels have filled other people's monitoring.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gateway/jsonout.h"
#include "gateway/metrics_int.h"
#include "gateway/process.h"
#include "gateway/version.h"
#include "store/store.h"

#define MICRO 1000000u

static const struct metrics_route *next_of(const struct metrics_route *route)
{
    return atomic_load(&route->next);
}

static void text(struct jsonout *out, const char *string)
{
    jsonout_raw(out, string, strlen(string));
}

static void value(struct jsonout *out, uint64_t number)
{
    char line[32];
    int len = snprintf(line, sizeof line, " %" PRIu64 "\n", number);
    jsonout_raw(out, line, (size_t)len);
}

/* A number of `unit`ths. */
static void fraction(struct jsonout *out, uint64_t number, uint64_t unit)
{
    char line[48];
    int len =
        snprintf(line, sizeof line, " %" PRIu64 ".%06" PRIu64 "\n", number / unit, number % unit * (MICRO / unit));
    jsonout_raw(out, line, (size_t)len);
}

static void family(struct jsonout *out, const char *name, const char *type, const char *help)
{
    const char *const parts[] = {"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        text(out, parts[i]);
}

static void single(struct jsonout *out, const char *name, const char *type, const char *help, uint64_t number)
{
    family(out, name, type, help);
    text(out, name);
    value(out, number);
}

static void label_value(struct jsonout *out, const char *string)
{
    for (; *string != '\0'; string++) {
        if (*string == '\n')
            text(out, "\\n");
        else if (*string == '"' || *string == '\\')
            jsonout_raw(out, (const char[]){'\\', *string}, 2);
        else
            jsonout_raw(out, string, 1);
    }
}

static void route_label(struct jsonout *out, const char *metric, const struct metrics_route *route)
{
    text(out, metric);
    text(out, "{route=\"");
    label_value(out, route->name == NULL ? "" : route->name);
    text(out, "\"");
}

/* Shown from the start, so that a rate over the first drop is not lost for want of a zero before it. */
static bool always_shown(const struct metrics_route *route, enum effect effect, enum reason reason)
{
    if (route->name == NULL)
        return false;
    switch (effect) {
    case EFFECT_SENT: return reason == REASON_NONE;
    case EFFECT_NOT_SENT: return reason == REASON_STALE_TOKEN;
    case EFFECT_UNKNOWN: return reason_table[reason].audit_kind == AUDIT_UNKNOWN || reason == REASON_UPSTREAM_TIMEOUT;
    case EFFECT_UNFENCED: break;
    }
    return false;
}

static void write_requests(struct jsonout *out, const struct metrics_route *first)
{
    static const char name[] = "fencegate_requests_total";
    family(out, name, "counter",
           "Requests ended, by what happened to the effect and why; an empty reason is the partner's own answer, an "
           "empty route none.");
    for (const struct metrics_route *route = first; route != NULL; route = next_of(route))
        for (int effect = 0; effect < EFFECT_COUNT; effect++)
            for (int reason = 0; reason < REASON_COUNT; reason++) {
                uint64_t count = atomic_load_explicit(&route->requests[effect][reason], memory_order_relaxed);
                if (count == 0 && !always_shown(route, (enum effect)effect, (enum reason)reason))
                    continue;
                route_label(out, name, route);
                text(out, ",effect=\"");
                text(out, effect_name((enum effect)effect));
                text(out, "\",reason=\"");
                text(out, reason_table[reason].slug);
                text(out, "\"}");
                value(out, count);
            }
}

static bool drop_always_shown(int reason, int stage)
{
    return reason == REASON_SUPERSEDED ? stage >= DROP_WAITING : reason == REASON_STALE_TOKEN && stage < DROP_WAITING;
}

static void write_drops(struct jsonout *out, const struct metrics_route *first)
{
    static const char name[] = "fencegate_drops_total";
    static const char *const stages[DROP_STAGES] = {
        [DROP_ARRIVAL] = "arrival",
        [DROP_ADMISSION] = "admission",
        [DROP_WAITING] = "waiting",
        [DROP_CONNECTING] = "connecting",
    };
    family(out, name, "counter",
           "Requests that the fence stopped, by how far they had come: the look on arrival, the writer's verdict on "
           "admission, waiting for their turn, connecting up to the last look.");
    for (const struct metrics_route *route = first; route != NULL; route = next_of(route))
        for (int reason = 0; reason < REASON_COUNT; reason++)
            for (int stage = 0; stage < DROP_STAGES; stage++) {
                uint64_t count = atomic_load_explicit(&route->drops[reason][stage], memory_order_relaxed);
                if (route->name == NULL || (count == 0 && !drop_always_shown(reason, stage)))
                    continue;
                route_label(out, name, route);
                text(out, ",reason=\"");
                text(out, reason_table[reason].slug);
                text(out, "\",stage=\"");
                text(out, stages[stage]);
                text(out, "\"}");
                value(out, count);
            }
}

/* `labels` is empty or ends without a comma. */
static void series(struct jsonout *out, const char *name, const char *suffix, const char *labels, const char *le)
{
    text(out, name);
    text(out, suffix);
    if (labels[0] == '\0' && le == NULL)
        return;
    text(out, "{");
    text(out, labels);
    if (le != NULL) {
        text(out, labels[0] == '\0' ? "le=\"" : ",le=\"");
        text(out, le);
        text(out, "\"");
    }
    text(out, "}");
}

static void write_histogram(struct jsonout *out, const char *name, const char *labels,
                            const struct histogram *histogram, const struct histogram_scale *scale)
{
    struct histogram_reading read;
    histogram_read(histogram, scale, &read);
    for (unsigned cell = 0; cell <= scale->count; cell++) {
        series(out, name, "_bucket", labels, cell < scale->count ? scale->bounds[cell].label : "+Inf");
        value(out, read.upto[cell]);
    }
    series(out, name, "_sum", labels, NULL);
    if (scale->unit == 1)
        value(out, read.sum);
    else
        fraction(out, read.sum, scale->unit);
    series(out, name, "_count", labels, NULL);
    value(out, read.count);
}

static void write_times(struct jsonout *out, const struct metrics_route *first)
{
    static const struct {
        const char *name, *help;
    } times[METRICS_TIMES] = {
        [METRICS_GATEWAY] = {"fencegate_gateway_seconds",
                             "From the whole request to the last look before its first byte left: decision, commit, "
                             "connecting; without the wait for older calls of the key."},
        [METRICS_PREDECESSOR_WAIT] = {"fencegate_predecessor_wait_seconds",
                                      "How long calls waited for older ones of their key, of those that had to."},
        [METRICS_PARTNER] = {"fencegate_partner_seconds",
                             "From the last look to the end of the partner's answer, or of the call without one."},
    };
    for (int i = 0; i < METRICS_TIMES; i++) {
        family(out, times[i].name, "histogram", times[i].help);
        for (const struct metrics_route *route = first; route != NULL; route = next_of(route)) {
            struct jsonout labels = {0};
            if (route->name == NULL)
                continue;
            text(&labels, "route=\"");
            label_value(&labels, route->name);
            text(&labels, "\"");
            if (!labels.failed)
                write_histogram(out, times[i].name, labels.text, &route->times[i], &histogram_time);
            jsonout_free(&labels);
        }
    }
}

static void route_gauge(struct jsonout *out, const char *name, const struct metrics_route *route, uint64_t number)
{
    if (route->name == NULL)
        return;
    route_label(out, name, route);
    text(out, "}");
    value(out, number);
}

static void write_route_gauges(struct jsonout *out, const struct metrics_route *first)
{
    static const char in_flight[] = "fencegate_effects_in_flight", waiting[] = "fencegate_waiting",
                      unresolved[] = "fencegate_effects_unresolved";
    family(out, in_flight, "gauge", "Calls that are being sent or answered by the partner.");
    for (const struct metrics_route *route = first; route != NULL; route = next_of(route))
        route_gauge(out, in_flight, route, gauge_of(&route->in_flight));
    family(out, waiting, "gauge", "Calls that wait for an older token's call of the same key to end.");
    for (const struct metrics_route *route = first; route != NULL; route = next_of(route))
        route_gauge(out, waiting, route, gauge_of(&route->waiting));
    family(out, unresolved, "gauge", "Effects recorded unknown, those in doubt included, that nobody has resolved.");
    for (const struct metrics_route *route = first; route != NULL; route = next_of(route))
        route_gauge(out, unresolved, route, atomic_load_explicit(&route->unresolved, memory_order_relaxed));
}

static void write_token_alarms(struct jsonout *out, const struct metrics_route *first)
{
    static const char regression[] = "fencegate_token_regression", clock_like[] = "fencegate_clock_like_token";
    family(out, regression, "gauge", "1 while key after key has stale tokens and no newer token is accepted, else 0.");
    for (const struct metrics_route *route = first; route != NULL; route = next_of(route))
        route_gauge(out, regression, route, alarm_is_on(&route->watch.regression));
    family(out, clock_like, "gauge", "1 once a token looked like a clock reading, until the next start, else 0.");
    for (const struct metrics_route *route = first; route != NULL; route = next_of(route))
        route_gauge(out, clock_like, route, alarm_is_on(&route->watch.clock_like));
}

static void single_seconds(struct jsonout *out, const char *name, const char *type, const char *help, uint64_t number,
                           uint64_t unit)
{
    family(out, name, type, help);
    text(out, name);
    fraction(out, number, unit);
}

static void single_histogram(struct jsonout *out, const char *name, const char *help, const struct histogram *histogram,
                             const struct histogram_scale *scale)
{
    family(out, name, "histogram", help);
    write_histogram(out, name, "", histogram, scale);
}

static void write_writer(struct jsonout *out, const struct store_health *health)
{
    const struct metrics_store *store = metrics_of_store();
    single(out, "fencegate_store_commits_total", "counter", "Transactions committed with sync.", health->commits);
    single(out, "fencegate_store_operations_total", "counter", "Operations applied by those commits.",
           health->operations);
    single_histogram(out, "fencegate_store_commit_seconds",
                     "How long the commit of a transaction took: writing its pages, and LMDB's syncs of the disk.",
                     &store->commit, &histogram_time);
    single_histogram(out, "fencegate_store_batch_seconds",
                     "How long a whole transaction took: applying its operations, and the commit.", &store->batch,
                     &histogram_time);
    single_histogram(out, "fencegate_store_batch_operations",
                     "Operations that share one commit, of commits that were not retention alone.", &store->operations,
                     &histogram_batch);
}

static void write_room(struct jsonout *out, const struct store_health *health)
{
    single(out, "fencegate_store_used_bytes", "gauge", "Bytes of the store in use.", health->used_bytes);
    single(out, "fencegate_store_max_bytes", "gauge", "Bytes that the store may use.", health->max_bytes);
    single(out, "fencegate_store_free_pages", "gauge", "Pages of the store never used or given back.",
           health->free_pages);
    single(out, "fencegate_store_disk_free_bytes", "gauge", "Bytes free on the disk that the store lies on.",
           health->disk_bytes - health->disk_used_bytes);
    single(out, "fencegate_store_disk_size_bytes", "gauge", "Bytes of that disk, without what is kept for root.",
           health->disk_bytes);
    single(out, "fencegate_store_oldest_reader_lag", "gauge",
           "Transactions by which the oldest reader of the store is behind, in this process or another.",
           health->reader_lag);
    single_seconds(out, "fencegate_store_oldest_reader_held_seconds", "gauge",
                   "For how long that reader has kept its old pages from being used again.", health->reader_held_ms,
                   1000);
}

static void write_store(struct jsonout *out, const struct store_health *health, const struct store_stats *stats)
{
    write_writer(out, health);
    write_room(out, health);
    if (stats != NULL) {
        single(out, "fencegate_store_keys", "gauge", "Keys that have a fence.", stats->fences);
        single(out, "fencegate_store_audit_records", "gauge", "Audit records that are kept.", stats->audit_records);
    }
    single(out, "fencegate_store_writable", "gauge", "1 when the store takes new work, else 0.",
           health->writable ? 1 : 0);
    single(out, "fencegate_effects_in_doubt", "gauge", "Effects whose outcome nobody recorded and nobody resolved.",
           health->in_doubt);
    single(out, "fencegate_store_nearly_full", "gauge", "1 while the store is nearly full, else 0.",
           alarm_is_on(alarm_of_process(ALARM_STORE_NEARLY_FULL)));
    single(out, "fencegate_store_disk_nearly_full", "gauge", "1 while the disk under the store is nearly full, else 0.",
           alarm_is_on(alarm_of_process(ALARM_DISK_NEARLY_FULL)));
    single(out, "fencegate_store_old_reader", "gauge",
           "1 while a reader has kept the same old pages for over a minute, else 0.",
           alarm_is_on(alarm_of_process(ALARM_OLD_READER)));
}

static void write_gateway(struct jsonout *out, const struct metrics_gauges *gauges)
{
    single(out, "fencegate_connections", "gauge", "Client connections being served.", gauges->connections);
    single(out, "fencegate_connections_max", "gauge", "The setting limits.connections.", gauges->connections_max);
    single(out, "fencegate_requests_live", "gauge", "Requests that have begun and not ended.", gauges->requests_live);
    single(out, "fencegate_in_flight", "gauge", "Requests past their body whose call has not ended.",
           gauges->in_flight);
    single(out, "fencegate_in_flight_max", "gauge", "The setting limits.in_flight.", gauges->in_flight_max);
    single(out, "fencegate_buffered_bytes", "gauge", "Bytes of request bodies held.", gauges->buffered_bytes);
    single(out, "fencegate_buffered_max_bytes", "gauge", "The setting limits.buffered.", gauges->buffered_max);
}

static void write_settings(struct jsonout *out)
{
    static const char name[] = "fencegate_reloads_total";
    const struct metrics_settings *settings = metrics_of_settings();
    family(out, name, "counter", "SIGHUPs, by whether the settings read were put in force.");
    series(out, name, "", "result=\"applied\"", NULL);
    value(out, atomic_load(&settings->applied));
    series(out, name, "", "result=\"refused\"", NULL);
    value(out, atomic_load(&settings->refused));
    single(out, "fencegate_reload_refused", "gauge",
           "1 while the last reload was refused and older settings are in force, else 0.",
           atomic_load(&settings->last_refused) ? 1 : 0);
    single_seconds(out, "fencegate_settings_time_seconds", "gauge",
                   "When the settings in force were read, in seconds since 1970.", atomic_load(&settings->read_ms),
                   1000);
}

static void write_process(struct jsonout *out, const struct metrics_gauges *gauges)
{
    struct process_stats process;
    process_look(&process);
    single_seconds(out, "process_start_time_seconds", "gauge", "When the process started, in seconds since 1970.",
                   gauges->started_ms, 1000);
    single_seconds(out, "process_cpu_seconds_total", "counter", "CPU time spent, of the user and the system.",
                   process.cpu_us, MICRO);
    single(out, "process_resident_memory_bytes", "gauge",
           "Resident memory, with the parts of the store's file that were read.", process.resident_bytes);
    single(out, "process_open_fds", "gauge", "Open file descriptors.", process.open_fds);
    single(out, "process_max_fds", "gauge", "How many may be open.", process.max_fds);
}

static void build_label(struct jsonout *out, const char *name, const char *string)
{
    text(out, name);
    text(out, "=\"");
    label_value(out, string == NULL ? "" : string);
    text(out, "\"");
}

static void write_build(struct jsonout *out, const struct metrics_gauges *gauges)
{
    family(out, "fencegate_build_info", "gauge", "Always 1; the labels have the versions.");
    text(out, "fencegate_build_info{");
    build_label(out, "version", FENCEGATE_VERSION);
    build_label(out, ",libmicrohttpd", gauges == NULL ? NULL : gauges->libmicrohttpd);
    build_label(out, ",libcurl", gauges == NULL ? NULL : gauges->libcurl);
    text(out, "}");
    value(out, 1);
}

void metrics_write(struct jsonout *out, const struct metrics_gauges *gauges, const struct store_health *health,
                   const struct store_stats *stats)
{
    const struct metrics_route *first = metrics_first();
    write_build(out, gauges);
    write_requests(out, first);
    write_drops(out, first);
    write_route_gauges(out, first);
    write_times(out, first);
    write_token_alarms(out, first);
    if (gauges != NULL) {
        write_gateway(out, gauges);
        write_settings(out);
        write_process(out, gauges);
    }
    if (health != NULL)
        write_store(out, health, stats);
}
