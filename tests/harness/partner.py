"""The partner stand-in: does to each call what its script says, and notes what it saw."""

import re
import socket
import struct
import time

from loop import HEAD_END

RESET = struct.pack("ii", 1, 0)


class Partner:
    """Does to each call what its script says. `calls` is the load's: id -> Call."""

    def __init__(self, loop, calls):
        self.loop, self.calls = loop, calls
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.connections = set()
        self.arrived = 0
        self.strangers = []
        self.on_arrival = None  # called with each call the moment that it has arrived
        loop.watch(self.listener, self._accept)

    def _accept(self):
        try:
            while True:
                sock = self.listener.accept()[0]
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections.add(PartnerConnection(self, sock))
        except BlockingIOError:
            pass

    def busy(self):
        return any(connection.call for connection in self.connections)

    def close(self):
        self.drop_all()
        self.loop.forget(self.listener)
        self.listener.close()

    def drop_all(self):
        """The gateway is dead: nothing of it is at the partner any more."""
        for connection in list(self.connections):
            connection.close()


class PartnerConnection:
    __slots__ = ("partner", "loop", "sock", "buffer", "call", "uses", "mute")

    def __init__(self, partner, sock):
        self.partner, self.loop, self.sock = partner, partner.loop, sock
        self.buffer = b""
        self.call = None  # the one that is being worked on
        self.uses = 0
        self.mute = False
        self.loop.watch(sock, self.readable)

    def readable(self):
        try:
            data = self.sock.recv(262144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if self.call is not None:
                self.call.gave_up = True
            self.close()
            return
        self.buffer = self.buffer + data if self.buffer else data
        head = self.buffer.find(HEAD_END)
        if head < 0:
            return
        length = re.search(rb"\r\nContent-Length: (\d+)\r\n", self.buffer[:head + 2])
        end = head + 4 + (int(length[1]) if length else 0)
        if len(self.buffer) >= end:
            self.arrival(self.buffer[:head], self.buffer[head + 4:end])
            self.buffer = self.buffer[end:]

    def arrival(self, head, body):
        partner, loop = self.partner, self.loop
        loop.clock += 1
        call = partner.calls.get(number_of(head))
        if call is None:
            partner.strangers.append(head)
            return
        call.arrivals += 1
        partner.arrived += 1
        key = call.key
        if call.arrivals == 1:
            call.arrived = loop.clock
            call.seen_at = time.monotonic()
            call.use = self.uses + 1
            if body != call_body(call):
                call.trouble = f"the partner got the body {body[:80]!r}"
            if call.token < key.cleared:
                call.late = key.cleared
            if key.highest_arrived is not None and key.highest_arrived.token > call.token:
                call.above = key.highest_arrived
            else:
                key.highest_arrived = call
            for other in key.at_partner.values():
                if other.token < call.token:
                    call.overlapped = other
                    break
        if self.call is not None:
            call.trouble = "came on a connection with an unanswered call"
        self.call = call
        self.uses += 1
        key.learn(call.token)
        key.at_partner[call.id] = call
        if partner.on_arrival is not None:
            partner.on_arrival(call)
        delay = call.script[1]
        if delay:
            loop.after(delay, lambda: self.act(call))
        else:
            self.act(call)

    # What the partner does. Each ends the call in our books before the kernel hears of it: so whatever the gateway
    # sends because of it arrives later, and "still at the partner" is never said of a call that the gateway could
    # have taken for ended.

    def act(self, call):
        if self.call is call and not self.mute:
            getattr(self, "do_" + call.script[0])(call)

    def end(self, call):
        self.call = None
        call.key.at_partner.pop(call.id, None)

    def answer(self, call, status=200, more=b""):
        call.answered = status
        self.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(reply_body(call)), more, reply_body(call)))

    def write(self, data):
        try:
            self.sock.send(data)
        except OSError:
            pass

    def do_answer(self, call):
        call.full = True
        self.end(call)
        self.answer(call)

    def do_error(self, call):
        call.full = True
        self.end(call)
        self.answer(call, call.script[2])

    def do_split(self, call):
        """The head and a part of the body first."""
        body = reply_body(call)
        call.answered = 200
        self.write(b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body[:3]))
        self.loop.after(call.script[2], lambda: self.finish_split(call, body[3:]))

    def finish_split(self, call, rest):
        if self.call is call:
            call.full = True
            self.end(call)
            self.write(rest)

    def do_bye(self, call):
        call.full = True
        self.end(call)
        self.answer(call, more=b"Connection: close\r\n")
        self.close()

    def do_idle(self, call):
        """Answers, and closes the connection a moment later, whatever comes on it meanwhile."""
        self.end(call)
        self.answer(call)
        call.full = call.script[3] != "reset"  # it may overtake the answer
        how = {"close": self.close, "reset": self.reset, "take": self.take_and_close}[call.script[3]]
        self.loop.after(call.script[2], how)

    def take_and_close(self):
        """What has come meanwhile was read, but nobody will answer it."""
        self.mute = True
        if self.sock.fileno() >= 0:
            self.readable()
        self.close()

    def do_close(self, call):
        self.close()

    def do_reset(self, call):
        self.reset()

    def do_partial(self, call):
        """Less than a status line."""
        self.end(call)
        self.write(b"HTTP/1.1 20")
        self.close()

    def do_garbage(self, call):
        self.end(call)
        self.write(b"\x00\x01nonsense\r\n\r\n")
        self.close()

    def do_short(self, call):
        """Promises more than it sends."""
        self.end(call)
        call.answered = 200
        self.write(b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\n%s" % reply_body(call))
        self.close()

    def reset(self):
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        except OSError:
            pass
        self.close()

    def close(self):
        if HEAD_END in self.buffer:
            call = self.partner.calls.get(number_of(self.buffer))
            if call is not None:
                call.partial = True
        if self.call is not None:
            self.call.full = False
            self.end(self.call)
        self.partner.connections.discard(self)
        self.loop.forget(self.sock)
        self.sock.close()


def number_of(head):
    """POST /17 HTTP/1.1"""
    found = re.match(rb"POST /(\d+) HTTP/1\.1\r\n", head)
    return found and int(found[1])


def call_body(call):
    return b"effect-%d" % call.id + b"." * (call.id % 7 * 9 if call.id % 50 else 30000)


def reply_body(call):
    return b'{"id":%d}' % call.id
