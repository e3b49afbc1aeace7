/* gateway/timeparse.h - points in time as people and programs write them: RFC 3339, a date, or an age. Pure. */
#ifndef FENCEGATE_TIMEPARSE_H
#define FENCEGATE_TIMEPARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

/* RFC 3339 with any offset and fraction ("2026-11-30T01:02:03.5+02:00"), the same as the commands print it
 * ("2026-11-30 03:02:03.500 +0200"), a date, which is its first moment in UTC ("2026-11-30"), or an age counted back
 * from now_ms
 * ("90s", "15m", "2h", "7d"). Fractions finer than a millisecond are rounded up, so that `since` (inclusive) and
 * `until` (exclusive) cut records of whole milliseconds where the text says. What lies before 1970 is 0. False, with
 * *out_ms untouched, for everything else: a misread time would show the wrong part of an audit. */
bool time_parse(struct slice text, uint64_t now_ms, uint64_t *out_ms) __attribute__((warn_unused_result));

#endif
