/* gateway/reason.h - the reasons of reason.def as an enum and a table. Pure. */
#ifndef FENCEGATE_REASON_H
#define FENCEGATE_REASON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum reason {
    REASON_NONE = 0, /* nothing went wrong: the partner's own answer */
#define REASON(id, slug, status, kind, retry_after, title) REASON_##id,
#include "gateway/reason.def"
#undef REASON
    REASON_COUNT,
};

struct reason_info {
    const char *slug; /* "" for REASON_NONE */
    const char *title;
    unsigned status;      /* default HTTP status; a route may set another for 412 and 428 */
    unsigned retry_after; /* seconds; 0: no Retry-After */
    int audit_kind;       /* enum audit_kind; 0: no audit record */
};

extern const struct reason_info reason_table[REASON_COUNT];

/* The slugs of all reasons, then those that records of the store alone have: joined by ", ", and one by one with NULL
 * at the end. */
extern const char reason_list[];
extern const char *const reason_slugs[];
/* Is this one of them? */
bool reason_known(const char *slug, size_t len);
/* May an audit filter ask for it? A misspelt slug (made of the same letters and none of the list, or one of the list in
 * capitals, with _ or blanks) may not: it would find nothing, which reads like "there was none". Other words are those
 * of an operator who raised or reset a fence. */
bool reason_filter_plausible(const char *text, size_t len);

/* What the client is told in Fencegate-Effect. */
enum effect { EFFECT_NOT_SENT, EFFECT_SENT, EFFECT_UNKNOWN, EFFECT_UNFENCED };
const char *effect_name(enum effect effect); /* "not-sent", "sent", "unknown", "unfenced" */

#endif
