/*
 * gateway/webhook_target.c - takes a target's URL apart and holds it against the route's rules.
 *
 * Bytes, path and query are judged by route.c, like every target. Where the address leads is not looked at here:
 * address_rule.c does that on the socket.
 */
#include "gateway/webhook_target.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/config.h"

enum { NAME_MAX_LEN = 253, LABEL_MAX = 63 };

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A host whose last label is a number is an IPv4 address to some readers and a name to others: only what all take for
 * an address passes (WHATWG URL, "ends in a number"). `host` has no dot at its end. */
static bool number_without_address(const char *host)
{
    struct in_addr address;
    const char *dot = strrchr(host, '.'), *label = dot == NULL ? host : dot + 1;
    bool hex = label[0] == '0' && label[1] == 'x';
    bool number =
        hex ? label[2 + strspn(label + 2, "0123456789abcdef")] == '\0' : label[strspn(label, "0123456789")] == '\0';
    return number && inet_aton(host, &address) == 0;
}

/* A name, or one of the spellings of an IPv4 address: letters, digits, '-' and '_' in labels. */
static const char *read_name(const char *text, size_t len, struct webhook_target *out)
{
    size_t label = 0;
    if (len > 1 && text[len - 1] == '.')
        len--;
    if (len > NAME_MAX_LEN)
        return "The target's host is longer than 253 bytes.";
    for (size_t i = 0; i < len; i++) {
        char c = lower(text[i]);
        if (c == '.' ? label == 0 : !is_digit(c) && !(c >= 'a' && c <= 'z') && c != '-' && c != '_')
            return "The target's host has an empty label, or something else than ASCII letters, digits, \"-\", \"_\" "
                   "and \".\" (international names go as xn--).";
        label = c == '.' ? 0 : label + 1;
        if (label > LABEL_MAX)
            return "The target's host has a label of more than 63 bytes.";
        out->host[i] = c;
    }
    out->host[len] = '\0';
    if (label > 0 && number_without_address(out->host))
        return "The target's host ends in a number and is no IPv4 address.";
    return label == 0 ? "The target has no host, or one that ends in an empty label." : NULL;
}

static const char *read_v6(const char *text, size_t len, struct webhook_target *out)
{
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr address;
    size_t inner = len - 2; /* between the brackets */
    if (inner > 0 && inner < sizeof copy) {
        memcpy(copy, text + 1, inner);
        copy[inner] = '\0';
        if (inet_pton(AF_INET6, copy, &address) == 1 && inet_ntop(AF_INET6, &address, copy, sizeof copy) != NULL) {
            snprintf(out->host, sizeof out->host, "[%s]", copy);
            return NULL;
        }
    }
    return "The target has something else than an IPv6 address between the brackets.";
}

static const char *read_port(const char *text, size_t len, struct webhook_target *out)
{
    unsigned port = 0;
    if (len >= 1 && len <= 5 && text[0] != '0')
        for (size_t i = 0; i < len; i++)
            port = is_digit(text[i]) && port <= 65535 ? port * 10 + (unsigned)(text[i] - '0') : 65536;
    if (port < 1 || port > 65535)
        return "The target's port is not a number from 1 to 65535.";
    out->port = (uint16_t)port;
    return NULL;
}

static const char *read_authority(const char *text, size_t len, struct webhook_target *out)
{
    const char *end = text + len;
    const char *host_end = len > 0 && text[0] == '[' ? memchr(text, ']', len) : memchr(text, ':', len);
    if (len > 0 && text[0] == '[') {
        if (host_end == NULL)
            return "The target's bracket is not closed.";
        host_end++;
    }
    if (host_end == NULL)
        host_end = end;
    size_t host_len = (size_t)(host_end - text);
    const char *problem = len > 0 && text[0] == '[' ? read_v6(text, host_len, out) : read_name(text, host_len, out);
    out->port = out->https ? 443 : 80;
    if (problem != NULL || host_end == end)
        return problem;
    if (*host_end != ':')
        return "The target has something else than a port after its host.";
    return read_port(host_end + 1, (size_t)(end - host_end) - 1, out);
}

const char *webhook_target_parse(const char *text, size_t len, struct webhook_target *out)
{
    size_t scheme = 0;
    if (len >= 8 && strncasecmp(text, "https://", 8) == 0)
        scheme = 8;
    else if (len >= 7 && strncasecmp(text, "http://", 7) == 0)
        scheme = 7;
    else
        return "The target does not begin with \"https://\".";
    *out = (struct webhook_target){.https = scheme == 8};
    if (memchr(text, '#', len) != NULL)
        return "The target has a fragment.";
    if (memchr(text, '\\', len) != NULL)
        return "The target has a backslash.";
    const char *authority = text + scheme;
    size_t authority_len = 0;
    while (authority_len < len - scheme && authority[authority_len] != '/' && authority[authority_len] != '?')
        authority_len++;
    if (memchr(authority, '@', authority_len) != NULL)
        return "The target has a user name or password in it.";
    const char *problem = read_authority(authority, authority_len, out);
    if (problem != NULL)
        return problem;
    if (target_split(text, len, &out->parts) != TARGET_OK)
        return "The target is malformed, or has a dot segment or a control character.";
    return NULL;
}

void webhook_target_origin(const struct webhook_target *target, char out[WEBHOOK_ORIGIN_MAX])
{
    snprintf(out, WEBHOOK_ORIGIN_MAX, "%s://%s:%u", target->https ? "https" : "http", target->host,
             (unsigned)target->port);
}

static bool host_allowed(const struct config_webhook *rules, const char *host)
{
    size_t len = strlen(host);
    for (size_t i = 0; rules->allow_hosts[i] != NULL; i++) {
        const char *entry = rules->allow_hosts[i];
        if (strcmp(entry, "*") == 0 || strcmp(entry, host) == 0)
            return true;
        size_t tail = strlen(entry) - 1; /* "*.example.com" matches what ends in ".example.com" and has more before */
        if (entry[0] == '*' && len > tail && strcmp(host + len - tail, entry + 1) == 0)
            return true;
    }
    return false;
}

const char *webhook_target_problem(const struct config_webhook *rules, const struct webhook_target *target)
{
    if (!target->https && !rules->allow_http)
        return "The target is plain http, which this route does not allow.";
    if (!host_allowed(rules, target->host))
        return "The target's host is not in this route's allow_hosts.";
    for (size_t i = 0; i < rules->port_count; i++)
        if (rules->ports[i] == target->port)
            return NULL;
    return "The target's port is not in this route's ports.";
}
