/* gateway/stats.c - the ring of minutes behind stats.h. */
#include "gateway/stats.h"

#include "store/store.h"

#define MINUTE_MS 60000u

enum stats_kind stats_kind_of(enum effect effect, enum reason reason)
{
    switch (effect) {
    case EFFECT_SENT:
    case EFFECT_UNFENCED: return STATS_SENT;
    case EFFECT_UNKNOWN: return STATS_UNKNOWN;
    case EFFECT_NOT_SENT: break;
    }
    switch (reason_table[reason].audit_kind) {
    case AUDIT_DROPPED: return STATS_DROPPED;
    case AUDIT_REJECTED: return STATS_REJECTED;
    default: return STATS_NOT_SENT;
    }
}

uint64_t stats_offset(uint64_t boot_ms, uint64_t wall_ms)
{
    return (wall_ms % MINUTE_MS + MINUTE_MS - boot_ms % MINUTE_MS) % MINUTE_MS;
}

/* Begins with STATS_SLOTS: no shown minute is below 0, and none has the number of an untouched slot. */
uint32_t stats_minute(uint64_t boot_ms, uint64_t offset_ms)
{
    return (uint32_t)((boot_ms + offset_ms) / MINUTE_MS) + STATS_SLOTS;
}

uint64_t stats_window_start(uint64_t boot_ms, uint64_t offset_ms, uint64_t wall_ms)
{
    uint64_t age_ms = (boot_ms + offset_ms) % MINUTE_MS + (uint64_t)(STATS_MINUTES - 1) * MINUTE_MS;
    uint64_t start_ms = wall_ms > age_ms ? wall_ms - age_ms : 0;
    return (start_ms + 500) / 1000 * 1000; /* two clocks read one after the other are a little apart */
}

uint64_t stats_counted_from(uint64_t begun_boot_ms, uint64_t boot_ms, uint64_t offset_ms, uint64_t window_start_ms)
{
    uint32_t oldest = stats_minute(boot_ms, offset_ms) - (STATS_MINUTES - 1);
    uint32_t begun = stats_minute(begun_boot_ms, offset_ms);
    if (begun < oldest)
        return window_start_ms;
    uint64_t into_ms = (begun_boot_ms + offset_ms) % MINUTE_MS / 1000 * 1000; /* down: it stays in its minute */
    return window_start_ms + (uint64_t)(begun - oldest) * MINUTE_MS + into_ms;
}

void stats_count(struct stats_ring *ring, enum stats_kind kind, uint32_t minute)
{
    _Atomic uint64_t *slot = &ring->slots[kind][minute % STATS_SLOTS];
    uint64_t old = atomic_load_explicit(slot, memory_order_relaxed), fresh;
    do {
        uint32_t of = (uint32_t)(old >> 32);
        if (of > minute) /* we were away for an hour: nobody looks there any more */
            return;
        fresh = of == minute ? old + 1 : ((uint64_t)minute << 32) + 1;
    } while (!atomic_compare_exchange_weak_explicit(slot, &old, fresh, memory_order_relaxed, memory_order_relaxed));
}

void stats_read(const struct stats_ring *ring, enum stats_kind kind, uint32_t minute, uint32_t out[STATS_MINUTES])
{
    for (uint32_t i = 0; i < STATS_MINUTES; i++) {
        uint32_t of = minute - (STATS_MINUTES - 1) + i;
        uint64_t slot = atomic_load_explicit(&ring->slots[kind][of % STATS_SLOTS], memory_order_relaxed);
        out[i] = (uint32_t)(slot >> 32) == of ? (uint32_t)slot : 0;
    }
}
