"""Webhook targets by name: several addresses, answers that change, slow answers. A preloaded library (names.c) stands in
for the name service and for the network, so that a "public" address can be called, and be seen to be called."""

import os
import pathlib
import socket
import subprocess
import time

import pytest

import expect
from client import fenced, request
from gateway import Gateway, eventually, route
from partner import FullListener, Held

V4, V6 = "93.184.216.34", "2606:2800:220:1::1"  # public; what connects to them lands on the stand-in partner


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / "names.so"
    source = pathlib.Path(__file__).parent / "names.c"
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-shared", "-Wall", "-Werror", "-o", path,
                    source, "-ldl"], check=True)
    return path


class Names:
    """What the names mean now."""

    def __init__(self, path):
        self.path = path
        self.lines = {}
        self._write()

    def _write(self):
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(f"{name} {rest}\n" for name, rest in self.lines.items()))
        fresh.rename(self.path)

    def set(self, name, *addresses):
        self.lines[name] = " ".join(addresses)
        self._write()

    def age(self):
        """Whatever the gateway remembers of names is too old from now on."""
        self.lines["clock"] = str(int(self.lines.get("clock", 0)) + 100)
        self._write()


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    return Names(tmp_path_factory.mktemp("names") / "names")


@pytest.fixture(scope="module")
def gw(partner, names, library, tmp_path_factory):
    rules = {"allow_hosts": ["*.test"], "ports": [partner.port], "allow_http": True}
    route = {"kind": "webhook", "timeout": {"connect": "5s", "total": "20s"}}
    env = {"LD_PRELOAD": str(library), "NAMES_FILE": str(names.path),
           "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    routes = [
        {"name": "public", "path": "/public", "webhook": rules, **route},
        {"name": "drops", "path": "/drops", "webhook": rules, "ledger": "drops", **route},
        {"name": "any", "path": "/any", "webhook": {**rules, "allow_private": True}, **route},
        {"name": "plain", "path": "/plain", "upstream": f"http://pool.test:{partner.port}"},
    ]
    gateway = Gateway(tmp_path_factory.mktemp("gw"), routes, env=env, workers=1).start()
    yield gateway
    gateway.end()


@pytest.fixture
def name(mark):
    return mark.replace("_", "-").replace("test-", "")[:60].strip("-") + ".test"


def target(partner, name, mark):
    return [("Fencegate-Target", f"http://{name}:{partner.port}/{mark}")]


def refused(gw, answer, key):
    expect.refusal(answer, 422, "target-refused")
    assert gw.fence(key) is None
    (found,) = gw.audit(key=key)
    expect.record(found, kind="rejected", reason="target-refused", effect_id=None)


@pytest.mark.parametrize("addresses", [
    [V4], [V6], [V6, V4], ["127.0.0.1", V4], [V4, "127.0.0.1"], ["10.0.0.1", "169.254.169.254", V4], ["::1", V4], ["fd00:ec2::254", "::1", V6],
    ["::ffff:127.0.0.1", V4], ["64:ff9b::7f00:1", "127.0.0.1", V6]], ids=" ".join)
def test_of_several_addresses_only_public_ones_are_called(gw, partner, names, name, mark, addresses):
    names.set(name, *addresses)
    answer = gw.call("/public", 7, mark, headers=target(partner, name, mark))
    expect.relayed(answer)
    assert partner.seen(mark)[0].get("Host") == f"{name}:{partner.port}"


@pytest.mark.parametrize("addresses", [
    ["127.0.0.1"], ["::1"], ["10.0.0.1", "192.168.0.1", "169.254.169.254"], ["::1", "127.0.0.1"], ["::ffff:93.184.216.34"],
    ["64:ff9b::5db8:d822", "fd00::1", "100.64.0.1"], ["2002:5db8:d822::1", "0.0.0.0"]], ids=" ".join)
def test_a_name_without_a_public_address_is_refused(gw, partner, names, name, mark, addresses):
    before = partner.connections
    names.set(name, *addresses)
    refused(gw, gw.call("/public", 7, mark, headers=target(partner, name, mark)), mark)
    assert partner.connections == before


def test_a_public_address_that_does_not_answer_is_unreachable(gw, partner, names, name, mark):
    """It was allowed, so it is no target-refused, also beside refused ones."""
    names.set(name, "127.0.0.1", V4)
    closed = [("Fencegate-Target", f"http://{name}:{partner.port}/{mark}")]
    gone = partner_port_gone()
    gw.settings["routes"][0]["webhook"]["ports"] = [partner.port, gone]
    gw.reload()
    gw.wait_log(lambda line: line["event"] == "reload")
    expect.relayed(gw.call("/public", 7, mark, headers=closed))
    answer = gw.call("/public", 7, mark, headers=[("Fencegate-Target", f"http://{name}:{gone}/{mark}")])
    expect.refusal(answer, 502, "upstream-unreachable")
    assert gw.wait_audit(2, key=mark)[1]["kind"] == "not-sent"


def partner_port_gone():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_an_answer_that_turns_private_while_the_call_waits_is_refused(gw, partner, names, name, mark):
    """DNS rebinding: public when it was looked at, private when the socket is opened."""
    names.set(name, V4)
    held = Held(last)
    partner.on(mark, held)
    first = gw.send_off("/any", 5, mark, headers=target(partner, name, mark))
    partner.wait_seen(mark)
    second = gw.send_off("/public", 6, mark, headers=target(partner, name, mark))
    waits(gw, mark, 6)
    names.set(name, "127.0.0.1")
    names.age()
    held.release()
    expect.relayed(first.result(20))
    answer = second.result(20)
    expect.refusal(answer, 422, "target-refused")
    assert len(partner.seen(mark)) == 1
    found = gw.wait_audit(2, key=mark)[1]
    expect.record(found, kind="rejected", reason="target-refused", token="6", effect_id=answer.effect_id)
    assert gw.admin("/v1/effects?state=in-doubt").json["effects"] == []
    assert gw.fence(mark) == 6  # it was raised before the call was made, as every call's is


def last(exchange):
    """Answers, and the connection is not used again."""
    exchange.reply(headers=[("Connection", "close")])
    exchange.close()


def waits(gw, key, token):
    """The token was accepted, so the look is over."""
    eventually(lambda: gw.fence(key) == token, what="the acceptance")


@pytest.mark.parametrize("where", ["/any", "/plain"])
def test_a_pooled_connection_to_a_private_address_is_not_used(gw, partner, names, mark, where):
    """One that another route opened, to a name that was public when it was looked at."""
    name = "pool.test"
    names.set(name, V4)
    names.age()
    held = Held(last)
    partner.on(mark + "-held", held)
    first = gw.send_off("/public", 5, mark, headers=target(partner, name, mark + "-held"))
    partner.wait_seen(mark + "-held")
    second = gw.send_off("/public", 6, mark, headers=target(partner, name, mark))
    waits(gw, mark, 6)
    names.set(name, "127.0.0.1")
    names.age()
    pooled = gw.call("/plain/pooled-" + mark if where == "/plain" else where, 1, mark + "-other", headers=target(partner, name, "pooled-" + mark))
    expect.relayed(pooled)
    held.release()
    expect.relayed(first.result(20))
    expect.refusal(second.result(20), 422, "target-refused")
    assert partner.seen(mark) == []


def test_a_look_takes_no_connection_and_no_place_in_the_order(gw, partner, names, name, mark):
    """While a name is slow to resolve, a newer token goes ahead; the slow one is stale then and nothing is sent."""
    names.set(name, "wait")
    slow = gw.send_off("/public", 5, mark, headers=target(partner, name, mark))
    in_flight(gw)
    other = "other-" + name
    names.set(other, V4)
    expect.relayed(gw.call("/public", 6, mark, headers=target(partner, other, mark)))
    names.set(name, V4)
    expect.refusal(slow.result(20), 412, "stale-token", highest="6")
    assert len(partner.seen(mark)) == 1


def test_a_client_that_leaves_during_the_look_changes_nothing(gw, partner, names, name, mark):
    names.set(name, "wait")
    connection = gw.connect()
    connection.send(request("POST", "/public", [*fenced(5, mark), *target(partner, name, mark)], b"x"))
    in_flight(gw)
    connection.close()
    names.set(name, V4)
    gw.wait_audit(key=mark, kind="sent")
    assert len(partner.seen(mark)) == 1


def test_with_ledger_drops_as_well(gw, partner, names, name, mark):
    names.set(name, V4)
    for token in (5, 5, 6):
        assert gw.call("/drops", token, mark, headers=target(partner, name, mark)).status == 200
    names.set(name, "127.0.0.1")
    names.age()
    expect.refusal(gw.call("/drops", 6, mark, headers=target(partner, name, mark)), 422, "target-refused")
    expect.refusal(gw.call("/drops", 7, mark, headers=target(partner, name, mark)), 422, "target-refused")
    assert gw.fence(mark) == 6 and len(partner.seen(mark)) == 3


def test_a_shutdown_ends_a_look(partner, names, name, library, tmp_path, mark):
    names.set(name, "wait")
    env = {"LD_PRELOAD": str(library), "NAMES_FILE": str(names.path),
           "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    rules = {"allow_hosts": ["*.test"], "ports": [partner.port], "allow_http": True}
    gw = Gateway(tmp_path, [{"name": "hooks", "path": "/hooks", "kind": "webhook", "webhook": rules,
                             "timeout": {"connect": "30s", "total": "60s"}}], env=env).start()
    call = gw.send_off("/hooks", 5, mark, headers=target(partner, name, mark))
    in_flight(gw)
    gw.process.terminate()
    expect.refusal(call.result(20), 503, "shutting-down")
    names.set(name, V4)
    assert gw.wait() == 0
    assert partner.seen(mark) == []


def in_flight(gw):
    """The request was read whole: it counts against the limits from then on."""
    eventually(lambda: gw.admin("/v1/stats").json["limits"]["in_flight"]["now"] == 1, what="the request")


def test_an_address_that_does_not_answer_leaves_time_for_the_next(launch, new_partner, names, library, name, mark):
    """Half of the time to connect is the first one's."""
    full = FullListener()
    partner = new_partner(address=("127.0.0.2", full.port))
    names.set(name, "127.0.0.1", "127.0.0.2")
    gw = launch(route(f"http://{name}:{full.port}", timeout={"connect": "2s", "total": "10s"}), workers=1,
                env={"LD_PRELOAD": str(library), "NAMES_FILE": str(names.path),
                     "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"})
    began = time.monotonic()
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    assert time.monotonic() - began < 1.8
    assert len(partner.seen(mark)) == 1
    full.close()


# ---- names that never resolve ----

@pytest.fixture
def crowded(launch, partner, names, library):
    """Four look-ups at once: two for targets, and the fixed upstream's name."""
    names.set("fixed.test", "127.0.0.1")
    rules = {"allow_hosts": ["*.test"], "ports": [partner.port], "allow_http": True, "allow_private": True}
    return launch([
        {"name": "fixed", "path": "/fixed", "upstream": f"http://fixed.test:{partner.port}"},
        {"name": "mute", "path": "/mute", "upstream": f"http://upstream.mute.test:{partner.port}", "timeout": {"connect": "300ms", "total": "20s"}},
        {"name": "mail", "path": "/mail", "kind": "smtp", "upstream": "smtp://relay.mute.test:2525", "smtp": {"starttls": "off"},
         "timeout": {"connect": "300ms", "total": "20s"}},
        {"name": "hooks", "path": "/hooks", "kind": "webhook", "webhook": rules, "timeout": {"connect": "10s", "total": "20s"}},
        {"name": "brief", "path": "/brief", "kind": "webhook", "webhook": rules, "timeout": {"connect": "300ms", "total": "20s"}},
    ], workers=1, limits={"lookups": 4},
        env={"LD_PRELOAD": str(library), "NAMES_FILE": str(names.path),
             "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"})


def threads(gw):
    """Names of the gateway's threads; one that a library makes has its maker's."""
    return sorted(path.read_text().strip() for path in pathlib.Path(f"/proc/{gw.process.pid}/task").glob("*/comm"))


def looking_up(gw):
    return threads(gw).count("fg-resolver")


def test_targets_that_never_resolve_take_half_of_the_look_ups(crowded, partner, names, name, mark):
    gw, others = crowded, [comm for comm in threads(crowded) if comm != "fg-resolver"]
    calls = [gw.send_off("/hooks", 1, f"{mark}-{i}", headers=target(partner, f"a{i}.mute.test", mark)) for i in range(12)]
    eventually(lambda: gw.admin("/v1/stats").json["limits"]["in_flight"]["now"] == 12, what="the requests")
    for _ in range(3):
        expect.relayed(gw.call(f"/fixed/{mark}", 1, mark))
        names.age()
    refusal = gw.call("/brief", 1, mark + "-late", headers=target(partner, "late.mute.test", mark))
    expect.refusal(refusal, 504, "upstream-timeout")
    assert refusal.get("Fencegate-Effect") == "not-sent" and "timeout.connect" in refusal.json["detail"]
    assert looking_up(gw) <= 4
    assert [comm for comm in threads(gw) if comm != "fg-resolver"] == others
    for call in calls:
        expect.refusal(call.result(20), 504, "upstream-timeout")


def test_calls_to_one_name_share_its_look_up(crowded, partner, names, name, mark):
    gw = crowded
    names.set(name, "wait")
    calls = [gw.send_off("/hooks", 1, f"{mark}-{i}", headers=target(partner, name, f"{mark}-{i}")) for i in range(8)]
    eventually(lambda: gw.admin("/v1/stats").json["limits"]["in_flight"]["now"] == 8, what="the requests")
    other = "other-" + name
    names.set(other, "127.0.0.1")
    expect.relayed(gw.call("/hooks", 1, mark, headers=target(partner, other, mark)))  # else all places are taken
    names.set(name, "127.0.0.1")
    for call in calls:
        expect.relayed(call.result(20))


@pytest.mark.parametrize("path, body", [("/mute", b"x"), ("/mail", b'{"from":"a@b.example","to":["c@d.example"],"subject":"s","text":"t"}')],
                         ids=["http", "smtp"])
def test_an_upstream_whose_name_server_is_silent_is_504_not_sent(crowded, mark, path, body):
    answer = crowded.call(path, 1, mark, body=body, headers=[("Content-Type", "application/json")])
    expect.refusal(answer, 504, "upstream-timeout")
    assert answer.get("Fencegate-Effect") == "not-sent"
    expect.record(crowded.wait_audit(key=mark)[0], kind="not-sent", reason="upstream-timeout")


def test_a_name_that_is_not_there_is_named(crowded, partner, mark):
    answer = crowded.call("/hooks", 1, mark, headers=target(partner, "absent.test", mark))
    expect.refusal(answer, 502, "upstream-unreachable")
    assert "absent.test" in answer.json["detail"]


def test_a_stop_does_not_wait_for_a_name_server(crowded, partner, mark):
    """A look-up can't be stopped: its thread is left behind."""
    expect.refusal(crowded.call("/mute", 1, mark), 504, "upstream-timeout")
    began = time.monotonic()
    crowded.process.terminate()
    assert crowded.wait() == 0
    assert time.monotonic() - began < 10  # the look-up takes 20 s
