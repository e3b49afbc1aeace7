#!/usr/bin/env python3
"""Histories: many clients, few keys, a partner that misbehaves; then everything is held against everything.

Each history has a gateway and a seed of its own: `history.py --seed N --histories 1` with the same switches decides
everything again as in history N. What is checked is in verdict.py, what happens in plan.py.
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
from verdict import Verdict

PATIENCE = 30  # seconds for one history


class History:
    def __init__(self, seed, options, folder):
        self.seed, self.options = seed, options
        self.plan = Plan(seed, options.requests, options.leave, options.announce)
        self.loop = Loop()
        self.load = Load(self.loop)
        self.load.keys = self.plan.keys
        self.folder = folder
        self.pauses = 0
        self.stopped = False

    def run(self):
        """The violations."""
        plan, load = self.plan, self.load
        folder = self.folder / str(self.seed)
        folder.mkdir()
        gateway = self.gateway = rig.Gateway(folder, load.partner.port, plan.route, plan.workers)
        try:
            gateway.start()
            if self.options.pause:
                self.pause_soon(random.Random(f"pauses {self.seed}"))
            services = [LockService(load, gateway.admin_port, gateway.token, raises) for raises in plan.announcements]
            load.begin(gateway.port, plan.steps, plan.clients, services)
            found = []
            if not self.loop.run(load.ended, PATIENCE):
                found += [f"no answer within {PATIENCE} s: {c.call}" for c in load.clients if not c.done][:5]
            self.loop.run(lambda: not self.stopped, 1)
            if not gateway.settled(self.loop, PATIENCE):
                found.append(f"requests still live after {PATIENCE} s")
            verdict = Verdict(plan.route, load.calls, gateway.audit())
            self.counts = verdict.counts
            if services:
                self.counts["announced"] = sum(service.told for service in services)
            found += verdict.raises(plan.keys)
            found += verdict.judge() + load.trouble + [f"nobody sent this: {head!r}" for head in load.partner.strangers]
            for key in plan.keys:
                fence = gateway.fence(key.name.decode())
                if not key.known <= fence <= (key.token if self.options.leave else key.known):
                    found.append(f"the fence of {key.name} is {fence}; accepted was {key.known}, the newest token {key.token}")
            status = gateway.stop(self.loop)
            if status != 0:
                found.append(f"exit status {status} at SIGTERM: {gateway.said()}")
            if "Sanitizer" in gateway.said() or "runtime error" in gateway.said():
                found.append(gateway.said())
            return found
        except rig.Broken as error:
            return [str(error)]
        finally:
            if gateway.process is not None:
                gateway.kill()
            load.close()
            self.loop.close()

    def pause_soon(self, rng):
        self.loop.after(rng.uniform(0, 0.04), lambda: self.pause(rng))

    def pause(self, rng):
        if self.load.ended():
            return
        self.gateway.signal(signal.SIGSTOP)
        self.stopped = True
        self.pauses += 1
        self.loop.after(rng.uniform(0.001, 0.03), lambda: self.go_on(rng))

    def go_on(self, rng):
        self.gateway.signal(signal.SIGCONT)
        self.stopped = False
        self.pause_soon(rng)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="of the first history; the next ones count up (random unless given)")
    parser.add_argument("--histories", type=int, default=6)
    parser.add_argument("--requests", type=int, default=2000, help="in each history")
    parser.add_argument("--pause", action="store_true", help="stop the gateway's process again and again (SIGSTOP)")
    parser.add_argument("--leave", action="store_true", help="clients leave, before and after the request is whole")
    parser.add_argument("--announce", action="store_true", help="a lock service raises fences itself, and waits for older calls")
    parser.add_argument("--stop", action="store_true", help="at the first history that fails")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def main():
    options = parse()
    switches = [name for name in ("pause", "leave", "announce") if getattr(options, name)]
    name = " ".join(["history"] + ["--" + name for name in switches])
    print(f"{name}: seeds {options.seed} to {options.seed + options.histories - 1}, {options.requests} requests each", flush=True)
    began = time.monotonic()
    totals, failed, pauses = {}, 0, 0
    with tempfile.TemporaryDirectory(prefix="fencegate-history-") as folder:
        for seed in range(options.seed, options.seed + options.histories):
            history = History(seed, argparse.Namespace(**vars(options)), pathlib.Path(folder))
            start = time.monotonic()
            found = history.run()
            pauses += history.pauses
            for what, number in getattr(history, "counts", {}).items():
                totals[what] = totals.get(what, 0) + number
            if options.verbose:
                print(f"  seed {seed}: {time.monotonic() - start:.2f} s {history.plan.route} {history.counts}", flush=True)
            if found:
                failed += 1
                print(f"FAILED: {name} --seed {seed} --histories 1 --requests {options.requests} (route {history.plan.route}, "
                      f"{history.plan.workers} workers): {len(found)} violations, the first:")
                print("\n".join("  " + text for text in found[:6]), flush=True)
                if options.stop:
                    break
    seconds = time.monotonic() - began
    print("  " + ", ".join(f"{number} {what}" for what, number in sorted(totals.items())) +
          (f", {pauses} pauses" if options.pause else "") +
          f"; {options.histories * options.requests / seconds:.0f} requests/s")
    print(f"{name}: {options.histories - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
