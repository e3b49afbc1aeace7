/* gateway/arena.c - bump allocation behind arena.h. */
#include "gateway/arena.h"

#include <stdlib.h>
#include <string.h>

struct arena_block {
    struct arena_block *next;
    _Alignas(16) char bytes[];
};

enum { BLOCK = 4096 };

void arena_init(struct arena *arena)
{
    arena->blocks = NULL;
    arena->at = arena->first;
    arena->left = sizeof arena->first;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (size > arena->left) {
        size_t room = size > BLOCK ? size : BLOCK;
        struct arena_block *block = malloc(sizeof *block + room);
        if (block == NULL)
            return NULL;
        block->next = arena->blocks;
        arena->blocks = block;
        arena->at = block->bytes;
        arena->left = room;
    }
    void *piece = arena->at;
    arena->at += size;
    arena->left -= size;
    return piece;
}

char *arena_copy(struct arena *arena, const char *text, size_t len)
{
    char *copy = arena_alloc(arena, len + 1);
    if (copy != NULL) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}

void arena_free(struct arena *arena)
{
    while (arena->blocks != NULL) {
        struct arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena_init(arena);
}
