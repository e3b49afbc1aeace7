"""A mail relay under full control: answers or misbehaves at each point of the dialogue, and keeps what it took.

`on(point, action)` scripts it; points are BANNER, EHLO, STARTTLS, AUTH, MAIL, RCPT, DATA, MESSAGE (the first line of
the message), DOT and QUIT. An action is a reply (bytes or text; CRLF is added), or a function of the session that
returns one, or None to say nothing more about it; `close` and `reset` end the connection there.
"""

import base64
import contextlib
import re
import socket
import struct
import threading

from gateway import PATIENCE, eventually


class Gone(Exception):
    """This connection has ended."""


def close(session):
    session.end()


def reset(session):
    session.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    session.end()


def silent(session):
    """Says nothing, until the other side goes away."""
    with contextlib.suppress(OSError):
        while session.sock.recv(65536):
            pass
    session.end()


class Stuck:
    """Says something at a point and reads nothing more, until released."""

    def __init__(self, reply):
        self.reply, self.go = reply, threading.Event()

    def __call__(self, session):
        session.say(self.reply)
        self.go.wait(PATIENCE * 3)
        session.end()


class Held:
    """Holds the session at a point until it is released, then goes on with `reply`."""

    def __init__(self, reply=None):
        self.reply = reply
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self, session):
        self.reached.set()
        self.go.wait(PATIENCE * 3)
        return self.reply

    def wait(self):
        assert self.reached.wait(PATIENCE), "the dialogue did not get there"

    def release(self):
        self.go.set()


class Mail:
    def __init__(self, session):
        self.connection = session.number
        self.tls, self.login = session.tls, session.login
        self.sender, self.parameters = session.sender, session.parameters
        self.recipients = session.recipients
        self.raw = b""  # between DATA and the dot, as it came
        self.data = b""  # without the dots that stuffing added


class Session:
    def __init__(self, relay, sock, number):
        self.relay, self.sock, self.number = relay, sock, number
        self.file = None
        self.tls, self.login = False, None
        self.said, self.ended = 0, False  # replies; the connection is gone
        self.dropped = False
        self.clear()

    def clear(self):
        self.sender, self.parameters, self.recipients = None, "", []

    def end(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR) if not self.tls else None
        self.sock.close()
        raise Gone()

    def say(self, reply):
        if reply is not None:
            data = reply.encode() if isinstance(reply, str) else reply
            self.sock.sendall(data if data.endswith(b"\n") else data + b"\r\n")
            self.said += 1

    def line(self):
        line = self.file.readline(1 << 20)
        if not line:
            raise Gone()
        return line

    def choose(self, point, standard):
        """The reply at this point: as scripted, or the standard one."""
        action = self.relay.script.get(point, standard)
        reply = action(self) if callable(action) else action
        if callable(action) and reply is None:
            reply = standard
        return reply.encode() if isinstance(reply, str) else reply

    def act(self, point, standard):
        reply = self.choose(point, standard)
        self.say(reply)
        return (reply or b"").decode("latin-1")

    def run(self):
        if self.relay.implicit:
            self.wrap()
        self.file = self.sock.makefile("rb")
        self.act("BANNER", "220 relay.test ESMTP")
        while True:
            line = self.line()
            if self.dropped:
                raise Gone()  # a late word to a test that is over
            text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
            assert line.endswith(b"\r\n"), line
            self.relay.commands.append((self.number, text))
            verb, _, rest = text.partition(" ")
            getattr(self, "do_" + verb.lower(), self.do_other)(rest)

    def wrap(self):
        self.sock = self.relay.tls.wrap_socket(self.sock, server_side=True)
        self.file = self.sock.makefile("rb")
        self.tls = True

    def do_other(self, _):
        self.say("500 what?")

    def do_ehlo(self, _):
        offers = list(self.relay.offers)
        if self.relay.tls and not self.tls:
            offers.append("STARTTLS")
        if self.relay.auth is not None:
            offers.append("AUTH " + self.relay.auth)
        lines = ["relay.test", *offers]
        self.act("EHLO", "\r\n".join(f"250{'-' if i + 1 < len(lines) else ' '}{l}" for i, l in enumerate(lines)))

    def do_starttls(self, _):
        if self.act("STARTTLS", "220 go ahead").startswith("220"):
            self.wrap()

    def do_auth(self, rest):
        """With `auth_initial` "taken": the response may come with the command; else the reply to one that does."""
        mechanism, _, initial = rest.partition(" ")
        if mechanism in self.relay.auth_unknown:
            self.say("504 unknown")
            return
        if mechanism == "PLAIN":
            if initial and self.relay.auth_initial != "taken":
                self.say(self.relay.auth_initial)
                if not self.relay.auth_initial.startswith("334"):
                    return
            elif not initial and self.relay.auth_initial == "taken" and self.relay.auth_asks is not True:
                self.say(self.relay.auth_asks)
                return
            elif not initial:
                self.say("334 ")
            response = self.line() if not initial or self.relay.auth_initial != "taken" else initial
            if response == b"*\r\n":
                self.say("501 cancelled")
                return
            self.login = base64.b64decode(response).split(b"\0")[1:]
        elif mechanism == "LOGIN" and not initial:
            self.login = []
            for prompt in (b"Username:", b"Password:"):
                self.say(b"334 " + base64.b64encode(prompt))
                self.login.append(base64.b64decode(self.line()))
        else:
            self.say("504 no")
            return
        self.relay.commands.append((self.number, "<login>"))
        self.act("AUTH", "235 welcome")

    def do_mail(self, rest):
        match = re.fullmatch(r"FROM:<([^<>]*)>(.*)", rest)
        assert match, rest
        self.clear()
        self.sender, self.parameters = match[1], match[2].strip()
        self.act("MAIL", "250 sender ok")

    def do_rcpt(self, rest):
        match = re.fullmatch(r"TO:<([^<>]+)>", rest)
        assert match, rest
        self.recipients.append(match[1])
        refusal = self.relay.refused.get(match[1])
        if refusal:
            self.recipients.pop()
            self.say(refusal)
        elif not self.act("RCPT", "250 recipient ok").startswith("2"):
            self.recipients.pop()

    def do_data(self, _):
        if not self.act("DATA", "354 go on").startswith("354"):
            return
        mail = Mail(self)
        first, lines = True, []
        while True:
            line = self.line()
            if line == b".\r\n":
                break
            if first:
                first = False
                self.act("MESSAGE", None)
            lines.append(line)
        mail.raw = b"".join(lines)
        mail.data = b"".join(line[1:] if line.startswith(b".") else line for line in lines)
        self.mail = mail
        with self.relay.lock:
            self.relay.dots += 1
        reply = self.choose("DOT", "250 2.0.0 queued")
        if reply.startswith(b"2"):
            self.relay.mails.append(mail)  # before the other side can know
        self.clear()
        self.say(reply)

    def do_rset(self, _):
        self.clear()
        self.say("250 ok")

    def do_quit(self, _):
        self.act("QUIT", "221 bye")
        self.end()


class Relay:
    def __init__(self, offers=("8BITMIME", "SMTPUTF8", "SIZE 10000000"), tls=None, implicit=False, auth=None):
        self.offers, self.tls, self.implicit, self.auth = offers, tls, implicit, auth
        self.script, self.refused = {}, {}
        self.auth_unknown, self.auth_initial, self.auth_asks = (), "taken", True
        self.commands, self.mails, self.sessions, self.errors = [], [], [], []
        self.dots = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)  # a large message does not fit into it
        self.port = self.listener.getsockname()[1]
        self.url = f"smtp{'s' if implicit else ''}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                session = Session(self, sock, len(self.sessions) + 1)
                self.sessions.append(session)
                threading.Thread(target=self._serve, args=(session,), daemon=True).start()

    def _serve(self, session):
        try:
            session.run()
        except (Gone, OSError):
            pass
        except AssertionError as error:
            self.errors.append(error)
        with contextlib.suppress(OSError):
            session.sock.close()
        session.ended = True

    def on(self, point, action):
        self.script[point] = action

    def begin(self):
        """Forgets script and record, and drops idle connections."""
        self.script, self.refused = {}, {}
        self.drop()
        self.commands, self.mails, self.dots = [], [], 0
        assert not self.errors, self.errors

    def drop(self):
        for session in self.sessions:
            session.dropped = True
            with contextlib.suppress(OSError):
                session.sock.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        self.drop()

    def verbs(self):
        """The first words of all commands."""
        return [line.split(" ")[0] for _, line in self.commands]

    def wait_verb(self, verb):
        eventually(lambda: verb in self.verbs(), what=verb)
