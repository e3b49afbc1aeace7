/* config/file.h - read a small file whole. */
#ifndef FENCEGATE_CONFIG_FILE_H
#define FENCEGATE_CONFIG_FILE_H

#include <stddef.h>

/* Reads a regular file of at most `limit` bytes. The result ends with a NUL that *len does not count and is freed
 * with conf_file_free(). On failure NULL, and *problem says why (static or strerror text, never content). */
char *conf_file_read(const char *path, size_t limit, size_t *len, const char **problem)
    __attribute__((warn_unused_result));
/* Wipes first: most of these files are secrets. NULL is fine. */
void conf_file_free(char *data, size_t len);

#endif
