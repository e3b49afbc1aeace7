/* Tests of store/record.c: what goes in comes out, and no bytes do harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/record.h"

static struct slice text(const char *chars)
{
    return (struct slice){chars, strlen(chars)};
}

static struct audit_record full_record(void)
{
    return (struct audit_record){
        .time_ms = 1767225600123,
        .kind = AUDIT_NOT_SENT,
        .reason = text("upstream-unreachable"),
        .effect_id = 1093,
        .route = text("payments"),
        .ns = text("default"),
        .key = text("order-17 \xc3\xa9"),
        .token = UINT64_MAX,
        .highest = ((uint64_t)1 << 53) + 1,
        .method = text("POST"),
        .path = text("/stripe/v1/charges"),
        .client = text("127.0.0.1:51234"),
        .target = text("https://customer.example:443"),
        .note = text("n"),
        .status = 502,
        .upstream_status = 500,
        .has_bytes = true,
        .request_bytes = 127,
        .response_bytes = 128,
        .duration_ms = (uint64_t)1 << 40,
        .would_drop = true,
        .accepted_ms = 1767225590000,
    };
}

static void assert_slice(struct slice is, struct slice wanted)
{
    assert_int_equal(is.len, wanted.len);
    assert_int_equal(is.data != NULL, wanted.data != NULL);
    if (wanted.len > 0)
        assert_memory_equal(is.data, wanted.data, wanted.len);
}

static void assert_same(const struct audit_record *is, const struct audit_record *wanted)
{
    assert_int_equal(is->time_ms, wanted->time_ms);
    assert_int_equal(is->kind, wanted->kind);
    assert_slice(is->reason, wanted->reason);
    assert_int_equal(is->effect_id, wanted->effect_id);
    assert_slice(is->route, wanted->route);
    assert_slice(is->ns, wanted->ns);
    assert_slice(is->key, wanted->key);
    assert_int_equal(is->token, wanted->token);
    assert_int_equal(is->highest, wanted->highest);
    assert_slice(is->method, wanted->method);
    assert_slice(is->path, wanted->path);
    assert_slice(is->client, wanted->client);
    assert_slice(is->target, wanted->target);
    assert_slice(is->note, wanted->note);
    assert_int_equal(is->status, wanted->status);
    assert_int_equal(is->upstream_status, wanted->upstream_status);
    assert_int_equal(is->has_bytes, wanted->has_bytes);
    assert_int_equal(is->request_bytes, wanted->request_bytes);
    assert_int_equal(is->response_bytes, wanted->response_bytes);
    assert_int_equal(is->duration_ms, wanted->duration_ms);
    assert_int_equal(is->would_drop, wanted->would_drop);
    assert_int_equal(is->accepted_ms, wanted->accepted_ms);
}

static void round_trip(const struct audit_record *record)
{
    char bytes[1024];
    size_t len = record_encode(record, bytes, sizeof bytes);
    assert_in_range(len, 10, sizeof bytes);
    struct audit_record back;
    assert_true(record_decode((struct slice){bytes, len}, &back));
    assert_same(&back, record);
    uint64_t time_ms = 0;
    assert_true(record_time((struct slice){bytes, len}, &time_ms));
    assert_int_equal(time_ms, record->time_ms);
}

static void test_round_trips(void **state)
{
    (void)state;
    struct audit_record record = full_record();
    round_trip(&record);
    record = (struct audit_record){0}; /* an intent with nothing in it */
    round_trip(&record);
    record = (struct audit_record){.kind = AUDIT_SENT, .has_bytes = true}; /* zeroes that apply are kept */
    round_trip(&record);
    record = (struct audit_record){.kind = AUDIT_REJECTED, .key = {"", 0}}; /* empty is not absent */
    round_trip(&record);
    for (int kind = 0; kind <= AUDIT_RESOLVED; kind++) {
        record = (struct audit_record){.kind = (enum audit_kind)kind, .token = (uint64_t)1 << (7 * kind)};
        round_trip(&record);
    }
}

/* In memory of its exact size, so that a sanitizer sees a read past the end. */
static bool decode_exact(const char *bytes, size_t len, struct audit_record *out)
{
    char *exact = malloc(len > 0 ? len : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, len);
    bool good = record_decode((struct slice){exact, len}, out);
    size_t sum = 0; /* every slice must point into the bytes */
    const struct slice *all[] = {&out->reason, &out->route,  &out->ns,     &out->key, &out->method,
                                 &out->path,   &out->client, &out->target, &out->note};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (size_t at = 0; at < all[i]->len; at++)
            sum += (unsigned char)all[i]->data[at];
        assert_true(all[i]->len <= len);
    }
    (void)sum;
    free(exact);
    return good;
}

/* Cut at every byte: what still decodes is a record with its last fields missing, never one with half a field. */
static void test_truncated_anywhere(void **state)
{
    (void)state;
    struct audit_record record = full_record(), back;
    char bytes[1024];
    size_t len = record_encode(&record, bytes, sizeof bytes), whole = 0;
    for (size_t cut = 0; cut < len; cut++) {
        if (!decode_exact(bytes, cut, &back)) {
            static const struct audit_record nothing;
            assert_same(&back, &nothing);
            continue;
        }
        assert_true(cut >= 10);
        assert_int_equal(back.time_ms, record.time_ms);
        if (back.key.data)
            assert_int_equal(back.key.len, record.key.len);
        whole++;
    }
    assert_in_range(whole, 1, 19); /* the borders between 19 fields */
}

static void test_small_buffer(void **state)
{
    (void)state;
    struct audit_record record = full_record();
    char bytes[1024];
    size_t len = record_encode(&record, bytes, sizeof bytes);
    for (size_t cap = 0; cap <= len; cap++) {
        char *exact = malloc(cap > 0 ? cap : 1);
        assert_non_null(exact);
        assert_int_equal(record_encode(&record, exact, cap), len);
        if (cap == len)
            assert_memory_equal(exact, bytes, len);
        free(exact);
    }
}

static void test_random_bytes(void **state)
{
    (void)state;
    struct audit_record record = full_record(), back;
    char bytes[1024];
    size_t len = record_encode(&record, bytes, sizeof bytes);
    unsigned seed = 7;
    for (int round = 0; round < 200000; round++) {
        char noise[64];
        size_t noise_len = (size_t)rand_r(&seed) % sizeof noise;
        for (size_t i = 0; i < noise_len; i++)
            noise[i] = (char)rand_r(&seed);
        if (noise_len > 1 && round % 2) { /* past the first checks */
            noise[0] = 1;
            noise[1] = (char)(rand_r(&seed) % 9);
        }
        (void)decode_exact(noise, noise_len, &back);
        char changed[1024];
        memcpy(changed, bytes, len);
        changed[(size_t)rand_r(&seed) % len] = (char)rand_r(&seed);
        (void)decode_exact(changed, len, &back);
    }
}

struct bytes_case {
    const char *name;
    const char *bytes;
    size_t len;
    bool good;
};
#define HEAD "\x01\x03\0\0\0\0\0\0\0\x05"
#define CASE(name, literal, good)                                                                                      \
    {                                                                                                                  \
        name, literal, sizeof literal - 1, good                                                                        \
    }

static void test_odd_bytes(void **state)
{
    (void)state;
    static const struct bytes_case cases[] = {
        CASE("nothing", "", false),
        CASE("head alone", HEAD, true),
        CASE("another version", "\x02\x03\0\0\0\0\0\0\0\x05", false),
        CASE("unknown kind", "\x01\x09\0\0\0\0\0\0\0\x05", false),
        CASE("unknown number field is passed over", HEAD "\xc8\x05\x0c\x07", true),
        CASE("unknown bytes field is passed over", HEAD "\xc9\x02xy\x0c\x07", true),
        CASE("unknown bytes field, cut", HEAD "\xc9\x03xy", false),
        CASE("length far past the end", HEAD "\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", false),
        CASE("integer of 64 bits", HEAD "\x0c\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", true),
        CASE("integer over 64 bits", HEAD "\x0c\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", false),
        CASE("integer of eleven bytes", HEAD "\x0c\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", false),
        CASE("status over 32 bits", HEAD "\x1a\xff\xff\xff\xff\x1f", false),
        CASE("tag alone", HEAD "\x0c", false),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct audit_record back;
        if (decode_exact(cases[i].bytes, cases[i].len, &back) != cases[i].good)
            fail_msg("%s", cases[i].name);
    }
    struct audit_record back;
    assert_true(record_decode((struct slice){HEAD "\xc8\x05\x0c\x07", 14}, &back));
    assert_int_equal(back.token, 7); /* a field behind an unknown one */
}

static void test_kind_names(void **state)
{
    (void)state;
    static const char *const names[] = {"dropped", "rejected", "sent",  "not-sent",
                                        "unknown", "raised",   "reset", "resolved"};
    for (int kind = 1; kind <= 8; kind++) {
        enum audit_kind parsed;
        assert_string_equal(audit_kind_name((enum audit_kind)kind), names[kind - 1]);
        assert_true(audit_kind_parse(text(names[kind - 1]), &parsed));
        assert_int_equal(parsed, kind);
    }
    enum audit_kind parsed = AUDIT_SENT;
    assert_string_equal(audit_kind_name((enum audit_kind)0), "");
    assert_string_equal(audit_kind_name((enum audit_kind)9), "");
    assert_false(audit_kind_parse(text("Sent"), &parsed));
    assert_false(audit_kind_parse(text("sentx"), &parsed));
    assert_false(audit_kind_parse((struct slice){0}, &parsed));
    assert_int_equal(parsed, AUDIT_SENT);
}

static void test_keys(void **state)
{
    (void)state;
    char key[FENCE_KEY_CAP], index[INDEX_KEY_CAP], big[300];
    memset(big, 'x', sizeof big);
    assert_int_equal(fence_key(text("ns"), text("k"), key), 4);
    assert_memory_equal(key, "ns\0k", 4);
    assert_int_equal(index_key(text("ns"), text("k"), 0x0102030405060708, index), 13);
    assert_memory_equal(index, "ns\0k\0\x01\x02\x03\x04\x05\x06\x07\x08", 13);
    assert_int_equal(fence_key((struct slice){big, 64}, (struct slice){big, 255}, key), FENCE_KEY_CAP);
    assert_int_equal(fence_key((struct slice){big, 65}, text("k"), key), 0);
    assert_int_equal(fence_key(text("ns"), (struct slice){big, 256}, key), 0);
    assert_int_equal(fence_key(text("ns"), text(""), key), 0);
    assert_int_equal(fence_key(text("ns"), (struct slice){0}, key), 0);
    assert_int_equal(fence_key(text("ns"), (struct slice){"a\0b", 3}, key), 0);
    assert_int_equal(index_key((struct slice){0}, text("k"), 1, index), 0);
    char low[8], high[8];
    put_u64(low, 255);
    put_u64(high, 256);
    assert_true(memcmp(low, high, 8) < 0);
    assert_int_equal(get_u64(high), 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),  cmocka_unit_test(test_truncated_anywhere),
        cmocka_unit_test(test_small_buffer), cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_odd_bytes),    cmocka_unit_test(test_kind_names),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
