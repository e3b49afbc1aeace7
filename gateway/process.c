/* gateway/process.c - see process.h. */
#include "gateway/process.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t count_fds(void)
{
    uint64_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        return 0;
    while (readdir(folder) != NULL) /* this thread's own; nobody else has hold of it */
        count++;
    closedir(folder);
    return count > 3 ? count - 3 : 0; /* ".", ".." and the folder itself */
}

static uint64_t resident_pages(void)
{
    uint64_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*u %" SCNu64, &pages) != 1)
        pages = 0;
    fclose(file);
    return pages;
}

static uint64_t micros(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec;
}

void process_look(struct process_stats *out)
{
    struct rlimit limit;
    struct rusage usage;
    *out = (struct process_stats){
        .open_fds = count_fds(),
        .resident_bytes = resident_pages() * (uint64_t)sysconf(_SC_PAGESIZE),
    };
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        out->max_fds = limit.rlim_cur;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        out->cpu_us = micros(usage.ru_utime) + micros(usage.ru_stime);
}
