#!/usr/bin/env python3
"""A worker that takes its lease from etcd and sends its calls through Fencegate: an example to copy from.

Reads jobs from standard input, a line each, and sends each as one call to URL (the gateway's), but only while it holds
the lease on KEY; waits for the lease as long as another worker has it. Python's standard library is all it needs: etcd
(3.4 or later) is spoken to by its JSON gateway. What it prints says what became of each job. When etcd can't be asked
for a lease it ends, for its supervisor to start it again.

The lock is an etcd key that exists as long as its holder's lease. The fencing token is that key's create_revision: etcd
counts its revisions up over the whole cluster, so each new holder's is higher. Both lease ids and revisions are 64-bit
integers, which etcd puts into JSON as strings; they stay strings here (a double would lose their last digits).
"""
import argparse
import base64
import http.client
import json
import sys
import threading
import time
import urllib.parse


class NotConnected(OSError):
    """No connection: not a byte went out."""


def post(url, headers, body, timeout):
    """One POST, one connection. No redirects and no repeats behind our back: each would be another call."""
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=timeout)
    try:
        connection.connect()
    except OSError as error:
        raise NotConnected(error) from error
    connection.request("POST", parts.path + ("?" + parts.query if parts.query else ""), body, headers)
    return connection.getresponse()


class Lease:
    """A lock in etcd and the lease it hangs on. Made without either; take() waits for both."""

    def __init__(self, etcd, name, ttl):
        self.etcd, self.ttl = etcd, ttl
        self.key = base64.b64encode(name.encode()).decode()
        self.token = self.id = None
        self.lost = threading.Event()  # set once the lease has run out, or may have

    def ask(self, path, question, timeout=5):
        """etcd's answer, open: a watch goes on for as long as it is read."""
        answer = post(self.etcd + path, {"Content-Type": "application/json"}, json.dumps(question), timeout)
        if answer.status != 200:
            raise OSError(f"etcd says {answer.status} to {path}: {answer.read(300)!r}")
        return answer

    def take(self):
        while True:
            began = time.monotonic()
            self.id = json.load(self.ask("/v3/lease/grant", {"TTL": self.ttl}))["ID"]
            holder, revision = self.try_lock()
            if holder is not None and holder["lease"] == self.id:
                self.token = holder["create_revision"]
                threading.Thread(target=self.keep_alive, args=(began,), daemon=True).start()
                return self
            self.give_back()
            if holder is not None:
                self.wait_for_deletion(int(revision) + 1)

    def try_lock(self):
        """Makes the key unless it is there, in one transaction. Who has it now, and as of which revision."""
        look = {"request_range": {"key": self.key}}
        answer = json.load(self.ask("/v3/kv/txn", {
            "compare": [{"key": self.key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
            "success": [{"request_put": {"key": self.key, "lease": self.id}}, look],
            "failure": [look],
        }))
        found = answer["responses"][-1]["response_range"].get("kvs")
        return found and found[0], answer["header"]["revision"]

    def wait_for_deletion(self, revision):
        """From that revision on: a deletion between our look and this watch is not missed."""
        question = {"create_request": {"key": self.key, "start_revision": str(revision), "filters": ["NOPUT"]}}
        try:
            for line in self.ask("/v3/watch", question, timeout=60):
                result = json.loads(line).get("result", {})
                if result.get("events") or result.get("canceled"):
                    return
        except (OSError, http.client.HTTPException):
            pass  # cut, or silent for a minute: look again

    def keep_alive(self, renewed):
        """Renews three times per TTL. It counts from the question, not from the answer, which may have been slow."""
        while not self.lost.wait(self.ttl / 3):
            asked = time.monotonic()
            try:
                answer = json.load(self.ask("/v3/lease/keepalive", {"ID": self.id}, timeout=self.ttl / 3))
                if int(answer.get("result", {}).get("TTL", 0)) <= 0:
                    self.lost.set()  # etcd does not know the lease any more
                renewed = asked
            except (OSError, ValueError):
                pass  # etcd may be back before the lease runs out
            if time.monotonic() - renewed >= self.ttl:
                self.lost.set()

    def give_back(self):
        """The next holder need not wait for the end of the TTL. When this fails, it waits."""
        try:
            self.ask("/v3/lease/revoke", {"ID": self.id}).read()
        except OSError:
            pass


def send(url, key, lease, job):
    """One job to its end: "done", "stale", "refused" or "unknown", and what to tell of it."""
    headers = {"Workflow-Key": key.encode(), "Fencing-Token": lease.token, "Content-Type": "text/plain"}
    while True:
        # Whether we still hold the lease is not asked here: this process may be paused after any look of its own.
        # The gateway looks, right before the first byte goes out to the partner.
        wait = 1
        try:
            answer = post(url, headers, job, timeout=120)  # longer than all that the route waits for together
            text = answer.read().decode("utf-8", "replace").strip()
        except NotConnected:
            pass
        except (OSError, http.client.HTTPException) as error:
            return "unknown", f"no answer from the gateway ({error}): look into its audit"
        else:
            effect = answer.getheader("Fencegate-Effect", "unknown")
            if effect in ("sent", "unfenced"):  # the partner's own answer; a 412 may be the partner's, too
                return "done", f"{answer.status} {text}"
            if effect != "not-sent":
                # The partner may have done it: never again without asking the partner. The id finds the record.
                return "unknown", f"effect {answer.getheader('Fencegate-Effect-Id', '?')}: ask the partner"
            if answer.status == 412:
                return "stale", json.loads(text)["detail"]  # the lease is gone, another worker has it: stop
            if answer.status < 500:
                return "refused", text  # the call itself is wrong: a repeat would be refused as well
            wait = int(answer.getheader("Retry-After", "1"))
        if lease.lost.wait(wait):  # nothing was sent: again with the same token, while the lease lasts
            return "stale", "the lease ran out before the call could be sent"


def jobs(every):
    while every:
        time.sleep(every)
        yield b"amount=4200"
    for line in sys.stdin.buffer:
        yield line.rstrip(b"\n")


def say(*words):
    print("".join(c if c.isprintable() else "?" for c in " ".join(words)), flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--etcd", default="http://127.0.0.1:2379", help="base URL")
    options.add_argument("--ttl", type=int, default=10, help="seconds; etcd raises it to its own least TTL")
    options.add_argument("--every", type=float, default=0, help="seconds: make up a job that often instead of reading them")
    options.add_argument("key", help="workflow key: what the lease protects")
    options.add_argument("url", help="where jobs go, through the gateway")
    options = options.parse_args()
    work = jobs(options.every)
    while True:
        lease = Lease(options.etcd, "fencegate/" + options.key, options.ttl).take()
        say("holds", options.key, "with token", lease.token)
        while not lease.lost.is_set():
            job = next(work, None)
            if job is None:
                lease.give_back()
                return
            outcome, text = send(options.url, options.key, lease, job)
            say(outcome, lease.token, text)
            if outcome == "stale":
                lease.lost.set()
        say("lost", options.key, "with token", lease.token)


if __name__ == "__main__":
    main()
