/*
 * gateway/headers.c - judges a request's header fields and tells which fields of a message go on.
 *
 * Looks at bytes only and allocates nothing. Reading tokens and keys is token.c's, finding a route is route.c's,
 * and what the route adds or removes is its caller's.
 */
#include "gateway/headers.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define LENGTH_DIGITS_MAX 18 /* fits a uint64_t with room to spare: no overflow to think about */
#define IPV6_TEXT_MAX 45

/* Letters and digits 1, the other characters of an RFC 9110 token 2, else 0. */
static const unsigned char char_class[256] = {
    ['0'] = 1, ['1'] = 1, ['2'] = 1, ['3'] = 1, ['4'] = 1, ['5'] = 1, ['6'] = 1, ['7'] = 1,  ['8'] = 1, ['9'] = 1,
    ['A'] = 1, ['B'] = 1, ['C'] = 1, ['D'] = 1, ['E'] = 1, ['F'] = 1, ['G'] = 1, ['H'] = 1,  ['I'] = 1, ['J'] = 1,
    ['K'] = 1, ['L'] = 1, ['M'] = 1, ['N'] = 1, ['O'] = 1, ['P'] = 1, ['Q'] = 1, ['R'] = 1,  ['S'] = 1, ['T'] = 1,
    ['U'] = 1, ['V'] = 1, ['W'] = 1, ['X'] = 1, ['Y'] = 1, ['Z'] = 1, ['a'] = 1, ['b'] = 1,  ['c'] = 1, ['d'] = 1,
    ['e'] = 1, ['f'] = 1, ['g'] = 1, ['h'] = 1, ['i'] = 1, ['j'] = 1, ['k'] = 1, ['l'] = 1,  ['m'] = 1, ['n'] = 1,
    ['o'] = 1, ['p'] = 1, ['q'] = 1, ['r'] = 1, ['s'] = 1, ['t'] = 1, ['u'] = 1, ['v'] = 1,  ['w'] = 1, ['x'] = 1,
    ['y'] = 1, ['z'] = 1, ['!'] = 2, ['#'] = 2, ['$'] = 2, ['%'] = 2, ['&'] = 2, ['\''] = 2, ['*'] = 2, ['+'] = 2,
    ['-'] = 2, ['.'] = 2, ['^'] = 2, ['_'] = 2, ['`'] = 2, ['|'] = 2, ['~'] = 2,
};

static bool same_name(const char *text, size_t len, const char *name, size_t name_len)
{
    return len == name_len && strncasecmp(text, name, len) == 0;
}

size_t token_span(const char *text, size_t len)
{
    size_t i = 0;
    while (i < len && char_class[(unsigned char)text[i]] != 0)
        i++;
    return i;
}

bool token_chars(const char *text, size_t len)
{
    return len > 0 && token_span(text, len) == len;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static void trim(const char **text, size_t *len)
{
    while (*len > 0 && blank((*text)[0])) {
        (*text)++;
        (*len)--;
    }
    while (*len > 0 && blank((*text)[*len - 1]))
        (*len)--;
}

void header_trim(struct header_field *field)
{
    trim(&field->value, &field->value_len);
}

/* Eight at a time: most bytes of a head pass here. The top bit of some byte of `hits` is set if one is a control; of
 * another one perhaps too (a borrow), so it is right about none alone. */
size_t text_span(const char *text, size_t len)
{
    const uint64_t ones = UINT64_MAX / 255, tops = ones * 0x80;
    size_t i = 0;
    for (; len - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, text + i, sizeof word);
        uint64_t deleted = word ^ (ones * 0x7F);
        uint64_t hits = ((word - ones * 0x20) & ~word) | ((deleted - ones) & ~deleted);
        if ((hits & tops) != 0)
            break;
    }
    while (i < len && (unsigned char)text[i] >= 0x20 && text[i] != 0x7F)
        i++;
    return i;
}

/* Bytes above 0x7E pass (obs-text): values are the partner's to understand. */
static bool value_has_control(const char *text, size_t len)
{
    size_t i = 0;
    while (i < len && (i += text_span(text + i, len - i)) < len && text[i] == '\t')
        i++;
    return i < len;
}

static bool ipv6_valid(const char *text, size_t len)
{
    char copy[IPV6_TEXT_MAX + 1];
    struct in6_addr address;
    if (len == 0 || len > IPV6_TEXT_MAX || memchr(text, '\0', len) != NULL)
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return inet_pton(AF_INET6, copy, &address) == 1;
}

static bool port_valid(const char *text, size_t len)
{
    unsigned port = 0;
    if (len > 5)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        port = port * 10 + (unsigned)(text[i] - '0');
    }
    return port <= 65535;
}

bool authority_valid(const char *text, size_t len)
{
    size_t i = 0;
    if (len > 0 && text[0] == '[') {
        const char *close = memchr(text, ']', len);
        if (close == NULL || !ipv6_valid(text + 1, (size_t)(close - text - 1)))
            return false;
        i = (size_t)(close - text) + 1;
    } else {
        while (i < len && (char_class[(unsigned char)text[i]] == 1 || strchr("-._~", text[i]) != NULL) &&
               text[i] != '\0')
            i++;
        if (i == 0 || text[0] == '.')
            return false;
    }
    return i == len || (text[i] == ':' && port_valid(text + i + 1, len - i - 1));
}

static const char *screen_length(const struct header_field *field, struct screened *out)
{
    const char *text = field->value;
    size_t len = field->value_len;
    if (out->has_length)
        return "more than one Content-Length";
    trim(&text, &len);
    if (len == 0 || len > LENGTH_DIGITS_MAX)
        return "Content-Length is not 1 to 18 digits";
    uint64_t length = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return "Content-Length is not 1 to 18 digits";
        length = length * 10 + (uint64_t)(text[i] - '0');
    }
    out->has_length = true;
    out->length = length;
    return NULL;
}

static const char *screen_coding(const struct header_field *field, struct screened *out)
{
    const char *text = field->value;
    size_t len = field->value_len;
    trim(&text, &len);
    if (out->chunked || !same_name(text, len, "chunked", 7))
        return "Transfer-Encoding is not one \"chunked\"";
    out->chunked = true;
    return NULL;
}

static const char *screen_host(const struct header_field *field, struct screened *out)
{
    const char *text = field->value;
    size_t len = field->value_len;
    if (out->host != NULL)
        return "more than one Host";
    trim(&text, &len);
    if (!authority_valid(text, len))
        return "Host is not a host name with an optional port";
    out->host = field;
    return NULL;
}

static void screen_expect(const struct header_field *field, struct screened *out)
{
    const char *text = field->value;
    size_t len = field->value_len;
    trim(&text, &len);
    if (same_name(text, len, "100-continue", 12))
        out->expect_continue = true;
    else
        out->expect_unknown = true;
}

/* Takes the next element off a comma-separated list, blanks cut; false at its end. Elements may be empty. */
static bool list_next(const char **at, const char *end, const char **text, size_t *len)
{
    if (*at == NULL)
        return false;
    const char *comma = *at == end ? NULL : memchr(*at, ',', (size_t)(end - *at));
    const char *stop = comma == NULL ? end : comma;
    *text = *at;
    *len = (size_t)(stop - *at);
    trim(text, len);
    *at = comma == NULL ? NULL : comma + 1;
    return true;
}

static bool list_names(const struct header_field *field, const char *name, const char *other)
{
    if (field->value_len == 0)
        return false;
    const char *at = field->value, *text;
    const char *end = at + field->value_len;
    size_t len;
    while (list_next(&at, end, &text, &len))
        if (same_name(text, len, name, strlen(name)) || same_name(text, len, other, strlen(other)))
            return true;
    return false;
}

static void screen_connection(const struct header_field *field, struct screened *out)
{
    out->close = out->close || list_names(field, "close", "close");
    out->keep_alive = out->keep_alive || list_names(field, "keep-alive", "keep-alive");
}

/* Another name that becomes the same variable as `name` behind CGI or WSGI (RFC 3875 section 4.1.18). */
static bool is_twin(const struct header_field *field, const char *name)
{
    if (field->name_len != strlen(name) || header_is(field, name))
        return false;
    for (size_t i = 0; i < field->name_len; i++) {
        char one = field->name[i], other = name[i];
        bool both_signs = (one == '_' || one == '-') && (other == '_' || other == '-');
        if (!both_signs && strncasecmp(&one, &other, 1) != 0)
            return false;
    }
    return true;
}

static const char *screen_by_length(const struct header_field *field, struct screened *out)
{
    if (header_is(field, "Content-Length"))
        return screen_length(field, out);
    return is_twin(field, "Content-Length") ? "a header is named Content_Length" : NULL;
}

static const char *screen_by_coding(const struct header_field *field, struct screened *out)
{
    if (header_is(field, "Transfer-Encoding"))
        return screen_coding(field, out);
    return is_twin(field, "Transfer-Encoding") ? "a header is named Transfer_Encoding" : NULL;
}

static const char *frame_field(const struct header_field *field, struct screened *out)
{
    switch (field->name_len) {
    case 4: return header_is(field, "Host") ? screen_host(field, out) : NULL;
    case 6:
        if (header_is(field, "Expect"))
            screen_expect(field, out);
        return NULL;
    case 10:
        if (header_is(field, "Connection"))
            screen_connection(field, out);
        return NULL;
    case 14: return screen_by_length(field, out);
    case 17: return screen_by_coding(field, out);
    default: return NULL;
    }
}

void headers_frame(const struct header_field *fields, size_t count, bool http10, struct screened *out)
{
    *out = (struct screened){0};
    for (size_t i = 0; i < count && out->problem == NULL; i++)
        out->problem = frame_field(&fields[i], out);
    if (out->problem != NULL)
        return;
    if (out->chunked && out->has_length)
        out->problem = "both Content-Length and Transfer-Encoding";
    else if (out->chunked && http10)
        out->problem = "Transfer-Encoding in an HTTP/1.0 request";
    else if (out->host == NULL && !http10)
        out->problem = "no Host";
    if (http10)
        out->expect_continue = false; /* an HTTP/1.0 client does not understand 100 (RFC 9110 section 10.1.1) */
}

void headers_screen(const struct header_field *fields, size_t count, const char *method, const char *version,
                    struct screened *out)
{
    const char *problem = token_chars(method, strlen(method)) ? NULL : "the method is not a token";
    for (size_t i = 0; i < count && problem == NULL; i++) {
        if (!token_chars(fields[i].name, fields[i].name_len))
            problem = "a header name is not a token";
        else if (value_has_control(fields[i].value, fields[i].value_len))
            problem = "a header value has a control character";
    }
    headers_frame(fields, problem == NULL ? count : 0, strcmp(version, "HTTP/1.0") == 0, out);
    if (problem != NULL)
        out->problem = problem;
}

void headers_find_fence(const struct header_field *fields, size_t count, const char *token_header,
                        const char *key_header, struct screened *out)
{
    out->token = NULL;
    out->key = NULL;
    out->token_doubled = false;
    out->key_doubled = false;
    out->connection_names_fence = false;
    out->fence_twin = false;
    for (size_t i = 0; i < count; i++) {
        const struct header_field *field = &fields[i];
        if (header_is(field, token_header)) {
            out->token_doubled = out->token != NULL;
            if (out->token == NULL)
                out->token = field;
        } else if (header_is(field, key_header)) {
            out->key_doubled = out->key != NULL;
            if (out->key == NULL)
                out->key = field;
        } else if (header_is(field, "Connection") && list_names(field, token_header, key_header)) {
            out->connection_names_fence = true;
        } else if (is_twin(field, token_header) || is_twin(field, key_header)) {
            out->fence_twin = true;
        }
    }
}

bool headers_override_method(const struct header_field *fields, size_t count)
{
    static const char *const names[] = {"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"};
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < sizeof names / sizeof names[0]; j++)
            if (header_is(&fields[i], names[j]) || is_twin(&fields[i], names[j]))
                return true;
    return false;
}

void hop_names_add(struct hop_names *hops, const char *value, size_t len)
{
    if (len == 0)
        return;
    const char *at = value, *text;
    const char *end = value + len;
    size_t text_len;
    while (list_next(&at, end, &text, &text_len)) {
        if (text_len == 0)
            continue;
        if (hops->count == sizeof hops->item / sizeof hops->item[0]) {
            hops->overflow = true;
            return;
        }
        hops->item[hops->count++] = (struct header_field){.name = text, .name_len = text_len};
    }
}

void hop_names_collect(const struct header_field *fields, size_t count, struct hop_names *out)
{
    out->count = 0;
    out->overflow = false;
    for (size_t i = 0; i < count; i++)
        if (fields[i].name_len == 10 && header_is(&fields[i], "Connection"))
            hop_names_add(out, fields[i].value, fields[i].value_len);
}

static bool hop_by_hop(const struct header_field *field)
{
    switch (field->name_len) {
    case 2: return header_is(field, "TE");
    case 7: return header_is(field, "Trailer") || header_is(field, "Upgrade");
    case 10: return header_is(field, "Connection") || header_is(field, "Keep-Alive");
    case 14: return header_is(field, "Content-Length");
    case 16: return header_is(field, "Proxy-Connection");
    case 17: return header_is(field, "Transfer-Encoding");
    case 18: return header_is(field, "Proxy-Authenticate");
    case 19: return header_is(field, "Proxy-Authorization");
    default: return false;
    }
}

static bool passes(const struct header_field *field, const struct hop_names *hops)
{
    if (hop_by_hop(field))
        return false;
    for (size_t i = 0; i < hops->count; i++)
        if (same_name(field->name, field->name_len, hops->item[i].name, hops->item[i].name_len))
            return false;
    return true;
}

bool headers_pass_request(const struct header_field *field, const struct hop_names *hops)
{
    if (field->name_len == 4 && header_is(field, "Host"))
        return false;
    if (field->name_len == 6 && header_is(field, "Expect"))
        return false;
    return passes(field, hops);
}

bool headers_pass_response(const struct header_field *field, const struct hop_names *hops)
{
    static const char ours[] = "Fencegate-";
    if (field->name_len >= sizeof ours - 1 && strncasecmp(field->name, ours, sizeof ours - 1) == 0)
        return false;
    return passes(field, hops);
}

bool header_line_split(const char *line, size_t len, struct header_field *out)
{
    if (len > 0 && line[len - 1] == '\n')
        len--;
    if (len > 0 && line[len - 1] == '\r')
        len--;
    size_t name_len = token_span(line, len);
    if (name_len == 0 || name_len == len || line[name_len] != ':')
        return false;
    struct header_field field = {line, name_len, line + name_len + 1, len - name_len - 1};
    if (value_has_control(field.value, field.value_len))
        return false;
    header_trim(&field);
    *out = field;
    return true;
}

static bool has_word(const char *text, size_t len, const char *word)
{
    size_t word_len = strlen(word);
    for (size_t at = 0; at < len;) {
        size_t span = token_span(text + at, len - at);
        if (span == word_len && strncasecmp(text + at, word, span) == 0)
            return true;
        at += span == 0 ? 1 : span;
    }
    return false;
}

bool headers_passed_by(const struct header_field *fields, size_t count, const char *pseudonym)
{
    for (size_t i = 0; i < count; i++)
        if (header_is(&fields[i], "Via") && has_word(fields[i].value, fields[i].value_len, pseudonym))
            return true;
    return false;
}
