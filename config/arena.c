/*
 * config/arena.c - a list of blocks, one per piece. A configuration has a few hundred at most, so nothing cleverer
 * pays. What is kept in it is the callers' business.
 */
#include "config/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct conf_block {
    struct conf_block *next;
    max_align_t data[];
};

void *conf_alloc(struct conf_arena *arena, size_t count, size_t size)
{
    if (size != 0 && count > (SIZE_MAX - sizeof(struct conf_block)) / size)
        return NULL;
    struct conf_block *block = calloc(1, sizeof(*block) + count * size);
    if (block == NULL)
        return NULL;
    block->next = arena->blocks;
    arena->blocks = block;
    return block->data;
}

char *conf_copy(struct conf_arena *arena, const char *text, size_t len)
{
    char *copy = conf_alloc(arena, len + 1, 1);
    if (copy != NULL)
        memcpy(copy, text, len);
    return copy;
}

void conf_arena_free(struct conf_arena *arena)
{
    while (arena->blocks != NULL) {
        struct conf_block *block = arena->blocks;
        arena->blocks = block->next;
        free(block);
    }
}
