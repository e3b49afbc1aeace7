/* store/buffer.c - see buffer.h. */
#include "store/buffer.h"

#include <stdlib.h>

#define CAP_LEAST 4096

bool buffer_reserve(struct buffer *buffer, size_t cap)
{
    if (cap <= buffer->cap)
        return true;
    size_t more = 2 * buffer->cap > cap ? 2 * buffer->cap : cap;
    more = more < CAP_LEAST ? CAP_LEAST : more;
    char *data = realloc(buffer->data, more);
    if (data == NULL)
        return false;
    buffer->data = data;
    buffer->cap = more;
    return true;
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}
