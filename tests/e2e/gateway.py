"""Starts the real binary on a configuration and a folder of its own, and looks into it from outside."""

import concurrent.futures
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import threading
import time
import urllib.parse

from client import Closed, Connection, fenced, request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.path.abspath(os.environ.get("FENCEGATE_BIN") or ROOT / "build" / "fencegate")
SANITIZED = os.environ.get("FENCEGATE_SANITIZED") == "1"
REPORTS = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:")
PATIENCE = 30.0 if SANITIZED else 10.0

# The tests hold thousands of sockets; the gateway gets the limit that a shell would give it.
SHELL_LIMIT = (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (SHELL_LIMIT[1], SHELL_LIMIT[1]))
pool = concurrent.futures.ThreadPoolExecutor(max_workers=64)


def route(partner, **settings):
    """A route to a partner or URL, named and mounted `pay` unless told otherwise."""
    return {"name": "pay", "path": "/pay", "upstream": getattr(partner, "url", partner), **settings}


def eventually(look, timeout=PATIENCE, what="it"):
    """Asks again and again until `look()` gives something true; for what has no event to wait for."""
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout} s; last: {found!r}"
        time.sleep(0.01)


def run(*arguments, timeout=PATIENCE, **options):
    """The command line, to its end."""
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, **options)


class Gateway:
    """One `fencegate serve`. `folder` holds configuration and store and outlives restarts."""

    running = set()

    def __init__(self, folder, routes, env=None, wrapper=(), **settings):
        self.folder = pathlib.Path(folder)
        self.env = env or {}
        self.wrapper = list(wrapper)
        self.settings = {
            "listen": {"address": "127.0.0.1", "port": 0},
            "admin": {"address": "127.0.0.1", "port": 0},
            "store": {"path": "store", "max_size": "256MiB"},
            "workers": 2,
            "shutdown_grace": "5s",
            **settings,
            "routes": routes,
        }
        self.config = self.folder / "fencegate.json"
        self.store = self.folder / self.settings["store"]["path"]
        self.expected_exit = 0

    # -- the process

    def write_config(self):
        self.config.write_text(json.dumps(self.settings, indent=2))

    def spawn(self):
        """Starts without waiting for readiness."""
        self.write_config()
        self.log, self.stderr, self.stdout = [], [], []
        self._ready = threading.Event()
        self.process = subprocess.Popen(
            [*self.wrapper, BINARY, "serve", "-c", str(self.config)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            env={**os.environ, **self.env},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, SHELL_LIMIT),
        )
        self._readers = [
            threading.Thread(target=self._read_stdout, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._read_stderr, args=(self.process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        return self

    def start(self):
        self.spawn()
        assert self._ready.wait(PATIENCE) and self.stdout, f"not ready: {self.stdout} {''.join(self.stderr)[-3000:]}"
        line = re.fullmatch(r"fencegate ready proxy=127\.0\.0\.1:(\d+) admin=127\.0\.0\.1:(\d+)\n", self.stdout[0])
        assert line, f"ready line: {self.stdout[0]!r}"
        self.port, self.admin_port = int(line[1]), int(line[2])
        token_file = self.settings["admin"].get("token_file")
        self.admin_token = ((self.folder / token_file) if token_file else self.store / "admin.token").read_text().strip()
        Gateway.running.add(self)
        return self

    def _read_stdout(self, stream):
        for line in stream:
            self.stdout.append(line.decode())
            self._ready.set()
        self._ready.set()

    def _read_stderr(self, stream):
        for line in stream:
            text = line.decode("utf-8", "backslashreplace")
            self.stderr.append(text)
            try:
                self.log.append(json.loads(text))
            except ValueError:
                pass  # check() finds it

    def wait_log(self, match, timeout=PATIENCE):
        """The first log line for which match(line) holds."""
        return eventually(lambda: next((line for line in list(self.log) if match(line)), None), timeout, "the log line")

    def check(self):
        """Still alive, nothing but JSON lines on standard error, no sanitizer report."""
        status = self.process.poll()
        if status is not None:
            Gateway.running.discard(self)  # one test fails for it, not all that follow
        text = "".join(self.stderr)
        for report in REPORTS:
            assert report not in text, text[-6000:]
        assert status is None, f"the gateway ended with {status}: {text[-3000:]}"

    def wait(self, timeout=PATIENCE + 30):
        """The exit status, when the process has ended by itself."""
        status = self.process.wait(timeout)
        for reader in self._readers:
            reader.join(PATIENCE)
        Gateway.running.discard(self)
        text = "".join(self.stderr)
        for report in REPORTS:
            assert report not in text, text[-6000:]
        return status

    def stop(self, number=signal.SIGTERM):
        """An orderly end; the exit status."""
        self.process.send_signal(number)
        status = self.wait()
        assert len(self.stdout) == 1, f"standard output: {self.stdout}"
        foreign = [line for line in self.stderr if not line.startswith("{")]
        assert not foreign, f"no JSON on standard error: {foreign[:5]}"
        return status

    def kill(self):
        """SIGKILL: what a crash looks like."""
        self.process.kill()
        self.wait()

    def end(self):
        """For fixtures: stop whatever still runs, and see that it ends well."""
        if self.process.poll() is None and self in Gateway.running:
            status = self.stop()
            assert status == self.expected_exit, f"exit status {status}: {''.join(self.stderr)[-3000:]}"
        elif self.process.poll() is None:
            self.process.kill()
            self.wait()

    def reload(self):
        self.write_config()
        self.process.send_signal(signal.SIGHUP)

    def memory_kib(self, field="VmHWM"):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+) kB", text)[1])

    # -- the proxy

    def connect(self, timeout=PATIENCE):
        return Connection(self.port, timeout)

    def call(self, target, token=None, key=None, method="POST", headers=(), body=b"", **options):
        """One request on a connection of its own, and its answer."""
        with self.connect(options.pop("timeout", PATIENCE + 5)) as connection:
            connection.send(request(method, target, [*fenced(token, key), *headers], body, **options))
            return connection.receive(method)

    def send_off(self, *arguments, **options):
        """`call` in the background; `.result(seconds)` has the answer."""
        return pool.submit(self.call, *arguments, **options)

    # -- the admin listener

    def admin(self, path, method="GET", token="", headers=(), body=b""):
        """token None: no Authorization at all; "": the right one."""
        if token is not None:
            headers = [("Authorization", "Bearer " + (token or self.admin_token)), *headers]
        with Connection(self.admin_port, PATIENCE) as connection:
            connection.send(request(method, path, headers, body, host="localhost"))
            return connection.receive(method)

    def fence(self, key, namespace="default"):
        """The highest token accepted for a key; None when there is none."""
        quoted = urllib.parse.quote(key if isinstance(key, bytes) else key.encode(), safe="")
        answer = self.admin(f"/v1/fences/{namespace}/{quoted}")
        if answer.status == 404:
            return None
        assert answer.status == 200, answer
        assert isinstance(answer.json["highest"], str)
        return int(answer.json["highest"])

    def audit(self, **filters):
        """Audit records, oldest first."""
        query = urllib.parse.urlencode({"limit": 1000, **filters})
        answer = self.admin(f"/v1/audit?{query}")
        assert answer.status == 200, answer
        return answer.json["records"]

    def wait_audit(self, count=1, **filters):
        """Outcomes are written while the client already reads its answer, so they may come a moment later."""
        found = eventually(lambda: (lambda r: r if len(r) >= count else None)(self.audit(**filters)), what=f"audit {filters}")
        assert len(found) == count, found
        return found

    def metric(self, name):
        """The sum over all labels."""
        answer = self.admin("/metrics", token=None)
        assert answer.status == 200, answer
        total = 0.0
        for line in answer.body.decode().splitlines():
            match = re.fullmatch(rf"{name}(\{{.*\}})? (\S+)", line)
            total += float(match[2]) if match else 0
        return total

    def command(self, name, *arguments):
        return run(name, "-c", self.config, *arguments)


def attempt(connection, method="POST"):
    """The answer, or None when the connection was closed without one."""
    try:
        return connection.receive(method)
    except Closed:
        return None
