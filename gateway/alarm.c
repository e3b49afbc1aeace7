/* gateway/alarm.c - the alarms that are on, and what is said of them. */
#include "gateway/alarm.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "gateway/jsonout.h"
#include "gateway/log.h"
#include "gateway/timers.h"

static const struct {
    const char *name;  /* in /v1/stats */
    const char *event; /* in the log; NULL: the store has its own lines for this */
    const char *over;  /* what the log says when it goes */
} kinds[ALARM_KINDS] = {
    [ALARM_TOKEN_REGRESSION] = {"token-regression", "token-regression",
                                "A key that has a fence got a higher token, or the route is gone."},
    [ALARM_CLOCK_LIKE_TOKEN] = {"clock-like-token", "token-looks-like-clock", "The route is gone."},
    [ALARM_UNRESOLVED] = {"unresolved", "effects-unresolved",
                          "No effect of the route waits for a resolution any more."},
    [ALARM_IN_DOUBT] = {"in-doubt", "in-doubt", "No effect is in doubt any more."},
    [ALARM_STORE_NEARLY_FULL] = {"store-nearly-full", "store-nearly-full", "The store has room again."},
    [ALARM_DISK_NEARLY_FULL] = {"disk-nearly-full", "disk-nearly-full",
                                "The disk that the store lies on has room again."},
    [ALARM_OLD_READER] = {"old-reader", "old-reader", "No reader keeps old pages of the store any more."},
    [ALARM_STORE_NOT_WRITABLE] = {"store-not-writable", NULL, NULL},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct alarm *first_on, **end_of_on = &first_on; /* under the lock */
static struct alarm of_process[ALARM_KINDS] = {
    [ALARM_IN_DOUBT] = {.kind = ALARM_IN_DOUBT},
    [ALARM_STORE_NEARLY_FULL] = {.kind = ALARM_STORE_NEARLY_FULL},
    [ALARM_DISK_NEARLY_FULL] = {.kind = ALARM_DISK_NEARLY_FULL},
    [ALARM_OLD_READER] = {.kind = ALARM_OLD_READER},
    [ALARM_STORE_NOT_WRITABLE] = {.kind = ALARM_STORE_NOT_WRITABLE},
};

struct alarm *alarm_of_process(enum alarm_kind kind)
{
    return &of_process[kind];
}

bool alarm_is_on(const struct alarm *alarm)
{
    return atomic_load_explicit(&alarm->is_on, memory_order_relaxed);
}

/* Under the lock, so that lines come in the order of what they tell; no thread waits for the log's reader. */
static void tell(const struct alarm *alarm, bool on, const struct alarm_subject *subject)
{
    struct log_line line;
    if (kinds[alarm->kind].event == NULL || !log_begin(&line, on ? LOG_WARN : LOG_INFO, kinds[alarm->kind].event))
        return;
    log_cstring(&line, "state", on ? "on" : "off");
    log_cstring(&line, "route", alarm->route);
    if (subject != NULL) {
        log_string(&line, "namespace", subject->ns.data, subject->ns.len);
        log_string(&line, "key", subject->key.data, subject->key.len);
        log_id(&line, "token", subject->token);
    }
    log_cstring(&line, "message", on ? alarm->text : kinds[alarm->kind].over);
    log_end(&line);
}

void alarm_on(struct alarm *alarm, const struct alarm_subject *subject, const char *format, ...)
{
    va_list args;
    pthread_mutex_lock(&lock);
    va_start(args, format);
    (void)vsnprintf(alarm->text, sizeof alarm->text, format, args);
    va_end(args);
    if (!alarm_is_on(alarm)) {
        alarm->since_ms = realtime_ms();
        alarm->next = NULL;
        *end_of_on = alarm;
        end_of_on = &alarm->next;
        atomic_store_explicit(&alarm->is_on, true, memory_order_relaxed);
        tell(alarm, true, subject);
    }
    pthread_mutex_unlock(&lock);
}

void alarm_began(struct alarm *alarm, uint64_t wall_ms)
{
    pthread_mutex_lock(&lock);
    alarm->since_ms = wall_ms;
    pthread_mutex_unlock(&lock);
}

static void unlink_alarm(struct alarm *alarm)
{
    struct alarm **at = &first_on;
    while (*at != alarm)
        at = &(*at)->next;
    *at = alarm->next;
    if (end_of_on == &alarm->next)
        end_of_on = at;
}

void alarm_off(struct alarm *alarm)
{
    if (!alarm_is_on(alarm))
        return;
    pthread_mutex_lock(&lock);
    if (alarm_is_on(alarm)) { /* still */
        unlink_alarm(alarm);
        atomic_store_explicit(&alarm->is_on, false, memory_order_relaxed);
        tell(alarm, false, NULL);
    }
    pthread_mutex_unlock(&lock);
}

void alarm_remind(struct alarm *alarm)
{
    pthread_mutex_lock(&lock);
    if (alarm_is_on(alarm))
        tell(alarm, true, NULL);
    pthread_mutex_unlock(&lock);
}

void alarms_write(struct jsonout *out)
{
    pthread_mutex_lock(&lock);
    for (const struct alarm *alarm = first_on; alarm != NULL; alarm = alarm->next) {
        jsonout_object_begin(out);
        jsonout_member_cstring(out, "name", kinds[alarm->kind].name);
        jsonout_member_cstring(out, "route", alarm->route);
        jsonout_name(out, "since");
        jsonout_time_ms(out, alarm->since_ms);
        jsonout_member_cstring(out, "text", alarm->text);
        jsonout_object_end(out);
    }
    pthread_mutex_unlock(&lock);
}
