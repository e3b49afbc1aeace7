/* gateway/log_queue.c - the buffers and the thread behind log_queue.h. */
#include "gateway/log_queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BUFFER = 1024 * 1024,
    HURRY_ABOVE = BUFFER / 2,
    GATHER_NS = 5 * 1000 * 1000, /* how long lines wait for others: a write and a wake-up for each cost more than all
                                  * else of an access line */
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t filled;
    pthread_t thread;
    char *fill, *drain; /* the thread's: drain */
    size_t len;         /* of fill */
    bool hurry;         /* something in it does not wait for others */
    unsigned long lost; /* since the last swap */
    bool stopping;
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

static atomic_bool running;

static void tell_lost(unsigned long lost)
{
    char line[128], time[25];
    log_now(time);
    int len = snprintf(line, sizeof line,
                       "{\"time\":\"%s\",\"level\":\"warn\",\"event\":\"log-lines-lost\",\"lines\":%lu}\n", time, lost);
    log_write(line, (size_t)len);
}

/* Under the mutex, which is let go while it waits. */
static void gather(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += GATHER_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int rc = 0;
    while (!queue.hurry && !queue.stopping && rc == 0)
        rc = pthread_cond_clockwait(&queue.filled, &queue.mutex, CLOCK_MONOTONIC, &until);
}

static void *write_out(void *arg)
{
    (void)arg;
    pthread_setname_np(pthread_self(), "fg-log");
    pthread_mutex_lock(&queue.mutex);
    while (!queue.stopping || queue.len > 0) {
        if (queue.len == 0) {
            pthread_cond_wait(&queue.filled, &queue.mutex);
            continue;
        }
        gather();
        char *full = queue.fill;
        size_t len = queue.len;
        unsigned long lost = queue.lost;
        queue.fill = queue.drain;
        queue.drain = full;
        queue.len = queue.lost = 0;
        queue.hurry = false;
        pthread_mutex_unlock(&queue.mutex);
        log_write(full, len);
        if (lost > 0)
            tell_lost(lost);
        pthread_mutex_lock(&queue.mutex);
    }
    pthread_mutex_unlock(&queue.mutex);
    return NULL;
}

bool log_queue_start(void)
{
    queue.fill = malloc(BUFFER);
    queue.drain = malloc(BUFFER);
    queue.stopping = false;
    if (queue.fill == NULL || queue.drain == NULL || pthread_create(&queue.thread, NULL, write_out, NULL) != 0) {
        free(queue.fill);
        free(queue.drain);
        queue.fill = queue.drain = NULL;
        return false;
    }
    atomic_store(&running, true);
    return true;
}

void log_queue_stop(unsigned wait_ms)
{
    if (!atomic_exchange(&running, false))
        return;
    pthread_mutex_lock(&queue.mutex);
    queue.stopping = true;
    pthread_cond_signal(&queue.filled);
    pthread_mutex_unlock(&queue.mutex);
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += wait_ms / 1000;
    end.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    if (pthread_timedjoin_np(queue.thread, NULL, &end) != 0) {
        pthread_detach(queue.thread); /* it hangs in its write, with its buffer, until the process ends */
        return;
    }
    free(queue.fill);
    free(queue.drain);
    queue.fill = queue.drain = NULL;
}

bool log_queue_put(const char *line, size_t len, bool hurry)
{
    if (!atomic_load_explicit(&running, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&queue.mutex);
    bool room = !queue.stopping && len <= BUFFER - queue.len;
    bool wake = room && queue.len == 0;
    if (room) {
        memcpy(queue.fill + queue.len, line, len);
        queue.len += len;
    } else {
        queue.lost++;
    }
    if ((hurry || queue.len > HURRY_ABOVE) && !queue.hurry)
        wake = queue.hurry = true;
    if (wake)
        pthread_cond_signal(&queue.filled);
    pthread_mutex_unlock(&queue.mutex);
    return true;
}
