/* tests/unit/test_config_smtp.c - config/: mail routes, their relay and login, what is refused, what is worth a line.
 */
#include "tests/unit/config_case.h"

/* A route of kind smtp with `members` in its object, and `more` beside it. */
#define MAIL_TO(upstream, members, more)                                                                               \
    "{'routes': [{'name': 'm', 'path': '/m', 'kind': 'smtp', 'upstream': '" upstream "', 'smtp': {" members "}" more   \
    "}]}"
#define MAIL(members) MAIL_TO("smtp://relay.example", members, "")
#define MAIL_AND(more) MAIL_TO("smtp://relay.example", "", more)

static void defaults(void **state)
{
    (void)state;
    const struct config *config =
        load_good("{'routes': [{'name': 'm', 'path': '/m', 'kind': 'smtp', 'upstream': 'smtp://Relay.Example'}]}");
    const struct config_route *route = &config->routes[0];
    assert_int_equal(route->kind, ROUTE_SMTP);
    assert_string_equal(route->upstream_origin, "smtp://relay.example:587");
    assert_true(route->smtp.starttls);
    assert_null(route->smtp.username);
    assert_null(route->smtp.password);
    assert_null(route->smtp.hello_name);
    assert_null(route->smtp.message_id_domain);
    config_unref(&config);
}

static void upstreams(void **state)
{
    static const struct {
        const char *json, *origin;
    } rows[] = {
        {MAIL_TO("smtps://relay.example", "", ""), "smtps://relay.example:465"},
        {MAIL_TO("smtp://relay.example:25/", "", ""), "smtp://relay.example:25"},
        {MAIL_TO("SMTPS://10.1.2.3:2465", "", ""), "smtps://10.1.2.3:2465"},
        {MAIL_TO("smtp://[2001:DB8::1]", "", ""), "smtp://[2001:db8::1]:587"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct config *config = load_good(rows[i].json);
        assert_string_equal(config->routes[0].upstream_origin, rows[i].origin);
        config_unref(&config);
    }
}

static void all_members(void **state)
{
    (void)state;
    const struct config *config = load_good(
        MAIL("'starttls': 'off', 'username': 'me', 'password': {'file': 'secret'}, 'hello_name': 'jobs.example', "
             "'message_id_domain': 'example.com'"));
    const struct config_smtp *smtp = &config->routes[0].smtp;
    assert_false(smtp->starttls);
    assert_string_equal(smtp->username, "me");
    assert_string_equal(smtp->password, "Bearer " SECRET);
    assert_string_equal(smtp->hello_name, "jobs.example");
    assert_string_equal(smtp->message_id_domain, "example.com");
    config_unref(&config);
}

static void refused(void **state)
{
    static const struct bad rows[] = {
        {MAIL_TO("https://h", "", ""),
         "$.routes[0].upstream: expected a URL that starts with \"smtp://\" or \"smtps://\"|"},
        {MAIL_TO("smtp://me:" SECRET "@h", "", ""),
         "$.routes[0].upstream: expected a URL without user name and password (use smtp.username and smtp.password)|"},
        {MAIL_TO("smtp://h/jobs.example", "", ""),
         "$.routes[0].upstream: expected a URL without path, query or fragment"},
        {MAIL_TO("smtp://h?x", "", ""), "$.routes[0].upstream: expected a URL without path, query or fragment"},
        {MAIL_TO("smtp://h:0", "", ""), "$.routes[0].upstream: expected a port from 1 to 65535"},
        {MAIL_TO("smtp://", "", ""), "$.routes[0].upstream: expected a host|"},
        {"{'routes': [{'name': 'm', 'path': '/m', 'kind': 'smtp'}]}", "$.routes[0]: \"upstream\" is required|"},
        {"{'routes': [{'name': 'm', 'path': '/m', 'upstream': 'smtp://h'}]}",
         "$.routes[0].upstream: expected a URL that starts with \"https://\" or \"http://\"|"},
        {"{'routes': [{" BASE ", 'smtp': {}}]}", "$.routes[0].smtp: expected \"kind\": \"smtp\" beside it|"},
        {MAIL("'password': '" SECRET "'"),
         "$.routes[0].smtp: \"username\" and \"password\" go together, \"username\" is missing|"},
        {MAIL("'username': 'me'"),
         "$.routes[0].smtp: \"username\" and \"password\" go together, \"password\" is missing|"},
        {MAIL("'username': 'me', 'password': ''"), "$.routes[0].smtp.password: the value is empty|"},
        {MAIL("'username': 'm\\u000ae', 'password': 'x'"), "$.routes[0].smtp.username: the value has a line break"},
        {MAIL("'starttls': 'try'"), "$.routes[0].smtp.starttls: expected \"off\" or \"required\", got \"try\"|"},
        {MAIL("'starttls': true"), "$.routes[0].smtp.starttls: expected"},
        {MAIL("'hello_name': 'a b'"), "$.routes[0].smtp.hello_name: expected"},
        {MAIL("'hello_name': 'a:25'"), "$.routes[0].smtp.hello_name: expected a domain such as"},
        {MAIL("'hello_name': ''"), "$.routes[0].smtp.hello_name: expected"},
        {MAIL("'message_id_domain': 'a@b'"), "$.routes[0].smtp.message_id_domain: expected"},
        {MAIL("'message_id_domain': 'a\\u000d\\u000ab'"), "$.routes[0].smtp.message_id_domain: expected"},
        {MAIL("'user': 'x'"), "$.routes[0].smtp.user: unknown key \"user\", expected one of starttls, username, "},
        {MAIL_AND(", 'strip_path': true"), "$.routes[0].strip_path: a route of kind \"smtp\" has no such setting|"},
        {MAIL_AND(", 'request_headers': {}"),
         "$.routes[0].request_headers: a route of kind \"smtp\" has no such setting|"},
        {MAIL_AND(", 'forward_fencing_headers': false"),
         "$.routes[0].forward_fencing_headers: a route of kind \"smtp\" has no such setting|"},
        {MAIL_TO("smtp://h", "'starttls': 'off'", ", 'tls': {'ca_file': 'ca.pem'}"),
         "$.routes[0].tls: expected smtp.starttls \"required\" or an smtps upstream"},
    };
    (void)state;
    CHECK_BAD(rows);
}

static void warnings(void **state)
{
    (void)state;
    warns(MAIL(""), NULL);
    warns(MAIL_TO("smtp://localhost", "'starttls': 'off'", ""), NULL);
    warns(MAIL_TO("smtp://[::1]:25", "'starttls': 'off'", ""), NULL);
    warns(MAIL_TO("smtps://relay.example", "'starttls': 'off'", ""), NULL);
    warns(MAIL("'starttls': 'off'"),
          "$.routes[0].smtp.starttls: route \"m\" sends mails in the clear to relay.example:587");
    warns(MAIL("'starttls': 'off', 'username': 'a', 'password': 'b'"),
          "$.routes[0].smtp.starttls: route \"m\" sends mails and its password in the clear to relay.example:587");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults), cmocka_unit_test(upstreams), cmocka_unit_test(all_members),
        cmocka_unit_test(refused),  cmocka_unit_test(warnings),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
