/*
 * gateway/log.c - one JSON line an event on standard error.
 *
 * Each thread builds its line in a buffer of its own and hands it over in one piece: to the queue's thread while the
 * gateway serves, else to the kernel. One line is under construction per thread at a time; beginning
 * another gives the first one up. Rotation and shipping are the supervisor's.
 */
#include "gateway/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gateway/jsonout.h"
#include "gateway/log_queue.h"

/* Bytes of one value that are shown: a line of any request stays well under what pipes and journald take in one
 * piece, and one client can't fill the log with a 30 KiB path. */
#define VALUE_MAX 1024
#define WRITE_WAIT_MS 1000

static atomic_int current_level = LOG_INFO;

static _Thread_local struct jsonout line_buffer;
static _Thread_local bool buffer_registered;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;
static pthread_key_t buffer_key;

static void free_buffer(void *buffer)
{
    jsonout_free(buffer);
    buffer_registered = false;
}

static void make_key(void)
{
    if (pthread_key_create(&buffer_key, free_buffer) != 0)
        buffer_key = (pthread_key_t)-1; /* then a thread's buffer stays behind when it ends: no reason to fail */
}

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

static const char *level_name(enum log_level level)
{
    switch (level) {
    case LOG_ERROR: return "error";
    case LOG_WARN: return "warn";
    case LOG_INFO: return "info";
    case LOG_DEBUG: return "debug";
    }
    return "error";
}

void log_now(char out[25])
{
    static _Thread_local uint64_t shown_ms = UINT64_MAX;
    static _Thread_local char shown[25]; /* under load there are many lines in a millisecond */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    if (now_ms != shown_ms) {
        shown_ms = now_ms;
        format_time_ms(now_ms, shown);
    }
    memcpy(out, shown, sizeof shown);
}

bool log_begin(struct log_line *line, enum log_level level, const char *event)
{
    char now[25];
    if (!log_enabled(level))
        return false;
    if (!buffer_registered) {
        pthread_once(&buffer_once, make_key);
        pthread_setspecific(buffer_key, &line_buffer);
        buffer_registered = true;
    }
    log_now(now);
    line->out = &line_buffer;
    line->hurry = level <= LOG_WARN;
    jsonout_reset(line->out);
    jsonout_object_begin(line->out);
    jsonout_member_cstring(line->out, "time", now);
    jsonout_member_cstring(line->out, "level", level_name(level));
    jsonout_member_cstring(line->out, "event", event);
    return true;
}

/* Cuts before the sequence that would be split, and marks the cut. */
static void string_cut(struct jsonout *out, const char *name, const char *text)
{
    static const char mark[] = "[cut]";
    char copy[VALUE_MAX];
    size_t len = VALUE_MAX - (sizeof mark - 1);
    for (unsigned back = 0; back < 3 && (text[len] & 0xC0) == 0x80; back++)
        len--;
    memcpy(copy, text, len);
    memcpy(copy + len, mark, sizeof mark - 1);
    jsonout_member_string(out, name, copy, len + sizeof mark - 1);
}

void log_string(struct log_line *line, const char *name, const char *text, size_t len)
{
    if (text != NULL && len > VALUE_MAX)
        string_cut(line->out, name, text);
    else
        jsonout_member_string(line->out, name, text, len);
}

void log_cstring(struct log_line *line, const char *name, const char *text)
{
    if (text != NULL)
        log_string(line, name, text, strlen(text));
}

void log_number(struct log_line *line, const char *name, uint64_t value)
{
    jsonout_member_number(line->out, name, value);
}

void log_id(struct log_line *line, const char *name, uint64_t value)
{
    if (value != 0)
        jsonout_member_id(line->out, name, value);
}

/* A non-blocking standard error gets a second to take the rest; after that, or on an error, the line is lost. */
void log_write(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, text, len);
        if (n >= 0) {
            text += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
            if (poll(&ready, 1, WRITE_WAIT_MS) == 0)
                return;
        } else if (errno != EINTR) {
            return;
        }
    }
}

static void deliver(const char *text, size_t len, bool hurry)
{
    if (!log_queue_put(text, len, hurry))
        log_write(text, len);
}

/* Without memory for the line: this one needs none. */
static void deliver_lost(void)
{
    char text[128], time[25];
    log_now(time);
    int len = snprintf(text, sizeof text,
                       "{\"time\":\"%s\",\"level\":\"error\",\"event\":\"log-line-lost\","
                       "\"message\":\"out of memory\"}\n",
                       time);
    deliver(text, (size_t)len, true);
}

void log_end(struct log_line *line)
{
    int saved = errno; /* callers log in the middle of handling an error */
    struct jsonout *out = line->out;
    line->out = NULL;
    jsonout_object_end(out);
    jsonout_raw(out, "\n", 1);
    if (out->failed)
        deliver_lost();
    else
        deliver(out->text, out->len, line->hurry);
    errno = saved;
}

bool log_rate_pass(struct log_rate *rate, uint64_t now_ms, uint64_t every_ms, uint64_t *skipped)
{
    unsigned long long next = atomic_load_explicit(&rate->next_ms, memory_order_relaxed);
    if (now_ms < next || !atomic_compare_exchange_strong(&rate->next_ms, &next, now_ms + every_ms)) {
        atomic_fetch_add_explicit(&rate->skipped, 1, memory_order_relaxed);
        return false;
    }
    *skipped = atomic_exchange_explicit(&rate->skipped, 0, memory_order_relaxed);
    return true;
}

void log_message(enum log_level level, const char *event, const char *format, ...)
{
    char text[VALUE_MAX];
    struct log_line line;
    va_list args;
    if (!log_begin(&line, level, event))
        return;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (len >= 0)
        log_cstring(&line, "message", text);
    log_end(&line);
}
