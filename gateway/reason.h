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

/* The slugs of all reasons, then those that records of the store alone have, joined by ", ". */
extern const char reason_list[];
/* Is this one of them? */
bool reason_known(const char *slug, size_t len);

/* What the client is told in Fencegate-Effect. */
enum effect { EFFECT_NOT_SENT, EFFECT_SENT, EFFECT_UNKNOWN, EFFECT_UNFENCED };
const char *effect_name(enum effect effect); /* "not-sent", "sent", "unknown", "unfenced" */

#endif
