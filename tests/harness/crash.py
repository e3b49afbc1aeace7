"""Crash, restart, look: what powercut.py and kill.py have in common. How the crash is done is theirs.

The gateway serves a few clients; at the moment when the partner gets some call, or at any moment, the crash comes. Then
everything that was still on its way is read, the gateway is started again on what is left, and everything is held
against everything: fences, audit, effects in doubt, what the partner saw, what clients were told. Keys, fences and
tokens go on from cycle to cycle, so a fence that was lost shows once more when a stale call gets through later.
"""

import argparse
import pathlib
import random
import signal
import sys
import tempfile
import time

import rig
from load import Load, LockService
from loop import Loop
from plan import Plan
from verdict import CRASH, Verdict

CLIENTS = 8
STEPS = 400
STEPS_LONG = 4000  # of some cycles: data.mdb is settled several times under this load
CYCLES_A_ROUND = 100  # then a fresh store
AFTERMATH_SECONDS = 0.01  # how long a gateway that lost its disk goes on before it is killed


class Round:
    """Cycles on one store. `folder` is where the store goes; subclasses do the crash and repair."""

    def __init__(self, seed, folder):
        self.seed, self.folder = seed, pathlib.Path(folder)
        self.loop = Loop()
        self.load = Load(self.loop)
        self.load.crashes = True
        self.gateway = None
        self.earlier = set()  # (key, token) of all calls of earlier cycles
        self.records = []
        self.doubts = set()
        self.counts = {}

    # -- for the subclass

    def prepare(self):
        """Makes the folder."""

    def arm(self):
        """Called right before each cycle."""

    def crash(self):
        """The moment."""

    def repair(self):
        """The gateway is dead; make the folder usable again."""

    def remove(self):
        """At the end, whatever happened."""

    # -- one cycle

    def run(self, cycles, report):
        """How many cycles passed and failed."""
        failed = passed = 0
        try:
            self.prepare()
            for cycle in range(cycles):
                found = self.cycle(random.Random(f"{type(self).__name__} {self.seed} {cycle}"), cycle)
                if cycle == cycles - 1 and not found:
                    found = self.look_back()
                passed, failed = passed + (not found), failed + bool(found)
                if found:
                    report(self.seed, cycle, found)
                    break  # what was lost once would be reported in each cycle that follows
        except rig.Broken as error:
            failed += 1
            report(self.seed, passed, [str(error)])
        finally:
            if self.gateway is not None and self.gateway.process is not None:
                self.gateway.kill()
            self.load.close()
            self.loop.close()
            self.remove()
        return passed, failed

    def cycle(self, rng, cycle):
        load = self.load
        long = rng.random() < 0.1
        plan = Plan(f"{self.seed} {cycle}", STEPS_LONG if long else STEPS, announce=rng.random() < 0.5)
        self.route = {"ledger": rng.choice(["effects", "effects", "effects", "drops"]),
                      "on_supersede": rng.choice(["drain", "drain", "abort", "overlap"])}
        if not load.keys or rng.random() < 0.05:
            load.keys = plan.keys
            for key in load.keys:
                key.name += b"-%d" % cycle
        steps = [step._replace(key=step.key % len(load.keys)) for step in plan.steps]
        self.start(rng)
        self.arm()
        self.gone = False
        if rng.random() < 0.6:
            wanted = rng.randint(60, 2000) if long else rng.choice([1, 1, 2, 3, rng.randint(4, 60)])
            load.partner.arrived = 0
            load.partner.on_arrival = lambda call: load.partner.arrived == wanted and self.strike()
        else:
            self.loop.after(rng.uniform(0, 0.8 if long else 0.04), self.strike)
        raises = [[one._replace(key=one.key % len(load.keys)) for one in some] for some in plan.announcements]
        services = [LockService(load, self.gateway.admin_port, self.gateway.token, some) for some in raises]
        load.begin(self.gateway.port, steps, CLIENTS, services)
        if not self.loop.run(lambda: self.gone or load.ended(), 20):
            return [f"no answer within 20 s: {client.call}" for client in load.clients if not client.done][:3]
        self.strike()
        self.loop.run(lambda: not self.gateway.alive(), AFTERMATH_SECONDS)
        load.stopped = True
        self.gateway.kill()
        self.read_the_rest()
        load.stop()
        load.partner.on_arrival = None
        self.repair()
        return self.look()

    def start(self, rng):
        if self.gateway is not None and self.gateway.process.poll() is None:
            self.gateway.kill()  # an idle one, from the look after the last crash
        self.gateway = rig.Gateway(self.folder, self.load.partner.port, self.route, rng.choice([1, 2]))
        self.gateway.start()

    def strike(self):
        if not self.gone:
            self.gone = True
            self.crash()

    def read_the_rest(self):
        """The gateway is dead, but what it sent lies in our sockets."""
        for _ in range(1000):
            before = self.loop.clock, len(self.load.partner.connections)
            self.loop.turn(0)
            if before == (self.loop.clock, len(self.load.partner.connections)):
                return

    def look(self):
        """Starts the gateway on what is left, and compares."""
        load = self.load
        self.gateway.start()
        after = int(self.records[-1]["id"]) if self.records else 0
        fresh = self.gateway.audit(after)
        self.records += fresh
        self.doubts |= {record["effect_id"] for record in fresh
                        if record.get("reason") == CRASH and record["kind"] == "unknown"}
        verdict = Verdict(self.route, load.calls, fresh, crashed=True, earlier=self.earlier)
        found = verdict.judge() + verdict.raises(load.keys)
        for key in load.keys:
            self.count("announced", len(key.confirmed))
            key.confirmed.clear()
        for name, number in verdict.counts.items():
            self.count(name, number)
        for key in load.keys:
            fence = self.gateway.fence(key.name.decode())
            if not key.known <= fence <= key.token:
                found.append(f"the fence of {key.name} is {fence}; {key.known} was accepted, {key.token} the newest token")
        listed = self.gateway.metric("fencegate_effects_in_doubt")
        if listed != len(self.doubts):
            found.append(f"{listed:.0f} effects are in doubt, {len(self.doubts)} have a record that says so")
        found += load.trouble + [f"nobody sent this: {head!r}" for head in load.partner.strangers]
        self.earlier |= {(call.key.name, call.token) for call in load.calls.values() if call.sent}
        load.calls.clear()
        return found

    def count(self, name, number):
        self.counts[name] = self.counts.get(name, 0) + number

    def look_back(self):
        """After all cycles: nothing of the earlier ones has gone or changed."""
        found = []
        if self.gateway.audit() != self.records:
            found.append("audit records of earlier cycles have changed or gone")
        listed = self.gateway.in_doubt()
        if listed is not None and set(listed) != self.doubts:
            found.append(f"the list of effects in doubt lacks {self.doubts - set(listed)}, has beside them "
                         f"{set(listed) - self.doubts}")
        return found


def main(name, make, doc):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="of the first round; the next ones count up (random unless given)")
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--stop", action="store_true", help="at the first cycle that fails")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"{name}: {options.cycles} cycles from seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was mounted is unmounted then, too
    passed = failed = 0
    counts = {}
    began = time.monotonic()

    def report(seed, cycle, found):
        print(f"FAILED: {name} --seed {seed} --cycles {cycle + 1}: {len(found)} violations in the last cycle "
              f"({this.route}), the first:")
        print("\n".join("  " + text for text in found[:6]), flush=True)

    while passed + failed < options.cycles and not (failed and options.stop):
        cycles = min(CYCLES_A_ROUND, options.cycles - passed - failed)
        with tempfile.TemporaryDirectory(prefix=f"fencegate-{name}-") as folder:
            this = make(seed, pathlib.Path(folder) / "disk")
            good, bad = this.run(cycles, report)
        passed, failed, seed = passed + good, failed + bad, seed + 1
        for what, number in this.counts.items():
            counts[what] = counts.get(what, 0) + number
    print("  " + ", ".join(f"{number} {what}" for what, number in sorted(counts.items())) +
          f"; {(time.monotonic() - began) / max(1, passed + failed) * 1000:.0f} ms a cycle")
    print(f"{name}: {passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
