/*
 * gateway/upstream_memory.c - hears of libcurl's failed allocations.
 *
 * libcurl does not tell of every failed allocation, and after some (7.88: a failed entry in a socket's table of
 * transfers) its next step is a division by zero. So we listen for ourselves, by thread.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/upstream.h"
#include "gateway/upstream_int.h"

static _Thread_local bool starved;

static void *hear(void *memory)
{
    starved = starved || memory == NULL;
    return memory;
}

static void *heard_malloc(size_t size)
{
    return hear(malloc(size));
}

static void *heard_calloc(size_t count, size_t size)
{
    return hear(calloc(count, size));
}

static void *heard_realloc(void *old, size_t size)
{
    return hear(realloc(old, size));
}

static char *heard_strdup(const char *text)
{
    return hear(strdup(text));
}

bool upstream_global_init(void)
{
    return curl_global_init_mem(CURL_GLOBAL_DEFAULT, heard_malloc, free, heard_realloc, heard_strdup, heard_calloc) ==
           CURLE_OK;
}

bool upstream_starved(void)
{
    bool was = starved;
    starved = false;
    return was;
}
