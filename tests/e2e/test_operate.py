"""What operators and lock services do: raise, reset, resolve, by the admin listener and on the command line."""

import itertools
import json
import random
import re
import socket
import threading
import time
import urllib.parse

import pytest

import expect
from client import Connection, request
from gateway import PATIENCE, Gateway, eventually, pool, route, run
from partner import Held


@pytest.fixture(scope="module")
def gw(partner, tmp_path_factory):
    routes = [
        route(partner, forward_fencing_headers=True),
        route(partner, name="drops", path="/drops", ledger="drops"),
        route(partner, name="over", path="/over", on_supersede="overlap"),
    ]
    gateway = Gateway(tmp_path_factory.mktemp("gw"), routes).start()
    yield gateway
    gateway.end()


def fence_path(key, namespace="default"):
    return f"/v1/fences/{namespace}/" + urllib.parse.quote(key, safe="")


def put(gw, key, token, namespace="default", **members):
    body = json.dumps({"token": str(token), **members}).encode()
    return gw.admin(fence_path(key, namespace), "PUT", headers=[("Content-Type", "application/json")], body=body)


def reset(gw, key, reason="the lock service was restored"):
    return gw.admin(fence_path(key) + "?reason=" + urllib.parse.quote(reason), "DELETE")


def resolve(gw, effect, outcome="sent", note="asked the partner"):
    body = json.dumps({"outcome": outcome, "note": note}).encode()
    return gw.admin(f"/v1/effects/{effect}/resolve", "POST", body=body)


def in_doubt(gw):
    answer = gw.admin("/v1/effects?state=in-doubt&limit=1000")
    assert answer.status == 200, answer
    return answer.json["effects"]


def refused(answer, status, reason):
    assert answer.status == status, answer
    assert answer.get("Content-Type").startswith("application/problem+json"), answer
    assert answer.json["reason"] == reason and answer.json["status"] == status, answer


def hold(gw, partner, mark, token, path="/pay", name=None):
    held = Held()
    partner.on(name or mark, held)
    call = gw.send_off(f"{path}/{name or mark}", token, mark)
    partner.wait_seen(name or mark)
    return held, call


class Silent:
    """A port that takes connections and says nothing: what connects over TLS gets stuck before its first byte."""

    def __init__(self):
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self.sock.getsockname()[1]}"

    def wait_connection(self):
        self.sock.settimeout(PATIENCE)
        return self.sock.accept()[0]


# -- raise


def test_a_raise_is_a_fence(gw, mark):
    answer = put(gw, mark, 43, reason="handed over")
    assert answer.status == 200 and answer.get("Content-Type") == "application/json", answer
    found = answer.json
    assert (found["namespace"], found["key"], found["highest"], found["in_flight"]) == ("default", mark, "43", 0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["updated_at"])
    expect.refusal(gw.call(f"/pay/{mark}", 42, mark), 412, "stale-token", highest="43")
    expect.relayed(gw.call(f"/pay/{mark}", 43, mark))
    record = gw.audit(key=mark, kind="raised")[0]
    expect.record(record, token="43", highest="43", reason="handed over", route=None, method=None, status=None)
    assert re.fullmatch(r"127\.0\.0\.1:\d+", record["client"])


def test_an_equal_raise_changes_nothing_and_a_lower_one_is_refused(gw, mark):
    assert put(gw, mark, 18446744073709551615).status == 200
    again = put(gw, mark, 18446744073709551615)
    assert again.status == 200 and again.json["highest"] == "18446744073709551615"
    lower = put(gw, mark, 18446744073709551614)
    refused(lower, 409, "would-lower")
    assert (lower.json["token"], lower.json["highest"]) == ("18446744073709551614", "18446744073709551615")
    assert len(gw.audit(key=mark)) == 1


@pytest.mark.parametrize("body, part", [
    (b'{"token":43}', "JSON string"), (b'{"token":"43","tokn":"1"}', "not known"), (b'{"token":"43","token":"44"}', ""),
    (b'{"token":"0"}', "token"), (b'{"token":"4e3"}', "token"), (b"{}", "token"), (b"", "JSON"), (b"[]", "object"),
    (b'{"token":"43","wait":"30"}', "wait"), (b'{"token":"43","wait":30}', "wait"), (b'{"token":"43","reason":""}', "reason"),
    (b'{"token":"43"}x', "JSON"), (b'{"token":"\xff"}', "JSON"),
])
def test_a_body_that_is_not_a_raise_is_refused(gw, mark, body, part):
    answer = gw.admin(fence_path(mark), "PUT", body=body)
    refused(answer, 400, "malformed-request")
    assert part in answer.json["detail"]
    assert gw.fence(mark) is None


def test_other_content_types_and_large_bodies_are_refused(gw, mark):
    answer = gw.admin(fence_path(mark), "PUT", headers=[("Content-Type", "text/plain")], body=b'{"token":"43"}')
    refused(answer, 400, "malformed-request")
    answer = gw.admin(fence_path(mark), "PUT", body=b'{"token":"43"' + b" " * 65536 + b"}")
    refused(answer, 413, "body-too-large")
    with Connection(gw.admin_port) as connection:
        head = [("Authorization", f"Bearer {gw.admin_token}"), ("Transfer-Encoding", "chunked")]
        chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        connection.send(request("PUT", fence_path(mark), head, host="localhost"), chunk * 3, b"0\r\n\r\n")
        refused(connection.receive("PUT"), 413, "body-too-large")
    assert gw.fence(mark) is None


def test_a_body_in_pieces_is_read_whole(gw, mark):
    with Connection(gw.admin_port) as connection:
        head = [("Authorization", f"Bearer {gw.admin_token}"), ("Transfer-Encoding", "chunked")]
        connection.send(request("PUT", fence_path(mark), head, host="localhost"))
        for piece in (b'{"to', b'ken":"4', b'3"}'):
            connection.send(b"%x\r\n" % len(piece) + piece + b"\r\n")
        connection.send(b"0\r\n\r\n")
        assert connection.receive("PUT").json["highest"] == "43"
        connection.send(request("GET", fence_path(mark), head[:1], host="localhost"))  # the connection goes on
        assert connection.receive("GET").json["highest"] == "43"


def test_changes_need_the_token(gw, mark):
    body = b'{"token":"43"}'
    for method, path in [("PUT", fence_path(mark)), ("DELETE", fence_path(mark) + "?reason=x"),
                         ("POST", "/v1/effects/1/resolve"), ("GET", "/v1/fences"), ("GET", "/v1/effects")]:
        refused(gw.admin(path, method, token="wrong", body=body), 401, "unauthorized")
        refused(gw.admin(path, method, token=None, body=body), 401, "unauthorized")
    assert gw.fence(mark) is None


def test_a_raise_supersedes_waiting_calls_at_once(gw, partner, mark):
    held, older = hold(gw, partner, mark, 5)
    waiting = [gw.send_off(f"/pay/{mark}", 6, mark) for _ in range(3)]
    eventually(lambda: gw.fence(mark) == 6)
    answer = put(gw, mark, 9)
    assert answer.status == 200 and answer.json["in_flight"] == 1
    for call in waiting:
        expect.refusal(call.result(10), 412, "superseded", highest="9")
    assert not older.done() and len(partner.seen(mark)) == 1
    held.release()
    expect.relayed(older.result(10))  # it had begun to send
    expect.relayed(gw.call(f"/pay/{mark}", 9, mark))


def test_a_raise_supersedes_connecting_calls_at_once(launch, mark):
    silent = Silent()
    gw = launch(route(silent, timeout={"connect": "60s", "total": "60s"}))
    call = gw.send_off(f"/pay/{mark}", 5, mark)
    connection = silent.wait_connection()
    assert put(gw, mark, 6, wait="20s").json["in_flight"] == 0
    expect.refusal(call.result(10), 412, "superseded", highest="6")
    connection.close()


def test_once_a_raise_is_answered_no_lower_token_starts(gw, partner, mark):
    """Calls and raises race. An answer with `in_flight` 0 says that all lower calls have ended: what the partner sees
    begin after it is never below it."""
    answered, top = [], itertools.count(10)  # (moment, token) of raises; the newest token there is
    newest, over = [next(top)], threading.Event()

    def worker(seed):
        chance = random.Random(seed)
        answers = []
        while not over.is_set():
            answers.append(gw.call(f"/pay/{mark}", newest[0] - chance.randrange(3), mark))
        return answers

    workers = [pool.submit(worker, seed) for seed in range(8)]
    for _ in range(40):
        newest[0] = next(top)
        answer = put(gw, mark, newest[0], wait="30s")
        assert answer.status == 200 and answer.json["in_flight"] == 0, answer
        answered.append((time.monotonic(), newest[0]))
    over.set()
    assert {answer.status for one in workers for answer in one.result()} == {200, 412}
    sent = [(r.began, int(r.get("Fencing-Token"))) for r in partner.seen(mark)]
    assert len(sent) > 10
    for began, token in sent:
        fence = max((fence for moment, fence in answered if moment < began), default=0)
        assert token >= fence, f"{token} reached the partner after a raise to {fence} was answered"


# -- wait


@pytest.mark.parametrize("path", ["/pay", "/drops", "/over"])
def test_with_wait_the_answer_comes_when_older_calls_have_ended(gw, partner, mark, path):
    held, older = hold(gw, partner, mark, 5, path)
    raised = pool.submit(put, gw, mark, 6, wait="60s")
    eventually(lambda: gw.fence(mark) == 6)
    assert gw.admin("/healthz", token=None).status == 200  # the admin thread goes on
    assert put(gw, mark, 6).json["in_flight"] == 1
    assert not raised.done()
    held.release()
    answer = raised.result(10)
    assert answer.status == 200 and answer.json["in_flight"] == 0 and answer.json["highest"] == "6"
    assert older.done() or older.result(10).status == 200


def test_at_the_end_of_the_wait_it_says_how_many_still_run(gw, partner, mark):
    held, older = hold(gw, partner, mark, 5)
    answer = put(gw, mark, 6, wait="200ms")
    assert answer.status == 200 and answer.json["in_flight"] == 1
    held.release()
    expect.relayed(older.result(10))
    assert put(gw, mark, 6, wait="60s").json["in_flight"] == 0


def test_a_wait_that_finds_nothing_is_answered_at_once(gw, mark):
    assert put(gw, mark, 6, wait="60s").json["in_flight"] == 0
    refused(put(gw, mark, 5, wait="60s"), 409, "would-lower")


def test_calls_with_the_token_itself_are_not_waited_for(gw, partner, mark):
    held, call = hold(gw, partner, mark, 6)
    assert put(gw, mark, 6, wait="60s").json["in_flight"] == 0
    held.release()
    expect.relayed(call.result(10))


def test_who_leaves_while_waiting_does_no_harm(gw, partner, mark):
    held, older = hold(gw, partner, mark, 5)
    body = b'{"token":"6","wait":"60s"}'
    head = [("Authorization", f"Bearer {gw.admin_token}")]
    with Connection(gw.admin_port) as connection:
        connection.send(request("PUT", fence_path(mark), head, body, host="localhost"))
        eventually(lambda: gw.fence(mark) == 6)
    with Connection(gw.admin_port) as connection:
        connection.send(request("PUT", fence_path(mark), head, body, host="localhost"))
        connection.end_sending()  # half-closed: it still reads
        assert connection.silent(0.2)
        held.release()
        assert connection.receive("PUT").json["in_flight"] == 0
    expect.relayed(older.result(10))


def test_a_wait_ends_with_the_gateway(launch, partner, mark):
    gw = launch(route(partner), shutdown_grace="300ms")
    gw.expected_exit = 4
    held, older = hold(gw, partner, mark, 5)
    raised = pool.submit(put, gw, mark, 6, wait="1h")
    eventually(lambda: gw.fence(mark) == 6)
    assert gw.stop() == 4
    assert raised.result(10).status == 200
    held.release()
    older.result(10)


# -- reset


def test_after_a_reset_lower_tokens_work(gw, partner, mark):
    refused(reset(gw, mark), 404, "not-found")
    expect.relayed(gw.call(f"/pay/{mark}", 1700000000000, mark))
    expect.refusal(gw.call(f"/pay/{mark}", 7, mark), 412, "stale-token")
    answer = reset(gw, mark, "a clock was taken for a token: ümläut")
    assert answer.status == 204 and answer.body == b"" and answer.get("Content-Type") is None
    assert gw.fence(mark) is None
    expect.relayed(gw.call(f"/pay/{mark}", 7, mark))
    assert gw.fence(mark) == 7
    record = gw.audit(key=mark, kind="reset")[0]
    expect.record(record, highest="1700000000000", token=None, reason="a clock was taken for a token: ümläut")


@pytest.mark.parametrize("query", ["", "?reason=", "?reason=a&reason=b", "?reason=a%0Ab", "?reason=%ff", "?why=x", "?reason=" + "r" * 256])
def test_a_reset_needs_a_reason(gw, mark, query):
    assert put(gw, mark, 5).status == 200
    refused(gw.admin(fence_path(mark) + query, "DELETE"), 400, "malformed-request")
    assert gw.fence(mark) == 5


def test_after_a_reset_calls_wait_for_all_that_were_in_flight(gw, partner, mark):
    held, older = hold(gw, partner, mark, 5)
    assert reset(gw, mark).status == 204
    waiting = [gw.send_off(f"/pay/{mark}-new", token, mark) for token in (5, 5)]  # not even equals go beside it
    eventually(lambda: gw.fence(mark) == 5)
    expect.relayed(gw.call(f"/pay/{mark}-else", 1, mark + "-else"))
    assert partner.seen(mark + "-new") == []
    held.release()
    expect.relayed(older.result(10))
    for call in waiting:
        expect.relayed(call.result(10))


def test_a_lower_token_waits_too(gw, partner, mark):
    held, older = hold(gw, partner, mark, 5)
    assert reset(gw, mark).status == 204
    lower = gw.send_off(f"/pay/{mark}-new", 2, mark)
    eventually(lambda: gw.fence(mark) == 2)
    assert put(gw, mark, 3).json["in_flight"] == 1  # what was before the reset counts as lower
    expect.refusal(lower.result(10), 412, "superseded", highest="3")
    assert partner.seen(mark + "-new") == []
    held.release()
    expect.relayed(older.result(10))


def test_a_reset_stops_what_has_not_begun_to_send(gw, partner, mark):
    held, older = hold(gw, partner, mark, 5)
    waiting = gw.send_off(f"/pay/{mark}-wait", 6, mark)
    eventually(lambda: gw.fence(mark) == 6)
    assert reset(gw, mark).status == 204
    answer = waiting.result(10)
    expect.refusal(answer, 412, "superseded")
    assert "highest" not in answer.json
    assert partner.seen(mark + "-wait") == [] and not older.done()
    held.release()
    expect.relayed(older.result(10))


# -- lists


def test_a_list_of_fences_can_be_paged(gw, mark):
    keys = [f"{mark}/{number:02}" for number in range(25)]
    for number, key in enumerate(keys):
        assert put(gw, key, number + 1).status == 200
    assert put(gw, keys[0], 9, namespace="other").status == 200
    query = "/v1/fences?namespace=default&limit=10&prefix=" + urllib.parse.quote(mark + "/", safe="")
    found, cursor, pages = [], "", 0
    while cursor is not None:
        answer = gw.admin(query + (f"&cursor={cursor}" if cursor else ""))
        assert answer.status == 200, answer
        found += answer.json["fences"]
        cursor, pages = answer.json["next_cursor"], pages + 1
    assert pages == 3 and [f["key"] for f in found] == keys
    assert [f["highest"] for f in found] == [str(number + 1) for number in range(25)]
    assert set(found[0]) == {"namespace", "key", "highest", "updated_at", "in_flight"}
    everywhere = gw.admin("/v1/fences?prefix=" + urllib.parse.quote(keys[0], safe="")).json["fences"]
    assert [(f["namespace"], f["highest"]) for f in everywhere] == [("default", "1"), ("other", "9")]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "cursor=zz", "cursor=00", "cursor=6161", "namespace=a%20b", "prefix=", "x=1"])
def test_a_broken_list_query_is_refused(gw, query):
    refused(gw.admin("/v1/fences?" + query), 400, "malformed-request")


@pytest.mark.parametrize("query", ["state=open", "state=", "limit=0", "after=x", "key=a"])
def test_a_broken_effects_query_is_refused(gw, query):
    refused(gw.admin("/v1/effects?" + query), 400, "malformed-request")


# -- in doubt


@pytest.fixture
def crashed(launch, partner, mark):
    """A gateway that was killed with three calls at the partner, started again."""
    gw = launch(route(partner))
    held = [hold(gw, partner, f"{mark}-{n}", 5 + n)[0] for n in range(3)]
    gw.kill()
    for one in held:
        one.release()
    gw.start()
    return gw


def test_what_a_crash_left_can_be_resolved(crashed, mark):
    gw = crashed
    assert gw.metric("fencegate_effects_in_doubt") == 3
    effects = in_doubt(gw)
    assert [e["key"] for e in effects] == [f"{mark}-{n}" for n in range(3)]
    first = effects[0]
    assert set(first) == {"id", "time", "route", "namespace", "key", "token", "method", "path", "client"} and first["client"].startswith("127.0.0.1:")
    assert (first["route"], first["token"], first["method"], first["path"]) == ("pay", "5", "POST", f"/pay/{mark}-0")
    unknown = gw.audit(key=f"{mark}-0", kind="unknown")[0]
    assert unknown["effect_id"] == first["id"] and unknown["reason"] == "gateway-crash"
    answer = resolve(gw, first["id"], "sent", "receipt 17\nin their console")
    assert answer.status == 200 and answer.get("Content-Type") == "application/json", answer
    expect.record(answer.json, kind="resolved", reason="sent", effect_id=first["id"], key=f"{mark}-0", token="5",
                  route="pay", method="POST", path=f"/pay/{mark}-0", note="receipt 17\nin their console")
    assert gw.audit(kind="resolved") == [answer.json]
    assert [e["id"] for e in in_doubt(gw)] == [e["id"] for e in effects[1:]]
    assert gw.metric("fencegate_effects_in_doubt") == 2
    refused(resolve(gw, first["id"], "not-sent"), 409, "already-resolved")
    page = gw.admin("/v1/effects?state=in-doubt&limit=1").json
    assert page["next_after"] == page["effects"][0]["id"]
    assert gw.admin(f"/v1/effects?after={page['next_after']}").json == {"effects": effects[2:], "next_after": None}
    gw.stop()
    gw.start()
    refused(resolve(gw, first["id"]), 409, "already-resolved")
    assert len(in_doubt(gw)) == 2
    assert gw.audit(key=f"{mark}-0", kind="resolved")[0]["note"].startswith("receipt")


def test_any_effect_recorded_unknown_can_be_resolved_once(gw, partner, mark):
    partner.on(mark, lambda e: e.reset())
    answer = gw.call(f"/pay/{mark}", 5, mark)
    expect.refusal(answer, 502, "upstream-failed", "unknown")
    effect = gw.wait_audit(key=mark, kind="unknown")[0]["effect_id"]
    assert answer.effect_id == effect and in_doubt(gw) == []
    resolved = resolve(gw, effect, "not-sent")
    assert resolved.status == 200 and resolved.json["reason"] == "not-sent" and resolved.json["key"] == mark
    refused(resolve(gw, effect, "not-sent"), 409, "already-resolved")
    expect.relayed(gw.call(f"/pay/{mark}-good", 5, mark + "-good"))
    sent = gw.wait_audit(key=mark + "-good")[0]["effect_id"]
    refused(resolve(gw, sent), 404, "not-found")


def effects(gw, state):
    answer = gw.admin(f"/v1/effects?state={state}")
    assert answer.status == 200 and answer.json["next_after"] is None, answer
    return answer.json["effects"]


def test_what_runs_and_what_waits_to_be_resolved_is_listed(launch, partner, mark):
    gw = launch(route(partner))
    held, call = hold(gw, partner, mark, 5)
    waiting = gw.send_off(f"/pay/{mark}", 6, mark)
    eventually(lambda: gw.fence(mark) == 6)
    first, second = effects(gw, "in-flight")
    assert (first["token"], second["token"], first["path"], first["key"]) == ("5", "6", f"/pay/{mark}", mark)
    assert first["client"].startswith("127.0.0.1:") and "reason" not in first and "audit_id" not in first
    assert effects(gw, "unknown") == effects(gw, "in-doubt") == []
    shown = [json.loads(line) for line in gw.command("effects", "in-flight", "--json").stdout.splitlines()]
    assert shown == [first, second]
    assert gw.command("effects", "in-flight", "--namespace", "other").stdout == ""
    partner.on(mark, lambda e: e.reset())
    held.release()
    assert call.result(10).effect_id == first["id"]
    expect.refusal(waiting.result(10), 502, "upstream-failed", "unknown")
    lost = eventually(lambda: effects(gw, "unknown"))[0]
    record = gw.audit(effect_id=second["id"])[0]
    assert lost == {**second, "time": lost["time"], "reason": "upstream-failed", "audit_id": record["id"]}
    assert effects(gw, "in-flight") == []
    table = gw.command("effects", "unknown").stdout.splitlines()
    assert table[0].split()[-3:] == ["CLIENT", "REASON", "RECORD"] and table[1].split()[-1] == record["id"]
    assert gw.audit(id=record["id"]) == [record]
    for option, number in (("--id", record["id"]), ("--effect", second["id"])):
        assert [json.loads(line) for line in gw.command("audit", option, number, "--json").stdout.splitlines()] == [record]
    resolve(gw, second["id"], "sent")
    assert effects(gw, "unknown") == []
    assert [r["kind"] for r in gw.audit(effect_id=second["id"])] == ["unknown", "resolved"]


def test_what_a_crash_left_is_in_doubt_before_the_next_start(launch, partner, mark):
    gw = launch(route(partner))
    held, _ = hold(gw, partner, mark, 5)
    effect = effects(gw, "in-flight")[0]
    assert "effects in-flight" in gw.command("audit", "--key", mark).stderr
    gw.kill()
    held.release()
    assert "effects in-doubt" in gw.command("audit", "--key", mark).stderr
    before = (gw.store / "data.mdb").read_bytes()
    shown = [json.loads(line) for line in gw.command("effects", "in-doubt", "--json").stdout.splitlines()]
    assert shown == [effect] and effect["client"].startswith("127.0.0.1:")
    assert gw.command("effects", "in-flight", "--json").stdout == ""
    told = json.loads(gw.command("history", mark, "--json").stdout)
    assert told["tokens"][0]["in_doubt"] == 1 and told["tokens"][0]["accepted"]["by"] == "call"
    assert told["tokens"][0]["accepted"]["client"] == effect["client"]
    assert (gw.store / "data.mdb").read_bytes() == before
    gw.start()
    assert in_doubt(gw) == shown


def test_what_can_not_be_resolved(gw, partner, mark):
    refused(resolve(gw, 18446744073709551615), 404, "not-found")
    held, call = hold(gw, partner, mark, 5)
    eventually(lambda: gw.fence(mark) == 5)
    held.release()
    running = call.result(10).effect_id
    for body in [b"{}", b'{"outcome":"sent"}', b'{"outcome":"maybe","note":"x"}', b'{"outcome":"sent","note":"x","y":"z"}', b"no"]:
        refused(gw.admin(f"/v1/effects/{running}/resolve", "POST", body=body), 400, "malformed-request")
    refused(gw.admin("/v1/effects/x/resolve", "POST", body=b'{"outcome":"sent","note":"x"}'), 400, "malformed-request")


def test_methods(gw):
    for method, path, allow in [("POST", "/v1/fences/default/k", "GET, HEAD, PUT, DELETE"), ("PUT", "/v1/fences", "GET, HEAD"),
                                ("GET", "/v1/effects/1/resolve", "POST"), ("DELETE", "/v1/effects", "GET, HEAD")]:
        answer = gw.admin(path, method)
        refused(answer, 405, "method-not-allowed")
        assert answer.get("Allow") == allow


# -- the command


def lines(result):
    assert result.returncode == 0, result
    return [json.loads(line) for line in result.stdout.splitlines()]


def command(gw, how, *arguments):
    place = ["-c", gw.config] if how == "config" else ["--store", gw.store]
    return run(*arguments, *place)


@pytest.mark.parametrize("how", ["config", "store"])
@pytest.mark.parametrize("running", [True, False])
def test_fences_on_the_command_line(launch, partner, mark, how, running):
    gw = launch(route(partner))
    assert (gw.store / "admin.addr").read_text() == f"127.0.0.1:{gw.admin_port}\n"
    held, call = hold(gw, partner, mark, 5)
    held.release()
    expect.relayed(call.result(10))
    if not running:
        gw.stop()
        assert not (gw.store / "admin.addr").exists()
    raised = command(gw, how, "fences", "raise", mark, "43", "--reason", "by hand")
    assert raised.returncode == 0 and raised.stdout == f"default {mark}: the fence is at 43\n" and raised.stderr == "", raised
    assert command(gw, how, "fences", "raise", mark, "43", "--reason", "again").returncode == 0
    lower = command(gw, how, "fences", "raise", mark, "42", "--reason", "by hand")
    assert lower.returncode == 1 and "below 43" in lower.stderr and lower.stdout == ""
    one = lines(command(gw, how, "fences", "get", mark, "--json"))[0]
    assert (one["namespace"], one["key"], one["highest"]) == ("default", mark, "43")
    other = lines(command(gw, how, "fences", "raise", "k/ö %&?", "18446744073709551615", "--reason", "r&d", "--namespace", "b", "--json"))[0]
    assert (other["namespace"], other["key"], other["highest"], other["in_flight"]) == ("b", "k/ö %&?", "18446744073709551615", 0)
    assert command(gw, how, "fences", "get", mark, "--namespace", "b").returncode == 1
    listed = lines(command(gw, how, "fences", "list", "--json"))
    assert [(f["namespace"], f["key"], f["highest"]) for f in listed] == [
        ("b", "k/ö %&?", "18446744073709551615"), ("default", mark, "43")]
    table = command(gw, how, "fences", "list", "--namespace", "default", "--prefix", mark[:5])
    assert table.returncode == 0 and table.stdout.splitlines()[0].split() == ["NAMESPACE", "KEY", "HIGHEST", "UPDATED"]
    assert table.stdout.splitlines()[1].split()[:3] == ["default", mark, "43"]
    gone = command(gw, how, "fences", "reset", mark, "--reason", "start over")
    assert gone.returncode == 0 and gone.stdout == f"default {mark}: reset\n"
    assert command(gw, how, "fences", "reset", mark, "--reason", "start over").returncode == 1
    if not running:
        gw.start()
    expect.relayed(gw.call(f"/pay/{mark}", 3, mark))
    kinds = [(r["kind"], r["reason"]) for r in gw.audit(key=mark) if r["kind"] in ("raised", "reset")]
    assert kinds == [("raised", "by hand"), ("reset", "start over")]


@pytest.mark.parametrize("how", ["config", "store"])
@pytest.mark.parametrize("running", [True, False])
def test_effects_on_the_command_line(crashed, mark, how, running):
    gw = crashed
    if not running:
        gw.stop()
    effects = lines(command(gw, how, "effects", "in-doubt", "--json"))
    assert [e["key"] for e in effects] == [f"{mark}-{n}" for n in range(3)]
    table = command(gw, how, "effects", "in-doubt").stdout.splitlines()
    assert table[0].split() == ["TIME", "ID", "ROUTE", "NAMESPACE", "KEY", "TOKEN", "REQUEST", "CLIENT"] and len(table) == 4
    done = command(gw, how, "effects", "resolve", effects[0]["id"], "--outcome", "not-sent", "--note", "not in their books")
    assert done.returncode == 0 and done.stdout == f"effect {effects[0]['id']}: resolved, not-sent\n", done
    record = lines(command(gw, how, "effects", "resolve", effects[1]["id"], "--outcome", "sent", "--note", 'a "b"', "--json"))[0]
    assert (record["kind"], record["reason"], record["note"]) == ("resolved", "sent", 'a "b"')
    again = command(gw, how, "effects", "resolve", effects[0]["id"], "--outcome", "sent", "--note", "x")
    assert again.returncode == 1 and "resolved before" in again.stderr
    assert command(gw, how, "effects", "resolve", "999999", "--outcome", "sent", "--note", "x").returncode == 1
    assert len(lines(command(gw, how, "effects", "in-doubt", "--json"))) == 1
    if not running:
        gw.start()
    assert gw.metric("fencegate_effects_in_doubt") == 1


def test_a_raise_on_the_command_line_reaches_waiting_calls(gw, partner, mark):
    held, older = hold(gw, partner, mark, 5)
    waiting = gw.send_off(f"/pay/{mark}", 6, mark)
    eventually(lambda: gw.fence(mark) == 6)
    raised = gw.command("fences", "raise", mark, "7", "--reason", "by hand")
    assert raised.stdout == f"default {mark}: the fence is at 7, 1 call with lower tokens still in flight\n"
    expect.refusal(waiting.result(10), 412, "superseded", highest="7")
    held.release()
    expect.relayed(older.result(10))


def test_after_a_crash_the_command_does_not_trust_the_old_address(launch, partner, mark):
    gw = launch(route(partner))
    gw.kill()
    assert (gw.store / "admin.addr").exists()
    with socket.create_server(("127.0.0.1", 0)) as other:
        (gw.store / "admin.addr").write_text(f"127.0.0.1:{other.getsockname()[1]}\n")
        assert command(gw, "store", "fences", "raise", mark, "7", "--reason", "r").returncode == 0
        other.settimeout(0)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert not (gw.store / "admin.addr").exists()
    gw.start()
    assert gw.fence(mark) == 7


def test_with_a_token_file_the_configuration_is_needed(launch, partner, mark, tmp_path):
    (tmp_path / "my.token").write_text("my-own-token-of-some-length\n")
    gw = launch(route(partner), admin={"address": "127.0.0.1", "port": 0, "token_file": str(tmp_path / "my.token")})
    failed = command(gw, "store", "fences", "raise", mark, "7", "--reason", "r")
    assert failed.returncode == 3 and "admin.token" in failed.stderr and "give -c FILE" in failed.stderr
    assert not (gw.store / "admin.token").exists()
    assert command(gw, "config", "fences", "raise", mark, "7", "--reason", "r").returncode == 0
    assert gw.fence(mark) == 7


def test_a_store_that_is_not_there_is_not_made(tmp_path):
    for words in (["fences", "raise", "k", "7", "--reason", "r"], ["fences", "list"], ["effects", "in-doubt"]):
        result = run(*words, "--store", tmp_path / "none")
        assert result.returncode == 3 and "there is no store" in result.stderr, result
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [
    "fences", "fences show", "fences list extra", "fences get", "fences raise k", "fences raise k 7", "fences reset k",
    "fences raise k 0 --reason r", "fences raise k 1e3 --reason r", "fences list --reason r", "fences get k --prefix p",
    "fences list --namespace a/b", "fences list --wat", "effects", "effects resolve 1", "effects resolve x --outcome sent --note n",
    "effects resolve 1 --outcome maybe --note n", "effects resolve 1 --outcome sent", "effects in-doubt --note n", "effects in-doubt 1",
    "effects resolve 1 --outcome sent --note n --namespace default", "effects unknown --namespace a/b", "audit --id x",
    "audit --effect 0", "audit --id 1 --follow",
])
def test_usage_errors(gw, words):
    result = run(*words.split(), "--store", gw.store)
    assert result.returncode == 2 and result.stderr and result.stdout == "", result
    assert run(*words.split()[:2], "-c", gw.config, "--store", gw.store, "--json").returncode == 2


def test_a_missing_configuration_is_usage(tmp_path):
    for words in (["fences", "list"], ["effects", "in-doubt"]):
        assert run(*words, "-c", tmp_path / "none.json").returncode == 2
        assert run(*words).returncode == 2
        assert run(*words[:1], "--help").returncode == 0


# -- many fences at once


@pytest.mark.parametrize("served", [True, False], ids=["beside a gateway", "without one"])
def test_all_fences_with_a_prefix_are_reset(launch, new_partner, mark, served):
    partner = new_partner()
    gw = launch([route(partner), route(partner, name="other", path="/other", namespace="other")])
    count = 1203  # more than a page
    for number in range(count):
        assert put(gw, f"{mark}-a-{number}", 7).status == 200
    for path in ("/pay", "/other"):
        expect.relayed(gw.call(f"{path}/{mark}", 9, f"{mark}-b"))
    expect.relayed(gw.call(f"/other/{mark}", 9, f"{mark}-a-1"))
    if not served:
        gw.stop()
    told = gw.command("fences", "reset", "--prefix", f"{mark}-a-", "--reason", "a load test", "--json")
    assert told.returncode == 0 and json.loads(told.stdout) == {"namespace": "default", "prefix": f"{mark}-a-", "reset": count}, told
    none = gw.command("fences", "reset", "--prefix", f"{mark}-a-", "--reason", "again")
    assert none.returncode == 1 and "no fence matches" in none.stderr
    left = [json.loads(line) for line in gw.command("fences", "list", "--prefix", mark, "--json").stdout.splitlines()]
    assert sorted((f["namespace"], f["key"]) for f in left) == [("default", f"{mark}-b"), ("other", f"{mark}-a-1"), ("other", f"{mark}-b")]
    records = [json.loads(line) for line in gw.command("audit", "--kind", "reset", "--limit", 10_000, "--json").stdout.splitlines()]
    assert len(records) == count and {(r["reason"], r["highest"]) for r in records} == {("a load test", "7")}
    assert {r["key"] for r in records} == {f"{mark}-a-{number}" for number in range(count)}


@pytest.mark.parametrize("words", [("k", "--prefix", "k"), ()])
def test_a_reset_names_a_key_or_a_prefix(launch, partner, words):
    gw = launch(route(partner))
    told = gw.command("fences", "reset", *words, "--reason", "r")
    assert told.returncode == 2 and "--prefix" in told.stderr
