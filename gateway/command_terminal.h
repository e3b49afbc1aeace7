/*
 * gateway/command_terminal.h - what standard output is, and the places that text takes on it.
 */
#ifndef FENCEGATE_COMMAND_TERMINAL_H
#define FENCEGATE_COMMAND_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

struct terminal {
    size_t width; /* places of a row; 0: no terminal, nothing is cut */
    bool colours; /* a terminal that has them, and NO_COLOR is not set */
};
struct terminal terminal_of(int fd);
/* Pure: `name` is TERM, `no_colour` NO_COLOR; NULL: not set. */
bool terminal_takes_colours(const char *name, const char *no_colour);

/* Places that `len` bytes of UTF-8 take: two for a wide character, none for one that combines. Any thread. */
size_t display_width(const char *text, size_t len);
/* The most bytes of whole characters that take no more than `width` places; *used gets the places. */
size_t display_fit(const char *text, size_t len, size_t width, size_t *used);

#endif
