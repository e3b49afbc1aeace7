"""The gateway under test as a process: started on a folder, looked into over its admin listener, stopped or killed."""

import http.client
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.path.abspath(os.environ.get("FENCEGATE_BIN") or ROOT / "build" / "fencegate")
START_SECONDS = 20


class Broken(Exception):
    """The gateway did something that no check below could be run after: did not start, died, did not answer."""


class Gateway:
    def __init__(self, folder, upstream_port, route, workers, binary=None, wrapper=(), env=None, others=(), **settings):
        """`folder` exists already; configuration and log are made beside it, so that it can be unmounted. `wrapper` is a
        command to run the gateway under, `others` are routes beside `r`, `settings` replace whole sections."""
        self.folder = pathlib.Path(folder)
        self.binary = binary or BINARY
        self.wrapper, self.env = list(wrapper), {**os.environ, **(env or {})}
        self.config = self.folder.with_suffix(".json")
        self.log = self.folder.with_suffix(".log")
        self.store = self.folder / "store"
        self.config.write_text(json.dumps({
            "listen": {"address": "127.0.0.1", "port": 0},
            "admin": {"address": "127.0.0.1", "port": 0},
            "store": {"path": str(self.store), "max_size": "256MiB"},
            "workers": workers,
            "shutdown_grace": "10s",
            "limits": {"request_timeout": "1s"},
            "log": {"level": "warn", "access": False},
            "routes": [{"name": "r", "path": "/r", "upstream": f"http://127.0.0.1:{upstream_port}",
                        "timeout": {"connect": "5s", "total": "20s"}, "drain_timeout": "20s", **route}, *others],
            **settings,
        }))
        self.log.write_bytes(b"")
        self.process = None
        self.admin_connection = None

    def start(self):
        if not os.access(self.binary, os.X_OK):
            sys.exit(f"{self.binary} is not there: build it, or name another in FENCEGATE_BIN")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*self.wrapper, self.binary, "serve", "-c", str(self.config)], env=self.env,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        out, line, deadline = self.process.stdout.fileno(), b"", time.monotonic() + START_SECONDS
        while not line.endswith(b"\n"):
            if not select.select([out], [], [], max(0, deadline - time.monotonic()))[0]:
                self.kill()
                raise Broken(f"not ready within {START_SECONDS} s: {self.said()}")
            piece = os.read(out, 4096)
            if not piece:
                raise Broken(f"ended with {self.process.wait()} before it was ready: {self.said()}")
            line += piece
        self.process.stdout.close()
        found = re.fullmatch(rb"fencegate ready proxy=127\.0\.0\.1:(\d+) admin=127\.0\.0\.1:(\d+)\n", line)
        if not found:
            raise Broken(f"ready line: {line!r}")
        self.port, self.admin_port = int(found[1]), int(found[2])
        self.token = (self.store / "admin.token").read_text().strip()
        return self

    def said(self):
        """The end of its standard error."""
        return self.log.read_bytes()[-2000:].decode("utf-8", "replace")

    def alive(self):
        return self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self._drop_admin()
        self.process.stdout.close()
        return self.process.wait()

    def stop(self, loop):
        """The exit status of an orderly end; when it had to be killed a text that says where it stood. The loop goes on
        meanwhile: a call whose client left may only now have come to the partner."""
        self._drop_admin()
        self.process.send_signal(signal.SIGTERM)
        if loop.run(lambda: not self.alive(), START_SECONDS, 0.005):
            return self.process.returncode
        threads = self.threads()
        self.kill()
        return f"none within {START_SECONDS} s; {threads}"

    def threads(self):
        """State and system call of each thread, and the stacks where there is a debugger."""
        lines = []
        for task in sorted(pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()):
            lines.append(" ".join((task / name).read_text().strip() for name in ("comm", "wchan", "syscall")))
        if shutil.which("gdb"):
            lines.append(subprocess.run(["gdb", "-p", str(self.process.pid), "-batch", "-ex", "thread apply all bt 12"],
                                        capture_output=True, text=True, timeout=60).stdout[-12000:])
        return "\n".join(lines)

    # -- the admin listener

    def _drop_admin(self):
        if self.admin_connection is not None:
            self.admin_connection.close()
            self.admin_connection = None

    def get(self, path):
        """Status and body."""
        for attempt in (1, 2):
            try:
                if self.admin_connection is None:
                    self.admin_connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=START_SECONDS)
                self.admin_connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
                answer = self.admin_connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._drop_admin()
                if attempt == 2:
                    raise Broken(f"admin {path}: {error!r}; alive: {self.alive()}; {self.said()}") from error

    def fence(self, key):
        status, body = self.get(f"/v1/fences/default/{key}")
        if status == 404:
            return 0
        if status != 200:
            raise Broken(f"fence of {key}: {status} {body!r}")
        return int(json.loads(body)["highest"])

    def audit(self, after=0, route=""):
        """All records with ids above `after`, of one route if it is given, in the order of writing."""
        found = []
        while after is not None:
            status, body = self.get(f"/v1/audit?limit=1000&after={after}" + (f"&route={route}" if route else ""))
            if status != 200:
                raise Broken(f"audit: {status} {body!r}")
            page = json.loads(body)
            found += page["records"]
            after = page["next_after"]
        return found

    def metric(self, name):
        body = self.get("/metrics")[1].decode()
        return sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", body, re.M))

    def settled(self, loop, seconds):
        """Lets calls of clients that left, and outcomes that are being written, come to their end. What the loop saw
        before the last look at the metric is settled; so nothing may run between it and a look at the audit."""
        deadline = time.monotonic() + seconds
        while self.metric("fencegate_requests_live") > 0:
            if time.monotonic() > deadline:
                return False
            loop.run(lambda: False, 0.005)
        return True

    def in_doubt(self):
        """Ids of the effects in doubt; None where the gateway has no such list."""
        found, cursor = [], 0
        while cursor is not None:
            status, body = self.get(f"/v1/effects?state=in-doubt&limit=1000&after={cursor}")
            if status in (404, 405):
                return None
            if status != 200:
                raise Broken(f"effects in doubt: {status} {body!r}")
            page = json.loads(body)
            found += [effect["id"] for effect in page["effects"]]
            cursor = page.get("next_after")
        return found
