#!/usr/bin/env python3
"""A mail's last looks: before MAIL, and before the final dot. A newer token is accepted while the worker that speaks with
the relay stands still (ptrace), and has not heard of it; the relay's next reply is there when it goes on. No MAIL may
come after the greeting, no dot after the message; the dot only the look itself can stop.
"""

import argparse
import http.client
import json
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "e2e"))

import rig  # noqa: E402
from lastlook import Stopped, receive, workers_connections  # noqa: E402
from relay import Held, Relay  # noqa: E402

PATIENCE = 10
MAIL = json.dumps({"from": "a@jobs.example", "to": ["b@home.example"], "text": "x" * 1000}).encode()


def wait(look, what):
    deadline = time.monotonic() + PATIENCE
    while not look():
        if time.monotonic() > deadline:
            raise rig.Broken(f"{what} did not come")
        time.sleep(0.001)


def raise_fence(gateway, key, token):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.admin_port, timeout=PATIENCE)
    connection.request("PUT", f"/v1/fences/default/{key}", json.dumps({"token": str(token)}), {"Authorization": f"Bearer {gateway.token}"})
    status = connection.getresponse().status
    connection.close()
    if status != 200:
        raise rig.Broken(f"a raise was answered {status}")


def once(gateway, relay, thread, sock, number):
    """One mail, with the worker stopped at one of the two places. What was wrong."""
    key, point = f"key{number}", ("EHLO", "DATA")[number % 2]
    held = Held()
    relay.begin()
    relay.on(point, held)
    sock.sendall(b"POST /r HTTP/1.1\r\nHost: g\r\nFencing-Token: 5\r\nWorkflow-Key: %s\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % (key.encode(), len(MAIL)) + MAIL)
    held.wait()
    session = relay.sessions[-1]
    with Stopped(thread):
        said = session.said
        held.release()
        wait(lambda: session.said > said, "the relay's reply")
        raise_fence(gateway, key, 6)
    head, body = receive(sock)
    told = json.loads(body)
    if b" 412 " not in head.split(b"\r\n")[0] or told.get("reason") != "superseded":
        yield f"{point}: {head.splitlines()[0]!r} {told}"
    wait(lambda: session.ended, "the end of the session")
    if relay.dots:
        yield f"{point}: a dot came after token 6 was accepted"
    if point == "EHLO" and "MAIL" in relay.verbs():
        yield "a MAIL came after token 6 was accepted"


def run(tries, folder):
    relay = Relay()
    gateway = rig.Gateway(folder, relay.port, {"kind": "smtp", "upstream": relay.url, "smtp": {"starttls": "off"}}, 2)
    try:
        gateway.start()
        thread, mine, _, socks = workers_connections(gateway)
        found = [text for number in range(tries) for text in once(gateway, relay, thread, mine[number % len(mine)], number)]
        for sock in socks:
            sock.close()
        return found
    except (rig.Broken, AssertionError) as error:
        return [str(error)]
    finally:
        gateway.kill()
        relay.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="taken like the other harnesses do; nothing here is random")
    parser.add_argument("--tries", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fencegate-lastdot-") as folder:
        place = pathlib.Path(folder) / "gateway"
        place.mkdir()
        found = run(options.tries, place)
    if found:
        print(f"FAILED: lastdot --tries {options.tries}: {len(found)} violations, the first:")
        print("\n".join("  " + text for text in found[:6]))
    print(f"lastdot: {options.tries - len(found)} passed, {len(found)} failed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
