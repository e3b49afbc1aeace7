/*
 * config/webhook_config.c - what a webhook route may call, and the secrets it signs with.
 *
 * Targets come from requests, so everything that limits them is checked when the configuration is read: an entry that
 * could never match, or that means another host than it seems to, is refused.
 */
#include "config/webhook_config.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/net.h"
#include "config/secret.h"

enum { HOSTS_MAX = 10000, PORTS_MAX = 1000, SECRETS_MAX = 16 };

#define SECRET_PREFIX "whsec_"

/* The entry as it is compared, into `out`. Returns what was expected, or NULL. */
static const char *host_entry(const char *text, char *out, size_t cap)
{
    struct conf_authority authority;
    struct in6_addr v6;
    struct in_addr v4;
    size_t wild = strncmp(text, "*.", 2) == 0 ? 2 : 0;
    if (strcmp(text, "*") == 0) {
        snprintf(out, cap, "*");
        return NULL;
    }
    const char *url = conf_url_problem(text, strlen(text));
    if (url != NULL)
        return url;
    if (strchr(text + wild, '*') != NULL)
        return "a name, \"*.example.com\" or \"*\" alone";
    const char *problem = conf_authority_problem(text + wild, strlen(text + wild), true, &authority);
    if (problem != NULL)
        return problem;
    if (authority.port != 0)
        return "a host without a port (see \"ports\")";
    snprintf(out, cap, "%.*s%.*s", (int)wild, text, (int)authority.host_len, authority.host);
    for (char *p = out; *p != '\0'; p++) {
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    }
    bool is_address = out[wild] == '[' || inet_pton(AF_INET, out + wild, &v4) == 1;
    if (wild > 0 && is_address)
        return "a name after \"*.\"";
    if (out[0] != '[')
        return NULL;
    char address[INET6_ADDRSTRLEN];
    out[strlen(out) - 1] = '\0';
    if (inet_pton(AF_INET6, out + 1, &v6) != 1 || inet_ntop(AF_INET6, &v6, address, sizeof(address)) == NULL)
        return "an IPv6 address between the brackets";
    snprintf(out, cap, "[%s]", address); /* one spelling: targets are brought into it as well */
    return NULL;
}

static bool read_count(struct conf_reader *reader, const struct conf_where *at, const json_t *value, size_t most,
                       const char *what)
{
    size_t count = json_array_size(value);
    if (!json_is_array(value))
        conf_fail_type(reader, at, value, what);
    else if (count < 1 || count > most)
        conf_fail(reader, at, "expected %s, 1 to %zu of them, got %zu", what, most, count);
    else
        return true;
    return false;
}

static void read_hosts(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                       const struct conf_field *field, void *to)
{
    (void)field;
    if (!read_count(reader, at, value, HOSTS_MAX, "an array of host names, \"*.example.com\" or \"*\""))
        return;
    size_t count = json_array_size(value);
    const char **list = conf_store_array(reader, count + 1, sizeof(*list));
    for (size_t i = 0; i < count && list != NULL; i++) {
        char host[288];
        json_t *item = json_array_get(value, i);
        const char *text = json_string_value(item);
        const char *expected = text != NULL ? host_entry(text, host, sizeof(host)) : "a host name";
        if (expected != NULL) {
            conf_fail_value(reader, &(struct conf_where){at, NULL, i}, item, expected);
            return;
        }
        list[i] = conf_store_text(reader, host, strlen(host));
    }
    *(const char *const **)to = list;
}

static void read_ports(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                       const struct conf_field *field, void *to)
{
    static const struct conf_field port = {.min = 1, .max = 65535};
    struct config_webhook *webhook = to;
    (void)field;
    if (value != NULL && !read_count(reader, at, value, PORTS_MAX, "an array of ports"))
        return;
    size_t count = value != NULL ? json_array_size(value) : 1;
    uint16_t *ports = conf_store_array(reader, count, sizeof(*ports));
    if (ports != NULL && value == NULL)
        ports[0] = 443;
    for (size_t i = 0; i < count && ports != NULL && value != NULL && !reader->failed; i++)
        conf_read_port(reader, &(struct conf_where){at, NULL, i}, json_array_get(value, i), &port, &ports[i]);
    webhook->ports = ports;
    webhook->port_count = count;
}

static int base64_value(char c)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c == '\0' ? NULL : strchr(alphabet, c);
    return at == NULL ? -1 : (int)(at - alphabet);
}

/* Padded base64 and nothing else, into `out`, which has room for 3 bytes of each 4. Returns the length; 0: it is not. A
 * secret read in two ways would give signatures that only some receivers take. */
static size_t base64_decode(const char *text, unsigned char *out)
{
    size_t len = strlen(text), used = 0;
    if (len == 0 || len % 4 != 0)
        return 0;
    size_t pad = text[len - 1] != '=' ? 0 : text[len - 2] != '=' ? 1 : 2;
    for (size_t i = 0; i < len; i += 4) {
        unsigned bits = 0;
        size_t keep = i + 4 == len ? 3 - pad : 3;
        for (size_t j = 0; j < 4; j++) {
            int value = i + j >= len - pad ? 0 : base64_value(text[i + j]);
            if (value < 0)
                return 0;
            bits = bits << 6 | (unsigned)value;
        }
        if ((bits & ((1u << (8 * (3 - keep))) - 1)) != 0)
            return 0;
        for (size_t j = 0; j < keep; j++)
            out[used++] = (unsigned char)(bits >> (16 - 8 * j));
    }
    return used;
}

/* Never shows any of the value. */
static void read_secret(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                        struct config_secret *out)
{
    const char *text = conf_secret_value(reader, at, value);
    if (text == NULL)
        return;
    unsigned char *bytes = conf_store_array(reader, strlen(text), 1);
    if (bytes == NULL)
        return;
    size_t prefix = strlen(SECRET_PREFIX);
    if (strncmp(text, SECRET_PREFIX, prefix) == 0)
        out->len = base64_decode(text + prefix, bytes);
    out->bytes = bytes;
    if (out->len == 0)
        conf_fail(reader, at, "expected a secret of \"" SECRET_PREFIX "\" and padded base64");
}

static void read_secrets(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                         const struct conf_field *field, void *to)
{
    struct config_webhook *webhook = to;
    size_t count = json_array_size(value);
    (void)field;
    if (value != NULL && !json_is_array(value)) {
        conf_fail_type(reader, at, value, "an array of secrets");
        return;
    }
    if (count > SECRETS_MAX) {
        conf_fail(reader, at, "expected at most %d secrets, got %zu", SECRETS_MAX, count);
        return;
    }
    struct config_secret *secrets = conf_store_array(reader, count + 1, sizeof(*secrets));
    for (size_t i = 0; i < count && secrets != NULL && !reader->failed; i++)
        read_secret(reader, &(struct conf_where){at, NULL, i}, json_array_get(value, i), &secrets[i]);
    webhook->secrets = secrets;
    webhook->secret_count = count;
}

#define AT(member) offsetof(struct config_webhook, member)

static const struct conf_field webhook_fields[] = {
    {.name = "allow_hosts", .read = read_hosts, .offset = AT(allow_hosts), .required = true},
    {.name = "ports", .read = read_ports},
    {.name = "allow_http", .read = conf_read_bool, .offset = AT(allow_http)},
    {.name = "allow_private", .read = conf_read_bool, .offset = AT(allow_private)},
    {.name = "secrets", .read = read_secrets},
    {0},
};

void conf_read_webhook(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                       const struct conf_field *field, void *to)
{
    static const struct conf_field object = {.fields = webhook_fields};
    struct config_route *route = to;
    (void)field;
    if (route->kind != ROUTE_WEBHOOK) {
        if (value != NULL)
            conf_fail(reader, at, "goes with \"kind\": \"webhook\" only");
        return;
    }
    route->upstream_path = ""; /* the target's path is the whole path */
    if (value == NULL)
        conf_fail(reader, at->parent, "\"webhook\" is required in a route of this kind");
    else
        conf_read_object(reader, at, value, &object, &route->webhook);
}

static bool is_signature_header(const char *name)
{
    return strcasecmp(name, "Webhook-Id") == 0 || strcasecmp(name, "Webhook-Timestamp") == 0 ||
           strcasecmp(name, "Webhook-Signature") == 0;
}

void conf_check_webhook(struct conf_reader *reader, const struct conf_where *at, const struct config_route *route)
{
    static const char why[] = "is of the gateway's signature on a route with \"secrets\"";
    const struct conf_where headers = {at, "request_headers", 0}, fence = {at, "fence", 0};
    const struct conf_where set = {&headers, "set", 0}, remove = {&headers, "remove", 0};
    if (route->webhook.secret_count == 0)
        return;
    for (size_t i = 0; i < route->set_header_count; i++) {
        const char *name = route->set_headers[i].name;
        if (is_signature_header(name))
            conf_fail(reader, &(struct conf_where){&set, name, 0}, "%s", why);
    }
    for (size_t i = 0; route->remove_headers[i] != NULL; i++) {
        if (is_signature_header(route->remove_headers[i]))
            conf_fail(reader, &(struct conf_where){&remove, NULL, i}, "\"%s\" %s", route->remove_headers[i], why);
    }
    if (is_signature_header(route->token_header))
        conf_fail(reader, &(struct conf_where){&fence, "token_header", 0}, "\"%s\" %s", route->token_header, why);
    if (is_signature_header(route->key_header))
        conf_fail(reader, &(struct conf_where){&fence, "key_header", 0}, "\"%s\" %s", route->key_header, why);
}
