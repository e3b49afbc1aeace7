"""Bad input at the admin listener: each gets a problem answer that names what is wrong, and the process lives."""

import json
import random
import re
import socket
import time
import urllib.parse

import pytest

from client import BadAnswer, Closed, Connection, request
from gateway import PATIENCE, SANITIZED, eventually, route

JSON = ("Content-Type", "application/json")
FENCE = "/v1/fences/default/k"
RAISE = b'{"token":"43","reason":"by hand"}'
BEARER = object()


def ask(gw, path="/v1/fences", method="GET", headers=(), body=b"", host="localhost", token=BEARER, version="HTTP/1.1"):
    """Exactly these headers, and the right token unless told otherwise."""
    own = [("Authorization", f"Bearer {gw.admin_token}")] if token is BEARER else []
    return request(method, path, [*own, *headers], body, host=host, version=version)


def receive(gw, *pieces, method="GET"):
    with Connection(gw.admin_port, PATIENCE) as connection:
        connection.send(*pieces)
        return connection.receive(method)


def problem(answer, status, reason, part=""):
    assert answer.status == status and answer.complete, answer
    assert answer.get("Content-Type") == "application/problem+json; charset=utf-8", answer
    assert answer.get("Cache-Control") == "no-store" and answer.get("X-Content-Type-Options") == "nosniff", answer
    found = answer.json
    assert (found["status"], found["reason"], found["type"]) == (status, reason, f"urn:fencegate:problem:{reason}")
    assert found["error"] == {"type": "fencegate_error", "code": reason, "message": found["detail"]} and found["title"]
    assert part in found["detail"], found["detail"]


# -- queries


@pytest.mark.parametrize("query, part", [
    ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=-1", "limit"), ("limit=1e2", "limit"), ("limit=+5", "limit"), ("limit=0x10", "limit"),
    ("limit=18446744073709551617", "limit"), ("limit=5&limit=5", "limit"), ("limit=", "limit"), ("limit", "limit"), ("limit=%35%zz", "limit"),
    ("Limit=5", "Limit"), ("nonsense=1", "nonsense"), ("limit=5&", ""), ("&limit=5", ""), ("=5", ""), ("limit=5;order=asc", "limit"), ("%6cimit=5", "%6cimit"),
])
@pytest.mark.parametrize("path", ["/v1/audit", "/v1/fences", "/v1/effects"])
def test_bad_parameters_are_named(gw, path, query, part):
    problem(receive(gw, ask(gw, f"{path}?{query}")), 400, "malformed-request", part)


@pytest.mark.parametrize("path, query, part", [
    ("/v1/audit", "after=-1", "after"), ("/v1/audit", "after=1.5", "after"), ("/v1/audit", "after=18446744073709551616", "after"), ("/v1/audit", "order=ASC", "order"),
    ("/v1/audit", "kind=sent,dropped", "kind"), ("/v1/audit", "kind=Sent", "kind"), ("/v1/audit", "key=%ff", "key"), ("/v1/audit", "key=a%00b", "key"),
    ("/v1/audit", "key=" + "k" * 256, "key"), ("/v1/audit", "namespace=a/b", "namespace"), ("/v1/audit", "namespace=" + "n" * 65, "namespace"),
    ("/v1/audit", "reason=%0a", "reason"), ("/v1/audit", "route=" + "r" * 65, "route"), ("/v1/audit", "route=no+such", "route"), ("/v1/audit", "key=%4", "key"), ("/v1/audit", "key=%", "key"),
    ("/v1/fences", "cursor=zz", "cursor"), ("/v1/fences", "cursor=00", "cursor"), ("/v1/fences", "cursor=6400", "cursor"), ("/v1/fences", "cursor=64006", "cursor"),
    ("/v1/fences", "cursor=6b", "cursor"), ("/v1/fences", "cursor=64002f0a", "cursor"), ("/v1/fences", "cursor=" + "61" * 2000, "cursor"), ("/v1/fences", "cursor=2f0061", "cursor"),
    ("/v1/fences", "prefix=%c3", "prefix"), ("/v1/fences", "after=1", "after"), ("/v1/effects", "state=sent", "state"), ("/v1/effects", "after=x", "after"),
    ("/v1/effects", "cursor=6100", "cursor"), (FENCE, "x=1", "x"), ("/v1/stats", "x=1", "x"),
])
def test_bad_values_are_named(gw, path, query, part):
    problem(receive(gw, ask(gw, f"{path}?{query}")), 400, "malformed-request", part)


@pytest.mark.parametrize("query", ["cursor=64656661756c7400ff"])
def test_a_cursor_of_bytes_that_are_no_key_is_refused(gw, query):
    problem(receive(gw, ask(gw, f"/v1/fences?{query}")), 400, "malformed-request", "cursor")


@pytest.mark.parametrize("path", ["/v1/audit?after=0", "/v1/audit?after=18446744073709551615", "/v1/fences?cursor=6e6f6e65006e6f6e65", "/v1/effects?after=18446744073709551615"])
def test_a_place_where_nothing_is_gives_an_empty_page(gw, path):
    answer = receive(gw, ask(gw, path))
    assert answer.status == 200 and answer.json[re.match("/v1/([a-z]+)", path)[1].replace("audit", "records")] is not None


# -- times: the same words over HTTP and in the command


TIMES = [
    ("2026-11-30T01:02:03Z", True), ("2026-11-30t01:02:03.5z", True), ("2026-11-30T03:02:03+02:00", True), ("2026-11-30T03:02:03-23:59", True),
    ("2016-12-31T23:59:60Z", True), ("9999-12-31T23:59:59.999Z", True), ("0000-01-01T00:00:00Z", True), ("2026-11-30T01:02:03.123456789Z", True),
    ("15m", True), ("0s", True), ("99999999d", True), ("18446744073709551615d", True), ("18446744073709551616d", False), ("-5m", False), ("+5m", False), ("5", False),
    ("15 m", False), ("1h30m", False), ("now", False), ("2026-11-30T01:02:03", False),
    ("2026-11-30T01:02:03+24:00", False), ("2026-11-30T01:02:61Z", False), ("2026-02-29T00:00:00Z", False), ("10000-01-01T00:00:00Z", False),
    ("2026-11-30", True), ("2026-11-30 01:02:03.074 +0000", True), ("2026-11-30 01:02:03", False),
    ("2026-11-30T01:02:03.Z", False), (" 15m", False), ("15m\n", False),
]


@pytest.mark.parametrize("name", ["since", "until"])
def test_times_are_read_alike_over_http_and_by_the_command(gw, name):
    for text, good in TIMES:
        answer = receive(gw, ask(gw, f"/v1/audit?{name}=" + urllib.parse.quote(text, safe="")))
        if good:
            assert answer.status == 200, (text, answer)
        else:
            problem(answer, 400, "malformed-request", name)
        done = gw.command("audit", f"--{name}={text}")
        assert done.returncode == (0 if good else 2), (text, done)


def test_a_plus_that_is_not_encoded_is_a_blank(gw):
    problem(receive(gw, ask(gw, "/v1/audit?since=2026-11-30T03:02:03+02:00")), 400, "malformed-request", "%2B")


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-23:59", "99999999d", "0000-01-01T00:00:00+23:59"])
def test_times_outside_the_calendar_filter_like_its_ends(gw, mark, time):
    receive(gw, ask(gw, f"/v1/fences/default/{mark}", "PUT", [JSON], RAISE), method="PUT")
    query = f"/v1/audit?key={mark}&" + urllib.parse.urlencode({"since": time})
    count = len(receive(gw, ask(gw, query)).json["records"])
    assert count == (0 if time.startswith("9999-") else 1)
    query = f"/v1/audit?key={mark}&" + urllib.parse.urlencode({"until": time})
    assert len(receive(gw, ask(gw, query)).json["records"]) == 1 - count


# -- keys and paths


@pytest.mark.parametrize("path, status", [
    ("/v1/fences/default/%ff", 400), ("/v1/fences/default/%c3%28", 400), ("/v1/fences/default/%ed%a0%80", 400), ("/v1/fences/default/a%00b", 400),
    ("/v1/fences/default/a%0ab", 400), ("/v1/fences/default/a%7f", 400), ("/v1/fences/default/%zz", 400), ("/v1/fences/default/%4", 400), ("/v1/fences/default/%", 400),
    ("/v1/fences/default/", 400), ("/v1/fences//k", 400), ("/v1/fences/a%2fb/k", 400), ("/v1/fences/" + "n" * 65 + "/k", 400),
    ("/v1/fences/default/" + "k" * 256, 400), ("/v1/fences/default/" + "%c3%a9" * 128, 400), ("/v1/fences/default/a/b", 404), ("/v1/fences/default", 404),
    ("/v1/fences/", 404), ("/v1", 404), ("/v1/", 404), ("//v1/fences", 404), ("/v1/./fences", 404), ("/v1/fences/../audit", 404), ("/V1/fences", 404), ("/v1/audit/", 404),
    ("/v1/effects/x/resolve", 405), ("/v1/fences/default/k?", 404), ("*", 400), ("v1/fences", 400), ("/v1/fences#x", 404),
])
def test_paths_that_name_nothing(gw, path, status):
    reason = {400: "malformed-request", 404: "not-found", 405: "method-not-allowed"}[status]
    problem(receive(gw, ask(gw, path)), status, reason)


@pytest.mark.parametrize("key", ["k" * 255, "é" * 127 + "x", "\U0001f600" * 63 + "abc", "a/b", "/", "%2F", "a?b&c=d#e+f", ".", "..", "\u202e", "\u00a0"])
def test_every_key_that_is_one_has_a_path(gw, key):
    path = "/v1/fences/keys/" + urllib.parse.quote(key, safe="")
    answer = receive(gw, ask(gw, path, "PUT", [JSON], RAISE), method="PUT")
    assert answer.status == 200 and answer.json["key"] == key, answer
    assert receive(gw, ask(gw, path)).json["key"] == key
    query = "/v1/audit?" + urllib.parse.urlencode({"namespace": "keys", "key": key})
    assert [record["key"] for record in receive(gw, ask(gw, query)).json["records"]] == [key]
    assert receive(gw, ask(gw, path + "?reason=done", "DELETE"), method="DELETE").status == 204


# -- bodies


@pytest.mark.parametrize("body, part", [
    (b"", "JSON"), (b"null", "JSON"), (b'"43"', ""), (b"[{}]", "object"), (b"{", "JSON"), (b'{"token":"43"}{}', "JSON"), (b'{"token":"43",}', "JSON"),
    (b"{'token':'43'}", "JSON"), (b'\xef\xbb\xbf{"token":"43"}', "JSON"), (b'{"token":43}', "string"), (b'{"token":43.0}', "string"), (b'{"token":1e400}', ""),
    (b'{"token":true}', "string"), (b'{"token":null}', "string"), (b'{"token":["43"]}', "string"), (b'{"token":{}}', "string"), (b'{"token":""}', "token"),
    (b'{"token":"-1"}', "token"), (b'{"token":" 43"}', "token"), (b'{"token":"18446744073709551616"}', "token"), (b'{"token":"000000000000000000043"}', "token"),
    (b'{"token":"4\\u00003"}', ""), (b'{"token":"43","token":"44"}', "JSON"), (b'{"token":"43","\\u0074oken":"44"}', "JSON"), (b'{"tok\\u0000en":"43"}', "NUL"),
    (b'{"token":"43","reason":"a\\u0000b"}', "NUL"), (b'{"token":"43","reason":"\\ud800"}', "JSON"), (b'{"token":"43","reason":"\xed\xa0\x80"}', "JSON"),
    (b'{"token":"43","reason":"' + b"r" * 256 + b'"}', "reason"), (b'{"token":"43","wait":"forever"}', "wait"), (b'{"token":"43","wait":"2h"}', "wait"),
    (b'{"token":"43","wait":"-1s"}', "wait"), (b'{"token":"43","force":"true"}', "force"), (b"[" * 30000, "JSON"), (b'{"token":' * 6000, "JSON"), (b"\0" * 100, "JSON"),
    (b'{"token":"43"}'.decode().encode("utf-16"), "JSON"), (b"token=43", "JSON"),
])
def test_a_body_that_is_no_raise_changes_nothing(gw, mark, body, part):
    problem(receive(gw, ask(gw, f"/v1/fences/default/{mark}", "PUT", [JSON], body), method="PUT"), 400, "malformed-request", part)
    assert gw.fence(mark) is None


@pytest.mark.parametrize("body, part", [
    (b"{}", "outcome"), (b'{"outcome":"unknown","note":"n"}', "outcome"), (b'{"outcome":"sent"}', "note"), (b'{"outcome":"sent","note":""}', "note"),
    (b'{"outcome":"sent","note":7}', "note"), (b'{"outcome":"sent","note":"' + b"n" * 4097 + b'"}', "note"), (b'{"outcome":"sent","note":"n","id":"1"}', "id"),
])
def test_a_body_that_is_no_resolution(gw, body, part):
    problem(receive(gw, ask(gw, "/v1/effects/1/resolve", "POST", [JSON], body), method="POST"), 400, "malformed-request", part)


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.0", "18446744073709551616", "%31x", ""])
def test_an_effect_id_is_digits(gw, number):
    answer = receive(gw, ask(gw, f"/v1/effects/{number}/resolve", "POST", [JSON], b'{"outcome":"sent","note":"n"}'), method="POST")
    problem(answer, 400, "malformed-request", "id")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data; boundary=x", "", "json", "application/json-patch+json"])
def test_another_content_type_is_refused(gw, mark, kind):
    """What a form on a stranger's page can send without asking first is among these."""
    problem(receive(gw, ask(gw, f"/v1/fences/default/{mark}", "PUT", [("Content-Type", kind)], RAISE), method="PUT"), 400, "malformed-request", "Content-Type")
    assert gw.fence(mark) is None


@pytest.mark.parametrize("framing", ["length", "chunked", "1.0", "expect"])
def test_every_framing_of_a_body_works(gw, mark, framing):
    path = f"/v1/fences/default/{mark}"
    head = {"chunked": [("Transfer-Encoding", "chunked")], "expect": [("Expect", "100-continue"), ("Content-Length", len(RAISE))]}.get(framing, [])
    body = b"".join(b"1\r\n%c\r\n" % c for c in RAISE) + b"0\r\nToken: 44\r\n\r\n" if framing == "chunked" else RAISE
    whole = ask(gw, path, "PUT", [JSON, *head], b"" if framing in ("chunked", "expect") else body, version="HTTP/1.0" if framing == "1.0" else "HTTP/1.1")
    with Connection(gw.admin_port, PATIENCE) as connection:
        connection.send(whole)
        if framing == "chunked":
            connection.send(body)
        elif framing == "expect":
            eventually(lambda: connection._fill() and b"100 Continue" in connection.buffer)
            connection.send(body)
        answer = connection.receive("PUT")
    assert answer.status == 200 and answer.json["highest"] == "43", answer


# -- who asks


def headers_of(gw, kind):
    right = f"Bearer {gw.admin_token}"
    return {
        "none": [], "empty": [("Authorization", "")], "scheme": [("Authorization", gw.admin_token)], "basic": [("Authorization", "Basic " + gw.admin_token)],
        "short": [("Authorization", right[:-1])], "long": [("Authorization", right + "0")], "case": [("Authorization", right.upper())],
        "two": [("Authorization", right + " " + gw.admin_token)], "comma": [("Authorization", right + ", " + right)], "large": [("Authorization", "Bearer " + "x" * 12000)],
        "bytes": [("Authorization", b"Bearer \xff\xfe" + gw.admin_token.encode())], "query": [("X-Token", gw.admin_token), ("Cookie", "token=" + gw.admin_token)],
    }[kind]


@pytest.mark.parametrize("kind", ["none", "empty", "scheme", "basic", "short", "long", "case", "two", "comma", "large", "bytes", "query"])
@pytest.mark.parametrize("method, path", [("GET", "/v1/audit"), ("PUT", FENCE), ("DELETE", FENCE), ("POST", "/v1/effects/1/resolve"), ("GET", "/v1/none"), ("PATCH", FENCE)])
def test_without_the_right_token_nobody_learns_anything(gw, method, path, kind):
    answer = receive(gw, ask(gw, path, method, [JSON, *headers_of(gw, kind)], b"" if method == "GET" else b"{", token=None), method=method)
    problem(answer, 401, "unauthorized")
    assert answer.get("WWW-Authenticate") == "Bearer" and answer.get("Allow") is None


def test_a_doubled_token_is_refused_even_when_both_are_right(gw):
    twice = [("Authorization", f"Bearer {gw.admin_token}")] * 2
    problem(receive(gw, ask(gw, headers=twice, token=None)), 400, "malformed-request", "twice")
    problem(receive(gw, ask(gw, headers=[*twice[:1], ("authorization", "Bearer x")], token=None)), 400, "malformed-request", "twice")


@pytest.mark.parametrize("headers, host", [
    ([], "attacker.example"), ([], "attacker.example:8081"), ([], "localhost.attacker.example"), ([], "127.0.0.1.attacker.example"), ([], "localhost@attacker.example"), ([], ""),
    ([("Origin", "null")], "localhost"), ([("Origin", "http://attacker.example")], "localhost"), ([("Origin", "https://localhost.attacker.example")], "localhost"),
    ([("Origin", "http://localhost:1")], "localhost"), ([("Origin", "file://")], "localhost"), ([("Origin", "")], "localhost"), ([("Origin", "http://localhost, http://x")], "localhost"),
    ([("Origin", "http://localhost"), ("Origin", "http://localhost")], "localhost"), ([("Host", "localhost")], "localhost"), ([], "localhost localhost"), ([], None),
])
def test_a_strangers_page_gets_nothing_even_with_the_token(gw, headers, host):
    problem(receive(gw, ask(gw, headers=headers, host=host)), 400, "malformed-request")
    problem(receive(gw, ask(gw, FENCE, "PUT", [JSON, *headers], RAISE, host=host), method="PUT"), 400, "malformed-request")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8081", "127.0.0.1", "[::1]:8081", "10.1.2.3", "gateway", "fencegate.internal", "fencegate.default.svc"])
def test_ones_own_page_gets_an_answer(gw, host):
    for headers in ([], [("Origin", "http://" + host)], [("Origin", "https://" + host)]):
        assert receive(gw, ask(gw, headers=headers, host=host)).status == 200


@pytest.mark.parametrize("path, allow", [
    ("/v1/fences", "GET, HEAD"), (FENCE, "GET, HEAD, PUT, DELETE"), ("/v1/audit", "GET, HEAD"), ("/v1/effects", "GET, HEAD"), ("/v1/effects/1/resolve", "POST"),
    ("/v1/stats", "GET, HEAD"), ("/healthz", "GET, HEAD"), ("/readyz", "GET, HEAD"), ("/metrics", "GET, HEAD"),
])
def test_other_methods_are_told_which_ones_there_are(gw, path, allow):
    for method in ("PATCH", "OPTIONS", "TRACE", "FOO", "get", "M-SEARCH"):
        answer = receive(gw, ask(gw, path, method), method=method)
        problem(answer, 405, "method-not-allowed")
        assert answer.get("Allow") == allow
        assert not [name for name, _ in answer.headers if name.lower().startswith("access-control")]


# -- framing


BROKEN = {
    "no host": (b"GET /v1/fences HTTP/1.1\r\nA\r\n", 400, "malformed-request"),
    "no version": (b"GET /v1/fences\r\n\r\n", 400, "malformed-request"),
    "cut": (b"GET /v1/fences HTTP/1.1\r\nHost: localhost\r\n", 400, "malformed-request"),
    "version": (b"GET /v1/fences HTTP/3.0\r\nH\r\n", 505, "version-not-supported"),
    "tls": (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, "malformed-request"),
    "blank in the target": (b"GET /v1/fences?prefix=a b HTTP/1.1\r\nHA\r\n", 400, "malformed-request"),
    "two blanks": (b"GET  /v1/fences HTTP/1.1\r\nHA\r\n", 400, "malformed-request"),
    "no field": (b"GET /v1/fences HTTP/1.1\r\nHAno field\r\n\r\n", 400, "malformed-request"),
    "blank before the colon": (b"GET /v1/fences HTTP/1.1\r\nHAX : y\r\n\r\n", 400, "malformed-request"),
    "folded": (b"GET /v1/fences HTTP/1.1\r\nHAX: y\r\n z\r\n\r\n", 400, "malformed-request"),
    "nul": (b"GET /v1/fences HTTP/1.1\r\nHAX: y\0z\r\n\r\n", 400, "malformed-request"),
    "bare cr": (b"GET /v1/fences HTTP/1.1\r\nHAX: y\rz\r\n\r\n", 400, "malformed-request"),
    "bare lf": (b"GET /v1/fences HTTP/1.1\nHost: localhost\n\n", 400, "malformed-request"),
    "two lengths": (b"PUT /v1/fences/default/k HTTP/1.1\r\nHAContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400, "malformed-request"),
    "length and chunked": (b"PUT /v1/fences/default/k HTTP/1.1\r\nHAContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "malformed-request"),
    "length x": (b"PUT /v1/fences/default/k HTTP/1.1\r\nHAContent-Length: x\r\n\r\n{}", 400, "malformed-request"),
    "length -1": (b"PUT /v1/fences/default/k HTTP/1.1\r\nHAContent-Length: -1\r\n\r\n{}", 400, "malformed-request"),
    "length huge": (b"PUT /v1/fences/default/k HTTP/1.1\r\nHAContent-Length: 99999999999999999999999\r\n\r\n{}", 400, "malformed-request"),
    "length large": (b"PUT /v1/fences/default/k HTTP/1.1\r\nHAContent-Length: 999999999\r\n\r\n", 413, "body-too-large"),
    "short body": (b"PUT /v1/fences/default/k HTTP/1.1\r\nHAContent-Length: 20\r\n\r\n{", 400, "malformed-request"),
    "short chunk": (b"PUT /v1/fences/default/k HTTP/1.1\r\nHATransfer-Encoding: chunked\r\n\r\n5\r\n{", 400, "malformed-request"),
    "no last chunk": (b"PUT /v1/fences/default/k HTTP/1.1\r\nHATransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", 400, "malformed-request"),
    "gzip": (b"PUT /v1/fences/default/k HTTP/1.1\r\nHATransfer-Encoding: gzip\r\n\r\n", 400, "malformed-request"),
    "expectation": (b"PUT /v1/fences/default/k HTTP/1.1\r\nHAExpect: 200-ok\r\nContent-Length: 2\r\n\r\n", 417, "expectation-failed"),
    "100 fields": (b"GET /v1/fences HTTP/1.1\r\nHA" + b"X: y\r\n" * 100 + b"\r\n", 400, "malformed-request"),
    "3000 fields": (b"GET /v1/fences HTTP/1.1\r\nHA" + b"X: y\r\n" * 3000 + b"\r\n", 431, "headers-too-large"),
    "large token": (b"GET /v1/fences HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + b"x" * 100_000 + b"\r\n\r\n", 431, "headers-too-large"),
    "large target": (b"GET /v1/fences?prefix=" + b"k" * 100_000 + b" HTTP/1.1\r\nHA\r\n", 414, "target-too-long"),
    "large method": (b"G" * 100_000 + b" / HTTP/1.1\r\nHA\r\n", 414, "target-too-long"),
    "no line end": (b"x" * 100_000, 414, "target-too-long"),
    "connect": (b"CONNECT localhost:1 HTTP/1.1\r\nHA\r\n", 400, "malformed-request"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_head_gets_a_problem_too(gw, name):
    text, status, reason = BROKEN[name]
    own = b"Authorization: Bearer " + gw.admin_token.encode() + b"\r\n"
    text = text.replace(b"\r\nHA", b"\r\nHost: localhost\r\n" + own).replace(b"\r\nH\r\n", b"\r\nHost: localhost\r\n\r\n").replace(b"\r\nA\r\n", b"\r\n" + own + b"\r\n")
    with Connection(gw.admin_port, PATIENCE) as connection:
        connection.send(text)
        connection.end_sending()
        try:
            problem(connection.receive("GET"), status, reason)
        except Closed:
            assert name in ("short body", "short chunk", "no last chunk")  # when the library sees the end first, it closes


@pytest.mark.parametrize("half_closed", [False, True])
def test_pipelined_requests_are_answered_in_their_order(gw, mark, half_closed):
    path = f"/v1/fences/default/{mark}"
    asked = [ask(gw, path), ask(gw, path, "PUT", [JSON], RAISE), ask(gw, path), ask(gw, path + "?reason=x", "DELETE"), ask(gw, path), ask(gw, "/v1/none"), ask(gw, path, "PUT", [JSON], b"{")]
    with Connection(gw.admin_port, PATIENCE) as connection:
        connection.send(b"".join(asked))
        if half_closed:
            connection.end_sending()
        got = [connection.receive(method) for method in ("GET", "PUT", "GET", "DELETE", "GET", "GET", "PUT")]
    assert [answer.status for answer in got] == [404, 200, 200, 204, 404, 404, 400]


def test_clients_that_have_left_take_no_place(launch, partner):
    """They ended their sending with the request: the library saw its bytes, but not its end."""
    gw = launch(route(partner))
    for turn in range(1500):
        with Connection(gw.admin_port, PATIENCE) as connection:
            connection.send(ask(gw, "/readyz", token=None) if turn % 2 else ask(gw, FENCE, "PUT", [JSON], RAISE))
            connection.end_sending()
            assert connection.receive("GET").status == 200
            if turn % 100 == 0:
                assert connection.ended()


def open_many(gw, count, send=b""):
    held = [socket.create_connection(("127.0.0.1", gw.admin_port), 10) for _ in range(count)]
    for sock in held:
        sock.sendall(send)
    return held


def close_all(held):
    for sock in held:
        sock.close()


def alive(gw):
    """What an orchestrator asks, and how soon it is answered."""
    begun = time.monotonic()
    for target in ("/healthz", "/readyz"):
        assert receive(gw, ask(gw, target, token=None)).status == 200
    assert time.monotonic() - begun < PATIENCE / 2  # a silent connection has 30 s


@pytest.mark.parametrize("part", [b"", b"GET /healthz HTTP/1.1\r\nHost: 127"], ids=["silent", "half_a_head"])
def test_hundreds_of_silent_connections_keep_nobody_out(launch, partner, part):
    gw = launch(route(partner))
    held = open_many(gw, 520, part)
    try:
        for _ in range(20):
            alive(gw)
            assert receive(gw, ask(gw)).status == 200
    finally:
        close_all(held)


def test_hundreds_of_slow_requests_keep_nobody_out(launch, partner):
    gw = launch(route(partner))
    held = open_many(gw, 400)
    try:
        for number, sock in enumerate(held):
            whole = ask(gw, FENCE, "PUT", [JSON], RAISE)
            sock.sendall(whole[: number % (len(whole) - 1)])
        for _ in range(20):
            alive(gw)
            assert receive(gw, ask(gw)).status == 200
    finally:
        close_all(held)


def test_bodies_that_never_come_leave_room_for_probes(launch, partner):
    gw = launch(route(partner))
    held = open_many(gw, 520, ask(gw, FENCE, "PUT", [JSON], RAISE)[:-1])
    try:
        alive(gw)
        answer = eventually(lambda: (lambda a: a if a.status == 503 else None)(receive(gw, ask(gw))))
        problem(answer, 503, "overloaded")
        assert answer.get("Retry-After") == "1"
        gw.wait_log(lambda line: line["event"] == "admin-full" and line["level"] == "warn")
        for _ in range(100):
            alive(gw)
    finally:
        close_all(held)
    eventually(lambda: receive(gw, ask(gw)).status == 200)


def test_idle_kept_connections_leave_room_for_all(launch, partner):
    gw = launch(route(partner))
    held = open_many(gw, 520, ask(gw, "/healthz", token=None))
    try:
        for _ in range(20):
            alive(gw)
            assert receive(gw, ask(gw)).status == 200
    finally:
        close_all(held)


# -- chance


LIBRARY = (400, 408, 413, 414, 431, 505)  # what libmicrohttpd itself may say to the second request of a connection, or inside a chunked body
PIECES = [b"\0", b"\r", b"\n", b"\r\n", b" ", b":", b"%", b"%00", b"&", b"=", b"/", b"?", b"#", b"\xff", b"\xe2\x80\xae", b'"', b"\\", b"{", b"}", b"[", b"9" * 30,
          b"Host: x\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"HTTP/1.0", b"a" * 3000]


def mutate(chance, text):
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(text) + 1)
        what = chance.randrange(6)
        if what == 0:
            text = text[:at] + chance.choice(PIECES) + text[at:]
        elif what == 1:
            text = text[:at] + bytes([chance.randrange(256)]) + text[at + 1 :]
        elif what == 2:
            text = text[:at] + text[at + chance.randrange(1, 9) :]
        elif what == 3:
            end = min(len(text), at + chance.randrange(1, 40))
            text = text[:end] + text[at:end] + text[end:]
        elif what == 4:
            text = text[:at]
        else:
            lines = text.split(b"\r\n")
            lines.insert(chance.randrange(len(lines)), chance.choice(lines))
            text = b"\r\n".join(lines)
    return text


def sound(answer):
    """Whatever was asked: whole, and a problem says which, or a page of the library's own."""
    assert answer.complete, answer
    if answer.status < 400:
        assert answer.status in (200, 204), answer
    elif answer.body.startswith(b"<html>"):
        assert answer.status in LIBRARY, answer
    elif answer.body:
        assert answer.reason and answer.json["status"] == answer.status, answer


def test_mutated_requests_do_no_harm(launch, partner, mark):
    gw = launch(route(partner))
    chance = random.Random(20261130)
    path = f"/v1/fences/default/{mark}"
    asked = [
        ask(gw, "/v1/audit?namespace=default&key=a%2Fb&kind=sent&since=15m&until=2026-11-30T01:02:03%2B02:00&order=desc&limit=7&after=3"),
        ask(gw, "/v1/fences?namespace=default&prefix=k&limit=3&cursor=64656661756c74006b"), ask(gw, "/v1/effects?state=in-doubt&limit=1&after=0"),
        ask(gw, path, "PUT", [JSON], b'{"token":"43","reason":"by hand","wait":"1ms"}'), ask(gw, path + "?reason=start+over", "DELETE"),
        ask(gw, "/v1/effects/1/resolve", "POST", [JSON], b'{"outcome":"sent","note":"asked"}'), ask(gw, "/metrics"), ask(gw, "/v1/stats"), ask(gw, "/readyz", "HEAD"),
        ask(gw, path, "PUT", [JSON, ("Transfer-Encoding", "chunked")]) + b'7\r\n{"token\r\n7\r\n":"43"}\r\n0\r\n\r\n',
    ]
    statuses = {}
    for number in range(2000):
        text = mutate(chance, chance.choice(asked))
        method = "HEAD" if text.lstrip(b"\r\n").startswith(b"HEAD ") else "GET"
        with Connection(gw.admin_port, PATIENCE) as connection:
            try:
                connection.send(text)
                connection.end_sending()
                answer = connection.receive(method)
                sound(answer)
                statuses[answer.status] = statuses.get(answer.status, 0) + 1
            except (Closed, OSError):
                statuses[None] = statuses.get(None, 0) + 1  # cut short inside its body, or it never was a request
            except (BadAnswer, AssertionError) as error:
                raise AssertionError(f"request {number}: {text!r}") from error
    assert statuses[200] > 50 and statuses[400] > 200 and statuses.get(401, 0) > 5 and statuses.get(404, 0) > 5, statuses
    assert statuses.get(None, 0) < 400, statuses
    assert receive(gw, ask(gw)).status == 200
    for text in list(gw.stderr):
        json.loads(text)
    if SANITIZED:
        assert gw.stop() == 0  # a leak would be told here
