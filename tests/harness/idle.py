#!/usr/bin/env python3
"""The partner closes an idle connection at the very moment when the gateway sends on it.

One worker calls again and again, each time when the partner's idle limit runs out, give or take some microseconds. The
partner closes, resets, or takes what has come and closes without an answer. Whatever meets what: no call may reach the
partner twice, and none may be told to be sent or not sent that was not.
"""

import argparse
import pathlib
import random
import sys
import tempfile
import time

import rig
from load import Client, Load
from loop import Lease, Loop
from plan import Step
from verdict import Verdict

IDLE_LIMIT = 0.004
AROUND = 0.0004  # seconds before and after


class Caller(Client):
    """Aims each call at the end of the idle time of the connection that the last one went over."""

    def __init__(self, load, steps, rng):
        super().__init__(load, steps)
        self.rng = rng
        self.way = 0.0005  # from us through the gateway to the partner, as far as is known
        self.began = 0.0

    def next(self):
        last = self.load.calls.get(self.load.last)
        if last is not None and last.seen_at:
            self.way += (min(last.seen_at - self.began, 0.005) - self.way) / 8
            aim = last.seen_at + IDLE_LIMIT - self.way + self.rng.uniform(-AROUND, AROUND)
            self.loop.at(aim, super().next)
        else:
            self.loop.after(0, super().next)

    def start(self, step):
        self.began = time.monotonic()
        super().start(step)


def run(seed, tries, folder):
    """Violations, and how often what happened."""
    rng = random.Random(f"idle {seed}")
    route = {"ledger": rng.choice(["effects", "drops"]), "on_supersede": "drain"}
    loop = Loop()
    loop.precise = True
    load = Load(loop)
    load.keys = [Lease(b"key", 1)]
    gateway = rig.Gateway(folder, load.partner.port, route, 1)
    try:
        gateway.start()
        load.port = gateway.port
        steps = [Step(0, rng.choice(["raise", "join"]), 1, ("idle", 0, IDLE_LIMIT, rng.choice(["close", "reset", "take"])),
                      "stay", 0.0, 0.0) for _ in range(tries)]
        caller = Caller(load, steps, rng)
        load.clients = [caller]
        caller.next()
        if not loop.run(load.ended, 30 + tries * 0.1):
            return [f"no answer: {caller.call}"], {}
        if not gateway.settled(loop, 10):
            return ["requests still live after 10 s"], {}
        verdict = Verdict(route, load.calls, gateway.audit())
        found = verdict.judge() + load.trouble
        counts = {"on the old connection": 0, "on a fresh one": 0, "lost in the close": 0, "taken and closed": 0}
        for call in load.calls.values():
            if call.effect == "sent":
                counts["on the old connection" if call.use > 1 else "on a fresh one"] += 1
            else:
                counts["taken and closed" if call.arrivals else "lost in the close"] += 1
        status = gateway.stop(loop)
        return found + ([f"exit status {status}"] if status else []), counts
    except rig.Broken as error:
        return [str(error)], {}
    finally:
        gateway.kill()
        load.close()
        loop.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--tries", type=int, default=500)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    with tempfile.TemporaryDirectory(prefix="fencegate-idle-") as folder:
        place = pathlib.Path(folder) / "gateway"
        place.mkdir()
        found, counts = run(seed, options.tries, place)
    if found:
        print(f"FAILED: idle --seed {seed} --tries {options.tries}: {len(found)} violations, the first:")
        print("\n".join("  " + text for text in found[:6]))
    print(f"idle: {options.tries} tries from seed {seed}: " + ", ".join(f"{number} {what}" for what, number in counts.items()))
    print(f"idle: {options.tries - len(found)} passed, {len(found)} failed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
