"""Load: wrk for as many calls as get through (closed loop), pace for a fixed rate (open loop)."""
import json
import os
import pathlib
import resource
import subprocess
import sys

from processes import preparation

HERE = pathlib.Path(__file__).resolve().parent
PACE = os.environ.get("FENCEGATE_PACE") or HERE.parents[1] / "build" / "pace"


def children_us():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1e6


def judge(result, port, refused=False):
    """No round may count how fast a proxy fails."""
    expected = result["requests"] if refused else 0
    if result["failed"] or result.get("refused", 0) != expected or not result["requests"]:
        sys.exit(f"calls failed on port {port}: {result}")
    return result


def wrk(port, path, seconds, tokens="42", keys=1000, order="turn", body=80, connections=64, refused=False):
    """`refused`: all calls have to be, else none may. Times in microseconds; `own_us`: CPU of wrk itself."""
    before = children_us()
    run = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", HERE / "post.lua",
         f"http://127.0.0.1:{port}", "--", path, str(keys), order, tokens, str(body)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds + 60, preexec_fn=preparation("load"))
    if run.returncode != 0:
        sys.exit(f"wrk: {run.stdout}{run.stderr}")
    result = judge(json.loads(run.stdout.strip().splitlines()[-1]), port, refused)
    return {**result, "own_us": children_us() - before}


class Pace:
    """`wait_sent()` returns when the last call is out, `result()` when all are answered."""

    def __init__(self, port, path, rate, count, connections=64, keys=1000, token="42"):
        self.port = port
        self.process = subprocess.Popen(
            [PACE, str(port), path, str(rate), str(count), str(connections), str(keys), token],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, preexec_fn=preparation("load"))

    def wait_sent(self):
        if self.process.stdout.readline() != "sent\n":
            sys.exit(f"pace failed on port {self.port}")

    def all(self):
        self.wait_sent()
        return self.result()

    def result(self):
        text = self.process.stdout.read()
        if self.process.wait() != 0:
            sys.exit(f"pace failed on port {self.port}")
        return judge(json.loads(text.splitlines()[-1]), self.port)
