"""Clients and a lock service against one gateway, with one partner stand-in.

What happens is decided beforehand, from a seed (plan.py): which client calls with which kind of token, what the partner
does to it. When it happens is up to kernel and gateway.
"""

import re
import select
import socket

from loop import HEAD_END, Call
from partner import RESET, Partner, call_body

EFFECT = b"Fencegate-Effect: "
EFFECT_ID = b"Fencegate-Effect-Id: "


def header(head, name):
    start = head.find(name)
    if start < 0:
        return None
    start += len(name)
    return head[start:head.index(b"\r", start)].decode()


class Client:
    """One worker process: a kept-alive connection and a list of steps, done one after the other."""

    def __init__(self, load, steps):
        self.load, self.loop = load, load.loop
        self.steps = iter(steps)
        self.leases = {}  # key -> the token this worker holds
        self.sock = None
        self.buffer = b""
        self.call = None
        self.fresh = False  # nothing has come on this connection yet
        self.done = False

    def connect(self):
        self.sock = socket.create_connection(("127.0.0.1", self.load.port))
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.loop.watch(self.sock, self.readable)

    def disconnect(self):
        if self.sock is not None:
            self.loop.forget(self.sock)
            self.sock.close()
            self.sock = None
        self.buffer = b""

    def next(self):
        if self.load.stopped:
            self.done = True
            return
        step = next(self.steps, None)
        if step is None:
            self.done = True
            self.disconnect()
            return
        if step.pause:
            self.loop.after(step.pause, lambda: self.start(step))
        else:
            self.start(step)

    def token(self, step, lease):
        if step.kind == "raise":
            self.leases[lease] = lease.grant(step.size)
        elif step.kind == "hold":
            self.leases.setdefault(lease, lease.token)
        elif step.kind == "join":
            self.leases[lease] = lease.token
        else:  # guess: an old token of anybody's
            return max(lease.first, lease.token - step.size)
        return self.leases[lease]

    def start(self, step):
        load = self.load
        if load.stopped:
            self.done = True
            return
        lease = load.keys[step.key]
        call = self.call = load.new_call(lease, self.token(step, lease), step.script, step.manner)
        body = call_body(call)
        data = (b"POST /r/%d HTTP/1.1\r\nHost: g\r\nWorkflow-Key: %s\r\nFencing-Token: %d\r\nContent-Length: %d\r\n\r\n%s"
                % (call.id, lease.name, call.token, len(body), body))
        try:
            if self.sock is None:
                self.connect()
            if step.manner in ("cut", "cut short"):
                self.sock.sendall(data[:-1 - call.id % len(body)])
                if step.manner == "cut":
                    self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                self.call = None
                self.disconnect()
                self.next()
                return
            self.send(data)
        except OSError:
            self.lost()
            return
        self.loop.clock += 1
        call.sent, call.known = self.loop.clock, lease.known
        if step.manner == "leave":
            if step.leave_after:
                self.loop.after(step.leave_after, lambda: self.leave(call))
            else:
                self.leave(call)

    def send(self, data):
        sent = 0
        while sent < len(data):
            try:
                sent += self.sock.send(data[sent:])
            except BlockingIOError:
                select.select([], [self.sock], [], 5)

    def leave(self, call):
        if self.call is call and not self.load.stopped:
            self.call = None
            self.disconnect()
            self.next()

    def readable(self):
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.buffer = self.buffer + data if self.buffer else data
            self.look()
        else:
            self.lost()

    def lost(self):
        """The gateway closed the connection, perhaps in the middle of an answer."""
        call, self.call = self.call, None
        if call is not None and HEAD_END in self.buffer:
            self.read(call, self.buffer.index(HEAD_END))
        self.disconnect()
        if call is not None:
            if call.sent and not call.told:
                call.trouble = call.trouble or "its connection was closed without an answer"
            self.loop.after(0, self.next)

    def look(self):
        call = self.call
        if call is None:
            self.load.trouble.append(f"bytes that nobody asked for: {self.buffer[:100]!r}")
            self.disconnect()
            return
        head = self.buffer.find(HEAD_END)
        if head < 0:
            return
        length = header(self.buffer[:head + 2], b"Content-Length: ")
        end = head + 4 + int(length or 0)
        if len(self.buffer) < end:
            return
        call.complete = True
        self.read(call, head)
        closing = b"\r\nConnection: close" in self.buffer[:head + 2]
        self.buffer = self.buffer[end:]
        self.call = None
        if closing:
            self.disconnect()
        self.next()

    def read(self, call, head):
        text = self.buffer[:head + 2]
        self.loop.clock += 1
        call.told = self.loop.clock
        call.status = int(text[9:12])
        call.effect = header(text, EFFECT)
        call.effect_id = header(text, EFFECT_ID)
        call.body = self.buffer[head + 4:]
        if call.effect in ("sent", "unknown"):
            call.key.learn(call.token)
        elif call.effect == "not-sent":
            for name in ("reason", "audit_id", "highest"):
                found = re.search(rb'"%s":"([^"]*)"' % name.encode(), call.body)
                if found:
                    setattr(call, name, found[1].decode())
            call.highest = int(call.highest or 0)
            call.key.learn(call.highest)
        if call.effect == "unknown":
            found = re.search(rb'"reason":"([^"]*)"', call.body)
            call.reason = found and found[1].decode()


class LockService:
    """Tells the gateway of new leases before it hands them out, and waits until no older call is in flight."""

    def __init__(self, load, port, bearer, raises):
        self.load, self.loop, self.raises = load, load.loop, iter(raises)
        self.bearer = bearer.encode()
        self.buffer = b""
        self.done = False
        self.call = None
        self.told = 0
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setblocking(False)
        self.loop.watch(self.sock, self.readable)

    def next(self):
        step = next(self.raises, None)
        if step is None or self.load.stopped:
            self.done = True
            self.disconnect()
        else:
            self.loop.after(step.pause, lambda: self.announce(step))

    def announce(self, step):
        if self.load.stopped:
            self.done = True
            return
        self.key = self.load.keys[step.key]
        self.token = self.key.grant(step.size)
        self.loop.clock += 1
        self.key.announced[self.token] = self.loop.clock
        body = b'{"token":"%d"%s}' % (self.token, b',"wait":"10s"' if step.wait else b"")
        self.waits = step.wait
        data = (b"PUT /v1/fences/default/%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                % (self.key.name, self.bearer, len(body), body))
        try:
            self.sock.send(data)
        except OSError:
            self.lost()

    def readable(self):
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lost()
            return
        self.buffer += data
        head = self.buffer.find(HEAD_END)
        if head < 0:
            return
        end = head + 4 + int(header(self.buffer[:head + 2], b"Content-Length: "))
        if len(self.buffer) < end:
            return
        status, body = int(self.buffer[9:12]), self.buffer[head + 4:end]
        self.buffer = self.buffer[end:]
        self.answered(status, body)
        self.next()

    def lost(self):
        if not self.load.stopped:
            self.load.trouble.append(f"the admin listener closed the connection after {self.buffer!r}")
        self.done = True
        self.disconnect()

    def answered(self, status, body):
        """Another raise of the key may have overtaken this one: 409."""
        key = self.key
        if status == 409 and b'"would-lower"' in body and key.token > self.token:
            return
        if self.load.crashes and status == 503:
            return
        flying = re.search(rb'"in_flight":"?(\d+)', body)
        if status != 200 or not flying:
            self.load.trouble.append(f"PUT of {self.token} for {key.name}: {status} {body!r}")
            return
        self.told += 1
        key.confirmed.add(self.token)
        key.learn(self.token)
        if flying[1] != b"0":
            if self.waits:
                self.load.trouble.append(f"PUT of {self.token} for {key.name} waited in vain: {body!r}")
            return
        key.cleared = max(key.cleared, self.token)
        for call in key.at_partner.values():
            if call.token < self.token:
                call.outlived = self.token

    def disconnect(self):
        self.loop.forget(self.sock)
        self.sock.close()


class Load:
    """One set of keys, clients and calls against one gateway."""

    def __init__(self, loop):
        self.loop = loop
        self.calls = {}
        self.trouble = []
        self.stopped = False
        self.crashes = False  # the gateway will lose its disk: then it may say so
        self.last = 0
        self.keys = []
        self.clients = []
        self.partner = Partner(loop, self.calls)

    def new_call(self, lease, token, script, manner):
        self.last += 1
        call = self.calls[self.last] = Call(self.last, lease, token, script, manner)
        return call

    def begin(self, port, steps, clients, services=()):
        """Deals the steps out and starts."""
        self.port = port
        self.stopped = False
        self.clients = [Client(self, steps[i::clients]) for i in range(clients)] + list(services)
        for client in self.clients:
            client.next()

    def ended(self):
        return all(client.done for client in self.clients)

    def stop(self):
        """The gateway is gone."""
        self.stopped = True
        for client in self.clients:
            client.disconnect()
        self.partner.drop_all()
        self.loop.timers.clear()

    def close(self):
        self.stop()
        self.partner.close()
