/* gateway/reason.c - the table behind reason.h, made from reason.def. */
#include "gateway/reason.h"

#include <string.h>

#include "store/store.h"

#define AUDIT_NONE 0

const struct reason_info reason_table[REASON_COUNT] = {
    [REASON_NONE] = {.slug = "", .title = "", .status = 200, .retry_after = 0, .audit_kind = AUDIT_SENT},
#define REASON(id_, slug_, status_, kind_, retry_after_, title_)                                                       \
    [REASON_##id_] = {.slug = (slug_),                                                                                 \
                      .title = (title_),                                                                               \
                      .status = (status_),                                                                             \
                      .retry_after = (retry_after_),                                                                   \
                      .audit_kind = AUDIT_##kind_},
#include "gateway/reason.def"
#undef REASON
};

/* Of what a crash leaves, a restore, the audit's own room, and resolutions. */
#define STORE_REASONS "gateway-crash, restored, audit-full, sent, not-sent"

const char reason_list[] =
#define REASON(id, slug, status, kind, retry_after, title) slug ", "
#include "gateway/reason.def"
#undef REASON
    STORE_REASONS;

bool reason_known(const char *slug, size_t len)
{
    const char *at = reason_list;
    while (true) {
        size_t word = strcspn(at, ",");
        if (word == len && memcmp(at, slug, len) == 0)
            return true;
        if (at[word] == '\0')
            return false;
        at += word + 2;
    }
}

const char *effect_name(enum effect effect)
{
    switch (effect) {
    case EFFECT_NOT_SENT: return "not-sent";
    case EFFECT_SENT: return "sent";
    case EFFECT_UNKNOWN: return "unknown";
    case EFFECT_UNFENCED: return "unfenced";
    }
    return "unknown";
}
