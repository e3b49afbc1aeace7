/*
 * gateway/log_queue.h - a thread between the log and whoever reads it. While it runs, no other thread ever waits for
 * standard error: a reader that has stopped (a full pipe, a held terminal) must not hold up a call or a shutdown.
 *
 * Two buffers of 1 MiB: one fills while the other is written. When both are full lines are dropped and counted, and the
 * count is told when the reader goes on. The audit does not depend on any of this.
 */
#ifndef FENCEGATE_LOG_QUEUE_H
#define FENCEGATE_LOG_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

bool log_queue_start(void) __attribute__((warn_unused_result)); /* once, from main; false: no memory or thread */
/* Gives the reader up to `wait_ms` to take what is queued, then lets go of it. Lines after it go out directly. */
void log_queue_stop(unsigned wait_ms);
/* Any thread. False: the queue is not running, write it yourself. Lines are written some milliseconds later, with
 * others, or at once with one that has `hurry`. */
bool log_queue_put(const char *line, size_t len, bool hurry);

/* log.c: all of it, to standard error; blocks as that does. */
void log_write(const char *text, size_t len);
void log_now(char out[25]); /* the time as every line has it */

#endif
