"""The fixed script of a sweep: the calls of a few workers, an operator's looks, a reload; and what must hold afterwards.

Each request has a name of its own, the last segment of its path: by it the partner's log, the answer and the audit
record are brought together. What a failure may change is the answer. What it may never change is in `verify`.
"""

import itertools
import json
import os
import re
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

from client import BadAnswer, Closed, Connection, fenced, request  # noqa: E402
from gateway import Gateway, eventually, route  # noqa: E402
from partner import Exchange, Held, Partner, Request, marks  # noqa: E402
from relay import Relay  # noqa: E402

CALL_SECONDS = 10.0  # longer than the timeouts below one after the other: who waits longer hangs
LOOK_SECONDS = 5.0
BLOCKS, BLOCK = 6, b"s" * 20_000
BIG = b"b" * 100_000
JSON = [("Content-Type", "application/json")]


class Watcher(Partner):
    """A partner that also notices what came in part: a call that is told as `not-sent` may not have sent a byte."""

    def __init__(self):
        self.partial = []  # what came of requests that never became whole
        super().__init__()

    def _one(self, stream, number):
        head = b""
        try:
            head = stream.read_until(b"\r\n\r\n")
            got = Request(head, number, time.monotonic())
            got.body = stream.read_body(got)
        except (EOFError, OSError):
            if head or stream.buffer:
                self.partial.append(head + stream.buffer)
            raise
        with self._changed:
            self.requests.append(got)
            self._changed.notify_all()
        mark = next((m for m in marks(got.target) if m in self._handlers), None)
        exchange = Exchange(got, stream)
        self._handlers.get(mark, self.default)(exchange)
        return exchange.open and not self._closing


class Told:
    """One request and what its client was told."""

    def __init__(self, name, where, key, token, body):
        self.name, self.where, self.key, self.token, self.body = name, where, key, token, body
        self.begun = 0.0  # monotonic seconds
        self.answer = None
        self.closed = False  # the connection ended without an answer, or inside one
        self.trouble = None  # what no failure excuses: a hang, nonsense

    @property
    def status(self):
        return self.answer.status if self.answer else None

    @property
    def effect(self):
        return self.answer.effect if self.answer else None

    @property
    def recorded(self):
        return self.where in ("pay", "named", "dead", "hook", "mail")

    def __repr__(self):
        return (f"{self.name} /{self.where} key={self.key} token={self.token}: "
                f"{self.trouble or ('closed' if self.closed else '')} {self.status} {self.effect} "
                f"{self.answer.reason if self.answer and self.answer.complete else ''}")


def stream(exchange):
    exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(BLOCKS):
        exchange.send(b"%x\r\n" % len(BLOCK) + BLOCK + b"\r\n")
    exchange.send(b"0\r\n\r\n")


def mail(name):
    return json.dumps({"from": "a@jobs.example", "to": ["B\u00e9 <b@b\u00fccher.example>"], "cc": ["c@home.example"], "subject": name,
                       "text": "Gr\u00fc\u00dfe\n.\n", "attachments": [{"filename": "a", "content_type": "a/b", "content": "AAEC"}]}).encode()


class Script:
    def __init__(self, folder):
        self.partner = Watcher()
        self.partner.on("stream", stream)
        self.relay = Relay()
        self.relay.on("DOT", self.mail_came)
        self.told = []
        self.admin_troubles = []
        self.raised = False  # an operator was told that the fence of `raised` is at 43
        self._refusing = socket.socket()  # bound, and nobody listens: connects are refused
        self._refusing.bind(("127.0.0.1", 0))
        limits = {"timeout": {"connect": "2s", "total": "4s"}, "drain_timeout": "3s"}
        dead = f"http://127.0.0.1:{self._refusing.getsockname()[1]}"
        self.gateway = Gateway(folder, [
            route(self.partner, **limits),
            route(self.partner, name="drops", path="/drops", ledger="drops", **limits),
            route(f"http://localhost:{self.partner.port}", name="named", path="/named", **limits),
            route(dead, name="dead", path="/dead", retry_connect=1, **limits),
            self.hook("hook", True, limits),
            self.hook("barred", False, limits),
            {"name": "mail", "path": "/mail", "kind": "smtp", "upstream": self.relay.url, "smtp": {"starttls": "off"}, **limits},
        ], workers=1, shutdown_grace="6s", limits={"request_timeout": "5s"})

    def hook(self, name, allow_private, limits):
        rules = {"allow_hosts": ["localhost"], "ports": [self.partner.port], "allow_http": True, "allow_private": allow_private,
                 "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"]}
        return {"name": name, "path": f"/{name}", "kind": "webhook", "webhook": rules, **limits}

    def mail_came(self, session):
        """A mail at its final dot stands in the partner's log like a call, with its client's body."""
        name = re.search(rb"^Subject: (\S+)", session.mail.data, re.M)[1].decode()
        got = Request(f"POST /mail/{name} HTTP/1.1\r\n\r\n".encode(), -session.number, time.monotonic())
        got.body = mail(name)
        got.answered = time.monotonic()
        self.partner.requests.append(got)

    def close(self):
        self.relay.close()
        self.partner.close()
        self._refusing.close()
        if self.gateway.process.poll() is None:
            self.gateway.process.kill()
            self.gateway.process.wait()
        Gateway.running.discard(self.gateway)

    # -- calls

    def new(self, name, where, token, key, body=b"x"):
        told = Told(name, where, key, token, body)
        self.told.append(told)
        return told

    def exchange(self, connection, told, headers=(), body=None):
        """Sends one request and notes what came back; False when the connection is of no more use."""
        body = told.body if body is None else body
        told.begun = time.monotonic()
        try:
            connection.send(request("POST", f"/{told.where}/{told.name}", [*fenced(told.token, told.key), *headers], body))
            told.answer = connection.receive()
            told.closed = not told.answer.complete
        except socket.timeout:
            told.trouble = f"hangs: no answer in {CALL_SECONDS} s"
        except (Closed, OSError):
            told.closed = True
        except BadAnswer as error:
            if "ends inside" in str(error):
                told.closed = True
            else:
                told.trouble = f"nonsense: {error}"
        return told.answer is not None and told.answer.complete and told.answer.get("Connection") != "close"

    def call(self, name, where, token, key, body=b"x", headers=(), raw=None):
        told = self.new(name, where, token, key, body)
        self.carry(told, headers, raw)
        return told

    def carry(self, told, headers=(), raw=None):
        try:
            with self.gateway.connect(CALL_SECONDS) as connection:
                self.exchange(connection, told, headers, raw)
        except OSError:
            told.closed = True

    def target(self, name):
        return [("Fencegate-Target", f"http://localhost:{self.partner.port}/{name}")]

    def kept(self, *calls):
        """Several on one connection, as long as it lives."""
        try:
            with self.gateway.connect(CALL_SECONDS) as connection:
                for call in calls:
                    if not self.exchange(connection, self.new(*call)):
                        return
        except OSError:
            pass

    def crowd(self):
        """Token 1 is held by the partner, 2 waits for it, 3 supersedes 2 and waits."""
        held = Held()
        self.partner.on("held", held)
        tolds = [self.new("held", "pay", 1, "crowd"), self.new("second", "pay", 2, "crowd"), self.new("third", "pay", 3, "crowd")]
        held_one, second, third = (threading.Thread(target=self.carry, args=(told,), daemon=True) for told in tolds)
        held_one.start()
        self.soon(lambda: self.partner.seen("held") or not held_one.is_alive())
        second.start()
        self.soon(lambda: self.fence_is("crowd", 2) or not second.is_alive())
        third.start()
        self.soon(lambda: not second.is_alive() and (self.fence_is("crowd", 3) or not third.is_alive()))
        held.release()
        for each in (held_one, second, third):
            each.join(CALL_SECONDS + 5)

    def soon(self, look):
        """Waits for what a failure may prevent."""
        try:
            eventually(look, 1.0)
        except AssertionError:
            pass

    def fence_is(self, key, token):
        answer = self.look(f"/v1/fences/default/{key}")
        return answer is not None and answer.status == 200 and int(answer.json["highest"]) >= token

    def look(self, path, method="GET", body=b""):
        """The admin listener's answer; None when there is none. One that hangs is asked nothing more."""
        if self.admin_troubles:
            return None
        headers = [("Authorization", f"Bearer {self.gateway.admin_token}")]
        try:
            with Connection(self.gateway.admin_port, LOOK_SECONDS) as connection:
                connection.send(request(method, path, headers, body, host="localhost"))
                return connection.receive(method)
        except socket.timeout:
            self.admin_troubles.append(f"ADMIN: {method} {path} hangs")
        except (Closed, OSError):
            pass
        except BadAnswer as error:
            if "ends inside" not in str(error):
                self.admin_troubles.append(f"ADMIN: {method} {path}: {error}")
        return None

    def play(self):
        """All steps but the end of the gateway."""
        self.call("raise", "pay", 5, "one")
        self.kept(("equal", "pay", 5, "one"), ("stale", "pay", 4, "one"), ("higher", "pay", 6, "one"))
        self.call("missing", "pay", None, "one")
        self.call("drops-raise", "drops", 7, "two")
        self.kept(("drops-equal", "drops", 7, "two"), ("drops-stale", "drops", 6, "two"))
        self.call("big", "pay", 1, "three", BIG)
        self.call("chunked", "pay", 2, "three", b"chunks", [("Transfer-Encoding", "chunked")], b"6\r\nchunks\r\n0\r\n\r\n")
        self.call("stream", "pay", 1, "four")
        self.call("refused", "dead", 1, "five")
        self.call("named", "named", 1, "six")
        self.call("hook", "hook", 1, "seven", headers=self.target("hook"))
        self.call("barred", "barred", 1, "eight", headers=self.target("barred"))
        for name, token in (("mail-one", 1), ("mail-two", 2), ("mail-stale", 1)):
            self.call(name, "mail", token, "nine", mail(name), JSON)
        self.call("mail-bad", "mail", 3, "nine", b"{", JSON)
        self.crowd()
        for path in ("/healthz", "/readyz", "/metrics", "/v1/fences/default/one", "/v1/fences", "/v1/audit?key=one",
                     "/v1/effects?state=in-doubt"):
            self.look(path)
        raised = self.look("/v1/fences/default/raised", "PUT", b'{"token":"43","reason":"sweep"}')
        self.raised = raised is not None and raised.complete and raised.status == 200
        reloads = len(self.reloads())
        self.gateway.reload()
        self.soon(lambda: len(self.reloads()) > reloads)
        self.call("reloaded", "pay", 7, "one")
        return self

    def reloads(self):
        return [line for line in list(self.gateway.log) if line.get("event") == "reload"]

    def works_again(self):
        """A fresh key goes through within a few seconds (the store tries again once a second)."""
        numbers = itertools.count(1)

        def fresh():
            name = f"fresh-{next(numbers)}"
            told = self.call(name, "pay", 1, name)
            return told.status == 200 or told.trouble or self.gateway.process.poll() is not None

        deadline = time.monotonic() + 6.0
        while not fresh() and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.told[-1].status == 200

    def admin_works(self):
        answer = self.look("/healthz")
        return answer is not None and answer.status == 200


# -- what must hold


EXPECTED = {"raise": 200, "equal": 200, "stale": 412, "higher": 200, "missing": 428, "drops-raise": 200, "drops-equal": 200,
            "drops-stale": 412, "big": 200, "chunked": 200, "stream": 200, "refused": 502, "named": 200, "hook": 200, "barred": 422,
            "mail-one": 202, "mail-two": 202, "mail-stale": 412, "mail-bad": 400, "held": 200,
            "second": 412, "third": 200, "reloaded": 200}


def arrived(partner, name):
    return [r for r in partner.requests if r.target.rsplit("/", 1)[1] == name]


def truth(told, partner):
    """What the client was told beside what the partner saw."""
    whole = arrived(partner, told.name)
    part = [p for p in partner.partial if f"/{told.name} ".encode() in p[:200]]
    if told.trouble:
        yield f"{told!r}"
    if len(whole) + len(part) > 1:
        yield f"DOUBLE SEND: {told.name} came {len(whole)} times whole, {len(part)} times in part"
    if told.effect == "sent" and not whole:
        yield f"FALSE sent: {told!r}, the partner never saw it whole"
    if told.effect == "not-sent" and (whole or part):
        yield f"FALSE not-sent: {told!r}, the partner has it"
    if told.answer is not None and told.effect not in ("sent", "not-sent", "unknown"):
        yield f"no effect in the answer: {told!r}"
    if told.where == "hook" and whole and len((whole[0].get("webhook-signature") or "").split("v1,")) != 3:
        yield f"UNSIGNED: {told.name} arrived with the signature {whole[0].get('webhook-signature')}"
    if told.where == "barred" and whole:
        yield f"BARRED: {told.name} reached an address that its route does not allow"
    if whole and whole[0].body != told.body:
        yield f"{told.name}: the body arrived changed"
    if told.effect == "sent" and told.answer.complete and told.where != "mail":
        want = BLOCK * BLOCKS if told.name == "stream" else b"ok"
        if told.answer.body != want:
            yield f"{told.name}: a complete answer of {len(told.answer.body)} bytes that is not the partner's"


def order(tolds, partner):
    """Tokens of a key never fall, and a higher one begins when the lower one has ended. A call that was given up after
    its bytes had left (`unknown`, or nobody was told) may still be read by the partner after a newer one."""
    for key in {t.key for t in tolds}:
        of_key = [(r, t) for r in partner.requests for t in tolds if t.key == key and r.target.rsplit("/", 1)[1] == t.name]
        for (before, low), (after, high) in zip(of_key, of_key[1:]):
            given_up = high.effect in ("unknown", None) and high.begun < low.begun
            if (high.token or 0) < (low.token or 0) and not given_up:
                yield f"STALE CALL: {high.name} (token {high.token}) after {low.name} (token {low.token})"
            if high.token != low.token and low.effect == "sent" and after.began < (before.answered or after.began + 1):
                yield f"OVERLAP: {high.name} began before {low.name} had ended"


def evidence(tolds, partner, records, fences):
    """The store after a restart: every arrival is recorded, no record contradicts the partner's log."""
    outcomes = {"sent", "not-sent", "unknown", "dropped"}
    for told in tolds:
        found = [r for r in records if r.get("path", "").rsplit("/", 1)[-1] == told.name and r["kind"] in outcomes]
        came = arrived(partner, told.name)
        if len(found) > 1:
            yield f"{told.name} has {len(found)} records: {[(r['kind'], r.get('reason')) for r in found]}"
        if told.recorded and came and not found:
            yield f"LOST: {told.name} arrived at the partner and is in no record"
        for record in found:
            if came and record["kind"] in ("not-sent", "dropped"):
                yield f"FALSE RECORD: {told.name} is {record['kind']} and arrived at the partner"
            if not came and record["kind"] == "sent":
                yield f"FALSE RECORD: {told.name} is sent and never arrived"
            if told.effect is not None and not contradicts_not(told, record):
                yield f"{told!r} but its record is {record['kind']} {record.get('reason')}"
        if told.status == 412 and not [r for r in found if r["kind"] == "dropped"]:
            yield f"LOST DROP: {told!r} without a record"
        if came and told.token is not None and (fences.get(told.key) or 0) < told.token:
            yield f"LOST TOKEN: {told.name} was sent with {told.token}, the fence is {fences.get(told.key)}"


def contradicts_not(told, record):
    """The record may know less than the client (a crash), never something else."""
    return record["kind"] == told.effect or record["kind"] == "unknown" or (told.effect == "not-sent" and record["kind"] == "dropped")


def verify(tolds, partner, records, fences):
    for told in tolds:
        yield from truth(told, partner)
    yield from order(tolds, partner)
    if records is not None:
        yield from evidence(tolds, partner, records, fences)


def unchanged(tolds):
    """Of a run in which nothing failed."""
    for told in tolds:
        if told.name in EXPECTED and told.status != EXPECTED[told.name]:
            yield f"without a failure: {told!r}, expected {EXPECTED[told.name]}"
