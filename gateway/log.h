/*
 * gateway/log.h - one JSON line an event on standard error. Any thread; none waits for the reader (log_queue.h).
 *
 * Values may come from outside: jsonout makes them safe. Never a secret, a query or a body: that is the caller's duty.
 * Every event's name is in config/REFERENCE.md, with its level and fields; tests/e2e/test_log.py compares.
 */
#ifndef FENCEGATE_LOG_H
#define FENCEGATE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level); /* any thread, takes hold at once */
bool log_enabled(enum log_level level);

/* A line under construction, on the caller's stack. {"time":…,"level":…,"event":…, fields…} */
struct jsonout;
struct log_line {
    struct jsonout *out; /* a buffer of this thread, reused */
    bool hurry;          /* it does not wait for others: a warning or an error */
};
/* False: the level is off, add nothing. */
bool log_begin(struct log_line *line, enum log_level level, const char *event);
void log_string(struct log_line *line, const char *name, const char *text, size_t len); /* NULL text: left out */
void log_cstring(struct log_line *line, const char *name, const char *text);
void log_number(struct log_line *line, const char *name, uint64_t value);
void log_id(struct log_line *line, const char *name, uint64_t value); /* as a string; 0: left out */
void log_end(struct log_line *line);                                  /* writes it */

/* For an event that a stranger or a lasting trouble can cause at will: at most one line in `every_ms`. Starts zeroed,
 * any thread. True: write it, and say in its field "skipped" how many were not written since the last one. */
struct log_rate {
    atomic_ullong next_ms, skipped;
};
bool log_rate_pass(struct log_rate *rate, uint64_t now_ms, uint64_t every_ms, uint64_t *skipped);

/* The short form: an event with one message. */
void log_message(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
