#!/usr/bin/env python3
"""Power cuts while a store is made, started, restored or stopped: each start after them works, or is refused for the
one right reason, and no fence is down.

The store lies on a disk whose power can be cut (disk.py), in half of the rounds one that may write names before the
bytes of their files (data=writeback). The cut comes at a random moment of what is under way; before some cuts one file
or the folder is synced from outside, as the kernel may have done by itself. Tokens are raised over the admin listener,
which answers when they are durable. Needs root and loop devices, like powercut.py.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import disk
import rig

KEYS = [f"key-{number}" for number in range(6)]
PHASES = ("made", "made", "started", "started", "started after a kill", "restored", "restored", "stopped", "stopped")
CUTS_A_ROUND = 50  # then a fresh disk
NO_PARTNER = 9
PART = "data.mdb.part"


class Round:
    def __init__(self, seed, folder, spans, phases):
        self.rng = random.Random(f"starts {seed}")
        self.folder = folder
        self.disk = disk.Disk(folder, self.rng.choice([None, "data=writeback"]))
        self.phases = phases
        self.spans = spans  # seconds that each phase takes when it is not cut
        self.told = {}  # key: the highest token that was answered
        self.token = 0
        self.counts = {}
        self.gateway = None

    def count(self, what, number=1):
        self.counts[what] = self.counts.get(what, 0) + number

    # -- the gateway

    def start(self):
        self.gateway.start()

    def launch(self):
        """Without waiting for it to be ready."""
        with self.gateway.log.open("ab") as log:
            self.gateway.process = subprocess.Popen([rig.BINARY, "serve", "-c", str(self.gateway.config)],
                                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)

    def stop(self):
        self.gateway.signal(signal.SIGTERM)
        if self.gateway.process.wait(rig.START_SECONDS) != 0:
            raise rig.Broken(f"stop: {self.gateway.process.returncode}: {self.gateway.said()}")
        self.gateway.kill()

    def raise_some(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.admin_port, timeout=rig.START_SECONDS)
        for _ in range(self.rng.randint(1, 30)):
            key = self.rng.choice(KEYS)
            self.token += 1
            connection.request("PUT", f"/v1/fences/default/{key}", json.dumps({"token": str(self.token)}),
                               {"Authorization": f"Bearer {self.gateway.token}"})
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise rig.Broken(f"raise: {answer.status} {body!r}")
            self.told[key] = self.token
        connection.close()

    # -- the phases: each brings the store to where it begins, and gives what is cut and what has it ended

    def restart_whole(self):
        """A store with fences, served."""
        if not (self.gateway.store / "data.mdb").exists():
            self.told = {}
        self.start()
        self.raise_some()

    def begin_made(self):
        shutil.rmtree(self.gateway.store, ignore_errors=True)
        self.told = {}
        os.sync()
        self.launch()

    def begin_started(self):
        self.restart_whole()
        self.stop()
        self.launch()

    def begin_started_after_a_kill(self):
        self.restart_whole()
        self.gateway.kill()
        self.launch()

    def begin_stopped(self):
        self.restart_whole()
        self.gateway.signal(signal.SIGTERM)

    def begin_restored(self):
        self.restart_whole()
        copy = self.folder.with_suffix(".copy")
        shutil.rmtree(copy, ignore_errors=True)
        run_command("backup", str(copy), "--store", str(self.gateway.store))
        self.gateway.kill()
        for name in os.listdir(self.gateway.store):
            if name != "admin.token" and self.rng.random() < 0.8 or name in ("data.mdb", "journal"):
                (self.gateway.store / name).unlink()
        os.sync()
        self.gateway.process = subprocess.Popen([rig.BINARY, "restore", str(copy), "--store", str(self.gateway.store)],
                                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def has_ended(self, phase):
        """What is under way has done all: for the measure of how long it takes."""
        if phase in ("restored", "stopped"):
            return self.gateway.process.poll() is not None
        return bool(rig.select.select([self.gateway.process.stdout], [], [], 0)[0])

    # -- one cut

    def sync_something(self):
        """What the kernel may have done by itself up to now: a file, the names, or the names and some bytes of a file."""
        try:
            folder = os.open(self.gateway.store, os.O_RDONLY)
        except OSError:
            return
        name = self.rng.choice([".", "journal", *os.listdir(folder)])
        try:
            fd = os.open(name, os.O_RDONLY, dir_fd=folder)
            if name != "." and self.rng.random() < 0.7:
                begin = self.rng.choice([0, 0, 4096 * self.rng.randint(0, 2048)])
                disk.write_back(fd, begin, 4096 * self.rng.choice([1, 1, 16, 256]))
                os.fsync(folder)
            else:
                os.fsync(fd)
            os.close(fd)
        except OSError:
            pass  # it is gone by now
        os.close(folder)

    def wait(self, phase, began):
        span = self.spans.get(phase)
        if span is None or self.rng.random() < 0.02:
            while not self.has_ended(phase) and time.monotonic() - began < rig.START_SECONDS:
                time.sleep(0.001)
            self.spans[phase] = time.monotonic() - began
            return
        time.sleep(max(0, self.rng.uniform(0, span * 1.1) - (time.monotonic() - began)))

    def one(self):
        phase = self.rng.choice(self.phases)
        self.disk.arm()
        getattr(self, "begin_" + phase.replace(" ", "_"))()
        self.wait(phase, time.monotonic())
        if self.rng.random() < 0.5:
            self.sync_something()
        self.disk.cut()
        done = self.gateway.process.poll() == 0
        self.gateway.kill()
        self.disk.repair()
        self.count(f"cuts while {phase}")
        found = self.look(phase, done and phase == "restored")
        return [f"{phase}: {text}" for text in found]

    def look(self, phase, restored):
        store = self.gateway.store
        left = os.listdir(store) if store.exists() else []
        try:
            self.start()
        except rig.Broken as error:
            if phase != "restored" or restored or PART not in str(error) or "fencegate restore" not in str(error):
                return [str(error)]
            self.count("refused: " + PART)
            return self.restore_again()
        fresh = not self.gateway.get("/v1/fences?limit=1")[1].count(b'"key"')
        if fresh and not {PART, "data.mdb"}.isdisjoint(left) and self.told:
            return [f"an empty store was made beside {left}"]
        if "store-created" not in self.gateway.said() and "data.mdb" not in left:
            return [f"a store was made in silence beside {left}"]
        if fresh and phase == "restored" and not restored:
            self.count("restored: nothing of it was on the disk")
            self.gateway.kill()
            shutil.rmtree(store)
            return self.restore_again()
        self.count("started")
        return self.compare()

    def restore_again(self):
        run_command("restore", str(self.folder.with_suffix(".copy")), "--store", str(self.gateway.store))
        self.start()
        return self.compare()

    def compare(self):
        down = {key: (token, self.gateway.fence(key)) for key, token in self.told.items()}
        down = {key: pair for key, pair in down.items() if pair[1] < pair[0]}
        self.count("fences looked at", len(self.told))
        if self.rng.random() < 0.1:
            run_command("verify", "--store", str(self.gateway.store))
        self.gateway.kill() if self.rng.random() < 0.5 else self.stop()
        return [f"fences down (told, is): {down}"] if down else []

    def run(self, cuts, report):
        passed = 0
        try:
            self.disk.prepare()
            self.gateway = rig.Gateway(self.folder, NO_PARTNER, {}, 1)
            for _ in range(cuts):
                self.gateway.log.write_bytes(b"")
                found = self.one()
                if found:
                    report(found)
                    return passed, 1
                passed += 1
        except rig.Broken as error:
            report([str(error)])
            return passed, 1
        finally:
            if self.gateway is not None and self.gateway.process is not None:
                self.gateway.kill()
            self.disk.remove()
        return passed, 0


def run_command(*arguments):
    done = subprocess.run([rig.BINARY, *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise rig.Broken(f"{' '.join(arguments)}: {done.returncode}: {done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="of the first round; the next ones count up (random unless given)")
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--phase", choices=sorted(set(PHASES)), help="cut in this one only")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"starts: {options.cuts} cuts from seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was mounted is unmounted then, too
    passed = failed = 0
    counts, spans = {}, {}
    began = time.monotonic()

    def report(found):
        print(f"FAILED: starts --seed {seed} ({this.disk.options or 'data=ordered'}):")
        print("\n".join("  " + text for text in found[:6]), flush=True)

    while passed + failed < options.cuts:
        with tempfile.TemporaryDirectory(prefix="fencegate-starts-") as folder:
            this = Round(seed, pathlib.Path(folder) / "disk", spans, [options.phase] if options.phase else PHASES)
            good, bad = this.run(min(CUTS_A_ROUND, options.cuts - passed - failed), report)
        passed, failed, seed = passed + good, failed + bad, seed + 1
        for what, number in this.counts.items():
            counts[what] = counts.get(what, 0) + number
    print("  " + ", ".join(f"{number} {what}" for what, number in sorted(counts.items())) +
          f"; {(time.monotonic() - began) / max(1, passed + failed) * 1000:.0f} ms a cut")
    print(f"starts: {passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    disk.skip_or_go_on("starts")
    main()
