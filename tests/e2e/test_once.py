"""At most once, and the truth about it: however a connection dies, the partner sees a request once or not at all, and
the answer and the audit say what is known."""

import socket
import threading
import time

import pytest

import expect
from client import Closed, fenced, request
from gateway import attempt, eventually, pool, route
from partner import FullListener, Held


def settled(gw, mark, kind, **members):
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind=kind, **members)
    return found


def warm(gw, partner, mark, connections=1):
    """Leaves that many idle kept-alive connections in the gateway's pool."""
    held = Held()
    partner.on(mark + "-warm", held)
    calls = [gw.send_off(f"/pay/{mark}-warm", 1, f"{mark}-warm{i}") for i in range(connections)]
    partner.wait_seen(mark + "-warm", connections)
    held.release()
    for call in calls:
        expect.relayed(call.result(10))
    return {r.connection for r in partner.seen(mark + "-warm")}


@pytest.fixture
def single(launch, new_partner):
    """One worker, so that the next call surely takes the connection that the last one left."""
    partner = new_partner()
    return launch(route(partner, timeout={"connect": "5s", "total": "2s"}), workers=1), partner


DEATHS = {
    "closed without an answer": lambda e: e.close(),
    "reset without an answer": lambda e: e.reset(),
    "half a status line": lambda e: (e.send(b"HTTP/1.1 20"), e.close()),
    "half a status line, reset": lambda e: (e.send(b"HTTP/1.1 20"), e.reset()),
    "one byte": lambda e: (e.send(b"H"), e.close()),
    "a status line without its end": lambda e: (e.send(b"HTTP/1.1 200 OK"), e.close()),
    "a status line alone": lambda e: (e.send(b"HTTP/1.1 200 OK\r\n"), e.close()),
    "half the headers": lambda e: (e.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A"), e.close()),
    "headers without their end": lambda e: (e.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"), e.close()),
    "only a 100": lambda e: (e.send(b"HTTP/1.1 100 Continue\r\n\r\n"), e.close()),
    "only a 103": lambda e: (e.send(b"HTTP/1.1 103 Early\r\nX-A: b\r\n\r\n"), e.close()),
    "no http": lambda e: (e.send(b"220 mail.example ESMTP\r\n\r\n"), e.close()),
    "empty lines": lambda e: (e.send(b"\r\n\r\n"), e.close()),
    "a 101 nobody asked for": lambda e: (e.send(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), e.close()),
    "http/2 frames": lambda e: (e.send(b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\x10\0\0"), e.close()),
}


@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS.keys())
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_kept_connection_that_dies_under_a_request_is_not_tried_again(single, mark, death, method):
    gw, partner = single
    before = warm(gw, partner, mark)
    partner.on(mark, death)
    answer = gw.call(f"/pay/{mark}", 5, mark, method=method, body=b"charge-2" if method == "POST" else b"")
    expect.refusal(answer, 502, "upstream-failed", "unknown")
    (got,) = partner.seen(mark)
    assert got.connection in before, "the test did not reach the case that it is about"
    settled(gw, mark, "unknown", reason="upstream-failed", effect_id=answer.effect_id)
    expect.relayed(gw.call(f"/pay/{mark}-after", 1, f"{mark}-after"))
    assert len(partner.seen(mark)) == 1


@pytest.mark.parametrize("death", [DEATHS["closed without an answer"], DEATHS["half a status line"]], ids=["closed", "half"])
def test_a_fresh_connection_that_dies_is_not_tried_again(single, mark, death):
    gw, partner = single
    partner.on(mark, death)
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark, body=b"x"), 502, "upstream-failed", "unknown")
    assert len(partner.seen(mark)) == 1
    settled(gw, mark, "unknown")


def test_a_pool_full_of_dying_connections_costs_one_arrival(single, mark):
    gw, partner = single
    warm(gw, partner, mark, 8)
    partner.on(mark, lambda e: e.close())
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark, body=b"x"), 502, "upstream-failed", "unknown")
    assert len(partner.seen(mark)) == 1
    settled(gw, mark, "unknown")


def test_connections_closed_while_idle_are_replaced_not_repeated(single, mark):
    """Around the partner's idle limit: what was closed before a byte went out may be replaced, nothing else."""
    gw, partner = single
    for turn in range(20):
        name = f"{mark}-{turn}"
        partner.on(name, lambda e: (e.reply(), e.close()))
        answer = gw.call(f"/pay/{name}", 5, name, body=b"x")
        arrivals = len(partner.seen(name))
        if answer.effect == "sent":
            assert (answer.status, arrivals) == (200, 1)
        else:
            assert (answer.status, answer.effect) == (502, "unknown") and arrivals <= 1
        (found,) = gw.wait_audit(key=name)
        assert found["kind"] == answer.effect


def test_a_417_to_the_expectation_is_not_tried_again(single, mark):
    gw, partner = single
    warm(gw, partner, mark)
    partner.on(mark, lambda e: e.reply(417, b"no"))
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Content-Length", "2000000"), ("Expect", "100-continue")]))
        connection.send(b"x" * 2_000_000)
        expect.relayed(connection.receive(), 417, b"no")
    assert len(partner.seen(mark)) == 1
    settled(gw, mark, "sent", upstream_status=417)


@pytest.mark.parametrize("status,headers", [
    (401, [("WWW-Authenticate", 'Digest realm="x", nonce="y"')]), (401, [("WWW-Authenticate", "NTLM")]),
    (407, [("Proxy-Authenticate", "Basic")]), (301, [("Location", "/again")]), (307, [("Location", "/again")]),
    (308, [("Location", "/again")]), (408, [("Connection", "close")]), (425, []), (429, [("Retry-After", "0")]),
    (503, [("Retry-After", "0"), ("Connection", "close")]), (421, []),
])
def test_no_answer_makes_the_gateway_repeat(single, mark, status, headers):
    gw, partner = single
    warm(gw, partner, mark)
    partner.on(mark, lambda e: e.reply(status, b"own", headers))
    answer = gw.call(f"/pay/{mark}", 5, mark, body=b"x", headers=[("Authorization", "Basic dTpw")])
    assert (answer.status, answer.effect, answer.body) == (status, "sent", b"own")
    assert len(partner.seen(mark)) == 1 and partner.seen("again") == []


def test_a_partner_that_stops_reading_is_unknown(single, mark):
    gw, partner = single
    stalled = threading.Event()
    partner.on(mark, lambda e: (stalled.wait(20), e.close()), early=True)
    answer = gw.call(f"/pay/{mark}", 5, mark, body=b"x" * 7_900_000)
    stalled.set()
    expect.refusal(answer, 504, "upstream-timeout", "unknown")
    settled(gw, mark, "unknown", reason="upstream-timeout")


def test_a_partner_that_closes_inside_the_request_is_unknown(single, mark):
    gw, partner = single
    partner.on(mark, lambda e: e.reset(), early=True)
    answer = gw.call(f"/pay/{mark}", 5, mark, body=b"x" * 7_900_000)
    expect.refusal(answer, 502, "upstream-failed", "unknown")
    assert len(partner.seen(mark)) == 1
    settled(gw, mark, "unknown", reason="upstream-failed")


# -- before the first byte


def test_retry_connect_tries_again_while_no_byte_was_sent(launch, mark):
    full = FullListener()
    gw = launch(route(full, retry_connect=4, timeout={"connect": "400ms", "total": "20s"}))
    call = gw.send_off(f"/pay/{mark}", 5, mark, body=b"x")
    assert not wait_done(call, 0.6), "the first attempt was the last"
    partner = full.serve_from_now_on()
    expect.relayed(call.result(10))
    assert len(partner.seen(mark)) == 1
    settled(gw, mark, "sent")
    partner.close()


def test_without_retry_connect_one_attempt_is_all(launch, mark):
    full = FullListener()
    gw = launch(route(full, timeout={"connect": "400ms", "total": "20s"}))
    call = gw.send_off(f"/pay/{mark}", 5, mark)
    assert wait_done(call, 2)
    expect.refusal(call.result(), 504, "upstream-timeout", "not-sent")
    full.close()


def test_retry_connect_never_repeats_what_was_sent(launch, new_partner, mark):
    partner = new_partner()
    gw = launch(route(partner, retry_connect=5), workers=1)
    warm(gw, partner, mark)
    partner.on(mark, lambda e: e.close())
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark, body=b"x"), 502, "upstream-failed", "unknown")
    assert len(partner.seen(mark)) == 1


def test_a_newer_token_overtakes_a_call_that_still_connects(launch, new_partner, mark):
    """The last look is after the connect: a call that hangs in it must not go out behind a newer one."""
    full, partner = FullListener(), new_partner()
    gw = launch([route(full, name="slow", path="/slow", timeout={"connect": "30s", "total": "60s"}), route(partner)])
    old = gw.send_off(f"/slow/{mark}", 6, mark)
    eventually(lambda: gw.fence(mark) == 6)
    expect.relayed(gw.call(f"/pay/{mark}", 7, mark))
    expect.refusal(old.result(5), 412, "superseded", token="6", highest="7")
    late = full.serve_from_now_on()
    expect.relayed(gw.call(f"/slow/{mark}", 8, mark))
    assert len(late.seen(mark)) == 1
    assert [(r["kind"], r["token"]) for r in sorted(gw.wait_audit(3, key=mark), key=lambda r: int(r["token"]))] == [
        ("dropped", "6"), ("sent", "7"), ("sent", "8")]
    late.close()


def test_a_socket_number_used_again_does_not_stall_the_next_call(launch, new_partner, mark):
    """The connect that is given up closes its socket; the next call gets the same number and must be told when it is
    writable, not when some timer ends."""
    full, partner = FullListener(), new_partner()
    gw = launch([route(full, name="slow", path="/slow", timeout={"connect": "30s", "total": "60s"}), route(partner)], workers=1)
    times = []
    for turn in range(5):
        name = f"{mark}-{turn}"
        old = gw.send_off(f"/slow/{name}", 6, name)
        eventually(lambda: gw.fence(name) == 6)
        began = time.monotonic()
        expect.relayed(gw.call(f"/pay/{name}", 7, name))
        expect.refusal(old.result(5), 412, "superseded")
        times.append(time.monotonic() - began)
    assert min(times) < 0.15  # a timer would end each of them late
    full.close()


def wait_done(call, seconds):
    done = threading.Event()
    call.add_done_callback(lambda _: done.set())
    return done.wait(seconds)


# -- the client's leaving changes nothing


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
def test_a_client_that_leaves_is_served_and_recorded(gw, partner, mark, how):
    held = Held()
    partner.on(mark, held)
    connection = gw.connect()
    connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"charge"))
    (got,) = partner.wait_seen(mark)
    if how == "reset":
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    if how == "half-close":
        connection.end_sending()
    else:
        connection.close()
    held.release()
    settled(gw, mark, "sent", upstream_status=200, status=200)
    assert got.body == b"charge" and len(partner.seen(mark)) == 1
    if how == "half-close":
        expect.relayed(connection.receive())
    assert gw.fence(mark) == 5


def test_a_client_that_leaves_at_once_is_served_and_recorded(gw, partner, mark):
    for turn in range(20):
        name = f"{mark}-{turn}"
        connection = gw.connect()
        connection.send(request("POST", f"/pay/{name}", fenced(5, name), b"charge"))
        connection.close()
        partner.wait_seen(name)
        settled(gw, name, "sent")


def test_a_waiting_client_that_leaves_is_sent_all_the_same(gw, partner, mark):
    held = Held()
    partner.on(mark, held)
    older = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", fenced(6, mark), b"newer"))
        eventually(lambda: gw.fence(mark) == 6)
    held.release()
    expect.relayed(older.result(10))
    assert partner.wait_seen(mark, 2)[1].body == b"newer"
    assert [r["kind"] for r in gw.wait_audit(2, key=mark)] == ["sent", "sent"]


def test_a_client_that_stops_reading_does_not_hold_the_record_back_for_ever(gw, partner, mark):
    """The partner's answer is large, the client takes none of it and goes: sent, and recorded."""
    partner.on(mark, lambda e: e.reply(200, b"x" * 5_000_000))
    connection = gw.connect()
    connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"charge"))
    partner.wait_seen(mark)
    connection.read_head()
    connection.close()
    settled(gw, mark, "sent", upstream_status=200)


def test_clients_that_end_sending_at_once_get_their_answers(gw, partner, mark):
    """Whole requests, each with the end of the client's side right behind it, many at a time."""
    def one(number):
        with gw.connect() as connection:
            connection.send(request("POST", f"/pay/{mark}", fenced(5, f"{mark}-{number}"), b"charge"))
            connection.end_sending()
            return attempt(connection)

    answers = list(pool.map(one, range(200)))
    assert len(partner.seen(mark)) == 200
    assert sum(answer is None for answer in answers) == 0


@pytest.mark.parametrize("cut", ["close", "half-close", "reset"])
@pytest.mark.parametrize("framing", ["length", "chunked", "head"])
def test_a_request_cut_short_is_no_request(launch, partner, mark, cut, framing):
    gw = launch(route(partner), limits={"request_timeout": "1s"})
    whole = {"length": request("POST", f"/pay/{mark}", fenced(5, mark), b"0123456789"),
             "chunked": request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Transfer-Encoding", "chunked")], b"5\r\nhello\r\n"),
             "head": request("POST", f"/pay/{mark}", fenced(5, mark))[:-1]}[framing]
    with gw.connect() as connection:
        connection.send(whole[:-3] if framing == "length" else whole)
        if cut == "reset":
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if cut == "half-close":
            connection.end_sending()
            try:
                answer = connection.receive()
                assert answer.status in (400, 408) and answer.effect == "not-sent", answer
            except Closed:
                pass
    expect.relayed(gw.call(f"/pay/{mark}-next", 1, f"{mark}-next"))
    assert partner.seen(mark) == []
    assert gw.fence(mark) is None
    assert gw.audit(key=mark) == []
