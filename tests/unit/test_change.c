/* Tests of store/change.c: what goes in comes out, in its order, and no bytes do harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/change.h"

static struct slice text(const char *chars)
{
    return (struct slice){chars, strlen(chars)};
}

static void assert_slice(struct slice is, struct slice wanted)
{
    assert_int_equal(is.len, wanted.len);
    if (is.len > 0)
        assert_memory_equal(is.data, wanted.data, is.len);
}

static void assert_change(const struct change *is, const struct change *wanted)
{
    assert_int_equal(is->kind, wanted->kind);
    assert_int_equal(is->table, wanted->table);
    assert_slice(is->key, wanted->key);
    assert_slice(is->value, wanted->value);
}

static char large[70000];

static void test_round_trip(void **state)
{
    (void)state;
    const struct change changes[] = {
        {CHANGE_PUT, DB_FENCES, {"default\0k", 9}, {"\0\0\0\0\0\0\0\1........", 16}},
        {CHANGE_APPEND, DB_AUDIT, {"\0\0\0\0\0\0\0\2", 8}, text("record")},
        {CHANGE_DELETE, DB_EFFECTS, {"\0\0\0\0\0\0\0\1", 8}, {NULL, 0}},
        {CHANGE_PUT, DB_META, text("next_id"), {large, sizeof large}},
        {CHANGE_PUT, DB_META, {large, UINT16_MAX}, text("")},
        {CHANGE_PUT, DB_UNKNOWN, text("x"), text("y")},
    };
    enum { COUNT = sizeof changes / sizeof *changes };
    struct buffer log = {0};
    for (size_t i = 0; i < COUNT; i++)
        assert_true(change_write(&log, &changes[i]));
    struct slice bytes = {log.data, log.len};
    for (size_t i = 0; i < COUNT; i++) {
        struct change is;
        assert_true(change_read(&bytes, &is));
        assert_change(&is, &changes[i]);
    }
    struct change none;
    assert_int_equal(bytes.len, 0);
    assert_false(change_read(&bytes, &none));
    buffer_free(&log);
}

static void test_too_long_a_key(void **state)
{
    (void)state;
    struct buffer log = {0};
    const struct change before = {CHANGE_PUT, DB_META, text("k"), text("v")};
    assert_true(change_write(&log, &before));
    size_t len = log.len;
    assert_false(change_write(&log, &(struct change){CHANGE_PUT, DB_META, {large, UINT16_MAX + 1}, text("v")}));
    assert_int_equal(log.len, len);
    buffer_free(&log);
}

/* Every cut of two changes: the first comes out or not, the second never, and it shows that something is left. */
static void test_cut_short(void **state)
{
    (void)state;
    struct buffer log = {0};
    const struct change changes[] = {{CHANGE_PUT, DB_FENCES, text("key"), text("value")},
                                     {CHANGE_DELETE, DB_AUDIT, text("id"), {NULL, 0}}};
    assert_true(change_write(&log, &changes[0]));
    size_t first = log.len;
    assert_true(change_write(&log, &changes[1]));
    for (size_t len = 1; len < log.len; len++) {
        char *copy = malloc(len); /* of its own, so that a sanitizer sees a step behind it */
        assert_non_null(copy);
        memcpy(copy, log.data, len);
        struct slice bytes = {copy, len};
        struct change is;
        assert_int_equal(change_read(&bytes, &is), len >= first);
        if (len >= first) {
            assert_change(&is, &changes[0]);
            assert_false(change_read(&bytes, &is));
        }
        assert_int_equal(bytes.len, len >= first ? len - first : len);
        free(copy);
    }
    buffer_free(&log);
}

static void test_no_kind_no_table_no_key(void **state)
{
    (void)state;
    const char bad[][9] = {
        {0, DB_META, 1, 0, 0, 0, 0, 0, 'k'},
        {CHANGE_DELETE + 1, DB_META, 1, 0, 0, 0, 0, 0, 'k'},
        {-1, DB_META, 1, 0, 0, 0, 0, 0, 'k'},
        {CHANGE_PUT, DB_TABLE_COUNT, 1, 0, 0, 0, 0, 0, 'k'},
        {CHANGE_PUT, -1, 1, 0, 0, 0, 0, 0, 'k'},
        {CHANGE_PUT, DB_META, 0, 0, 0, 0, 0, 0, 'k'},
        {CHANGE_PUT, DB_META, 1, 0, 1, 0, 0, 0, 'k'},
        {CHANGE_PUT, DB_META, 1, 0, -1, -1, -1, -1, 'k'},
        {CHANGE_PUT, DB_META, -1, -1, 0, 0, 0, 0, 'k'},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct slice bytes = {bad[i], sizeof bad[i]};
        struct change is;
        assert_false(change_read(&bytes, &is));
        assert_int_equal(bytes.len, sizeof bad[i]);
    }
}

/* Noise ends, and no slice leads out of it. */
static void test_noise(void **state)
{
    (void)state;
    unsigned seed = 7;
    for (int round = 0; round < 20000; round++) {
        char bytes[64];
        for (size_t i = 0; i < sizeof bytes; i++) {
            seed = seed * 1103515245 + 12345;
            bytes[i] = (char)(seed >> 16 & (i % 8 < 2 ? 3 : i % 8 < 5 ? 15 : 0xff));
        }
        struct slice left = {bytes, sizeof bytes};
        struct change is;
        while (change_read(&left, &is)) {
            assert_true(is.key.data >= bytes && is.value.data + is.value.len <= bytes + sizeof bytes);
            assert_ptr_equal(left.data, is.value.data + is.value.len);
        }
        assert_true(left.len <= sizeof bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_too_long_a_key),
        cmocka_unit_test(test_cut_short),  cmocka_unit_test(test_no_kind_no_table_no_key),
        cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
