/*
 * Tests of store/overlay.c: the newest of each fence, until it is cleared.
 *
 * buffer.c is taken over here, so that memory can be refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/change.h"
#include "store/overlay.h"

static bool no_memory;

bool buffer_reserve(struct buffer *buffer, size_t cap)
{
    if (cap <= buffer->cap)
        return true;
    char *data = no_memory ? NULL : malloc(cap); /* elsewhere each time: whoever keeps a pointer is found out */
    if (data == NULL)
        return false;
    if (buffer->len > 0)
        memcpy(data, buffer->data, buffer->len);
    free(buffer->data);
    buffer->data = data;
    buffer->cap = cap;
    return true;
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}

static struct slice text(const char *chars)
{
    return (struct slice){chars, strlen(chars)};
}

static int make(void **state)
{
    no_memory = false;
    *state = overlay_new();
    return *state == NULL;
}

static int drop(void **state)
{
    struct overlay *overlay = *state;
    overlay_free(&overlay);
    overlay_free(&overlay);
    return overlay != NULL;
}

static void take(struct overlay *overlay, enum change_kind kind, enum db_table table, const char *key,
                 struct slice value)
{
    char bytes[512];
    struct buffer log = {.data = bytes, .cap = sizeof bytes};
    assert_true(change_write(&log, &(struct change){kind, table, text(key), value}));
    overlay_take(overlay, (struct slice){log.data, log.len});
}

static void put(struct overlay *overlay, const char *key, const char *value)
{
    take(overlay, CHANGE_PUT, DB_FENCES, key, text(value));
}

static enum overlay_says look(struct overlay *overlay, const char *key, const char *wanted)
{
    char value[OVERLAY_VALUE_BYTES];
    size_t len;
    enum overlay_says says = overlay_find(overlay, text(key), value, &len);
    if (says == OVERLAY_VALUE) {
        assert_int_equal(len, strlen(wanted));
        assert_memory_equal(value, wanted, len);
    }
    return says;
}

static void test_newest_counts(void **state)
{
    struct overlay *overlay = *state;
    assert_int_equal(look(overlay, "a", NULL), OVERLAY_NOTHING);
    put(overlay, "a", "0123456789abcdef");
    put(overlay, "b", "b");
    assert_int_equal(look(overlay, "a", "0123456789abcdef"), OVERLAY_VALUE);
    put(overlay, "a", "fedcba9876543210");
    assert_int_equal(look(overlay, "a", "fedcba9876543210"), OVERLAY_VALUE);
    assert_int_equal(look(overlay, "b", "b"), OVERLAY_VALUE);
    assert_int_equal(look(overlay, "ab", NULL), OVERLAY_NOTHING);
    assert_int_equal(look(overlay, "", NULL), OVERLAY_NOTHING);
    take(overlay, CHANGE_DELETE, DB_FENCES, "a", (struct slice){NULL, 0});
    assert_int_equal(look(overlay, "a", NULL), OVERLAY_GONE);
    put(overlay, "a", "x");
    assert_int_equal(look(overlay, "a", "x"), OVERLAY_VALUE);
    take(overlay, CHANGE_DELETE, DB_FENCES, "never", (struct slice){NULL, 0});
    assert_int_equal(look(overlay, "never", NULL), OVERLAY_GONE);
}

static void test_fences_alone(void **state)
{
    struct overlay *overlay = *state;
    for (int table = DB_FENCES + 1; table < DB_TABLE_COUNT; table++)
        take(overlay, CHANGE_PUT, (enum db_table)table, "a", text("x"));
    assert_int_equal(look(overlay, "a", NULL), OVERLAY_NOTHING);
}

static void test_cleared(void **state)
{
    struct overlay *overlay = *state;
    for (int round = 0; round < 3; round++) {
        put(overlay, "a", "x");
        overlay_clear(overlay);
        overlay_clear(overlay);
        assert_int_equal(look(overlay, "a", NULL), OVERLAY_NOTHING);
        put(overlay, "b", "y");
        assert_int_equal(look(overlay, "a", NULL), OVERLAY_NOTHING);
        assert_int_equal(look(overlay, "b", "y"), OVERLAY_VALUE);
        overlay_clear(overlay);
    }
}

/* A value of another length is no fence: whoever decodes it finds out by its length. */
static void test_too_long_a_value(void **state)
{
    struct overlay *overlay = *state;
    char value[OVERLAY_VALUE_BYTES];
    size_t len;
    put(overlay, "a", "0123456789abcdef0");
    assert_int_equal(overlay_find(overlay, text("a"), value, &len), OVERLAY_VALUE);
    assert_int_not_equal(len, OVERLAY_VALUE_BYTES);
}

/* More than it has heads for, so that many share one. */
static void test_many(void **state)
{
    struct overlay *overlay = *state;
    enum { MANY = 20000 };
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            char key[32], value[32];
            (void)snprintf(key, sizeof key, "%d", i);
            (void)snprintf(value, sizeof value, "%d %d", i, round);
            put(overlay, key, value);
        }
    }
    for (int i = 0; i < MANY; i++) {
        char key[32], value[32];
        (void)snprintf(key, sizeof key, "%d", i);
        (void)snprintf(value, sizeof value, "%d 1", i);
        assert_int_equal(look(overlay, key, value), OVERLAY_VALUE);
    }
    assert_int_equal(look(overlay, "20000", NULL), OVERLAY_NOTHING);
}

/* Without memory it must not say that data.mdb has the last word. */
static void test_blind(void **state)
{
    struct overlay *overlay = *state;
    no_memory = true;
    put(overlay, "a", "x");
    assert_int_equal(look(overlay, "a", NULL), OVERLAY_BLIND);
    assert_int_equal(look(overlay, "b", NULL), OVERLAY_BLIND);
    no_memory = false;
    put(overlay, "b", "y");
    assert_int_equal(look(overlay, "b", NULL), OVERLAY_BLIND); /* what it has missed, it has missed */
    overlay_clear(overlay);
    assert_int_equal(look(overlay, "a", NULL), OVERLAY_NOTHING);
    put(overlay, "b", "y");
    assert_int_equal(look(overlay, "b", "y"), OVERLAY_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_newest_counts, make, drop),
        cmocka_unit_test_setup_teardown(test_fences_alone, make, drop),
        cmocka_unit_test_setup_teardown(test_cleared, make, drop),
        cmocka_unit_test_setup_teardown(test_too_long_a_value, make, drop),
        cmocka_unit_test_setup_teardown(test_many, make, drop),
        cmocka_unit_test_setup_teardown(test_blind, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
