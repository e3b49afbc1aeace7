/* gateway/descriptors.c - see descriptors.h. */
#include "gateway/descriptors.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

enum {
    FIXED = 32,      /* streams, store, signals, timers, the admin listener's own */
    OF_WORKER = 8,   /* epoll, inbox, socket, spare, libcurl's own */
    ADMIN_MAX = 512, /* connections of the admin listener, half as many lingering beside them */
    LOOKUPS = 64 * 3,
    LINGER_MAX = 1024,
    IDLE_MAX = 1024,
};

uint64_t descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1024;
    struct rlimit raised = {limit.rlim_max, limit.rlim_max};
    if (limit.rlim_cur != limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0)
        limit = raised;
    return limit.rlim_cur;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static unsigned share(uint64_t part, unsigned most)
{
    uint64_t some = least(part, most);
    return some == 0 ? 1 : (unsigned)some;
}

void descriptors_share(uint64_t have, unsigned workers, unsigned connections, unsigned in_flight,
                       struct descriptor_shares *out)
{
    uint64_t fixed = FIXED + (uint64_t)OF_WORKER * workers;
    *out = (struct descriptor_shares){connections, in_flight, LINGER_MAX, IDLE_MAX, ADMIN_MAX, 0, false};
    out->needed = fixed + ADMIN_MAX + ADMIN_MAX / 2 + LOOKUPS + (uint64_t)connections + in_flight;
    if (have >= out->needed)
        return;
    uint64_t admin = least(have / 8, ADMIN_MAX + ADMIN_MAX / 2), lookups = least(have / 8, LOOKUPS);
    uint64_t rest = have > fixed + admin + lookups ? have - fixed - admin - lookups : 0;
    out->short_of = true;
    out->connections = share(rest * 3 / 8, connections);
    out->in_flight = share(rest * 3 / 8, in_flight);
    out->lingering = share(rest / 8 / workers, LINGER_MAX);
    out->idle = share(rest / 8 / workers, IDLE_MAX);
    out->admin = share(admin * 2 / 3, ADMIN_MAX);
}

void descriptors_tell(const struct descriptor_shares *shares, uint64_t have, char *out, unsigned cap)
{
    (void)snprintf(out, cap,
                   "%" PRIu64 " file descriptors are allowed (ulimit -n, LimitNOFILE) and %" PRIu64
                   " needed for limits.connections, limits.in_flight and the admin listener: %u connections and %u "
                   "calls are served at once",
                   have, shares->needed, shares->connections, shares->in_flight);
}
