/* config/smtp_config.c - the keys of mail routes. What mail and relay are is gateway/'s business. */
#include "config/smtp_config.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/net.h"
#include "config/secret.h"

#define SUBMISSION_PORT 587
#define SUBMISSIONS_PORT 465

static const char *const starttls_choices[] = {"off", "required", NULL};

/* A name as it stands behind EHLO and the @ of a Message-ID: no port, no brackets. */
static void read_domain(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                        const struct conf_field *field, void *to)
{
    struct conf_authority authority;
    (void)field;
    if (value == NULL)
        return;
    const char *text = json_string_value(value);
    const char *problem = "a domain such as \"jobs.example\"";
    if (text != NULL && strchr(text, ':') == NULL && strchr(text, '[') == NULL && strchr(text, '_') == NULL)
        problem = conf_authority_problem(text, strlen(text), false, &authority);
    if (problem != NULL)
        conf_fail_value(reader, at, value, problem);
    else
        *(const char **)to = conf_store_text(reader, text, strlen(text));
}

static void read_secret(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                        const struct conf_field *field, void *to)
{
    (void)field;
    if (value != NULL)
        *(const char **)to = conf_secret_value(reader, at, value);
}

#define AT(member) offsetof(struct config_smtp, member)

static const struct conf_field smtp_fields[] = {
    {.name = "starttls", .read = conf_read_switch, .offset = AT(starttls), .choices = starttls_choices, .fallback = 1},
    {.name = "username", .read = read_secret, .offset = AT(username)},
    {.name = "password", .read = read_secret, .offset = AT(password)},
    {.name = "hello_name", .read = read_domain, .offset = AT(hello_name)},
    {.name = "message_id_domain", .read = read_domain, .offset = AT(message_id_domain)},
    {0},
};

void conf_read_smtp(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                    const struct conf_field *field, void *to)
{
    struct config_route *route = to;
    const struct conf_field object = {.name = field->name, .fields = smtp_fields};
    if (route->kind != ROUTE_SMTP) {
        if (value != NULL)
            conf_fail(reader, at, "expected \"kind\": \"smtp\" beside it");
        return;
    }
    conf_read_object(reader, at, value, &object, &route->smtp);
    if (!reader->failed && (route->smtp.username == NULL) != (route->smtp.password == NULL))
        conf_fail(reader, at, "\"username\" and \"password\" go together, \"%s\" is missing",
                  route->smtp.username == NULL ? "username" : "password");
}

/* Returns what was expected, or NULL. The URL is not shown: people write passwords into URLs. */
static const char *split_url(struct conf_reader *reader, const char *url, struct config_route *route)
{
    struct conf_authority authority;
    bool tls = strncasecmp(url, "smtps://", 8) == 0;
    if (!tls && strncasecmp(url, "smtp://", 7) != 0)
        return "a URL that starts with \"smtp://\" or \"smtps://\"";
    const char *start = url + (tls ? 8 : 7);
    size_t len = strcspn(start, "/?#");
    if (memchr(start, '@', len) != NULL)
        return "a URL without user name and password (use smtp.username and smtp.password)";
    if (start[len] != '\0' && strcmp(start + len, "/") != 0)
        return "a URL without path, query or fragment (the name for EHLO is smtp.hello_name)";
    const char *problem = conf_authority_problem(start, len, false, &authority);
    if (problem != NULL)
        return problem;
    char origin[288];
    unsigned port = authority.port != 0 ? authority.port : tls ? SUBMISSIONS_PORT : SUBMISSION_PORT;
    int used = snprintf(origin, sizeof origin, "%s%.*s:%u", tls ? "smtps://" : "smtp://", (int)authority.host_len,
                        authority.host, port);
    for (char *p = origin; *p != '\0'; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    route->upstream_origin = conf_store_text(reader, origin, (size_t)used);
    route->upstream_path = conf_store_text(reader, "", 0);
    return NULL;
}

void conf_read_smtp_upstream(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                             const struct conf_field *field, void *to)
{
    (void)field;
    const char *url = json_string_value(value);
    if (url == NULL) {
        conf_fail_type(reader, at, value, "a URL such as \"smtp://relay.example:587\"");
        return;
    }
    const char *problem = split_url(reader, url, to);
    if (problem != NULL)
        conf_fail(reader, at, "expected %s", problem);
}

static bool in_the_clear(const struct config_route *route)
{
    return !route->smtp.starttls && strncmp(route->upstream_origin, "smtp://", 7) == 0;
}

void conf_check_smtp(struct conf_reader *reader, const struct conf_where *at, const json_t *value,
                     const struct config_route *route)
{
    static const char *const senseless[] = {"strip_path", "request_headers", "forward_fencing_headers", NULL};
    const struct conf_where tls = {at, "tls", 0};
    for (size_t i = 0; senseless[i] != NULL; i++)
        if (json_object_get(value, senseless[i]) != NULL)
            conf_fail(reader, &(struct conf_where){at, senseless[i], 0},
                      "a route of kind \"smtp\" has no such setting");
    if (!reader->failed && in_the_clear(route) && (route->tls_ca_file != NULL || route->tls_cert_file != NULL))
        conf_fail(reader, &tls,
                  "expected smtp.starttls \"required\" or an smtps upstream: without TLS these files "
                  "would not be used");
}

bool conf_smtp_is_open(const struct config_route *route)
{
    struct conf_authority authority;
    const char *rest = route->upstream_origin + strlen("smtp://");
    return in_the_clear(route) && conf_authority_problem(rest, strlen(rest), false, &authority) == NULL &&
           !conf_host_is_loopback(authority.host, authority.host_len);
}
