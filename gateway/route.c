/*
 * gateway/route.c - finds the route for a request target and makes the target to send.
 *
 * The raw bytes decide, and go on as they came. Decoded spellings are only looked at to refuse a target that
 * another reader (the partner's server, a proxy behind us) would take for a path under another route's rules.
 * They are compared character by character as they unfold: no copy, whatever the target's length.
 */
#include "gateway/route.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "config/config.h"
#include "gateway/headers.h"

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The byte that "%XX" at `at` stands for; -1 when it is no percent-encoding. */
static int decode(const char *at, const char *end)
{
    if (end - at < 3 || at[0] != '%')
        return -1;
    int high = hex_value(at[1]), low = hex_value(at[2]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool unreserved(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

/* Everything but the path's own rules: visible ASCII without a fragment. */
static bool target_bytes_valid(const char *raw, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (raw[i] <= 0x20 || raw[i] >= 0x7F || raw[i] == '#')
            return false;
    return true;
}

/* Broken percent-encoding, encoded control bytes and dot segments; the latter also where only a server that
 * decodes first, or takes '\' or ';' for a border, would see one. */
static bool path_valid(const char *path, size_t len)
{
    const char *at = path, *end = path + len;
    size_t dots = 0, others = 0;
    while (at < end) {
        int c = (unsigned char)*at;
        size_t step = 1;
        if (c == '%') {
            c = decode(at, end);
            if (c < 0x20 || c == 0x7F)
                return false;
            step = 3;
        }
        if (c == '/' || c == '\\' || c == ';') {
            if (others == 0 && (dots == 1 || dots == 2))
                return false;
            dots = others = 0;
        } else if (c == '.') {
            dots++;
        } else {
            others++;
        }
        at += step;
    }
    return others != 0 || (dots != 1 && dots != 2);
}

/* Length of "http://" or "https://" at the start of `raw`; 0: neither. */
static size_t scheme_len(const char *raw, size_t len)
{
    if (len >= 7 && strncasecmp(raw, "http://", 7) == 0)
        return 7;
    if (len >= 8 && strncasecmp(raw, "https://", 8) == 0)
        return 8;
    return 0;
}

enum target_verdict target_split(const char *raw, size_t len, struct target *out)
{
    struct target target = {0};
    const char *at = raw, *end = raw + len;
    if (len == 0 || !target_bytes_valid(raw, len))
        return TARGET_MALFORMED;
    if (*at != '/') {
        at += scheme_len(raw, len);
        if (at == raw)
            return TARGET_MALFORMED;
        target.host = at;
        while (at < end && *at != '/' && *at != '?')
            at++;
        target.host_len = (size_t)(at - target.host);
        if (!authority_valid(target.host, target.host_len))
            return TARGET_MALFORMED;
    }
    const char *query = at == end ? NULL : memchr(at, '?', (size_t)(end - at));
    target.path = at;
    target.path_len = (size_t)((query == NULL ? end : query) - at);
    if (query != NULL) {
        target.query = query;
        target.query_len = (size_t)(end - query);
    }
    if (target.path_len == 0) {
        target.path = "/";
        target.path_len = 1;
    }
    if (!path_valid(target.path, target.path_len)) /* encoded bytes of a query are data */
        return TARGET_MALFORMED;
    *out = target;
    return TARGET_OK;
}

/* Spellings of one path, from what was sent to what the laxest reader might make of it. */
enum spelling {
    SPELLING_RAW,
    SPELLING_PLAIN, /* unreserved characters decoded, parameters cut, slashes joined */
    SPELLING_WIDE,  /* all decoded, '\' read as '/', parameters cut, slashes joined */
};

struct cursor {
    const char *at, *end;
    enum spelling spelling;
    bool after_slash; /* the last character given was '/' */
};

/* One character, decoded as the spelling asks. */
static int cursor_char(struct cursor *cursor)
{
    int c = (unsigned char)*cursor->at;
    int decoded = c == '%' ? decode(cursor->at, cursor->end) : -1;
    if (decoded >= 0 && (cursor->spelling == SPELLING_WIDE || unreserved(decoded))) {
        cursor->at += 3;
        c = decoded;
    } else {
        cursor->at++;
    }
    return c == '\\' && cursor->spelling == SPELLING_WIDE ? '/' : c;
}

/* The next character of the path in the cursor's spelling; -1 at its end. */
static int cursor_next(struct cursor *cursor)
{
    if (cursor->spelling == SPELLING_RAW)
        return cursor->at < cursor->end ? (unsigned char)*cursor->at++ : -1;
    bool cut = false;
    while (cursor->at < cursor->end) {
        int c = cursor_char(cursor);
        if (c == '/') {
            cut = false;
            if (cursor->after_slash)
                continue;
        } else if (c == ';') {
            cut = true;
        }
        if (cut)
            continue;
        cursor->after_slash = c == '/';
        return c;
    }
    return -1;
}

/* `path` has no slash at its end; it must stop at a segment's border of the target. */
static bool path_matches(const char *path, const struct target *target, enum spelling spelling)
{
    struct cursor cursor = {.at = target->path, .end = target->path + target->path_len, .spelling = spelling};
    for (; *path != '\0'; path++)
        if (cursor_next(&cursor) != (unsigned char)*path)
            return false;
    int border = cursor_next(&cursor);
    return border == '/' || border == -1;
}

struct authority {
    const char *name, *port; /* the port is NULL when there is none */
    size_t name_len, port_len;
};

static struct authority authority_split(const char *text, size_t len)
{
    struct authority out = {.name = text, .name_len = len};
    for (size_t i = len; i > 0 && text[i - 1] != ']'; i--) {
        if (text[i - 1] != ':')
            continue;
        out.name_len = i - 1;
        if (i < len) {
            out.port = text + i;
            out.port_len = len - i;
        }
        break;
    }
    if (out.name_len > 0 && out.name[out.name_len - 1] == '.')
        out.name_len--;
    return out;
}

static bool host_matches(const char *route_host, const struct authority *host)
{
    struct authority want = authority_split(route_host, strlen(route_host));
    if (want.name_len != host->name_len || strncasecmp(want.name, host->name, want.name_len) != 0)
        return false;
    if (want.port == NULL)
        return true;
    if (host->port == NULL) /* clients leave the scheme's own port out */
        return want.port_len == 2 && memcmp(want.port, "80", 2) == 0;
    return want.port_len == host->port_len && memcmp(want.port, host->port, want.port_len) == 0;
}

/* The better of two routes that match: with a host before without, then the longer path, then with a port. */
static bool better(const struct config_route *route, const struct config_route *than)
{
    if ((route->host != NULL) != (than->host != NULL))
        return route->host != NULL;
    size_t len = strlen(route->path), than_len = strlen(than->path);
    if (len != than_len)
        return len > than_len;
    return route->host != NULL && strlen(route->host) > strlen(than->host);
}

static const struct config_route *best(const struct config_route *routes, size_t count, const struct authority *host,
                                       const struct target *target, enum spelling spelling)
{
    const struct config_route *found = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct config_route *route = &routes[i];
        if (found != NULL && !better(route, found))
            continue;
        if (route->host != NULL && !host_matches(route->host, host))
            continue;
        if (path_matches(route->path, target, spelling))
            found = route;
    }
    return found;
}

/* True when the path has a single spelling: nothing to decode, cut or join. */
static bool single_spelling(const struct target *target)
{
    for (size_t i = 0; i < target->path_len; i++) {
        char c = target->path[i];
        if (c == '%' || c == ';' || c == '\\' || (c == '/' && i > 0 && target->path[i - 1] == '/'))
            return false;
    }
    return true;
}

enum route_verdict route_match(const struct config_route *routes, size_t count, const char *host, size_t host_len,
                               const struct target *target, const struct config_route **out)
{
    struct authority authority = authority_split(host, host == NULL ? 0 : host_len);
    const struct config_route *found = best(routes, count, &authority, target, SPELLING_RAW);
    if (!single_spelling(target)) {
        const struct config_route *plain = best(routes, count, &authority, target, SPELLING_PLAIN);
        if (plain != NULL && plain != found)
            return ROUTE_AMBIGUOUS;
        /* What matches no route goes nowhere, so the wide spelling matters only where one was found. */
        const struct config_route *wide = found == NULL ? NULL : best(routes, count, &authority, target, SPELLING_WIDE);
        if (wide != NULL && wide != found)
            return ROUTE_AMBIGUOUS;
    }
    if (found == NULL)
        return ROUTE_NONE;
    *out = found;
    return ROUTE_OK;
}

struct writer {
    char *out;
    size_t len, cap;
    bool full;
};

static void put(struct writer *writer, const char *text, size_t len)
{
    if (writer->full || len >= writer->cap - writer->len) {
        writer->full = true;
        return;
    }
    if (len > 0)
        memcpy(writer->out + writer->len, text, len);
    writer->len += len;
}

size_t route_rewrite(const struct config_route *route, const struct target *target, char *out, size_t cap)
{
    struct writer writer = {.out = out, .cap = cap, .full = cap == 0};
    size_t cut = route->strip_path ? strlen(route->path) : 0;
    if (cut > target->path_len) /* not a target of this route: can't be after route_match() */
        cut = target->path_len;
    put(&writer, route->upstream_path, strlen(route->upstream_path));
    put(&writer, target->path + cut, target->path_len - cut);
    if (!writer.full && writer.len == 0)
        put(&writer, "/", 1);
    put(&writer, target->query, target->query_len);
    if (writer.full)
        return 0;
    out[writer.len] = '\0';
    return writer.len;
}
