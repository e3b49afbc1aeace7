/*
 * config/route_text.c - names, paths, hosts, the upstream's URL and header lists of a route.
 *
 * What hosts, paths and header names may look like is net.c's; what must hold between keys is route_config.c's.
 */
#include "config/route_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/config.h"
#include "config/net.h"
#include "config/secret.h"
#include "config/units.h"

#define HEADER_NAME_MAX 128
#define METHOD_MAX 32

/* The text of a string value, else the default; NULL also when a value is there that is no string. */
static const char *text_of(const json_t *value, const struct conf_field *field)
{
    return value != NULL ? json_string_value(value) : field->text;
}

void conf_read_name(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                    const struct conf_field *field, void *to)
{
    const char *text = text_of(value, field);
    size_t len = text != NULL ? strlen(text) : 0;
    if (len < 1 || len > 64 || strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != len)
        conf_fail_value(reader, at, value, "1 to 64 of A-Z a-z 0-9 . _ -");
    else
        *(const char **)to = conf_store_text(reader, text, len);
}

void conf_read_route_path(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                          const struct conf_field *field, void *to)
{
    const char *text = text_of(value, field);
    size_t len = text != NULL ? strlen(text) : 0;
    const char *problem = conf_route_path_problem(text, len);
    if (problem != NULL) {
        conf_fail_value(reader, at, value, problem);
        return;
    }
    if (text[len - 1] == '/')
        len--;
    *(const char **)to = conf_store_text(reader, text, len);
}

void conf_read_route_host(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                          const struct conf_field *field, void *to)
{
    struct conf_authority authority;
    if (value == NULL)
        return;
    const char *text = text_of(value, field);
    const char *problem = "a host such as \"stripe.internal\"";
    if (text != NULL)
        problem = conf_authority_problem(text, strlen(text), true, &authority);
    if (problem != NULL) {
        conf_fail_value(reader, at, value, problem);
        return;
    }
    char joined[288];
    int len = snprintf(joined, sizeof(joined), "%.*s", (int)authority.host_len, authority.host);
    if (authority.port != 0)
        len += snprintf(joined + len, sizeof(joined) - (size_t)len, ":%u", authority.port);
    *(const char **)to = conf_store_lower(reader, joined, (size_t)len);
}

/* Takes the URL apart. Returns what was expected, or NULL when it is fine and `route` is filled. */
static const char *split_upstream(struct conf_reader *reader, const char *url, struct config_route *route)
{
    struct conf_authority authority;
    size_t scheme = strncasecmp(url, "https://", 8) == 0 ? 8 : strncasecmp(url, "http://", 7) == 0 ? 7 : 0;
    if (scheme == 0)
        return "a URL that starts with \"https://\" or \"http://\"";
    const char *start = url + scheme;
    size_t len = strcspn(start, "/?#");
    if (memchr(start, '@', len) != NULL)
        return "a URL without user name and password (use request_headers.set)";
    const char *problem = conf_authority_problem(start, len, false, &authority);
    if (problem != NULL)
        return problem;
    const char *path = start + len;
    size_t path_len = strlen(path);
    problem = conf_upstream_path_problem(path, path_len);
    if (problem != NULL)
        return problem;
    if (path_len > 0 && path[path_len - 1] == '/')
        path_len--;
    if (path_len > 0 && path[path_len - 1] == '/')
        return "at most one slash at the end";

    char origin[288];
    int used = snprintf(origin, sizeof(origin), "%s%.*s", scheme == 8 ? "https://" : "http://", (int)authority.host_len,
                        authority.host);
    /* The scheme's own port is left out, as clients do: it would show in Host, which some partners sign. */
    if (authority.port != 0 && authority.port != (scheme == 8 ? 443 : 80))
        used += snprintf(origin + used, sizeof(origin) - (size_t)used, ":%u", authority.port);
    route->upstream_origin = conf_store_lower(reader, origin, (size_t)used);
    route->upstream_path = conf_store_text(reader, path, path_len);
    return NULL;
}

void conf_read_upstream(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                        const struct conf_field *field, void *to)
{
    const char *url = text_of(value, field);
    if (url == NULL) {
        conf_fail_type(reader, at, value, "a URL such as \"https://api.example.com\"");
        return;
    }
    /* The URL itself is not shown: people write passwords into URLs. */
    const char *problem = split_upstream(reader, url, to);
    if (problem != NULL)
        conf_fail(reader, at, "expected %s", problem);
}

void conf_read_max_jump(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                        const struct conf_field *field, void *to)
{
    const char *text = text_of(value, field);
    if (value == NULL)
        return;
    uint64_t jump = 0;
    if (text == NULL || !conf_parse_digits(text, strlen(text), &jump) || jump == 0)
        conf_fail_value(
            reader, at, value,
            "a string of digits from \"1\" to \"18446744073709551615\" (as a JSON number it could be rounded)");
    else
        *(uint64_t *)to = jump;
}

/* Reads an array of strings that `problem` accepts. */
static void read_list(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                      const char *(*problem)(const char *text), const char *const **to)
{
    size_t count = json_array_size(value);
    if (value != NULL && !json_is_array(value)) {
        conf_fail_type(reader, at, value, "an array of strings");
        return;
    }
    const char **list = conf_store_array(reader, count + 1, sizeof(*list));
    for (size_t i = 0; i < count && list != NULL; i++) {
        const struct conf_where here = {at, NULL, i};
        json_t *item = json_array_get(value, i);
        const char *text = json_string_value(item);
        const char *expected = text != NULL ? problem(text) : "a string";
        if (expected != NULL) {
            conf_fail_value(reader, &here, item, expected);
            return;
        }
        list[i] = conf_store_text(reader, text, strlen(text));
    }
    *to = list;
}

static const char *method_problem(const char *text)
{
    if (!conf_is_token(text) || strlen(text) > METHOD_MAX)
        return "an HTTP method";
    /* "get" would leave every GET fenced without a word: methods are case-sensitive. */
    return strpbrk(text, "abcdefghijklmnopqrstuvwxyz") != NULL ? "an HTTP method in capitals" : NULL;
}

void conf_read_methods(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                       const struct conf_field *field, void *to)
{
    (void)field;
    read_list(reader, at, value, method_problem, to);
}

static const char *header_problem(const char *name)
{
    if (!conf_is_token(name) || strlen(name) > HEADER_NAME_MAX)
        return "a header name (letters, digits and \"-\")";
    return conf_header_reserved(name) ? "a header that is not the gateway's own business" : NULL;
}

void conf_read_remove_headers(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                              const struct conf_field *field, void *to)
{
    (void)field;
    read_list(reader, at, value, header_problem, to);
}

void conf_read_fence_header(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                            const struct conf_field *field, void *to)
{
    /* Headers that mean something else to the client, the partner or both: taken away they would break the call. */
    static const char *const taken[] = {"Authorization", "Content-Type", "Content-Encoding", "Cookie", "Via", "Date"};
    const char *name = text_of(value, field);
    const char *problem = name != NULL ? header_problem(name) : "a header name";
    for (size_t i = 0; problem == NULL && i < sizeof(taken) / sizeof(taken[0]); i++) {
        if (strcasecmp(name, taken[i]) == 0)
            problem = "a header of its own, not one that HTTP gives another meaning";
    }
    if (problem != NULL)
        conf_fail_value(reader, at, value, problem);
    else
        *(const char **)to = conf_store_text(reader, name, strlen(name));
}

void conf_read_set_headers(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                           const struct conf_field *field, void *to)
{
    struct config_route *route = to;
    size_t count = 0;
    (void)field;
    if (value != NULL && !json_is_object(value)) {
        conf_fail_type(reader, at, value, "an object of headers");
        return;
    }
    struct config_header *headers = conf_store_array(reader, json_object_size(value), sizeof(*headers));
    void *iter = headers != NULL ? json_object_iter(value) : NULL;
    for (; iter != NULL && !reader->failed; iter = json_object_iter_next(value, iter)) {
        const char *name = json_object_iter_key(iter);
        const struct conf_where here = {at, name, 0};
        const char *problem = header_problem(name);
        if (problem != NULL)
            conf_fail(reader, &here, "expected %s", problem);
        for (size_t i = 0; i < count; i++) {
            if (strcasecmp(headers[i].name, name) == 0)
                conf_fail(reader, &here, "\"%s\" is set already (header names have no case)", headers[i].name);
        }
        if (reader->failed)
            return;
        headers[count].name = conf_store_text(reader, name, strlen(name));
        headers[count].value = conf_secret_value(reader, &here, json_object_iter_value(iter));
        count++;
    }
    route->set_headers = headers;
    route->set_header_count = count;
}
