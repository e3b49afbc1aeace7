"""What is decided beforehand, all of it from one seed: route, keys, clients, the steps of each, the partner's scripts."""

import random
from typing import NamedTuple

from loop import Lease

FIRST_TOKENS = (1, 9, 99, 2**31 - 3, 2**53 - 5, 2**63 - 10, 2**64 - 2_000_000)
FAULTS = ("close", "reset", "partial", "garbage", "short", "bye", "idle", "error")


class Step(NamedTuple):
    key: int
    kind: str  # raise: a new lease; hold: the lease held, stale perhaps; join: the newest lease; guess: an older token
    size: int
    script: tuple  # what the partner does: (name, delay, ...)
    manner: str  # stay, leave (after the request went out), cut (by a reset, before it is whole), cut short (by a close)
    leave_after: float
    pause: float  # before it


class Raise(NamedTuple):
    """The lock service tells the gateway itself."""

    key: int
    size: int
    pause: float
    wait: bool  # for older calls to end


class Plan:
    def __init__(self, seed, requests, leave=False, announce=False):
        rng = self.rng = random.Random(f"history {seed}")
        self.route = {"ledger": rng.choice(["effects", "effects", "drops"]),
                      "on_supersede": rng.choice(["drain", "drain", "abort", "overlap"])}
        self.workers = rng.choice([1, 2, 2, 4])
        self.clients = rng.choice([16, 32, 64])
        self.keys = [Lease(b"key-%d" % i, rng.choice(FIRST_TOKENS)) for i in range(rng.randint(2, 8))]
        self.raises = rng.choice([0.03, 0.1, 0.3])
        self.stale = rng.choice([0.05, 0.2])
        self.faults = rng.choice([0.0, 0.05, 0.2])
        self.slowness = rng.choice([0.001, 0.003, 0.008])
        self.slow = rng.choice([0.1, 0.5])
        self.leave = leave
        self.cut = rng.choice(["cut", "cut", "cut", "cut short"])  # the gateway waits request_timeout for the rest of those
        self.steps = [self._step(rng) for _ in range(requests)]
        self.announcements = []
        if announce:
            rate = rng.choice([0.001, 0.005])
            self.announcements = [[Raise(rng.randrange(len(self.keys)), rng.choice([1, 1, 2]), rng.uniform(0, rate),
                                         rng.random() < 0.7) for _ in range(requests // 50)] for _ in range(3)]

    def _script(self, rng):
        delay = rng.uniform(0, self.slowness) if rng.random() < self.slow else 0
        name = "answer"
        if rng.random() < self.faults:
            name = rng.choice(FAULTS)
        elif rng.random() < 0.1:
            name = "split"
        if name == "error":
            return name, delay, rng.choice([500, 503, 412, 409, 404])
        if name == "split":
            return name, delay, rng.uniform(0, self.slowness)
        if name == "idle":
            return name, delay, rng.uniform(0, 0.003), rng.choice(["close", "reset", "take"])
        return name, delay

    def _step(self, rng):
        kind = "raise"
        if rng.random() >= self.raises:
            kind = "guess" if rng.random() < self.stale else rng.choice(["hold", "join", "join"])
        manner, after = "stay", 0.0
        if self.leave and rng.random() < 0.3:
            manner = "leave" if rng.random() < 0.8 else self.cut
            after = rng.uniform(0, 0.003) if rng.random() < 0.6 else 0.0
        pause = rng.uniform(0, 0.01) if rng.random() < 0.03 else 0.0
        return Step(rng.randrange(len(self.keys)), kind, rng.choice([1, 1, 2, 3, 1000]), self._script(rng), manner, after,
                    pause)
