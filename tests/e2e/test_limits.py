"""Limits are held by what comes, not by what is announced, and a refusal costs neither side more than it must."""

import os
import pathlib
import re
import socket
import subprocess
import threading
import time

import pytest

import expect
from client import Closed, fenced, request
from gateway import BINARY, Gateway, eventually, route
from partner import Held

KIB, MIB = 1024, 1024 * 1024


@pytest.fixture(scope="module")
def gw(partner, tmp_path_factory):
    gateway = Gateway(tmp_path_factory.mktemp("gw"), [route(partner)],
                      limits={"body": "64MiB", "buffered": "128MiB", "request_timeout": "30s"}).start()
    yield gateway
    gateway.end()


@pytest.fixture(scope="module")
def tight(partner, tmp_path_factory):
    limits = {"body": "40KiB", "buffered": "60KiB", "in_flight": 3, "connections": 8, "headers": "8KiB", "request_timeout": "1s"}
    gateway = Gateway(tmp_path_factory.mktemp("tight"), [route(partner, in_flight=3)], limits=limits).start()
    yield gateway
    gateway.end()


def test_a_body_of_just_the_limit_passes(tight, partner, mark):
    expect.relayed(tight.call(f"/pay/{mark}", 5, mark, body=b"x" * 40 * KIB))
    assert len(partner.seen(mark)[0].body) == 40 * KIB


def test_one_byte_more_is_413_and_the_connection_stays_for_small_ones(tight, partner, mark):
    with tight.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"x" * (40 * KIB + 1)))
        expect.refusal(connection.receive(), 413, "body-too-large")
    assert partner.seen(mark) == [] and tight.fence(mark) is None


def test_a_chunked_body_without_end_is_413(tight, partner, mark):
    with tight.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Transfer-Encoding", "chunked")]))
        try:
            for _ in range(10_000):
                connection.send(b"400\r\n" + b"x" * KIB + b"\r\n")
                if not connection.silent(0):
                    break
            else:
                pytest.fail("10 MiB were taken where 40 KiB are allowed")
        except (BrokenPipeError, ConnectionResetError):
            pass
        expect.refusal(connection.receive(), 413, "body-too-large")
    assert partner.seen(mark) == [] and tight.fence(mark) is None


@pytest.mark.parametrize("line", [b"A001\r\n", b"FFFFFFF\r\n", b"A000;x=y\r\n1", b"FFFFFFFFFFFFFFF\r\n"])
def test_a_chunk_above_the_limit_is_413_when_its_size_line_is_read(tight, partner, mark, line):
    """No data of the chunk comes: the answer can't be waiting for it."""
    with tight.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Transfer-Encoding", "chunked")]))
        connection.send(b"2\r\nok\r\n" + line)
        expect.refusal(connection.receive(), 413, "body-too-large")
    assert partner.seen(mark) == [] and tight.fence(mark) is None


@pytest.mark.parametrize("target, status, reason", [("/none", 404, "no-route"), ("/pay/%01", 400, "malformed-request")])
def test_a_refusal_before_the_size_stays_the_one_that_is_told(tight, mark, target, status, reason):
    """Of several refusals the first one counts, also when the body behind it has no end."""
    with tight.connect() as connection:
        head = request("POST", target, [*fenced(5, mark), ("Transfer-Encoding", "chunked")])
        connection.send(head, (b"400\r\n" + b"x" * KIB + b"\r\n") * 60)
        answer = connection.receive()
        expect.refusal(answer, status, reason)
        assert answer.get("Connection") == "close"


def test_chunks_take_no_more_room_than_a_body_may(launch, partner, mark):
    """A body of unknown length fits into limits.buffered if the largest one does, in whatever pieces it comes."""
    gw = launch(route(partner), limits={"body": "100KiB", "buffered": "100KiB"})
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Transfer-Encoding", "chunked")]))
        for _ in range(9):
            connection.send(b"%x\r\n" % 10_000 + b"x" * 10_000 + b"\r\n")
            time.sleep(0.02)
        connection.send(b"0\r\n\r\n")
        expect.relayed(connection.receive())


def test_chunks_of_a_body_within_the_limit_pass(tight, partner, mark):
    body = b"".join(b"1\r\nx\r\n" for _ in range(20 * KIB)) + b"0\r\n\r\n"
    expect.relayed(tight.call(f"/pay/{mark}", 5, mark, headers=[("Transfer-Encoding", "chunked")], body=body))
    assert partner.seen(mark)[0].body == b"x" * 20 * KIB


def test_all_bodies_together_are_limited(tight, partner, mark):
    first = request("POST", f"/pay/{mark}", fenced(5, mark), b"x" * 38 * KIB)
    eventually(lambda: tight.metric("fencegate_buffered_bytes") == 0)
    with tight.connect() as connection:
        connection.send(first[:-1])
        eventually(lambda: tight.metric("fencegate_buffered_bytes") >= 37 * KIB)
        second = tight.call(f"/pay/{mark}", 5, mark + "-second", body=b"y" * 38 * KIB)
        expect.refusal(second, 503, "overloaded")
        connection.send(first[-1:])
        expect.relayed(connection.receive())
    eventually(lambda: tight.call(f"/pay/{mark}", 6, mark + "-second", body=b"y" * 38 * KIB).status == 200)


def test_calls_in_flight_are_limited(tight, partner, mark):
    held = Held()
    partner.on(mark, held)
    calls = [tight.send_off(f"/pay/{mark}", 5, f"{mark}-{i}") for i in range(3)]
    partner.wait_seen(mark, 3)
    answer = tight.call(f"/pay/{mark}", 5, f"{mark}-more")
    expect.refusal(answer, 503, "overloaded")
    assert tight.fence(f"{mark}-more") is None
    held.release()
    for call in calls:
        expect.relayed(call.result(10))
    eventually(lambda: tight.call(f"/pay/{mark}", 5, f"{mark}-more").status == 200)


def test_a_route_holds_half_of_the_places_unless_it_says_otherwise(launch, partner, mark):
    """One slow partner takes what its route may hold; the calls of the others go on."""
    gw = launch([route(partner), route(partner, name="other", path="/other")], limits={"in_flight": 5})
    held = Held()
    partner.on(mark, held)
    calls = [gw.send_off(f"/pay/{mark}", 5, f"{mark}-{i}") for i in range(3)]
    partner.wait_seen(mark, 3)
    answer = gw.call(f"/pay/{mark}", 5, f"{mark}-more")
    expect.refusal(answer, 503, "overloaded")
    assert "in_flight" in answer.json["detail"] and gw.fence(f"{mark}-more") is None
    expect.relayed(gw.call(f"/other/{mark}-other", 5, f"{mark}-other"))
    held.release()
    for call in calls:
        expect.relayed(call.result(10))


def test_new_keys_are_limited_and_known_ones_go_on(launch, partner, mark):
    fence = {"new_keys": {"per_second": 1}}
    gw = launch([route(partner, fence=fence), route(partner, name="watch", path="/watch", fence=fence | {"mode": "observe"}),
                 route(partner, name="free", path="/free")])
    for path in ("/pay", "/watch"):
        expect.relayed(gw.call(f"{path}/{mark}", 5, f"{mark}-known-{path[1:]}"))
        expect.relayed(gw.call(f"/free/{mark}", 5, f"{mark}-known-{path[1:]}"))
        answers = [gw.call(f"{path}/{mark}", 5, f"{mark}-{path[1:]}-{i}") for i in range(20)]
        refused = [answer for answer in answers if answer.status == 503]
        assert refused
        for answer in refused:
            expect.refusal(answer, 503, "overloaded")
            assert "new_keys" in answer.json["detail"] and answer.get("Retry-After")
        assert gw.fence(f"{mark}-{path[1:]}-{answers.index(refused[0])}") is None
        for token in range(5, 25):
            expect.relayed(gw.call(f"{path}/{mark}", token, f"{mark}-known-{path[1:]}"))
    expect.relayed(gw.call(f"/free/{mark}", 5, f"{mark}-other"))


def test_one_after_the_other_needs_room_for_one(launch, partner, mark):
    """Who has its answer may call again at once: the place is free by then."""
    gw = launch([route(partner, in_flight=1)], limits={"in_flight": 1})
    with gw.connect() as connection:
        statuses = []
        for _ in range(300):
            connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"x"))
            statuses.append(connection.receive().status)
    assert statuses == [200] * 300, f"{statuses.count(503)} of 300 refused"


def test_a_refused_call_has_given_its_place_back_when_its_client_hears(launch, partner, mark):
    """Also where the next call comes to another worker."""
    gw = launch([route(partner, in_flight=1)], limits={"in_flight": 1}, workers=2)
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    statuses = [gw.call(f"/pay/{mark}", 4, mark).status for _ in range(500)]
    assert statuses == [412] * 500, f"{statuses.count(503)} of 500 met a limit"


def test_connections_are_limited(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner), limits={"connections": 4})
    calls = [gw.send_off(f"/pay/{mark}", 5, f"{mark}-{i}") for i in range(4)]
    partner.wait_seen(mark, 4)
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark + "-more"), b"x"))
        expect.refusal(connection.receive(), 503, "overloaded")
        assert connection.ended()
    assert gw.admin("/healthz", token=None).status == 200
    held.release()
    for call in calls:
        expect.relayed(call.result(10))
    eventually(lambda: gw.call(f"/pay/{mark}", 5, mark + "-more").status == 200)
    assert gw.fence(mark + "-more") == 5


def test_headers_up_to_the_limit_pass(gw, partner, mark):
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark, headers=[("X-Large", "a" * 30_000)]))
    assert partner.seen(mark)[0].get("X-Large") == "a" * 30_000


@pytest.mark.parametrize("count,size", [(100, 90), (1, 30_000), (20, 1500)])
def test_many_and_large_headers_within_the_limit_pass(gw, partner, mark, count, size):
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark, headers=[("X-Many", "a" * size)] * count))
    assert partner.seen(mark)[0].all("X-Many") == ["a" * size] * count


def test_a_long_target_passes(gw, partner, mark):
    target = f"/pay/{mark}?" + "q" * 7_000
    expect.relayed(gw.call(target, 5, mark))
    assert partner.seen(mark)[0].target == target[4:]


@pytest.mark.parametrize("headers", [[("X-Large", "a" * 9_000)], [("X-Many", "a" * 90)] * 100, [("X" * 9_000, "a")]],
                         ids=["one value", "many", "one name"])
def test_too_many_or_too_large_headers_are_431(tight, partner, mark, headers):
    expect.refusal(tight.call(f"/pay/{mark}", 5, mark, headers=headers), 431, "headers-too-large")
    assert partner.seen(mark) == []


@pytest.mark.parametrize("size", [100_000, 2_000_000])
@pytest.mark.parametrize("part", ["header", "target", "method", "key"])
def test_a_head_without_end_is_refused(tight, partner, mark, part, size):
    fill = b"a" * size
    whole = {"header": request("POST", f"/pay/{mark}", [*fenced(5, mark), ("X-Large", fill)]),
             "target": request("POST", f"/pay/{mark}?".encode() + fill, fenced(5, mark)),
             "method": request(fill, f"/pay/{mark}", fenced(5, mark)),
             "key": request("POST", f"/pay/{mark}", fenced(5, fill))}[part]
    with tight.connect() as connection:
        try:
            connection.send(whole)
        except (BrokenPipeError, ConnectionResetError):
            pass
        if part in ("header", "key"):
            expect.refusal(connection.receive(), 431, "headers-too-large")
        else:
            expect.refusal(connection.receive(), 414, "target-too-long")
    assert partner.seen(mark) == []
    expect.relayed(tight.call(f"/pay/{mark}-next", 1, f"{mark}-next"))


def test_more_connections_than_descriptors_do_no_lasting_harm(launch, partner, mark):
    gw = launch(route(partner), wrapper=["prlimit", "--nofile=64:64"])
    crowd = [gw.connect() for _ in range(100)]
    threading.Event().wait(0.3)
    before = cpu_seconds(gw)
    threading.Event().wait(0.5)
    assert cpu_seconds(gw) - before < 0.25, "it spins"
    for connection in crowd:
        connection.close()
    eventually(lambda: gw.call(f"/pay/{mark}", 5, mark).status == 200)
    assert gw.fence(mark) == 5


def cpu_seconds(gw):
    fields = pathlib.Path(f"/proc/{gw.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- the breaker


@pytest.mark.parametrize("failure", ["5xx", "lost"])
def test_the_breaker_opens_and_lets_one_call_through_later(launch, partner, mark, failure):
    gw = launch(route(partner, breaker={"failures": 3, "open_for": "500ms"}))
    partner.on(mark, (lambda e: e.reply(500, b"ok")) if failure == "5xx" else (lambda e: e.close()))
    expect.relayed(gw.call(f"/pay/{mark}-good", 5, mark))  # only consecutive ones count
    for _ in range(3):
        assert gw.call(f"/pay/{mark}", 5, mark).status == (500 if failure == "5xx" else 502)
    expect.refusal(gw.call(f"/pay/{mark}", 6, mark), 503, "overloaded")
    assert len(partner.seen(mark)) == 3 and gw.fence(mark) == 5
    eventually(lambda: gw.call(f"/pay/{mark}", 5, mark).status != 503)  # the one that is let through fails again
    assert len(partner.seen(mark)) == 4
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark), 503, "overloaded")
    eventually(lambda: gw.call(f"/pay/{mark}-good", 5, mark).status == 200)
    expect.relayed(gw.call(f"/pay/{mark}-good", 5, mark))


@pytest.mark.parametrize("token,headers", [
    (None, []), ("x", []), (4, []), (4, [("Expect", "100-continue"), ("Content-Length", 10)]),
], ids=["missing", "malformed", "stale", "stale-early"])
def test_an_open_breaker_comes_before_token_and_key(launch, partner, mark, token, headers):
    gw = launch(route(partner, breaker={"failures": 1, "open_for": "1h"}))
    partner.on(mark, lambda exchange: exchange.reply(500, b"ok"))
    assert gw.call(f"/pay/{mark}", 5, mark).status == 500
    answer = gw.call(f"/pay/{mark}", token, mark, headers=headers)
    assert (answer.status, answer.reason, answer.effect) == (503, "overloaded", "not-sent"), answer
    assert int(answer.get("Retry-After")) > 3000
    assert len(partner.seen(mark)) == 1


# -- time


@pytest.mark.parametrize("sent", ["half the head", "half the body"])
def test_a_request_has_to_arrive_within_request_timeout(tight, partner, mark, sent):
    whole = request("POST", f"/pay/{mark}", fenced(5, mark), b"0123456789")
    with tight.connect() as connection:
        connection.send({"half the head": whole[:30], "half the body": whole[:-5]}[sent])
        connection.sock.settimeout(5)
        expect.refusal(connection.receive(), 408, "request-timeout")
        assert connection.ended()
    assert partner.seen(mark) == [] and tight.fence(mark) is None


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_dripping_request_does_not_renew_its_time(tight, partner, mark, part):
    whole = request("POST", f"/pay/{mark}", fenced(5, mark), b"x" * 2000)
    start = 20 if part == "head" else len(whole) - 1990
    with tight.connect() as connection:
        connection.send(whole[:start])
        for index in range(start, start + 40):  # 4 seconds, if nobody stops it
            if not connection.silent(0.1):
                break
            try:
                connection.send(whole[index:index + 1])
            except (BrokenPipeError, ConnectionResetError):
                break
        else:
            pytest.fail("still open after 4 s where a request has 1 s")
    assert partner.seen(mark) == []


def test_a_slow_partner_is_not_under_the_request_timeout(tight, partner, mark):
    held = Held()
    partner.on(mark, held)
    call = tight.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    threading.Timer(1.5, held.release).start()
    expect.relayed(call.result(10))


def test_a_kept_connection_is_closed_after_idle_timeout(launch, partner, mark):
    gw = launch(route(partner), limits={"idle_timeout": "500ms"})
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"x"))
        expect.relayed(connection.receive())
        connection.sock.settimeout(5)
        assert connection.ended()


# -- refusals that the headers settle


REFUSALS = {
    "stale": (412, "stale-token", "/pay/{}", lambda mark: fenced(4, mark)),
    "missing": (428, "missing-token", "/pay/{}", lambda mark: fenced(None, mark)),
    "malformed": (400, "malformed-token", "/pay/{}", lambda mark: fenced("x", mark)),
    "no route": (404, "no-route", "/none/{}", lambda mark: fenced(6, mark)),
}


@pytest.fixture(params=REFUSALS.values(), ids=REFUSALS.keys())
def refused(request, gw, partner, mark):
    status, reason, target, headers = request.param
    expect.relayed(gw.call(f"/pay/{mark}-first", 5, mark))
    yield status, reason, target.format(mark), headers(mark)
    assert partner.seen(mark) == []
    assert gw.fence(mark) == 5


def test_who_waits_for_100_gets_the_refusal_instead(gw, refused):
    status, reason, target, headers = refused
    with gw.connect() as connection:
        connection.send(request("POST", target, [*headers, ("Content-Length", "100"), ("Expect", "100-continue")]))
        answer = connection.receive()
        expect.refusal(answer, status, reason)
        assert answer.interim == []


def test_a_large_body_is_refused_before_it_is_read(gw, refused):
    status, reason, target, headers = refused
    with gw.connect() as connection:
        connection.send(request("POST", target, [*headers, ("Content-Length", 20 * MIB)]))
        expect.refusal(connection.receive(), status, reason)


def test_who_sends_a_large_body_all_the_same_reads_the_refusal(gw, refused):
    """The answer must not be lost in a reset: SDKs would send the call again."""
    status, reason, target, headers = refused
    with gw.connect() as connection:
        connection.send(request("POST", target, [*headers, ("Content-Length", 20 * MIB)]))
        try:
            for _ in range(20):
                connection.send(b"x" * MIB)
        except (BrokenPipeError, ConnectionResetError):
            pass
        expect.refusal(connection.receive(), status, reason)


def test_who_begins_to_send_after_the_refusal_reads_it(gw, refused):
    """The body is on its way when the connection is closed: no reset may overtake the answer then, either."""
    status, reason, target, headers = refused
    with gw.connect() as connection:
        connection.send(request("POST", target, [*headers, ("Content-Length", 20 * MIB)]))
        assert not connection.silent(10)  # it is there, unread
        for _ in range(3):
            connection.send(b"x" * 10_000)
        expect.refusal(connection.receive(), status, reason)
        assert connection.ended()


def test_a_small_body_is_read_first_and_the_connection_stays(gw, refused, partner, mark):
    status, reason, target, headers = refused
    with gw.connect() as connection:
        connection.send(request("POST", target, [*headers, ("Content-Length", "5000")]))
        assert connection.silent(0.1)
        connection.send(b"x" * 5000)
        expect.refusal(connection.receive(), status, reason)
        connection.send(request("POST", f"/pay/{mark}-last", fenced(5, mark), b"x"))
        expect.relayed(connection.receive())


def test_too_large_is_refused_before_the_body(tight, mark):
    with tight.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Content-Length", str(10**15))]))
        expect.refusal(connection.receive(), 413, "body-too-large")
    with tight.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Content-Length", 50 * KIB), ("Expect", "100-continue")]))
        answer = connection.receive()
        expect.refusal(answer, 413, "body-too-large")
        assert answer.interim == []


def test_an_unfenced_large_body_passes(gw, partner, mark):
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark, body=b"x" * 20 * MIB))
    assert len(partner.seen(mark)[0].body) == 20 * MIB


# ---- places go to those who use them


def hold(gw, count, head=b""):
    """That many connections that send `head` and no more."""
    held = [gw.connect() for _ in range(count)]
    for connection in held:
        connection.send(head)
    return held


@pytest.mark.parametrize("head", [b"", b"POST /pay/x HT", request("POST", "/pay/x", fenced(5, "x"))[:-2]], ids=["nothing", "a_line", "almost"])
@pytest.mark.parametrize("workers", [1, 3])
def test_silent_connections_keep_nobody_out(launch, partner, mark, head, workers):
    gw = launch(route(partner), workers=workers, limits={"connections": 50})
    held = hold(gw, 60, head)
    for i in range(60):
        expect.relayed(gw.call(f"/pay/{mark}", 5, f"{mark}-{i}"))
    assert gw.metric("fencegate_connections") <= 50
    for connection in held:
        connection.close()


def test_the_connection_that_was_idle_longest_ends_first(launch, partner, mark):
    gw = launch(route(partner), workers=3, limits={"connections": 4})
    first, second, third = gw.connect(), gw.connect(), gw.connect()
    for connection in (first, second, third, first):  # `second` has waited longest when `first` was served again
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"x"))
        expect.relayed(connection.receive())
    fourth, fifth = gw.connect(), gw.connect()
    assert second.ended()
    for connection in (third, first, fourth, fifth):
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"x"))
        expect.relayed(connection.receive())
        connection.close()


def test_a_connection_with_a_request_under_way_never_ends(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner), workers=2, limits={"connections": 3})
    expect.relayed(gw.call("/pay/first", 5, mark))
    calls = [gw.send_off(f"/pay/{mark}", 5, f"{mark}-{i}") for i in range(2)]
    partner.wait_seen(mark, 2)
    with gw.connect() as uploading:
        whole = request("POST", f"/pay/{mark}-slow", fenced(5, mark), b"x" * 1000)
        uploading.send(whole[:-500])
        eventually(lambda: gw.metric("fencegate_buffered_bytes") > 0)
        with gw.connect() as late:  # an upload of a known key goes on, beyond the limit
            late.send(request("POST", f"/pay/{mark}-late", fenced(5, mark + "-late"), b"x"))
            expect.relayed(late.receive())
        uploading.send(whole[-500:])
        expect.relayed(uploading.receive())
        # takes the place of `uploading`, which is idle a moment after it has its answer
        eventually(lambda: gw.call(f"/pay/{mark}-later", 5, mark, body=b"x").status == 200)
        assert uploading.ended()
    held.release()
    for call in calls:
        expect.relayed(call.result(10))


def test_part_of_a_body_is_answered_when_its_place_is_needed(launch, partner, mark):
    """Unless its key is known: see above."""
    gw = launch(route(partner), limits={"connections": 1})
    with gw.connect() as begun:
        begun.send(request("POST", f"/pay/{mark}", fenced(1, mark + "-new"), b"x" * 1000)[:-500])
        eventually(lambda: gw.metric("fencegate_buffered_bytes") > 0, what="the upload")
        expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
        expect.refusal(begun.receive(), 503, "overloaded")
        assert begun.ended()
    assert gw.fence(mark + "-new") is None


def test_part_of_a_head_is_answered_when_its_place_is_needed(launch, partner, mark):
    gw = launch(route(partner), limits={"connections": 1})
    with gw.connect() as begun:
        begun.send(b"POST /pay HTTP/1.1\r\n")
        expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
        expect.refusal(begun.receive(), 503, "overloaded")
        assert begun.ended()


def test_an_address_loses_its_own_longest_idle_connection(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner), workers=1, limits={"connections": 100, "connections_per_address": 3})
    other = socket.create_connection(("127.0.0.1", gw.port), 10, source_address=("127.0.0.9", 0))
    silent = hold(gw, 3)
    with gw.connect() as fourth:
        assert silent[0].ended()
        assert all(connection.silent(0.05) for connection in silent[1:]), "only one was over"
        fourth.send(request("POST", f"/pay/{mark}-x", fenced(5, mark), b"x"))
        expect.relayed(fourth.receive())
    calls = [gw.send_off(f"/pay/{mark}", 5, f"{mark}-{i}") for i in range(3)]
    partner.wait_seen(mark, 3)
    with gw.connect() as refused:
        answer = refused.receive()
        expect.refusal(answer, 503, "overloaded")
        assert "limits.connections_per_address" in answer.json["detail"]
    other.sendall(request("POST", f"/pay/{mark}-other", fenced(5, mark), b"x"))
    assert other.recv(65536).startswith(b"HTTP/1.1 200")
    other.close()
    held.release()
    for call in calls:
        expect.relayed(call.result(10))


# ---- fewer descriptors than the limits need


@pytest.fixture
def scarce(launch, new_partner):
    partner = new_partner()
    gw = launch(route(partner), wrapper=["prlimit", "--nofile=200:200"], workers=2)
    return gw, partner


def test_a_start_with_few_descriptors_says_how_many_are_served(scarce):
    gw, _ = scarce
    line = gw.wait_log(lambda line: line["event"] == "open-files" and line["level"] == "warn")
    assert "200 file descriptors" in line["message"]
    served = re.search(r"(\d+) connections and (\d+) calls", line["message"])
    assert gw.metric("fencegate_connections_max") == int(served[1]) < 100
    assert gw.metric("fencegate_in_flight_max") == int(served[2]) < 100
    checked = subprocess.run(["prlimit", "--nofile=200:200", BINARY, "check", "-c", gw.config], capture_output=True, text=True)
    assert checked.returncode == 0 and "200 file descriptors" in checked.stdout + checked.stderr


def test_calls_beyond_the_descriptors_are_503_and_the_others_are_served(scarce, mark):
    gw, partner = scarce
    held = Held()
    partner.on(mark, held)
    calls = [gw.send_off(f"/pay/{mark}", 5, f"{mark}-{i}") for i in range(60)]
    eventually(lambda: len(partner.seen(mark)) >= gw.metric("fencegate_in_flight_max"))
    assert gw.admin("/healthz", token=None).status == 200
    held.release()
    answers = []
    for call in calls:
        try:
            answers.append(call.result(20))
        except Closed:  # it had connected and sent nothing yet when a descriptor was needed: idle
            continue
    assert {answer.status for answer in answers} == {200, 503} and len(answers) > 50
    for answer in answers:
        if answer.status == 503:
            expect.refusal(answer, 503, "overloaded")
    assert sum(answer.status == 200 for answer in answers) >= gw.metric("fencegate_in_flight_max")


def served(gw, mark, number):
    try:
        return gw.call(f"/pay/{mark}", 5, f"{mark}-{number}").status == 200
    except Closed:
        return False


def test_silent_clients_do_not_use_up_the_descriptors(scarce, mark):
    gw, partner = scarce
    crowd = [gw.connect() for _ in range(400)]
    for i in range(50):
        eventually(lambda: served(gw, mark, i))  # a repeat may be needed: 503, or an end before it was read
        assert gw.admin("/healthz", token=None).status == 200
    for connection in crowd:
        connection.close()
