#!/usr/bin/env python3
"""All harnesses, one after the other: `run.py short` for every day, `run.py long` for the evidence. Seeds are printed.

`run.py long --seed N` begins at that seed instead of a random one.
"""

import pathlib
import random
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SHORT = (
    "history.py --histories 4",
    "history.py --histories 3 --pause",
    "history.py --histories 2 --leave",
    "history.py --histories 2 --announce",
    "history.py --histories 3 --pause --leave --announce",
    "idle.py --tries 200",
    "lastlook.py --tries 2",
    "lastdot.py --tries 6",
    "mails.py --mails 500",
    "flood.py --only slow-route admin-connections admin-calls connections names paths stale stale-drop-oldest keys keys-drop-oldest",
    "kill.py --cycles 50",
    "powercut.py --cycles 60",
    "starts.py --cuts 60",
)
LONG = (
    "history.py --histories 500",
    "history.py --histories 100 --pause",
    "history.py --histories 100 --leave",
    "history.py --histories 150 --announce",
    "history.py --histories 150 --pause --leave --announce",
    "idle.py --tries 5000",
    "lastlook.py --tries 50",
    "lastdot.py --tries 100",
    "mails.py --mails 3500",
    "flood.py --only slow-route admin-connections admin-calls connections names paths stale stale-drop-oldest keys keys-drop-oldest --seconds 60",
    "kill.py --cycles 2000",
    "powercut.py --cycles 1000",
    "starts.py --cuts 1000",
)


def run(command, *arguments):
    return subprocess.run([sys.executable, "-B", str(HERE / command[0]), *command[1:], *arguments]).returncode == 0


def main():
    if len(sys.argv) not in (2, 4) or sys.argv[1] not in ("short", "long") or (len(sys.argv) == 4 and sys.argv[2] != "--seed"):
        sys.exit(__doc__)
    seed = sys.argv[3] if len(sys.argv) == 4 else str(random.SystemRandom().randrange(10**6))
    began = time.monotonic()
    results = [run(command.split(), "--seed", seed) for command in (SHORT if sys.argv[1] == "short" else LONG)]
    if sys.argv[1] == "long":
        results.append(run(["mutants.py"]))
    print(f"harnesses, {sys.argv[1]}, seed {seed}: {sum(results)} passed, {len(results) - sum(results)} failed "
          f"({time.monotonic() - began:.0f} s)")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
