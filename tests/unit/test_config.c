/*
 * tests/unit/test_config.c - config/: defaults, every setting, secrets, warnings, reload, damaged files. What is
 * refused, and with which line, is in test_config_errors.c. Runs from the root of the tree (config/example.json).
 */
#include "tests/unit/config_case.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <sys/stat.h>

#include "config/net.h"
#include "config/units.h"

static void check_route_defaults(const struct config_route *route)
{
    assert_string_equal(route->name, "a");
    assert_string_equal(route->path, "/a");
    assert_null(route->host);
    assert_string_equal(route->upstream_origin, "https://h.example");
    assert_string_equal(route->upstream_path, "");
    assert_string_equal(route->ns, "default");
    assert_true(route->strip_path);
    assert_int_equal(route->mode, FENCE_ENFORCE);
    assert_true(route->equal_allowed);
    assert_non_null(route->unfenced_methods);
    assert_null(route->unfenced_methods[0]);
    assert_int_equal(route->max_jump, 0);
    assert_string_equal(route->token_header, "Fencing-Token");
    assert_string_equal(route->key_header, "Workflow-Key");
    assert_int_equal(route->stale_status, 412);
    assert_int_equal(route->missing_status, 428);
    assert_true(route->ledger_effects);
    assert_int_equal(route->on_supersede, SUPERSEDE_DRAIN);
    assert_int_equal(route->drain_timeout_ms, 30000);
    assert_int_equal(route->connect_timeout_ms, 5000);
    assert_int_equal(route->total_timeout_ms, 60000);
    assert_int_equal(route->retry_connect, 0);
    assert_int_equal(route->in_flight, 5000);
    assert_int_equal(route->new_keys_per_second, 0);
    assert_int_equal(route->breaker_failures, 0);
    assert_int_equal(route->breaker_open_ms, 0);
    assert_int_equal(route->set_header_count, 0);
    assert_non_null(route->remove_headers);
    assert_null(route->remove_headers[0]);
    assert_false(route->forward_fencing_headers);
    assert_null(route->tls_ca_file);
    assert_null(route->tls_cert_file);
    assert_null(route->tls_key_file);
}

static void minimal_has_the_defaults(void **state)
{
    char path[256];
    (void)state;
    const struct config *config = load_good(TOP(""));
    assert_string_equal(config->file, conf_file);
    assert_string_equal(config->listen_address, "127.0.0.1");
    assert_int_equal(config->listen_port, 8080);
    assert_string_equal(config->admin_address, "127.0.0.1");
    assert_int_equal(config->admin_port, 8081);
    assert_null(config->admin_token_file);
    assert_null(config->admin_hosts[0]);
    snprintf(path, sizeof(path), "%s/fencegate-data", folder);
    assert_string_equal(config->store_path, path);
    assert_int_equal(config->store_max_size, UINT64_C(16) << 30);
    assert_int_equal(config->workers, 0);
    assert_int_equal(config->connections, 10000);
    assert_int_equal(config->connections_per_address, 0);
    assert_int_equal(config->in_flight, 10000);
    assert_int_equal(config->lookups, 64);
    assert_int_equal(config->headers_max, 32 << 10);
    assert_int_equal(config->answer_headers_max, 64 << 10);
    assert_int_equal(config->body_max, 8 << 20);
    assert_int_equal(config->buffered_max, 256 << 20);
    assert_int_equal(config->request_timeout_ms, 30000);
    assert_int_equal(config->idle_timeout_ms, 60000);
    assert_int_equal(config->audit_retain_ms, UINT64_C(90) * 86400000);
    assert_false(config->audit_drop_oldest);
    assert_int_equal(config->shutdown_grace_ms, 30000);
    assert_int_equal(config->log_level, CONFIG_LOG_INFO);
    assert_true(config->log_access);
    assert_int_equal(config->route_count, 1);
    check_route_defaults(&config->routes[0]);
    config_unref(&config);
    assert_null(config);
}

static void every_setting_arrives(void **state)
{
    char path[256];
    (void)state;
    const struct config *config = load_good(
        "{'listen': {'address': '::1', 'port': 1}, 'admin': {'address': '10.0.0.1', 'port': 65535, 'token_file': "
        "'token', 'hosts': ['Fencegate.Ops.Example.', 'b.example']},"
        "'store': {'path': '/x/y', 'max_size': '1MiB'}, 'workers': 3,"
        "'limits': {'connections': 1, 'connections_per_address': 9, 'in_flight': 2, 'lookups': 5, 'headers': '1KiB', "
        "'answer_headers': '2KiB', 'body': '0B', "
        "'buffered': '3GiB',"
        "           'request_timeout': '1ms', 'idle_timeout': '2h'},"
        "'audit': {'retain': '2d', 'when_full': 'drop-oldest'}, 'shutdown_grace': '0s',"
        "'log': {'level': 'error', 'access': false},"
        "'routes': [{'name': 'r', 'kind': 'http', 'path': '/', 'host': 'Stripe.Internal.:8443',"
        " 'upstream': 'HTTPS://API.Stripe.COM:443/V1/', 'namespace': 'ns-1', 'strip_path': false,"
        " 'fence': {'mode': 'observe', 'equal': 'reject', 'unfenced_methods': ['GET', 'M-SEARCH'],"
        "           'max_jump': '18446744073709551615', 'new_keys': {'per_second': 9}, 'token_header': 'X-T', "
        "'key_header': 'X-K'},"
        " 'stale_status': 400, 'missing_status': 499, 'ledger': 'drops', 'on_supersede': 'abort', 'drain_timeout': "
        "'1m',"
        " 'timeout': {'connect': '7ms', 'total': '3s'}, 'retry_connect': 10, 'in_flight': 5,"
        " 'breaker': {'failures': 7, 'open_for': '8s'},"
        " 'request_headers': {'set': {'B': 'two words', 'A': {'file': './secret'}, 'C': {'env': 'FG_TEST_SECRET'}},"
        "                     'remove': ['Cookie', 'X-Y']},"
        " 'forward_fencing_headers': true,"
        " 'tls': {'ca_file': 'ca.pem', 'cert_file': 'ca.pem', 'key_file': 'key.pem'}}]}");
    assert_string_equal(config->listen_address, "::1");
    assert_int_equal(config->listen_port, 1);
    assert_string_equal(config->admin_address, "10.0.0.1");
    assert_int_equal(config->admin_port, 65535);
    snprintf(path, sizeof(path), "%s/token", folder);
    assert_string_equal(config->admin_token_file, path);
    assert_string_equal(config->admin_hosts[0], "fencegate.ops.example");
    assert_string_equal(config->admin_hosts[1], "b.example");
    assert_null(config->admin_hosts[2]);
    assert_string_equal(config->store_path, "/x/y");
    assert_int_equal(config->store_max_size, 1 << 20);
    assert_int_equal(config->workers, 3);
    assert_int_equal(config->connections, 1);
    assert_int_equal(config->connections_per_address, 9);
    assert_int_equal(config->in_flight, 2);
    assert_int_equal(config->lookups, 5);
    assert_int_equal(config->headers_max, 1024);
    assert_int_equal(config->answer_headers_max, 2048);
    assert_int_equal(config->body_max, 0);
    assert_int_equal(config->buffered_max, UINT64_C(3) << 30);
    assert_int_equal(config->request_timeout_ms, 1);
    assert_int_equal(config->idle_timeout_ms, 7200000);
    assert_int_equal(config->audit_retain_ms, 172800000);
    assert_true(config->audit_drop_oldest);
    assert_int_equal(config->shutdown_grace_ms, 0);
    assert_int_equal(config->log_level, CONFIG_LOG_ERROR);
    assert_false(config->log_access);
    const struct config_route *route = &config->routes[0];
    assert_string_equal(route->path, "");
    assert_string_equal(route->host, "stripe.internal:8443");
    assert_string_equal(route->upstream_origin, "https://api.stripe.com");
    assert_string_equal(route->upstream_path, "/V1");
    assert_string_equal(route->ns, "ns-1");
    assert_false(route->strip_path);
    assert_int_equal(route->mode, FENCE_OBSERVE);
    assert_false(route->equal_allowed);
    assert_string_equal(route->unfenced_methods[0], "GET");
    assert_string_equal(route->unfenced_methods[1], "M-SEARCH");
    assert_null(route->unfenced_methods[2]);
    assert_true(route->max_jump == UINT64_MAX);
    assert_string_equal(route->token_header, "X-T");
    assert_string_equal(route->key_header, "X-K");
    assert_int_equal(route->stale_status, 400);
    assert_int_equal(route->missing_status, 499);
    assert_false(route->ledger_effects);
    assert_int_equal(route->on_supersede, SUPERSEDE_ABORT);
    assert_int_equal(route->drain_timeout_ms, 60000);
    assert_int_equal(route->connect_timeout_ms, 7);
    assert_int_equal(route->total_timeout_ms, 3000);
    assert_int_equal(route->retry_connect, 10);
    assert_int_equal(route->in_flight, 5);
    assert_int_equal(route->new_keys_per_second, 9);
    assert_int_equal(route->breaker_failures, 7);
    assert_int_equal(route->breaker_open_ms, 8000);
    assert_int_equal(route->set_header_count, 3);
    assert_string_equal(route->set_headers[0].name, "B"); /* the file's order */
    assert_string_equal(route->set_headers[0].value, "two words");
    assert_string_equal(route->set_headers[1].name, "A");
    assert_string_equal(route->set_headers[1].value, "Bearer " SECRET);
    assert_string_equal(route->set_headers[2].name, "C");
    assert_string_equal(route->set_headers[2].value, "env-" SECRET);
    assert_string_equal(route->remove_headers[0], "Cookie");
    assert_string_equal(route->remove_headers[1], "X-Y");
    assert_null(route->remove_headers[2]);
    assert_true(route->forward_fencing_headers);
    snprintf(path, sizeof(path), "%s/ca.pem", folder);
    assert_string_equal(route->tls_ca_file, path);
    assert_string_equal(route->tls_cert_file, path);
    snprintf(path, sizeof(path), "%s/key.pem", folder);
    assert_string_equal(route->tls_key_file, path);
    config_unref(&config);
}

static void certificates_in_any_arrangement(void **state)
{
    (void)state;
    const struct config *config =
        load_good(ROUTE("'tls': {'ca_file': 'chain.pem', 'cert_file': 'both.pem', 'key_file': 'both.pem'}"));
    config_unref(&config);
    config = load_good(ROUTE("'tls': {'cert_file': 'chain.pem', 'key_file': 'key.pem'}"));
    config_unref(&config);
}

static void accepted_texts(void **state)
{
    static const struct {
        const char *json, *path, *host, *origin, *upstream_path;
    } rows[] = {
        {PATH("/a/b/"), "/a/b", NULL, "https://h.example", ""},
        {PATH("/v1/x:capture/a%20b/~c@d"), "/v1/x:capture/a%20b/~c@d", NULL, "https://h.example", ""},
        {PATH("/..a/b../..."), "/..a/b../...", NULL, "https://h.example", ""},
        {UPSTREAM("http://10.0.0.1:8080"), "/a", NULL, "http://10.0.0.1:8080", ""},
        {UPSTREAM("http://h:80/x/y"), "/a", NULL, "http://h", "/x/y"},
        {UPSTREAM("https://h:80/"), "/a", NULL, "https://h:80", ""},
        {UPSTREAM("http://h:443"), "/a", NULL, "http://h:443", ""},
        {UPSTREAM("https://[2001:DB8::1]:8443/p%2Fq"), "/a", NULL, "https://[2001:db8::1]:8443", "/p%2Fq"},
        {UPSTREAM("https://[::1]"), "/a", NULL, "https://[::1]", ""},
        {UPSTREAM("http://my_service-1.local:65535"), "/a", NULL, "http://my_service-1.local:65535", ""},
        {UPSTREAM("https://h//a;b=c"), "/a", NULL, "https://h", "//a;b=c"},
        {HOST("A.B"), "/a", "a.b", "https://h.example", ""},
        {HOST("a.b."), "/a", "a.b", "https://h.example", ""},
        {HOST("10.1.2.3:80"), "/a", "10.1.2.3:80", "https://h.example", ""},
        {HOST("[::1]:9"), "/a", "[::1]:9", "https://h.example", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct config *config = load_good(rows[i].json);
        const struct config_route *route = &config->routes[0];
        assert_string_equal(route->path, rows[i].path);
        assert_string_equal(route->upstream_origin, rows[i].origin);
        assert_string_equal(route->upstream_path, rows[i].upstream_path);
        if (rows[i].host == NULL)
            assert_null(route->host);
        else
            assert_string_equal(route->host, rows[i].host);
        config_unref(&config);
    }
}

static void secret_files_lose_one_newline(void **state)
{
    static const char *const files[] = {"secret", "secret-crlf", "secret-bare"};
    char json[512];
    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(json, sizeof(json), SET("{'file': '%s'}"), files[i]);
        const struct config *config = load_good(json);
        assert_string_equal(config->routes[0].set_headers[0].value, "Bearer " SECRET);
        config_unref(&config);
    }
    const struct config *config = load_good(SET("{'file': 'secret-most'}"));
    assert_int_equal(strlen(config->routes[0].set_headers[0].value), 16384);
    config_unref(&config);
}

static void an_empty_breaker_has_the_defaults(void **state)
{
    (void)state;
    const struct config *config = load_good(ROUTE("'breaker': {}"));
    assert_int_equal(config->routes[0].breaker_failures, 5);
    assert_int_equal(config->routes[0].breaker_open_ms, 30000);
    config_unref(&config);
}

static void files_that_cannot_be_read(void **state)
{
    char error[512], small[16], line[1024];
    (void)state;
    assert_null(config_load("/nowhere/at/all.json", error, sizeof(error)));
    assert_string_equal(error, "/nowhere/at/all.json: cannot read the configuration: No such file or directory");
    assert_null(config_load("/tmp/no-such-\nfile.json", error, sizeof(error)));
    assert_string_equal(error, "/tmp/no-such-?file.json: cannot read the configuration: No such file or directory");
    assert_null(config_load("/dev/null", error, sizeof(error)));
    assert_string_equal(error, "/dev/null: cannot read the configuration: not a regular file");
    assert_null(config_load("", error, sizeof(error)));
    /* A small buffer gets the beginning of the line, none is not touched. */
    assert_null(config_load("/nowhere/at/all.json", small, sizeof(small)));
    assert_string_equal(small, "/nowhere/at/all");
    assert_null(config_load("/nowhere/at/all.json", NULL, 0));
    /* A long value is cut. */
    memset(line, 'x', 600);
    line[600] = '\0';
    char *json = malloc(2048);
    assert_non_null(json);
    snprintf(json, 2048,
             "{'%s': 1, "
             "'routes': []}",
             line);
    assert_null(load(json, error));
    assert_non_null(strstr(error, "xxx..."));
    assert_true(strlen(error) < 300);
    free(json);
}

static void relative_names_start_at_the_file(void **state)
{
    char cwd[512], error[512], path[256];
    (void)state;
    write_text("c.json", "{\"store\": {\"path\": \"./d\"}, \"routes\": [{\"name\": \"a\", \"path\": \"/\","
                         "\"upstream\": \"https://h\", \"tls\": {\"ca_file\": \"../ca.pem\"}}]}");
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    snprintf(path, sizeof(path), "%s/sub", folder);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    assert_int_equal(chdir(path), 0);
    /* "../ca.pem" lies beside nothing here: the configuration's folder counts, not the working one */
    const struct config *config = config_load("../c.json", error, sizeof(error));
    assert_null(config);
    write_text("sub/c.json", "{\"store\": {\"path\": \"./d\"}, \"routes\": [{\"name\": \"a\", \"path\": \"/\","
                             "\"upstream\": \"https://h\", \"tls\": {\"ca_file\": \"../ca.pem\"}}]}");
    config = config_load("c.json", error, sizeof(error));
    assert_non_null(config);
    snprintf(path, sizeof(path), "%s/sub/d", folder);
    assert_string_equal(config->store_path, path);
    assert_string_equal(config->file, "c.json");
    config_unref(&config);
    assert_int_equal(chdir(cwd), 0);
}

struct lines {
    char text[4096];
    size_t count;
};

static void collect(void *arg, const char *line)
{
    struct lines *lines = arg;
    size_t used = strlen(lines->text);
    snprintf(lines->text + used, sizeof(lines->text) - used, "%s\n", line);
    lines->count++;
}

/* The example's secrets are part of the source, and everybody's to read. */
static void collect_but_modes(void *arg, const char *line)
{
    if (strstr(line, ": every user of this machine can read ") == NULL)
        collect(arg, line);
}

static void example_loads_without_warnings(void **state)
{
    char error[512] = "";
    struct lines lines = {.count = 0};
    (void)state;
    const struct config *config = config_load("config/example.json", error, sizeof(error));
    assert_string_equal(error, "");
    assert_non_null(config);
    assert_int_equal(config->route_count, 4);
    config_warnings(config, collect_but_modes, &lines);
    assert_string_equal(lines.text, "");
    config_unref(&config);
}

static char *read_tree_file(const char *name, size_t *len)
{
    char *text = calloc(1, 1 << 17);
    FILE *file = fopen(name, "r");
    assert_non_null(text);
    assert_non_null(file);
    *len = fread(text, 1, (1 << 17) - 1, file);
    fclose(file);
    return text;
}

/* A key counts as described when its whole name has a line in a table; those of a route stand without "routes". */
static void check_described(json_t *value, const char *name, const char *reference)
{
    const char *key;
    json_t *member;
    char cell[160], longer[128];
    json_object_foreach(value, key, member)
    {
        snprintf(longer, sizeof(longer), "%s%s%s", name, name[0] != '\0' ? "." : "", key);
        bool secret = json_object_size(member) == 1 && json_object_get(member, "file") != NULL;
        if (json_is_object(member) && !secret && strcmp(longer, "request_headers.set") != 0) {
            check_described(member, longer, reference);
            continue;
        }
        snprintf(cell, sizeof(cell), "\n| `%s` | ", longer);
        if (strcmp(longer, "routes") != 0 && strstr(reference, cell) == NULL)
            fail_msg("config/REFERENCE.md does not describe %s", longer);
    }
}

static void reference_describes_every_key(void **state)
{
    size_t len;
    (void)state;
    char *reference = read_tree_file("config/REFERENCE.md", &len);
    json_t *example = json_load_file("config/example.json", 0, NULL);
    assert_non_null(example);
    check_described(example, "", reference);
    json_t *routes = json_object_get(example, "routes");
    for (size_t i = 0; i < json_array_size(routes); i++)
        check_described(json_array_get(routes, i), "", reference);
    json_decref(example);
    free(reference);
}

/* A half-written file must never be taken for a whole one. */
static void every_truncation_is_refused(void **state)
{
    size_t len;
    char error[512];
    (void)state;
    char *text = read_tree_file("config/example.json", &len);
    size_t last = len;
    while (text[last - 1] != '}')
        last--;
    for (size_t cut = 0; cut < last; cut++) {
        write_file("c.json", text, cut);
        error[0] = '\0';
        const struct config *config = config_load(conf_file, error, sizeof(error));
        if (config != NULL)
            fail_msg("cut at %zu was accepted", cut);
        assert_true(strncmp(error, conf_file, strlen(conf_file)) == 0);
    }
    free(text);
}

/* One byte changed anywhere: accepted or refused, never a crash (ASan and UBSan look on). */
static void changed_bytes_do_no_harm(void **state)
{
    static const char bytes[] = {'\0', '"', '\\', '}', '9', '-', '\xff', '/', ':', '\n'};
    size_t len;
    char error[512];
    (void)state;
    char *text = read_tree_file("config/example.json", &len);
    for (size_t i = 0; i < len; i++) {
        char kept = text[i];
        text[i] = bytes[i % sizeof(bytes)];
        write_file("c.json", text, len);
        const struct config *config = config_load(conf_file, error, sizeof(error));
        config_unref(&config);
        text[i] = kept;
    }
    free(text);
}

static void warned(const char *json, const char *expected)
{
    struct lines lines = {.count = 0};
    const struct config *config = load_good(json);
    config_warnings(config, collect, &lines);
    config_unref(&config);
    if (expected == NULL ? lines.count != 0 : lines.count != 1 || strstr(lines.text, expected) != lines.text)
        fail_msg("%s\n  expected: %s\n  got:      %s", json, expected, lines.text);
}

static void warnings(void **state)
{
    (void)state;
    warned(TOP(""), NULL);
    warned(UPSTREAM("http://127.0.0.1:9"), NULL);
    warned(UPSTREAM("http://localhost:9"), NULL);
    warned(UPSTREAM("http://[::1]:9"), NULL);
    warned(UPSTREAM("http://h.example:9"), "$.routes[0].upstream: route \"a\" sends over plain http to h.example:9");
    warned(UPSTREAM("http://127.0.0.1.example"), "$.routes[0].upstream: ");
    warned(UPSTREAM("http://notlocalhost"), "$.routes[0].upstream: ");
    warned(FENCE("'mode': 'off'"), "$.routes[0].fence.mode: route \"a\" forwards every call unfenced");
    warned(FENCE("'mode': 'observe'"), "$.routes[0].fence.mode: route \"a\" forwards stale calls");
    warned(FENCE("'unfenced_methods': ['GET', 'POST']"),
           "$.routes[0].fence.unfenced_methods[1]: route \"a\" forwards every POST unfenced");
    warned(ROUTE("'on_supersede': 'overlap'"), "$.routes[0].on_supersede: on route \"a\"");
    warned(ROUTE("'drain_timeout': '10s'"),
           "$.routes[0].drain_timeout: on route \"a\" a newer call is refused after 10s");
    warned(ROUTE("'drain_timeout': '60s'"), NULL);
    warned(ROUTE("'on_supersede': 'abort', 'drain_timeout': '1s'"), NULL);
    warned(ROUTE("'stale_status': 409"), "$.routes[0].stale_status: many clients repeat a 409");
    warned(ROUTE("'missing_status': 429"), "$.routes[0].missing_status: many clients repeat a 429");
    warned(TOP("'admin': {'address': '0.0.0.0'}, "), "$.admin.address: ");
    warned(TOP("'listen': {'address': '0.0.0.0'}, "), NULL);
    warned("{'listen': {'address': '::'}, 'routes': [{" BASE ", 'request_headers': {'set': {'A': 'b'}}}]}",
           "$.listen.address: everybody who reaches ::");
    warned(TOP("'limits': {'buffered': '1MiB'}, "), "$.limits.buffered: 1MiB is below limits.body (8MiB)");
    warned(TOP("'audit': {'retain': '90m'}, "), "$.audit.retain: audit records are removed after 90m");
    warned(PATH("/a:b"), "$.routes[0].path: /a:b can be spelled in more than one way");
}

/* What every user of the machine can read is no secret. */
static void secrets_that_others_can_read(void **state)
{
    static const struct {
        const char *file, *json, *expected;
        unsigned mode;
    } rows[] = {
        {"secret", SET("{'file': 'secret'}"), NULL, 0640},
        {"secret", SET("{'file': 'secret'}"),
         "$.routes[0].request_headers.set[\"X-A\"].file: every user of this machine can read /tmp/fencegate-config-",
         0644},
        {"secret", SET("{'file': 'secret'}"),
         "$.routes[0].request_headers.set[\"X-A\"].file: every user of this machine can change /tmp/fencegate-config-",
         0602},
        {"token", TOP("'admin': {'token_file': 'token'}, "),
         "$.admin.token_file: every user of this machine can read /tmp/fencegate-config-", 0604},
        {"key.pem", ROUTE("'tls': {'cert_file': 'ca.pem', 'key_file': 'key.pem'}"),
         "$.routes[0].tls.key_file: every user of this machine can read /tmp/fencegate-config-", 0444},
        {"ca.pem", ROUTE("'tls': {'cert_file': 'ca.pem', 'key_file': 'key.pem'}"), NULL, 0644},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/%s", folder, rows[i].file);
        assert_int_equal(chmod(path, rows[i].mode), 0);
        warned(rows[i].json, rows[i].expected);
        assert_int_equal(chmod(path, 0600), 0);
    }
}

static void names_of_fixed_changes(void **state)
{
    static const struct {
        const char *json, *names;
    } rows[] = {
        {TOP(""), ""},
        {ROUTE("'stale_status': 410"), ""},
        {TOP("'limits': {'body': '1KiB'}, 'log': {'level': 'debug'}, "), ""},
        {TOP("'listen': {'port': 1}, "), "listen\n"},
        {TOP("'listen': {'address': '::1'}, "), "listen\n"},
        {TOP("'admin': {'port': 1}, "), "admin\n"},
        {TOP("'admin': {'token_file': 'token'}, "), "admin\n"},
        {TOP("'admin': {'hosts': ['a.example']}, "), "admin\n"},
        {TOP("'store': {'path': 'x'}, "), "store\n"},
        {TOP("'store': {'max_size': '1GiB'}, "), "store\n"},
        {TOP("'workers': 1, "), "workers\n"},
        {TOP("'workers': 1, 'listen': {'port': 1}, 'admin': {'port': 2}, 'store': {'path': 'x'}, "),
         "listen\nadmin\nstore\nworkers\n"},
    };
    (void)state;
    const struct config *running = load_good(TOP(""));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct lines lines = {.count = 0};
        const struct config *fresh = load_good(rows[i].json);
        config_fixed_changes(running, fresh, collect, &lines);
        assert_string_equal(lines.text, rows[i].names);
        config_unref(&fresh);
    }
    config_unref(&running);
}

/* What a SIGHUP does: a bad file changes nothing, a good one is another structure, the old one lives on. */
static void a_reload_leaves_the_old_one_alone(void **state)
{
    char error[512];
    (void)state;
    const struct config *running = load_good(SET("{'file': 'secret'}"));
    const struct config *held = config_ref(running);
    assert_ptr_equal(held, running);
    assert_null(load("{", error));
    assert_string_equal(running->routes[0].set_headers[0].value, "Bearer " SECRET);
    write_text("secret", "Bearer other\n");
    const struct config *fresh = load_good(SET("{'file': 'secret'}"));
    assert_ptr_not_equal(fresh, running);
    config_unref(&running);
    assert_null(running);
    assert_string_equal(held->routes[0].set_headers[0].value, "Bearer " SECRET);
    assert_string_equal(fresh->routes[0].set_headers[0].value, "Bearer other");
    config_unref(&held);
    config_unref(&fresh);
    config_unref(&fresh); /* NULL is fine */
    write_text("secret", "Bearer " SECRET "\n");
}

static void *ref_and_unref(void *arg)
{
    const struct config *mine = arg;
    for (int i = 0; i < 10000; i++) {
        const struct config *more = config_ref(mine);
        config_unref(&more);
    }
    config_unref(&mine);
    return NULL;
}

static void references_are_counted_across_threads(void **state)
{
    pthread_t threads[4];
    (void)state;
    const struct config *config = load_good(TOP(""));
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ref_and_unref, (void *)(uintptr_t)config_ref(config)), 0);
    config_unref(&config);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void units_are_strict(void **state)
{
    uint64_t value = 7;
    char text[CONF_UNITS_TEXT];
    (void)state;
    assert_true(conf_parse_digits("18446744073709551615", 20, &value));
    assert_true(value == UINT64_MAX);
    assert_true(conf_parse_digits("00000000000000000001", 20, &value));
    assert_int_equal(value, 1);
    assert_false(conf_parse_digits("18446744073709551616", 20, &value));
    assert_false(conf_parse_digits("99999999999999999999", 20, &value));
    assert_false(conf_parse_digits("000000000000000000001", 21, &value));
    assert_false(conf_parse_digits("", 0, &value));
    assert_int_equal(value, 1); /* untouched by failures */
    assert_true(conf_parse_units("213503982334d", conf_duration_units, &value));
    assert_false(conf_parse_units("213503982335d", conf_duration_units, &value));
    assert_true(conf_parse_units("17179869183GiB", conf_size_units, &value));
    assert_false(conf_parse_units("17179869184GiB", conf_size_units, &value));
    conf_format_units(0, conf_duration_units, text);
    assert_string_equal(text, "0ms");
    conf_format_units(90000, conf_duration_units, text);
    assert_string_equal(text, "90s");
    conf_format_units(UINT64_MAX, conf_size_units, text);
    assert_string_equal(text, "18446744073709551615B");
}

static void long_hosts(void **state)
{
    char host[300];
    struct conf_authority out;
    (void)state;
    memset(host, 'a', sizeof(host));
    assert_non_null(conf_authority_problem(host, 64, false, &out)); /* label of 64 */
    assert_null(conf_authority_problem(host, 63, false, &out));
    for (size_t i = 49; i < sizeof(host); i += 50)
        host[i] = '.';
    assert_null(conf_authority_problem(host, 253, false, &out));
    assert_non_null(conf_authority_problem(host, 254, false, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minimal_has_the_defaults),
        cmocka_unit_test(every_setting_arrives),
        cmocka_unit_test(certificates_in_any_arrangement),
        cmocka_unit_test(accepted_texts),
        cmocka_unit_test(secret_files_lose_one_newline),
        cmocka_unit_test(an_empty_breaker_has_the_defaults),
        cmocka_unit_test(files_that_cannot_be_read),
        cmocka_unit_test(relative_names_start_at_the_file),
        cmocka_unit_test(example_loads_without_warnings),
        cmocka_unit_test(reference_describes_every_key),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(changed_bytes_do_no_harm),
        cmocka_unit_test(warnings),
        cmocka_unit_test(secrets_that_others_can_read),
        cmocka_unit_test(names_of_fixed_changes),
        cmocka_unit_test(a_reload_leaves_the_old_one_alone),
        cmocka_unit_test(references_are_counted_across_threads),
        cmocka_unit_test(units_are_strict),
        cmocka_unit_test(long_hosts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
