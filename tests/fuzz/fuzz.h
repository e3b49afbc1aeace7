/*
 * tests/fuzz/fuzz.h - what the fuzz targets share.
 *
 * A target is a program with LLVMFuzzerTestOneInput(); it stops by require() when a property of its own does not hold,
 * by a sanitizer when the code reads or writes where it must not. `make fuzz` runs them, FUZZ="head wire" picks.
 */
#ifndef FENCEGATE_TESTS_FUZZ_H
#define FENCEGATE_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define require(holds)                                                                                                 \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            (void)fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds);                           \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* A copy in memory of its own size, with a NUL behind it if `nul`: the sanitizer sees a read past it. To be freed. */
static inline char *copy_of(const void *bytes, size_t len, bool nul)
{
    char *copy = malloc(len + (nul || len == 0));
    require(copy != NULL);
    if (len > 0)
        memcpy(copy, bytes, len);
    if (nul)
        copy[len] = '\0';
    return copy;
}

/* The length of the next piece: the input's first byte chooses among single bytes, a fixed size and a mix of sizes. */
static inline size_t piece_of(uint8_t how, size_t at, size_t left)
{
    size_t len = how % 3 == 0 ? 1 : how % 3 == 1 ? 2 + how / 8U : 1 + (at * 31 + how) % 17;
    return len < left ? len : left;
}

/* Takes the bytes up to the next LF (which goes too) off *data. */
static inline size_t take_line(const uint8_t **data, size_t *size, const char **line)
{
    const uint8_t *end = *size == 0 ? NULL : memchr(*data, '\n', *size);
    size_t len = end == NULL ? *size : (size_t)(end - *data), used = len + (end != NULL);
    *line = (const char *)*data;
    *data += used;
    *size -= used;
    return len;
}

#endif
