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

uint64_t trusted_ms(struct trusted_clock *clock, uint64_t wall_ms, uint64_t boot_ms, bool *leapt)
{
    int64_t offset = (int64_t)wall_ms - (int64_t)boot_ms;
    *leapt = false;
    if (!clock->known || offset <= clock->offset + LEAP_MS) {
        clock->known = true;
        clock->offset = offset;
        clock->leap_ms = 0;
    } else if (clock->leap_ms == 0) {
        clock->leap_ms = boot_ms > 0 ? boot_ms : 1;
        *leapt = true;
    } else if (boot_ms - clock->leap_ms > BELIEVED_MS) {
        clock->offset = offset;
        clock->leap_ms = 0;
    }
    return (uint64_t)((int64_t)boot_ms + clock->offset);
}
