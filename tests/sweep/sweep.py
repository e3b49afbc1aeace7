#!/usr/bin/python3 -B
"""Lets the Nth call of each function fail while a short script runs, for every N, and looks whether anything is untrue.

    sweep.py [--every] [--only NAME,...] [--nth N] [--many K] [--from start|ready|both] [--runs R] [--jobs J]

Two modes. `ready`: counting begins with the ready line; the script is played, the failure is gone, a fresh key must
work or the reason must have been said; SIGTERM, a restart without failures, and the books are compared. `start`:
counting begins with main(); the gateway ends with one line and status 2 or 3, or it is ready and works.

Without --every each function gets a few N, spread evenly over its calls, R in all. A finding names
function and N: `--only NAME --nth N --from MODE` plays it again. The planted lies of prove() are checked at each run.
"""

import argparse
import concurrent.futures
import mmap
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from script import Script, Told, unchanged, verify  # noqa: E402
from gateway import BINARY, REPORTS, SANITIZED, Gateway  # noqa: E402

SHIM = os.path.abspath(os.environ.get("SWEEP_SHIM") or HERE.parents[1] / "build" / "tests" / "sweep" / "fail.so")
FUNCTIONS = re.findall(r"^    X\((\w+), \w+\)", (HERE / "fail.c").read_text(), re.M)
CONTROL = struct.Struct("=iiQQiI")  # armed, target, nth, many, number, fired
COUNTS_AT = CONTROL.size
MEMORY = {"malloc", "calloc", "realloc", "posix_memalign", "mmap"}
SOCKETS = {"socket", "accept", "send", "sendmsg", "recv", "epoll_ctl", "setsockopt", "getsockname", "fcntl", "socketpair",
           "read", "write", "writev"}  # a client's connection hangs on these: it may be closed without an answer
START_SECONDS = 30 if SANITIZED else 15
STOP_SECONDS = 20


class Control:
    """The page that the preloaded library reads."""

    def __init__(self, path):
        path.write_bytes(bytes(4096))
        with open(path, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), 4096)

    def set(self, armed, target=-1, nth=0, many=0):
        self._page[:CONTROL.size] = CONTROL.pack(armed, target, nth, many, 0, 0)

    def arm(self, armed):
        self._page[0:4] = struct.pack("=i", armed)

    def fired(self):
        return CONTROL.unpack_from(self._page)[5]

    def counts(self):
        return dict(zip(FUNCTIONS, struct.unpack_from(f"={len(FUNCTIONS)}Q", self._page, COUNTS_AT)))


class Case:
    """One failure: which function, which call of it, how many from there on, from when."""

    def __init__(self, mode, function, nth, many=1):
        self.mode, self.function, self.nth, self.many = mode, function, nth, many
        self.findings = []
        self.fired = 0
        self.counts = {}
        self.where = ""

    def __str__(self):
        return f"{self.function} #{self.nth}" + (f" to #{self.nth + self.many - 1}" if self.many > 1 else "") + f" from {self.mode}"

    def find(self, text):
        self.findings.append(text)


# -- one run


def prepare(case, folder):
    script = Script(folder)
    control = Control(folder / "control")
    target = FUNCTIONS.index(case.function) if case.function else -1
    control.set(1 if case.mode == "start" else 0, target, case.nth, case.many)
    # A sanitizer's library wants to be the first; the failing functions stand in front of it all the same.
    options = os.environ.get("ASAN_OPTIONS", "detect_leaks=1") + ":verify_asan_link_order=0:allocator_may_return_null=1"
    script.gateway.env = {"LD_PRELOAD": SHIM, "SWEEP_CONTROL": str(folder / "control"), "SWEEP_TRACE": str(folder / "trace"),
                          "ASAN_OPTIONS": options}
    # libcrypto leaves some hundred bytes behind when its own start or its own end fails
    (folder / "leaks").write_text("leak:libcrypto.so\n")
    script.gateway.env["LSAN_OPTIONS"] = f"suppressions={folder / 'leaks'}:print_suppressions=0"
    return script, control


def own_lines(gateway):
    """What is on standard error beside the log."""
    return [line for line in gateway.stderr if not line.startswith("{")]


def ended_well(case, gateway, allowed):
    """Waits for the end of the process; its status must be one of `allowed` and nothing may have been reported."""
    try:
        status = gateway.process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        case.find(f"HANG: still there {STOP_SECONDS} s after it should have ended")
        gateway.process.kill()
        gateway.process.wait()
        return None
    for reader in gateway._readers:
        reader.join(10)
    Gateway.running.discard(gateway)
    text = "".join(gateway.stderr)
    if any(report in text for report in REPORTS):
        case.find("SANITIZER: " + text[-5000:])
    if status < 0:
        case.find(f"CRASH: signal {-status}: {text[-1500:]}")
    elif status not in allowed:
        case.find(f"exit status {status}, expected one of {sorted(allowed)}: {text[-700:]}")
    return status


def start(case, script):
    """True when the gateway is ready."""
    gateway = script.gateway.spawn()
    if not gateway._ready.wait(START_SECONDS):
        case.find(f"HANG: neither ready nor ended after {START_SECONDS} s: {''.join(gateway.stderr)[-500:]}")
        gateway.process.kill()
        return False
    if not gateway.stdout:
        if case.mode == "ready":
            case.find(f"no start without a failure: {''.join(gateway.stderr)}")
        elif ended_well(case, gateway, {2, 3}) is not None:
            lines = own_lines(gateway)
            if len(lines) != 1 or not re.fullmatch(r"fencegate( serve)?: \S.*\S\n", lines[0]):
                case.find(f"{len(lines)} lines instead of one that says why: {lines}")
        return False
    ports = re.fullmatch(r"fencegate ready proxy=127\.0\.0\.1:(\d+) admin=127\.0\.0\.1:(\d+)\n", gateway.stdout[0])
    if not ports or ports[1] == "0" or ports[2] == "0":
        case.find(f"ready line: {gateway.stdout[0]!r}")
        gateway.process.kill()
        return False
    gateway.port, gateway.admin_port = int(ports[1]), int(ports[2])
    gateway.admin_token = (gateway.store / "admin.token").read_text().strip()
    Gateway.running.add(gateway)
    return True


def said_why(script):
    """The store ended for good and says so: readiness names it, the log had it."""
    answer = script.look("/readyz")
    return answer is not None and answer.status == 503 and any("restart is needed" in str(line) for line in [answer.body])


def run_script(case, script, control):
    control.arm(1)
    if case.mode == "ready":
        script.play()
    else:
        control.arm(0)
        for number in range(3):
            script.call(f"early-{number}", "pay", 1 + number, "early")
            script.call(f"early-drops-{number}", "drops", 1 + number, "early-drops")
    alive = script.gateway.process.poll() is None
    case.fired = control.fired()
    fatal = False
    if case.fired and alive:
        control.arm(0)
        if not script.works_again():
            fatal = said_why(script)
            if not fatal:
                case.find(f"LASTING HARM: fresh keys are refused afterwards: {script.told[-1]!r}: {''.join(script.gateway.stderr)[-900:]}")
        if not script.admin_works():
            case.find("LASTING HARM: the admin listener does not answer afterwards")
    if alive:
        script.gateway.process.send_signal(signal.SIGTERM)
    ended_well(case, script.gateway, {0, 3} if fatal or not alive or case.function in ("pwrite", "fdatasync", "write") else {0})
    case.fired = control.fired()
    case.counts = control.counts()
    foreign = own_lines(script.gateway)
    if foreign and not case.findings:
        case.find(f"no JSON on standard error: {foreign[:3]}")


def reopen(case, script):
    """(audit records, fences) of the store after a restart without failures."""
    gateway = script.gateway
    gateway.env = {}
    try:
        gateway.start()
    except AssertionError as error:
        case.find(f"STORE: no restart: {error}")
        return None, {}
    try:
        records = gateway.audit()
        fences = {told.key: gateway.fence(told.key) for told in script.told if told.key}
        if script.raised and (gateway.fence("raised") or 0) < 43:
            case.find("LOST TOKEN: the operator's raise was answered and is gone")
    finally:
        gateway.process.send_signal(signal.SIGTERM)
    ended_well(case, gateway, {0})
    return records, fences


def play(case):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sweep-"))
    script = None
    try:
        script, control = prepare(case, folder)
        if start(case, script):
            run_script(case, script, control)
        else:
            case.fired = control.fired()
            case.counts = control.counts()
        records, fences = reopen(case, script)
        for finding in verify(script.told, script.partner, records, fences):
            case.find(finding)
        for finding in script.admin_troubles:
            case.find(finding)
        if case.fired == 0 or not case.function:
            for finding in unchanged(script.told):
                case.find(finding)
        for told in script.told:
            if told.closed and case.function not in MEMORY | SOCKETS:
                case.find(f"closed without an answer: {told!r}")
        if case.findings:
            case.where = stack(folder / "trace")
    except Exception:  # the harness itself: a run that could not be judged is a finding too
        case.find(f"the run broke off: {traceback.format_exc()}")
        case.where = stack(folder / "trace")
    finally:
        if script is not None and hasattr(script.gateway, "process"):
            script.close()
        if not case.findings:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            case.where += f"\n      kept: {folder}"
    return case


def stack(trace):
    """Where the failing call came from, with the names of our functions."""
    if not trace.exists():
        return "it never failed"
    lines = []
    for line in trace.read_text().splitlines()[1:12]:
        ours = re.match(rf"{re.escape(BINARY)}\((?:.*)\+(0x[0-9a-f]+)\)", line)
        if ours:
            found = subprocess.run(["addr2line", "-fpe", BINARY, hex(int(ours[1], 16) - 1)], capture_output=True, text=True).stdout
            line = re.sub(r"/\S*/(\w+/\w+\.c)", r"\1", found.strip()) or line
        else:
            line = re.sub(r"^\S*/", "", line)
        if "fail.so" not in line:
            lines.append("      " + line)
    return "\n".join(lines)


# -- the checks can see


def prove():
    """Each planted lie must be found, and the truth must not be."""
    def answer(status, effect, body=b"ok"):
        return types.SimpleNamespace(status=status, effect=effect, complete=True, body=body, reason=None)

    def world(effect="sent", status=200, arrivals=("a",), partial=(), kind="sent", fence=5, path="/pay/a"):
        told = Told("a", "pay", "k", 5, b"x")
        told.answer = answer(status, effect)
        seen = [types.SimpleNamespace(target=f"/pay/{name}", body=b"x", began=i, answered=i + .5) for i, name in enumerate(arrivals)]
        partner = types.SimpleNamespace(requests=seen, partial=[f"POST /pay/{name} HTTP".encode() for name in partial])
        records = [{"kind": kind, "path": path}] if kind else []
        return list(verify([told], partner, records, {"k": fence}))

    assert world() == [], world()
    lies = {
        "DOUBLE SEND": {"arrivals": ("a", "a")}, "FALSE sent": {"arrivals": ()}, "FALSE not-sent": {"effect": "not-sent", "status": 502},
        "FALSE not-sent:": {"effect": "not-sent", "status": 502, "arrivals": (), "partial": ("a",), "kind": "not-sent"},
        "LOST:": {"kind": None}, "LOST TOKEN": {"fence": 4}, "FALSE RECORD": {"kind": "not-sent"},
        "LOST DROP": {"effect": "not-sent", "status": 412, "arrivals": (), "kind": None},
    }
    for name, lie in lies.items():
        assert any(name in finding for finding in world(**lie)), f"the sweep would not see: {name}"
    tolds = [Told("new", "pay", "k", 6, b""), Told("old", "pay", "k", 5, b"")]
    seen = [types.SimpleNamespace(target=f"/pay/{n}", body=b"", began=i, answered=i + 2) for i, n in enumerate(("new", "old"))]
    tolds[0].answer = answer(200, "sent")
    found = list(verify(tolds, types.SimpleNamespace(requests=seen, partial=[]), None, {}))
    assert any("STALE CALL" in f for f in found) and any("OVERLAP" in f for f in found), found


# -- which runs, and the report


def spread(total, wanted):
    """`wanted` numbers of 1..total, evenly, the first and the last among them."""
    if total <= wanted:
        return list(range(1, total + 1))
    if wanted == 1:
        return [1]
    return sorted({1 + round(i * (total - 1) / (wanted - 1)) for i in range(wanted)})


def plan(options, counted):
    """(mode, function, N) for all that was called; rarely called functions get every N."""
    totals = [(mode, name, total) for mode in options.modes for name, total in counted[mode].items()
              if total and (not options.only or name in options.only)]
    if options.nth:
        return [Case(mode, name, options.nth, options.many) for mode, name, _ in totals]
    wanted = max((total for _, _, total in totals), default=0)
    while not options.every and wanted > 1 and sum(min(total, wanted) for _, _, total in totals) > options.runs:
        wanted -= max(1, wanted // 20)
    return [Case(mode, name, nth, options.many) for mode, name, total in totals for nth in spread(total, wanted)]


def count(options):
    """How often each function is called when nothing fails; and that the script does what it should."""
    counted = {}
    for mode in options.modes:
        case = play(Case(mode, None, 0))
        if case.findings:
            report(case, {})
            sys.exit(1)
        counted[mode] = case.counts
    return counted


def report(case, shown):
    """In full the first of each kind; the same finding at the same place is only named."""
    place = next((line.strip() for line in case.where.splitlines() if re.search(r" at (gateway|store|config)/", line)), "")
    kind = (case.mode, place, *(re.sub(r"[0-9]+|/tmp/\S*|\{.*", "", finding)[:60] for finding in case.findings))
    if kind in shown:
        print(f"  FAIL   {case}: as {shown[kind]}")
        return
    shown[kind] = str(case)
    print(f"  FAIL   {case}")
    for finding in case.findings:
        print("    " + finding.replace("\n", "\n    "))
    print(case.where)
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--nth", type=int, default=0)
    parser.add_argument("--many", type=int, default=1)
    parser.add_argument("--from", dest="modes", default="both")
    parser.add_argument("--runs", type=int, default=240)
    parser.add_argument("--jobs", type=int, default=3 * (os.cpu_count() or 1))
    options = parser.parse_args()
    options.modes = ["start", "ready"] if options.modes == "both" else [options.modes]
    prove()
    began = time.monotonic()
    counted = count(options)
    cases = plan(options, counted)
    failed, idle, shown = [], 0, {}
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for case in pool.map(play, cases):
            idle += case.fired == 0
            if case.findings:
                failed.append(case)
                report(case, shown)
    calls = ", ".join(f"{mode} {sum(counts.values())}" for mode, counts in counted.items())
    print(f"  SWEEP  {len(cases)} failures ({idle} not reached) of {calls} calls, "
          f"{len(failed)} with findings, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
