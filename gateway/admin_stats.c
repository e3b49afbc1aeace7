/* gateway/admin_stats.c - `GET /v1/stats`: the gateway at a glance, for a page that asks every few seconds. */
#include "gateway/admin_int.h"
#include "gateway/alarm.h"
#include "gateway/metrics.h"
#include "gateway/unresolved_watch.h"
#include "gateway/version.h"

static void write_store(struct jsonout *out, const struct store_health *health, const struct store_stats *stats,
                        uint64_t unresolved)
{
    jsonout_name(out, "store");
    jsonout_object_begin(out);
    jsonout_name(out, "writable");
    jsonout_bool(out, health->writable);
    jsonout_member_number(out, "used_bytes", health->used_bytes);
    jsonout_member_number(out, "max_bytes", health->max_bytes);
    jsonout_member_number(out, "keys", stats->fences);
    jsonout_member_number(out, "in_doubt", health->in_doubt);
    jsonout_member_number(out, "unresolved", unresolved);
    jsonout_object_end(out);
}

static void write_limit(struct jsonout *out, const char *name, uint64_t now, uint64_t max)
{
    jsonout_name(out, name);
    jsonout_object_begin(out);
    jsonout_member_number(out, "now", now);
    jsonout_member_number(out, "max", max);
    jsonout_object_end(out);
}

static void write_limits(struct jsonout *out, const struct metrics_gauges *gauges)
{
    jsonout_name(out, "limits");
    jsonout_object_begin(out);
    write_limit(out, "connections", gauges->connections, gauges->connections_max);
    write_limit(out, "in_flight", gauges->in_flight, gauges->in_flight_max);
    write_limit(out, "buffered_bytes", gauges->buffered_bytes, gauges->buffered_max);
    jsonout_object_end(out);
}

static void write_route(void *arg, const struct metrics_hour *hour)
{
    static const char *const names[STATS_KINDS] = {
        [STATS_SENT] = "sent",       [STATS_DROPPED] = "dropped",   [STATS_NOT_SENT] = "not_sent",
        [STATS_UNKNOWN] = "unknown", [STATS_REJECTED] = "rejected",
    };
    struct jsonout *out = arg;
    jsonout_object_begin(out);
    jsonout_member_cstring(out, "name", hour->name);
    jsonout_member_number(out, "in_flight", hour->in_flight);
    jsonout_member_number(out, "waiting", hour->waiting);
    jsonout_member_number(out, "unresolved", hour->unresolved);
    for (int kind = 0; kind < STATS_KINDS; kind++) {
        jsonout_name(out, names[kind]);
        jsonout_array_begin(out);
        for (int i = 0; i < STATS_MINUTES; i++)
            jsonout_number(out, hour->counts[kind][i]);
        jsonout_array_end(out);
    }
    jsonout_object_end(out);
}

static void write_routes(struct jsonout *out, const struct metrics_now *now)
{
    jsonout_name(out, "minutes");
    jsonout_object_begin(out);
    jsonout_name(out, "start");
    jsonout_time_ms(out, now->window_start_ms);
    jsonout_member_number(out, "count", STATS_MINUTES);
    jsonout_name(out, "counted_from");
    jsonout_time_ms(out, now->counted_from_ms);
    jsonout_object_end(out);
    jsonout_name(out, "routes");
    jsonout_array_begin(out);
    metrics_hours(now, write_route, out);
    jsonout_array_end(out);
}

static const char *write_state(struct jsonout *out, struct admin_context *context, struct store_health *health)
{
    const char *reason = admin_not_ready(context, health);
    bool leaving = context->options.shutting_down(context->options.arg);
    jsonout_member_cstring(out, "state", leaving ? "shutting-down" : reason != NULL ? "not-ready" : "ready");
    return leaving ? "shutting down" : reason;
}

void admin_look_at_store(struct admin_context *context)
{
    struct store_stats stats;
    if (context->reader == NULL && store_reader_open(context->options.store, &context->reader) != STORE_OK)
        context->reader = NULL;
    if (context->reader != NULL && store_stats(context->reader, &stats) == STORE_OK)
        context->stats = stats;
}

void admin_answer_stats(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct store_health health;
    struct metrics_gauges gauges;
    struct metrics_now now;
    struct jsonout *out = &answer->body;
    char why[160];
    if (!admin_params_parse(in->query, NULL, 0, why, sizeof why)) {
        admin_problem(answer, ADMIN_MALFORMED, why);
        return;
    }
    admin_look_at_store(context);
    context->options.gauges(context->options.arg, &gauges);
    metrics_now(&now);
    jsonout_object_begin(out);
    jsonout_name(out, "time");
    jsonout_time_ms(out, now.wall_ms);
    jsonout_name(out, "started_at");
    jsonout_time_ms(out, gauges.started_ms);
    jsonout_member_cstring(out, "version", FENCEGATE_VERSION);
    const char *reason = write_state(out, context, &health);
    jsonout_name(out, "reason");
    if (reason != NULL)
        jsonout_cstring(out, reason);
    else
        jsonout_null(out);
    write_store(out, &health, &context->stats, unresolved_look(context->options.store));
    write_limits(out, &gauges);
    jsonout_name(out, "alarms");
    jsonout_array_begin(out);
    alarms_write(out);
    jsonout_array_end(out);
    write_routes(out, &now);
    jsonout_object_end(out);
    admin_json_answer(answer, 200);
}
