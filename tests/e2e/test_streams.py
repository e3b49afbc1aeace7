"""Random sequences of sound and broken requests on one connection, in pieces that end anywhere, against a partner that
answers in every way HTTP knows. A model says which answers come, and that the partner sees the sound ones and no other."""

import random
import re
import threading
import time

import pytest

from client import Closed, fenced, request
from gateway import SANITIZED, Gateway, eventually, pool, route
from partner import Partner

KIB = 1024
BODY_MAX = 20 * KIB
CHUNKED = ("Transfer-Encoding", "chunked")
BROKEN_CHUNKS = [b"5\r\nhellox\r\n0\r\n\r\n", b"5 \r\nhello\r\n0\r\n\r\n", b"-1\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n", b"1000000000000000\r\n",
                 b"5;\r\nhello\r\n0\r\n\r\n", b"0\r\nX T: y\r\n\r\n", b"0\r\n: y\r\n\r\n", b"0\r\nA: b\n\r\n"]
BROKEN_HEADS = [b"POST  / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\nHost: a\n\n", b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: a\r\n\0: y\r\n\r\n", b"\nGET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n"]


# -- what is asked


class Step:
    """One request. `body`: what the partner must get; None: the request is refused with `status`. `last`: no other follows."""

    def __init__(self, text, body=None, status=200, last=False, method="POST"):
        self.text, self.body, self.status, self.last, self.method = text, body, status, last, method


def chunks_of(dice, body):
    pieces, at = [], 0
    while at < len(body):
        piece = body[at:at + dice.choice((1 + len(body) // 50, 100, 9000))]
        at += len(piece)
        extension = dice.choice((b"", b"", b";a", b";a=b", b';a="q\\" x"'))
        pieces.append(dice.choice((b"%x", b"%04X")) % len(piece) + extension + b"\r\n" + piece + b"\r\n")
    trailer = dice.choice((b"", b"X-T: t\r\n", b"Fencing-Token: 9\r\n"))
    return b"".join(pieces) + dice.choice((b"0", b"000")) + b"\r\n" + trailer + b"\r\n"


def sound(dice, path, head, body):
    return dice.choice((
        lambda: Step(request("POST", path, head, body), body),
        lambda: Step(b"\r\n" * dice.randrange(1, 4) + request("POST", path, head, body), body),
        lambda: Step(request("PUT", path, [*head, CHUNKED], chunks_of(dice, body)), body),
        lambda: Step(request("PUT", path, [*head, CHUNKED], chunks_of(dice, body)), body),
        lambda: Step(request("POST", path, [*head, ("Expect", "100-continue")], body), body),
        lambda: Step(request("GET", path, head), b"", method="GET"),
        lambda: Step(request("HEAD", path, head), b"", method="HEAD"),
        lambda: Step(request("POST", path, [*head, ("Connection", "x, Close")], body), body, last=True),
        lambda: Step(request("POST", path, head, body, version="HTTP/1.0"), body, last=True),
    ))()


def refused(dice, path, head, body):
    """The connection stays."""
    key = head[1][1]
    large = b"z" * (BODY_MAX + dice.randrange(1, 30 * KIB))
    return dice.choice((
        lambda: Step(request("POST", "/none", head, body), status=404),
        lambda: Step(request("POST", "/none", [*head, CHUNKED], chunks_of(dice, body)), status=404),
        lambda: Step(request("POST", path, fenced(4, key), body), status=412),
        lambda: Step(request("POST", path, fenced(None, key), body), status=428),
        lambda: Step(request("POST", path, fenced("5x", key), body), status=400),
        lambda: Step(request("POST", "/pay/../x", head, body), status=400),
        lambda: Step(request("POST", path, head, large), status=413),
    ))()


def refused_for_good(dice, path, head, body):
    large = b"z" * (BODY_MAX + dice.randrange(1, 2000))
    text, status = dice.choice((
        (request("POST", "/none", head, b"z" * (64 * KIB + 1)), 404),
        (request("POST", "/none", [*head, ("Expect", "100-continue")], body), 404),
        (request("POST", "/none", [*head, CHUNKED], chunks_of(dice, large)), 404),
        (request("POST", path, [*head, CHUNKED], chunks_of(dice, large)), 413),
        (request("POST", path, [*head, CHUNKED], dice.choice(BROKEN_CHUNKS)), 400),
        (request("POST", path, [*head, CHUNKED, ("Content-Length", "5")], b"5\r\nhello\r\n0\r\n\r\n"), 400),
        (request("POST", path, [*head, ("Content-Length", "5"), ("Content-Length", "5")], b"hello"), 400),
        (request("POST", path, [*head, ("X-A", "b\r\n c")], body), 400),
        (request("POST", path, [*head, ("Expect", "x")], body), 417),
        (dice.choice(BROKEN_HEADS), 400),
    ))
    return Step(text, status=status, last=True)


def step(dice, mark, number):
    body = dice.randbytes(dice.choice((0, 1, 100, 4096, dice.randrange(BODY_MAX))))
    if dice.random() < 0.3:
        body = (b"POST /pay HTTP/1.1\r\n0\r\n\r\n" * 40)[:len(body)]
    head = fenced(5, mark) + dice.choice(([], [], [("X-Pad", "p" * 3000)]))
    make = dice.choices((sound, refused, refused_for_good), (10, 4, 2))[0]
    return make(dice, f"/pay/{mark}/{number}", head, body)


# -- what is answered

WAYS = ("length", "chunked", "close", "1.0", "204", "304", "slowly", "chunks slowly", "interim", "odd fields", "cut", "chunks cut")


def way_of(mark, number):
    return random.Random(f"{mark} {number}").choice(WAYS)


def content(number, body):
    return (b"%d:" % number + body)[:5000]


def answer(exchange):
    _, mark, number = exchange.request.target.split("/")
    way, body = way_of(mark, number), content(int(number), exchange.request.body)
    head = {"204": b"204 No", "304": b"304 No"}.get(way, b"200 OK") + b"\r\nX-Number: %s\r\n" % number.encode()
    head = (b"HTTP/1.0 " if way == "1.0" else b"HTTP/1.1 ") + head
    length = b"Content-Length: %d\r\n\r\n" % (len(body) + 9 * (way == "cut"))
    pieces = [body[at:at + 900] for at in range(0, len(body), 900)] if "slowly" in way else [body]
    if "chunk" in way:
        length, pieces = b"Transfer-Encoding: chunked\r\n\r\n", [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces] + [b"0\r\nT: t\r\n\r\n"] * ("cut" not in way)
    elif way in ("close", "1.0", "204"):
        length = b"Connection: close\r\n\r\n"
    elif way == "interim":
        head = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 100 Go\r\n\r\n" + head
    elif way == "odd fields":
        head += b"Connection: X-Gone, close\r\nX-Gone: 1\r\nFencegate-Effect: not-sent\r\n"
    bodiless = exchange.request.method == "HEAD" or way in ("204", "304")
    exchange.send(head + length)
    for piece in [] if bodiless else pieces:
        if "slowly" in way:
            time.sleep(0.001)
        exchange.send(piece)
    if way in ("close", "1.0", "204", "odd fields") or ("cut" in way and not bodiless):
        exchange.close()


def check_relayed(got, asked, mark, number, was_reset):
    """True: the connection has ended with it."""
    way = way_of(mark, number)
    status = int(way) if way in ("204", "304") else 200
    assert (got.status, got.get("X-Number"), got.effect, got.get("X-Gone")) == (status, str(number), "sent", None), got
    want = b"" if asked.method == "HEAD" or status != 200 else content(number, asked.body)
    if "cut" in way and asked.method != "HEAD":
        assert (not got.complete or was_reset()) and want.startswith(got.body), got
        return True
    assert got.complete and got.body == want, (way, got)
    return False


# -- the play


@pytest.fixture
def gw(tmp_path):
    partner = Partner()
    partner.default = answer
    limits = {"body": "20KiB", "headers": "8KiB"}
    gateway = Gateway(tmp_path, [route(partner)], limits=limits).start()
    gateway.partner = partner
    yield gateway
    gateway.end()
    partner.close()


class Writer(threading.Thread):
    """Sends all, and ends sending."""

    def __init__(self, connection, text, size):
        super().__init__()
        self.connection, self.text, self.size, self.refused = connection, text, size, False

    def run(self):
        try:
            for at in range(0, len(self.text), self.size):
                self.connection.send(self.text[at:at + self.size])
            self.connection.end_sending()
        except OSError:
            self.refused = True  # closed behind a refusal or an answer that was cut

    def was_reset(self):
        """The kernel tells of a reset once: it may have told us instead of who reads."""
        self.join()
        return self.refused


def read(connection, steps, mark, left, was_reset):
    """Reads all answers that are due when only `left` bytes were sent; returns what the partner must have seen."""
    seen = []
    for number, asked in enumerate(steps):
        left -= len(asked.text)
        try:
            got = connection.receive(asked.method)
        except Closed:
            assert left < 0, f"no answer to {number}"
            return seen
        if asked.body is not None:
            assert left >= 0, f"{number} was cut short and answered: {got}"
            seen.append((number, asked.body))
            if check_relayed(got, asked, mark, number, was_reset):
                return seen
        else:
            assert (got.status, got.complete, got.effect) == (asked.status, True, "not-sent") or left < 0, got
        assert left < 0 or (got.get("Connection") == "close") == asked.last, got
        if got.get("Connection") == "close":
            return seen
    return seen


def play(gw, seed):
    dice = random.Random(seed)
    mark = f"m{seed:x}"
    steps = [step(dice, mark, number) for number in range(dice.randrange(1, 9))]
    gw.call(f"/pay/{mark}/99", 5, mark)  # from now on 4 is stale
    text = b"".join(asked.text for asked in steps)
    if dice.random() < 0.2:
        text = text[:dice.randrange(len(text))]
    size = dice.choice((700, 1500, 8000, 1 << 20) if len(text) > 6000 else (1, 7, 100, 1 << 20))
    with gw.connect() as connection:
        writer = Writer(connection, text, size)
        writer.start()
        try:
            seen = read(connection, steps, mark, len(text), writer.was_reset)
            assert connection.ended(), "more than was asked for"
            writer.join()
            got = [(int(re.search("[0-9]+$", r.target)[0]), r.body) for r in gw.partner.seen(mark)]
            assert got[1:] == seen, "the partner saw something else"
        except AssertionError as error:
            raise AssertionError(f"stream {seed}, pieces of {size}, {len(text)} bytes: {[s.text[:60] for s in steps]}: {error}") from error


def test_answers_and_what_the_partner_sees_are_as_the_model_says(gw):
    list(pool.map(lambda seed: play(gw, seed), range(300 if SANITIZED else 800)))
    eventually(lambda: gw.metric("fencegate_connections") == 0 and gw.metric("fencegate_requests_live") == 0)
    assert gw.metric("fencegate_buffered_bytes") == 0
