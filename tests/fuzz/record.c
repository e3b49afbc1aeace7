/* tests/fuzz/record.c - what the store reads back: audit records, keys and the journal's changes. A record that decodes
 * is the same after it was encoded and decoded again; keys and changes give their own bytes again. */
#include "store/change.h"
#include "store/record.h"
#include "tests/fuzz/fuzz.h"

static bool same(struct slice a, struct slice b)
{
    return a.len == b.len && (a.data == NULL) == (b.data == NULL) && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static void records(const char *bytes, size_t len)
{
    struct audit_record is, again;
    uint64_t time_ms;
    bool timed = record_time((struct slice){bytes, len}, &time_ms);
    if (!record_decode((struct slice){bytes, len}, &is))
        return;
    require(timed && time_ms == is.time_ms);
    size_t size = record_encode(&is, NULL, 0);
    char *out = malloc(size);
    require(out != NULL && record_encode(&is, out, size) == size);
    require(record_decode((struct slice){out, size}, &again));
    require(is.kind == again.kind && is.time_ms == again.time_ms && is.effect_id == again.effect_id);
    require(is.token == again.token && is.highest == again.highest && is.status == again.status);
    require(is.upstream_status == again.upstream_status && is.has_bytes == again.has_bytes);
    require(is.request_bytes == again.request_bytes && is.response_bytes == again.response_bytes);
    require(is.duration_ms == again.duration_ms && is.would_drop == again.would_drop);
    require(is.accepted_ms == again.accepted_ms && is.accepted_ms <= is.time_ms);
    require(same(is.reason, again.reason) && same(is.route, again.route) && same(is.ns, again.ns));
    require(same(is.key, again.key) && same(is.method, again.method) && same(is.path, again.path));
    require(same(is.client, again.client) && same(is.target, again.target) && same(is.note, again.note));
    free(out);
}

static void keys(const char *bytes, size_t len)
{
    struct slice ns, key;
    uint64_t id;
    char out[INDEX_KEY_CAP];
    if (fence_key_split((struct slice){bytes, len}, &ns, &key))
        require(fence_key(ns, key, out) == len && memcmp(out, bytes, len) == 0);
    if (index_key_split((struct slice){bytes, len}, &ns, &key, &id))
        require(index_key(ns, key, id, out) == len && memcmp(out, bytes, len) == 0);
}

static void changes(const char *bytes, size_t len)
{
    struct slice rest = {bytes, len};
    struct change change;
    struct buffer again = {0};
    while (change_read(&rest, &change))
        require(change.key.len > 0 && change_write(&again, &change));
    require(again.len + rest.len == len && (again.len == 0 || memcmp(again.data, bytes, again.len) == 0));
    buffer_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = copy_of(data, size, false);
    records(bytes, size);
    keys(bytes, size);
    changes(bytes, size);
    free(bytes);
    return 0;
}
