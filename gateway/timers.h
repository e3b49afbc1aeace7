/*
 * gateway/timers.h - deadlines of one event loop: a binary heap of embedded timers. One thread, monotonic milliseconds.
 */
#ifndef FENCEGATE_TIMERS_H
#define FENCEGATE_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timer {
    uint64_t due_ms;
    size_t place; /* 1-based place in the heap; 0: not set */
    void (*fire)(struct timer *timer);
};

struct timers {
    struct timer **heap; /* heap[1..count] */
    size_t count, cap;
    size_t promised; /* owners of a timer; cap is kept above it */
};

/* Who owns a timer takes a promise first, so that timer_set() can't fail later. False: no memory. */
bool timers_promise(struct timers *timers) __attribute__((warn_unused_result));
void timers_release(struct timers *timers); /* gives the promise back */
void timers_free(struct timers *timers);
void timer_set(struct timers *timers, struct timer *timer, uint64_t due_ms); /* sets or moves it */
void timer_clear(struct timers *timers, struct timer *timer);                /* also when not set */
void timers_run(struct timers *timers, uint64_t now_ms);                     /* fires what is due */
int timers_wait_ms(const struct timers *timers, uint64_t now_ms);            /* -1: nothing is set */
uint64_t monotonic_ms(void);
uint64_t monotonic_us(void);
uint64_t realtime_ms(void);

#endif
