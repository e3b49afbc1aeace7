/* store/change.c - see change.h. When changes are written down and made again is journal.c's and tail.c's. */
#include "store/change.h"

#include <string.h>

#define HEAD_BYTES 8

bool change_write(struct buffer *log, const struct change *change)
{
    size_t key = change->key.len, value = change->value.len;
    if (key > UINT16_MAX || value > UINT32_MAX || !buffer_reserve(log, log->len + HEAD_BYTES + key + value))
        return false;
    char *out = log->data + log->len;
    *out++ = (char)change->kind;
    *out++ = (char)change->table;
    for (unsigned shift = 0; shift < 16; shift += 8)
        *out++ = (char)(key >> shift);
    for (unsigned shift = 0; shift < 32; shift += 8)
        *out++ = (char)(value >> shift);
    if (key > 0)
        memcpy(out, change->key.data, key);
    if (value > 0)
        memcpy(out + key, change->value.data, value);
    log->len += HEAD_BYTES + key + value;
    return true;
}

static size_t number_at(const char *bytes, unsigned len)
{
    size_t number = 0;
    while (len-- > 0)
        number = number << 8 | (unsigned char)bytes[len];
    return number;
}

bool change_read(struct slice *bytes, struct change *out)
{
    if (bytes->len < HEAD_BYTES)
        return false;
    const char *in = bytes->data;
    size_t key = number_at(in + 2, 2), value = number_at(in + 4, 4);
    if (in[0] < CHANGE_PUT || in[0] > CHANGE_DELETE || in[1] < 0 || in[1] >= DB_TABLE_COUNT || key == 0 ||
        bytes->len - HEAD_BYTES < key || bytes->len - HEAD_BYTES - key < value)
        return false;
    *out = (struct change){
        (enum change_kind)in[0], (enum db_table)in[1], {in + HEAD_BYTES, key}, {in + HEAD_BYTES + key, value}};
    bytes->data += HEAD_BYTES + key + value;
    bytes->len -= HEAD_BYTES + key + value;
    return true;
}
