/* store/buffer.h - bytes that grow. Zero-initialise; who uses one keeps `len`, if it is needed, below `cap`. */
#ifndef FENCEGATE_STORE_BUFFER_H
#define FENCEGATE_STORE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *data;
    size_t len, cap;
};
bool buffer_reserve(struct buffer *buffer, size_t cap) __attribute__((warn_unused_result)); /* false: no memory */
void buffer_free(struct buffer *buffer);

#endif
