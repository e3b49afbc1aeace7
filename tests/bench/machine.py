"""What it ran on."""
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time

import peers


def sync_times(folder, count):
    """Milliseconds that the disk takes to make 4 KiB durable."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(count):
            began = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1e3)
    return times


def describe(folder, syncs, began):
    """Lines of text."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), "CPU")
    system = next((line.partition("=")[2].strip('"') for line in pathlib.Path("/etc/os-release").read_text().splitlines()
                   if line.startswith("PRETTY_NAME")), "")
    disk = subprocess.run(["df", "--output=fstype", folder], capture_output=True, text=True).stdout.split()[-1]
    ordered = sorted(syncs)
    return [
        f"{model}, {len(os.sched_getaffinity(0))} cores, {system}, Linux {platform.release()}",
        f"disk ({disk}): 4 KiB and fdatasync() take {statistics.median(ordered):.2f} ms (median of {len(ordered)}), "
        f"99 % below {ordered[len(ordered) * 99 // 100]:.1f} ms",
        f"load average at the start {began[0]:.1f}, at the end {os.getloadavg()[0]:.1f}",
    ] + peers.versions()
