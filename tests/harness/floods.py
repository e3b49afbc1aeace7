#!/usr/bin/env python3
"""The floods themselves, each in a process of its own: `floods.py NAME`.

It prints the port of its partner stand-in, waits for a line "PROXY-PORT ADMIN-PORT", floods until standard input ends,
prints a line when it has come to its limit, and at the end its answers by status as JSON. It runs at the lowest priority, since a real flood brings machines of its own.
"""

import asyncio
import collections
import itertools
import json
import os
import random
import sys

PIPELINE = 16
STREAMS = 8
CALLS = 200  # at once, where each has a connection of its own
CROWD = 400  # more than limits.connections
REOPEN_SECONDS = 0.1
# The answer at the limit, and how many of them; others are there at once.
LIMIT = {"paths": ("428", 1), "stale": ("503", 1), "stale_rolling": ("412", 12_000), "keys": ("503", 1), "names": ("504", 1), "slow": ("503", 1)}

counts = collections.Counter()
numbers = itertools.count(1)


def key(size=240):
    return (f"flood-{os.getpid()}-{next(numbers)}-".encode() + b"k" * size)[:size]


def call(path, *headers):
    return b"".join([b"POST ", path, b" HTTP/1.1\r\nHost: flood\r\nContent-Length: 0\r\n", *headers, b"\r\n"])


def fenced(path, *headers):
    return call(path, b"Fencing-Token: 1\r\nWorkflow-Key: ", key(), b"\r\n", *headers)


async def answer(reader):
    """The status of one answer, which is read to its end."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().find(b"content-length: ")
    if length >= 0:
        await reader.readexactly(int(head[length + 16:head.index(b"\r", length)]))
    counts[head[9:12].decode()] += 1
    return head


async def for_ever(attack):
    """Connects again whenever the gateway ends the connection."""
    while True:
        try:
            await attack()
        except (OSError, EOFError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            counts["closed"] += 1
        await asyncio.sleep(REOPEN_SECONDS)


async def pipeline(port, request):
    """Whole batches of requests, then their answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            writer.write(b"".join(request() for _ in range(PIPELINE)))
            await writer.drain()
            for _ in range(PIPELINE):
                await answer(reader)
    finally:
        writer.close()


async def once(port, request):
    """One call, however long its answer takes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request())
        await answer(reader)
    finally:
        writer.close()


async def silent(port):
    """Nothing, half a head, a head or a body that comes a byte at a time, until the gateway ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    manner = next(numbers) % 4
    try:
        if manner in (1, 2):
            writer.write(b"POST /flood/x HTTP/1.1\r\nHost: flood\r\nX-Slow: ")
        elif manner == 3:
            writer.write(fenced(b"/flood/x").replace(b"Length: 0", b"Length: 1000"))
        rest = asyncio.ensure_future(reader.read(4096))
        while not rest.done():
            await asyncio.wait([rest], timeout=0.5)
            if manner >= 2:
                writer.write(b"x")
        counts[rest.result()[9:12].decode() or "closed"] += 1
    finally:
        writer.close()


def paths(proxy, _):
    return [lambda: pipeline(proxy, lambda: call(b"/flood/" + b"p" * 16_000))] * STREAMS


def stale(proxy, _):
    """Of a key that the partner's first answer made known."""
    first = [b"9"]

    def request():
        token = first.pop() if first else b"1"
        return call(b"/flood/" + b"p" * 16_000, b"Fencing-Token: ", token, b"\r\nWorkflow-Key: flood\r\n")
    return [lambda: pipeline(proxy, request)] * STREAMS


def stale_rolling(proxy, admin):
    """More than there is room for, where the oldest records go."""
    return stale(proxy, admin)


def keys(proxy, _):
    return [lambda: pipeline(proxy, lambda: fenced(b"/flood/x"))] * STREAMS


def names(proxy, _):
    def request():
        return fenced(b"/hooks", b"Fencegate-Target: http://never-%d.mute.test/\r\n" % next(numbers))
    return [lambda: once(proxy, request)] * CALLS


def crowd(proxy, _):
    return [lambda: silent(proxy)] * CROWD


def admin_crowd(_, admin):
    return [lambda: silent(admin)] * 2 * CROWD


def admin_calls(_, admin):
    """What the admin listener answers without a token, and refusals."""
    def request():
        path = random.choice((b"/metrics", b"/dashboard.js", b"/v1/audit?limit=1000"))
        return b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n"
    return [lambda: pipeline(admin, request)] * 4 * STREAMS


def both_crowds(proxy, admin):
    return crowd(proxy, admin) + admin_crowd(proxy, admin)


def slow(proxy, _):
    return [lambda: once(proxy, lambda: fenced(b"/slow/slow"))] * 2 * CALLS


async def partner(reader, writer):
    """Answers every call at once, but those of /slow never."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST /slow"):
                await reader.read()
                return
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    except (OSError, EOFError):
        pass
    finally:
        writer.close()


async def main(name):
    os.nice(19)
    random.seed()
    server = await asyncio.start_server(partner, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    proxy, admin = map(int, (await loop.run_in_executor(None, sys.stdin.readline)).split())
    tasks = [asyncio.ensure_future(for_ever(attack)) for attack in ATTACKS[name](proxy, admin)]
    over = loop.run_in_executor(None, sys.stdin.read)
    status, enough = LIMIT.get(name, ("", 0))
    while counts[status] < enough and not over.done():
        await asyncio.sleep(0.05)
    print("at the limit", flush=True)
    await over
    print(json.dumps(dict(sorted(counts.items()))), flush=True)
    for task in tasks:
        task.cancel()
    os._exit(0)


ATTACKS = {attack.__name__: attack for attack in (paths, stale, stale_rolling, keys, names, crowd, admin_crowd, admin_calls, both_crowds, slow)}

if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
