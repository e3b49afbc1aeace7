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
#define STORE_REASONS(between) "gateway-crash" between "restored" between "audit-full" between "sent" between "not-sent"
#define COMMA ,

const char *const reason_slugs[] = {
#define REASON(id, slug, status, kind, retry_after, title) slug,
#include "gateway/reason.def"
#undef REASON
    STORE_REASONS(COMMA),
    NULL,
};

const char reason_list[] =
#define REASON(id, slug, status, kind, retry_after, title) slug ", "
#include "gateway/reason.def"
#undef REASON
    STORE_REASONS(", ");

bool reason_known(const char *slug, size_t len)
{
    for (size_t i = 0; reason_slugs[i] != NULL; i++)
        if (strlen(reason_slugs[i]) == len && memcmp(reason_slugs[i], slug, len) == 0)
            return true;
    return false;
}

/* With capitals made small, and _ and blanks read as -. */
static bool same_but_for_case(const char *slug, const char *text, size_t len)
{
    size_t i = 0;
    while (i < len && slug[i] != '\0') {
        char c = text[i] == '_' || text[i] == ' ' ? '-' : text[i];
        if (c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        if (c != slug[i])
            return false;
        i++;
    }
    return i == len && slug[i] == '\0';
}

bool reason_filter_plausible(const char *text, size_t len)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    bool words = false;
    if (reason_known(text, len))
        return true;
    for (size_t i = 0; i < len; i++)
        words |= memchr(letters, text[i], sizeof letters - 1) == NULL;
    for (size_t i = 0; words && reason_slugs[i] != NULL; i++)
        words = !same_but_for_case(reason_slugs[i], text, len);
    return words;
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
