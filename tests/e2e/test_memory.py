"""Bounded memory: large answers stream, and waiting calls cost little. Sizes are not judged in a sanitizer build."""

import threading

import pytest

import expect
from client import fenced, request
from gateway import SANITIZED, eventually, route
from partner import Held

LIMIT_KIB = 64 * 1024
GIB = 1024 * 1024 * 1024


def check_memory(gw):
    highest = gw.memory_kib()
    print(f"VmHWM {highest / 1024:.1f} MiB")
    assert SANITIZED or highest < LIMIT_KIB


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_large_answer_streams_through(launch, new_partner, mark, framing):
    """The reader takes a little, stops long enough for a gateway that buffers to swell, then reads on."""
    partner, size = new_partner(), GIB if framing == "length" else GIB // 4
    block = bytes(1024 * 1024)
    head = b"Content-Length: %d" % size if framing == "length" else b"Transfer-Encoding: chunked"
    sent = [0]

    def handler(exchange):
        exchange.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        for _ in range(size // len(block)):
            exchange.send(block if framing == "length" else b"100000\r\n" + block + b"\r\n")
            sent[0] += len(block)
        if framing == "chunked":
            exchange.send(b"0\r\n\r\n")

    partner.on(mark, handler)
    gw = launch(route(partner, timeout={"connect": "5s", "total": "120s"}), workers=1)
    with gw.connect() as connection:
        connection.send(request("GET", f"/pay/{mark}", fenced(5, mark)))
        answer = connection.read_head()
        threading.Event().wait(0.7)  # nobody reads; what the partner can hand over in that time is what is buffered
        assert sent[0] < 64 * 1024 * 1024, "the gateway takes what nobody reads"
        check_memory(gw)
        total = sum(len(piece) for piece in connection.pieces(answer, "GET"))
    assert total == size and answer.complete
    check_memory(gw)
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", response_bytes=size)


def test_many_calls_in_flight_are_small(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner, in_flight=2000), workers=1, log={"access": False})
    connections = []
    for number in range(1000):
        connection = gw.connect()
        connection.send(request("POST", f"/pay/{mark}", fenced(5, f"{mark}-{number}"), b"x" * 80))
        connections.append(connection)
    partner.wait_seen(mark, 1000, timeout=60)
    check_memory(gw)
    held.release()
    for connection in connections:
        expect.relayed(connection.receive())
        connection.close()
    check_memory(gw)
    assert len(partner.seen(mark)) == 1000
    eventually(lambda: len(gw.audit(kind="sent")) == 1000)


def test_kept_connections_cost_next_to_nothing(launch, new_partner, mark):
    """Each has carried a call, and none carries one now."""
    partner, count = new_partner(), 3000
    gw = launch(route(partner), workers=1, log={"access": False}, limits={"idle_timeout": "10m"})
    call = request("POST", f"/pay/{mark}", fenced(5, mark), b"x" * 80)
    for _ in range(2000):  # what every gateway has used that has done something
        expect.relayed(gw.call(f"/pay/{mark}", 5, mark, body=b"x" * 80))
    before = gw.memory_kib("RssAnon")
    connections = [gw.connect() for _ in range(count)]
    for connection in connections:
        connection.send(call)
        expect.relayed(connection.receive())
    grown = gw.memory_kib("RssAnon") - before
    print(f"{grown} KiB for {count} connections")
    assert SANITIZED or grown < count  # a KiB each
    for connection in connections:
        connection.close()
    eventually(lambda: gw.metric("fencegate_connections") == 0)
