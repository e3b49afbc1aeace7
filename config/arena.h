/*
 * config/arena.h - memory of one configuration: given out in pieces, freed all at once.
 *
 * Every error path of a load ends in one conf_arena_free(), so none of them can leak.
 */
#ifndef FENCEGATE_CONFIG_ARENA_H
#define FENCEGATE_CONFIG_ARENA_H

#include <stddef.h>

struct conf_block;
struct conf_arena { /* zero-initialise */
    struct conf_block *blocks;
};

void *conf_alloc(struct conf_arena *arena, size_t count, size_t size);   /* zeroed; NULL without memory */
char *conf_copy(struct conf_arena *arena, const char *text, size_t len); /* adds a NUL; NULL without memory */
void conf_arena_free(struct conf_arena *arena);

#endif
