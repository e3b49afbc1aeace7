#!/usr/bin/env python3
"""Mails to a relay that fails at random points: refuses, puts off, talks nonsense, closes, resets, stalls, speaks twice.

What the relay took is counted against what the workers were told: no mail is there twice, none that was told to be sent
is missing, none that was told not to be sent is there, and a key's mails come in the order of their tokens.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import pathlib
import random
import re
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "e2e"))

import rig  # noqa: E402
from relay import Relay, close, reset  # noqa: E402

POINTS = ("BANNER", "EHLO", "MAIL", "RCPT", "DATA", "MESSAGE", "DOT")
TIMEOUT = 0.8  # of the route
WORKERS = 8


class Faulty(Relay):
    """Draws at each point what happens there."""

    def __init__(self, rng, chance):
        super().__init__()
        self.rng, self.chance = rng, chance
        self.faults = collections.Counter()
        self.quiet = False
        self.arrivals = collections.defaultdict(list)  # mail -> clocks of its dots
        self.taken = collections.Counter()
        self.order = []  # (key, token, mail) as the dots came
        for point in POINTS:
            self.on(point, lambda session, point=point: self.draw(session, point))

    def draw(self, session, point):
        if point == "DOT":
            self.arrived(session)
        with self.lock:
            if self.quiet or self.rng.random() >= self.chance:
                return self.took(session, None, point)
            fault = self.rng.choice(("close", "reset", "4xx", "5xx", "421", "nonsense", "half", "twice", "slow", "stall", "then close"))
            wait = self.rng.uniform(0.01, 0.1)
            self.faults[f"{fault} at {point}"] += 1
            if fault in ("close", "reset", "half", "stall", "nonsense") and self.rng.random() < 0.5:
                self.took(session, None, point)  # taken, and the answer is lost
        if fault == "close":
            close(session)
        if fault == "reset":
            reset(session)
        if fault == "stall":
            time.sleep(TIMEOUT * 1.5)
            close(session)
        if fault == "slow":
            time.sleep(wait)
            return self.took(session, None, point)
        good = {"BANNER": "220 hi", "EHLO": "250 relay.test", "DATA": "354 go", "MESSAGE": None}.get(point, "250 ok")
        if fault == "half":
            session.sock.sendall((good or "250 ok")[:2].encode())
            close(session)
        if fault == "then close":
            self.took(session, good, point)
            if good:
                session.say(good)
            close(session)
        if fault == "twice" and point != "MESSAGE":
            return self.took(session, f"{good}\r\n{good}", point)
        reply = {"4xx": "451 later", "5xx": "554 no", "421": "421 closing"}.get(fault, "what?")
        if point == "MESSAGE":  # who refuses a message in its middle does not take it at its end
            session.say(reply)
            close(session)
        return reply

    def arrived(self, session):
        text = re.search(rb"^Subject: (.*(?:\r\n .*)*)", session.mail.data, re.M)[1].replace(b"\r\n", b"")
        session.mail_id = mail = json.loads(text)
        with self.lock:
            self.arrivals[mail["id"]].append(len(self.order))
            self.order.append((mail["key"], mail["token"], mail["id"]))

    def took(self, session, reply, point):
        """A 2xx to the dot, or what was about to be one, is a mail in the relay's queue."""
        if point == "DOT":
            self.taken[session.mail_id["id"]] += 1
        return reply


def send(gateway, mail):
    """What the worker was told: status, effect, reason."""
    body = json.dumps({"from": "a@jobs.example", "to": ["b@home.example", "c@home.example"], "subject": json.dumps(mail),
                       "text": "x" * mail["size"]})
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    try:
        connection.request("POST", "/r", body, {"Fencing-Token": str(mail["token"]), "Workflow-Key": mail["key"],
                                                "Content-Type": "application/json"})
        answer = connection.getresponse()
        content = json.loads(answer.read())
        return answer.status, answer.getheader("Fencegate-Effect"), content.get("reason"), answer.getheader("Fencegate-Effect-Id")
    finally:
        connection.close()


def judge(relay, mails, told, records):
    found = []
    by_effect = collections.defaultdict(list)
    for record in records:
        if "effect_id" in record:
            by_effect[record["effect_id"]].append(record["kind"])
    for mail in mails:
        status, effect, reason, effect_id = told[mail["id"]]
        dots, taken = len(relay.arrivals[mail["id"]]), relay.taken[mail["id"]]
        what = f"mail {mail} told {status} {effect} {reason}, {dots} dots, taken {taken} times"
        if dots > 1 or taken > 1:
            found.append(f"twice at the relay: {what}")
        if effect == "sent" and taken != 1:
            found.append(f"told sent and not there: {what}")
        if effect == "not-sent" and taken != 0:
            found.append(f"told not sent and there: {what}")
        if effect == "unknown" and reason not in ("upstream-failed", "upstream-timeout", "aborted"):
            found.append(f"unknown for no reason: {what}")
        if (status == 202) != (effect == "sent"):
            found.append(f"status and effect: {what}")
        if effect_id is not None:
            kinds = {"sent": "sent", "not-sent": "not-sent", "unknown": "unknown"}
            wanted = "dropped" if reason == "superseded" else kinds[effect]
            if by_effect[effect_id] != [wanted]:
                found.append(f"recorded {by_effect[effect_id]}: {what}")
    last = collections.defaultdict(int)
    for key, token, mail in relay.order:
        if token < last[key] and told[mail][1] != "unknown":  # given up, its dot may be read late
            found.append(f"token {token} of {key} came after {last[key]}")
        last[key] = max(last[key], token)
    return found


def run(seed, count, folder):
    rng = random.Random(f"mails {seed}")
    relay = Faulty(random.Random(f"relay {seed}"), 0.06)
    route = {"kind": "smtp", "upstream": relay.url, "smtp": {"starttls": "off"}, "ledger": "effects",
             "on_supersede": rng.choice(["drain", "drain", "abort"]), "timeout": {"connect": f"{int(TIMEOUT * 1000)}ms",
                                                                        "total": f"{int(TIMEOUT * 1000)}ms"}}
    gateway = rig.Gateway(folder, relay.port, route, 2)
    tokens = collections.Counter()
    mails = []
    for number in range(count):
        key = f"key{rng.randrange(12)}"
        tokens[key] += 1 if rng.random() < 0.4 or tokens[key] == 0 else 0
        token = tokens[key] - (1 if rng.random() < 0.1 and tokens[key] > 1 else 0)
        mails.append({"id": number, "key": key, "token": token, "size": rng.choice([10, 1000, 200_000])})
    try:
        gateway.start()
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            answers = list(pool.map(lambda mail: send(gateway, mail), mails))
        told = dict(enumerate(answers))
        deadline = time.monotonic() + 20
        while gateway.metric("fencegate_requests_live") > 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        found = judge(relay, mails, told, gateway.audit())
        if relay.errors:
            found.append(f"a line that is none: {relay.errors[0]!r}")
        counts = collections.Counter(f"{effect} {reason or ''}".strip() for _, effect, reason, _ in answers)
        gateway.process.terminate()
        status = gateway.process.wait(20)
        return found + ([f"exit status {status}; {gateway.said()}"] if status else []), counts, sum(relay.faults.values())
    except rig.Broken as error:
        return [str(error)], {}, 0
    finally:
        gateway.kill()
        relay.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mails", type=int, default=1000)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    with tempfile.TemporaryDirectory(prefix="fencegate-mails-") as folder:
        place = pathlib.Path(folder) / "gateway"
        place.mkdir()
        found, counts, faults = run(seed, options.mails, place)
    if found:
        print(f"FAILED: mails --seed {seed} --mails {options.mails}: {len(found)} violations, the first:")
        print("\n".join("  " + text for text in found[:6]))
    print(f"mails: {options.mails} mails, {faults} faults from seed {seed}: "
          + ", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    print(f"mails: {options.mails - len(found)} passed, {len(found)} failed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
