/*
 * gateway/command_terminal.c - the terminal, see command_terminal.h.
 *
 * What Fencegate prints is UTF-8 whatever the locale says, so widths are asked of the C library in C.UTF-8, not in the
 * user's locale. Without that locale a character counts as one place.
 */
#include "gateway/command_terminal.h"

#include <locale.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "gateway/utf8.h"

#define WIDTH_UNTOLD 80 /* a terminal that does not say */
#define WIDTH_LEAST 20  /* below this, cutting leaves nothing to read */

bool terminal_takes_colours(const char *name, const char *no_colour)
{
    return (no_colour == NULL || *no_colour == '\0') && name != NULL && *name != '\0' && strcmp(name, "dumb") != 0;
}

struct terminal terminal_of(int fd)
{
    struct winsize size = {0};
    if (!isatty(fd))
        return (struct terminal){0};
    size_t width = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : WIDTH_UNTOLD;
    return (struct terminal){width < WIDTH_LEAST ? WIDTH_LEAST : width,
                             terminal_takes_colours(getenv("TERM"), getenv("NO_COLOR"))};
}

/* False: one place a character. The locale that was in force comes back with leave(). */
static locale_t enter(locale_t *utf8)
{
    *utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    return *utf8 == (locale_t)0 ? (locale_t)0 : uselocale(*utf8);
}

static void leave(locale_t utf8, locale_t before)
{
    if (utf8 != (locale_t)0) {
        uselocale(before);
        freelocale(utf8);
    }
}

size_t display_fit(const char *text, size_t len, size_t width, size_t *used)
{
    size_t at = 0, places = 0;
    locale_t utf8 = (locale_t)0, before = (locale_t)0;
    while (at < len) {
        uint32_t code = 0;
        size_t step = utf8_next(text + at, len - at, &code), takes = 1;
        if (step == 0)
            step = 1; /* no UTF-8: whatever is shown for that byte */
        if (code >= 0x80) {
            if (utf8 == (locale_t)0)
                before = enter(&utf8);
            int told = utf8 == (locale_t)0 ? 1 : wcwidth((wchar_t)code);
            takes = told < 0 ? 1 : (size_t)told;
        }
        if (takes > width - places)
            break;
        places += takes;
        at += step;
    }
    leave(utf8, before);
    *used = places;
    return at;
}

size_t display_width(const char *text, size_t len)
{
    size_t used;
    (void)display_fit(text, len, SIZE_MAX, &used);
    return used;
}
