/* config/json_memory.c - a piece of memory a text, given out front to back. */
#include "config/json_memory.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>

/* An element takes some 100 bytes in jansson's tables and at least one byte of text. */
enum {
    RESERVE_PER_BYTE = 128,
    RESERVE_BASE = 65536,
    /* A string is gathered in a buffer that doubles (4 times the text, all steps together) and copied (once more). */
    RESERVE_PER_TEXT_BYTE = 6,
    RESERVE_PER_VALUE = 512, /* a node, an entry, and tables that double */
};

static _Thread_local char *reserve;
static _Thread_local size_t reserve_at, reserve_size;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *take(size_t size)
{
    if (reserve == NULL)
        return malloc(size);
    size = (size + 15) & ~(size_t)15;
    if (size > reserve_size - reserve_at)
        return NULL;
    void *piece = reserve + reserve_at;
    reserve_at += size;
    return piece;
}

static void drop(void *piece)
{
    if (reserve == NULL || (char *)piece < reserve || (char *)piece >= reserve + reserve_size)
        free(piece);
}

static void use_these(void)
{
    json_set_alloc_funcs(take, drop);
}

static bool open_reserve(size_t size)
{
    pthread_once(&once, use_these);
    reserve_at = 0;
    reserve_size = size;
    reserve = malloc(reserve_size);
    return reserve != NULL;
}

bool json_memory_open(size_t text_len)
{
    return open_reserve(text_len * RESERVE_PER_BYTE + RESERVE_BASE);
}

bool json_memory_open_for(size_t text_len, size_t values)
{
    return open_reserve(text_len * RESERVE_PER_TEXT_BYTE + values * RESERVE_PER_VALUE + RESERVE_BASE);
}

void json_memory_close(void)
{
    free(reserve);
    reserve = NULL;
}
