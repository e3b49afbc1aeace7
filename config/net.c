/*
 * config/net.c - what a host, a path and a header name may look like in the configuration. Taking URLs apart and
 * storing the parts is route_config.c's job.
 */
#include "config/net.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "config/units.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool is_unreserved(int c)
{
    return c > 0 && c < 0x7F && (is_alnum((char)c) || strchr("-._~", c) != NULL);
}

static bool parse_ip(int family, const char *text, size_t len)
{
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (len == 0 || len >= sizeof(copy))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return inet_pton(family, copy, &address) == 1;
}

/* Resolvers take "2130706433", "0x7f.1" and "10.1" as IPv4 addresses: a typing error would call somebody else. */
static bool looks_like_ipv4(const char *label, size_t len)
{
    if (len > 1 && label[0] == '0' && (label[1] == 'x' || label[1] == 'X'))
        return true;
    for (size_t i = 0; i < len; i++) {
        if (!is_digit(label[i]))
            return false;
    }
    return true;
}

static const char *name_problem(const char *host, size_t len)
{
    size_t start = 0;
    if (len > 253)
        return "a host name of at most 253 bytes";
    for (size_t i = 0; i <= len; i++) {
        if (i < len && host[i] != '.') {
            if (!is_alnum(host[i]) && host[i] != '-' && host[i] != '_')
                return "a host of letters, digits, \"-\", \"_\" and \".\" (no wildcard; international names as xn--)";
            continue;
        }
        if (i == start)
            return i == len && i > 0 ? "a host without a dot at the end" : "a host without empty labels";
        if (i - start > 63 || host[start] == '-' || host[i - 1] == '-')
            return "a host with labels of 1 to 63 bytes that neither begin nor end with \"-\"";
        if (i == len && looks_like_ipv4(host + start, i - start) && !parse_ip(AF_INET, host, len))
            return "a host name, or an IPv4 address of four decimal numbers";
        start = i + 1;
    }
    return NULL;
}

static const char *port_problem(const char *text, size_t len, unsigned *out)
{
    uint64_t port;
    if (len == 0 || len > 5 || text[0] == '0' || !conf_parse_digits(text, len, &port) || port > 65535)
        return "a port from 1 to 65535 after the colon";
    *out = (unsigned)port;
    return NULL;
}

const char *conf_url_problem(const char *text, size_t len)
{
    bool url = memmem(text, len, "://", 3) != NULL || (len > 2 && strncmp(text, "//", 2) == 0);
    return url ? "a host alone, such as \"api.example.com\", not a URL" : NULL;
}

const char *conf_authority_problem(const char *text, size_t len, bool cut_dot, struct conf_authority *out)
{
    const char *end = text + len;
    const char *colon;
    *out = (struct conf_authority){.host = text};
    if (len == 0)
        return "a host";
    const char *url = conf_url_problem(text, len);
    if (url != NULL)
        return url;
    if (text[0] == '[') {
        const char *close = memchr(text, ']', len);
        if (close == NULL || !parse_ip(AF_INET6, text + 1, (size_t)(close - text) - 1))
            return "an IPv6 address between the brackets";
        colon = close + 1;
        if (colon < end && *colon != ':')
            return "nothing but \":port\" after the brackets";
        out->host_len = (size_t)(colon - text);
    } else {
        colon = memchr(text, ':', len);
        if (colon == NULL)
            colon = end;
        else if (memchr(colon + 1, ':', (size_t)(end - colon) - 1) != NULL)
            return "brackets around an IPv6 address, or one colon before the port";
        out->host_len = (size_t)(colon - text);
        if (cut_dot && out->host_len > 1 && text[out->host_len - 1] == '.')
            out->host_len--;
        const char *problem = name_problem(text, out->host_len);
        if (problem != NULL)
            return problem;
    }
    return colon < end ? port_problem(colon + 1, (size_t)(end - colon) - 1, &out->port) : NULL;
}

/* One byte of the path, decoded; *step is how many bytes it took, 0 for broken percent-encoding. */
static int decoded_byte(const char *path, size_t left, size_t *step)
{
    *step = 1;
    if (path[0] != '%')
        return (unsigned char)path[0];
    int high = left > 2 ? hex_value(path[1]) : -1;
    int low = left > 2 ? hex_value(path[2]) : -1;
    *step = high < 0 || low < 0 ? 0 : 3;
    return high * 16 + low;
}

const char *conf_upstream_path_problem(const char *path, size_t len)
{
    size_t step, segment = 0; /* bytes of this segment */
    bool dots = true;         /* nothing but dots in it so far */
    for (size_t i = 0; i < len; i += step) {
        if (path[i] < 0x21 || path[i] > 0x7E)
            return "a path of visible ASCII (percent-encode the rest)";
        if (path[i] == '?' || path[i] == '#')
            return "no query and no fragment";
        int byte = decoded_byte(path + i, len - i, &step);
        if (step == 0)
            return "two hexadecimal digits after \"%\"";
        if (byte < 0x20 || byte == 0x7F)
            return "a path without control characters";
        if (byte == '/' || byte == '\\' || byte == ';') {
            if (dots && (segment == 1 || segment == 2))
                return "a path without \".\" and \"..\" segments";
            segment = 0;
            dots = true;
        } else {
            segment++;
            dots = dots && byte == '.';
        }
    }
    return dots && (segment == 1 || segment == 2) ? "a path without \".\" and \"..\" segments" : NULL;
}

const char *conf_route_path_problem(const char *path, size_t len)
{
    size_t step;
    if (len == 0 || path[0] != '/')
        return "a path that starts with \"/\"";
    const char *problem = conf_upstream_path_problem(path, len);
    if (problem != NULL)
        return problem;
    for (size_t i = 0; i < len; i += step) {
        int byte = decoded_byte(path + i, len - i, &step);
        if (step == 3 && is_unreserved(byte))
            return "letters, digits and \"-._~\" without percent-encoding (encoded they never match)";
        if (i > 0 && path[i] == '/' && path[i - 1] == '/')
            return "a path without repeated slashes (they never match)";
        if (path[i] == ';')
            return "a path without \";\" parameters (they never match)";
        if (step == 1 && !is_unreserved(byte) && strchr("/!$&'()*+,=:@", byte) == NULL)
            return "a path of the characters that a URL path may hold (percent-encode the rest)";
    }
    return NULL;
}

bool conf_path_is_plain(const char *path)
{
    for (const char *p = path; *p != '\0'; p++) {
        if (*p != '/' && !is_unreserved((unsigned char)*p))
            return false;
    }
    return true;
}

bool conf_is_token(const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (!is_alnum(*p) && strchr("!#$%&'*+-.^_`|~", *p) == NULL)
            return false;
    }
    return text[0] != '\0';
}

bool conf_header_reserved(const char *name)
{
    static const char *const reserved[] = {
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "Proxy-Authenticate",
        "Proxy-Authorization",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Content-Length",
        "Host",
        "Expect",
    };
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
        if (strcasecmp(name, reserved[i]) == 0)
            return true;
    }
    return strncasecmp(name, "Fencegate-", 10) == 0;
}

bool conf_is_ip(const char *text)
{
    size_t len = strlen(text);
    return parse_ip(AF_INET, text, len) || parse_ip(AF_INET6, text, len);
}

bool conf_host_is_loopback(const char *host, size_t len)
{
    char copy[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    if (len >= 9 && strncasecmp(host + len - 9, "localhost", 9) == 0)
        return len == 9 || host[len - 10] == '.';
    if (len > 2 && host[0] == '[') {
        host++;
        len -= 2;
    }
    if (len >= sizeof(copy))
        return false;
    memcpy(copy, host, len);
    copy[len] = '\0';
    if (inet_pton(AF_INET, copy, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, copy, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}
