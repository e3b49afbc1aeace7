#!/usr/bin/env python3
"""What a mail costs through a mail route, beside the same mails from curl straight to the same relay.

The relay is Postfix's smtp-sink, which takes and forgets. Two loads, in turn for each contestant, medians of the rounds:

paced    2,000 mails a minute (--rate), one after the other by one curl, which times each: as HTTP to the gateway, or as
         SMTP to the relay. Each has a key of its own: the gateway makes its fence durable before it sends the mail.
full     as many as get through, 16 at a time (--connections), over 1,000 keys: wrk on the gateway, curl --parallel, and
         smtp-source, Postfix's own load generator, for what the relay can take.

CPU is that of the gateway, or of the client that speaks SMTP itself; the relay's is not counted. Connections are those
that the relay saw: by its own count, which must have every mail, too.
"""
import argparse
import email.message
import email.policy
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import machine
from processes import Cores, cpu_us, free_port, preparation, serves, start, stop, wait_until

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARY = os.environ.get("FENCEGATE_BIN") or ROOT / "build" / "fencegate"
POSTFIX = pathlib.Path(os.environ.get("FENCEGATE_PACKAGES") or ROOT / "build" / "packages") / "postfix" / "usr"
TEXT = ("A line of seventy-one bytes, as mails to customers are made of many..\n") * 14
SENDER, RECIPIENT = "shop@example.com", "ann@customer.example"
KEYS = 1000


def postfix_tool(name, *arguments):
    """Unpacked, not installed: it finds its libraries by the environment."""
    return ["env", f"LD_LIBRARY_PATH={POSTFIX / 'lib' / 'postfix'}", POSTFIX / "sbin" / name, *arguments]


class Relay:
    def __init__(self, folder):
        self.port, self.output = free_port(), folder / "smtp-sink.out"
        arguments = ["-c", *(["-u", "nobody"] if os.geteuid() == 0 else []), f"127.0.0.1:{self.port}", "1024"]
        self.process = start(postfix_tool("smtp-sink", *arguments), "load", self.output)
        wait_until(lambda: serves(self.port), self.process, self.output)

    def counts(self):
        """Sessions that have ended and mails, so far."""
        told = re.findall(rb"sess=(\d+) +quit=\d+ +mesg=(\d+)", self.output.read_bytes()[-4096:])
        return tuple(map(int, told[-1])) if told else (0, 0)

    def busy(self):
        """Whether anybody is connected to it."""
        rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return any(row[3] == "01" and row[2].endswith(f":{self.port:04X}") for row in rows)

    def settle(self):
        """The counts when all sessions have ended: the gateway keeps idle ones for some seconds."""
        wait_until(lambda: not self.busy(), self.process, self.output)
        time.sleep(0.2)  # for the last line of its count
        return self.counts()


class Fencegate:
    def __init__(self, folder, relay, ledger):
        self.name, self.port = f"fencegate {ledger}", free_port()
        self.folder, self.begun = folder, 0
        place = folder / ledger
        place.mkdir()
        (place / "fencegate.json").write_text(json.dumps({
            "listen": {"address": "127.0.0.1", "port": self.port},
            "admin": {"address": "127.0.0.1", "port": free_port()},
            "store": {"path": "store", "max_size": "1GiB"},
            "workers": 1,
            "log": {"level": "warn", "access": False},
            "routes": [{"name": "mail", "path": "/mail", "kind": "smtp", "upstream": f"smtp://127.0.0.1:{relay.port}",
                        "ledger": ledger, "smtp": {"starttls": "off"}}],
        }))
        self.mail = folder / "mail.json"
        self.mail.write_text(json.dumps({"from": SENDER, "to": [RECIPIENT], "subject": "Your order", "text": TEXT}))
        self.process = start([BINARY, "serve", "-c", place / "fencegate.json"], "proxy", place / "output")
        wait_until(lambda: serves(self.port), self.process, place / "output")

    def cpu(self):
        return sum(cpu_us([self.process.pid]))

    def paced(self, count, rate):
        self.begun += count
        one = (f'url = "http://127.0.0.1:{self.port}/mail"\ndata-binary = "@{self.mail}"\nheader = "Fencing-Token: 42"\n'
               'header = "Content-Type: application/json"\nheader = "Workflow-Key: paced-{number}"\n')
        each = [one.replace("{number}", str(self.begun + number)) for number in range(count)]
        return curl(self.folder, each, 202, "load", "--rate", f"{rate}/m")

    def full(self, seconds, connections):
        run = subprocess.run(
            ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", HERE / "mail.lua",
             f"http://127.0.0.1:{self.port}", "--", str(KEYS), self.mail],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=preparation("load"))
        told = json.loads(run.stdout.strip().splitlines()[-1]) if run.returncode == 0 else {}
        if told.get("failed") != 0 or not told["mails"]:
            sys.exit(f"wrk: {run.stdout}{run.stderr}")
        return told


def curl(folder, each, status, role, *options):
    """One curl for all of them; `each`: what its configuration says of them."""
    told = 'output = "/dev/null"\nwrite-out = "%{time_total} %{response_code}\\n"\n'
    (folder / "curlrc").write_text("next\n".join(text + told for text in each))
    began = time.monotonic()
    run = subprocess.run(["curl", "-q", "-s", "-S", "--noproxy", "*", *options, "-K", folder / "curlrc"],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=preparation(role))
    seconds, lines = time.monotonic() - began, [line.split() for line in run.stdout.splitlines()]
    if run.returncode != 0 or len(lines) != len(each) or any(line[1] != str(status) for line in lines):
        sys.exit(f"curl: {run.returncode} {run.stdout[-500:]}{run.stderr[-500:]}")
    times = sorted(float(line[0]) * 1e3 for line in lines)
    return {"mails": len(times), "seconds": seconds, "p50": statistics.median(times), "p99": times[len(times) * 99 // 100]}


class Curl:
    """curl has the gateway's core for itself while it runs."""
    name = "curl"

    def __init__(self, folder, relay):
        message = email.message.EmailMessage()
        message["From"], message["To"], message["Subject"], message["Message-ID"] = SENDER, RECIPIENT, "Your order", "<1@x>"
        message.set_content(TEXT)
        self.folder, self.port = folder, relay.port
        (folder / "mail.eml").write_bytes(message.as_bytes(policy=email.policy.SMTP))

    def cpu(self):
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (usage.ru_utime + usage.ru_stime) * 1e6

    def send(self, count, *options):
        one = (f'url = "smtp://127.0.0.1:{self.port}/bench"\nmail-from = "{SENDER}"\nmail-rcpt = "{RECIPIENT}"\n'
               f'upload-file = "{self.folder / "mail.eml"}"\n')
        return curl(self.folder, [one] * count, 250, "proxy", *options)

    def paced(self, count, rate):
        return self.send(count, "--rate", f"{rate}/m")

    def full(self, seconds, connections):
        return self.send(seconds * 1000, "--parallel", "--parallel-max", str(connections))


class Source(Curl):
    name = "smtp-source"
    paced = None

    def full(self, seconds, connections):
        count, began = seconds * 1000, time.monotonic()
        run = subprocess.run(
            [*map(str, postfix_tool("smtp-source", "-d", "-s", str(connections), "-m", str(count), "-f", SENDER, "-t", RECIPIENT,
                                    "-F", self.folder / "mail.eml", f"127.0.0.1:{self.port}"))],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=preparation("proxy"))
        if run.returncode != 0:
            sys.exit(f"smtp-source: {run.stdout}{run.stderr}")
        return {"mails": count, "seconds": time.monotonic() - began, "p50": None, "p99": None}


def measure(contestant, relay, load, arguments, slack):
    """`slack`: mails that may be under way, uncounted by the load, when its time is over."""
    sessions, mails = relay.counts()
    before = contestant.cpu()
    got = getattr(contestant, load)(*arguments)
    got["cpu"] = (contestant.cpu() - before) / got["mails"]
    sessions_now, mails_now = relay.settle()
    got["connections"] = sessions_now - sessions
    more = mails_now - mails - got["mails"]
    if not 0 <= more <= slack:
        sys.exit(f"{contestant.name}: {got['mails']} mails were sent, the relay has {more} more")
    got["rate"] = got["mails"] / got["seconds"] * 60
    return got


def cell(rounds, member, digits):
    values = [each[member] for each in rounds]
    if None in values:
        return "-"
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


COLUMNS = (("mails/min", "rate", 0), ("p50 ms", "p50", 2), ("p99 ms", "p99", 2), ("CPU us/mail", "cpu", 0),
           ("mails", "mails", 0), ("connections", "connections", 0))


def show(title, results):
    print(f"\n{title}")
    print(f"{'':<18}" + "".join(f"{name:>26}" for name, _, _ in COLUMNS))
    for name, rounds in results.items():
        print(f"{name:<18}" + "".join(f"{cell(rounds, member, digits):>26}" for _, member, digits in COLUMNS), flush=True)


def compare(folder, running, options):
    relay = Relay(folder)
    running.append(relay.process)
    gateways = [Fencegate(folder, relay, ledger) for ledger in ("effects", "drops")]
    running.extend(gateway.process for gateway in gateways)
    loads = (
        (f"paced: {options.rate} mails a minute for {options.seconds} s", "paced",
         [*gateways, Curl(folder, relay)], (options.rate * options.seconds // 60, options.rate), 0),
        (f"full: {options.connections} at a time", "full",
         [*gateways, Curl(folder, relay), Source(folder, relay)], (options.seconds, options.connections), options.connections),
    )
    for title, load, contestants, arguments, slack in loads:
        results = {contestant.name: [] for contestant in contestants}
        for turn in range(options.rounds):
            for contestant in contestants[::-1] if turn % 2 else contestants:
                results[contestant.name].append(measure(contestant, relay, load, arguments, slack))
        show(title, results)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=int, default=10, help="of load per round and contestant")
    options.add_argument("--rate", type=int, default=2000, help="mails a minute")
    options.add_argument("--connections", type=int, default=16)
    options = options.parse_args()
    os.sched_setaffinity(0, Cores.of("load"))
    print(subprocess.run([BINARY, "version"], capture_output=True, text=True).stdout.strip())
    running, load_before = [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="fencegate-mail-", dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        syncs = machine.sync_times(folder, 200)
        try:
            compare(pathlib.Path(folder), running, options)
        finally:
            for process in reversed(running):
                stop(process)
        syncs = sorted(syncs + machine.sync_times(folder, 200))
    print(f"\n{os.cpu_count()} CPUs, load average {load_before:.1f} before and {os.getloadavg()[0]:.1f} after; 4 KiB durable on "
          f"disk: p50 {statistics.median(syncs):.2f} ms, p99 {syncs[len(syncs) * 99 // 100]:.1f} ms")


if __name__ == "__main__":
    main()
