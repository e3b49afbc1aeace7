/* store/clock.c - see clock.h. */
#include "store/clock.h"

#include <time.h>

enum { LEAP_MS = 60 * 1000, BELIEVED_MS = 24 * 3600 * 1000 };

uint64_t clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t clock_ms(void)
{
    return clock_us() / 1000;
}

void trusted_from(struct trusted_clock *clock, uint64_t from_ms, uint64_t lasted_ms)
{
    *clock = (struct trusted_clock){.from_ms = from_ms, .lasted_ms = lasted_ms};
}

/* The time that was trusted before counts as now: how long nobody looked is not known yet. */
static void begin(struct trusted_clock *clock, int64_t offset, uint64_t boot_ms)
{
    clock->known = true;
    clock->offset = clock->from_ms == 0 ? offset : (int64_t)clock->from_ms - (int64_t)boot_ms;
}

uint64_t trusted_ms(struct trusted_clock *clock, uint64_t wall_ms, uint64_t boot_ms, uint64_t *leapt_ms)
{
    int64_t offset = (int64_t)wall_ms - (int64_t)boot_ms;
    *leapt_ms = 0;
    if (!clock->known)
        begin(clock, offset, boot_ms);
    if (offset <= clock->offset + LEAP_MS) {
        clock->offset = offset;
        clock->leaping = false;
        clock->lasted_ms = 0;
    } else if (!clock->leaping) {
        clock->leaping = true;
        clock->leap_ms = (int64_t)boot_ms - (int64_t)clock->lasted_ms;
        *leapt_ms = (uint64_t)(offset - clock->offset);
    } else if ((int64_t)boot_ms - clock->leap_ms > BELIEVED_MS) {
        clock->offset = offset;
        clock->leaping = false;
        clock->lasted_ms = 0;
    }
    return (uint64_t)((int64_t)boot_ms + clock->offset);
}

uint64_t trusted_lasted_ms(const struct trusted_clock *clock, uint64_t boot_ms)
{
    return clock->leaping ? (uint64_t)((int64_t)boot_ms - clock->leap_ms) : 0;
}
