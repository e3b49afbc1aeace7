/* tests/unit/test_config_errors.c - config/: what is refused, and the line that says where and what was expected. */
#include "tests/unit/config_case.h"

static void bad_syntax(void **state)
{
    static const struct bad rows[] = {
        {"", ":1: expected more: the file ends inside the JSON text|"},
        {"{\n'routes': [\n", ":3: expected more: the file ends inside the JSON text|"},
        {"{\n\n'workers' 1}", ":3: ':' expected|"},
        {"{'workers': 1,}", ":1: string or '}' expected|"},
        {"{'workers': 1}\nx", ":2: end of file expected|"},
        {"42", ":1: '[' or '{' expected|"},
        {"{'workers': 99999999999999999999}", ":1: number too large"},
        {FENCE("'max_jump': 18446744073709551615"), ":1: number too large (tokens and max_jump are strings)|"},
        {"{'workers': 1,\n 'workers': 1}", ":2: duplicate key, expected each key once: \"workers\"|"},
        {ROUTE("\n'forward_fencing_headers': true,\n'forward_fencing_headers': true"),
         ":3: duplicate key, expected each key once: \"forward_fencing_headers\"|"},
        {"{'': 1, '': 2}", ":1: duplicate key, expected each key once: \"\"|"},
        {"{'a\\'b': 1, 'a\\'b': 2}", ":1: duplicate key, expected each key once: \"a\\\"b\"|"},
        {"{'workers': '\xff'}", ":1: expected UTF-8|"},
        {"{'workers': '\\u0000'}", ":1: expected text without NUL (\\u0000)|"},
        {"{'workers': '\\uD800x'}", ":1: invalid Unicode escape|"},
        {"{'workers': '\\x'}", ":1: invalid escape|"},
        /* the secret is what jansson would show as the text near the error */
        {HEADERS("'set': {'A': '" SECRET "' 'B': '1'}"), ":1: '}' expected|"},
        {HEADERS("'set': {'A' '" SECRET "'}"), ":1: ':' expected|"},
        {HEADERS("'set': {'A': '" SECRET), ":1: expected more"},
        {HEADERS("'set': {'A': '" SECRET "\n'}"), ":1: unexpected newline|"},
        {HEADERS("'set': {'A': " SECRET "}"), ":1: invalid token|"},
        {HEADERS("'set': {'A': '" SECRET "\\q'}"), ":1: invalid escape|"},
    };
    (void)state;
    CHECK_BAD(rows);
}

static void bad_top_level(void **state)
{
    static const struct bad rows[] = {
        {"[]", "$: expected an object, got an array|"},
        {"{}", "$: \"routes\" is required|"},
        {"{'routes': []}", "$.routes: expected 1 to 1000 routes, got 0|"},
        {"{'routes': {}}", "$.routes: expected an array of routes, got an object|"},
        {"{'routes': [1]}", "$.routes[0]: expected an object, got a number|"},
        {TOP("'limit': {}, "), "$.limit: unknown key \"limit\", did you mean \"limits\"?|"},
        {TOP("'zzz\\u001b[2J\\u2028': {}, "), "$[\"zzz\\x1b[2J\\xe2\\x80\\xa8\"]: unknown key \"zzz\\x1b[2J\\xe2"},
        {TOP("'verify': false, "), "$.verify: unknown key \"verify\", expected one of listen, "},
        {TOP("'listen': null, "), "$.listen: expected an object, got null|"},
        {TOP("'listen': {'adress': '::'}, "), "$.listen.adress: unknown key \"adress\", did you mean \"address\"?|"},
        {TOP("'listen': {'address': 'localhost'}, "),
         "$.listen.address: expected an IPv4 or IPv6 address (no name, no brackets, no port), got \"localhost\"|"},
        {TOP("'listen': {'address': '[::1]'}, "), "$.listen.address: expected an IPv4 or IPv6 address"},
        {TOP("'listen': {'address': '127.1'}, "), "$.listen.address: expected an IPv4 or IPv6 address"},
        {TOP("'listen': {'address': 1}, "), "$.listen.address: expected an IPv4 or IPv6 address"},
        {TOP("'listen': {'port': -1}, "), "$.listen.port: expected a whole number from 0 to 65535, got -1|"},
        {TOP("'listen': {'port': 65536}, "), "$.listen.port: expected a whole number from 0 to 65535, got 65536|"},
        {TOP("'listen': {'port': 80.0}, "),
         "$.listen.port: expected a whole number from 0 to 65535, got a number with a fraction or exponent|"},
        {TOP("'listen': {'port': '80'}, "), "$.listen.port: expected a whole number from 0 to 65535, got \"80\"|"},
        {TOP("'admin': {'hosts': 'a.example'}, "), "$.admin.hosts: expected an array of at most 100 host names|"},
        {TOP("'admin': {'hosts': [1]}, "), "$.admin.hosts[0]: expected a host name, got 1|"},
        {TOP("'admin': {'hosts': ['a.example:8081']}, "), "$.admin.hosts[0]: expected a host without a port"},
        {TOP("'admin': {'hosts': ['a.example', '*.example']}, "), "$.admin.hosts[1]: expected a host of letters"},
        {TOP("'admin': {'hosts': ['https://a.example/']}, "),
         "$.admin.hosts[0]: expected a host alone, such as \"api.example.com\", not a URL, got "
         "\"https://a.example/\"|"},
        {TOP("'admin': {'port': 8080}, "), "$.admin.port: expected another port than that of \"listen\", 8080|"},
        {TOP("'admin': {'port': 9, 'address': '::'}, 'listen': {'port': 9}, "), "$.admin.port: expected another port"},
        {TOP("'admin': {'token_file': 'none'}, "), "$.admin.token_file: cannot read /tmp/fencegate-config-"},
        {TOP("'admin': {'token_file': 'secret-empty'}, "), "$.admin.token_file: the value in /tmp/fencegate-config-"},
        {TOP("'admin': {'token_file': 'secret'}, "), "$.admin.token_file: the value in /tmp/fencegate-config-"},
        {TOP("'admin': {'token_file': 'token-short'}, "), "$.admin.token_file: the value in /tmp/fencegate-config-"},
        {TOP("'admin': {'token_file': 'token-mark'}, "), "$.admin.token_file: the value in /tmp/fencegate-config-"},
        {TOP("'admin': {'token_file': 7}, "), "$.admin.token_file: expected the path of a file, got 7|"},
        {TOP("'store': {'path': ''}, "), "$.store.path: expected the path of a folder, got \"\"|"},
        {TOP("'store': {'max_size': '1023KiB'}, "),
         "$.store.max_size: expected a size from 1MiB to 16384GiB such as \"8MiB\" (a string: digits and one of B KiB "
         "MiB GiB), got \"1023KiB\"|"},
        {TOP("'workers': 257, "), "$.workers: expected a whole number from 0 to 256, got 257|"},
        {TOP("'workers': true, "), "$.workers: expected a whole number from 0 to 256, got true|"},
        {TOP("'limits': {'connections': 0}, "),
         "$.limits.connections: expected a whole number from 1 to 1000000, got 0|"},
        {TOP("'limits': {'in_flight': 0}, "), "$.limits.in_flight: expected a whole number from 1 to 1000000, got 0|"},
        {TOP("'limits': {'headers': '1B'}, "), "$.limits.headers: expected a size from 1KiB to 1MiB such as"},
        {TOP("'limits': {'headers': '2MiB'}, "), "$.limits.headers: expected a size from 1KiB to 1MiB such as"},
        {TOP("'limits': {'body': 8}, "), "$.limits.body: expected a size from 0B to 16GiB such as"},
        {TOP("'limits': {'body': '8MB'}, "), "$.limits.body: expected a size from 0B to 16GiB such as"},
        {TOP("'limits': {'body': '17179869184GiB'}, "),
         "$.limits.body: expected a size"}, /* 2^64 bytes: no wrap to 0 */
        {TOP("'limits': {'buffered': '1.5GiB'}, "), "$.limits.buffered: expected a size"},
        {TOP("'limits': {'request_timeout': '0s'}, "), "$.limits.request_timeout: expected a duration from 1ms to 1d "
                                                       "such as \"30s\" (a string: digits and one of ms s "
                                                       "m h d), got \"0s\"|"},
        {TOP("'limits': {'idle_timeout': '30'}, "), "$.limits.idle_timeout: expected a duration"},
        {TOP("'limits': {'idle_timeout': '30 s'}, "), "$.limits.idle_timeout: expected a duration"},
        {TOP("'limits': {'idle_timeout': '+30s'}, "), "$.limits.idle_timeout: expected a duration"},
        {TOP("'limits': {'idle_timeout': '30S'}, "), "$.limits.idle_timeout: expected a duration"},
        {TOP("'limits': {'idle_timeout': '1m30s'}, "), "$.limits.idle_timeout: expected a duration"},
        {TOP("'limits': {'idle_timeout': 's'}, "), "$.limits.idle_timeout: expected a duration"},
        {TOP("'limits': {'idle_timeout': 30}, "), "$.limits.idle_timeout: expected a duration"},
        {TOP("'audit': {'retain': '213503982335d'}, "), "$.audit.retain: expected a duration"}, /* wraps to 74 days */
        {TOP("'audit': {'when_full': 'drop'}, "),
         "$.audit.when_full: expected \"refuse\" or \"drop-oldest\", got \"drop\"|"},
        {TOP("'shutdown_grace': '2d', "), "$.shutdown_grace: expected a duration from 0ms to 1d such as"},
        {TOP("'log': {'level': 'warning'}, "),
         "$.log.level: expected \"error\", \"warn\", \"info\" or \"debug\", got \"warning\"|"},
        {TOP("'log': {'access': 'yes'}, "), "$.log.access: expected true or false, got \"yes\"|"},
        {TOP("'log': {'access': 1}, "), "$.log.access: expected true or false, got 1|"},
    };
    (void)state;
    CHECK_BAD(rows);
}

static void bad_route(void **state)
{
    static const struct bad rows[] = {
        {"{'routes': [{}]}", "$.routes[0]: \"name\" is required|"},
        {"{'routes': [{'name': 'a'}]}", "$.routes[0]: \"path\" is required|"},
        {"{'routes': [{'name': 'a', 'path': '/a'}]}", "$.routes[0]: \"upstream\" is required|"},
        {ROUTE("'fense': {}"), "$.routes[0].fense: unknown key \"fense\", did you mean \"fence\"?|"},
        {ROUTE("'kind': 'ftp'"), "$.routes[0].kind: expected \"http\", \"smtp\" or \"webhook\", got \"ftp\"|"},
        {ROUTE("'kind': 1"), "$.routes[0].kind: expected \"http\", \"smtp\" or \"webhook\", got 1|"},
        {ROUTE("'namespace': ''"), "$.routes[0].namespace: expected 1 to 64 of A-Z a-z 0-9 . _ -, got \"\"|"},
        {ROUTE("'namespace': 'a/b'"), "$.routes[0].namespace: expected 1 to 64 of"},
        {ROUTE("'namespace': '0123456789012345678901234567890123456789012345678901234567890123x'"),
         "$.routes[0].namespace: expected 1 to 64 of"},
        {"{'routes': [{'name': 'a b', 'path': '/a', 'upstream': 'https://h'}]}",
         "$.routes[0].name: expected 1 to 64 of A-Z a-z 0-9 . _ -, got \"a b\"|"},
        {"{'routes': [{" BASE "}, {'name': 'a', 'path': '/b', 'upstream': 'https://h'}]}",
         "$.routes[1].name: \"a\" is the name of $.routes[0] already|"},
        {"{'routes': [{" BASE "}, {'name': 'b', 'path': '/a/', 'upstream': 'https://h'}]}",
         "$.routes[1]: route \"b\" has the same host and path as route \"a\" ($.routes[0])|"},
        {"{'routes': [{" BASE
         ", 'host': 'x.y'}, {'name': 'b', 'path': '/a', 'host': 'X.Y.', 'upstream': 'https://h'}]}",
         "$.routes[1]: route \"b\" has the same host and path as route \"a\" ($.routes[0])|"},
        {ROUTE("'strip_path': null"), "$.routes[0].strip_path: expected true or false, got null|"},
        {FENCE("'mode': 'of'"), "$.routes[0].fence.mode: expected \"enforce\", \"observe\" or \"off\", got \"of\"|"},
        {FENCE("'mode': false"), "$.routes[0].fence.mode: expected \"enforce\", \"observe\" or \"off\", got false|"},
        {FENCE("'moed': 'off'"), "$.routes[0].fence.moed: unknown key \"moed\", did you mean \"mode\"?|"},
        {FENCE("'equal': 'deny'"), "$.routes[0].fence.equal: expected \"reject\" or \"allow\", got \"deny\"|"},
        {FENCE("'new_keys': {}"), "$.routes[0].fence.new_keys: \"per_second\" is required|"},
        {FENCE("'new_keys': {'per_second': 0}"),
         "$.routes[0].fence.new_keys.per_second: expected a whole number from 1"},
        {FENCE("'new_keys': 5"), "$.routes[0].fence.new_keys: expected an object, got a number|"},
        {FENCE("'max_jump': 1000000"), "$.routes[0].fence.max_jump: expected a string of digits from \"1\" to "
                                       "\"18446744073709551615\" (as a JSON number "
                                       "it could be rounded), got 1000000|"},
        {FENCE("'max_jump': '0'"), "$.routes[0].fence.max_jump: expected a string of digits"},
        {FENCE("'max_jump': '18446744073709551616'"), "$.routes[0].fence.max_jump: expected a string of digits"},
        {FENCE("'max_jump': '1e6'"), "$.routes[0].fence.max_jump: expected a string of digits"},
        {FENCE("'max_jump': '-1'"), "$.routes[0].fence.max_jump: expected a string of digits"},
        {FENCE("'unfenced_methods': 'GET'"),
         "$.routes[0].fence.unfenced_methods: expected an array of strings, got a string|"},
        {FENCE("'unfenced_methods': ['GET', 'get']"),
         "$.routes[0].fence.unfenced_methods[1]: expected an HTTP method in capitals, got \"get\"|"},
        {FENCE("'unfenced_methods': ['G T']"), "$.routes[0].fence.unfenced_methods[0]: expected an HTTP method, got"},
        {FENCE("'unfenced_methods': [1]"), "$.routes[0].fence.unfenced_methods[0]: expected a string, got 1|"},
        {FENCE("'token_header': 'Fencing Token'"), "$.routes[0].fence.token_header: expected a header name"},
        {FENCE("'token_header': ''"), "$.routes[0].fence.token_header: expected a header name"},
        {FENCE("'token_header': 'content-length'"),
         "$.routes[0].fence.token_header: expected a header that is not the"},
        {FENCE("'token_header': 'Authorization'"), "$.routes[0].fence.token_header: expected a header of its own"},
        {FENCE("'key_header': 'Fencegate-Key'"), "$.routes[0].fence.key_header: expected a header that is not the"},
        {FENCE("'key_header': 'Upgrade'"), "$.routes[0].fence.key_header: expected a header that is not the"},
        {FENCE("'key_header': 'fencing-token'"),
         "$.routes[0].fence.key_header: expected another name than that of token_header, both are \"Fencing-Token\"|"},
        {ROUTE("'stale_status': 399"), "$.routes[0].stale_status: expected a whole number from 400 to 499, got 399|"},
        {ROUTE("'missing_status': 500"),
         "$.routes[0].missing_status: expected a whole number from 400 to 499, got 500|"},
        {ROUTE("'ledger': 'all'"), "$.routes[0].ledger: expected \"drops\" or \"effects\", got \"all\"|"},
        {ROUTE("'on_supersede': 'wait'"),
         "$.routes[0].on_supersede: expected \"drain\", \"abort\" or \"overlap\", got \"wait\"|"},
        {ROUTE("'drain_timeout': '25h'"), "$.routes[0].drain_timeout: expected a duration from 0ms to 1d such as"},
        {ROUTE("'timeout': '30s'"), "$.routes[0].timeout: expected an object, got a string|"},
        {ROUTE("'timeout': {'connect': '0ms'}"),
         "$.routes[0].timeout.connect: expected a duration from 1ms to 1h such as"},
        {ROUTE("'timeout': {'total': '0ms'}"), "$.routes[0].timeout.total: expected a duration from 1ms to 1d such as"},
        {ROUTE("'retry_connect': 11"), "$.routes[0].retry_connect: expected a whole number from 0 to 10, got 11|"},
        {ROUTE("'in_flight': 0"), "$.routes[0].in_flight: expected a whole number from 1 to 1000000, got 0|"},
        {ROUTE("'breaker': 5"), "$.routes[0].breaker: expected an object, got a number|"},
        {ROUTE("'breaker': {'failures': 0}"),
         "$.routes[0].breaker.failures: expected a whole number from 1 to 1000000, got 0|"},
        {ROUTE("'breaker': {'open_for': '0s'}"),
         "$.routes[0].breaker.open_for: expected a duration from 1ms to 1d such as"},
    };
    (void)state;
    CHECK_BAD(rows);
}

static void bad_places(void **state)
{
    static const struct bad rows[] = {
        {PATH(""), "$.routes[0].path: expected a path that starts with \"/\", got \"\"|"},
        {PATH("pay"), "$.routes[0].path: expected a path that starts with \"/\", got \"pay\"|"},
        {PATH("/a?b"), "$.routes[0].path: expected no query and no fragment, got \"/a?b\"|"},
        {PATH("/a#b"), "$.routes[0].path: expected no query and no fragment"},
        {PATH("/%70ay"), "$.routes[0].path: expected letters, digits and \"-._~\" without percent-encoding"},
        {PATH("/a%2"), "$.routes[0].path: expected two hexadecimal digits after \"%\""},
        {PATH("/a%zz"), "$.routes[0].path: expected two hexadecimal digits after \"%\""},
        {PATH("/a%0a"), "$.routes[0].path: expected a path without control characters"},
        {PATH("//pay"), "$.routes[0].path: expected a path without repeated slashes"},
        {PATH("/pay//"), "$.routes[0].path: expected a path without repeated slashes"},
        {PATH("/pay;x"), "$.routes[0].path: expected a path without \";\" parameters"},
        {PATH("/a/../b"), "$.routes[0].path: expected a path without \".\" and \"..\" segments"},
        {PATH("/a/."), "$.routes[0].path: expected a path without \".\" and \"..\" segments"},
        {PATH("/a/%2e%2E/b"), "$.routes[0].path: expected a path without \".\" and \"..\" segments"},
        {PATH("/a%2f..%5Cb"), "$.routes[0].path: expected a path without \".\" and \"..\" segments"},
        {PATH("/a b"), "$.routes[0].path: expected a path of visible ASCII (percent-encode the rest), got \"/a b\"|"},
        {PATH("/\xc3\xa4"),
         "$.routes[0].path: expected a path of visible ASCII (percent-encode the rest), got \"/\\xc3\\xa4\"|"},
        {PATH("/a|b"), "$.routes[0].path: expected a path of the characters that a URL path may hold"},
        {HOST(""), "$.routes[0].host: expected a host, got \"\"|"},
        {HOST("*.x.y"), "$.routes[0].host: expected a host of letters, digits, \"-\", \"_\" and \".\" (no wildcard"},
        {HOST("http://x.y"), "$.routes[0].host: expected "},
        {HOST("x..y"), "$.routes[0].host: expected a host without empty labels"},
        {HOST("x.y.."), "$.routes[0].host: expected a host without a dot at the end"},
        {HOST("x.y:0"), "$.routes[0].host: expected a port from 1 to 65535 after the colon"},
        {HOST("x.y:"), "$.routes[0].host: expected a port from 1 to 65535 after the colon"},
        {HOST("::1"), "$.routes[0].host: expected brackets around an IPv6 address"},
        {ROUTE("'host': 1"), "$.routes[0].host: expected a host such as \"stripe.internal\", got 1|"},
        {UPSTREAM("ftp://h"), "$.routes[0].upstream: expected a URL that starts with \"https://\" or \"http://\"|"},
        {UPSTREAM("h.example"), "$.routes[0].upstream: expected a URL that starts with \"https://\" or \"http://\"|"},
        {UPSTREAM("https://"), "$.routes[0].upstream: expected a host|"},
        {UPSTREAM("https:///x"), "$.routes[0].upstream: expected a host|"},
        {UPSTREAM("https://u:" SECRET "@h"),
         "$.routes[0].upstream: expected a URL without user name and password (use request_headers.set)|"},
        {UPSTREAM("https://h?key=" SECRET), "$.routes[0].upstream: expected no query and no fragment|"},
        {UPSTREAM("https://h/a#" SECRET), "$.routes[0].upstream: expected no query and no fragment|"},
        {UPSTREAM("https://h:0"), "$.routes[0].upstream: expected a port from 1 to 65535 after the colon|"},
        {UPSTREAM("https://h:65536"), "$.routes[0].upstream: expected a port from 1 to 65535 after the colon|"},
        {UPSTREAM("https://h:+80"), "$.routes[0].upstream: expected a port from 1 to 65535 after the colon|"},
        {UPSTREAM("https://h:080"), "$.routes[0].upstream: expected a port from 1 to 65535 after the colon|"},
        {UPSTREAM("https://h:8 0"), "$.routes[0].upstream: expected a port from 1 to 65535 after the colon|"},
        {UPSTREAM("https://h.example./"), "$.routes[0].upstream: expected a host without a dot at the end|"},
        {UPSTREAM("https://::1/"), "$.routes[0].upstream: expected brackets around an IPv6 address"},
        {UPSTREAM("https://[::1"), "$.routes[0].upstream: expected an IPv6 address between the brackets|"},
        {UPSTREAM("https://[::1%25eth0]"), "$.routes[0].upstream: expected an IPv6 address between the brackets|"},
        {UPSTREAM("https://[1.2.3.4]"), "$.routes[0].upstream: expected an IPv6 address between the brackets|"},
        {UPSTREAM("https://[::1]x"), "$.routes[0].upstream: expected nothing but \":port\" after the brackets|"},
        {UPSTREAM("http://2130706433"),
         "$.routes[0].upstream: expected a host name, or an IPv4 address of four decimal"},
        {UPSTREAM("http://0x7f.1"), "$.routes[0].upstream: expected a host name, or an IPv4 address of four decimal"},
        {UPSTREAM("http://10.0.0.256"),
         "$.routes[0].upstream: expected a host name, or an IPv4 address of four decimal"},
        {UPSTREAM("http://a.0x1f"), "$.routes[0].upstream: expected a host name, or an IPv4 address of four decimal"},
        {UPSTREAM("http://h\xc3\xa4"), "$.routes[0].upstream: expected a host of letters"},
        {UPSTREAM("http://h%2e"), "$.routes[0].upstream: expected a host of letters"},
        {UPSTREAM("http://-h"), "$.routes[0].upstream: expected a host with labels of 1 to 63 bytes"},
        {UPSTREAM("https://h/a b"), "$.routes[0].upstream: expected a path of visible ASCII"},
        {UPSTREAM("https://h/a/../b"), "$.routes[0].upstream: expected a path without \".\" and \"..\" segments|"},
        {UPSTREAM("https://h/%2e"), "$.routes[0].upstream: expected a path without \".\" and \"..\" segments|"},
        {UPSTREAM("https://h/%1f"), "$.routes[0].upstream: expected a path without control characters|"},
        {UPSTREAM("https://h/a//"), "$.routes[0].upstream: expected at most one slash at the end|"},
        {"{'routes': [{'name': 'a', 'path': '/a', 'upstream': {}}]}",
         "$.routes[0].upstream: expected a URL such as \"https://api.example.com\", got an object|"},
    };
    (void)state;
    CHECK_BAD(rows);
}

#define SET_AT "$.routes[0].request_headers.set[\"X-A\"]"

static void bad_headers_and_secrets(void **state)
{
    static const struct bad rows[] = {
        {HEADERS("'set': []"), "$.routes[0].request_headers.set: expected an object of headers, got an array|"},
        {HEADERS("'add': {}"), "$.routes[0].request_headers.add: unknown key \"add\", expected one of set, remove|"},
        {HEADERS("'set': {'A B': '1'}"), "$.routes[0].request_headers.set[\"A B\"]: expected a header name"},
        {HEADERS("'set': {'A:': '1'}"), "$.routes[0].request_headers.set[\"A:\"]: expected a header name"},
        {HEADERS("'set': {'': '1'}"), "$.routes[0].request_headers.set[\"\"]: expected a header name"},
        {HEADERS("'set': {'Host': 'x'}"), "$.routes[0].request_headers.set.Host: expected a header that is not the"},
        {HEADERS("'set': {'transfer-encoding': 'x'}"),
         "$.routes[0].request_headers.set[\"transfer-encoding\"]: expected a header that is not the"},
        {HEADERS("'set': {'EXPECT': 'x'}"),
         "$.routes[0].request_headers.set.EXPECT: expected a header that is not the"},
        {HEADERS("'set': {'TE': 'x'}"), "$.routes[0].request_headers.set.TE: expected a header that is not the"},
        {HEADERS("'set': {'fencegate-effect': 'sent'}"),
         "$.routes[0].request_headers.set[\"fencegate-effect\"]: expected a header that is not the"},
        {HEADERS("'set': {'fencing-token': '1'}"),
         "$.routes[0].request_headers.set[\"fencing-token\"]: a fencing header of this route can't be set|"},
        {HEADERS("'set': {'X-A': '1', 'x-a': '2'}"),
         "$.routes[0].request_headers.set[\"x-a\"]: \"X-A\" is set already (header names have no case)|"},
        {HEADERS("'remove': 'Cookie'"),
         "$.routes[0].request_headers.remove: expected an array of strings, got a string|"},
        {HEADERS("'remove': ['Cookie', 'a b']"), "$.routes[0].request_headers.remove[1]: expected a header name"},
        {HEADERS("'remove': ['Host']"), "$.routes[0].request_headers.remove[0]: expected a header that is not the"},
        {HEADERS("'remove': ['workflow-key']"),
         "$.routes[0].request_headers.remove[0]: \"workflow-key\" is a fencing header: see forward_fencing_headers|"},
        {HEADERS("'remove': ['x-a'], 'set': {'X-A': '1'}"),
         "$.routes[0].request_headers.remove[0]: \"x-a\" is in \"set\" too, which replaces it|"},
        {SET("''"), SET_AT ": the value is empty|"},
        {SET("'  '"), SET_AT ": the value is empty|"},
        {SET("'" SECRET "\\nX: 1'"), SET_AT ": the value has a line break (CR or LF) in it|"},
        {SET("'" SECRET "\\r'"), SET_AT ": the value has a line break (CR or LF) in it|"},
        {SET("'" SECRET "\\u0001'"), SET_AT ": the value has a control character in it|"},
        {SET("'" SECRET "\\u007f'"), SET_AT ": the value has a control character in it|"},
        {SET("1"), SET_AT ": expected a string, {\"file\": \"path\"} or {\"env\": \"name\"}|"},
        {SET("['" SECRET "']"), SET_AT ": expected a string, {\"file\": \"path\"} or {\"env\": \"name\"}|"},
        {SET("{}"), SET_AT ": expected a string, {\"file\": \"path\"} or {\"env\": \"name\"}|"},
        {SET("{'" SECRET "': 1}"), SET_AT ": expected a string, {\"file\": \"path\"} or {\"env\": \"name\"}|"},
        {SET("{'file': 'secret', 'env': 'HOME'}"), SET_AT ": expected a string, {\"file\": \"path\"}"},
        {SET("{'file': 1}"), SET_AT ": expected a string, {\"file\": \"path\"}"},
        {SET("{'file': ''}"), SET_AT ": expected a string, {\"file\": \"path\"}"},
        {SET("{'file': '/nowhere/secret'}"), SET_AT ".file: cannot read /nowhere/secret: No such file or directory|"},
        {SET("{'file': '/dev/zero'}"), SET_AT ".file: cannot read /dev/zero: not a regular file|"},
        {SET("{'file': '/tmp'}"), SET_AT ".file: cannot read /tmp: not a regular file|"},
        {SET("{'file': 'secret-large'}"), SET_AT ".file: cannot read /tmp/fencegate-config-"},
        {SET("{'file': 'secret-empty'}"), SET_AT ".file: the value in /tmp/fencegate-config-"},
        {SET("{'file': 'secret-mark'}"), SET_AT ".file: the value in /tmp/fencegate-config-"},
        {SET("{'file': 'secret-wide'}"), SET_AT ".file: the value in /tmp/fencegate-config-"},
        {SET("'\xef\xbb\xbfx'"), SET_AT ": the value begins with a byte order mark"},
        {"\xef\xbb\xbf" TOP(""), ":1: expected JSON, got a byte order mark"},
        {SET("{'file': 'secret-newline'}"), SET_AT ".file: the value in /tmp/fencegate-config-"},
        {SET("{'file': 'secret-blank'}"), SET_AT ".file: the value in /tmp/fencegate-config-"},
        {SET("{'file': 'secret-two'}"), SET_AT ".file: the value in /tmp/fencegate-config-"},
        {SET("{'file': 'secret-inner'}"), SET_AT ".file: the value in /tmp/fencegate-config-"},
        {SET("{'file': 'secret-cr'}"), SET_AT ".file: the value in /tmp/fencegate-config-"},
        {SET("{'file': 'secret-nul'}"), SET_AT ".file: the value in /tmp/fencegate-config-"},
        {SET("{'file': 'secret-escape'}"), SET_AT ".file: the value in /tmp/fencegate-config-"},
        {SET("{'env': 'FG_TEST_ABSENT'}"), SET_AT ".env: the environment variable FG_TEST_ABSENT is not set|"},
        {SET("{'env': 'FG_TEST_EMPTY'}"), SET_AT ".env: the environment variable FG_TEST_EMPTY is empty|"},
        {SET("{'env': 'FG_TEST_LF'}"), SET_AT ".env: the environment variable FG_TEST_LF has a line break"},
        {SET("{'env': ''}"), SET_AT ".env: expected the name of an environment variable"},
        {SET("{'env': 'Bearer " SECRET "'}"), SET_AT ".env: expected the name of an environment variable"},
    };
    (void)state;
    CHECK_BAD(rows);
}

static void bad_tls(void **state)
{
    static const struct bad rows[] = {
        {ROUTE("'tls': {'ca_file': '/nowhere.pem'}"),
         "$.routes[0].tls.ca_file: cannot read /nowhere.pem: No such file or directory|"},
        {ROUTE("'tls': {'ca_file': '/tmp'}"), "$.routes[0].tls.ca_file: cannot read /tmp: not a regular file|"},
        {ROUTE("'tls': {'ca_file': 'empty.pem'}"),
         "$.routes[0].tls.ca_file: expected a PEM file with a CERTIFICATE, but /tmp/fencegate-config-"},
        {ROUTE("'tls': {'ca_file': 'key.pem'}"),
         "$.routes[0].tls.ca_file: expected a PEM file with a CERTIFICATE, but "},
        {ROUTE("'tls': {'ca_file': 1}"), "$.routes[0].tls.ca_file: expected the path of a PEM file, got 1|"},
        {ROUTE("'tls': {'cert_file': 'ca.pem'}"),
         "$.routes[0].tls: \"cert_file\" and \"key_file\" go together, \"key_file\" is missing|"},
        {ROUTE("'tls': {'key_file': 'key.pem'}"),
         "$.routes[0].tls: \"cert_file\" and \"key_file\" go together, \"cert_file\" is missing|"},
        {ROUTE("'tls': {'ca_file': 'half.pem'}"),
         "$.routes[0].tls.ca_file: expected a PEM file with a CERTIFICATE, but "},
        {ROUTE("'tls': {'ca_file': 'half-chain.pem'}"),
         "$.routes[0].tls.ca_file: expected a PEM file with a CERTIFICATE, but "},
        {ROUTE("'tls': {'ca_file': 'hollow.pem'}"),
         "$.routes[0].tls.ca_file: expected a PEM file with a CERTIFICATE, but "},
        {ROUTE("'tls': {'cert_file': 'half.pem', 'key_file': 'key.pem'}"),
         "$.routes[0].tls.cert_file: expected a PEM file with a CERTIFICATE, but "},
        {ROUTE("'tls': {'cert_file': 'ca.pem', 'key_file': 'half-key.pem'}"),
         "$.routes[0].tls.key_file: expected a PEM file with a PRIVATE KEY, but "},
        {ROUTE("'tls': {'cert_file': 'ca.pem', 'key_file': 'hollow-key.pem'}"),
         "$.routes[0].tls.key_file: expected a PEM file with a PRIVATE KEY, but "},
        {ROUTE("'tls': {'cert_file': 'ca.pem', 'key_file': 'other-key.pem'}"),
         "$.routes[0].tls.key_file: expected the key of the certificate, but that of "},
        {ROUTE("'tls': {'cert_file': 'chain.pem', 'key_file': 'other-key.pem'}"),
         "$.routes[0].tls.key_file: expected the key of the certificate, but that of "},
        {ROUTE("'tls': {'cert_file': 'ca.pem', 'key_file': 'ca.pem'}"),
         "$.routes[0].tls.key_file: expected a PEM file with a PRIVATE KEY, but "},
        {ROUTE("'tls': {'cert_file': 'ca.pem', 'key_file': 'locked.pem'}"),
         "$.routes[0].tls.key_file: expected a PEM file with a PRIVATE KEY, but "},
        {ROUTE("'tls': {'cert_file': 'ca.pem', 'key_file': 'old-locked.pem'}"),
         "$.routes[0].tls.key_file: expected a PEM file with a PRIVATE KEY, but "},
        {ROUTE("'tls': {'verify': false}"),
         "$.routes[0].tls.verify: unknown key \"verify\", expected one of ca_file, cert_file, key_file|"},
        {ROUTE("'tls': {'insecure': true}"),
         "$.routes[0].tls.insecure: unknown key \"insecure\", expected one of ca_file, cert_file, key_file|"},
        {"{'routes': [{'name': 'a', 'path': '/a', 'upstream': 'http://h', 'tls': {'ca_file': 'ca.pem'}}]}",
         "$.routes[0].tls: expected an https upstream: over plain http these files would not be used|"},
    };
    (void)state;
    CHECK_BAD(rows);
}

#define TO(listeners, upstream) "{" listeners ", 'routes': [{'name': 'a', 'path': '/a', 'upstream': '" upstream "'}]}"
#define LISTEN(address, port) "'listen': {'address': '" address "', 'port': " port "}"
#define ADMIN(address, port) "'admin': {'address': '" address "', 'port': " port "}"
#define OWN "$.routes[0].upstream: expected a partner, this is the gateway's own \"listen\"|"

static void an_own_listener_is_no_upstream(void **state)
{
    static const struct bad rows[] = {
        {TO(LISTEN("127.0.0.1", "9000"), "http://127.0.0.1:9000"), OWN},
        {TO(LISTEN("127.0.0.1", "9000"), "https://127.0.0.1:9000/x"), OWN},
        {TO(LISTEN("127.0.0.1", "9000"), "http://localhost:9000"), OWN},
        {TO(LISTEN("127.0.0.1", "9000"), "http://0.0.0.0:9000"), OWN},
        {TO(LISTEN("0.0.0.0", "80"), "http://localhost"), OWN},
        {TO(LISTEN("0.0.0.0", "443"), "https://127.0.0.7"), OWN},
        {TO(LISTEN("::", "9000"), "http://[::1]:9000"), OWN},
        {TO(LISTEN("::1", "9000"), "http://[::1]:9000"), OWN},
        {TO(LISTEN("::1", "9000"), "http://localhost:9000"), OWN},
        {TO(LISTEN("10.1.2.3", "9000"), "http://10.1.2.3:9000"), OWN},
        {TO(ADMIN("127.0.0.1", "9000"), "http://127.0.0.1:9000"),
         "$.routes[0].upstream: expected a partner, this is the gateway's own \"admin\"|"},
        {"{" LISTEN("127.0.0.1", "587") ", 'routes': [{'name': 'a', 'path': '/a', 'kind': 'smtp', 'upstream': "
                                        "'smtp://localhost'}]}",
         OWN},
    };
    static const char *const others[] = {
        TO(LISTEN("127.0.0.1", "9000"), "http://127.0.0.1:9001"),
        TO(LISTEN("127.0.0.1", "9000"), "http://127.0.0.2:9000"),
        TO(LISTEN("127.0.0.1", "9000"), "http://partner.example:9000"),
        TO(LISTEN("10.1.2.3", "9000"), "http://localhost:9000"),
        TO(LISTEN("10.1.2.3", "9000"), "http://10.1.2.4:9000"),
        TO(LISTEN("0.0.0.0", "9000"), "http://10.1.2.4:9000"),
        TO(LISTEN("127.0.0.1", "0"), "http://127.0.0.1:9000"),
    };
    (void)state;
    CHECK_BAD(rows);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const struct config *config = load_good(others[i]);
        config_unref(&config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_syntax),
        cmocka_unit_test(bad_top_level),
        cmocka_unit_test(bad_route),
        cmocka_unit_test(bad_places),
        cmocka_unit_test(bad_headers_and_secrets),
        cmocka_unit_test(bad_tls),
        cmocka_unit_test(an_own_listener_is_no_upstream),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
