/* gateway/store_watch.c - see store_watch.h. */
#include "gateway/store_watch.h"

#include <inttypes.h>

#include "gateway/alarm.h"

#define REMIND_MS (10 * 60 * (uint64_t)1000)
#define READER_MS (60 * (uint64_t)1000)
#define MIB (1u << 20)

enum { FULL_ON_PERCENT = 80, FULL_OFF_PERCENT = 75 };

static uint64_t percent(uint64_t used, uint64_t size)
{
    return size == 0 ? 0 : (uint64_t)((double)used / (double)size * 100);
}

bool nearly_full(bool before, uint64_t used, uint64_t size)
{
    return size != 0 && percent(used, size) >= (before ? FULL_OFF_PERCENT : FULL_ON_PERCENT);
}

bool reader_too_old(const struct store_health *health)
{
    return health->reader_lag > 0 && health->reader_held_ms > READER_MS;
}

enum doubt_news doubt_watch(struct doubt_watch *watch, uint64_t in_doubt, uint64_t now_ms)
{
    enum doubt_news news = DOUBT_NOTHING;
    if (in_doubt > watch->told)
        news = watch->told == 0 ? DOUBT_BEGAN : DOUBT_MORE;
    else if (in_doubt == 0)
        news = watch->told == 0 ? DOUBT_NOTHING : DOUBT_OVER;
    else if (now_ms >= watch->told_ms + REMIND_MS)
        news = DOUBT_REMINDER;
    else if (in_doubt < watch->told)
        news = DOUBT_LESS;
    if (news != DOUBT_NOTHING && news != DOUBT_LESS)
        watch->told_ms = now_ms;
    watch->told = in_doubt;
    return news;
}

static void look_at_doubt(struct doubt_watch *watch, const struct store_health *health, uint64_t now_ms)
{
    uint64_t in_doubt = health->in_doubt;
    struct alarm *alarm = alarm_of_process(ALARM_IN_DOUBT);
    enum doubt_news news = doubt_watch(watch, in_doubt, now_ms);
    if (news == DOUBT_OVER)
        alarm_off(alarm);
    else if (news != DOUBT_NOTHING)
        alarm_on(alarm, NULL, "%" PRIu64 " %s in doubt: ask the partner, then resolve.", in_doubt,
                 in_doubt == 1 ? "effect is" : "effects are");
    if (news == DOUBT_BEGAN && health->in_doubt_since_ms != 0)
        alarm_began(alarm, health->in_doubt_since_ms);
    if (news == DOUBT_MORE || news == DOUBT_REMINDER)
        alarm_remind(alarm);
}

static void look_at_room(enum alarm_kind kind, const char *what, uint64_t used, uint64_t size)
{
    struct alarm *alarm = alarm_of_process(kind);
    if (nearly_full(alarm_is_on(alarm), used, size))
        alarm_on(alarm, NULL, "%s: %" PRIu64 " %% used, %" PRIu64 " of %" PRIu64 " MiB.", what, percent(used, size),
                 used / MIB, size / MIB);
    else
        alarm_off(alarm);
}

static void look_at_reader(const struct store_health *health)
{
    struct alarm *alarm = alarm_of_process(ALARM_OLD_READER);
    if (reader_too_old(health))
        alarm_on(alarm, NULL,
                 "Process %" PRIu64 " has been reading the store for %" PRIu64 " s and is %" PRIu64
                 " transactions behind: old pages can't be used again meanwhile, and the store grows.",
                 health->reader_pid, health->reader_held_ms / 1000, health->reader_lag);
    else
        alarm_off(alarm);
}

void store_watch_look(struct store_watch *watch, const struct store_health *health, uint64_t now_ms)
{
    struct alarm *alarm = alarm_of_process(ALARM_STORE_NOT_WRITABLE);
    if (health->writable)
        alarm_off(alarm);
    else
        alarm_on(alarm, NULL, "Nothing is sent: %s.", health->reason != NULL ? health->reason : "store not writable");
    look_at_doubt(&watch->doubt, health, now_ms);
    look_at_room(ALARM_STORE_NEARLY_FULL, "The store is nearly full", health->used_bytes, health->max_bytes);
    look_at_room(ALARM_DISK_NEARLY_FULL, "The disk that the store lies on is nearly full", health->disk_used_bytes,
                 health->disk_bytes);
    look_at_reader(health);
}
