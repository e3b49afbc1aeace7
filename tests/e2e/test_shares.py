"""Nobody takes what all need: each resource is filled by calls without an accepted token, and a worker with its token notices nothing.

The rows of ARCHITECTURE.md's "Limits: what grows with what" name these tests. Floods that last are in tests/harness/flood.py.
"""

import os
import socket

import pytest

import expect
from client import Connection, fenced, request
from gateway import PATIENCE, eventually, route

KIB, MIB = 1024, 1024 * 1024
MANY = 200


class Worker:
    """The holder of a known key."""

    def __init__(self, gateway, key, path="/pay"):
        self.gateway, self.key, self.path = gateway, key, path
        self.records = 0
        self.call()

    def call(self, body=b""):
        """A call is answered and recorded, and the probes of an orchestrator are answered too."""
        expect.relayed(self.gateway.call(f"{self.path}/{self.key}", 42, self.key, body=body))
        self.records += 1
        self.gateway.wait_audit(self.records, key=self.key, kind="sent")
        for path in ("/healthz", "/readyz"):
            assert self.gateway.admin(path, token=None).status == 200, path


class Crowd:
    """Connections, and what they begin with."""

    def __init__(self, port, beginnings):
        self.connections = [Connection(port, PATIENCE) for _ in beginnings]
        for connection, data in zip(self.connections, beginnings):
            connection.send(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in self.connections:
            connection.close()


def test_bodies_of_new_keys_leave_room_for_those_of_known_ones(launch, partner, mark):
    gw = launch(route(partner), limits={"body": "60KiB", "buffered": "200KiB", "request_timeout": "20s"})
    worker = Worker(gw, mark)
    bodies = [request("POST", "/pay/x", fenced(1, f"{mark}-{number}"), b"x" * 60 * KIB) for number in range(9)]
    with Crowd(gw.port, [body[:-1] for body in bodies]) as crowd:
        eventually(lambda: gw.metric("fencegate_buffered_bytes") >= 100 * KIB, what="bodies")
        worker.call(b"x" * 30 * KIB)
        for connection in crowd.connections:
            connection.send(b"x")
        statuses = sorted(connection.receive().status for connection in crowd.connections)
    assert statuses[0] == 200 and statuses[-1] == 503 and set(statuses) == {200, 503}
    worker.call(b"x" * 30 * KIB)


def test_stale_bodies_leave_room_for_those_of_known_keys(launch, partner, mark):
    gw = launch(route(partner), limits={"body": "60KiB", "buffered": "200KiB", "request_timeout": "20s"})
    worker = Worker(gw, mark)
    expect.relayed(gw.call(f"/pay/{mark}-known", 5, mark + "-known"))
    with Crowd(gw.port, [request("POST", "/pay/x", fenced(1, mark + "-known"), b"x" * 60 * KIB)[:-1]] * 9) as crowd:
        eventually(lambda: gw.metric("fencegate_buffered_bytes") >= 100 * KIB, what="bodies")
        worker.call(b"x" * 30 * KIB)
        for connection in crowd.connections:
            connection.send(b"x")
            expect.refusal(connection.receive(), 412, "stale-token")
    assert len(gw.wait_audit(9, key=mark + "-known", kind="dropped")) == 9


@pytest.mark.parametrize("fence", [{"mode": "off"}, {"mode": "observe"}, {"unfenced_methods": ["POST"]}], ids=["off", "observe", "unfenced method"])
def test_bodies_that_no_fence_refuses_leave_room_for_those_of_known_keys(launch, new_partner, mark, fence):
    partner = new_partner()
    gw = launch([route(partner), route(partner, name="free", path="/free", fence=fence)], limits={"body": "60KiB", "buffered": "200KiB", "request_timeout": "20s"})
    worker = Worker(gw, mark)
    expect.relayed(gw.call(f"/pay/{mark}-known", 42, mark + "-known"))
    bodies = [request("POST", "/free/x", fenced(token, mark + "-known"), b"x" * 60 * KIB) for token in [None, 1, 41] * 3]
    with Crowd(gw.port, [body[:-1] for body in bodies]) as crowd:
        eventually(lambda: gw.metric("fencegate_buffered_bytes") >= 100 * KIB, what="bodies")
        worker.call(b"x" * 30 * KIB)
        for connection in crowd.connections:
            connection.send(b"x")
        statuses = sorted(connection.receive().status for connection in crowd.connections)
    assert statuses[0] == 200 and statuses[-1] == 503 and set(statuses) == {200, 503}
    worker.call(b"x" * 30 * KIB)


@pytest.mark.parametrize("headers", [[], [("Workflow-Key", "k")], [("Fencing-Token", "x")]], ids=["nothing", "a key", "no token that is one"])
def test_bodies_of_refused_calls_take_no_room(launch, partner, mark, headers):
    gw = launch(route(partner), limits={"buffered": "1MiB", "body": "1MiB"})
    worker = Worker(gw, mark)
    with Crowd(gw.port, [request("POST", "/pay/x", headers, b"x" * 60 * KIB)[:-1]] * MANY) as crowd:
        worker.call(b"x" * 900 * KIB)
        crowd.connections[-1].send(b"x")
        assert crowd.connections[-1].receive().status in (400, 428)
        assert gw.metric("fencegate_buffered_bytes") == 0


def test_heads_that_never_end_are_small_and_end(launch, partner, mark):
    gw = launch(route(partner), limits={"request_timeout": "2s", "headers": "32KiB"})
    worker = Worker(gw, mark)
    before = gw.memory_kib("VmRSS")
    with Crowd(gw.port, [b"POST /pay/x HTTP/1.1\r\nHost: flood\r\nX-A: " + b"a" * 30 * KIB] * MANY) as crowd:
        eventually(lambda: gw.metric("fencegate_connections") >= MANY, what="heads")
        worker.call()
        if not os.environ.get("FENCEGATE_SANITIZED"):
            assert gw.memory_kib("VmRSS") - before < MANY * 40 + 4 * KIB
        expect.refusal(crowd.connections[0].receive(), 408, "request-timeout")
        worker.call()


def test_answers_that_nobody_reads_are_small(launch, new_partner, mark):
    """What a partner sends faster than its client reads stays with the partner."""
    partner = new_partner()
    gw = launch(route(partner))
    worker = Worker(gw, mark)
    partner.on("large", lambda exchange: exchange.reply(body=b"x" * 8 * MIB))
    before = gw.memory_kib("VmRSS")
    crowd = [Connection(gw.port, PATIENCE) for _ in range(40)]
    for number, connection in enumerate(crowd):
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.send(request("POST", "/pay/large", fenced(1, f"{mark}-{number}")))
    partner.wait_seen("large", 40)
    worker.call()
    if not os.environ.get("FENCEGATE_SANITIZED"):
        assert gw.memory_kib("VmRSS") - before < 40 * 200
    for connection in crowd:
        connection.close()


def test_what_comes_in_makes_no_metrics(launch, partner, mark):
    """Labels are routes and reasons, never anything that a client can choose."""
    def labels():
        return {line.rpartition(" ")[0] for line in gw.admin("/metrics", token=None).body.decode().splitlines() if not line.startswith("#")}

    gw = launch(route(partner), log={"level": "error", "access": False})
    worker = Worker(gw, mark)

    def flood(name):
        gw.call(f"/pay/{name}", None, name)
        gw.call(f"/{name}/x", 1, name)
        gw.call(f"/pay/{name}", 1, f"{name}-key", method=f"M{name[-3:]}", headers=[("Host-" + name, name)])
        gw.call(f"/pay/{name}", 42, "none", headers=[("Expect", name)])
        gw.call(f"/pay/{name}", 41, mark)
        gw.admin(f"/v1/{name}")

    flood("first")
    before = labels()
    for number in range(100):
        flood(f"next-{number:03}")
    assert labels() == before
    worker.call()


def test_silent_connections_within_the_limit_cost_a_timer_each(launch, partner, mark):
    gw = launch(route(partner), limits={"connections": 1000, "idle_timeout": "2s"})
    worker = Worker(gw, mark)
    with Crowd(gw.port, [b""] * 800) as crowd:
        eventually(lambda: gw.metric("fencegate_connections") >= 800, what="the crowd")
        worker.call()
        assert crowd.connections[0].ended()
        worker.call()
