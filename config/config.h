/*
 * config/config.h - the configuration file as one const structure.
 *
 * config_load() reads, checks and completes it with defaults; nothing else in the program knows JSON keys
 * or default values. The result never changes; it is shared by reference count across threads (a SIGHUP
 * makes a new one, requests under way keep the old). Knows neither store/ nor gateway/.
 */
#ifndef FENCEGATE_CONFIG_H
#define FENCEGATE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum route_kind { ROUTE_HTTP, ROUTE_SMTP, ROUTE_WEBHOOK };
enum fence_mode { FENCE_ENFORCE, FENCE_OBSERVE, FENCE_OFF };
enum supersede_rule { SUPERSEDE_DRAIN, SUPERSEDE_ABORT, SUPERSEDE_OVERLAP };
enum config_log_level { CONFIG_LOG_ERROR, CONFIG_LOG_WARN, CONFIG_LOG_INFO, CONFIG_LOG_DEBUG };

struct config_header {
    const char *name;
    const char *value; /* a secret when it came from a file or the environment: never shown anywhere */
};

/* A warning that what was read gives cause for; config_warnings() passes it on. */
struct config_remark {
    const char *line;
    struct config_remark *next;
};

struct config_secret {
    const unsigned char *bytes;
    size_t len;
};

/* Of a route of kind webhook: which targets a request may name, and what its calls are signed with. */
struct config_webhook {
    const char *const *allow_hosts; /* NULL-terminated, lower case, no dot at the end: a name, an IPv4 address, an IPv6
                                     * address in brackets as inet_ntop() writes it, "*.example.com" or "*" */
    const uint16_t *ports;
    size_t port_count;
    bool allow_http, allow_private;
    const struct config_secret *secrets;
    size_t secret_count; /* 0: calls are not signed */
};

/* Of a route of kind smtp: how its relay is spoken to. */
struct config_smtp {
    bool starttls;                   /* required; without effect on an smtps upstream */
    const char *username, *password; /* secrets; both or neither */
    const char *hello_name;          /* behind EHLO; NULL: the machine's name */
    const char *message_id_domain;   /* NULL: the sender's */
};

struct config_route {
    const char *name;
    enum route_kind kind;
    const char *path; /* without slash at the end; "" for "/" */
    const char *host; /* lower case, no dot at the end, with ":port" only if the file has it; NULL: any */
    /* "https://api.stripe.com" or "http://10.0.0.1:8080": scheme, host, port; NULL: webhook */
    const char *upstream_origin;
    const char *upstream_path; /* without slash at the end; "" for none */
    struct config_webhook webhook;
    struct config_smtp smtp;
    const char *ns;
    bool strip_path; /* false: webhook */
    enum fence_mode mode;
    bool equal_allowed;
    const char *const *unfenced_methods; /* NULL-terminated, case-sensitive */
    uint64_t max_jump;                   /* 0: absent */
    unsigned new_keys_per_second;        /* 0: absent */
    const char *token_header, *key_header;
    unsigned stale_status, missing_status;
    bool ledger_effects; /* "effects" true, "drops" false */
    enum supersede_rule on_supersede;
    uint64_t drain_timeout_ms, connect_timeout_ms, total_timeout_ms;
    unsigned retry_connect;
    unsigned in_flight;        /* half of limits.in_flight, rounded up, unless given */
    unsigned breaker_failures; /* 0: absent */
    uint64_t breaker_open_ms;
    const struct config_header *set_headers; /* request_headers.set, in the file's order */
    size_t set_header_count;
    const char *const *remove_headers; /* NULL-terminated */
    bool forward_fencing_headers;
    const char *tls_ca_file, *tls_cert_file, *tls_key_file; /* absolute; NULL: absent */
};

struct config {
    const char *file; /* as given */
    const char *listen_address;
    uint16_t listen_port;
    const char *admin_address;
    uint16_t admin_port;
    const char *admin_token_file; /* NULL: <store>/admin.token, made when missing */
    const char *const
        *admin_hosts;       /* NULL-terminated, lower case, without port: names beside those that need no leave */
    const char *store_path; /* relative to the configuration's folder, made absolute */
    uint64_t store_max_size;
    unsigned workers; /* 0: one per core */
    unsigned connections, in_flight, lookups;
    unsigned connections_per_address;                                 /* 0: none */
    uint64_t headers_max, answer_headers_max, body_max, buffered_max; /* bytes */
    uint64_t request_timeout_ms, idle_timeout_ms;
    uint64_t audit_retain_ms;
    bool audit_drop_oldest;
    uint64_t audit_rejected_max; /* bytes; the store takes at most an eighth of store_max_size for it */
    uint64_t shutdown_grace_ms;
    enum config_log_level log_level;
    bool log_access;
    const struct config_route *routes; /* in the file's order */
    size_t route_count;
    const struct config_remark *remarks;
};

/* Reads `file`. On failure returns NULL and `error` holds one line: the file, then the line (syntax,
 * duplicate key) or the JSON path ("$.routes[0].fence.mode"), then what was expected. Secrets of header
 * values are read here; their text is in no message. The caller owns one reference. */
const struct config *config_load(const char *file, char *error, size_t error_cap) __attribute__((warn_unused_result));
/* Warnings worth a line each for `check` and at start (upstream over plain http to a host that is not
 * loopback, ...): calls `warn` once per line. */
void config_warnings(const struct config *config, void (*warn)(void *arg, const char *line), void *arg);
/* Names, one call each, the settings that differ but can't change while running: listen, admin, store, workers. */
void config_fixed_changes(const struct config *running, const struct config *fresh,
                          void (*report)(void *arg, const char *name), void *arg);

/* What is wrong with an admin token as its file has it; NULL: nothing. The line end is cut from *len. */
enum { CONFIG_TOKEN_MIN = 16, CONFIG_TOKEN_MAX = 1024 };
const char *config_token_problem(const char *text, size_t *len);

const struct config *config_ref(const struct config *config); /* any thread */
void config_unref(const struct config **config);              /* any thread; clears *config */

#endif
