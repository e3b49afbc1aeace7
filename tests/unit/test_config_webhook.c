/* tests/unit/test_config_webhook.c - config/: webhook routes, what they allow, what is refused, what is worth a line.
 */
#include "tests/unit/config_case.h"

/* A route of kind webhook with `members` in its object, and `more` beside it. */
#define HOOK_AND(members, more)                                                                                        \
    "{'routes': [{'name': 'h', 'path': '/h', 'kind': 'webhook', 'webhook': {" members "}" more "}]}"
#define HOOK(members) HOOK_AND(members, "")
#define ANY "'allow_hosts': ['*']"
#define SIGNED ANY ", 'secrets': ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw']"

static void defaults(void **state)
{
    (void)state;
    const struct config *config = load_good(HOOK(ANY));
    const struct config_route *route = &config->routes[0];
    assert_int_equal(route->kind, ROUTE_WEBHOOK);
    assert_null(route->upstream_origin);
    assert_string_equal(route->upstream_path, "");
    assert_false(route->strip_path);
    assert_string_equal(route->webhook.allow_hosts[0], "*");
    assert_null(route->webhook.allow_hosts[1]);
    assert_int_equal(route->webhook.port_count, 1);
    assert_int_equal(route->webhook.ports[0], 443);
    assert_false(route->webhook.allow_http);
    assert_false(route->webhook.allow_private);
    assert_int_equal(route->webhook.secret_count, 0);
    config_unref(&config);

    config = load_good("{'routes': [{" BASE "}]}");
    assert_int_equal(config->routes[0].kind, ROUTE_HTTP);
    assert_true(config->routes[0].strip_path);
    config_unref(&config);
}

static void hosts_are_kept_as_they_are_compared(void **state)
{
    static const char *const want[] = {"a.example",     "*.b.example",      "10.1.2.3",
                                       "[2001:db8::1]", "[::ffff:1.2.3.4]", "xn--mnchen-3ya.example"};
    (void)state;
    const struct config *config = load_good(
        HOOK("'allow_hosts': ['A.Example.', '*.B.example', '10.1.2.3', '[2001:DB8:0:0:0:0:0:1]', '[::ffff:102:304]', "
             "'xn--mnchen-3ya.example'], 'ports': [443, 8443, 1, 65535], 'allow_http': true, 'allow_private': true"));
    const struct config_webhook *hook = &config->routes[0].webhook;
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        assert_string_equal(hook->allow_hosts[i], want[i]);
    assert_null(hook->allow_hosts[6]);
    assert_int_equal(hook->port_count, 4);
    assert_int_equal(hook->ports[1], 8443);
    assert_int_equal(hook->ports[3], 65535);
    assert_true(hook->allow_http);
    assert_true(hook->allow_private);
    config_unref(&config);
}

static void secrets_are_decoded(void **state)
{
    static const struct {
        const char *json;
        size_t len;
        const char *bytes;
    } rows[] = {
        {"'whsec_AA=='", 1, "\0"},
        {"'whsec_AAE='", 2, "\0\1"},
        {"'whsec_AAEC'", 3, "\0\1\2"},
        {"'whsec_+/+/'", 3, "\xfb\xff\xbf"},
        {"'whsec_Zm9vYmFy'", 6, "foobar"},
        {"{'file': 'whsec'}", 6, "foobar"},
        {"{'file': 'whsec-bare'}", 6, "foobar"},
        {"{'env': 'FG_TEST_WHSEC'}", 6, "foobar"},
    };
    (void)state;
    write_text("whsec", "whsec_Zm9vYmFy\n");
    write_text("whsec-bare", "whsec_Zm9vYmFy");
    setenv("FG_TEST_WHSEC", "whsec_Zm9vYmFy", 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char json[256];
        snprintf(json, sizeof(json), HOOK(ANY ", 'secrets': [%s, 'whsec_AA==']"), rows[i].json);
        const struct config *config = load_good(json);
        const struct config_webhook *hook = &config->routes[0].webhook;
        assert_int_equal(hook->secret_count, 2);
        assert_int_equal(hook->secrets[0].len, rows[i].len);
        assert_memory_equal(hook->secrets[0].bytes, rows[i].bytes, rows[i].len);
        assert_int_equal(hook->secrets[1].len, 1);
        config_unref(&config);
    }
}

#define AT "$.routes[0].webhook."
#define BAD_SECRET(text) HOOK(ANY ", 'secrets': [" text "]")
#define NO_SECRET "$.routes[0].webhook.secrets[0]: expected a secret of \"whsec_\" and padded base64"

static void refused(void **state)
{
    static const struct {
        const char *json, *expected; /* after "FILE: "; how it begins */
    } rows[] = {
        {"{'routes': [{'name': 'h', 'path': '/h', 'kind': 'webhook'}]}",
         "$.routes[0]: \"webhook\" is required in a route of this kind"},
        {"{'routes': [{" BASE ", 'webhook': {" ANY "}}]}", "$.routes[0].webhook: goes with \"kind\": \"webhook\" only"},
        {HOOK_AND(ANY, ", 'upstream': 'https://h.example'"),
         "$.routes[0].upstream: a webhook route has none: each request names its target in Fencegate-Target"},
        {HOOK_AND(ANY, ", 'strip_path': true"),
         "$.routes[0].strip_path: a webhook route has none: the path is the target's"},
        {HOOK(""), "$.routes[0].webhook: \"allow_hosts\" is required"},
        {HOOK("'allow_hosts': []"), AT "allow_hosts: expected an array of host names, "},
        {HOOK("'allow_hosts': '*'"), AT "allow_hosts: expected an array of host names, "},
        {HOOK("'allow_hosts': {}"), AT "allow_hosts: expected an array of host names, "},
        {HOOK("'allow_hosts': null"), AT "allow_hosts: expected an array of host names, "},
        {HOOK("'allow_hosts': [1]"), AT "allow_hosts[0]: expected a host name, got 1"},
        {HOOK("'allow_hosts': ['']"), AT "allow_hosts[0]: expected a host, got \"\""},
        {HOOK("'allow_hosts': ['a.example', '*.']"), AT "allow_hosts[1]: expected a host, got \"*.\""},
        {HOOK("'allow_hosts': ['a.*.example']"),
         AT "allow_hosts[0]: expected a name, \"*.example.com\" or \"*\" alone"},
        {HOOK("'allow_hosts': ['*a.example']"), AT "allow_hosts[0]: expected a name, \"*.example.com\" or \"*\" alone"},
        {HOOK("'allow_hosts': ['**']"), AT "allow_hosts[0]: expected a name, \"*.example.com\" or \"*\" alone"},
        {HOOK("'allow_hosts': ['*.*.example']"), AT "allow_hosts[0]: expected a name, \"*.example.com\" or"},
        {HOOK("'allow_hosts': ['*.10.0.0.1']"), AT "allow_hosts[0]: expected a name after \"*.\""},
        {HOOK("'allow_hosts': ['*.[::1]']"), AT "allow_hosts[0]: expected a name after \"*.\""},
        {HOOK("'allow_hosts': ['https://a.example']"),
         AT "allow_hosts[0]: expected a host alone, such as \"api.example.com\", not a URL, got \"https://a.example\""},
        {HOOK("'allow_hosts': ['https://*.a.example/hook']"), AT "allow_hosts[0]: expected a host alone, such as"},
        {HOOK("'allow_hosts': ['//a.example']"), AT "allow_hosts[0]: expected a host alone, such as"},
        {HOOK("'allow_hosts': ['a.example/x']"), AT "allow_hosts[0]: expected a host of letters"},
        {HOOK("'allow_hosts': ['a.example:443']"), AT "allow_hosts[0]: expected a host without a port"},
        {HOOK("'allow_hosts': ['m\xc3\xbcnchen.example']"), AT "allow_hosts[0]: expected a host of letters"},
        {HOOK("'allow_hosts': ['a%2eexample']"), AT "allow_hosts[0]: expected a host of letters"},
        {HOOK("'allow_hosts': ['a..example']"), AT "allow_hosts[0]: expected a host without empty labels"},
        {HOOK("'allow_hosts': ['2130706433']"), AT "allow_hosts[0]: expected a host name, or an IPv4 address of four"},
        {HOOK("'allow_hosts': ['0x7f.1']"), AT "allow_hosts[0]: expected a host name, or an IPv4 address of four"},
        {HOOK("'allow_hosts': ['::1']"), AT "allow_hosts[0]: expected brackets around an IPv6 address"},
        {HOOK("'allow_hosts': ['[::1%25lo]']"), AT "allow_hosts[0]: expected an IPv6 address between the brackets"},
        {HOOK(ANY ", 'ports': []"), AT "ports: expected an array of ports, 1 to 1000 of them, got 0"},
        {HOOK(ANY ", 'ports': 443"), AT "ports: expected an array of ports, got "},
        {HOOK(ANY ", 'ports': [443, 0]"), AT "ports[1]: expected a whole number from 1 to 65535, got 0"},
        {HOOK(ANY ", 'ports': [65536]"), AT "ports[0]: expected a whole number from 1 to 65535, got 65536"},
        {HOOK(ANY ", 'ports': ['443']"), AT "ports[0]: expected a whole number from 1 to 65535"},
        {HOOK(ANY ", 'allow_http': 1"), AT "allow_http: expected true or false, got 1"},
        {HOOK(ANY ", 'allow_private': 'no'"), AT "allow_private: expected true or false, got \"no\""},
        {HOOK(ANY ", 'allow_hots': ['*']"), AT "allow_hots: unknown key \"allow_hots\", did you mean \"allow_hosts\"?"},
        {HOOK(ANY ", 'secrets': 'whsec_AAEC'"), AT "secrets: expected an array of secrets, got a string"},
        {HOOK(ANY ", 'secrets': ['whsec_AA==', 'whsec_AA==', 'whsec_AA==', 'whsec_AA==', 'whsec_AA==', 'whsec_AA==', "
                  "'whsec_AA==', 'whsec_AA==', 'whsec_AA==', 'whsec_AA==', 'whsec_AA==', 'whsec_AA==', 'whsec_AA==', "
                  "'whsec_AA==', 'whsec_AA==', 'whsec_AA==', 'whsec_AA==']"),
         AT "secrets: expected at most 16 secrets, got 17"},
        {BAD_SECRET("'" SECRET "'"), NO_SECRET},
        {BAD_SECRET("'whsec_'"), NO_SECRET},
        {BAD_SECRET("'whsec_" SECRET "'"), NO_SECRET},
        {BAD_SECRET("'whsec_AAE'"), NO_SECRET},
        {BAD_SECRET("'whsec_AA'"), NO_SECRET},
        {BAD_SECRET("'whsec_A==='"), NO_SECRET},
        {BAD_SECRET("'whsec_===='"), NO_SECRET},
        {BAD_SECRET("'whsec_AB=='"), NO_SECRET},
        {BAD_SECRET("'whsec_AAF='"), NO_SECRET},
        {BAD_SECRET("'whsec_AA==AAEC'"), NO_SECRET},
        {BAD_SECRET("'whsec_AA-_'"), NO_SECRET},
        {BAD_SECRET("'whsec_AAE C'"), NO_SECRET},
        {BAD_SECRET("' whsec_AAEC'"), NO_SECRET},
        {BAD_SECRET("'WHSEC_AAEC'"), NO_SECRET},
        {BAD_SECRET("'whsk_AAEC'"), NO_SECRET},
        {BAD_SECRET("'AAEC'"), NO_SECRET},
        {BAD_SECRET("''"), AT "secrets[0]: the value is empty"},
        {BAD_SECRET("1"), AT "secrets[0]: expected a string, {\"file\": \"path\"} or {\"env\": \"name\"}"},
        {BAD_SECRET("{'file': 'secret'}"), NO_SECRET},
        {BAD_SECRET("{'file': 'secret-empty'}"), AT "secrets[0].file: the value in "},
        {BAD_SECRET("{'file': 'secret-newline'}"), AT "secrets[0].file: the value in "},
        {BAD_SECRET("{'file': 'secret-two'}"), AT "secrets[0].file: the value in "},
        {BAD_SECRET("{'file': '/nowhere/secret'}"), AT "secrets[0].file: cannot read /nowhere/secret"},
        {BAD_SECRET("{'env': 'FG_TEST_ABSENT'}"), AT "secrets[0].env: the environment variable FG_TEST_ABSENT is not"},
        {HOOK_AND(SIGNED, ", 'request_headers': {'set': {'webhook-ID': 'x'}}"),
         "$.routes[0].request_headers.set[\"webhook-ID\"]: is of the gateway's signature"},
        {HOOK_AND(SIGNED, ", 'request_headers': {'remove': ['Webhook-Timestamp']}"),
         "$.routes[0].request_headers.remove[0]: \"Webhook-Timestamp\" is of the gateway's signature"},
        {HOOK_AND(SIGNED, ", 'fence': {'key_header': 'Webhook-Id'}"),
         "$.routes[0].fence.key_header: \"Webhook-Id\" is of the gateway's signature"},
        {HOOK_AND(SIGNED, ", 'fence': {'token_header': 'Webhook-Signature'}"),
         "$.routes[0].fence.token_header: \"Webhook-Signature\" is of the gateway's signature"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char error[512], expected[512];
        const struct config *config = load(rows[i].json, error);
        if (config != NULL)
            fail_msg("row %zu was accepted: %s", i, rows[i].json);
        snprintf(expected, sizeof(expected), "%s: %s", conf_file, rows[i].expected);
        if (strncmp(error, expected, strlen(expected)) != 0)
            fail_msg("row %zu: %s\n  expected: %s\n  got:      %s", i, rows[i].json, expected, error);
        if (strstr(error, SECRET) != NULL || strstr(error, "whsec_A") != NULL || strchr(error, '\n') != NULL)
            fail_msg("row %zu shows a secret or has two lines: %s", i, error);
    }
}

/* Without secrets the signature's headers are the worker's business; ca_file needs no https upstream here. */
static void accepted(void **state)
{
    static const char *const rows[] = {
        HOOK_AND(ANY, ", 'request_headers': {'set': {'Webhook-Id': 'x'}, 'remove': ['Webhook-Signature']}"),
        HOOK_AND(ANY, ", 'tls': {'ca_file': 'ca.pem'}"),
        HOOK_AND(ANY, ", 'breaker': {}, 'in_flight': 3, 'retry_connect': 1, 'namespace': 'n', 'ledger': 'drops'"),
        HOOK(ANY ", 'secrets': []"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct config *config = load_good(rows[i]);
        config_unref(&config);
    }
}

static void warnings(void **state)
{
    (void)state;
    warns(HOOK(ANY), NULL);
    warns(HOOK(SIGNED ", 'ports': [443, 8443]"), NULL);
    warns(
        HOOK("'allow_hosts': ['a.example'], 'allow_private': true"),
        "$.routes[0].webhook.allow_private: requests can point route \"h\" at addresses of your own network, wherever");
    warns(HOOK(ANY ", 'allow_private': true"),
          "$.routes[0].webhook.allow_private: requests can point route \"h\" at every host of your own network");
    warns(HOOK(ANY ", 'allow_http': true"), "$.routes[0].webhook.allow_http: route \"h\" sends over plain http");
    warns(HOOK_AND(ANY, ", 'request_headers': {'set': {'Authorization': 'x'}}"),
          "$.routes[0].request_headers.set: route \"h\" sends these headers to whatever host a request names");
    warns(HOOK_AND("'allow_hosts': ['a.example']", ", 'request_headers': {'set': {'Authorization': 'x'}}"), NULL);
    warns(HOOK(ANY ", 'secrets': ['whsec_Zm9vYmFy']"),
          "$.routes[0].webhook.secrets[0]: a secret of 6 bytes, 24 at least are usual");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(hosts_are_kept_as_they_are_compared),
        cmocka_unit_test(secrets_are_decoded),
        cmocka_unit_test(refused),
        cmocka_unit_test(accepted),
        cmocka_unit_test(warnings),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
