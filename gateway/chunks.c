/* gateway/chunks.c - see chunks.h. Lines go byte by byte, since they are short; data goes as it lies. */
#include "gateway/chunks.h"

#include "gateway/headers.h"

enum {
    SIZE_DIGITS_MAX = 15, /* in hex: below 2^60 */
    LOOSE_MAX = 8 * 1024,
};

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static bool token_char(char c)
{
    return token_span(&c, 1) == 1;
}

static bool text_char(char c)
{
    return c == '\t' || ((unsigned char)c >= 0x20 && c != 0x7F);
}

static enum chunks_state to(bool sound, enum chunks_state next)
{
    return sound ? next : CHUNKS_BROKEN;
}

static enum chunks_state size_byte(struct chunks *chunks, char c)
{
    int digit = hex_digit(c);
    if (digit >= 0) {
        chunks->left = chunks->left << 4 | (uint64_t)digit;
        return to(++chunks->count <= SIZE_DIGITS_MAX, CHUNKS_SIZE);
    }
    bool sound = chunks->count > 0;
    chunks->count = 0;
    if (c == ';')
        return to(sound, CHUNKS_EXT_NAME);
    return to(sound && c == '\r', CHUNKS_SIZE_LF);
}

/* What may follow an extension: another one, or the line's end. */
static enum chunks_state after_extension(struct chunks *chunks, char c)
{
    chunks->count = 0;
    if (c == ';')
        return CHUNKS_EXT_NAME;
    return to(c == '\r', CHUNKS_SIZE_LF);
}

static enum chunks_state extension_byte(struct chunks *chunks, char c)
{
    switch (chunks->state) {
    case CHUNKS_EXT_NAME:
        if (token_char(c)) {
            chunks->count = 1;
            return CHUNKS_EXT_NAME;
        }
        if (chunks->count == 0)
            return CHUNKS_BROKEN;
        return c == '=' ? CHUNKS_EXT_VALUE : after_extension(chunks, c);
    case CHUNKS_EXT_VALUE: return c == '"' ? CHUNKS_EXT_QUOTED : to(token_char(c), CHUNKS_EXT_TOKEN);
    case CHUNKS_EXT_TOKEN: return token_char(c) ? CHUNKS_EXT_TOKEN : after_extension(chunks, c);
    case CHUNKS_EXT_QUOTED:
        if (c == '"')
            return CHUNKS_EXT_END;
        return to(text_char(c), c == '\\' ? CHUNKS_EXT_ESCAPE : CHUNKS_EXT_QUOTED);
    case CHUNKS_EXT_ESCAPE: return to(text_char(c), CHUNKS_EXT_QUOTED);
    default: return after_extension(chunks, c);
    }
}

static enum chunks_state trailer_byte(struct chunks *chunks, char c)
{
    switch (chunks->state) {
    case CHUNKS_TRAILER:
        if (c == '\r')
            return CHUNKS_LAST_LF;
        return to(token_char(c), CHUNKS_TRAILER_NAME);
    case CHUNKS_TRAILER_NAME: return c == ':' ? CHUNKS_TRAILER_VALUE : to(token_char(c), CHUNKS_TRAILER_NAME);
    case CHUNKS_TRAILER_VALUE: return c == '\r' ? CHUNKS_TRAILER_LF : to(text_char(c), CHUNKS_TRAILER_VALUE);
    case CHUNKS_TRAILER_LF: return to(c == '\n', CHUNKS_TRAILER);
    default: return to(c == '\n', CHUNKS_DONE);
    }
}

static enum chunks_state line_byte(struct chunks *chunks, char c)
{
    switch (chunks->state) {
    case CHUNKS_SIZE: return size_byte(chunks, c);
    case CHUNKS_SIZE_LF: return to(c == '\n', chunks->left == 0 ? CHUNKS_TRAILER : CHUNKS_DATA);
    case CHUNKS_DATA_CR: return to(c == '\r', CHUNKS_DATA_LF);
    case CHUNKS_DATA_LF: chunks->loose = 0; return to(c == '\n', CHUNKS_SIZE);
    case CHUNKS_TRAILER:
    case CHUNKS_TRAILER_NAME:
    case CHUNKS_TRAILER_VALUE:
    case CHUNKS_TRAILER_LF:
    case CHUNKS_LAST_LF: return trailer_byte(chunks, c);
    default: return extension_byte(chunks, c);
    }
}

static size_t take_data(struct chunks *chunks, const char *data, size_t len, struct slice *body)
{
    size_t taken = chunks->left < len ? (size_t)chunks->left : len;
    *body = (struct slice){data, taken};
    chunks->left -= taken;
    if (chunks->left == 0)
        chunks->state = CHUNKS_DATA_CR;
    return taken;
}

size_t chunks_take(struct chunks *chunks, const char *data, size_t len, struct slice *body)
{
    size_t at = 0;
    *body = (struct slice){0};
    if (chunks->state == CHUNKS_DATA && len > 0)
        return take_data(chunks, data, len, body);
    while (at < len && chunks->state != CHUNKS_DATA && chunks->state < CHUNKS_DONE) {
        bool size = chunks->state == CHUNKS_SIZE;
        chunks->state = line_byte(chunks, data[at++]);
        if (!size && ++chunks->loose > LOOSE_MAX)
            chunks->state = CHUNKS_BROKEN;
    }
    return at;
}
