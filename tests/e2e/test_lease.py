"""Workers with leases from a real etcd (docker/worker.py): one is paused, loses its lease, and wakes up with its old token."""

import base64
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import urllib.request

import pytest

import expect
from gateway import PATIENCE, ROOT, eventually, route
from partner import Held

PACKAGES = pathlib.Path(os.environ.get("FENCEGATE_PACKAGES") or ROOT / "build" / "packages")
TTL = 3


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Etcd:
    """A cluster of one. The short election lets it grant leases of few seconds."""

    def __init__(self, folder):
        unpacked = PACKAGES / "etcd-server" / "usr" / "bin" / "etcd"
        self.binary = str(unpacked) if unpacked.exists() else shutil.which("etcd")
        assert self.binary, f"no etcd in {unpacked} or on the path: `make deps-test` brings it"
        # Its JSON gateway must know the port beforehand, and somebody else may be faster to take a free one.
        assert any(self._start(folder / str(number)) for number in range(5)), "".join(self.log)[-3000:]

    def _start(self, folder):
        self.url, peer = f"http://127.0.0.1:{free_port()}", "http://127.0.0.1:0"
        self.log, ready, self._told = [], [], threading.Event()
        self.process = subprocess.Popen(
            [self.binary, "--data-dir", folder, "--logger", "zap", "--log-outputs", "stderr",
             "--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
             "--heartbeat-interval", "20", "--election-timeout", "200"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, args=(ready,), daemon=True).start()
        assert self._told.wait(PATIENCE), "".join(self.log)[-3000:]
        return bool(ready)

    def _read(self, ready):
        for line in self.process.stderr:
            self.log.append(line)
            if re.search(r'"msg":"serving client traffic', line):
                ready.append(line)
                self._told.set()
        self._told.set()

    def ask(self, path, question):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + path, json.dumps(question).encode(), timeout=PATIENCE) as answer:
            return json.load(answer)

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


class Worker:
    def __init__(self, etcd_url, key, url):
        self.process = subprocess.Popen(
            [sys.executable, "-B", ROOT / "docker" / "worker.py", "--etcd", etcd_url, "--ttl", str(TTL), key, url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = []
        self._next = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.decode().rstrip("\n"))

    def says(self, pattern):
        """The next line, which must be this one."""
        eventually(lambda: len(self.lines) > self._next, PATIENCE + TTL, f"a line like {pattern}")
        line = self.lines[self._next]
        self._next += 1
        match = re.fullmatch(pattern, line)
        assert match, f"{line!r} is not {pattern!r}; all: {self.lines}"
        return match

    def holds(self, key):
        return int(self.says(f"holds {re.escape(key)} with token ([1-9][0-9]*)")[1])

    def type(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def has_read_all(self):
        left = fcntl.ioctl(self.process.stdin.fileno(), termios.FIONREAD, struct.pack("i", 0))
        return struct.unpack("i", left)[0] == 0

    def finish(self):
        """No more jobs: it gives the lease back and ends."""
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0

    def end(self):
        if self.process.poll() is None:
            self.process.kill()  # stopped or not
        self.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    yield server
    server.stop()


@pytest.fixture
def hire(etcd):
    """hire(key, url) starts a worker."""
    hired = []

    def start(key, url, etcd_url=etcd.url):
        hired.append(Worker(etcd_url, key, url))
        return hired[-1]

    yield start
    for worker in hired:
        worker.end()


def bodies(partner, mark):
    return [request.body for request in partner.requests if mark in request.target]


def test_a_paused_worker_wakes_up_with_its_old_token(gw, partner, etcd, hire, mark):
    url = f"http://127.0.0.1:{gw.port}/pay/{mark}"
    first = hire(mark, url)
    old = first.holds(mark)
    first.type(b"amount=1\n")
    first.says(f"done {old} 200 ok")

    first.type(b"amount=")  # half a job: it is past all looks at its lease, and waits for the rest
    eventually(first.has_read_all, what="reading")
    first.process.send_signal(signal.SIGSTOP)
    second = hire(mark, url)
    new = second.holds(mark)  # not before the lease of the first has run out
    assert new > old
    name = base64.b64encode(f"fencegate/{mark}".encode()).decode()
    found = etcd.ask("/v3/kv/range", {"key": name})
    assert found["kvs"][0]["create_revision"] == str(new)
    second.type(b"amount=2\n")
    second.says(f"done {new} 200 ok")

    first.type(b"3\n")
    first.process.send_signal(signal.SIGCONT)
    first.says(f"stale {old} Token {old} is below {new}, the highest accepted for this key\\.")
    first.says(f"lost {mark} with token {old}")
    assert bodies(partner, mark) == [b"amount=1", b"amount=2"]

    records = gw.wait_audit(3, key=mark)
    for record, kind, token in zip(records, ("sent", "sent", "dropped"), (old, new, old)):
        expect.record(record, kind=kind, token=str(token), key=mark)
    expect.record(records[2], reason="stale-token", highest=str(new), status=412)
    told = gw.command("history", mark)
    assert told.returncode == 0, told
    rows = [line.split() for line in told.stdout.splitlines()[1:3]]
    assert [row[0] for row in rows] == [str(old), str(new)], told.stdout
    assert "stale-token 1" in told.stdout and f"The fence is at {new}." in told.stdout, told.stdout

    second.finish()  # the first is in the queue again, and its next lease is a newer one
    newest = first.holds(mark)
    assert newest > new
    first.type(b"amount=4\n")
    first.says(f"done {newest} 200 ok")
    first.finish()
    assert bodies(partner, mark) == [b"amount=1", b"amount=2", b"amount=4"]


def test_nothing_sent_is_repeated_and_what_is_unknown_is_not(gw, partner, hire, mark):
    worker = hire(mark, f"http://127.0.0.1:{gw.port}/pay/{mark}")
    token = worker.holds(mark)
    partner.on(mark, lambda exchange: exchange.reset())
    worker.type(b"lost on its way\n")
    worker.says(f"unknown {token} effect [1-9][0-9]*: ask the partner")
    assert bodies(partner, mark) == [b"lost on its way"]
    worker.finish()


def test_503_is_repeated_with_the_same_token(launch, partner, hire, mark):
    held = Held()
    partner.on(f"{mark}-first", held)
    gateway = launch(route(partner, in_flight=1))
    hanging = gateway.send_off(f"/pay/{mark}-first", 1, f"{mark}-other")
    partner.wait_seen(f"{mark}-first")
    worker = hire(mark, f"http://127.0.0.1:{gateway.port}/pay/{mark}")
    token = worker.holds(mark)
    worker.type(b"amount=1\n")
    gateway.wait_log(lambda line: line.get("reason") == "overloaded")
    held.release()
    expect.relayed(hanging.result(PATIENCE))
    worker.says(f"done {token} 200 ok")
    assert bodies(partner, mark)[-1] == b"amount=1"
    worker.finish()
