/* gateway/timers.c - the heap behind timers.h. */
#include "gateway/timers.h"

#include <limits.h>
#include <stdlib.h>
#include <time.h>

static void place_at(struct timers *timers, size_t place, struct timer *timer)
{
    timers->heap[place] = timer;
    timer->place = place;
}

static void sift_up(struct timers *timers, struct timer *timer, size_t place)
{
    while (place > 1 && timers->heap[place / 2]->due_ms > timer->due_ms) {
        place_at(timers, place, timers->heap[place / 2]);
        place /= 2;
    }
    place_at(timers, place, timer);
}

static void sift_down(struct timers *timers, struct timer *timer, size_t place)
{
    for (;;) {
        size_t child = place * 2;
        if (child > timers->count)
            break;
        if (child < timers->count && timers->heap[child + 1]->due_ms < timers->heap[child]->due_ms)
            child++;
        if (timers->heap[child]->due_ms >= timer->due_ms)
            break;
        place_at(timers, place, timers->heap[child]);
        place = child;
    }
    place_at(timers, place, timer);
}

bool timers_promise(struct timers *timers)
{
    if (timers->promised + 2 > timers->cap) {
        size_t cap = (timers->promised + 32) * 2;
        struct timer **heap = realloc(timers->heap, cap * sizeof(struct timer *));
        if (heap == NULL)
            return false;
        timers->heap = heap;
        timers->cap = cap;
    }
    timers->promised++;
    return true;
}

void timers_release(struct timers *timers)
{
    timers->promised--;
}

void timers_free(struct timers *timers)
{
    free(timers->heap);
    *timers = (struct timers){0};
}

void timer_set(struct timers *timers, struct timer *timer, uint64_t due_ms)
{
    if (timer->place != 0)
        timer_clear(timers, timer);
    if (timers->count + 2 > timers->cap)
        abort(); /* the owner took no promise */
    timer->due_ms = due_ms;
    sift_up(timers, timer, ++timers->count);
}

void timer_clear(struct timers *timers, struct timer *timer)
{
    size_t place = timer->place;
    if (place == 0)
        return;
    timer->place = 0;
    struct timer *last = timers->heap[timers->count--];
    if (last == timer)
        return;
    if (place > 1 && timers->heap[place / 2]->due_ms > last->due_ms)
        sift_up(timers, last, place);
    else
        sift_down(timers, last, place);
}

void timers_run(struct timers *timers, uint64_t now_ms)
{
    while (timers->count > 0 && timers->heap[1]->due_ms <= now_ms) {
        struct timer *timer = timers->heap[1];
        timer_clear(timers, timer);
        timer->fire(timer);
    }
}

int timers_wait_ms(const struct timers *timers, uint64_t now_ms)
{
    if (timers->count == 0)
        return -1;
    uint64_t due = timers->heap[1]->due_ms;
    if (due <= now_ms)
        return 0;
    return due - now_ms > INT_MAX ? INT_MAX : (int)(due - now_ms);
}

static uint64_t clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t monotonic_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t monotonic_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

uint64_t realtime_ms(void)
{
    return clock_ms(CLOCK_REALTIME);
}
