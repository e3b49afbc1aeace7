"""The story of a key: what the admin listener tells of its tokens."""

import json
import re
import socket
import urllib.parse

import pytest

import expect
from gateway import Gateway, eventually, route, run
from partner import Held

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
COUNTS = ("sent", "not_sent", "dropped", "rejected", "unknown", "resolved", "in_flight", "waiting", "in_doubt")


@pytest.fixture(scope="module")
def gw(partner, tmp_path_factory):
    routes = [
        route(partner),
        route(partner, name="drops", path="/drops", ledger="drops"),
        route(partner, name="watch", path="/watch", namespace="watched", fence={"mode": "observe"}),
    ]
    gateway = Gateway(tmp_path_factory.mktemp("gw"), routes).start()
    yield gateway
    gateway.end()


def path_of(key, namespace="default"):
    return f"/v1/fences/{namespace}/{urllib.parse.quote(key, safe='')}"


def history(gw, key, namespace="default", query=""):
    answer = gw.admin(path_of(key, namespace) + "/history" + query)
    assert answer.status == 200 and answer.get("Content-Type") == "application/json", answer
    told = answer.json
    assert (told["namespace"], told["key"]) == (namespace, key)
    assert told["updated_at"] is None or re.fullmatch(TIME, told["updated_at"])
    for token in told["tokens"]:
        assert re.fullmatch("[1-9][0-9]*", token["token"])
        assert all(isinstance(token[name], int) for name in COUNTS), token
        assert token["first_seen"] is None or re.fullmatch(TIME, token["first_seen"])
        assert "accepted" not in token or re.fullmatch(TIME, token["accepted"]["time"])
    return told


def counts(token):
    """The counts that are not zero."""
    return {name: token[name] for name in COUNTS if token[name]}


def put(gw, key, token, **members):
    body = json.dumps({"token": str(token), **members}).encode()
    answer = gw.admin(path_of(key), "PUT", body=body)
    assert answer.status == 200, answer


def test_the_story_of_a_paused_worker(gw, mark):
    for token in (41, 41, 42):
        expect.relayed(gw.call(f"/pay/{mark}", token, mark))
    expect.refusal(gw.call(f"/pay/{mark}", 41, mark), 412, "stale-token")
    records = gw.wait_audit(4, key=mark)
    told = history(gw, mark)
    assert (told["highest"], told["in_flight"], told["records"], told["complete"]) == ("42", 0, 4, True)
    assert told["resets"] == [] and told["more_tokens"] is False and "oldest_audit_id" not in told
    old, new = told["tokens"]
    assert (old["token"], counts(old)) == ("41", {"sent": 2, "dropped": 1})
    assert (new["token"], counts(new)) == ("42", {"sent": 1})
    assert old["routes"] == ["pay"] and old["reasons"] == {"stale-token": 1}
    assert old["first_audit_id"] == records[0]["id"] and old["last_audit_id"] == records[-1]["id"]
    accepted = new["accepted"]
    assert (accepted["by"], accepted["route"], accepted["time"]) == ("call", "pay", told["updated_at"])
    sent = next(record for record in records if record["token"] == "42")
    assert (accepted["audit_id"], accepted["client"]) == (sent["id"], sent["client"])
    assert old["accepted"]["time"] <= accepted["time"] and "reason" not in accepted


def test_a_late_token_was_never_accepted(gw, mark):
    expect.relayed(gw.call(f"/pay/{mark}", 42, mark))
    expect.refusal(gw.call(f"/pay/{mark}", 41, mark), 412, "stale-token")
    gw.wait_audit(2, key=mark)
    old, new = history(gw, mark)["tokens"]
    assert "accepted" not in old and counts(old) == {"dropped": 1}
    assert counts(new) == {"sent": 1}


def test_raised_by_an_operator(gw, mark):
    put(gw, mark, 2**64 - 1, reason="handed \u202e over")
    told = history(gw, mark)
    (token,) = told["tokens"]
    record = gw.audit(key=mark)[0]
    assert token["token"] == told["highest"] == "18446744073709551615" and counts(token) == {}
    assert token["accepted"] == {"time": record["time"], "by": "raise", "client": record["client"],
                                 "reason": "handed \u202e over", "audit_id": record["id"]}
    assert b"\\u202e" in gw.admin(path_of(mark) + "/history").body


def test_without_a_ledger_the_fence_itself_tells(gw, mark):
    expect.relayed(gw.call(f"/drops/{mark}", 42, mark))
    told = history(gw, mark)
    (token,) = told["tokens"]
    assert told["records"] == 0 and token["token"] == "42" and counts(token) == {}
    assert token["accepted"] == {"time": told["updated_at"]} and token["last_seen"] == told["updated_at"]
    expect.refusal(gw.call(f"/drops/{mark}", 41, mark), 412, "stale-token")
    expect.relayed(gw.call(f"/drops/{mark}", 50, mark))
    old, proven, fence = history(gw, mark)["tokens"]
    assert [t["token"] for t in (old, proven, fence)] == ["41", "42", "50"]
    assert counts(old) == {"dropped": 1} and "accepted" not in old
    assert proven["accepted"]["audit_id"] == old["last_audit_id"]  # the drop that names 42


def test_a_route_that_observes(gw, mark):
    expect.relayed(gw.call(f"/watch/{mark}", 42, mark))
    expect.relayed(gw.call(f"/watch/{mark}", 41, mark))
    gw.wait_audit(2, key=mark)
    old, _ = history(gw, mark, "watched")["tokens"]
    assert counts(old) == {"sent": 1} and old["would_drop"] == 1
    assert old["reasons"] == {"stale-token": 1} and "accepted" not in old


def test_across_resets(gw, mark):
    for turn in range(2):
        expect.relayed(gw.call(f"/pay/{mark}", 50 - turn, mark))
        gw.wait_audit(2 * turn + 1, key=mark)
        assert gw.admin(path_of(mark) + f"?reason=restored-{turn}", "DELETE").status == 204
    told = history(gw, mark)
    assert told["highest"] is None and told["updated_at"] is None
    assert [(r["highest"], r["reason"]) for r in told["resets"]] == [("50", "restored-0"), ("49", "restored-1")]
    assert all(re.fullmatch(TIME, r["time"]) and r["client"] and r["audit_id"] for r in told["resets"])
    expect.relayed(gw.call(f"/pay/{mark}", 41, mark))
    gw.wait_audit(5, key=mark)
    told = history(gw, mark)
    assert [(t["token"], t.get("resets_since", 0)) for t in told["tokens"]] == [("50", 2), ("49", 1), ("41", 0)]
    assert all(counts(token) == {"sent": 1} for token in told["tokens"])


def test_what_runs_and_waits(gw, partner, mark):
    held = Held()
    partner.on(mark, held)
    calls = [gw.send_off(f"/pay/{mark}", 5, mark)]
    partner.wait_seen(mark)
    calls += [gw.send_off(f"/pay/{mark}", 6, mark) for _ in range(2)]
    eventually(lambda: sum(t["waiting"] for t in history(gw, mark)["tokens"]) == 2)
    told = history(gw, mark)
    assert told["in_flight"] == 1 and told["records"] == 0
    assert [(t["token"], counts(t)) for t in told["tokens"]] == [("5", {"in_flight": 1}), ("6", {"waiting": 2})]
    held.release()
    for call in calls:
        expect.relayed(call.result(30))
    gw.wait_audit(3, key=mark)
    assert [counts(t) for t in history(gw, mark)["tokens"]] == [{"sent": 1}, {"sent": 2}]


def test_in_doubt_and_resolved(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    gateway = launch(route(partner))
    partner.on(mark, held)
    for _ in range(2):
        gateway.send_off(f"/pay/{mark}", 7, mark)
    partner.wait_seen(mark, 2)
    gateway.kill()
    held.release()
    gateway.start()
    (token,) = history(gateway, mark)["tokens"]
    assert counts(token) == {"unknown": 2, "in_doubt": 2} and token["reasons"] == {"gateway-crash": 2}
    effect = gateway.admin("/v1/effects?state=in-doubt").json["effects"][0]
    assert token["accepted"]["time"] <= effect["time"] and token["accepted"]["by"] == "call"
    body = json.dumps({"outcome": "sent", "note": "asked"}).encode()
    assert gateway.admin(f"/v1/effects/{effect['id']}/resolve", "POST", body=body).status == 200
    (token,) = history(gateway, mark)["tokens"]
    assert counts(token) == {"unknown": 2, "resolved": 1, "in_doubt": 1}


@pytest.mark.parametrize("key", ["a/b", "%2F", "?x=1", "..", "<script>", 'q"\\', "schlüssel", "k" * 255, "é" * 127, "a b", "history"])
def test_keys_of_any_kind(gw, key):
    expect.relayed(gw.call("/pay/x", 3, key))
    told = eventually(lambda: (lambda t: t if t["records"] else None)(history(gw, key)))
    assert [t["token"] for t in told["tokens"]] == ["3"]


def test_only_the_newest_tokens(gw, mark):
    for token in (1, 2, 3):
        expect.relayed(gw.call(f"/pay/{mark}", token, mark))
    gw.wait_audit(3, key=mark)
    told = history(gw, mark, query="?limit=2")
    assert [t["token"] for t in told["tokens"]] == ["2", "3"] and told["more_tokens"] is True
    assert told["records"] == 3 and told["complete"] is True


@pytest.mark.parametrize("query", ["?limit=0", "?limit=1001", "?limit=", "?limit=2&limit=2", "?key=k", "?limit=1e2"])
def test_bad_queries(gw, mark, query):
    put(gw, mark, 1)
    answer = gw.admin(path_of(mark) + "/history" + query)
    assert answer.status == 400 and answer.json["reason"] == "malformed-request", answer
    assert query[1:].split("=")[0] in answer.json["detail"]


def test_nothing_known(gw, mark):
    answer = gw.admin(path_of(mark) + "/history")
    assert answer.status == 404 and answer.json["reason"] == "not-found", answer
    for bad in ("/v1/fences/default//history", "/v1/fences/a%20b/k/history", "/v1/fences/default/%ff/history",
                f"/v1/fences/default/{'k' * 256}/history", "/v1/fences/default/%0a/history"):
        answer = gw.admin(bad)
        assert answer.status == 400, answer
    assert gw.admin(path_of(mark) + "/history", token=None).status == 401
    assert gw.admin(path_of(mark) + "/history", "PUT").status == 405


def test_what_runs_was_accepted_and_a_crash_does_not_change_when(launch, partner, mark):
    gateway = launch(route(partner))
    expect.relayed(gateway.call(f"/pay/{mark}-first", 41, mark))
    gateway.wait_audit(1, key=mark)
    held = Held()
    partner.on(mark, held)
    gateway.send_off(f"/pay/{mark}", 42, mark)
    partner.wait_seen(mark)
    running = history(gateway, mark)["tokens"][1]
    accepted = running["accepted"]
    assert (running["token"], accepted["by"], accepted["route"], running["in_flight"]) == ("42", "call", "pay", 1)
    assert accepted["client"].startswith("127.0.0.1:") and "audit_id" not in accepted
    assert running["last_seen"] == running["first_seen"] == accepted["time"]
    beside = gateway.command("audit", "--key", mark, "--kind", "unknown")
    assert "leave out --kind" in beside.stderr
    gateway.kill()
    held.release()

    def same(told):
        (_, token) = told["tokens"]
        return {name: token["accepted"][name] for name in accepted} == accepted

    alone = json.loads(run("history", mark, "--store", gateway.store, "--json").stdout)
    assert same(alone) and alone["tokens"][1]["in_doubt"] == 1
    gateway.start()
    expect.relayed(gateway.call(f"/pay/{mark}-next", 43, mark))
    crashed = gateway.wait_audit(1, key=mark, kind="unknown")[0]
    gateway.wait_audit(3, key=mark)
    told = history(gateway, mark)
    assert (told["tokens"][1]["token"], told["tokens"][1]["in_doubt"]) == ("42", 1)
    seen = told["tokens"][1]["last_seen"]
    body = b'{"outcome":"sent","note":"asked"}'
    assert gateway.admin(f"/v1/effects/{crashed['effect_id']}/resolve", "POST", body=body).status == 200
    resolved = history(gateway, mark)["tokens"][1]
    assert (resolved["accepted"]["time"], resolved["accepted"]["audit_id"]) == (accepted["time"], crashed["id"])
    assert (resolved["resolved"], resolved["in_doubt"], resolved["last_seen"]) == (1, 0, seen)


@pytest.mark.parametrize("path", ["pay", "drops"])
def test_who_was_superseded_was_accepted_before(gw, partner, mark, path):
    """Three leases, each waiting for the one before: the second never goes out."""
    held = Held()
    partner.on(mark, held)
    calls = []
    for token in (50, 51, 52):
        calls.append(gw.send_off(f"/{path}/{mark}", token, mark))
        eventually(lambda: gw.fence(mark) == token)
    expect.refusal(calls[1].result(30), 412, "superseded")
    held.release()
    expect.relayed(calls[0].result(30))
    expect.relayed(calls[2].result(30))
    told = eventually(lambda: [t for t in [history(gw, mark)] if t["records"] == (3 if path == "pay" else 1)])[0]
    times = [token["accepted"]["time"] for token in told["tokens"]]
    assert len(times) == (3 if path == "pay" else 2) and times == sorted(times), told
    superseded = gw.audit(key=mark, reason="superseded")[0]
    row = next(token for token in told["tokens"] if token["token"] == "51")
    assert row["accepted"]["audit_id"] == superseded["id"] and row["accepted"]["time"] <= superseded["time"]


def test_an_operators_change_is_no_sign_of_the_worker(gw, partner, mark):
    partner.on(mark, lambda e: e.reset())
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark), 502, "upstream-failed", "unknown")
    effect = gw.wait_audit(1, key=mark)[0]["effect_id"]
    seen = history(gw, mark)["tokens"][0]["last_seen"]
    body = b'{"outcome":"sent","note":"asked"}'
    assert gw.admin(f"/v1/effects/{effect}/resolve", "POST", body=body).status == 200
    put(gw, mark, 6)
    old, new = history(gw, mark)["tokens"]
    assert (old["last_seen"], old["resolved"]) == (seen, 1)
    assert (new["last_seen"], new["accepted"]["by"]) == (None, "raise")


# -- on the command line


def rows(text):
    """The table as dictionaries, and the lines behind it."""
    head, *lines = text.splitlines()
    names = re.split("  +", head)
    cells = [re.split("  +", line) for line in lines]
    return [dict(zip(names, row)) for row in cells if len(row) == len(names)], [c[0] for c in cells if len(c) != len(names)]


def test_the_story_as_a_table(gw, mark):
    for token in (41, 42):
        expect.relayed(gw.call(f"/pay/{mark}", token, mark))
    expect.refusal(gw.call(f"/pay/{mark}", 41, mark), 412, "stale-token")
    gw.wait_audit(3, key=mark)
    shown = gw.command("history", mark)
    assert shown.returncode == 0 and shown.stderr == "", shown
    (old, new), end = rows(shown.stdout)
    assert (old["TOKEN"], old["SENT"], old["DROPPED"], old["REASONS"]) == ("41", "1", "1", "stale-token 1")
    assert (new["TOKEN"], new["SENT"], new["DROPPED"], new["REASONS"]) == ("42", "1", "-", "-")
    assert re.fullmatch(r"call 127\.0\.0\.1:\d+", new["BY"]) and new["ACCEPTED"] <= new["LAST SEEN"]
    assert end == ["The fence is at 42."]
    found = json.loads(gw.command("history", mark, "--json").stdout)
    assert found == history(gw, mark)


def test_the_table_shows_resets_and_raises(gw, mark):
    expect.relayed(gw.call(f"/pay/{mark}", 50, mark))
    gw.wait_audit(1, key=mark)
    assert gw.admin(path_of(mark) + "?reason=restored", "DELETE").status == 204
    put(gw, mark, 7, reason="next \u202elease")
    (before, reset, after), end = rows(gw.command("history", mark).stdout)
    assert (before["TOKEN"], reset["TOKEN"], after["TOKEN"]) == ("50", "reset of 50", "7")
    assert reset["BY"].endswith(": restored") and after["BY"].startswith("raise 127.0.0.1:")
    assert after["BY"].endswith(": next \\u202elease") and end == ["The fence is at 7."]


def test_the_table_shows_what_would_have_been_dropped(gw, mark):
    for token in (42, 41):
        expect.relayed(gw.call(f"/watch/{mark}", token, mark))
    gw.wait_audit(2, key=mark)
    (late, _), _ = rows(gw.command("history", mark, "--namespace", "watched").stdout)
    assert (late["TOKEN"], late["SENT"], late["WOULD-DROP"], late["REASONS"]) == ("41", "1", "1", "stale-token 1")


def test_the_table_shows_what_runs(gw, partner, mark):
    held = Held()
    partner.on(mark, held)
    call = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    (token,), end = rows(gw.command("history", mark).stdout)
    assert token["IN-FLIGHT"] == "1" and end == ["The fence is at 5, 1 call in flight."]
    held.release()
    expect.relayed(call.result(30))


def test_without_a_gateway(launch, partner, mark):
    gateway = launch(route(partner, namespace="money"))
    key = f'{mark} "/\u00fc'
    for token in (1, 2, 3):
        expect.relayed(gateway.call(f"/pay/{mark}", token, key))
    gateway.wait_audit(3, key=key)
    beside = json.loads(gateway.command("history", key, "--namespace", "money", "--json").stdout)
    assert beside["in_flight"] == 0
    assert gateway.stop() == 0
    alone = json.loads(run("history", key, "--namespace=money", "--store", gateway.store, "--json").stdout)
    assert "in_flight" not in alone
    for token in beside["tokens"]:
        assert token.pop("in_flight") == token.pop("waiting") == 0
    beside.pop("in_flight")
    assert alone == beside
    shown = run("history", key, "--namespace", "money", "--store", gateway.store, "--limit", "2")
    assert [row["TOKEN"] for row in rows(shown.stdout)[0]] == ["2", "3"]
    assert "Older tokens were left out" in shown.stdout
    gateway.start()


def test_an_address_that_a_crash_left_is_not_asked(launch, partner, mark):
    gateway = launch(route(partner))
    expect.relayed(gateway.call(f"/pay/{mark}", 1, mark))
    gateway.wait_audit(1, key=mark)
    gateway.kill()
    assert (gateway.store / "admin.addr").exists()
    with socket.create_server(("127.0.0.1", gateway.admin_port)) as other:
        assert run("history", mark, "--store", gateway.store).returncode == 0
        other.settimeout(0)
        with pytest.raises(BlockingIOError):
            other.accept()
    gateway.start()


def test_command_lines_that_are_refused(gw, mark, tmp_path):
    nothing = gw.command("history", mark)
    assert nothing.returncode == 1 and nothing.stdout == "" and "Nothing is known" in nothing.stderr
    for arguments in ([], [mark, "more"], [mark, "--limit", "0"], [mark, "--limit", "1001"], ["a\x07"], ["k" * 256]):
        refused = gw.command("history", *arguments)
        assert refused.returncode == 2 and refused.stdout == "" and "\x07" not in refused.stderr, refused
    assert run("history", mark, "--store", tmp_path / "none").returncode == 3
