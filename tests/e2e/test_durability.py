"""Durable first: seen from the system calls, the sync has returned before the first byte leaves."""

import re
import selectors
import shutil
import subprocess
import sys

import pytest

import expect
from client import fenced, request
from gateway import Gateway, eventually, route
from partner import Held

SYNCS = ("fdatasync", "fsync", "msync", "sync_file_range", "syncfs")
WRITES = ("pwrite64", "pwritev", "pwritev2", "write", "writev")
SENDS = ("sendto", "sendmsg", "write", "writev", "sendmmsg")
TRACED = ",".join({*SYNCS, *WRITES, *SENDS, "openat", "recvfrom", "recvmsg", "read", "close"})


class Call:
    """One system call of the trace; `begin` and `end` are line numbers."""

    def __init__(self, name, text, begin):
        self.name, self.text, self.begin, self.end, self.result = name, text, begin, None, None


def system_calls(path):
    """Parses `strace -f`; joins calls that other threads interrupted."""
    calls, open_calls = [], {}
    for number, line in enumerate(path.read_text(errors="replace").splitlines()):
        pid, _, rest = line.partition(" ")
        rest = rest.strip()
        resumed = re.match(r"<\.\.\. (\w+) resumed>", rest)
        if resumed:
            call = open_calls.pop(pid, None)
            if call is None:
                continue
            call.text += rest[resumed.end():]
        else:
            begun = re.match(r"(\w+)\(", rest)
            if not begun:
                continue
            call = Call(begun[1], rest, number)
            calls.append(call)
            if rest.endswith("<unfinished ...>"):
                open_calls[pid] = call
                continue
        call.end = number
        result = re.search(r"\) += (-?\d+)", call.text)
        call.result = int(result[1]) if result else None
    return calls


@pytest.fixture(scope="module")
def traced(partner, tmp_path_factory):
    """A gateway under strace, and a function that stops it and gives its system calls."""
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    folder = tmp_path_factory.mktemp("traced")
    trace = folder / "trace"
    wrapper = ["strace", "-D", "-f", "-y", "-s", "300", "-e", f"trace={TRACED}", "-o", str(trace)]
    gateway = Gateway(folder, [route(partner)], wrapper=wrapper, env={"ASAN_OPTIONS": "detect_leaks=0"}, workers=1).start()
    gateway.trace = trace
    yield gateway
    gateway.end()


def durable_between(calls, begin, end):
    """The store's files were written after `begin`, and all of that was synced before `end`."""
    synchronous = {m[1] for c in calls if c.name == "openat" and "O_DSYNC" in c.text or c.name == "openat" and "O_SYNC" in c.text
                   for m in [re.search(r"= (\d+)<", c.text)] if m}
    written, unsynced = False, set()
    for call in calls:
        if call.end is None or call.begin < begin or call.end > end or not re.search(r"/(data\.mdb|journal)>", call.text):
            continue
        if call.name in WRITES:
            written = True
            descriptor = re.match(r"\w+\((\d+)<", call.text)[1]
            if descriptor not in synchronous:  # a write through an O_DSYNC descriptor is a sync of its own bytes
                unsynced.add(call)
        if call.name in SYNCS and call.result == 0:
            unsynced -= {write for write in unsynced if write.end < call.begin}
    assert written, "nothing was written to the store"
    assert not unsynced, "the last writes were not synced before the bytes left"


def moments(calls, received, left):
    """Line numbers at which `received` had come in and `left` began to go out."""
    arrived = next(c for c in calls if c.name in ("recvfrom", "recvmsg", "read") and received in c.text)
    gone = [c for c in calls if c.name in SENDS and left in c.text and "data.mdb" not in c.text and c.begin > arrived.begin]
    assert gone, f"{left} was never sent"
    return arrived.end, gone[0].begin


def trace_of(gw, mark):
    """The trace, once the line about that mark's end is in it."""
    eventually(lambda: f"{mark}-fin" in gw.trace.read_text(errors="replace"))
    return system_calls(gw.trace)


@pytest.mark.parametrize("case", ["first token", "raised token", "equal token"])
def test_the_sync_returns_before_the_first_byte_goes_out(traced, partner, mark, case):
    if case != "first token":
        expect.relayed(traced.call("/pay/before", 5, mark))
        traced.wait_audit(key=mark)
    token = {"first token": 5, "raised token": 6, "equal token": 5}[case]
    expect.relayed(traced.call(f"/pay/{mark}-call", token, mark))
    traced.wait_audit(key=mark, count=1 if case == "first token" else 2)
    traced.call(f"/{mark}-fin", 1, "x")
    calls = trace_of(traced, mark)
    durable_between(calls, *moments(calls, f"/pay/{mark}-call", f"POST /{mark}-call"))


def test_the_sync_returns_before_the_client_hears_of_a_drop(traced, partner, mark):
    expect.relayed(traced.call("/pay/before", 5, mark))
    traced.wait_audit(key=mark)
    expect.refusal(traced.call(f"/pay/{mark}-call", 4, mark), 412, "stale-token")
    traced.call(f"/{mark}-fin", 1, "x")
    calls = trace_of(traced, mark)
    durable_between(calls, *moments(calls, f"/pay/{mark}-call", "HTTP/1.1 412"))


def test_the_store_is_synced_in_full(traced):
    """No mode of the engine that trades durability: the data by a sync call, the meta page by O_DSYNC or another."""
    calls = system_calls(traced.trace)
    assert [c for c in calls if c.name in ("fdatasync", "fsync", "msync") and "data.mdb" in c.text and c.result == 0]


def test_a_journal_is_filled_durably_before_it_has_a_number(traced):
    """A power cut in between must not leave the number in a file that is too short."""
    calls = [c for c in system_calls(traced.trace) if "/journal>" in c.text and c.name in (*SYNCS, *WRITES)]
    number = next(i for i, c in enumerate(calls) if c.name == "pwrite64" and re.search(r", 4096, 0\) +=", c.text) and "FGJ1" in c.text)
    zeroes = [i for i, c in enumerate(calls) if c.name == "pwrite64" and i < number]
    assert zeroes
    assert any(c.name == "fsync" and c.result == 0 for c in calls[zeroes[-1] + 1:number])


# -- group commit

PARTNER = """
import selectors, socket
listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
print(listener.getsockname()[1], flush=True)
ready = selectors.DefaultSelector()
ready.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        if key.fileobj is listener:
            ready.register(listener.accept()[0], selectors.EVENT_READ)
            continue
        try:
            data = key.fileobj.recv(65536)
            if data:
                key.fileobj.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
                continue
        except OSError:
            pass
        ready.unregister(key.fileobj)
        key.fileobj.close()
"""


@pytest.fixture
def quick_partner():
    """Answers every segment with 200, in a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", PARTNER], stdout=subprocess.PIPE, text=True)
    yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    process.kill()
    process.wait()


@pytest.mark.parametrize("ledger", ["effects", "drops"])
def test_concurrent_raises_share_commits(launch, quick_partner, ledger):
    gw = launch(route(quick_partner, ledger=ledger), log={"access": False})
    clients = 64
    ready = selectors.DefaultSelector()
    for number in range(clients):
        connection = gw.connect()
        ready.register(connection.sock, selectors.EVENT_READ, (number, connection))
    before = gw.metric("fencegate_store_commits_total")
    token = dict.fromkeys(range(clients), 1)
    for key in list(ready.get_map().values()):
        number, connection = key.data
        connection.send(request("POST", "/pay", fenced(1, f"key-{number}"), b"x" * 80))
    accepted, wanted = 0, 64 * 60
    while accepted < wanted:
        turn = [key.data for key, _ in ready.select(10)]
        assert turn, "stalled"
        for number, connection in turn:
            answer = connection.receive()
            assert answer.status == 200, answer
            accepted += 1
        for number, connection in turn:
            token[number] += 1
            connection.send(request("POST", "/pay", fenced(token[number], f"key-{number}"), b"x" * 80))
    commits = gw.metric("fencegate_store_commits_total") - before
    print(f"{ledger}: {commits / accepted:.3f} commits for each accepted request")
    assert commits / accepted < 0.2


def test_a_start_after_a_crash_with_many_effects_open_ends(launch, new_partner, mark):
    """More than a page of what the start counts."""
    partner, count = new_partner(), 1100
    held = Held()
    partner.on(mark, held)
    gw = launch(route(partner), log={"access": False})
    connections = [gw.connect() for _ in range(count)]
    for number, connection in enumerate(connections):
        connection.send(request("POST", f"/pay/{mark}", fenced(5, f"{mark}-{number}")))
    partner.wait_seen(mark, count)
    gw.kill()
    held.release()
    gw.start()
    assert gw.metric("fencegate_effects_unresolved") == count
    for connection in connections:
        connection.close()
