"""What the harnesses' parts share: the epoll loop, and the notes on calls and keys that clients and partner write.

Clients, lock service and partner stand-in run in one thread and one loop. So whatever they saw is in one order, and the
checks need no clock of the wall: what the partner answered before it was answered when a later line here ran. A number,
`clock`, counts what was seen.
"""

import heapq
import select
import time

HEAD_END = b"\r\n\r\n"


class Call:
    """One request: what was decided, what its client was told, what the partner saw of it."""

    __slots__ = ("id", "key", "token", "script", "manner", "sent", "known", "told", "status", "effect", "reason",
                 "effect_id", "audit_id", "highest", "body", "complete", "arrivals", "arrived", "answered", "full",
                 "gave_up", "partial", "above", "overlapped", "trouble", "records",
                 "seen_at", "use", "late", "outlived")

    def __init__(self, number, key, token, script, manner):
        self.id, self.key, self.token, self.script, self.manner = number, key, token, script, manner
        self.sent = 0  # clock when the last byte of it was handed to the kernel; 0: never
        self.known = 0  # highest token of the key that was known to be accepted by then
        self.told = 0  # clock when its client had an answer; 0: none
        self.status = self.effect = self.reason = self.effect_id = self.audit_id = self.body = None
        self.highest = 0
        self.complete = False  # the client has all of the answer
        self.arrivals = 0  # how often the partner saw it
        self.arrived = 0  # clock of the first time
        self.answered = None  # the status of the partner's answer
        self.full = False  # that answer was whole, and the connection was left alone
        self.gave_up = False  # the gateway closed the connection before an answer
        self.partial = False  # the partner saw a part of it
        self.above = None  # a call with a higher token that had arrived before this one
        self.overlapped = None  # a call with a lower token that was at the partner when this one arrived
        self.late = 0  # arrived after the gateway had said that no call below this token is in flight any more
        self.outlived = 0  # the same, but it was still at the partner
        self.seen_at = 0.0  # monotonic seconds of the arrival
        self.use = 0  # it was the how-manieth call on its connection
        self.trouble = None
        self.records = []  # of the audit

    def __str__(self):
        seen = {name: getattr(self, name) for name in self.__slots__ if name not in ("above", "overlapped", "body", "seen_at")}
        seen["key"] = self.key.name.decode()
        seen["records"] = [{k: r[k] for k in ("id", "kind", "reason", "effect_id", "highest") if k in r} for r in self.records]
        return " ".join(f"{name}={value}" for name, value in seen.items() if value not in (None, 0, False, []))


class Loop:
    def __init__(self):
        self.poll = select.epoll()
        self.handlers = {}
        self.timers = []
        self.clock = 0
        self.precise = False  # burn time rather than be late

    def close(self):
        self.poll.close()

    def watch(self, sock, handler, events=select.EPOLLIN):
        fd = sock.fileno()
        self.handlers[fd] = handler
        self.poll.register(fd, events)

    def forget(self, sock):
        fd = sock.fileno()
        if fd >= 0 and self.handlers.pop(fd, None) is not None:
            self.poll.unregister(fd)

    def after(self, seconds, what):
        self.at(time.monotonic() + seconds, what)

    def at(self, when, what):
        self.clock += 1
        heapq.heappush(self.timers, (when, self.clock, what))

    def turn(self, patience):
        timers = self.timers
        if timers:
            patience = min(patience, max(0, timers[0][0] - time.monotonic()))
            if self.precise and patience < 0.002:
                patience = 0
        handlers = self.handlers
        for fd, _ in self.poll.poll(patience):
            handler = handlers.get(fd)
            if handler is not None:
                handler()
        while timers and timers[0][0] <= time.monotonic():
            heapq.heappop(timers)[2]()

    def run(self, done, seconds, step=0.05):
        """True when done() came true in time; it is asked after each turn, every `step` seconds at least."""
        deadline = time.monotonic() + seconds
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.turn(min(left, step))
        return True


class Lease:
    """What the lock service knows of one key."""

    def __init__(self, name, first):
        self.name = name
        self.token = self.first = first  # the newest that it has handed out
        self.known = 0  # highest that was seen to be accepted
        self.highest_arrived = None  # the call with the highest token that the partner saw
        self.announced = {}  # token -> clock when the lock service told the gateway of it
        self.confirmed = set()  # those that the gateway said yes to
        self.cleared = 0  # no call below it is in flight, the gateway said
        self.at_partner = {}  # id -> call, between arrival and the partner's last word on it

    def grant(self, step):
        self.token = min(self.token + step, 2**64 - 1)
        return self.token

    def learn(self, token):
        if token > self.known:
            self.known = token
