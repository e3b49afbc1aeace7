"""The admin listener: health, metrics, fences and audit, for those who hold the token."""

import re
import urllib.parse

import pytest

import expect
from client import Connection, fenced, request
from gateway import PATIENCE, Gateway, route
from partner import Held


def error(answer, status, reason):
    assert answer.status == status, answer
    assert answer.get("Content-Type").startswith("application/problem+json"), answer
    assert answer.json["reason"] == reason and answer.json["status"] == status, answer


def test_health_needs_no_token(gw):
    for path in ("/healthz", "/readyz", "/metrics"):
        assert gw.admin(path, token=None).status == 200


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic {}", "{}", "Bearer {}x", "Bearer x{}", "Bearer {} {}"])
@pytest.mark.parametrize("path", ["/v1/audit", "/v1/fences/default/k"])
def test_without_the_right_token_it_is_401(gw, path, header):
    headers = [] if header is None else [("Authorization", header.format(gw.admin_token, gw.admin_token))]
    answer = gw.admin(path, token=None, headers=headers)
    error(answer, 401, "unauthorized")
    assert gw.admin_token not in answer.body.decode()


def test_two_tokens_are_refused(gw):
    assert gw.admin("/v1/audit", headers=[("Authorization", "Bearer wrong")]).status in (400, 401)


def test_the_scheme_has_no_case(gw):
    assert gw.admin("/v1/audit", token=None, headers=[("authorization", f"bearer {gw.admin_token}")]).status == 200


def test_the_token_can_be_a_file_of_ones_own(launch, partner, tmp_path):
    (tmp_path / "gw0.token").write_text("my-own-token-of-some-length\n")
    gw = launch(route(partner), admin={"address": "127.0.0.1", "port": 0, "token_file": str(tmp_path / "gw0.token")})
    assert gw.admin_token == "my-own-token-of-some-length"
    assert gw.admin("/v1/audit").status == 200
    assert gw.admin("/v1/audit", token="other").status == 401


def test_a_fence_can_be_looked_up(gw, partner, mark):
    held = Held()
    partner.on(mark, held)
    call = gw.send_off(f"/pay/{mark}", 18446744073709551615, mark)
    partner.wait_seen(mark)
    answer = gw.admin(f"/v1/fences/default/{mark}")
    assert answer.status == 200 and answer.get("Content-Type").startswith("application/json")
    found = answer.json
    assert (found["namespace"], found["key"], found["highest"], found["in_flight"]) == ("default", mark, "18446744073709551615", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["updated_at"])
    held.release()
    expect.relayed(call.result(10))
    gw.wait_audit(key=mark)
    assert gw.admin(f"/v1/fences/default/{mark}").json["in_flight"] == 0


def test_a_key_in_a_path_is_percent_encoded(gw, mark):
    key = f"{mark}/a b?c%20#é".encode()
    expect.relayed(gw.call(f"/pay/{mark}", 5, key))
    answer = gw.admin("/v1/fences/default/" + urllib.parse.quote(key, safe=""))
    assert answer.status == 200 and answer.json["key"] == key.decode()
    assert gw.admin("/v1/fences/default/" + urllib.parse.quote(key + b"x", safe="")).status == 404


@pytest.mark.parametrize("path", ["/v1/fences/default/none", "/v1/fences/none/k", "/nowhere", "/v1/nowhere"])
def test_what_is_not_there_is_404(gw, path):
    error(gw.admin(path), 404, "not-found")


@pytest.mark.parametrize("path", ["/v1/fences/default/", "/v1/fences/default/%zz", "/v1/fences/default/a%00b", "/v1/fences/default/" + "k" * 256])
def test_what_is_no_key_is_refused(gw, path):
    assert gw.admin(path).status in (400, 404)


# -- audit


@pytest.fixture(scope="module")
def history(partner, tmp_path_factory):
    """A gateway of its own with a known audit: one sent, 25 dropped, one rejected, and another namespace."""
    gateway = Gateway(tmp_path_factory.mktemp("history"), [route(partner), route(partner, name="b", path="/b", namespace="two")]).start()
    gateway.call("/pay/x?secret=1", 100, "order-1")
    gateway.wait_audit(key="order-1")
    for token in range(1, 26):
        gateway.call("/pay/x", token, "order-1")
    gateway.call("/pay/x", "junk", "order-1")
    gateway.call("/b/y", 1, "order-1")
    gateway.call("/b/y", 1, "order-2")
    gateway.wait_audit(29)
    yield gateway
    gateway.end()


def test_audit_is_in_the_order_of_writing(history):
    records = history.audit()
    ids = [int(r["id"]) for r in records]
    assert len(ids) == 29 and ids == sorted(set(ids))
    assert [r["time"] for r in records] == sorted(r["time"] for r in records)
    assert history.audit(order="asc") == records
    assert history.audit(order="desc") == records[::-1]
    assert "secret" not in str(records)


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("filters", [{}, {"namespace": "default", "key": "order-1"}, {"kind": "dropped"}])
@pytest.mark.parametrize("limit", [1, 7, 25])
def test_audit_pages_show_everything_once(history, order, filters, limit):
    everything = history.audit(order=order, **filters)
    pages, after = [], {}
    while True:
        query = urllib.parse.urlencode({"order": order, "limit": limit, **filters, **after})
        page = history.admin(f"/v1/audit?{query}").json
        assert len(page["records"]) <= limit
        pages += page["records"]
        if page["next_after"] is None:
            break
        after = {"after": page["next_after"]}
        assert page["records"], "an empty page that promises more"
    assert pages == everything


@pytest.mark.parametrize("filters,count", [
    ({"key": "order-1", "namespace": "default"}, 27), ({"key": "order-1", "namespace": "two"}, 1), ({"key": "order-1"}, 28), ({"namespace": "two"}, 2),
    ({"kind": "dropped"}, 25), ({"kind": "sent"}, 3), ({"kind": "rejected"}, 1), ({"kind": "unknown"}, 0), ({"reason": "stale-token"}, 25),
    ({"reason": "malformed-token"}, 1), ({"route": "b"}, 2), ({"route": "none"}, 0), ({"kind": "dropped", "route": "b"}, 0),
    ({"since": "2000-01-01T00:00:00.000Z"}, 29), ({"until": "2000-01-01T00:00:00.000Z"}, 0), ({"since": "2999-01-01T00:00:00Z"}, 0),
])
def test_audit_filters(history, filters, count):
    assert len(history.audit(**filters)) == count


def test_audit_times_are_since_inclusive_until_exclusive(history):
    records = history.audit()
    moment = records[10]["time"]
    assert history.audit(since=moment) == [r for r in records if r["time"] >= moment]
    assert history.audit(until=moment) == [r for r in records if r["time"] < moment]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "order=up", "kind=dropt", "after=x", "since=yesterday", "until=1"])
def test_a_bad_query_is_400(history, query):
    error(history.admin(f"/v1/audit?{query}"), 400, "malformed-request")


@pytest.mark.parametrize("reason", ["stale-tokn", "stale", "nonsense"])
def test_a_misspelt_reason_is_named_with_those_there_are(history, reason):
    answer = history.admin(f"/v1/audit?reason={reason}")
    error(answer, 400, "malformed-request")
    for known in ("stale-token", "missing-key", "shutdown-cut", "gateway-crash", "restored"):
        assert known in answer.json["detail"]


def test_the_words_of_an_operator_are_found(gw, mark):
    for token, words in ((43, "handover"), (44, "worker 3 is gone")):
        body = b'{"token":"%d","reason":"%s"}' % (token, words.encode())
        assert gw.admin(f"/v1/fences/default/{mark}", "PUT", body=body).status == 200
    assert [r["token"] for r in gw.audit(key=mark, reason="worker 3 is gone")] == ["44"]
    assert [r["token"] for r in gw.audit(key=mark, reason="handover", kind="raised")] == ["43"]


def test_audit_shows_100_unless_told(launch, partner, mark):
    gw = launch(route(partner))
    gw.call(f"/pay/{mark}", 500, mark)
    gw.wait_audit(key=mark)
    for token in range(1, 121):
        gw.call(f"/pay/{mark}", token, mark)
    answer = gw.admin("/v1/audit").json
    assert len(answer["records"]) == 100 and answer["next_after"] == answer["records"][-1]["id"]


# -- metrics


def test_metrics_are_prometheus_text_by_route_and_reason(gw, mark):
    before = gw.admin("/metrics", token=None).body.decode()
    gw.call(f"/pay/{mark}", 5, mark)
    gw.call(f"/pay/{mark}", 4, mark)
    answer = gw.admin("/metrics", token=None)
    assert answer.get("Content-Type").startswith("text/plain; version=0.0.4")
    text = answer.body.decode()
    name = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
    line = re.compile(rf'#( HELP {name} .*| TYPE {name} (counter|gauge|histogram))|{name}(\{{{name}="[^"\\\n]*"(,{name}="[^"\\\n]*")*\}})? [0-9.e+-]+')
    for each in text.splitlines():
        assert line.fullmatch(each), each
    samples = [each.rsplit(" ", 1)[0] for each in text.splitlines() if not each.startswith("#")]
    assert len(samples) == len(set(samples))
    assert text.endswith("\n") and mark not in text
    stale = [each for each in text.splitlines() if 'reason="stale-token"' in each and 'route="pay"' in each]
    assert stale and stale != [each for each in before.splitlines() if each in stale]


def test_keys_and_paths_do_not_grow_the_metrics(gw, mark):
    for turn in range(20):
        gw.call(f"/pay/{mark}-{turn}", 5, f"{mark}-{turn}")
        gw.call(f"/{mark}-{turn}", 5, mark)
    count = len(gw.admin("/metrics", token=None).body.splitlines())
    for turn in range(20, 60):
        gw.call(f"/pay/{mark}-{turn}", 5, f"{mark}-{turn}")
        gw.call(f"/{mark}-{turn}", 5, mark)
    assert len(gw.admin("/metrics", token=None).body.splitlines()) == count


def test_the_admin_listener_is_not_the_proxy(gw):
    assert gw.admin("/pay/x").status == 404
    assert gw.call("/healthz", method="GET").status == 404
    assert gw.call("/metrics", method="GET").status == 404


# -- workers that have the wrong port


def told_where_the_proxy_is(gw, answer, status):
    assert answer.status == status and answer.effect == "not-sent", answer
    assert answer.json["effect"] == "not-sent" and f"127.0.0.1:{gw.port}" in answer.json["detail"], answer
    assert answer.get("Stripe-Should-Retry") == answer.get("X-Should-Retry") == ("false" if status < 500 else None), answer


@pytest.mark.parametrize("headers", [fenced(5, "k"), fenced(5, None), fenced(None, "k")])
@pytest.mark.parametrize("method, path, status", [
    ("POST", "/v1/charges", 401), ("POST", "/pay/v1/charges", 404), ("POST", "/", 405), ("GET", "/pay/x", 404), ("GET", "/v1/charges", 401), ("PUT", "/v1/fences/default/k", 401),
    ("POST", "http://api.partner.example/v1/charges", 400), ("POST", "*", 400),
])
def test_a_fenced_call_learns_where_the_proxy_is(gw, method, path, status, headers):
    told_where_the_proxy_is(gw, gw.admin(path, method, token=None, headers=headers, body=b"a=1"), status)


def test_a_call_learns_it_without_fencing_headers_too(gw):
    told_where_the_proxy_is(gw, gw.admin("/v1/charges", "POST", token="sk_live_of_the_partner"), 401)
    told_where_the_proxy_is(gw, gw.admin("/pay/v1/charges", "POST", token=None), 404)
    told_where_the_proxy_is(gw, gw.admin("/pay", "POST", token=None, body=b"x" * 70_000), 413)
    for path in ("/pay/v1/charges", "/v1/audit"):
        answer = gw.admin(path, token=None)
        assert answer.effect is None and "proxy" not in answer.json["detail"], answer


def test_answers_to_operators_have_no_effect_unless_their_call_looks_like_a_workers(gw, mark):
    body = b'{"token":"43"}'
    plain = gw.admin(f"/v1/fences/default/{mark}", "PUT", body=body)
    assert plain.status == 200 and plain.effect is None
    marked = gw.admin(f"/v1/fences/default/{mark}", "PUT", headers=fenced(43, mark), body=body)
    assert marked.status == 200 and marked.effect == "not-sent" and marked.json["highest"] == "43"
    told_where_the_proxy_is(gw, gw.admin(f"/v1/fences/default/{mark}", "PUT", headers=fenced(42, mark), body=b'{"token":"42"}'), 409)


def test_the_routes_own_headers_count_and_a_reload_changes_them(launch, partner):
    gw = launch(route(partner, fence={"token_header": "X-Lease", "key_header": "X-Order"}))
    told_where_the_proxy_is(gw, gw.admin("/pay/x", token=None, headers=[("X-Lease", "5")]), 404)
    gw.settings["routes"][0]["fence"] = {"token_header": "X-Other"}
    gw.reload()
    gw.wait_log(lambda line: line["event"] == "reload" and line["level"] == "info")
    told_where_the_proxy_is(gw, gw.admin("/pay/x", token=None, headers=[("X-Other", "5")]), 404)
    assert gw.admin("/pay/x", token=None, headers=[("X-Lease", "5")]).effect is None


@pytest.mark.parametrize("junk", [b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"POST /pay\r\n\r\n",
                                  b"POST / HTTP/1.1\r\nHost: x\r\nCookie: " + b"c" * 20_000 + b"\r\n\r\n"])
def test_a_head_that_is_refused_learns_it_too(gw, junk):
    with Connection(gw.admin_port, PATIENCE) as connection:
        connection.send(junk)
        answer = connection.receive("POST")
    assert answer.status in (400, 431) and answer.effect == "not-sent" and f"127.0.0.1:{gw.port}" in answer.json["detail"], answer


# -- names


def test_names_of_the_settings_are_answered_to(launch, partner):
    gw = launch(route(partner), admin={"address": "127.0.0.1", "port": 0, "hosts": ["Fencegate.Ops.example"]})
    bearer = [("Authorization", f"Bearer {gw.admin_token}")]

    def ask(host, *headers):
        with Connection(gw.admin_port, PATIENCE) as connection:
            connection.send(request("GET", "/v1/fences", [*bearer, *headers], host=host))
            return connection.receive("GET")

    assert ask("fencegate.ops.example").status == ask("FENCEGATE.ops.example.:8443").status == ask("localhost").status == 200
    assert ask("fencegate.ops.example", ("Origin", "https://fencegate.ops.example")).status == 200
    error(ask("other.ops.example"), 400, "malformed-request")
    assert "admin.hosts" in ask("other.ops.example").json["detail"]
    error(ask("fencegate.ops.example", ("Origin", "https://other.ops.example")), 400, "malformed-request")
    done = gw.command("check")
    assert done.returncode == 0 and "fencegate.ops.example" in done.stdout


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_looking_does_not_change_anything(gw, method):
    assert gw.admin("/v1/audit", method=method).status in (404, 405)
    assert gw.admin("/healthz", method=method, token=None).status in (404, 405)


def test_broken_requests_do_not_harm_the_admin_listener(gw):
    for junk in (b"\x16\x03\x01\0\0", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /v1/audit?%zz=%% HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 5000,
                 b"GET /v1/fences/default/" + b"k" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"):
        with Connection(gw.admin_port, 3) as connection:
            connection.send(junk)
            connection.end_sending()
    assert gw.admin("/healthz", token=None).status == 200


def test_a_full_proxy_does_not_shut_its_operators_out(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner, in_flight=3), limits={"connections": 3, "in_flight": 3})
    calls = [gw.send_off(f"/pay/{mark}", 5, f"{mark}-{i}") for i in range(3)]
    partner.wait_seen(mark, 3)
    assert gw.admin("/healthz", token=None).status == 200
    assert gw.fence(f"{mark}-0") == 5
    held.release()
    for call in calls:
        expect.relayed(call.result(10))
