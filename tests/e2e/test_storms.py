"""Bad weather: no descriptors left, thousands of connects that vanish at once, a clock that jumps by days."""

import os
import pathlib
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

import expect
from client import Closed, Connection, fenced, request
from gateway import PATIENCE, SANITIZED, eventually, route
from partner import FullListener, Held

DAY = 86_400
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends a reset


def cpu_seconds(gw):
    fields = pathlib.Path(f"/proc/{gw.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pause(seconds):
    """Where nothing may happen there is no event to wait for."""
    threading.Event().wait(seconds)


def does_not_spin(gw, window=1.0):
    before = cpu_seconds(gw)
    pause(window)
    used = cpu_seconds(gw) - before
    assert used < window * 0.25, f"{used:.2f} s of CPU time in {window} s in which nothing was asked of it"


def descriptors(gw):
    return len(os.listdir(f"/proc/{gw.process.pid}/fd"))


# -- no descriptors left


@pytest.fixture
def starved(launch, partner):
    """A gateway with 64 descriptors."""
    return launch(route(partner), wrapper=["prlimit", "--nofile=64:64"], workers=1)


def crowd(gw, port, count=100):
    """More connections than there are descriptors; all are connected as far as the kernel is concerned."""
    made = [Connection(port, PATIENCE) for _ in range(count)]
    eventually(lambda: made[0].silent(0) is False, what="the crowd's arrival")  # its first one ends for a later one
    return made


@pytest.mark.parametrize("listener", ["proxy", "admin"])
def test_out_of_descriptors_it_neither_spins_nor_stays_deaf(starved, partner, mark, listener):
    gw = starved
    made = crowd(gw, gw.port if listener == "proxy" else gw.admin_port)
    does_not_spin(gw)
    for connection in made:
        connection.close()
    eventually(lambda: gw.call(f"/pay/{mark}", 5, mark).status == 200)
    assert gw.admin("/healthz", token=None).status == 200
    assert gw.fence(mark) == 5


def test_both_listeners_come_back_from_one_crowd(starved, mark):
    """The admin listener has descriptors of its own, whatever the proxy's clients do."""
    gw = starved
    made = crowd(gw, gw.port)
    with Connection(gw.admin_port, PATIENCE) as late:
        late.send(request("GET", "/healthz", host="localhost"))
        does_not_spin(gw)
        for connection in made:
            connection.close()
        assert late.receive("GET").status == 200
    for _ in range(5):
        assert gw.admin("/readyz", token=None).status == 200
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))


def test_a_call_without_a_descriptor_for_its_partner_is_not_sent(starved, partner, mark):
    gw = starved
    starving = Held()
    partner.on(mark + "-many", starving)
    calls = [gw.send_off(f"/pay/{mark}-many", 1, f"{mark}-many-{i}", timeout=30) for i in range(60)]
    partner.wait_seen(mark + "-many", 3)  # 60 clients and 60 partners would need 120: the others get 503
    pause(0.5)
    starving.release()
    answers = []
    for call in calls:
        try:
            answers.append(call.result(40))
        except Closed:  # it had connected and sent nothing yet when a descriptor was needed: idle
            continue
    sent = [answer for answer in answers if answer.effect == "sent"]
    assert sent and all(answer.effect in ("sent", "not-sent") for answer in answers), answers
    assert len(partner.seen(mark + "-many")) == len(sent)
    expect.relayed(gw.call(f"/pay/{mark}-after", 1, mark + "-after"))


# -- connects that vanish


def storm(port, count, first_bytes=b""):
    """Connects, sends what is given, and resets, as fast as one thread can."""
    for _ in range(count):
        try:
            sock = socket.create_connection(("127.0.0.1", port), 5)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            if first_bytes:
                sock.send(first_bytes)
            sock.close()
        except OSError:
            pass  # the queue is full: as it should be in a storm


@pytest.mark.parametrize("first_bytes", [b"", b"POST /pay/x HTTP/1.1\r\nHost: a\r\nFencing-", b"\r"], ids=["nothing", "half a head", "a byte"])
@pytest.mark.parametrize("listener", ["proxy", "admin"])
def test_connects_that_reset_at_once_leave_nothing_behind(launch, partner, mark, listener, first_bytes):
    gw = launch(route(partner))
    expect.relayed(gw.call(f"/pay/{mark}", 1, mark))
    gw.admin("/healthz", token=None)
    before = descriptors(gw)
    port = gw.port if listener == "proxy" else gw.admin_port
    threads = [threading.Thread(target=storm, args=(port, 1500, first_bytes)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(20):
        expect.relayed(gw.call(f"/pay/{mark}", 2 + number, mark))
        assert gw.admin("/healthz", token=None).status == 200
    for thread in threads:
        thread.join(60)
    eventually(lambda: descriptors(gw) <= before + 4, what="the return of the descriptors")
    eventually(lambda: gw.metric("fencegate_connections") == 0)
    does_not_spin(gw)
    expect.relayed(gw.call(f"/pay/{mark}", 100, mark))
    assert len(partner.seen(mark)) == 22


def test_requests_whose_clients_reset_at_once_are_sent_once_or_never(launch, new_partner, mark):
    """Whole requests, the reset right behind: each is decided and recorded as if the client were there, or never came."""
    partner = new_partner()
    gw = launch(route(partner))
    count = 300

    def one(number):
        sock = socket.create_connection(("127.0.0.1", gw.port), 5)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.sendall(request("POST", f"/pay/{mark}-{number}", fenced(1, f"{mark}-{number}"), b"charge"))
        sock.close()

    for number in range(count):
        one(number)
    eventually(lambda: gw.metric("fencegate_connections") == 0)
    expect.relayed(gw.call(f"/pay/{mark}", 1, mark))
    eventually(lambda: gw.metric("fencegate_requests_live") == 0)
    came = [r.target.rsplit("/", 1)[1] for r in partner.seen() if r.target.endswith(tuple("0123456789")) and r.target != f"/{mark}"]
    assert len(came) == len(set(came))
    recorded = {r["path"].rsplit("/", 1)[1]: r["kind"] for r in gw.audit() if r["kind"] == "sent"}
    assert set(came) <= set(recorded) and len(recorded) == len(came) + 1


# -- a clock that jumps


FAKETIME = next((str(p) for p in pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
needs_faketime = pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed")


class Clock:
    """The time of day of one gateway, moved by writing a file; what counts from the start of the machine goes on."""

    def __init__(self, folder):
        self._file = folder / "offset"
        self.move(0)
        self.env = {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": str(self._file), "FAKETIME_NO_CACHE": "1",
                    "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def move(self, seconds):
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}s\n")
        new.replace(self._file)  # never half a file


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


def shown_time(text):
    """Seconds since 1970 of an audit time."""
    return time.mktime(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone + float(text[19:-1])


def last_record(gw, key, count):
    return gw.wait_audit(count, key=key)[-1]


@needs_faketime
def test_the_clock_can_be_moved(launch, partner, clock, mark):
    """Without this the tests below would prove nothing."""
    gw = launch(route(partner), env=clock.env)
    expect.relayed(gw.call(f"/pay/{mark}", 1, mark))
    assert abs(shown_time(last_record(gw, mark, 1)["time"]) - time.time()) < 60
    clock.move(3 * DAY)
    expect.relayed(gw.call(f"/pay/{mark}", 2, mark))
    assert abs(shown_time(last_record(gw, mark, 2)["time"]) - time.time() - 3 * DAY) < 60


@needs_faketime
@pytest.mark.parametrize("days", [4, -4])
def test_a_jump_fires_no_timeout_early(launch, new_partner, clock, mark, days):
    """A call with the partner, one that waits behind it, one that connects, half a request and an idle connection."""
    partner, full, held = new_partner(), FullListener(), Held()
    partner.on(mark, held)
    gw = launch([route(partner), route(full, name="slow", path="/slow")], env=clock.env)
    with gw.connect() as idle, gw.connect() as half:
        idle.send(request("POST", "/pay/idle", fenced(1, mark + "-idle"), b"x"))
        expect.relayed(idle.receive())
        whole = request("POST", "/pay/half", fenced(1, mark + "-half"), b"0123456789")
        half.send(whole[:-5])
        first = gw.send_off(f"/pay/{mark}", 5, mark)
        partner.wait_seen(mark)
        waiting = gw.send_off(f"/pay/{mark}", 6, mark)
        connecting = gw.send_off(f"/slow/{mark}", 1, mark + "-slow")
        eventually(lambda: gw.fence(mark) == 6 and gw.fence(mark + "-slow") == 1)
        clock.move(days * DAY)
        pause(1.2)  # more than a tick of every loop
        assert not (first.done() or waiting.done() or connecting.done()), "the jump ended a call"
        assert idle.silent(0) and half.silent(0), "the jump ended a connection"
        late = full.serve_from_now_on()
        held.release()
        for call in (first, waiting, connecting):
            expect.relayed(call.result(10))
        half.send(whole[-5:])
        expect.relayed(half.receive())
        idle.send(request("POST", "/pay/idle", fenced(1, mark + "-idle"), b"x"))
        expect.relayed(idle.receive())
        late.close()
    kinds = [record["kind"] for record in gw.wait_audit(2, key=mark)]
    assert kinds == ["sent", "sent"]
    assert all(record["duration_ms"] < 60_000 for record in gw.audit(kind="sent"))


@needs_faketime
@pytest.mark.parametrize("days", [4, -4])
def test_a_jump_holds_no_timeout_back(launch, new_partner, clock, mark, days):
    partner, full, held = new_partner(), FullListener(), Held()
    partner.on(mark, held)
    limits = {"timeout": {"connect": "1s", "total": "2s"}, "drain_timeout": "1s"}
    gw = launch([route(partner, **limits), route(full, name="slow", path="/slow", **limits)], env=clock.env,
                limits={"idle_timeout": "1s", "request_timeout": "1s"})
    with gw.connect() as idle:
        first = gw.send_off(f"/pay/{mark}", 5, mark)
        partner.wait_seen(mark)
        waiting = gw.send_off(f"/pay/{mark}", 6, mark)
        connecting = gw.send_off(f"/slow/{mark}", 1, mark + "-slow")
        eventually(lambda: gw.fence(mark) == 6 and gw.fence(mark + "-slow") == 1)
        began = time.monotonic()
        clock.move(days * DAY)
        expect.refusal(waiting.result(10), 503, "predecessor-in-flight")
        expect.refusal(connecting.result(10), 504, "upstream-timeout", "not-sent")
        expect.refusal(first.result(10), 504, "upstream-timeout", "unknown")
        assert idle.ended()
        assert time.monotonic() - began < (10 if SANITIZED else 5)
    held.release()
    full.close()


@needs_faketime
def test_audit_times_follow_the_clock_and_ids_the_order(launch, partner, clock, mark):
    gw = launch(route(partner), env=clock.env)
    offsets = [0, 5 * DAY, -5 * DAY, 0]
    for number, offset in enumerate(offsets):
        clock.move(offset)
        expect.relayed(gw.call(f"/pay/{mark}", 1 + number, mark))
        gw.wait_audit(1 + number, key=mark)
    records = gw.audit(key=mark)
    assert [record["token"] for record in records] == ["1", "2", "3", "4"]
    ids = [int(record["id"]) for record in records]
    assert ids == sorted(set(ids))
    for record, offset in zip(records, offsets):
        assert abs(shown_time(record["time"]) - time.time() - offset) < 120, record
    assert gw.stop() == 0
    gw.start()
    assert [record["id"] for record in gw.audit(key=mark)] == [str(i) for i in ids]
    assert gw.fence(mark) == 4


@needs_faketime
def test_a_jump_back_does_not_stop_recovery_and_shutdown(launch, partner, clock, mark):
    gw = launch(route(partner), env=clock.env)
    clock.move(-30 * DAY)
    expect.relayed(gw.call(f"/pay/{mark}", 1, mark))
    began = time.monotonic()
    assert gw.stop() == 0
    assert time.monotonic() - began < 5


@needs_faketime
def test_retention_is_not_fooled_by_a_clock_that_comes_back(launch, partner, clock, mark):
    """A wrong clock for a few seconds (a bad time server) must not cost the evidence of 90 days."""
    gw = launch(route(partner), env=clock.env, audit={"retain": "90d"})
    for number in range(20):
        expect.relayed(gw.call(f"/pay/{mark}", 1 + number, mark))
    gw.wait_audit(20, key=mark)
    clock.move(200 * DAY)
    expect.relayed(gw.call(f"/pay/{mark}-future", 1, mark + "-future"))
    pause(2.5)  # the writer looks once a second
    clock.move(0)
    expect.relayed(gw.call(f"/pay/{mark}-back", 1, mark + "-back"))
    assert len(gw.audit(key=mark)) == 20


@needs_faketime
def test_certificates_are_judged_by_the_clock_and_nothing_is_sent_without(launch, new_partner, clock, mark, tmp_path):
    """A certificate of two days: refused by a clock ten days ahead or behind, good again when the clock is right."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=partner", "-addext", "subjectAltName=DNS:localhost", "-keyout", tmp_path / "key.pem", "-out",
                    tmp_path / "cert.pem"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    partner = new_partner(tls=context)
    partner.default = lambda exchange: (exchange.reply(headers=[("Connection", "close")]), exchange.close())
    gw = launch(route(f"https://localhost:{partner.port}", tls={"ca_file": str(tmp_path / "cert.pem")}), env=clock.env)
    token = 0
    for offset in (0, 10 * DAY, 0, -10 * DAY, 0):
        clock.move(offset)
        token += 1
        answer = gw.call(f"/pay/{mark}-{token}", token, mark)
        if offset:
            expect.refusal(answer, 502, "upstream-unreachable", "not-sent")
            assert partner.seen(f"{mark}-{token}") == []
        else:
            expect.relayed(answer)


@needs_faketime
def test_a_start_with_a_wrong_clock_keeps_the_audit(launch, partner, clock, mark):
    """Also after a kill, and at the next start under that clock: the records that it wrote have its time."""
    gw = launch(route(partner), env=clock.env, audit={"retain": "90d"})
    for number in range(20):
        expect.relayed(gw.call(f"/pay/{mark}", 1 + number, mark))
    gw.wait_audit(20, key=mark)
    for end in (gw.stop, gw.kill, gw.stop):
        end()
        clock.move(365 * DAY)
        gw.start()
        gw.wait_log(lambda line: "the clock leapt ahead by 87" in line.get("message", "") and line["level"] == "warn")
        expect.relayed(gw.call(f"/pay/{mark}-future", 1, mark + "-future"))
        pause(2.5)
        assert len(gw.audit(key=mark)) == 20
    clock.move(0)
    expect.relayed(gw.call(f"/pay/{mark}-back", 1, mark + "-back"))
    assert len(gw.audit(key=mark)) == 20


def test_retention_that_removes_much_at_once_says_so(launch, partner, mark):
    gw = launch(route(partner), audit={"retain": "90d"})
    for number in range(20):
        expect.relayed(gw.call(f"/pay/{mark}", 1 + number, mark))
    gw.wait_audit(20, key=mark)
    gw.settings["audit"]["retain"] = "1s"
    gw.reload()
    gw.wait_log(lambda line: "retention removes more than a tenth" in line.get("message", ""))
    eventually(lambda: not gw.audit(key=mark))
