"""A stand-in for a partner: a raw-socket HTTP server that records every byte and misbehaves on request.

Each connection has a thread. A test gives its requests a mark of their own (one segment of the path) and says with
`on(mark, handler)` what shall be answered; what has no handler gets `200 ok` and keeps the connection open.
"""

import re
import select
import socket
import struct
import threading
import time


class Request:
    def __init__(self, head, connection, began):
        self.head = head  # raw, up to and with the empty line
        self.body = b""
        self.connection = connection  # number of the connection, from 0
        self.began = began  # monotonic seconds: head read
        self.answered = None  # ... and the moment before the last bytes of the answer went out
        lines = head[:-4].split(b"\r\n")
        self.method, self.target, self.version = (lines[0].decode("latin-1").split(" ") + ["", ""])[:3]
        self.headers = []
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            self.headers.append((name.decode("latin-1"), value.strip(b" \t").decode("latin-1")))

    def all(self, name):
        return [value for n, value in self.headers if n.lower() == name.lower()]

    def get(self, name):
        values = self.all(name)
        assert len(values) < 2, f"the partner got {name} {len(values)} times"
        return values[0] if values else None


class Exchange:
    """One request and the socket to answer it on; what a handler gets."""

    def __init__(self, request, stream):
        self.request = request
        self._stream = stream
        self.open = True

    def send(self, *pieces):
        for piece in pieces:
            self.request.answered = time.monotonic()
            self._stream.sock.sendall(piece)

    def reply(self, status=200, body=b"ok", headers=()):
        lines = [b"HTTP/1.1 %d Whatever" % status]
        lines += [n.encode() + b": " + v.encode("latin-1") for n, v in headers]
        if status not in (204, 304) and not any(n.lower() == "content-length" for n, _ in headers):
            lines.append(b"Content-Length: %d" % len(body))
        if self.request.method == "HEAD":
            body = b""
        self.send(b"\r\n".join(lines) + b"\r\n\r\n" + body)

    def read_body(self):
        self.request.body = self._stream.read_body(self.request)
        return self.request.body

    def close(self):
        self.open = False

    def reset(self):
        self._stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.open = False

    def peer_left(self, timeout=10.0):
        """Waits until the gateway closes its side of this connection."""
        readable = select.select([self._stream.sock], [], [], timeout)[0]
        try:
            return bool(readable) and self._stream.sock.recv(1, socket.MSG_PEEK) == b""
        except ConnectionResetError:
            return True


class Stream:
    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""

    def fill(self):
        piece = self.sock.recv(262144)
        if not piece:
            raise EOFError
        self.buffer += piece

    def read_until(self, end):
        while end not in self.buffer:
            self.fill()
        index = self.buffer.index(end) + len(end)
        piece, self.buffer = self.buffer[:index], self.buffer[index:]
        return piece

    def read_exactly(self, count):
        parts, have = [self.buffer[:count]], min(count, len(self.buffer))
        self.buffer = self.buffer[count:]
        while have < count:
            piece = self.sock.recv(min(count - have, 262144))
            if not piece:
                raise EOFError
            parts.append(piece)
            have += len(piece)
        return b"".join(parts)

    def read_body(self, request):
        if request.get("Transfer-Encoding") is not None:
            body = b""
            while True:
                size = int(self.read_until(b"\r\n"), 16)
                body += self.read_exactly(size)
                if self.read_until(b"\r\n") != b"\r\n":
                    raise EOFError
                if size == 0:
                    return body
        return self.read_exactly(int(request.get("Content-Length") or 0))


def ok(exchange):
    exchange.reply()


class Partner:
    def __init__(self, tls=None, backlog=1024, address=("127.0.0.1", 0)):
        self.default = ok
        self.requests = []  # in the order in which their heads came in
        self.connections = 0
        self.trouble = []  # connections that ended inside a request
        self._early = set()
        self._handlers = {}
        self._changed = threading.Condition()
        self._tls = tls
        self._socks = set()
        self._closing = False
        self._listener = socket.create_server(address, backlog=backlog)
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def on(self, mark, handler, early=False):
        """`early`: call the handler when the head is there; it reads the body itself if it wants it."""
        self._handlers[mark] = handler
        if early:
            self._early.add(mark)

    def seen(self, mark=None):
        """What came with that mark; without one: everything."""
        with self._changed:
            return [r for r in self.requests if mark is None or mark in marks(r.target)]

    def wait_seen(self, mark=None, count=1, timeout=10.0):
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                found = [r for r in self.requests if mark is None or mark in marks(r.target)]
                left = deadline - time.monotonic()
                if len(found) >= count:
                    return found
                assert left > 0, f"the partner waited for {count} requests {mark}, got {len(found)}"
                self._changed.wait(left)

    def all_closed(self):
        return not self._socks

    def close(self):
        self._closing = True
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # a thread that waits in accept() would keep it open
        except OSError:
            pass
        self._listener.close()
        for sock in list(self._socks):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _accept(self):
        while True:
            try:
                sock = self._listener.accept()[0]
            except OSError:
                return
            number = self.connections
            self.connections += 1  # before it can be answered: a test that has its answer may look
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock, number):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls:
                sock = self._tls.wrap_socket(sock, server_side=True)
            self._socks.add(sock)
            stream = Stream(sock)
            while not self._closing and self._one(stream, number):  # close() may have come before this socket was in the set
                pass
        except (EOFError, OSError) as error:
            self.trouble.append((number, error))
        finally:
            self._socks.discard(sock)
            sock.close()

    def _one(self, stream, number):
        head = stream.read_until(b"\r\n\r\n")
        request = Request(head, number, time.monotonic())
        mark = next((m for m in marks(request.target) if m in self._handlers), None)
        early = mark in self._early
        if not early:
            request.body = stream.read_body(request)
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        exchange = Exchange(request, stream)
        self._handlers.get(mark, self.default)(exchange)
        return exchange.open and not self._closing


def marks(target):
    return re.split("[/?&=]", target)


class Held:
    """A handler that holds every request until `release()`; then answers like `then`."""

    def __init__(self, then=ok):
        self._free = threading.Event()
        self._then = then

    def __call__(self, exchange):
        self._free.wait(60)
        self._then(exchange)

    def release(self):
        self._free.set()


class FullListener:
    """An address whose connects hang: the kernel's accept queue is full. `accept_all()` frees it."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._fillers = []
        while True:
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.port))
            self._fillers.append(filler)
            if not select.select([], [filler], [], 0.05)[1]:
                break

    def serve_from_now_on(self, handler=ok):
        """Turns into a partner that answers."""
        for filler in self._fillers:
            filler.close()
        partner = Partner()
        partner.default = handler
        partner._listener.close()
        partner._listener = self._listener
        self._listener.listen(64)
        threading.Thread(target=partner._accept, daemon=True).start()
        return partner

    def close(self):
        for filler in self._fillers:
            filler.close()
        self._listener.close()
