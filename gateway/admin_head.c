/* gateway/admin_head.c - see admin_head.h. */
#include "gateway/admin_head.h"

#include <string.h>

#include "gateway/headers.h"

struct cursor {
    const char *at, *end;
};

static bool take(struct cursor *cursor, const char *text, size_t len)
{
    if (text != cursor->at || len > (size_t)(cursor->end - cursor->at))
        return false;
    cursor->at += len;
    return true;
}

static bool take_nuls(struct cursor *cursor, size_t count)
{
    for (; count > 0; count--) {
        if (cursor->at == cursor->end || *cursor->at != '\0')
            return false;
        cursor->at++;
    }
    return true;
}

static void skip_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\t'))
        cursor->at++;
}

static bool take_field(struct cursor *cursor, const struct header_field *field)
{
    if (!take(cursor, field->name, field->name_len) || !take_nuls(cursor, 1))
        return false;
    skip_blanks(cursor);
    if (field->value_len > 0 && !take(cursor, field->value, field->value_len))
        return false;
    skip_blanks(cursor);
    return take_nuls(cursor, 2);
}

bool head_is_exact(const char *head, size_t size, const struct head_parts *parts)
{
    struct cursor cursor = {head, head + size};
    if (!take(&cursor, cursor.at, parts->method_len) || !take_nuls(&cursor, 1) ||
        !take(&cursor, cursor.at, parts->target_len) || !take_nuls(&cursor, 1) ||
        !take(&cursor, cursor.at, parts->version_len) || !take_nuls(&cursor, 2))
        return false;
    for (size_t i = 0; i < parts->count; i++)
        if (!take_field(&cursor, &parts->fields[i]))
            return false;
    return take_nuls(&cursor, 2) && cursor.at == cursor.end;
}
