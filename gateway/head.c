/* gateway/head.c - see head.h. One pass over the bytes of a head that comes in one piece; else each line is judged once
 * as it comes, and all are read once more when the last is there. */
#include "gateway/head.h"

#include <string.h>

#include "gateway/headers.h"

struct cursor {
    const char *at, *end;
    const char *problem;
};

static enum head_verdict broken(struct cursor *cursor, const char *problem)
{
    cursor->problem = problem;
    return HEAD_BROKEN;
}

/* To the first byte that is a control (HTAB too), or the end. */
static const char *skip_text(const char *at, const char *end)
{
    return at + text_span(at, (size_t)(end - at));
}

/* ---- the request line ---- */

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static enum head_verdict read_version(struct cursor *cursor, struct head *out)
{
    const char *at = cursor->at;
    size_t len = (size_t)(cursor->end - at);
    static const char shape[] = "HTTP/d.d\r\n";
    for (size_t i = 0; i < sizeof shape - 1; i++) {
        if (i == len)
            return HEAD_MORE;
        if (shape[i] == 'd' ? !digit(at[i]) : at[i] != shape[i])
            return broken(cursor, "the request line does not end in a version and CRLF");
    }
    cursor->at += sizeof shape - 1;
    out->http10 = at[7] == '0';
    return at[5] == '1' && (at[7] == '0' || at[7] == '1') ? HEAD_WHOLE : HEAD_FOREIGN_VERSION;
}

/* HEAD_WHOLE: the line is. */
static enum head_verdict read_request_line(struct cursor *cursor, const struct head_limits *limits, struct head *out)
{
    const char *at = cursor->at, *end = cursor->end;
    out->method = (struct slice){at, token_span(at, (size_t)(end - at))};
    at += out->method.len;
    if (at == end)
        return HEAD_MORE;
    if (*at != ' ' || out->method.len == 0)
        return broken(cursor, "the method is not a token");
    const char *target = ++at;
    const char *stop = skip_text(at, end);
    const char *blank = memchr(at, ' ', (size_t)(stop - at));
    at = blank == NULL ? stop : blank;
    out->target = (struct slice){target, (size_t)(at - target)};
    if (out->target.len > limits->target)
        return HEAD_TARGET_TOO_LONG;
    if (at == end)
        return HEAD_MORE;
    if (blank == NULL || blank == target)
        return broken(cursor, "the request line is not method, target and version");
    cursor->at = blank + 1;
    return read_version(cursor, out);
}

/* ---- fields ---- */

/* What stands where a name's colon should. */
static const char *name_problem(char c)
{
    if (c == ' ' || c == '\t')
        return "a header name is followed, or a line begun, by a blank";
    return c == '\r' || c == '\n' ? "a line of the head is no header field" : "a header name is not a token";
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

/* HEAD_WHOLE: a field was read. */
static enum head_verdict read_field(struct cursor *cursor, struct header_field *field)
{
    const char *at = cursor->at, *end = cursor->end;
    field->name = at;
    field->name_len = token_span(at, (size_t)(end - at));
    at += field->name_len;
    if (at == end)
        return HEAD_MORE;
    if (*at != ':' || field->name_len == 0)
        return broken(cursor, *at == ':' ? "a header field has no name" : name_problem(*at));
    do
        at++;
    while (at < end && blank(*at));
    const char *value = at;
    do
        at = skip_text(at, end);
    while (at < end && *at == '\t' && ++at);
    if (at == end || (*at == '\r' && at + 1 == end))
        return HEAD_MORE;
    if (*at != '\r')
        return broken(cursor, *at == '\n' ? "a line of the head does not end by CRLF"
                                          : "a header value has a control character");
    if (at[1] != '\n')
        return broken(cursor, "a header value has a control character");
    cursor->at = at + 2;
    while (at > value && blank(at[-1]))
        at--;
    field->value = value;
    field->value_len = (size_t)(at - value);
    return HEAD_WHOLE;
}

/* From a line's begin on; HEAD_WHOLE: up to and with the empty line. */
static enum head_verdict read_fields(struct cursor *cursor, struct head *out)
{
    for (;;) {
        if (cursor->at == cursor->end)
            return HEAD_MORE;
        if (*cursor->at == '\r') {
            if (cursor->at + 1 == cursor->end)
                return HEAD_MORE;
            if (cursor->at[1] != '\n')
                return broken(cursor, "a line of the head is no header field");
            cursor->at += 2;
            return HEAD_WHOLE;
        }
        if (out->count == HEAD_FIELDS_MAX)
            return HEAD_TOO_LARGE;
        enum head_verdict verdict = read_field(cursor, &out->fields[out->count]);
        if (verdict != HEAD_WHOLE)
            return verdict;
        out->count++;
    }
}

/* ---- the head ---- */

/* Empty lines before a request are skipped: RFC 9112 section 2.2. */
static const char *skip_empty_lines(const char *at, const char *end)
{
    while (end - at >= 2 && at[0] == '\r' && at[1] == '\n')
        at += 2;
    return at;
}

static enum head_verdict read_lines(struct head_progress *progress, struct cursor *cursor, const char *bytes,
                                    const struct head_limits *limits, struct head *out)
{
    enum head_verdict verdict;
    out->count = 0;
    if (progress->line == 0) {
        cursor->at = skip_empty_lines(bytes, cursor->end);
        if (cursor->at == cursor->end || (*cursor->at == '\r' && cursor->at + 1 == cursor->end))
            return HEAD_MORE;
        verdict = read_request_line(cursor, limits, out);
        if (verdict != HEAD_WHOLE)
            return verdict;
    } else {
        cursor->at = bytes + progress->line;
    }
    verdict = read_fields(cursor, out);
    progress->line = (size_t)(cursor->at - bytes);
    return verdict;
}

enum head_verdict head_read(struct head_progress *progress, const char *bytes, size_t len,
                            const struct head_limits *limits, struct head *out)
{
    struct cursor cursor = {bytes, bytes + len, NULL};
    bool resumed = progress->line != 0;
    enum head_verdict verdict = HEAD_MORE;
    if (progress->seen == 0 || memchr(bytes + progress->seen, '\n', len - progress->seen) != NULL)
        verdict = read_lines(progress, &cursor, bytes, limits, out);
    out->problem = cursor.problem;
    progress->seen = len;
    if (verdict == HEAD_MORE && len > limits->head)
        return progress->line == 0 ? HEAD_TARGET_TOO_LONG : HEAD_TOO_LARGE;
    if (verdict != HEAD_WHOLE)
        return verdict;
    out->size = (size_t)(cursor.at - bytes);
    if (out->size > limits->head)
        return HEAD_TOO_LARGE;
    if (!resumed)
        return HEAD_WHOLE;
    *progress = (struct head_progress){0, 0};
    return head_read(progress, bytes, len, limits, out); /* the lines before were judged, not kept */
}
