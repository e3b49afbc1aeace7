"""What is measured: each scenario starts its own peers, then measures them in turn, round by round, each round in another
order, so that whatever else the machine does meets all alike. A scenario gives {peer: [one sample per round]}."""
import os
import pathlib
import shutil
import statistics
import subprocess
import time
from contextlib import contextmanager

import machine
from load import Pace, wrk
from peers import BODY, Fencegate, Haproxy, NginxLuaRedis, NginxProxy, Partner
from processes import OPEN_FILES, Cores, MemoryPeak, all_threads_us, idle_us, ration, thread_us, threads

FILL = os.environ.get("FENCEGATE_FILL") or pathlib.Path(__file__).resolve().parents[2] / "build" / "fill"
TOKEN, STALE = 42, 41
WAITING = min(10_000, (OPEN_FILES - 200) // 2)  # a proxy needs two descriptors for each
SCENARIOS = {}


class Context:
    def __init__(self, folder, rounds, seconds):
        self.folder, self.rounds, self.seconds = folder, rounds, seconds
        self.syncs, self.next_token = [], 1_000_000

    def rising(self):
        """Tokens above all that were used before."""
        self.next_token += 100_000_000
        return f"{self.next_token}+"

    def sample_sync(self):
        self.syncs.extend(machine.sync_times(self.folder, 50))


def scenario(title):
    def keep(function):
        SCENARIOS[function.__name__] = (title, function)
        return function
    return keep


@contextmanager
def peers(context, *makers):
    """The partner and the peers made by makers(folder, partner), all ended at the end."""
    folder = pathlib.Path(context.folder) / str(time.monotonic_ns())
    started = []
    try:
        partner = Partner(folder / "partner")
        started.append(partner)
        for number, maker in enumerate(makers):
            started.append(maker(folder / str(number), partner))
        yield partner, started[1:]
    finally:
        for peer in reversed(started):
            peer.stop()
        shutil.rmtree(folder, ignore_errors=True)


def in_turn(context, contestants, measure, rounds=None):
    """measure(peer) for each, round by round."""
    samples = {peer.name: [] for peer in contestants}
    for turn in range(rounds or context.rounds):
        context.sample_sync()
        first = turn % len(contestants)
        for peer in contestants[first:] + contestants[:first]:
            samples[peer.name].append(measure(peer))
    return samples


def closed_loop(context, peer, partner, path=None, **load):
    """As many calls as get through."""
    before, partner_before = peer.cpu_us(), sum(partner.cpu_us())
    with MemoryPeak(peer.pids) as memory:
        result = wrk(peer.port, path or peer.path, context.seconds, **load)
    user, system = (after - at for after, at in zip(peer.cpu_us(), before))
    behind = sum(partner.cpu_us()) - partner_before + result["own_us"]
    count, took = result["requests"], result["microseconds"]
    return {
        "requests": count, "rate": count / took * 1e6, "p50": result["p50"] / 1e3, "p99": result["p99"] / 1e3,
        "user": user / count, "system": system / count, "cpu": (user + system) / count, "own": memory.own,
        "rss": memory.resident, "load": behind / took * 100,
    }


def nginx(folder, partner):
    return NginxProxy(folder, partner)


def haproxy(folder, partner):
    return Haproxy(folder, partner)


def by_hand(ledger):
    return lambda folder, partner: NginxLuaRedis(folder, partner, ledger == "effects")


def fencegate(ledger, **settings):
    return lambda folder, partner: Fencegate(folder, partner, ledger, **settings)


FENCES = [by_hand("drops"), by_hand("effects"), fencegate("drops"), fencegate("effects")]


@scenario("equal tokens, 1,000 keys")
def same(context):
    with peers(context, nginx, haproxy, *FENCES) as (partner, all_of_them):
        for peer in all_of_them:
            wrk(peer.port, peer.path, 1)  # connections, caches, a fence for every key
        return in_turn(context, all_of_them, lambda peer: closed_loop(context, peer, partner))


@scenario("a new token each time, 1,000 keys")
def rise(context):
    with peers(context, *FENCES) as (partner, all_of_them):
        for peer in all_of_them:
            wrk(peer.port, peer.path, 1)
        return in_turn(context, all_of_them,
                       lambda peer: closed_loop(context, peer, partner, tokens=context.rising()))


@scenario("stale tokens, every drop on disk before its answer")
def stale(context):
    with peers(context, by_hand("drops"), fencegate("drops")) as (partner, all_of_them):
        for peer in all_of_them:
            wrk(peer.port, peer.path, 1)
        samples = in_turn(context, all_of_them,
                          lambda peer: closed_loop(context, peer, partner, tokens=str(STALE), refused=True))
        for peer in all_of_them:
            kept = peer.dropped()
            assert kept >= sum(s["requests"] for s in samples[peer.name]), f"{peer.name} kept only {kept} drops"
        return samples


@scenario("TLS to the partner, equal tokens")
def tls(context):
    makers = [lambda f, p: NginxProxy(f, p, tls=True), lambda f, p: Haproxy(f, p, tls=True),
              fencegate("drops", tls=True), fencegate("effects", tls=True)]
    with peers(context, *makers) as (partner, all_of_them):
        for peer in all_of_them:
            wrk(peer.port, peer.path, 1)
        return in_turn(context, all_of_them, lambda peer: closed_loop(context, peer, partner))


@scenario("1,000 requests a second, whatever the answers take: latency")
def rate(context):
    def paced(peer):
        before = peer.cpu_us()
        result = Pace(peer.port, peer.path, 1000, 1000 * context.seconds).all()
        user, system = ((after - at) / result["requests"] for after, at in zip(peer.cpu_us(), before))
        return {"p50": result["p50"] / 1e3, "p99": result["p99"] / 1e3, "user": user, "system": system,
                "cpu": user + system}
    with peers(context, nginx, haproxy, *FENCES) as (partner, all_of_them):
        for peer in all_of_them:
            wrk(peer.port, peer.path, 1)
        samples = in_turn(context, [partner] + all_of_them, paced)
    direct = samples["partner"]
    for name, rounds in samples.items():
        for here, there in zip(rounds, direct):
            here.update({"added50": here["p50"] - there["p50"], "added99": here["p99"] - there["p99"]})
    for here in direct:
        for meaningless in ("user", "system", "cpu", "added50", "added99"):
            del here[meaningless]
    return samples


@scenario(f"{WAITING:,} calls in flight: the partner answers when it has the last of them")
def waiting(context):
    limits = {"connections": 12_000, "in_flight": 12_000}
    with peers(context, nginx, haproxy, fencegate("drops", limits=limits), fencegate("effects", limits=limits)) as \
            (partner, all_of_them):
        def one(peer):
            before, began = sum(peer.cpu_us()), time.monotonic()
            with MemoryPeak(peer.pids) as memory:
                calls = Pace(peer.port, "/pay/held", 20_000, WAITING, connections=WAITING, keys=WAITING)
                calls.wait_sent()
                wait_for(lambda: partner.calls_inside() == WAITING, f"all calls of {peer.name} at the partner")
                inside, at = time.monotonic(), all_threads_us(peer.pids)
                time.sleep(0.5)
                idle = (all_threads_us(peer.pids) - at) / (time.monotonic() - inside) / 1e4
                held, _ = peer.memory_mib()
                assert partner.calls_inside() == WAITING, f"a call of {peer.name} was given up while it waited"
                released = time.monotonic()
                partner.release(WAITING)
                result = calls.result()
                end = time.monotonic()
            return {"answered": result["requests"], "inside": inside - began, "back": end - released, "idle": idle,
                    "held": held, "cpu": (sum(peer.cpu_us()) - before) / WAITING, "own": memory.own, "rss": memory.resident}
        return in_turn(context, all_of_them, one, rounds=min(3, context.rounds))


def wait_for(look, what, patience=45):
    deadline = time.monotonic() + patience
    while not look():
        assert time.monotonic() < deadline, f"no sign of {what}"
        time.sleep(0.01)


@scenario("bodies of 8 MiB, 4 connections")
def bodies(context):
    with peers(context, nginx, haproxy, fencegate("drops"), fencegate("effects")) as (partner, all_of_them):
        return in_turn(context, all_of_them,
                       lambda peer: closed_loop(context, peer, partner, path="/pay/big", body=BODY, connections=4))


def filled(folder, count):
    """A store with that many fences, made where syncs cost nothing, if there is room."""
    memory = pathlib.Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > count * 100 + (256 << 20)
    where = (memory if roomy else folder) / f"fencegate-bench.{os.getpid()}.{count}"
    try:
        subprocess.run([str(FILL), str(where), str(count), "fences"], check=True)
        shutil.copytree(where, folder / f"store-{count}", ignore=shutil.ignore_patterns("lock.mdb"))
    finally:
        shutil.rmtree(where, ignore_errors=True)
    store = folder / f"store-{count}"
    with open(store / "data.mdb", "rb") as file:
        os.fsync(file.fileno())
    return store


@scenario("equal tokens over many keys, ledger: drops")
def keys(context):
    counts = [1_000, 100_000, 10_000_000]
    folder = pathlib.Path(context.folder) / "keys"
    folder.mkdir()
    stores = {count: filled(folder, count) for count in counts}
    bytes_each = {count: (store / "data.mdb").stat().st_size / count for count, store in stores.items()}
    ready = {count: [] for count in counts}

    def maker(count):
        def make(place, partner):
            return Fencegate(place, partner, "drops", store=stores[count], name=f"{count:,} keys")
        return make
    for turn in range(context.rounds):
        for count in counts:
            with peers(context, lambda place, partner: timed(ready[count], maker(count), place, partner)):
                pass
    with peers(context, *(maker(count) for count in counts)) as (partner, all_of_them):
        number = {peer.name: count for peer, count in zip(all_of_them, counts)}

        def one(peer):
            count = number[peer.name]
            return {**closed_loop(context, peer, partner, tokens=str(STALE), keys=count, order="random"),
                    "bytes": bytes_each[count], "ready": statistics.median(ready[count])}
        for peer in all_of_them:
            wrk(peer.port, peer.path, 1, tokens=str(STALE), keys=number[peer.name], order="random")
        samples = in_turn(context, all_of_them, one)
    shutil.rmtree(folder)
    return samples


def timed(times, maker, place, partner):
    began = time.monotonic()
    peer = maker(place, partner)
    times.append((time.monotonic() - began) * 1e3)
    return peer


SHARE, PERIOD_MS = 10, 50
CROWD = 512  # connections: whoever begins to run finds enough to do


class Rationed(Fencegate):
    """Each worker may take SHARE per cent of a core: a machine of two cores has room for two such workers, the writer,
    the load and the partner. So little, that two rarely run at once, since then nobody feeds them. A worker that is stopped may hold a lock: the others then wait for it as long as they would if everything were
    as slow, so what workers take from each other is not hidden."""

    def __init__(self, folder, partner, ledger, count):
        super().__init__(folder, partner, ledger, workers=count,
                         name=f"fencegate {ledger}, {count} worker{'s' * (count > 1)}")
        wait_for(lambda: len(self.worker_threads()) == count, "the workers' names")
        self.workers = self.worker_threads()
        self.others = [tid for tid in threads(self.pids[0]) if tid not in self.workers]
        for tid in self.workers:
            ration(tid, SHARE, PERIOD_MS)

    def worker_threads(self):
        return [tid for tid, name in threads(self.pids[0]).items() if name.startswith("fg-worker-")]


@scenario(f"one worker and two, each with {SHARE} % of a core; beside them load, partner and writer have room")
def workers(context):
    makers = [lambda folder, partner, ledger=ledger, count=count: Rationed(folder, partner, ledger, count)
              for ledger in ("drops", "effects") for count in (1, 2)]

    def one(peer):
        def used(tids):
            return sum(map(thread_us, tids))
        before, began = (used(peer.workers), used(peer.others), idle_us()), time.monotonic()
        sample = closed_loop(context, peer, partner, connections=CROWD)
        took = (time.monotonic() - began) * 1e4
        worker, other, idle = (now - then for now, then in zip((used(peer.workers), used(peer.others), idle_us()), before))
        return {**sample, "worker": worker / len(peer.workers) / took, "others": other / took, "spare": idle / took}
    pinned, Cores.pinned = Cores.pinned, False
    try:
        with peers(context, *makers) as (partner, all_of_them):
            for peer in all_of_them:
                wrk(peer.port, peer.path, 1, connections=CROWD)
            return in_turn(context, all_of_them, one)
    finally:
        Cores.pinned = pinned
