"""Starts programs, says what they have used, and ends them: nothing stays when the benchmark ends, however it ends."""
import ctypes
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")
OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
CORES = sorted(os.sched_getaffinity(0))
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


class Cores:
    """Who runs where. With two cores or more, the proxy and all that belongs to it has the first one for itself, load
    and partner have the second: no proxy is measured by what it takes from its own load. `pinned` False: anywhere."""
    pinned = len(CORES) > 1

    @classmethod
    def of(cls, role):
        if not cls.pinned:
            return set(CORES)
        return {CORES[0]} if role == "proxy" else {CORES[1]}


def preparation(role):
    cores = Cores.of(role)

    def prepare():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # nginx's master takes its workers along
        os.sched_setaffinity(0, cores)
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    return prepare


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command, role, output):
    """A program in the foreground. `output`: file for what it writes."""
    with open(output, "ab") as sink:
        return subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                                preexec_fn=preparation(role))


def wait_until(look, process, output, patience=30):
    deadline = time.monotonic() + patience
    while not look():
        if process.poll() is not None or time.monotonic() > deadline:
            text = pathlib.Path(output).read_text(errors="replace")[-2000:]
            sys.exit(f"{process.args[0]} did not start:\n{text}")
        time.sleep(0.002)


def serves(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def stop(process):
    """SIGTERM to that process alone; its children are its own to end."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def family(pid):
    """The process and all below it."""
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found.extend(family(int(child)))
    return found


def cpu_us(pids):
    """Microseconds of user and of system time of these processes and their children so far."""
    user = system = 0.0
    for pid in {member for root in pids for member in family(root)}:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user, system = user + int(fields[11]) * TICK_US, system + int(fields[12]) * TICK_US
    return user, system


def threads(pid):
    """The ids of a process's threads, each with its name."""
    return {int(task.name): (task / "comm").read_text().strip() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()}


def thread_us(tid):
    """Microseconds of CPU of one thread so far, as the scheduler counts them."""
    return int(pathlib.Path(f"/proc/{tid}/schedstat").read_text().split()[0]) / 1e3


def all_threads_us(pids):
    """The same of all threads of these processes and their children: finer than cpu_us(), which counts in ticks."""
    found = 0.0
    for pid in {member for root in pids for member in family(root)}:
        found += sum(map(thread_us, threads(pid)))
    return found


def idle_us():
    """Microseconds that the cores have been idle so far, all together."""
    fields = pathlib.Path("/proc/stat").read_text().split(None, 6)
    return (int(fields[4]) + int(fields[5])) * TICK_US


class NotHere(Exception):
    """This machine can't measure that."""


def ration(tid, percent, period_ms):
    """The thread gets that share of a core, before all others, and not more: it stands still for the rest of each
    period (SCHED_DEADLINE)."""
    period = period_ms * 1_000_000
    run = subprocess.run(["chrt", "--deadline", "--sched-runtime", str(period * percent // 100), "--sched-deadline",
                          str(period), "--sched-period", str(period), "--pid", "0", str(tid)],
                         capture_output=True, text=True)
    if run.returncode != 0:
        raise NotHere(f"threads can't be rationed ({run.stderr.strip()})")


def memory_mib(pids):
    """Own memory (anonymous), and all that is resident, which counts mapped files and shared pages too."""
    own = resident = 0
    for pid in {member for root in pids for member in family(root)}:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "VmRSS":
                resident += int(value.split()[0])
            elif name == "RssAnon":
                own += int(value.split()[0])
    return own / 1024, resident / 1024


class MemoryPeak:
    """Looks every 50 ms while the block runs."""

    def __init__(self, pids):
        self.pids, self.own, self.resident = pids, 0.0, 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _look(self):
        own, resident = memory_mib(self.pids)
        self.own, self.resident = max(self.own, own), max(self.resident, resident)

    def _watch(self):
        while not self._end.wait(0.05):
            self._look()

    def __enter__(self):
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        self._look()
