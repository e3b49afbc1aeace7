/*
 * config/config.c - loads a configuration: the file, the keys of the top level, what must hold between them.
 *
 * Owns the structure and its reference count. Routes are route_config.c's, warnings and the comparison after a SIGHUP
 * are advice.c's.
 */
#include "config/config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/file.h"
#include "config/net.h"
#include "config/reader.h"
#include "config/route_config.h"
#include "config/secret.h"
#include "config/units.h"
#include "config/json_memory.h"

#define FILE_MAX (4 * 1024 * 1024)

_Static_assert(sizeof(enum config_log_level) == sizeof(unsigned), "conf_read_choice writes an unsigned");

/* What a `struct config` that was handed out lives in. */
struct owner {
    struct config config; /* first: a pointer to it is a pointer to the owner */
    struct conf_arena arena;
    atomic_uint references;
};

static const char *const levels[] = {[CONFIG_LOG_ERROR] = "error",
                                     [CONFIG_LOG_WARN] = "warn",
                                     [CONFIG_LOG_INFO] = "info",
                                     [CONFIG_LOG_DEBUG] = "debug",
                                     NULL};
static const char *const when_full[] = {"refuse", "drop-oldest", NULL};

#define AT(member) offsetof(struct config, member)

enum { ADMIN_HOSTS_MAX = 100 };

static const char *host_problem(const char *text, struct conf_authority *out)
{
    if (text == NULL)
        return "a host name";
    const char *problem = conf_authority_problem(text, strlen(text), true, out);
    return problem != NULL || out->port == 0 ? problem : "a host without a port: it counts with any";
}

static void read_admin_hosts(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                             const struct conf_field *field, void *to)
{
    size_t count = json_array_size(value);
    (void)field;
    if (value != NULL && (!json_is_array(value) || count > ADMIN_HOSTS_MAX)) {
        conf_fail(reader, at, "expected an array of at most %d host names", ADMIN_HOSTS_MAX);
        return;
    }
    const char **list = conf_store_array(reader, count + 1, sizeof(*list));
    for (size_t i = 0; i < count && list != NULL; i++) {
        struct conf_authority host;
        json_t *item = json_array_get(value, i);
        const char *problem = host_problem(json_string_value(item), &host);
        if (problem != NULL) {
            conf_fail_value(reader, &(struct conf_where){at, NULL, i}, item, problem);
            return;
        }
        list[i] = conf_store_lower(reader, host.host, host.host_len);
    }
    *(const char *const **)to = list;
}

static const struct conf_field listen_fields[] = {
    {.name = "address", .read = conf_read_address, .offset = AT(listen_address), .text = "127.0.0.1"},
    {.name = "port", .read = conf_read_port, .offset = AT(listen_port), .max = 65535, .fallback = 8080},
    {0},
};

static const struct conf_field admin_fields[] = {
    {.name = "address", .read = conf_read_address, .offset = AT(admin_address), .text = "127.0.0.1"},
    {.name = "port", .read = conf_read_port, .offset = AT(admin_port), .max = 65535, .fallback = 8081},
    {.name = "token_file", .read = conf_read_token_file, .offset = AT(admin_token_file)},
    {.name = "hosts", .read = read_admin_hosts, .offset = AT(admin_hosts)},
    {0},
};

static const struct conf_field store_fields[] = {
    {.name = "path", .read = conf_read_folder, .offset = AT(store_path), .text = "./fencegate-data"},
    {.name = "max_size",
     .read = conf_read_size,
     .offset = AT(store_max_size),
     .min = CONF_MIB,
     .max = 16384 * CONF_GIB,
     .fallback = 16 * CONF_GIB},
    {0},
};

static const struct conf_field limits_fields[] = {
    {.name = "connections",
     .read = conf_read_number,
     .offset = AT(connections),
     .min = 1,
     .max = 1000000,
     .fallback = 10000},
    {.name = "connections_per_address",
     .read = conf_read_number,
     .offset = AT(connections_per_address),
     .max = 1000000},
    {.name = "in_flight",
     .read = conf_read_number,
     .offset = AT(in_flight),
     .min = 1,
     .max = 1000000,
     .fallback = 10000},
    {.name = "headers",
     .read = conf_read_size,
     .offset = AT(headers_max),
     .min = CONF_KIB,
     .max = CONF_MIB,
     .fallback = 32 * CONF_KIB},
    {.name = "lookups", .read = conf_read_number, .offset = AT(lookups), .min = 2, .max = 1024, .fallback = 64},
    {.name = "answer_headers",
     .read = conf_read_size,
     .offset = AT(answer_headers_max),
     .min = CONF_KIB,
     .max = CONF_MIB,
     .fallback = 64 * CONF_KIB},
    {.name = "body", .read = conf_read_size, .offset = AT(body_max), .max = 16 * CONF_GIB, .fallback = 8 * CONF_MIB},
    {.name = "buffered",
     .read = conf_read_size,
     .offset = AT(buffered_max),
     .max = 1024 * CONF_GIB,
     .fallback = 256 * CONF_MIB},
    {.name = "request_timeout",
     .read = conf_read_duration,
     .offset = AT(request_timeout_ms),
     .min = 1,
     .max = CONF_DAY,
     .fallback = 30 * CONF_SECOND},
    {.name = "idle_timeout",
     .read = conf_read_duration,
     .offset = AT(idle_timeout_ms),
     .min = 1,
     .max = CONF_DAY,
     .fallback = 60 * CONF_SECOND},
    {0},
};

static const struct conf_field audit_fields[] = {
    {.name = "retain",
     .read = conf_read_duration,
     .offset = AT(audit_retain_ms),
     .min = 1,
     .max = 36500 * CONF_DAY,
     .fallback = 90 * CONF_DAY},
    {.name = "rejected_max",
     .read = conf_read_size,
     .offset = AT(audit_rejected_max),
     .min = CONF_MIB / 16,
     .max = 1024 * CONF_GIB,
     .fallback = 64 * CONF_MIB},
    {.name = "when_full", .read = conf_read_switch, .offset = AT(audit_drop_oldest), .choices = when_full},
    {0},
};

static const struct conf_field log_fields[] = {
    {.name = "level",
     .read = conf_read_choice,
     .offset = AT(log_level),
     .choices = levels,
     .fallback = CONFIG_LOG_INFO},
    {.name = "access", .read = conf_read_bool, .offset = AT(log_access), .fallback = true},
    {0},
};

static void read_routes(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                        const struct conf_field *field, void *to)
{
    (void)field;
    conf_read_routes(reader, at, value, to);
}

static const struct conf_field top_fields[] = {
    {.name = "listen", .read = conf_read_object, .fields = listen_fields},
    {.name = "admin", .read = conf_read_object, .fields = admin_fields},
    {.name = "store", .read = conf_read_object, .fields = store_fields},
    {.name = "workers", .read = conf_read_number, .offset = AT(workers), .max = 256},
    {.name = "limits", .read = conf_read_object, .fields = limits_fields},
    {.name = "audit", .read = conf_read_object, .fields = audit_fields},
    {.name = "shutdown_grace",
     .read = conf_read_duration,
     .offset = AT(shutdown_grace_ms),
     .max = CONF_DAY,
     .fallback = 30 * CONF_SECOND},
    {.name = "log", .read = conf_read_object, .fields = log_fields},
    {.name = "routes", .read = read_routes, .required = true}, /* last: a route's defaults come from limits */
    {0},
};

static bool is_any_address(const char *address)
{
    return strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0;
}

/* Does a call to this host reach a listener on `address`, as far as the text tells? */
static bool reaches(const struct conf_authority *host, const char *address)
{
    char literal[INET6_ADDRSTRLEN];
    size_t cut = host->host_len > 2 && host->host[0] == '[';
    snprintf(literal, sizeof literal, "%.*s", (int)(host->host_len - 2 * cut), host->host + cut);
    bool loopback = conf_host_is_loopback(host->host, host->host_len);
    if (strcmp(literal, address) == 0 || is_any_address(literal))
        return true;
    if (is_any_address(address))
        return loopback;
    return loopback && !conf_is_ip(literal) && conf_host_is_loopback(address, strlen(address));
}

/* A call to an own listener would come back as a request, and go out again. */
static void check_not_own(struct conf_reader *reader, const struct conf_where *at, const struct config *config,
                          const struct config_route *route)
{
    const struct conf_where upstream = {at, "upstream", 0};
    struct conf_authority host;
    const char *scheme_end = strstr(route->upstream_origin, "://") + 3;
    if (conf_authority_problem(scheme_end, strlen(scheme_end), false, &host) != NULL)
        return;
    if (host.port == 0)
        host.port = strncmp(route->upstream_origin, "https:", 6) == 0 ? 443 : 80;
    if (host.port == config->listen_port && reaches(&host, config->listen_address))
        conf_fail(reader, &upstream, "expected a partner, this is the gateway's own \"listen\"");
    else if (host.port == config->admin_port && reaches(&host, config->admin_address))
        conf_fail(reader, &upstream, "expected a partner, this is the gateway's own \"admin\"");
}

static void check_listeners(struct conf_reader *reader, const struct conf_where *root, const struct config *config)
{
    const struct conf_where admin = {root, "admin", 0}, routes = {root, "routes", 0};
    const char *a = config->listen_address, *b = config->admin_address;
    if (config->admin_port != 0 && config->admin_port == config->listen_port &&
        (strcmp(a, b) == 0 || is_any_address(a) || is_any_address(b)))
        conf_fail(reader, &(struct conf_where){&admin, "port", 0}, "expected another port than that of \"listen\", %u",
                  (unsigned)config->listen_port);
    for (size_t i = 0; i < config->route_count && !reader->failed; i++)
        if (config->routes[i].upstream_origin != NULL)
            check_not_own(reader, &(struct conf_where){&routes, NULL, i}, config, &config->routes[i]);
}

/* The key that ends at `position`: jansson tells where a doubled key is, and only sometimes its name. */
static char *key_before(const char *text, size_t position)
{
    if (position == 0 || text[position - 1] != '"')
        return NULL;
    size_t start = position - 1;
    while (start > 0 && (text[start - 1] != '"' || (start > 1 && text[start - 2] == '\\')))
        start--;
    return strndup(text + start, position - 1 - start);
}

/* jansson's own texts end with the text near the error, which can be a secret: only their beginning is used. */
static void fail_syntax(struct conf_reader *reader, const char *text, const json_error_t *error)
{
    char plain[JSON_ERROR_TEXT_LENGTH];
    char *key;
    switch (json_error_code(error)) {
    case json_error_duplicate_key:
        key = key_before(text, (size_t)error->position);
        conf_fail_file(reader, error->line, "duplicate key, expected each key once:", key);
        free(key);
        return;
    case json_error_numeric_overflow:
        conf_fail_file(reader, error->line, "number too large (tokens and max_jump are strings)", NULL);
        return;
    case json_error_premature_end_of_input:
        conf_fail_file(reader, error->line, "expected more: the file ends inside the JSON text", NULL);
        return;
    case json_error_invalid_utf8: conf_fail_file(reader, error->line, "expected UTF-8", NULL); return;
    case json_error_null_character:
    case json_error_null_byte_in_key:
        conf_fail_file(reader, error->line, "expected text without NUL (\\u0000)", NULL);
        return;
    case json_error_out_of_memory: conf_fail_file(reader, 0, "out of memory", NULL); return;
    default: break;
    }
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0) {
        conf_fail_file(reader, 1, "expected JSON, got a byte order mark (EF BB BF): save the file without it", NULL);
        return;
    }
    const char *near = strstr(error->text, " near ");
    snprintf(plain, sizeof(plain), "%.*s", (int)(near != NULL ? (size_t)(near - error->text) : strlen(error->text)),
             error->text);
    conf_fail_file(reader, error->line, strncmp(plain, "invalid Unicode", 15) == 0 ? "invalid Unicode escape" : plain,
                   NULL);
}

static void fail_unreadable(struct conf_reader *reader, const char *problem)
{
    char text[160];
    snprintf(text, sizeof(text), "cannot read the configuration: %s", problem);
    conf_fail_file(reader, 0, text, NULL);
}

static json_t *parse_file(struct conf_reader *reader)
{
    size_t len;
    const char *problem;
    json_error_t error;
    char *text = conf_file_read(reader->file, FILE_MAX, &len, &problem);
    if (text == NULL) {
        fail_unreadable(reader, problem);
        return NULL;
    }
    if (!json_memory_open(len)) {
        fail_unreadable(reader, "out of memory");
        conf_file_free(text, len);
        return NULL;
    }
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        fail_syntax(reader, text, &error);
    conf_file_free(text, len);
    return root;
}

/* The absolute folder of `file`; relative file names in it count from there. The caller frees. */
static char *folder_of(const char *file)
{
    const char *slash = strrchr(file, '/');
    char *name = slash == NULL ? strdup(".") : strndup(file, slash == file ? 1 : (size_t)(slash - file));
    char *folder = name != NULL ? realpath(name, NULL) : NULL;
    free(name);
    return folder;
}

static void read_document(struct conf_reader *reader, struct config *config)
{
    const struct conf_where root = {NULL, NULL, 0};
    const struct conf_field document = {.fields = top_fields};
    json_t *json = parse_file(reader);
    if (json == NULL) {
        json_memory_close();
        return;
    }
    config->file = conf_store_text(reader, reader->file, strlen(reader->file));
    conf_read_object(reader, &root, json, &document, config);
    if (!reader->failed)
        check_listeners(reader, &root, config);
    config->remarks = reader->remarks;
    json_decref(json);
    json_memory_close();
}

static void owner_free(struct owner *owner)
{
    conf_arena_free(&owner->arena);
    free(owner);
}

const struct config *config_load(const char *file, char *error, size_t error_cap)
{
    struct owner *owner = calloc(1, sizeof(*owner));
    char *folder = folder_of(file); /* free() keeps errno since glibc 2.33, so its reason is still there below */
    struct conf_reader reader = {.file = file, .folder = folder, .error = error, .error_cap = error_cap};
    if (owner == NULL)
        conf_fail_file(&reader, 0, "out of memory", NULL);
    else if (folder == NULL)
        fail_unreadable(&reader, strerror(errno));
    else
        read_document(&reader, &owner->config);
    free(folder);
    if (owner == NULL) {
        conf_arena_free(&reader.arena);
        return NULL;
    }
    owner->arena = reader.arena;
    atomic_init(&owner->references, 1);
    if (!reader.failed)
        return &owner->config;
    owner_free(owner);
    return NULL;
}

/* The owner was allocated by config_load() as a whole and is not const: only what is handed out is. */
static struct owner *owner_of(const struct config *config)
{
    return (struct owner *)(uintptr_t)config;
}

const struct config *config_ref(const struct config *config)
{
    atomic_fetch_add_explicit(&owner_of(config)->references, 1, memory_order_relaxed);
    return config;
}

void config_unref(const struct config **config)
{
    const struct config *gone = *config;
    *config = NULL;
    /* Release, then acquire: what other threads read must be done before the last one frees. */
    if (gone != NULL && atomic_fetch_sub_explicit(&owner_of(gone)->references, 1, memory_order_acq_rel) == 1)
        owner_free(owner_of(gone));
}
