/* gateway/crash_count.c - see crash_count.h. */
#include "gateway/crash_count.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/metrics.h"
#include "gateway/timers.h"
#include "store/store.h"

#define PAGE 1000

static bool count_record(void *arg, const struct audit_record *record)
{
    (void)arg;
    char *name = record->route.len == 0 ? NULL : strndup(record->route.data, record->route.len);
    struct metrics_route *route = name == NULL ? NULL : metrics_route(name);
    if (route != NULL)
        metrics_left(route, monotonic_ms());
    free(name);
    return true;
}

void crash_count(struct store *store, uint64_t since_ms)
{
    struct audit_filter filter = {
        .kind = AUDIT_UNKNOWN, .reason = {"gateway-crash", 13}, .since_ms = since_ms, .limit = PAGE};
    struct store_reader *reader = NULL;
    if (store_reader_open(store, &reader) != STORE_OK)
        return;
    while (store_audit_query(reader, &filter, count_record, NULL, &filter.after) == STORE_OK && filter.after != 0)
        ;
    store_reader_close(&reader);
}
