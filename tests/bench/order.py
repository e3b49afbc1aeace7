#!/usr/bin/env python3
"""What order and durability cost: a start on a large store, a waiting call, and draining where nothing is in flight.

1. A store with 1,000,000 fences, 1,000,000 audit records and 1,000 effects left open by a kill: time to the ready line.
2. 1,000 calls that wait for one older call: memory of the process for each, and its threads.
3. `on_supersede: drain` beside `overlap`, the same calls through two gateways in turn: CPU and latency, medians.
"""
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from client import fenced, request  # noqa: E402
from gateway import BINARY, Gateway, eventually, route  # noqa: E402
from partner import Held, Partner  # noqa: E402

FILL = os.environ.get("FENCEGATE_FILL") or HERE.parents[1] / "build" / "fill"
KEYS, WAITING, ROUNDS, CALLS = 1_000_000, 1_000, 5, 3_000


def status(pid, name):
    return int(re.search(rf"^{name}:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def cpu_us(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 10_000


def start_on_a_large_store(folder):
    subprocess.run([FILL, folder / "store", str(KEYS)], check=True)
    times = []
    for _ in range(5):
        gateway = Gateway(folder, [route("http://127.0.0.1:9")], store={"path": "store", "max_size": "16GiB"})
        began = time.monotonic()
        gateway.start()
        times.append((time.monotonic() - began) * 1000)
        gateway.kill()
    print(f"ready after a kill, {KEYS:,} fences and records, 1,000 open effects at the first start: "
          f"first {times[0]:.0f} ms, then {statistics.median(times[1:]):.0f} ms")


def waiting_calls(folder):
    partner, held = Partner(), Held()
    partner.on("held", held)
    gateway = Gateway(folder, [route(partner, in_flight=2 * WAITING, drain_timeout="5m")], workers=1,
                      log={"access": False}).start()
    gateway.send_off("/pay/held", 5, "held")
    partner.wait_seen("held")
    pid = gateway.process.pid
    before, threads, connections = status(pid, "VmRSS"), status(pid, "Threads"), []
    for _ in range(WAITING):
        connection = gateway.connect()
        connection.send(request("POST", "/pay/held", fenced(6, "held"), b"x" * 80))
        connections.append(connection)
    eventually(lambda: gateway.metric('fencegate_waiting{route="pay"}') == WAITING)
    each = (status(pid, "VmRSS") - before) / WAITING
    print(f"a waiting call: {each:.1f} KiB with its connection, {status(pid, 'Threads') - threads} threads for {WAITING:,}")
    held.release()
    for connection in connections:
        connection.receive()
        connection.close()
    gateway.end()
    partner.close()


def one_by_one(gateway, path):
    """Rising tokens, each call after the one before has ended: nothing is in flight when the next one comes."""
    times = []
    with gateway.connect() as connection:
        before = cpu_us(gateway.process.pid)
        for token in range(gateway.token, gateway.token + CALLS):
            began = time.perf_counter()
            connection.send(request("POST", path, fenced(token, "key"), b"x" * 80))
            connection.receive()
            times.append(time.perf_counter() - began)
        gateway.token += CALLS
    return statistics.median(times) * 1e6, (cpu_us(gateway.process.pid) - before) / CALLS


def draining(folder):
    partner, gateways = Partner(), {}
    for rule in ("drain", "overlap"):
        (folder / rule).mkdir()
        gateways[rule] = Gateway(folder / rule, [route(partner, on_supersede=rule)], workers=1, log={"access": False},
                                 store={"path": "store", "max_size": "1GiB"}).start()
        gateways[rule].token = 1
    results = {rule: [] for rule in gateways}
    for turn in range(ROUNDS):
        for rule in sorted(gateways, reverse=turn % 2 == 1):
            results[rule].append(one_by_one(gateways[rule], "/pay/x"))
    for rule, rounds in results.items():
        latency, cpu = (statistics.median(column) for column in zip(*rounds))
        spread = max(r[0] for r in rounds) - min(r[0] for r in rounds)
        print(f"{rule}: {latency:.0f} us a call (median of medians, spread {spread:.0f}), {cpu:.0f} us CPU")
    for gateway in gateways.values():
        gateway.end()
    partner.close()


def main():
    print(subprocess.run([BINARY, "version"], capture_output=True, text=True).stdout.strip())
    with tempfile.TemporaryDirectory(prefix="fencegate-order-") as folder:
        for number, part in enumerate((start_on_a_large_store, waiting_calls, draining)):
            place = pathlib.Path(folder) / str(number)
            place.mkdir()
            part(place)


if __name__ == "__main__":
    main()
