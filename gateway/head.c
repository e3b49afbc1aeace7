/* gateway/head.c - see head.h. What a field or a target may hold is judged elsewhere (headers.c, route.c). */
#include "gateway/head.h"

#include <string.h>

#include "gateway/headers.h"

/* "HTTP/d.d" but neither 1.0 nor 1.1. Anything else at the end of the line is libmicrohttpd's to refuse. */
static bool foreign_version(const char *line, size_t len)
{
    const char *at = line + len - 8;
    if (len < 8 || memcmp(at, "HTTP/", 5) != 0 || at[5] < '0' || at[5] > '9' || at[6] != '.' || at[7] < '0' ||
        at[7] > '9')
        return false;
    return at[5] != '1' || (at[7] != '0' && at[7] != '1');
}

static enum glance glance_at_line(const char *line, size_t len, const struct glance_limits *limits)
{
    while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' '))
        len--;
    if (foreign_version(line, len))
        return GLANCE_VERSION;
    const char *blank = memchr(line, ' ', len);
    if (blank == NULL)
        return GLANCE_PASS;
    const char *last = memrchr(line, ' ', len);
    const char *end = last > blank ? last : line + len;
    return (size_t)(end - blank) - 1 > limits->target ? GLANCE_TARGET_TOO_LONG : GLANCE_PASS;
}

/* Bytes up to the end of the empty line; 0: it is not there yet. Counts the lines. */
static size_t head_size(const char *bytes, size_t len, size_t *lines)
{
    const char *at = bytes, *end = bytes + len;
    for (*lines = 0; at < end; ++*lines) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        if (lf == NULL)
            return 0;
        if (*lines > 0 && (lf == at || (lf == at + 1 && *at == '\r')))
            return (size_t)(lf - bytes) + 1;
        at = lf + 1;
    }
    return 0;
}

enum glance head_glance(const char *bytes, size_t len, const struct glance_limits *limits)
{
    while (len > 0 && (*bytes == '\r' || *bytes == '\n')) {
        bytes++;
        len--;
    }
    const char *lf = memchr(bytes, '\n', len);
    if (lf == NULL)
        return len > limits->head ? GLANCE_TARGET_TOO_LONG : GLANCE_MORE;
    enum glance line = glance_at_line(bytes, (size_t)(lf - bytes), limits);
    if (line != GLANCE_PASS)
        return line;
    size_t lines;
    size_t size = head_size(bytes, len, &lines);
    if (size == 0)
        return len > limits->head ? GLANCE_HEAD_TOO_LARGE : GLANCE_MORE;
    bool fits = size <= limits->head && lines <= HEAD_FIELDS_MAX && size + lines * HEAD_FIELD_COST <= limits->memory;
    return fits ? GLANCE_PASS : GLANCE_HEAD_TOO_LARGE;
}

/* The next line without its CRLF. NULL: it ends by a bare LF, or not at all. */
static const char *next_line(const char **at, const char *end, size_t *len)
{
    const char *line = *at;
    const char *lf = memchr(line, '\n', (size_t)(end - line));
    if (lf == NULL || lf == line || lf[-1] != '\r')
        return NULL;
    *at = lf + 1;
    *len = (size_t)(lf - line) - 1;
    return line;
}

static const char *split_fields(const char *at, const char *end, struct header_field *fields, size_t *count)
{
    size_t len;
    for (*count = 0; *count <= HEAD_FIELDS_MAX; ++*count) {
        const char *line = next_line(&at, end, &len);
        if (line == NULL)
            return "a line of the head does not end by CRLF";
        if (len == 0)
            return NULL;
        if (*line == ' ' || *line == '\t')
            return "a header field is folded";
        const char *colon = memchr(line, ':', len);
        if (colon == NULL)
            return "a line of the head is no header field";
        if (*count == HEAD_FIELDS_MAX)
            break;
        fields[*count] =
            (struct header_field){line, (size_t)(colon - line), colon + 1, len - (size_t)(colon + 1 - line)};
        header_trim(&fields[*count]);
    }
    return NULL; /* too many: refused for that */
}

const char *head_problem(const char *bytes, size_t len)
{
    const char *at = bytes, *end = bytes + len;
    while (at < end && (*at == '\r' || *at == '\n'))
        at++;
    size_t line_len, count;
    const char *line = next_line(&at, end, &line_len);
    if (line == NULL)
        return "a line of the head does not end by CRLF";
    const char *blank = memchr(line, ' ', line_len);
    if (blank != NULL && !token_chars(line, (size_t)(blank - line)))
        return "the method is not a token";
    const char *second = blank == NULL ? NULL : memchr(blank + 1, ' ', line_len - (size_t)(blank + 1 - line));
    if (second == NULL || second == blank + 1 ||
        memchr(second + 1, ' ', line_len - (size_t)(second + 1 - line)) != NULL)
        return "the request line is not method, target and version";
    const char *version = second + 1;
    size_t version_len = line_len - (size_t)(version - line);
    if (version_len != 8 || (memcmp(version, "HTTP/1.1", 8) != 0 && memcmp(version, "HTTP/1.0", 8) != 0))
        return "the version is neither HTTP/1.1 nor HTTP/1.0";
    struct header_field fields[HEAD_FIELDS_MAX];
    const char *problem = split_fields(at, end, fields, &count);
    if (problem != NULL)
        return problem;
    struct screened screened;
    headers_screen(fields, count, "GET", version[7] == '0' ? "HTTP/1.0" : "HTTP/1.1", &screened);
    return screened.problem;
}

struct cursor {
    const char *at, *end;
};

static bool take(struct cursor *cursor, const char *text, size_t len)
{
    if (text != cursor->at || len > (size_t)(cursor->end - cursor->at))
        return false;
    cursor->at += len;
    return true;
}

static bool take_nuls(struct cursor *cursor, size_t count)
{
    for (; count > 0; count--) {
        if (cursor->at == cursor->end || *cursor->at != '\0')
            return false;
        cursor->at++;
    }
    return true;
}

static void skip_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\t'))
        cursor->at++;
}

static bool take_field(struct cursor *cursor, const struct header_field *field)
{
    if (!take(cursor, field->name, field->name_len) || !take_nuls(cursor, 1))
        return false;
    skip_blanks(cursor);
    if (field->value_len > 0 && !take(cursor, field->value, field->value_len))
        return false;
    skip_blanks(cursor);
    return take_nuls(cursor, 2);
}

bool head_is_exact(const char *head, size_t size, const struct head_parts *parts)
{
    struct cursor cursor = {head, head + size};
    if (!take(&cursor, cursor.at, parts->method_len) || !take_nuls(&cursor, 1) ||
        !take(&cursor, cursor.at, parts->target_len) || !take_nuls(&cursor, 1) ||
        !take(&cursor, cursor.at, parts->version_len) || !take_nuls(&cursor, 2))
        return false;
    for (size_t i = 0; i < parts->count; i++)
        if (!take_field(&cursor, &parts->fields[i]))
            return false;
    return take_nuls(&cursor, 2) && cursor.at == cursor.end;
}
