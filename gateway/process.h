/* gateway/process.h - what the kernel says of this process. Any thread. */
#ifndef FENCEGATE_PROCESS_H
#define FENCEGATE_PROCESS_H

#include <stdint.h>

struct process_stats { /* 0: unknown */
    uint64_t open_fds, max_fds, resident_bytes, cpu_us;
};
/* Counts open descriptors one by one: milliseconds when there are ten thousand. */
void process_look(struct process_stats *out);

#endif
