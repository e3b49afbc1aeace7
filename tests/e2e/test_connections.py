"""Clients' connections: one request after the other on them, in whatever pieces, and what becomes of slow ones."""

import collections
import email.utils
import pathlib
import random
import re
import signal
import socket
import threading
import time

import pytest

import expect
from client import BadAnswer, Closed, fenced, request
from gateway import SANITIZED, Gateway, eventually, pool, route
from partner import Held

KIB, MIB = 1024, 1024 * 1024


@pytest.fixture(scope="module")
def gw(partner, tmp_path_factory):
    gateway = Gateway(tmp_path_factory.mktemp("gw"), [route(partner)], workers=1).start()
    yield gateway
    gateway.end()


def post(mark, token, body, **options):
    return request("POST", f"/pay/{mark}", fenced(token, mark), body, **options)


# -- one after the other


@pytest.mark.parametrize("piece", [1 << 20, 1000, 37])
def test_hundreds_of_pipelined_requests_are_answered_in_order(gw, partner, mark, piece):
    """Good ones, refused ones and some with chunks, written in one go or in pieces that end anywhere."""
    partner.on(mark, lambda e: e.reply(200, e.request.body))
    requests, wanted = [], []
    for number in range(300 if piece > 100 else 60):
        body = b"body %d" % number
        if number % 3 == 0:
            requests.append(request("POST", f"/none/{mark}", fenced(5, mark), body))
            wanted.append((404, None))
        elif number % 3 == 1:
            requests.append(post(mark, 5, body))
            wanted.append((200, body))
        else:
            chunks = b"%x;a=b\r\n%s\r\n0\r\nX-T: t\r\n\r\n" % (len(body), body)
            requests.append(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Transfer-Encoding", "chunked")], chunks))
            wanted.append((200, body))
    everything = b"".join(requests)
    with gw.connect() as connection:
        def write():
            for at in range(0, len(everything), piece):
                connection.send(everything[at:at + piece])

        writer = threading.Thread(target=write)
        writer.start()
        for status, body in wanted:
            answer = connection.receive()
            assert answer.status == status and body in (None, answer.body), answer
        writer.join()
        assert connection.silent(0.05)
    assert [r.body for r in partner.seen(mark)] == [body for _, body in wanted if body]


def test_the_next_request_may_begin_while_the_one_before_waits(gw, partner, mark):
    held = Held()
    partner.on(mark, held)
    second = post(mark + "-second", 1, b"second")
    with gw.connect() as connection:
        connection.send(post(mark, 5, b"first"), second[:20])
        partner.wait_seen(mark)
        connection.send(second[20:40])
        assert connection.silent(0.1)
        held.release()
        expect.relayed(connection.receive())
        connection.send(second[40:])
        expect.relayed(connection.receive())
    assert partner.seen(mark + "-second")[0].body == b"second"


def test_a_large_body_ends_where_the_next_request_begins(gw, partner, mark):
    body = bytes(range(256)) * 9000
    with gw.connect() as connection:
        connection.send(post(mark, 5, body) + post(mark, 5, b"small") + post(mark, 5, body[::-1]))
        for _ in range(3):
            expect.relayed(connection.receive())
    assert [r.body for r in partner.seen(mark)] == [body, b"small", body[::-1]]


def test_empty_lines_between_requests_are_skipped(gw, partner, mark):
    with gw.connect() as connection:
        for before in (b"\r\n", b"\r\n\r\n", b""):
            connection.send(before + post(mark, 5, b"x"))
            expect.relayed(connection.receive())


def test_a_broken_request_behind_good_ones_ends_the_connection(gw, partner, mark):
    with gw.connect() as connection:
        connection.send(post(mark, 5, b"x") + post(mark, 5, b"y") + b"BAD\r\n\r\n" + post(mark + "-never", 5, b"z"))
        expect.relayed(connection.receive())
        expect.relayed(connection.receive())
        answer = connection.receive()
        expect.refusal(answer, 400, "malformed-request")
        assert answer.get("Connection") == "close" and connection.ended()
    assert partner.seen(mark + "-never") == []


def test_who_ends_sending_gets_all_answers(gw, partner, mark):
    with gw.connect() as connection:
        connection.send(post(mark, 5, b"x") + request("GET", f"/none/{mark}", fenced(5, mark)) + post(mark, 5, b"y"))
        connection.end_sending()
        assert [connection.receive().status for _ in range(3)] == [200, 404, 200]
        assert connection.ended()


def test_one_with_thousands_of_requests_holds_up_nobody(gw, partner, mark):
    """All of them wait when the gateway comes to look, and so does one of somebody else: that one need not wait for many."""
    many = 2000
    with gw.connect() as greedy, gw.connect() as modest:
        for connection in (greedy, modest):
            connection.send(post(mark, 5, b"x"))
            expect.relayed(connection.receive())
        gw.process.send_signal(signal.SIGSTOP)
        stat = pathlib.Path(f"/proc/{gw.process.pid}/stat")
        eventually(lambda: stat.read_text().rsplit(") ", 1)[1].startswith("T"), what="the stop")
        greedy.send(request("GET", f"/none/{mark}", fenced(5, mark)) * many)
        modest.send(request("GET", f"/modest/{mark}", fenced(5, mark)))
        gw.process.send_signal(signal.SIGCONT)
        assert modest.receive("GET").status == 404
        for _ in range(many):
            assert greedy.receive("GET").status == 404
    mine = (f"/none/{mark}", f"/modest/{mark}")
    paths = eventually(lambda: (told := [line["path"] for line in gw.log if line.get("path") in mine]) and len(told) > many and told)
    assert paths.index(f"/modest/{mark}") < 20 and len(paths) == many + 1


# -- HTTP/1.0


def test_http_1_0_keeps_its_connection_when_it_asks_to(gw, partner, mark):
    with gw.connect() as connection:
        for number in range(2):
            connection.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Connection", "Keep-Alive")], b"x", version="HTTP/1.0"))
            answer = connection.receive()
            expect.relayed(answer)
            assert answer.get("Connection") == "keep-alive"
        connection.send(post(mark, 5, b"x", version="HTTP/1.0"))
        assert connection.receive().get("Connection") == "close" and connection.ended()


# -- heads


def test_the_heads_of_both_sides_may_be_large_at_once(gw, partner, mark):
    """An answer's head has a limit of its own, however large the request's was."""
    large = [("X-Part", "p" * 900)] * 16
    partner.on(mark, lambda e: e.reply(200, b"ok", large))
    answer = gw.call(f"/pay/{mark}", 5, mark, headers=[("X-Large", "a" * 30_000)])
    expect.relayed(answer)
    assert answer.all("X-Part") == [value for _, value in large]


def test_a_thousand_fields_pass(gw, partner, mark):
    fields = [("X", str(number)) for number in range(1000)]
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark, headers=fields))
    assert partner.seen(mark)[0].all("X") == [value for _, value in fields]


def test_a_reload_changes_how_large_a_head_may_be(launch, partner, mark):
    gw = launch(route(partner), limits={"headers": "2KiB"}, workers=1)
    large = [("X-Large", "a" * 3000)]
    with gw.connect() as kept:
        kept.send(post(mark, 5, b"x"))
        expect.relayed(kept.receive())
        expect.refusal(gw.call(f"/pay/{mark}", 5, mark, headers=large), 431, "headers-too-large")
        gw.settings["limits"]["headers"] = "64KiB"
        gw.reload()
        eventually(lambda: gw.call(f"/pay/{mark}", 5, mark, headers=large).status == 200)
        kept.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), *large, ("X-More", "b" * 50_000)], b"y"))
        expect.relayed(kept.receive())


@pytest.mark.parametrize("kind", ["relayed", "refused"])
def test_an_answer_has_one_date(gw, partner, mark, kind):
    answer = gw.call(f"/pay/{mark}" if kind == "relayed" else f"/none/{mark}", 5, mark)
    date = email.utils.parsedate_to_datetime(answer.get("Date"))
    assert abs(date.timestamp() - time.time()) < 5 and answer.get("Date").endswith(" GMT")


def test_no_100_continue_for_a_body_that_is_there(gw, partner, mark):
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Content-Length", "5"), ("Expect", "100-continue")], b"hello"))
        answer = connection.receive()
        expect.relayed(answer)
        assert answer.interim == []


def test_a_refusal_in_the_middle_of_a_body_tells_what_it_is_about(launch, partner, mark):
    gw = launch(route(partner), limits={"body": "10KiB", "request_timeout": "500ms"})
    for ending, status, reason in ((b"400\r\n" + b"x" * KIB + b"\r\n", 413, "body-too-large"), (b"", 408, "request-timeout")):
        with gw.connect() as connection:
            connection.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Transfer-Encoding", "chunked")]), b"5\r\nhello\r\n" + ending * 11)
            answer = connection.receive()
            expect.refusal(answer, status, reason, key=mark, token="5")
            assert answer.get("Connection") == "close" and connection.ended()
    assert partner.seen(mark) == [] and gw.fence(mark) is None


def test_the_time_of_a_next_request_counts_from_its_first_byte(launch, partner, mark):
    gw = launch(route(partner), limits={"request_timeout": "600ms", "idle_timeout": "10s"})
    with gw.connect() as connection:
        connection.send(post(mark, 5, b"x"))
        expect.relayed(connection.receive())
        assert connection.silent(1.0)  # idle: that is another limit
        connection.send(post(mark, 5, b"x")[:30])
        began = time.monotonic()
        expect.refusal(connection.receive(), 408, "request-timeout")
        assert 0.4 < time.monotonic() - began < (10 if SANITIZED else 3)


# -- slow readers


def test_who_reads_little_but_steadily_is_not_let_go(launch, new_partner, mark):
    """What the kernel holds of an answer takes many times idle_timeout at this pace, and epoll tells of room late."""
    partner = new_partner()
    partner.on(mark, streams(24 * MIB, "length"))
    gw = launch(route(partner), limits={"idle_timeout": "300ms"})
    with gw.connect() as connection:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
        connection.send(request("GET", f"/pay/{mark}", fenced(5, mark)))
        answer, got = connection.read_head(), 0
        for piece in connection.pieces(answer, "GET"):
            got += len(piece)
            if got < 3 * MIB:
                time.sleep(0.05)
        assert got == 24 * MIB and answer.complete


def streams(size, framing):
    def handler(exchange):
        head = b"Content-Length: %d" % size if framing == "length" else b"Transfer-Encoding: chunked"
        exchange.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        try:
            for _ in range(size // MIB):
                exchange.send(bytes(MIB) if framing == "length" else b"100000\r\n" + bytes(MIB) + b"\r\n")
            if framing == "chunked":
                exchange.send(b"0\r\n\r\n")
        except OSError:
            pass

    return handler


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_who_reads_nothing_is_let_go_after_idle_timeout(launch, new_partner, mark, framing):
    partner = new_partner()
    partner.on(mark, streams(64 * MIB, framing))
    gw = launch(route(partner), limits={"idle_timeout": "500ms"})
    with gw.connect() as connection:
        connection.send(request("GET", f"/pay/{mark}", fenced(5, mark)))
        partner.wait_seen(mark)
        eventually(lambda: gw.metric("fencegate_connections") == 0)
        answer = connection.read_head()
        body = sum(len(piece) for piece in connection.pieces(answer, "GET"))
        assert body < 64 * MIB and not answer.complete
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", response_bytes=64 * MIB)  # what the partner did


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_who_reads_slowly_gets_all(launch, new_partner, mark, framing):
    partner = new_partner()
    partner.on(mark, streams(24 * MIB, framing))
    gw = launch(route(partner), limits={"idle_timeout": "1s"})
    with gw.connect() as connection:
        connection.send(request("GET", f"/pay/{mark}", fenced(5, mark)))
        answer, got, pauses = connection.read_head(), 0, 0
        for piece in connection.pieces(answer, "GET"):
            assert piece.count(0) == len(piece)
            got += len(piece)
            if got // (3 * MIB) > pauses:
                pauses += 1
                threading.Event().wait(0.3)
        assert got == 24 * MIB and answer.complete and pauses == 8


def test_refusals_that_nobody_reads_do_not_pile_up(launch, partner, mark):
    """Pipelined refusals fill the client's socket; what the kernel does not take holds up the next request."""
    gw = launch(route(partner), limits={"idle_timeout": "500ms"}, workers=1)
    one = request("GET", f"/none/{mark}", fenced(5, mark))
    with gw.connect() as connection:
        connection.sock.settimeout(0.3)
        with pytest.raises((TimeoutError, ConnectionResetError, BrokenPipeError)):
            for _ in range(200):
                connection.send(one * 1000)
        eventually(lambda: gw.metric("fencegate_connections") == 0)
    assert SANITIZED or gw.memory_kib() < 32 * KIB
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))


# -- how connections end


def test_who_ends_sending_behind_a_refusal_gets_all_answers(gw, partner, mark):
    """Both sides have ended, answers wait in the kernel, and some of a refused body is unread: no reset may overtake them."""
    many = 60
    with gw.connect() as connection:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.send(request("GET", f"/none/{mark}", fenced(5, mark)) * many)
        connection.send(request("POST", f"/none/{mark}", [*fenced(5, mark), ("Content-Length", "1000000")]))
        eventually(lambda: sum(line.get("path") == f"/none/{mark}" for line in gw.log) == many + 1)
        gw.process.send_signal(signal.SIGSTOP)
        connection.send(b"x" * 20_000)
        connection.end_sending()
        gw.process.send_signal(signal.SIGCONT)
        time.sleep(0.1)
        for _ in range(many):
            expect.refusal(connection.receive("GET"), 404, "no-route")
        assert connection.receive().get("Connection") == "close" and connection.ended()


def test_a_request_that_came_while_the_gateway_stood_still_is_answered(launch, partner, mark):
    """More connections than one look at them tells of: the time of the others must not end unseen."""
    gw = launch(route(partner), limits={"idle_timeout": "1s"}, workers=1)
    connections = [gw.connect() for _ in range(600)]
    for connection in connections:
        connection.send(request("GET", f"/none/{mark}", fenced(5, mark)))
    for connection in connections:
        assert connection.receive("GET").status == 404
    gw.process.send_signal(signal.SIGSTOP)
    for connection in connections:
        connection.send(request("GET", f"/none/{mark}", fenced(5, mark)))
    time.sleep(1.2)
    gw.process.send_signal(signal.SIGCONT)
    for connection in connections:
        assert connection.receive("GET").status == 404
        connection.close()


def test_answers_during_a_shutdown_end_their_connections(launch, partner, mark):
    gw = launch(route(partner))
    held = Held()
    partner.on(mark, held)
    with gw.connect() as running, gw.connect() as kept, gw.connect() as greedy:
        for connection in (kept, greedy):
            connection.send(post(mark + "-before", 5, b"x"))
            expect.relayed(connection.receive())
        running.send(post(mark, 5, b"x"))
        partner.wait_seen(mark)
        gw.process.send_signal(signal.SIGTERM)
        eventually(lambda: gw.admin("/readyz", token=None).status == 503)
        kept.send(post(mark, 5, b"x"))
        greedy.send(post(mark, 5, b"x") * 3)
        for connection, many in ((kept, 1), (greedy, 3)):
            for left in reversed(range(many)):
                answer = connection.receive()
                expect.refusal(answer, 503, "shutting-down")
                assert answer.get("Connection") == (None if left else "close")
            assert connection.ended()
        held.release()
        answer = running.receive()
        expect.relayed(answer)
        assert answer.get("Connection") == "close" and running.ended()
    assert gw.wait() == 0


# -- chance


PIECES = [b"\0", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b":", b";", b",", b"\t", b"\xff", b"0\r\n\r\n", b"5\r\nhello\r\n", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n",
          b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Host: b\r\n", b"Fencing-Token: 9\r\n", b"HTTP/1.0", b"HEAD", b"a" * 3000]


def mutate(chance, text):
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.randrange(1, 40))
        text = chance.choice((text[:at] + chance.choice(PIECES) + text[at:], text[:at] + bytes([chance.randrange(256)]) + text[at + 1:],
                              text[:at] + text[end:], text[:end] + text[at:end] + text[end:], text[:at]))
    return text


def test_mutated_streams_do_no_harm(launch, new_partner, mark):
    """Several requests on a connection, some of them damaged, in pieces that end anywhere: every answer is one, whole, and
    says what became of the effect; what the partner got is sound and was asked for; and nobody waits for ever."""
    partner = new_partner()
    partner.default = lambda e: e.reply(200, e.request.body)
    gw = launch(route(partner, path="/"), limits={"request_timeout": "2s", "headers": "4KiB", "body": "8KiB"}, workers=1)
    chance = random.Random(20261130)
    head = fenced(5, mark)
    asked = [request("POST", "/a?b=c", head, b"x" * 80), request("GET", "/a", head), request("PUT", "/a", [*head, ("X-Long", "l" * 700)], b"y"),
             request("POST", "/a", [*head, ("Transfer-Encoding", "chunked")], b"5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX-T: t\r\n\r\n"),
             request("POST", "/a", head, b"z" * 9000), request("DELETE", "/a", head, version="HTTP/1.0"), request("POST", "/a", [*head, ("Expect", "100-continue")], b"w")]
    statuses = collections.Counter()

    def play(number):
        dice = random.Random(number)
        text = b"".join(mutate(dice, dice.choice(asked)) for _ in range(dice.randrange(1, 5)))
        with gw.connect(30) as connection:
            try:
                for at in range(0, len(text), size := dice.choice((7, 500, 100_000))):
                    connection.send(text[at:at + size])
                connection.end_sending()
                while True:
                    answer = connection.receive("GET")
                    assert answer.complete and answer.effect in ("sent", "not-sent"), answer
                    assert answer.status < 300 or answer.reason, answer
                    statuses[answer.status] += 1
            except (Closed, OSError):
                pass
            except (BadAnswer, AssertionError) as error:
                raise AssertionError(f"stream {number}: {text!r}: {error}") from error

    list(pool.map(play, [chance.randrange(1 << 32) for _ in range(2500)]))
    assert statuses[200] > 500 and statuses[400] > 200, statuses
    for got in partner.seen():
        assert re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ /[!-~]* HTTP/1\.1", got.head.split(b"\r\n", 1)[0]), got.head
        assert not re.search(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]|\r[^\n]|[^\r]\n", got.head), got.head
        assert got.all("Content-Length") in ([], [str(len(got.body))]) and got.all("Transfer-Encoding") == [], got.head
    eventually(lambda: gw.metric("fencegate_connections") == 0 and gw.metric("fencegate_requests_live") == 0)
    assert gw.metric("fencegate_buffered_bytes") == 0
    expect.relayed(gw.call("/after", 5, mark + "-after", body=b"ok"))
