#!/usr/bin/env python3
"""A flood on one route, and honest workers on another who must not notice.

Beside each flood (floods.py) workers make 50 calls a second, of known keys with their tokens, half of them on connections
of their own, and /healthz and /readyz are asked every 200 ms. What must hold: each call gets its partner's answer, each
probe a 200 within two seconds, each outcome is in the audit afterwards, memory, descriptors and threads stay within
bounds, and the calls' 99th percentile is at most three times that of a time without the flood, in the same run.
"""

import argparse
import json
import os
import pathlib
import re
import select
import socket
import subprocess
import sys
import tempfile
import time

import rig
from load import Client, Load
from loop import HEAD_END, Lease, Loop
from partner import call_body
from verdict import Verdict

WORKERS = 10
RATE = 50.0  # calls a second, all workers together
PROBE_SECONDS = 0.2
PATIENCE = 10.0  # an answer that takes longer is lost
PROBE_PATIENCE = 2.0
TIMES_SLOWER = 3.0
LEAST_P99 = 0.03  # below that two cores that gateway, workers, partners and flood share are measured
THREADS_MORE = 70  # those of name look-ups
MEMORY_MORE_KIB = 128 << 10
LONG_SECONDS = 20
SMALL_STORE = {False: "16MiB", True: "64MiB"}  # long: each is full early, and has room for the workers' own records to the end
CONNECTIONS, IN_FLIGHT, DESCRIPTORS = 200, 200, 200
LIMIT_SECONDS = 60  # for a flood to come to its limit, on a busy machine

# name: (the flood, settings of the gateway, its command's wrapper)
FLOODS = {
    "paths": ("paths", {}, ()),
    "stale": ("stale", {}, ()),
    "stale-drop-oldest": ("stale_rolling", {"audit": {"when_full": "drop-oldest"}}, ()),
    "keys": ("keys", {}, ()),
    "keys-drop-oldest": ("keys", {"audit": {"when_full": "drop-oldest"}}, ()),
    "names": ("names", {}, ()),
    "connections": ("crowd", {"limits": {"connections": CONNECTIONS}}, ()),
    "admin-connections": ("admin_crowd", {}, ()),
    "admin-calls": ("admin_calls", {}, ()),
    "slow-route": ("slow", {"limits": {"in_flight": IN_FLIGHT}}, ()),
    "descriptors": ("both_crowds", {}, ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")),
}


def nonblocking(port):
    """A socket that is being connected: a gateway that does not accept must not stop this loop."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.connect_ex(("127.0.0.1", port))
    return sock


class Worker(Client):
    """Calls at a fixed pace with one key and its token; every other worker connects anew for each call."""

    def __init__(self, crew, number):
        super().__init__(crew.load, ())
        self.crew, self.lease, self.fresh = crew, crew.load.keys[number], number % 2 == 1
        self.due = time.monotonic() + number / RATE
        self.loop.at(self.due, self.start)

    def next(self):
        """The pace is kept: a call that was late is followed by the next at once, and counts from when it was due."""
        call = self.load.calls[self.number]
        if call.told:
            self.crew.took.append(time.monotonic() - self.due)
        if self.fresh:
            self.disconnect()
        self.due += WORKERS / RATE
        if self.crew.over:
            self.done = True
            self.disconnect()
        else:
            self.loop.at(self.due, self.start)

    def start(self):
        call = self.call = self.load.new_call(self.lease, self.lease.token, ("answer", 0), "stay")
        self.number = call.id
        self.loop.after(PATIENCE, lambda: self.overdue(call))
        if self.sock is None:
            self.sock = nonblocking(self.load.port)
            self.loop.watch(self.sock, lambda: self.connected(call), select.EPOLLOUT)
        else:
            self.write(call)

    def connected(self, call):
        self.loop.forget(self.sock)
        if self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
            call.sent = self.loop.clock
            self.lost()
            return
        self.loop.watch(self.sock, self.readable)
        self.write(call)

    def write(self, call):
        body = call_body(call)
        self.loop.clock += 1
        call.sent, call.known = self.loop.clock, self.lease.known
        try:
            self.sock.send(b"POST /r/%d HTTP/1.1\r\nHost: g\r\nWorkflow-Key: %s\r\nFencing-Token: %d\r\nContent-Length: %d\r\n\r\n%s"
                           % (call.id, self.lease.name, call.token, len(body), body))
        except OSError:
            self.lost()

    def overdue(self, call):
        if self.call is call:
            call.sent = call.sent or self.loop.clock
            call.trouble = f"no answer within {PATIENCE:.0f} s"
            self.lost()


class Probe:
    """Asks as an orchestrator does: on a connection of its own, each time."""

    def __init__(self, crew, path, number):
        self.crew, self.loop, self.path = crew, crew.loop, path
        self.sock = None
        self.loop.after(number * PROBE_SECONDS / 2, self.ask)

    def ask(self):
        if self.crew.over:
            return
        self.began = time.monotonic()
        self.buffer = b""
        sock = self.sock = nonblocking(self.crew.admin_port)
        self.loop.watch(sock, self.connected, select.EPOLLOUT)
        self.loop.after(PROBE_PATIENCE, lambda: self.ended(sock, f"no answer within {PROBE_PATIENCE:.0f} s"))

    def connected(self):
        self.loop.forget(self.sock)
        self.loop.watch(self.sock, self.readable)
        try:
            self.sock.send(f"GET {self.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        except OSError as error:
            self.ended(self.sock, repr(error))

    def readable(self):
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.buffer += data
        if HEAD_END in self.buffer:
            self.ended(self.sock, "" if self.buffer.startswith(b"HTTP/1.1 200 ") else repr(self.buffer[:300]))
        elif not data:
            self.ended(self.sock, "closed without an answer")

    def ended(self, sock, wrong):
        if self.sock is not sock:
            return
        self.crew.probes += 1
        if wrong:
            self.crew.found.append(f"probe {self.path}: {wrong}")
        self.sock = None
        self.loop.forget(sock)
        sock.close()
        self.loop.at(max(self.began + PROBE_SECONDS, time.monotonic()), self.ask)


class Crew:
    """The workers and probes of one run, and what they met."""

    def __init__(self, loop):
        self.loop = loop
        self.took, self.found = [], []
        self.probes = 0
        self.over = False
        self.load = Load(loop)
        self.load.keys = [Lease(b"honest-%d" % number, 1000 + number) for number in range(WORKERS)]

    def begin(self, gateway):
        self.load.port, self.admin_port = gateway.port, gateway.admin_port
        self.load.clients = [Worker(self, number) for number in range(WORKERS)]
        self.asking = [Probe(self, path, number) for number, path in enumerate(("/healthz", "/readyz"))]

    def end(self):
        """Every call comes to its end."""
        self.over = True
        if not self.loop.run(lambda: self.load.ended() and not any(probe.sock for probe in self.asking), 2 * PATIENCE):
            self.found.append("calls or probes without an end")

    def p99(self):
        return sorted(self.took)[len(self.took) * 99 // 100] if self.took else float("inf")


class Uses:
    """The most that the process was seen to use."""

    def __init__(self, process):
        self.folder = pathlib.Path(f"/proc/{process.pid}")
        self.most = {"threads": 0, "descriptors": 0, "memory_kib": 0}

    def look(self):
        try:
            text = (self.folder / "status").read_text()
            now = {"threads": int(re.search(r"Threads:\s+(\d+)", text)[1]), "descriptors": len(os.listdir(self.folder / "fd")),
                   "memory_kib": int(re.search(r"RssAnon:\s+(\d+)", text)[1])}
        except (OSError, TypeError):
            return  # it died: the calls tell
        for name, number in now.items():
            self.most[name] = max(self.most[name], number)


class Flooder:
    """The flood's process."""

    def __init__(self, name):
        self.process = subprocess.Popen([sys.executable, "-B", pathlib.Path(__file__).with_name("floods.py"), name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.partner_port = int(self.process.stdout.readline())

    def begin(self, gateway):
        self.process.stdin.write(f"{gateway.port} {gateway.admin_port}\n")
        self.process.stdin.flush()

    def at_limit(self):
        return bool(select.select([self.process.stdout], [], [], 0)[0]) and self.process.stdout.readline() != ""

    def end(self):
        """Its answers by status."""
        self.process.stdin.close()
        return json.loads(self.process.stdout.readline() or "{}")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def judge_records(crew, gateway, dropping):
    """Each call's one record. Where the oldest make room those of the earliest calls may be gone, and none in between."""
    records = gateway.audit(route="r")
    calls = crew.load.calls
    if dropping and records:
        oldest = min(int(record["id"]) for record in gateway.audit(route=""))
        calls = {number: call for number, call in calls.items() if int(call.effect_id or oldest) >= oldest}
        records = [record for record in records if int(record["path"][3:]) in calls]
    return Verdict({"ledger": "effects", "on_supersede": "drain"}, calls, records).judge() + crew.load.trouble


def bounds(settings, wrapper, before):
    limits = settings.get("limits", {})
    most = {"threads": before["threads"] + THREADS_MORE, "memory_kib": before["memory_kib"] + MEMORY_MORE_KIB,
            "descriptors": limits.get("connections", 2000) + limits.get("in_flight", 2000) + 1000}
    if wrapper:
        most["descriptors"] = DESCRIPTORS
    return most


class Run:
    """One flood on one gateway."""

    def __init__(self, name, options, folder, library):
        self.name, self.options = name, options
        self.flood, self.settings, self.wrapper = FLOODS[name]
        self.folder = folder / name
        self.folder.mkdir()
        self.loop = Loop()
        self.crew = Crew(self.loop)
        self.flooder = Flooder(self.flood)
        self.gateway = self.make_gateway(library)

    def make_gateway(self, library):
        names = self.folder / "names"
        names.write_text("honest.test 127.0.0.1\n")
        upstream = f"http://127.0.0.1:{self.flooder.partner_port}"
        others = [
            {"name": "flood", "path": "/flood", "upstream": upstream},
            {"name": "slow", "path": "/slow", "upstream": upstream},
            {"name": "hooks", "path": "/hooks", "kind": "webhook", "webhook": {"allow_hosts": ["*.test"], "ports": [80], "allow_http": True},
             "timeout": {"connect": "1s", "total": "2s"}},
        ]
        settings = {"limits": {}, **self.settings}
        settings["store"] = {"path": str(self.folder / "store"), "max_size": SMALL_STORE[self.options.seconds > LONG_SECONDS]}
        return rig.Gateway(self.folder, 0, {"upstream": f"http://honest.test:{self.crew.load.partner.port}"}, 2, wrapper=self.wrapper,
                           env={"LD_PRELOAD": str(library), "NAMES_FILE": str(names)}, others=others, **settings)

    def during(self, seconds):
        """The honest calls' 99th percentile, and what the process used."""
        self.crew.took, uses, end = [], Uses(self.gateway.process), time.monotonic() + seconds
        while time.monotonic() < end and self.gateway.alive():
            self.loop.run(lambda: False, min(0.25, max(0.0, end - time.monotonic())))
            uses.look()
        return self.crew.p99(), uses.most

    def reach_limit(self):
        end = time.monotonic() + LIMIT_SECONDS
        while not self.flooder.at_limit() and self.gateway.alive():
            self.during(0.25)
            if time.monotonic() > end:
                raise rig.Broken(f"the flood did not come to its limit within {LIMIT_SECONDS} s")

    def run(self):
        crew, gateway = self.crew, self.gateway
        try:
            gateway.start()
            crew.begin(gateway)
            self.during(0.5)  # the first calls make keys, connections, memory
            calm, before = self.during(self.options.seconds / 2)
            self.flooder.begin(gateway)
            self.reach_limit()
            stormy, most = self.during(self.options.seconds)
            crew.end()
            answered = self.flooder.end()
            self.flooder.kill()
            self.judge(calm, before, stormy, most)
            print(f"  {self.name}: {len(crew.load.calls)} calls, {crew.probes} probes; p99 {calm * 1000:.1f} ms, with the flood "
                  f"{stormy * 1000:.1f} ms; most {most}; the flood got {answered}", flush=True)
        except rig.Broken as error:
            crew.found.append(str(error))
        finally:
            self.close()
        return crew.found

    def judge(self, calm, before, stormy, most):
        crew, gateway = self.crew, self.gateway
        if not gateway.alive():
            raise rig.Broken(f"the gateway ended with {gateway.process.returncode}: {gateway.said()}")
        for name, bound in bounds(self.settings, self.wrapper, before).items():
            if most[name] > bound:
                crew.found.append(f"{name}: {most[name]}, {bound} at most were expected; before the flood {before[name]}")
        if stormy > TIMES_SLOWER * max(calm, LEAST_P99):
            crew.found.append(f"the 99th percentile went from {calm * 1000:.1f} to {stormy * 1000:.1f} ms")
        gateway.settled(self.loop, PATIENCE)
        dropping = self.settings.get("audit", {}).get("when_full") == "drop-oldest"
        crew.found += judge_records(crew, gateway, dropping)

    def close(self):
        self.flooder.kill()
        if self.gateway.process is not None:
            self.gateway.kill()
        self.crew.load.close()
        self.loop.close()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4, help="of each flood")
    parser.add_argument("--only", nargs="*", choices=FLOODS, help="floods to run")
    parser.add_argument("--seed", help="taken as the other harnesses do; nothing here depends on one")
    return parser.parse_args()


def main():
    options = parse()
    failed = []
    with tempfile.TemporaryDirectory(prefix="fencegate-flood-") as place:
        folder = pathlib.Path(place)
        library = folder / "names.so"
        subprocess.run([os.environ.get("CC", "cc").split()[-1], "-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-shared", "-o", library,
                        rig.ROOT / "tests" / "e2e" / "names.c", "-ldl"], check=True)
        names = options.only or list(FLOODS)
        for name in names:
            found = Run(name, options, folder, library).run()
            if found:
                failed.append(name)
                print(f"FAILED: flood --only {name} --seconds {options.seconds:g}: {len(found)} violations, the first:")
                print("\n".join("  " + text[:600] for text in found[:5]), flush=True)
    print(f"flood: {len(names) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
