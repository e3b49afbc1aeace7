/* tests/unit/test_arena.c - pieces of memory with one end; the address sanitizer sees what is lost or overlaps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/arena.h"

static void small_pieces_need_no_block(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena);
    char *a = arena_alloc(&arena, 1), *b = arena_alloc(&arena, 1);
    assert_non_null(a);
    assert_non_null(b);
    assert_true(a >= arena.first && b < arena.first + sizeof arena.first);
    assert_ptr_not_equal(a, b);
    assert_null(arena.blocks);
    arena_free(&arena);
}

static void copies(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena);
    const char text[] = {'a', '\0', 'b'};
    char *copy = arena_copy(&arena, text, sizeof text);
    assert_memory_equal(copy, "a\0b", 4);
    assert_string_equal(arena_copy(&arena, "order-17 and more", 8), "order-17");
    assert_string_equal(arena_copy(&arena, text, 0), "");
    arena_free(&arena);
}

static void of_exactly_what_is_left(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena);
    char *all = arena_alloc(&arena, sizeof arena.first);
    assert_ptr_equal(all, arena.first);
    memset(all, 'x', sizeof arena.first);
    assert_null(arena.blocks);
    char *more = arena_alloc(&arena, 1);
    assert_non_null(more);
    assert_non_null(arena.blocks);
    *more = 'y';
    assert_int_equal(all[sizeof arena.first - 1], 'x');
    arena_free(&arena);
}

/* All sizes, far above a block as well; nothing overlaps, everything is aligned for any type. */
static void pieces_stay_as_they_are(void **state)
{
    enum { PIECES = 600 };
    static unsigned char *piece[PIECES];
    static size_t size[PIECES];
    struct arena arena;
    uint32_t random = 2463534242u;
    (void)state;
    arena_init(&arena);
    for (size_t i = 0; i < PIECES; i++) {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        size[i] = i % 50 == 49 ? 4000 + random % 30000 : random % 300;
        piece[i] = arena_alloc(&arena, size[i]);
        assert_non_null(piece[i]);
        assert_int_equal((uintptr_t)piece[i] % 16, 0);
        memset(piece[i], (int)(i % 251), size[i]);
    }
    for (size_t i = 0; i < PIECES; i++)
        for (size_t at = 0; at < size[i]; at++)
            assert_int_equal(piece[i][at], i % 251);
    arena_free(&arena);
}

static void freed_is_as_new(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena);
    for (int round = 0; round < 3; round++) {
        assert_ptr_equal(arena_alloc(&arena, 16), arena.first);
        for (int i = 0; i < 10; i++)
            memset(arena_alloc(&arena, 3000), 'z', 3000);
        assert_non_null(arena.blocks);
        arena_free(&arena);
        assert_null(arena.blocks);
    }
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_pieces_need_no_block),
        cmocka_unit_test(copies),
        cmocka_unit_test(of_exactly_what_is_left),
        cmocka_unit_test(pieces_stay_as_they_are),
        cmocka_unit_test(freed_is_as_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
