#!/usr/bin/env python3
"""Check, then a slow connect, then send: a newer token is accepted in between, and the worker that connects has not heard.

Chance meets this too rarely to prove anything, so it is arranged. Calls of one worker thread hang in connect (the
partner's queue is full). That thread alone is stopped (ptrace), the queue is freed, the connects complete, and the other
worker gets a newer token for each key accepted. In every other try the first thread goes on before that, up to where it
takes over its first connection: it has heard all that had come, and the notice that it is too late comes after. Only the
look at the token right before the first byte can stop these calls. In the others it finds its connections ready at the
same time as the notice.
"""

import argparse
import ctypes
import os
import pathlib
import random
import re
import select
import socket
import struct
import sys
import tempfile
import time

import rig
from load import Load, header
from loop import HEAD_END, Lease, Loop
from partner import call_body

CONNECTIONS = 48
KEYS = 8
SEIZE, INTERRUPT, SYSCALL, DETACH, SYSCALL_INFO, WALL = 0x4206, 0x4207, 24, 17, 0x420e, 0x40000000
MARKED = 1  # PTRACE_O_TRACESYSGOOD: a stop at a system call is told from a signal
FCNTL = {"x86_64": 72, "aarch64": 25}.get(os.uname().machine)
DUPLICATE = 1030  # F_DUPFD_CLOEXEC: how a connection is taken over from libcurl
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, thread, address=None, data=None):
    if libc.ptrace(request, thread, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace: {os.strerror(number)}")


class Stopped:
    """One thread of the gateway stands still."""

    def __init__(self, thread):
        self.thread = thread

    def __enter__(self):
        ptrace(SEIZE, self.thread, None, MARKED)
        ptrace(INTERRUPT, self.thread)
        os.waitpid(self.thread, WALL)
        return self

    def go_to_take_over(self, seconds=10):
        """On to where it is about to take over a connection."""
        deadline, info = time.monotonic() + seconds, ctypes.create_string_buffer(88)
        while True:
            ptrace(SYSCALL, self.thread)
            while os.waitpid(self.thread, WALL | os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    ptrace(INTERRUPT, self.thread)
                    os.waitpid(self.thread, WALL)
                    raise rig.Broken("no connection was taken over")
            ptrace(SYSCALL_INFO, self.thread, len(info), info)
            kind, number, _, command = struct.unpack_from("=B23x3Q", info)
            if (kind, number, command) == (1, FCNTL, DUPLICATE):
                return

    def __exit__(self, *_):
        ptrace(DETACH, self.thread)


def receive(sock, patience=10):
    """Head and body of one answer."""
    sock.settimeout(patience)
    data = b""
    while HEAD_END not in data:
        data += some(sock)
    head, body = data.split(HEAD_END, 1)
    while len(body) < int(header(head + b"\r\n", b"Content-Length: ")):
        body += some(sock)
    return head + b"\r\n", body


def some(sock):
    data = sock.recv(65536)
    if not data:
        raise rig.Broken("a connection was closed without an answer")
    return data


def workers_connections(gateway):
    """A worker's thread, its client connections, and those of the other worker."""
    socks = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(CONNECTIONS)]
    ask = b"GET /nowhere HTTP/1.1\r\nHost: g\r\n\r\n"
    for thread in sorted(map(int, os.listdir(f"/proc/{gateway.process.pid}/task"))):
        with Stopped(thread):
            for sock in socks:
                sock.sendall(ask)
            silent, deadline = set(socks), time.monotonic() + 0.3
            while silent and time.monotonic() < deadline:
                ready = select.select(list(silent), [], [], 0.1)[0]
                for sock in ready:
                    receive(sock)
                    silent.discard(sock)
        for sock in silent:
            receive(sock)
        if KEYS <= len(silent) <= CONNECTIONS - KEYS:
            return thread, list(silent), [sock for sock in socks if sock not in silent], socks
    raise rig.Broken("no thread was found that serves a part of the connections")


def fill(port):
    """Takes every place in the partner's queue; the next connect hangs."""
    fillers = []
    while True:
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
        fillers.append(filler)
        if not select.select([], [filler], [], 0.05)[1]:
            return fillers


def connects(port, state):
    """How many connects to the partner are in that state (kernel's number)."""
    text = pathlib.Path("/proc/net/tcp").read_text()
    return len(re.findall(rf" [0-9A-F]+:[0-9A-F]{{4}} 0100007F:{port:04X} {state} ", text))


SYN_SENT, ESTABLISHED = "02", "01"


class Try:
    def __init__(self, seed, folder):
        rng = random.Random(f"lastlook {seed}")
        self.route = {"ledger": rng.choice(["effects", "drops"]), "on_supersede": rng.choice(["drain", "abort", "overlap"])}
        self.connected_first = rng.random() < 0.5
        self.taken_first = seed % 2 == 1 and FCNTL is not None
        self.loop = Loop()
        self.load = Load(self.loop)
        self.gateway = rig.Gateway(folder, self.load.partner.port, self.route, 2)

    def call(self, sock, key, token):
        call = self.load.new_call(key, token, ("answer", 0), "stay")
        body = call_body(call)
        sock.sendall(b"POST /r/%d HTTP/1.1\r\nHost: g\r\nWorkflow-Key: %s\r\nFencing-Token: %d\r\nContent-Length: %d\r\n\r\n%s"
                     % (call.id, key.name, token, len(body), body))
        return call

    def wait(self, what, seconds=10):
        if not self.loop.run(what, seconds):
            raise rig.Broken(f"did not happen within {seconds} s: {what.__doc__ or what}")

    def run(self):
        try:
            self.gateway.start()
            return self.play()
        finally:
            self.gateway.kill()
            self.load.close()
            self.loop.close()

    def play(self):
        partner, found = self.load.partner, []
        thread, ours, others, self.socks = workers_connections(self.gateway)
        keys = [Lease(b"key-%d" % i, 1) for i in range(KEYS)]
        self.loop.forget(partner.listener)
        partner.listener.listen(0)
        fillers = fill(partner.port)
        hanging = connects(partner.port, SYN_SENT)
        old = [self.call(sock, key, 7) for sock, key in zip(ours, keys)]
        self.wait(lambda: connects(partner.port, SYN_SENT) >= hanging + KEYS)
        with Stopped(thread) as stopped:
            for filler in fillers:
                filler.close()
            partner.listener.listen(4096)
            self.loop.watch(partner.listener, partner._accept)
            if self.connected_first or self.taken_first:
                self.wait(lambda: connects(partner.port, ESTABLISHED) >= KEYS)
            if self.taken_first:
                stopped.go_to_take_over()
            new = [self.call(sock, key, 8) for sock, key in zip(others, keys)]
            self.wait(lambda: all(self.gateway.fence(key.name.decode()) == 8 for key in keys))
            if not self.connected_first and not self.taken_first:
                self.wait(lambda: connects(partner.port, ESTABLISHED) >= KEYS)
            if any(call.arrivals for call in old):
                raise rig.Broken("a call went out before its worker was stopped")
        answers = {}
        for sock, call in [*zip(ours, old), *zip(others, new)]:
            self.wait(lambda: select.select([sock], [], [], 0)[0])
            answers[call.id] = receive(sock)
        self.loop.run(lambda: False, 0.05)
        for call in old:
            head, body = answers[call.id]
            if call.arrivals:
                found.append(f"sent after token 8 was accepted: {call}")
            elif b" 412 " not in head or b'"reason":"superseded"' not in body:
                found.append(f"superseded, but told {head[:30]!r} {body[:200]!r}")
        for call in new:
            if call.arrivals != 1 or header(answers[call.id][0], b"Fencegate-Effect: ") != "sent":
                found.append(f"the newer call did not go through: {call} {answers[call.id]}")
        for sock in self.socks:
            sock.close()
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--tries", type=int, default=3)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"lastlook: {options.tries} tries from seed {seed}, {KEYS} calls each", flush=True)
    failed = 0
    for number in range(seed, seed + options.tries):
        with tempfile.TemporaryDirectory(prefix="fencegate-lastlook-") as folder:
            this = Try(number, pathlib.Path(folder) / "store")
            this.gateway.folder.mkdir()
            try:
                found = this.run()
            except rig.Broken as error:
                found = [str(error)]
            except PermissionError as error:
                print(f"lastlook: skipped: {error}\nlastlook: 0 passed, 0 failed")
                return 0
        if found:
            failed += 1
            print(f"FAILED: lastlook --seed {number} --tries 1 ({this.route}): {len(found)} violations, the first:")
            print("\n".join("  " + text for text in found[:4]), flush=True)
    print(f"lastlook: {options.tries - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
