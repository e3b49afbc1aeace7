/* gateway/arena.h - small pieces of memory with one owner and one end. One thread. */
#ifndef FENCEGATE_ARENA_H
#define FENCEGATE_ARENA_H

#include <stddef.h>

struct arena_block;
/* Zero-initialise, but for `first`, which may hold anything. */
struct arena {
    struct arena_block *blocks;
    char *at;
    size_t left;
    _Alignas(16) char first[1536]; /* most requests need no more */
};

void arena_init(struct arena *arena);
void *arena_alloc(struct arena *arena, size_t size) __attribute__((warn_unused_result)); /* aligned; NULL: no memory */
char *arena_copy(struct arena *arena, const char *text, size_t len)
    __attribute__((warn_unused_result)); /* adds a NUL */
void arena_free(struct arena *arena);

#endif
