/*
 * gateway/wire.c - takes a partner's answer apart, byte for byte as RFC 9112 says where it ends.
 *
 * Strict where laxness could make one answer out of two or two out of one: contradicting lengths, codings that nobody
 * asked for, odd chunk sizes. Lax in what does no harm and is seen in the wild: a bare LF as line end, an empty line
 * before an answer (some partners send one behind 100 Continue, or behind the body before).
 *
 * Leaves to others: what a head's lines mean (reply.c), reading and writing (link.c), what a result is worth
 * (upstream.c).
 */
#include "gateway/wire.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/reply.h"

enum {
    LINE_MAX_BYTES = 32 * 1024, /* of chunk sizes and trailers; a head has its own limit */
    LOOSE_MAX = 64 * 1024,
    SIZE_DIGITS_MAX = 15, /* of a chunk, in hex: below 2^60 */
};

static void broken(struct wire *wire, struct reply *reply, const char *complaint)
{
    wire->state = WIRE_BROKEN;
    if (reply->complaint == NULL)
        reply->complaint = complaint;
}

static bool keep_line(struct wire *wire, const char *data, size_t len)
{
    if (wire->line_len + len > wire->line_cap) {
        size_t cap = wire->line_cap < 256 ? 256 : wire->line_cap * 2;
        while (cap < wire->line_len + len)
            cap *= 2;
        char *bigger = realloc(wire->line, cap);
        if (bigger == NULL)
            return false;
        wire->line = bigger;
        wire->line_cap = cap;
    }
    memcpy(wire->line + wire->line_len, data, len);
    wire->line_len += len;
    return true;
}

/* Where the body ends: RFC 9112 section 6.3. */
static void begin_body(struct wire *wire, struct reply *reply)
{
    bool keep = !reply->wants_close && (!wire->http10 || reply->keeps);
    wire->keep_alive = keep && reply->codings == 0;
    if (wire->head_method || reply->status == 204 || reply->status == 304) {
        bool odd = reply->status == 204 && reply->has_length && reply->length > 0;
        bool open = wire->head_method && reply->status != 204 && reply->status != 304 && !reply->has_length;
        /* Odd: the body that can't be may come, in the next answer's place. Open: without HEAD the close would be its
         * end, and a partner that closes all the same does it just as the next call goes out. */
        wire->keep_alive = wire->keep_alive && !odd && !open;
        wire->state = WIRE_DONE;
    } else if (reply->codings > 0) {
        bool one = reply->codings == 1;
        wire->keep_alive = one && reply->chunked && keep && !wire->http10 && !reply->length_and_coding;
        wire->state = reply->chunked ? WIRE_CHUNK_SIZE : WIRE_UNTIL_CLOSE;
        if (!one || (!reply->chunked && !reply->identity)) {
            reply->head_done = false;
            reply->nonsense = true;
            broken(wire, reply, "the partner used a transfer coding that nobody asked for");
        }
    } else if (reply->has_length) {
        wire->left = reply->length;
        wire->state = wire->left == 0 ? WIRE_DONE : WIRE_LENGTH;
    } else {
        wire->keep_alive = false;
        wire->state = WIRE_UNTIL_CLOSE;
    }
}

static bool is_version(const char *line, size_t len)
{
    return len >= 9 && memcmp(line, "HTTP/1.", 7) == 0 && (line[7] == '0' || line[7] == '1') && line[8] == ' ';
}

/* HTAB excepted. A bare CR is a line end to some readers: what follows it would be a field to them (RFC 9112 section
 * 2.2). */
static bool has_control(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7F)
            return true;
    return false;
}

static void status_line(struct wire *wire, struct reply *reply, const char *line, size_t len)
{
    if (!is_version(line, len) || has_control(line, len)) {
        reply->nonsense = true;
        broken(wire, reply,
               is_version(line, len) ? "the partner's status line has a control character"
                                     : "the partner's answer is not HTTP/1.1");
        return;
    }
    wire->http10 = line[7] == '0';
    wire->state = WIRE_FIELDS;
    if (!reply_status_line(reply, line, len))
        wire->state = WIRE_BROKEN;
}

static void next_head(struct wire *wire)
{
    wire->state = WIRE_STATUS;
    wire->head_seen = 0;
}

static void field_line(struct wire *wire, struct reply *reply, const char *line, size_t len)
{
    if (len > 0) {
        bool second_cr = line[len - 1] == '\r'; /* the splitting would cut it */
        if (second_cr)
            reply->nonsense = true;
        if (second_cr)
            broken(wire, reply, "the partner sent a malformed header line");
        else if (!reply_field_line(reply, line, len))
            wire->state = WIRE_BROKEN;
        return;
    }
    if (!reply_head_end(reply))
        wire->state = WIRE_BROKEN;
    else if (!reply->head_done)
        next_head(wire); /* the real one follows */
    else
        begin_body(wire, reply);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Extensions are skipped: RFC 9112 section 7.1.1. */
static void chunk_size_line(struct wire *wire, struct reply *reply, const char *line, size_t len)
{
    uint64_t size = 0;
    size_t digits = 0;
    for (; digits < len && hex_digit(line[digits]) >= 0; digits++)
        size = size << 4 | (uint64_t)hex_digit(line[digits]);
    size_t after = digits;
    while (after < len && (line[after] == ' ' || line[after] == '\t'))
        after++;
    bool ended = after == len || line[after] == ';';
    if (digits == 0 || digits > SIZE_DIGITS_MAX || !ended || has_control(line, len)) {
        broken(wire, reply, "the partner sent a malformed chunk");
        return;
    }
    wire->left = size;
    wire->state = size == 0 ? WIRE_TRAILER : WIRE_CHUNK;
}

/* Its fields are dropped. After one that is none, two readers may differ on where the answer ends: the next call gets
 * another connection. */
static void trailer_line(struct wire *wire, const char *line, size_t len)
{
    struct header_field field;
    wire->loose += len;
    if (len == 0)
        wire->state = WIRE_DONE;
    else if (has_control(line, len) || !header_line_split(line, len, &field))
        wire->keep_alive = false;
}

static void on_line(struct wire *wire, struct reply *reply, const char *line, size_t len)
{
    if (len > 0 && line[len - 1] == '\r')
        len--;
    switch (wire->state) {
    case WIRE_STATUS:
        if (len > 0)
            status_line(wire, reply, line, len);
        break;
    case WIRE_FIELDS: field_line(wire, reply, line, len); break;
    case WIRE_CHUNK_SIZE: chunk_size_line(wire, reply, line, len); break;
    case WIRE_CHUNK_END:
        wire->state = WIRE_CHUNK_SIZE;
        if (len > 0)
            broken(wire, reply, "the partner sent a malformed chunk");
        break;
    default: trailer_line(wire, line, len); break;
    }
    if (wire->loose > LOOSE_MAX)
        broken(wire, reply, "the partner's trailer is too large");
}

/* May `more` bytes be added to the line, or to the head that it is of? */
static bool in_bounds(struct wire *wire, struct reply *reply, size_t more)
{
    if (wire->state != WIRE_STATUS && wire->state != WIRE_FIELDS) {
        if (wire->line_len + more <= LINE_MAX_BYTES)
            return true;
        broken(wire, reply, "the partner sent a line that is too long between or behind its chunks");
        return false;
    }
    wire->head_seen += more;
    if (wire->head_seen <= wire->head_max)
        return true;
    reply->nonsense = true;
    reply->too_large = wire->state == WIRE_FIELDS && reply->status >= 200;
    broken(wire, reply, "the head of the partner's answer is larger than limits.answer_headers");
    return false;
}

/* A line that came whole is looked at where it lies. */
static size_t take_line(struct wire *wire, struct reply *reply, const char *data, size_t len)
{
    const char *end = memchr(data, '\n', len);
    size_t taken = end == NULL ? len : (size_t)(end - data) + 1;
    size_t text = end == NULL ? len : taken - 1;
    if (!in_bounds(wire, reply, taken))
        return taken;
    if (wire->line_len == 0 && end != NULL) {
        on_line(wire, reply, data, text);
        return taken;
    }
    if (!keep_line(wire, data, text)) {
        broken(wire, reply, "out of memory");
        return taken;
    }
    if (end != NULL) {
        size_t whole = wire->line_len;
        wire->line_len = 0;
        on_line(wire, reply, wire->line, whole);
    }
    return taken;
}

static size_t take_body(struct wire *wire, const char *data, size_t len, struct slice *body)
{
    size_t taken = wire->state != WIRE_UNTIL_CLOSE && wire->left < len ? (size_t)wire->left : len;
    *body = (struct slice){data, taken};
    if (wire->state == WIRE_UNTIL_CLOSE)
        return taken;
    wire->left -= taken;
    if (wire->left == 0)
        wire->state = wire->state == WIRE_CHUNK ? WIRE_CHUNK_END : WIRE_DONE;
    return taken;
}

size_t wire_take(struct wire *wire, struct reply *reply, const char *data, size_t len, struct slice *body)
{
    *body = (struct slice){NULL, 0};
    switch (wire->state) {
    case WIRE_DONE:
    case WIRE_BROKEN: return 0;
    case WIRE_LENGTH:
    case WIRE_UNTIL_CLOSE:
    case WIRE_CHUNK: return len == 0 ? 0 : take_body(wire, data, len, body);
    default: return len == 0 ? 0 : take_line(wire, reply, data, len);
    }
}

void wire_closed(struct wire *wire)
{
    wire->keep_alive = false;
    if (wire->state == WIRE_UNTIL_CLOSE)
        wire->state = WIRE_DONE;
    else if (wire->state != WIRE_DONE)
        wire->state = WIRE_BROKEN;
}

void wire_free(struct wire *wire)
{
    free(wire->line);
    wire->line = NULL;
    wire->line_len = wire->line_cap = 0;
}
