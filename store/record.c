/*
 * store/record.c - encodes and decodes audit records and intents; the layout is described in record.h.
 *
 * Decoding trusts nothing: the bytes come from a file that a disk, a copy or an editor may have damaged. Where records
 * are kept and under which key is left to apply.c.
 */
#include "store/record.h"

#include <string.h>

#define RECORD_VERSION 1
#define HEAD_BYTES 10 /* version, kind, time */

/* Numbers are on disk: never reuse or renumber one. */
enum field {
    FIELD_REASON = 1,
    FIELD_EFFECT_ID,
    FIELD_ROUTE,
    FIELD_NS,
    FIELD_KEY,
    FIELD_TOKEN,
    FIELD_HIGHEST,
    FIELD_METHOD,
    FIELD_PATH,
    FIELD_CLIENT,
    FIELD_TARGET,
    FIELD_NOTE,
    FIELD_STATUS,
    FIELD_UPSTREAM_STATUS,
    FIELD_REQUEST_BYTES,
    FIELD_RESPONSE_BYTES,
    FIELD_DURATION_MS,
    FIELD_WOULD_DROP,
    FIELD_ACCEPTED_AGO,
};

static const char *const kind_names[] = {
    [AUDIT_DROPPED] = "dropped", [AUDIT_REJECTED] = "rejected", [AUDIT_SENT] = "sent",   [AUDIT_NOT_SENT] = "not-sent",
    [AUDIT_UNKNOWN] = "unknown", [AUDIT_RAISED] = "raised",     [AUDIT_RESET] = "reset", [AUDIT_RESOLVED] = "resolved",
};
#define KIND_COUNT (sizeof kind_names / sizeof *kind_names)

const char *audit_kind_name(enum audit_kind kind)
{
    return (size_t)kind > 0 && (size_t)kind < KIND_COUNT ? kind_names[kind] : "";
}

bool audit_kind_parse(struct slice text, enum audit_kind *out)
{
    for (size_t kind = 1; kind < KIND_COUNT; kind++) {
        if (text.len == strlen(kind_names[kind]) && memcmp(text.data, kind_names[kind], text.len) == 0) {
            *out = (enum audit_kind)kind;
            return true;
        }
    }
    return false;
}

uint64_t audit_accepted_ms(const struct audit_record *record)
{
    if (record->accepted_ms != 0)
        return record->accepted_ms;
    return record->time_ms > record->duration_ms ? record->time_ms - record->duration_ms : 0; /* when it came */
}

void put_u64(char out[8], uint64_t value)
{
    for (int i = 7; i >= 0; i--) {
        out[i] = (char)(value & 0xff);
        value >>= 8;
    }
}

uint64_t get_u64(const char in[8])
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | (unsigned char)in[i];
    return value;
}

/* Counts every byte and writes those that fit: one pass gives the size and the bytes. */
struct sink {
    char *data;
    size_t cap, len;
};

static void sink_byte(struct sink *sink, uint64_t byte)
{
    if (sink->len < sink->cap)
        sink->data[sink->len] = (char)byte;
    sink->len++;
}

static void sink_varint(struct sink *sink, uint64_t value)
{
    while (value >= 0x80) {
        sink_byte(sink, (value & 0x7f) | 0x80);
        value >>= 7;
    }
    sink_byte(sink, value);
}

static void sink_number(struct sink *sink, enum field field, uint64_t value)
{
    sink_byte(sink, (uint64_t)field * 2);
    sink_varint(sink, value);
}

static void sink_number_if(struct sink *sink, enum field field, uint64_t value)
{
    if (value != 0)
        sink_number(sink, field, value);
}

/* A field that is there but empty stays there: data set, length 0. */
static void sink_bytes_if(struct sink *sink, enum field field, struct slice bytes)
{
    if (!bytes.data)
        return;
    sink_byte(sink, (uint64_t)field * 2 + 1);
    sink_varint(sink, bytes.len);
    if (sink->len <= sink->cap && bytes.len <= sink->cap - sink->len)
        memcpy(sink->data + sink->len, bytes.data, bytes.len);
    sink->len += bytes.len;
}

size_t record_encode(const struct audit_record *record, char *out, size_t cap)
{
    struct sink sink = {out, cap, 0};
    char time[8];
    put_u64(time, record->time_ms);
    sink_byte(&sink, RECORD_VERSION);
    sink_byte(&sink, (uint64_t)record->kind);
    for (size_t i = 0; i < sizeof time; i++)
        sink_byte(&sink, (unsigned char)time[i]);
    sink_bytes_if(&sink, FIELD_REASON, record->reason);
    sink_number_if(&sink, FIELD_EFFECT_ID, record->effect_id);
    sink_bytes_if(&sink, FIELD_ROUTE, record->route);
    sink_bytes_if(&sink, FIELD_NS, record->ns);
    sink_bytes_if(&sink, FIELD_KEY, record->key);
    sink_number_if(&sink, FIELD_TOKEN, record->token);
    sink_number_if(&sink, FIELD_HIGHEST, record->highest);
    sink_bytes_if(&sink, FIELD_METHOD, record->method);
    sink_bytes_if(&sink, FIELD_PATH, record->path);
    sink_bytes_if(&sink, FIELD_CLIENT, record->client);
    sink_bytes_if(&sink, FIELD_TARGET, record->target);
    sink_bytes_if(&sink, FIELD_NOTE, record->note);
    sink_number_if(&sink, FIELD_STATUS, record->status);
    sink_number_if(&sink, FIELD_UPSTREAM_STATUS, record->upstream_status);
    if (record->has_bytes) {
        sink_number(&sink, FIELD_REQUEST_BYTES, record->request_bytes);
        sink_number(&sink, FIELD_RESPONSE_BYTES, record->response_bytes);
        sink_number(&sink, FIELD_DURATION_MS, record->duration_ms);
    }
    sink_number_if(&sink, FIELD_WOULD_DROP, record->would_drop);
    if (record->accepted_ms != 0) /* as one more than the ms before the record's time: a byte or two */
        sink_number(&sink, FIELD_ACCEPTED_AGO,
                    record->time_ms > record->accepted_ms ? record->time_ms - record->accepted_ms + 1 : 1);
    return sink.len;
}

static bool take_varint(struct slice *in, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (in->len == 0)
            return false;
        uint64_t byte = (unsigned char)*in->data;
        in->data++;
        in->len--;
        if (shift == 63 && byte > 1)
            return false; /* over 64 bits */
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool take_bytes(struct slice *in, struct slice *out)
{
    uint64_t len;
    if (!take_varint(in, &len) || len > in->len)
        return false;
    *out = (struct slice){in->data, (size_t)len};
    in->data += len;
    in->len -= (size_t)len;
    return true;
}

static void set_bytes(struct audit_record *out, unsigned field, struct slice bytes)
{
    switch (field) {
    case FIELD_REASON: out->reason = bytes; break;
    case FIELD_ROUTE: out->route = bytes; break;
    case FIELD_NS: out->ns = bytes; break;
    case FIELD_KEY: out->key = bytes; break;
    case FIELD_METHOD: out->method = bytes; break;
    case FIELD_PATH: out->path = bytes; break;
    case FIELD_CLIENT: out->client = bytes; break;
    case FIELD_TARGET: out->target = bytes; break;
    case FIELD_NOTE: out->note = bytes; break;
    default: break; /* a later version's */
    }
}

static bool set_number(struct audit_record *out, unsigned field, uint64_t value)
{
    switch (field) {
    case FIELD_EFFECT_ID: out->effect_id = value; break;
    case FIELD_TOKEN: out->token = value; break;
    case FIELD_HIGHEST: out->highest = value; break;
    case FIELD_STATUS: out->status = (uint32_t)value; return value <= UINT32_MAX;
    case FIELD_UPSTREAM_STATUS: out->upstream_status = (uint32_t)value; return value <= UINT32_MAX;
    case FIELD_REQUEST_BYTES:
        out->request_bytes = value;
        out->has_bytes = true;
        break;
    case FIELD_RESPONSE_BYTES:
        out->response_bytes = value;
        out->has_bytes = true;
        break;
    case FIELD_DURATION_MS:
        out->duration_ms = value;
        out->has_bytes = true;
        break;
    case FIELD_WOULD_DROP: out->would_drop = value != 0; break;
    case FIELD_ACCEPTED_AGO:
        out->accepted_ms = value != 0 && value <= out->time_ms ? out->time_ms - value + 1 : 0;
        break;
    default: break; /* a later version's */
    }
    return true;
}

static bool take_field(struct slice *in, struct audit_record *out)
{
    unsigned tag = (unsigned char)*in->data;
    in->data++;
    in->len--;
    if (tag & 1) {
        struct slice bytes;
        if (!take_bytes(in, &bytes))
            return false;
        set_bytes(out, tag / 2, bytes);
        return true;
    }
    uint64_t value;
    return take_varint(in, &value) && set_number(out, tag / 2, value);
}

bool record_decode(struct slice bytes, struct audit_record *out)
{
    memset(out, 0, sizeof *out);
    if (!record_time(bytes, &out->time_ms))
        return false;
    size_t kind = (unsigned char)bytes.data[1];
    bool good = kind < KIND_COUNT;
    out->kind = good ? (enum audit_kind)kind : (enum audit_kind)0;
    struct slice rest = {bytes.data + HEAD_BYTES, bytes.len - HEAD_BYTES};
    while (good && rest.len > 0)
        good = take_field(&rest, out);
    if (!good)
        memset(out, 0, sizeof *out);
    return good;
}

bool record_time(struct slice bytes, uint64_t *time_ms)
{
    if (bytes.len < HEAD_BYTES || bytes.data[0] != RECORD_VERSION)
        return false;
    *time_ms = get_u64(bytes.data + 2);
    return true;
}

static bool part_valid(struct slice part, size_t max)
{
    return part.data && part.len > 0 && part.len <= max && !memchr(part.data, '\0', part.len);
}

size_t fence_key(struct slice ns, struct slice key, char out[FENCE_KEY_CAP])
{
    if (!part_valid(ns, NS_BYTES_MAX) || !part_valid(key, FENCE_KEY_BYTES_MAX))
        return 0;
    memcpy(out, ns.data, ns.len);
    out[ns.len] = '\0';
    memcpy(out + ns.len + 1, key.data, key.len);
    return ns.len + 1 + key.len;
}

size_t index_key(struct slice ns, struct slice key, uint64_t id, char out[INDEX_KEY_CAP])
{
    size_t len = fence_key(ns, key, out);
    if (len == 0)
        return 0;
    out[len] = '\0';
    put_u64(out + len + 1, id);
    return len + 9;
}

bool fence_key_split(struct slice bytes, struct slice *ns, struct slice *key)
{
    const char *end = bytes.len == 0 ? NULL : memchr(bytes.data, '\0', bytes.len);
    *ns = *key = (struct slice){0};
    if (!end)
        return false;
    *ns = (struct slice){bytes.data, (size_t)(end - bytes.data)};
    *key = (struct slice){end + 1, bytes.len - ns->len - 1};
    return part_valid(*ns, NS_BYTES_MAX) && part_valid(*key, FENCE_KEY_BYTES_MAX);
}

bool index_key_split(struct slice bytes, struct slice *ns, struct slice *key, uint64_t *id)
{
    *ns = *key = (struct slice){0};
    *id = 0;
    if (bytes.len < 9 || bytes.data[bytes.len - 9] != '\0')
        return false;
    *id = get_u64(bytes.data + bytes.len - 8);
    return fence_key_split((struct slice){bytes.data, bytes.len - 9}, ns, key);
}
