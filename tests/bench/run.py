#!/usr/bin/python3
"""Fencegate beside other proxies and beside a fence built by hand: `run.py [SCENARIO...]`, all of them by default.

Reports, never fails for speed. Tables, chart and all samples are left in build/bench/.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

import machine
import report
from processes import Cores, NotHere
from scenarios import SCENARIOS, SHARE, WAITING, Context

OUT = pathlib.Path(__file__).resolve().parents[2] / "build" / "bench"


def placing():
    if Cores.pinned:
        return ("the proxy with all that belongs to it (Redis, too) has one core, load and partner have another; "
                "near 100 % of the load's core a figure is the load's, not the proxy's")
    return "proxy, load and partner share all cores"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="\n".join(f"  {name:<8} {title}" for name, (title, _) in SCENARIOS.items()))
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of load per round and peer")
    parser.add_argument("--no-pin", action="store_true", help="let everything run on every core")
    parser.add_argument("--folder", default="/var/tmp", help="on the disk to measure with; a folder in it comes and goes")
    options = parser.parse_args()
    unknown = set(options.scenarios) - set(SCENARIOS)
    if unknown:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    if options.no_pin:
        Cores.pinned = False
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: sys.exit(128 + received))  # so that `finally` is met
    OUT.mkdir(parents=True, exist_ok=True)
    results, missing, busy, began = {}, [], os.getloadavg(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fencegate-bench.", dir=options.folder) as folder:
        context = Context(folder, options.rounds, options.seconds)
        for name in options.scenarios or SCENARIOS:
            title, function = SCENARIOS[name]
            print(f"{name}: {title} ...", file=sys.stderr, flush=True)
            try:
                results[name] = function(context)
            except NotHere as why:
                missing.append(f"not measured here: {name}, {why}")
        if not results:
            sys.exit("\n".join(missing))
        about = machine.describe(folder, context.syncs, busy)
    about += [f"{options.rounds} rounds of {options.seconds} s, interleaved; medians, lowest and highest round; "
              f"{placing()}; {time.monotonic() - began:.0f} s in all"] + missing
    sync = statistics.median(context.syncs)
    titles = {name: title for name, (title, _) in SCENARIOS.items()}
    (OUT / "samples.json").write_text(json.dumps({"about": about, "sync_ms": sync, "results": results}, indent=1))
    bounds = {"sync + 0.5": sync + 0.5, "all calls": WAITING, "its share": 0.95 * SHARE}
    print(report.write(OUT, titles, results, about, bounds))
    print(f"\nin {OUT}: report.md, report.png, samples.json")


if __name__ == "__main__":
    main()
