"""Every refusal the gateway can answer, and everything it promises about it: status, problem body, effect, headers
against repeats, what the partner saw, where the fence stands, what the audit says."""

import json
import signal

import pytest

import expect
from client import fenced, request
from gateway import Gateway, eventually, route
from partner import FullListener, Held


@pytest.fixture(scope="module")
def gw(partner, tmp_path_factory):
    routes = [
        route(partner),
        route(partner, name="once", path="/once", fence={"equal": "reject"}),
        route(partner, name="jump", path="/jump", fence={"max_jump": "1000"}),
        route(partner, name="quick", path="/quick", timeout={"connect": "300ms", "total": "400ms"}),
        route(partner, name="drain", path="/drain", drain_timeout="250ms"),
        route(partner, name="off", path="/off", fence={"mode": "off"}),
        route(partner, name="narrow", path="/narrow", in_flight=1),
        route(partner, name="sdk", path="/sdk", stale_status=409, missing_status=499, fence={"equal": "reject"}),
    ]
    limits = {"body": "100KiB", "headers": "16KiB", "request_timeout": "1s"}
    gateway = Gateway(tmp_path_factory.mktemp("gw"), routes, limits=limits).start()
    yield gateway
    gateway.end()


def audited_on_the_command_line(gw, *arguments):
    done = gw.command("audit", "--json", *arguments)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_current_call_is_sent_and_recorded(gw, partner, mark):
    answer = gw.call(f"/pay/{mark}?card=4242", 7, mark, body=b"amount=1")
    expect.relayed(answer)
    assert len(partner.seen(mark)) == 1
    assert gw.fence(mark) == 7
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", reason=None, effect_id=answer.effect_id, route="pay", namespace="default",
                  key=mark, token="7", method="POST", path=f"/pay/{mark}", status=200, upstream_status=200,
                  request_bytes=8, response_bytes=2, note=None, would_drop=None)
    assert found["duration_ms"] >= 0 and "client" in found
    assert audited_on_the_command_line(gw, "--key", mark) == [found]


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "HEAD"])
def test_a_stale_token_is_412(gw, partner, mark, method):
    expect.relayed(gw.call(f"/pay/{mark}", 42, mark))
    answer = gw.call(f"/pay/{mark}", 41, mark, method=method, body=b"x" if method == "POST" else b"")
    (_, dropped) = gw.wait_audit(2, key=mark)
    expect.refusal(answer, 412, "stale-token", method=method, namespace="default", key=mark, token="41", highest="42",
                   audit_id=dropped["id"])
    assert answer.effect_id is None
    assert len(partner.seen(mark)) == 1
    assert gw.fence(mark) == 42
    expect.record(dropped, kind="dropped", reason="stale-token", effect_id=None, route="pay", key=mark, token="41",
                  highest="42", method=method, path=f"/pay/{mark}", status=412, upstream_status=None)
    assert audited_on_the_command_line(gw, "--key", mark, "--reason", "stale-token") == [dropped]


def test_a_drop_is_in_the_audit_when_the_client_hears_of_it(gw, mark):
    gw.call(f"/pay/{mark}", 2, mark)
    for _ in range(20):
        answer = gw.call(f"/pay/{mark}", 1, mark)
        assert answer.json["audit_id"] in [r["id"] for r in gw.audit(key=mark, kind="dropped")]


@pytest.mark.parametrize("token,key,reason", [(None, "key", "missing-token"), (5, None, "missing-key"),
                                              (None, None, "missing-token")])
def test_a_missing_header_is_428(gw, partner, mark, token, key, reason):
    answer = gw.call(f"/pay/{mark}", token, key and mark, body=b"hello")
    expect.refusal(answer, 428, reason)
    assert partner.seen(mark) == []
    assert gw.fence(mark) is None
    (found,) = [r for r in gw.audit(kind="rejected", reason=reason) if r["path"] == f"/pay/{mark}"]
    expect.record(found, kind="rejected", reason=reason, route="pay", method="POST", status=428)
    assert found["id"] == answer.json["audit_id"]


@pytest.mark.parametrize("token,key,reason", [("5x", "key", "malformed-token"), ("", "key", "malformed-token"),
                                              ("5", "", "malformed-key"), ("5", b"a\xff", "malformed-key"),
                                              ("5", "k" * 256, "malformed-key")])
def test_a_malformed_header_is_400(gw, partner, mark, token, key, reason):
    key = mark if key == "key" else key
    answer = gw.call(f"/pay/{mark}", token, key, body=b"hello")
    expect.refusal(answer, 400, reason)
    assert partner.seen(mark) == []
    assert gw.fence(mark) is None
    (found,) = [r for r in gw.audit(kind="rejected", reason=reason) if r["path"] == f"/pay/{mark}"]
    expect.record(found, reason=reason, route="pay", status=400)
    assert found["id"] == answer.json["audit_id"]


@pytest.mark.parametrize("name,reason", [("Fencing-Token", "malformed-token"), ("Workflow-Key", "malformed-key")])
@pytest.mark.parametrize("equal", [True, False])
def test_a_doubled_fencing_header_is_400_even_when_equal(gw, partner, mark, name, reason, equal):
    first = {"Fencing-Token": "5", "Workflow-Key": mark}
    second = first[name] if equal else "6"
    answer = gw.call(f"/pay/{mark}", headers=[*first.items(), ("X-Between", "y"), (name, second)])
    expect.refusal(answer, 400, reason)
    assert partner.seen(mark) == []
    assert gw.fence(mark) is None


def test_superseded_while_waiting_is_412(gw, partner, mark):
    held = Held()
    partner.on(mark, held)
    older = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    waiting = gw.send_off(f"/pay/{mark}", 6, mark)
    eventually(lambda: gw.fence(mark) == 6)
    newest = gw.send_off(f"/pay/{mark}", 7, mark)
    expect.refusal(waiting.result(10), 412, "superseded", namespace="default", key=mark, token="6", highest="7")
    assert [r.target for r in partner.seen(mark)] == [f"/{mark}"]
    held.release()
    expect.relayed(older.result(10))
    expect.relayed(newest.result(10))
    assert len(partner.seen(mark)) == 2
    assert gw.fence(mark) == 7
    (found,) = gw.wait_audit(key=mark, reason="superseded")
    expect.record(found, kind="dropped", token="6", highest="7", status=412, upstream_status=None)


def test_a_used_token_is_412_where_each_works_once(gw, partner, mark):
    expect.relayed(gw.call(f"/once/{mark}", 5, mark))
    answer = gw.call(f"/once/{mark}", 5, mark)
    expect.refusal(answer, 412, "token-used", key=mark, token="5", highest="5")
    expect.refusal(gw.call(f"/once/{mark}", 4, mark), 412, "stale-token")
    assert len(partner.seen(mark)) == 1
    assert gw.fence(mark) == 5
    (found,) = gw.audit(key=mark, reason="token-used")
    expect.record(found, kind="dropped", token="5", highest="5", status=412)
    expect.relayed(gw.call(f"/once/{mark}", 6, mark))


def test_an_implausible_jump_is_422_and_the_fence_stays(gw, partner, mark):
    expect.relayed(gw.call(f"/jump/{mark}", 1_700_000_000_000, mark))  # a first token has no jump
    answer = gw.call(f"/jump/{mark}", 1_700_000_001_001, mark)
    expect.refusal(answer, 422, "implausible-token", key=mark, token="1700000001001", highest="1700000000000")
    assert len(partner.seen(mark)) == 1
    assert gw.fence(mark) == 1_700_000_000_000
    (found,) = gw.audit(key=mark, reason="implausible-token")
    expect.record(found, kind="dropped", status=422)
    expect.relayed(gw.call(f"/jump/{mark}", 1_700_000_001_000, mark))  # just as far as allowed


def test_a_predecessor_that_does_not_end_is_503(gw, partner, mark):
    held = Held()
    partner.on(mark, held)
    older = gw.send_off(f"/drain/{mark}", 5, mark)
    partner.wait_seen(mark)
    answer = gw.call(f"/drain/{mark}", 6, mark)
    expect.refusal(answer, 503, "predecessor-in-flight", key=mark, token="6")
    assert len(partner.seen(mark)) == 1
    (found,) = gw.wait_audit(key=mark, reason="predecessor-in-flight")
    expect.record(found, kind="not-sent", token="6", status=503, upstream_status=None, effect_id=answer.effect_id)
    held.release()
    expect.relayed(older.result(10))
    expect.relayed(gw.call(f"/drain/{mark}", 6, mark))


def unaudited(gw, partner, mark):
    """Refusals that are in log and metrics only."""
    assert partner.seen(mark) == []
    assert gw.fence(mark) is None
    assert gw.audit(key=mark) == []
    assert [r for r in gw.audit() if mark in r.get("path", "")] == []


def test_no_route_names_host_and_path(gw, mark):
    answer = gw.call(f"/pa\"y/{mark}?key=secret", 5, mark, host="api.partner.test:8080")
    expect.refusal(answer, 404, "no-route")
    assert answer.json["detail"] == f'No route matches host api.partner.test:8080 and path /pa"y/{mark}.' and "secret" not in answer.body.decode()
    answer = gw.call("http://other.test/" + "x" * 5000, 5, mark)
    expect.refusal(answer, 404, "no-route")
    assert "host other.test and path /" + "x" * 199 + " " in answer.json["detail"] and len(answer.json["detail"]) < 400
    answer = gw.call("/nowhere", 5, mark, host=None, version="HTTP/1.0")
    expect.refusal(answer, 404, "no-route")
    assert "/nowhere" in answer.json["detail"] and "no host" in answer.json["detail"]


def test_a_missing_header_is_named_as_the_route_has_it(launch, partner, mark):
    gw = launch([route(partner, fence={"token_header": "X-Lease", "key_header": "X-Order"}),
                 route(partner, name="plain", path="/plain"), route(partner, name="observe", path="/observe", upstream="http://127.0.0.1:1", fence={"mode": "observe"})],
                limits={"body": "1KiB"})
    assert "X-Lease" in gw.call(f"/pay/{mark}", 5, mark).json["detail"]
    assert "X-Order" in gw.call(f"/pay/{mark}", headers=[("X-Lease", "5")]).json["detail"]
    assert "Fencing-Token" in gw.call(f"/plain/{mark}", None, mark).json["detail"]
    assert "Workflow-Key" in gw.call(f"/plain/{mark}", 5, None).json["detail"]
    later = gw.call(f"/plain/{mark}", None, mark, headers=[("Transfer-Encoding", "chunked")], body=b"2000\r\n" + b"x" * 0x2000 + b"\r\n0\r\n\r\n")
    expect.refusal(later, 413, "body-too-large")
    assert "Fencing-Token" not in later.json["detail"]
    observed = gw.call(f"/observe/{mark}", None, mark)
    assert observed.reason == "upstream-unreachable" and "Fencing-Token" not in observed.json["detail"], observed


def test_no_route_is_404(gw, partner, mark):
    for target in (f"/{mark}", f"/payments/{mark}", f"/pa/{mark}", f"/PAY/{mark}"):
        expect.refusal(gw.call(target, 5, mark), 404, "no-route")
    unaudited(gw, partner, mark)


def test_a_dot_segment_is_400(gw, partner, mark):
    expect.refusal(gw.call(f"/pay/x/../{mark}", 5, mark), 400, "malformed-request")
    unaudited(gw, partner, mark)


@pytest.mark.parametrize("head,detail", [
    (b"POST /pay HTTP/1.1\r\n\r\n", "The request is malformed: no Host."),
    (b"POST /pay\r\n\r\n", "The request is malformed: the request line is not method, target and version."),
])
def test_a_malformed_head_is_told_in_a_sentence(gw, head, detail):
    with gw.connect() as connection:
        connection.send(head)
        expect.refusal(connection.receive(), 400, "malformed-request", detail=detail)


def test_a_fencing_header_named_in_connection_is_400(gw, partner, mark):
    for name in ("Fencing-Token", "workflow-key"):
        answer = gw.call(f"/pay/{mark}", 5, mark, headers=[("Connection", f"keep-alive, {name}")])
        assert (answer.status, answer.effect) == (400, "not-sent"), answer
        assert answer.json["error"]["type"] == "fencegate_error"
    assert partner.seen(mark) == []
    assert gw.fence(mark) is None


@pytest.mark.parametrize("name", ["Fencing_Token", "WORKFLOW_KEY", "Content_Length", "content_length", "Transfer_Encoding"])
@pytest.mark.parametrize("path", ["pay", "off"])
def test_a_name_with_the_other_sign_is_400(gw, partner, mark, name, path):
    """Partners behind CGI or WSGI see one variable: `Fencing_Token: 9` would pass for the token there."""
    answer = gw.call(f"/{path}/{mark}", 5, mark, headers=[(name, "9")])
    expect.refusal(answer, 400, "malformed-request")
    assert partner.seen(mark) == [] and gw.fence(mark) is None
    unaudited(gw, partner, mark)


def test_a_body_over_the_limit_is_413(gw, partner, mark):
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark, headers=[("Content-Length", 100 * 1024 + 1)]), 413, "body-too-large")
    unaudited(gw, partner, mark)


def test_headers_over_the_limit_are_431(gw, partner, mark):
    answer = gw.call(f"/pay/{mark}", 5, mark, headers=[("X-Large", "a" * 20_000)])
    expect.refusal(answer, 431, "headers-too-large")
    unaudited(gw, partner, mark)


def test_a_target_that_is_too_long_is_414(gw, partner, mark):
    answer = gw.call(f"/pay/{mark}/" + "a" * 20_000, 5, mark)
    expect.refusal(answer, 414, "target-too-long")
    unaudited(gw, partner, mark)


def test_connect_is_501(gw, partner, mark):
    answer = gw.call(f"{mark}.test:443", 5, mark, method="CONNECT", host=f"{mark}.test:443")
    expect.refusal(answer, 501, "method-not-implemented")
    unaudited(gw, partner, mark)


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/3.7"])
def test_another_http_version_is_505(gw, partner, mark, version):
    answer = gw.call(f"/pay/{mark}", 5, mark, version=version)
    expect.refusal(answer, 505, "version-not-supported")
    unaudited(gw, partner, mark)


def test_another_expectation_is_417(gw, partner, mark):
    answer = gw.call(f"/pay/{mark}", 5, mark, headers=[("Expect", "200-ok")], body=b"hello")
    expect.refusal(answer, 417, "expectation-failed")
    unaudited(gw, partner, mark)


def test_a_request_that_does_not_arrive_in_time_is_408(gw, partner, mark):
    whole = request("POST", f"/pay/{mark}", fenced(5, mark), b"hello")
    with gw.connect() as connection:
        connection.send(whole[:-2])
        expect.refusal(connection.receive(), 408, "request-timeout")
        assert connection.ended()
    unaudited(gw, partner, mark)


def test_a_full_route_is_503(gw, partner, mark):
    held = Held()
    partner.on(mark, held)
    first = gw.send_off(f"/narrow/{mark}", 5, mark)
    partner.wait_seen(mark)
    answer = gw.call(f"/narrow/{mark}", 5, mark + "-other")
    expect.refusal(answer, 503, "overloaded")
    assert gw.fence(mark + "-other") is None
    assert gw.audit(key=mark + "-other") == []
    held.release()
    expect.relayed(first.result(10))
    eventually(lambda: gw.call(f"/narrow/{mark}", 5, mark + "-other").status == 200)


def test_an_upstream_that_refuses_the_connection_is_502_not_sent(launch, new_partner, mark):
    partner = new_partner()
    partner.close()
    gw = launch(route(partner))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    expect.refusal(answer, 502, "upstream-unreachable", "not-sent", key=mark, token="5")
    assert gw.fence(mark) == 5  # the token was accepted: that is durable before anything is tried
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="not-sent", reason="upstream-unreachable", effect_id=answer.effect_id, status=502,
                  upstream_status=None, token="5")


def test_an_upstream_name_that_does_not_resolve_is_502_not_sent(launch, mark):
    gw = launch(route("http://no-such-host.invalid"))
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark), 502, "upstream-unreachable", "not-sent")
    gw.wait_audit(key=mark, kind="not-sent")


def test_a_connect_timeout_is_504_not_sent(launch, mark):
    full = FullListener()
    gw = launch(route(full, timeout={"connect": "300ms", "total": "10s"}))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    expect.refusal(answer, 504, "upstream-timeout", "not-sent", key=mark, token="5")
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="not-sent", reason="upstream-timeout", status=504, effect_id=answer.effect_id)
    full.close()


def test_a_partner_that_does_not_answer_is_504_unknown(gw, partner, mark):
    held = Held()
    partner.on(mark, held)
    answer = gw.call(f"/quick/{mark}", 5, mark)
    expect.refusal(answer, 504, "upstream-timeout", "unknown", key=mark, token="5")
    held.release()
    assert len(partner.seen(mark)) == 1
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="unknown", reason="upstream-timeout", status=504, effect_id=answer.effect_id)


def test_a_connection_lost_after_sending_is_502_unknown(gw, partner, mark):
    partner.on(mark, lambda exchange: exchange.close())
    answer = gw.call(f"/pay/{mark}", 5, mark)
    expect.refusal(answer, 502, "upstream-failed", "unknown", key=mark, token="5")
    assert len(partner.seen(mark)) == 1
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="unknown", reason="upstream-failed", status=502, effect_id=answer.effect_id)
    assert gw.fence(mark) == 5


COOKIES = [("Set-Cookie", f"c{number}={'v' * 80}") for number in range(200)]


def test_two_hundred_cookies_are_relayed(gw, partner, mark):
    partner.on(mark, lambda e: e.reply(200, b"ok", COOKIES))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    expect.relayed(answer)
    assert answer.all("Set-Cookie") == [value for _, value in COOKIES]


def head_of(size, status=b"201 Created"):
    begin, end = b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n", b"\r\n\r\n"
    return begin + b"X-A: " + b"a" * (size - len(begin) - len(end) - 5) + end


@pytest.mark.parametrize("limit,size", [(None, 65536), ("2KiB", 2048), ("1MiB", 1048576)])
def test_an_answers_head_above_the_limit_is_sent_all_the_same(launch, new_partner, mark, limit, size):
    partner = new_partner()
    gw = launch(route(partner), workers=1, limits={} if limit is None else {"answer_headers": limit})
    partner.on(mark, lambda e: e.send(head_of(size) + b"ok"))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    expect.relayed(answer, 201)
    assert len(answer.get("X-A")) > size - 100
    partner.on(mark, lambda e: e.send(head_of(size + 1) + b"ok"))
    answer = gw.call(f"/pay/{mark}", 6, mark)
    expect.refusal(answer, 502, "answer-too-large", "sent", key=mark, token="6")
    _, found = gw.wait_audit(2, key=mark)
    expect.record(found, kind="sent", reason="answer-too-large", status=502, upstream_status=201, effect_id=answer.effect_id)
    partner.on(mark, lambda e: e.reply())
    expect.relayed(gw.call(f"/pay/{mark}", 7, mark))
    assert len(partner.seen(mark)) == 3


def test_a_status_line_that_never_ends_is_unknown(gw, partner, mark):
    partner.on(mark, lambda e: e.send(b"HTTP/1.1 200 " + b"a" * 70_000))
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark), 502, "upstream-failed", "unknown")


def test_every_field_that_the_partners_connection_names_is_left_out(gw, partner, mark):
    hops = [f"X-Hop-{number}" for number in range(100)]
    named = [("Connection", ", ".join(hops))]
    partner.on(mark, lambda e: e.reply(200, b"ok", [*named, *((hop, "1") for hop in hops), ("X-Mine", "2")]))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    expect.relayed(answer)
    assert answer.get("X-Mine") == "2" and not [hop for hop in hops if answer.all(hop)]


def test_a_partner_may_close_by_proxy_connection(gw, partner, mark):
    """It closes just as the next call would go out: that one needs a connection of its own."""
    partner.on(mark, lambda e: e.reply(200, b"ok", [("Proxy-Connection", "close")]))
    for token in (5, 6):
        expect.relayed(gw.call(f"/pay/{mark}", token, mark))
    first, second = partner.seen(mark)
    assert first.connection != second.connection


def test_shutdown_refuses_what_is_new_and_what_waits(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner))
    running = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    waiting = gw.send_off(f"/pay/{mark}", 6, mark)
    eventually(lambda: gw.fence(mark) == 6)
    gw.process.send_signal(signal.SIGTERM)
    expect.refusal(waiting.result(10), 503, "shutting-down", "not-sent")
    expect.refusal(gw.call(f"/pay/{mark}", 9, mark + "-new"), 503, "shutting-down", "not-sent")
    held.release()
    expect.relayed(running.result(10))
    assert gw.wait() == 0
    assert len(partner.seen(mark)) == 1
    gw.start()
    assert gw.fence(mark + "-new") is None
    assert [(r["kind"], r["token"]) for r in gw.audit(key=mark, kind="sent")] == [("sent", "5")]


def test_what_still_runs_at_the_end_of_the_grace_is_502_unknown(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner), shutdown_grace="300ms")
    running = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    gw.process.send_signal(signal.SIGTERM)
    answer = running.result(10)
    expect.refusal(answer, 502, "shutdown-cut", "unknown", key=mark, token="5")
    assert gw.wait() == 4
    held.release()
    gw.start()
    (found,) = gw.audit(key=mark)
    expect.record(found, kind="unknown", reason="shutdown-cut", status=502, effect_id=answer.effect_id)


# -- settings of the route, and the order of refusals


def test_stale_and_missing_status_are_settings(gw, partner, mark):
    expect.relayed(gw.call(f"/sdk/{mark}", 5, mark))
    expect.refusal(gw.call(f"/sdk/{mark}", 4, mark), 409, "stale-token")
    expect.refusal(gw.call(f"/sdk/{mark}", 5, mark), 409, "token-used")
    expect.refusal(gw.call(f"/sdk/{mark}", None, mark), 499, "missing-token")
    expect.refusal(gw.call(f"/sdk/{mark}", 5, None), 499, "missing-key")
    expect.refusal(gw.call(f"/sdk/{mark}", "x", mark), 400, "malformed-token")
    assert {r["status"] for r in gw.audit(key=mark, kind="dropped")} == {409}


@pytest.mark.parametrize("target,token,key,headers,reason", [
    ("/../x", None, None, [("Content-Length", 10 ** 9)], "malformed-request"),
    ("/nowhere", None, None, [("Content-Length", 10 ** 9)], "no-route"),
    ("/pay", None, None, [("Content-Length", 10 ** 9)], "body-too-large"),
    ("/pay", None, "", [], "missing-token"),
    ("/pay", "x", None, [], "missing-key"),
    ("/pay", "x", "", [], "malformed-token"),
    ("/pay", "5", "", [], "malformed-key"),
])
def test_the_first_of_several_refusals_wins(gw, target, token, key, headers, reason):
    answer = gw.call(target, token, key, headers=headers)
    assert answer.reason == reason, answer


def test_one_connection_serves_all_small_refusals(gw, partner, mark):
    """A close after a refusal makes SDKs repeat the call; and it costs the next one a connect."""
    with gw.connect() as connection:
        for token, status in [(5, 200), (4, 412), (None, 428), ("x", 400), (6, 200)]:
            connection.send(request("POST", f"/pay/{mark}", fenced(token, mark), b"small body"))
            assert connection.receive().status == status
        connection.send(request("POST", f"/none/{mark}", fenced(7, mark), b"small body"))
        assert connection.receive().status == 404
        connection.send(request("POST", f"/pay/{mark}", fenced(7, mark), b"small body"))
        expect.relayed(connection.receive())
    assert len(partner.seen(mark)) == 3
