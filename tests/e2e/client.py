"""A client on a raw socket: sends exactly the bytes it is given and reads answers strictly.

It is strict on purpose: an answer that a lenient library would repair (a body that ends too early, two lengths,
a bare line feed) is what these tests look for.
"""

import json
import re
import select
import socket

HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")


class BadAnswer(AssertionError):
    """What came back is not an HTTP/1.1 answer."""


class Closed(Exception):
    """The connection ended before an answer did begin."""


class Answer:
    def __init__(self, status, headers):
        self.status = status
        self.headers = headers  # (name, value) in the order they came
        self.body = b""
        self.complete = False  # the framing says that all of the body is here
        self.interim = []  # statuses of the 1xx answers that came first

    def all(self, name):
        return [value for n, value in self.headers if n.lower() == name.lower()]

    def get(self, name):
        values = self.all(name)
        assert len(values) < 2, f"{name} came {len(values)} times: {values}"
        return values[0] if values else None

    @property
    def effect(self):
        return self.get("Fencegate-Effect")

    @property
    def effect_id(self):
        return self.get("Fencegate-Effect-Id")

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def reason(self):
        """The reason of a refusal; None for what the partner answered."""
        if not (self.get("Content-Type") or "").startswith("application/problem+json"):
            return None
        return self.json.get("reason")

    def __repr__(self):
        return f"<{self.status} effect={self.all('Fencegate-Effect')} {self.headers} {self.body[:400]!r}>"


def to_bytes(text):
    return text if isinstance(text, bytes) else str(text).encode()


def fenced(token, key):
    """The two fencing headers; None leaves one out."""
    lines = [("Fencing-Token", token), ("Workflow-Key", key)]
    return [(name, value) for name, value in lines if value is not None]


def request(method, target, headers=(), body=b"", host="gw.test", version="HTTP/1.1"):
    """The bytes of one request. Content-Length is added unless the headers say how the body is framed."""
    lines = [to_bytes(method) + b" " + to_bytes(target) + b" " + to_bytes(version)]
    if host is not None:
        lines.append(b"Host: " + to_bytes(host))
    framed = False
    for name, value in headers:
        lines.append(to_bytes(name) + b": " + to_bytes(value))
        framed = framed or to_bytes(name).lower() in (b"content-length", b"transfer-encoding")
    if not framed and (body or method in ("POST", "PUT", "PATCH")):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Connection:
    def __init__(self, port, timeout=10.0):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, *pieces):
        for piece in pieces:
            self.sock.sendall(piece)

    def end_sending(self):
        self.sock.shutdown(socket.SHUT_WR)

    def _fill(self):
        """One more piece of input; False at the end of the connection."""
        try:
            piece = self.sock.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            return False
        self.buffer += piece
        return bool(piece)

    def silent(self, seconds):
        """True when nothing comes (and the connection stays open) for that long."""
        return not self.buffer and not select.select([self.sock], [], [], seconds)[0]

    def ended(self):
        """Waits for the other side to close; False when bytes come instead."""
        return not self.buffer and not self._fill()

    def _head_text(self):
        while b"\r\n\r\n" not in self.buffer:
            if not self._fill():
                if self.buffer:
                    raise BadAnswer(f"ends inside the head: {self.buffer[:300]!r}")
                raise Closed()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        return head

    def read_head(self):
        """The next final answer, without its body; what 1xx came before is in `interim`."""
        interim = []
        while True:
            lines = self._head_text().split(b"\r\n")
            first = re.fullmatch(rb"HTTP/1\.[01] ([1-9][0-9]{2}) ?([^\r\n]*)", lines[0])
            if not first:
                raise BadAnswer(f"no status line: {lines[0][:200]!r}")
            headers = []
            for line in lines[1:]:
                match = HEADER_LINE.fullmatch(line)
                if not match or b"\n" in line or b"\r" in line or b"\0" in line:
                    raise BadAnswer(f"no header line: {line[:200]!r}")
                headers.append((match[1].decode(), match[2].decode("latin-1")))
            status = int(first[1])
            if status >= 200:
                answer = Answer(status, headers)
                answer.interim = interim
                return answer
            interim.append(status)

    def pieces(self, answer, method="POST"):
        """The body, piece by piece as it comes; sets `complete` at its proper end."""
        coding, length = answer.get("Transfer-Encoding"), answer.get("Content-Length")
        if method == "HEAD" or answer.status in (204, 304):
            answer.complete = True
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise BadAnswer(f"framing: Transfer-Encoding {coding}, Content-Length {length}")
            yield from self._chunks(answer)
        elif length is not None:
            if not re.fullmatch("[0-9]+", length):
                raise BadAnswer(f"Content-Length: {length}")
            yield from self._counted(answer, int(length))
        else:
            yield from self._until_end(answer)

    def _counted(self, answer, left):
        while left:
            if not self.buffer and not self._fill():
                return
            piece, self.buffer = self.buffer[:left], self.buffer[left:]
            left -= len(piece)
            yield piece
        answer.complete = True

    def _line(self):
        while b"\r\n" not in self.buffer:
            if not self._fill():
                return None
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def _chunks(self, answer):
        while True:
            size = self._line()
            if size is None:
                return
            if not re.fullmatch(rb"[0-9A-Fa-f]+", size):
                raise BadAnswer(f"chunk size: {size[:100]!r}")
            left = int(size, 16)
            if left == 0:
                answer.complete = self._line() == b""
                return
            while left:
                if not self.buffer and not self._fill():
                    return
                piece, self.buffer = self.buffer[:left], self.buffer[left:]
                left -= len(piece)
                yield piece
            end = self._line()
            if end is None:
                return
            if end:
                raise BadAnswer(f"after a chunk: {end[:100]!r}")

    def _until_end(self, answer):
        while True:
            if self.buffer:
                piece, self.buffer = self.buffer, b""
                yield piece
            try:
                piece = self.sock.recv(65536)
            except ConnectionResetError:
                return  # a reset is no end
            if not piece:
                answer.complete = True
                return
            yield piece

    def receive(self, method="POST"):
        answer = self.read_head()
        answer.body = b"".join(self.pieces(answer, method))
        return answer
