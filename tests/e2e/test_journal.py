"""The journal beside data.mdb: what was told is there after a kill, for commands as for the next start, and beside a
gateway under load."""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import threading

import pytest

import expect
from client import Closed, fenced, request
from gateway import BINARY, PATIENCE, eventually, route, run

WORKERS = 6


class Load:
    """Keys with rising tokens, a thread and a connection each. `told`: by key the highest token whose effect was told,
    `effects`: the ids of all of these."""

    def __init__(self, gate, first=1):
        self.gate, self.first = gate, first
        self.told, self.sent, self.effects = {}, {}, set()
        self.trouble, self.stopped = [], threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(f"load-{number}",)) for number in range(WORKERS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        eventually(lambda: len(self.told) == WORKERS or self.trouble, what="the load")
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        assert not self.trouble, self.trouble[:3]

    def run(self, key):
        try:
            with self.gate.connect() as connection:
                for token in itertools.count(self.first):
                    if self.stopped.is_set():
                        return
                    self.sent[key] = token
                    connection.send(request("POST", f"/pay/{key}", fenced(token, key)))
                    answer = connection.receive()
                    if answer.status != 200:
                        self.trouble.append(answer)
                        return
                    self.told[key] = token
                    self.effects.add(answer.get("Fencegate-Effect-Id"))
        except (Closed, OSError) as error:
            if self.gate.process.poll() is None and not self.killed():
                self.trouble.append(error)

    def killed(self):
        """A connection ends a moment before its process is gone."""
        try:
            self.gate.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return False
        return True

    def goes_on(self, calls):
        """Until each key has had that many more calls."""
        before = dict(self.told)
        eventually(lambda: self.trouble or all(self.told[key] >= before[key] + calls for key in before), what="the load")

    def settled(self):
        """Until data.mdb has what was told before: of two settlings the second one began after now."""
        for _ in range(2):
            before = os.stat(self.gate.store / "data.mdb").st_mtime_ns
            eventually(lambda: os.stat(self.gate.store / "data.mdb").st_mtime_ns != before, what="a settling")


@pytest.fixture
def gate(launch, partner):
    gateway = launch(route(partner))
    assert (gateway.store / "journal").exists()
    return gateway


def command(gate, *arguments):
    done = gate.command(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    return [json.loads(line) for line in done.stdout.splitlines()]


def fences(gate):
    return {fence["key"]: int(fence["highest"]) for fence in command(gate, "fences", "list")}


def all_told(load, seen):
    lost = {key: (token, seen.get(key)) for key, token in load.told.items() if not token <= seen.get(key, 0) <= load.sent[key]}
    assert not lost, f"told and seen: {lost}"


def look_at_fences(gate, load, _):
    all_told(load, fences(gate))


def look_at_audit(gate, load, _):
    """A partner's answer does not wait for the outcome: what has no record is in doubt."""
    recorded = {record.get("effect_id") for record in command(gate, "audit", "--limit", 100000)}
    doubts = {effect["id"] for effect in command(gate, "effects", "in-doubt")}
    assert not load.effects - recorded - doubts


def look_at_doubts(gate, load, _):
    doubts = {effect["id"] for effect in command(gate, "effects", "in-doubt")}
    recorded = {record.get("effect_id") for record in command(gate, "audit", "--limit", 100000)}
    assert not load.effects - recorded - doubts


def look_at_verify(gate, load, _):
    (summary,) = command(gate, "verify")
    assert summary["findings"] == 0 and summary["fences"] == WORKERS


def look_at_backup(gate, load, folder):
    (summary,) = command(gate, "backup", folder)
    assert summary["fences"] == WORKERS
    done = run("fences", "list", "--store", folder, "--json")
    assert done.returncode == 0, done
    all_told(load, {fence["key"]: int(fence["highest"]) for fence in map(json.loads, done.stdout.splitlines())})
    done = run("verify", "--store", folder, "--json")
    assert done.returncode == 0, done
    assert not (pathlib.Path(folder) / "journal").exists()


LOOKS = (look_at_fences, look_at_audit, look_at_doubts, look_at_verify, look_at_backup)


@pytest.mark.parametrize("first", range(len(LOOKS)))
def test_commands_after_a_kill(gate, tmp_path, first):
    """Each as the first one, since that is the one that finds data.mdb without what the journal has."""
    with Load(gate) as load:
        load.goes_on(20)
        gate.kill()
    for number in range(len(LOOKS)):
        LOOKS[(first + number) % len(LOOKS)](gate, load, tmp_path / f"copy-{number}")
    gate.start()
    for key, token in load.told.items():
        assert token <= gate.fence(key) <= load.sent[key]
    key, token = next(iter(load.told.items()))
    if token > 1:
        expect.refusal(gate.call(f"/pay/{key}", token - 1, key), 412, "stale-token")


def test_kill_after_kill(gate):
    """Starts right after kills, with load again each time: every one brings back what the one before had."""
    first = 1
    for _ in range(6):
        with Load(gate, first) as load:
            load.goes_on(5)
            gate.kill()
        gate.start()
        for key, token in load.told.items():
            assert token <= gate.fence(key) <= load.sent[key]
        first = max(load.sent.values()) + 1
    (summary,) = command(gate, "verify")
    assert summary["findings"] == 0
    ids = [int(record["id"]) for record in command(gate, "audit", "--limit", 100000)]
    assert ids == sorted(set(ids))


def test_commands_beside_load(gate, mark, tmp_path):
    """What was told before a command began it shows."""
    expect.relayed(gate.call(f"/pay/{mark}", 2, mark))
    with Load(gate) as load:
        for number in range(6):
            told = dict(load.told)
            seen = fences(gate)
            assert all(seen[key] >= token for key, token in told.items()), (told, seen)
            expect.refusal(gate.call(f"/pay/{mark}", 1, mark), 412, "stale-token")
            assert len(command(gate, "audit", "--key", mark, "--kind", "dropped")) == number + 1
            running = gate.audit(key=mark, kind="dropped")  # and so does its own listener
            assert len(running) == number + 1
        told = dict(load.told)
        (summary,) = command(gate, "backup", tmp_path / "copy")
    copy = run("fences", "list", "--store", tmp_path / "copy", "--json")
    seen = {fence["key"]: int(fence["highest"]) for fence in map(json.loads, copy.stdout.splitlines())}
    assert all(seen[key] >= token for key, token in told.items()), (told, seen)
    assert run("verify", "--store", tmp_path / "copy").returncode == 0
    restored = run("restore", tmp_path / "copy", "--store", tmp_path / "restored")
    assert restored.returncode == 0, restored
    assert run("verify", "--store", tmp_path / "restored").returncode == 0
    assert summary["fences"] == WORKERS + 1


def test_a_reader_outlives_the_gateway(gate, mark):
    """It has LMDB's lock file open while the writer is killed in the middle of a transaction, and the next one begins."""
    follow = subprocess.Popen([BINARY, "audit", "-c", gate.config, "--follow", "--json"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    try:
        first = 1
        for _ in range(3):
            with Load(gate, first) as load:
                load.goes_on(10)
                gate.kill()
            gate.start()
            first = max(load.sent.values()) + 1
        expect.relayed(gate.call(f"/pay/{mark}", 9, mark))
        gate.wait_audit(1, key=mark)
        for line in follow.stdout:
            if json.loads(line).get("key") == mark:
                break
        assert follow.poll() is None
    finally:
        follow.kill()
        follow.communicate()


def test_a_gateway_that_stands_still(gate, tmp_path):
    """Nobody settles what it has in its journal: commands say so, and there is no backup without it."""
    with Load(gate) as load:
        for _ in range(10):  # all but always it has something there
            gate.process.send_signal(signal.SIGSTOP)
            done = gate.command("fences", "list", "--json")
            copied = gate.command("backup", tmp_path / "copy")
            gate.process.send_signal(signal.SIGCONT)
            if "journal" in done.stderr:
                break
            before = dict(load.told)
            eventually(lambda: all(load.told[key] > token for key, token in before.items()), what="the next calls")
        assert "journal" in done.stderr, done
        assert done.returncode == 3, done
        assert copied.returncode == 3 and "journal" in copied.stderr, copied
        assert not (tmp_path / "copy").exists()
    all_told(load, fences(gate))


def test_journal_removed_under_a_gateway(gate):
    with Load(gate) as load:
        (gate.store / "journal").unlink()
        gate.wait_log(lambda line: "journal was removed" in str(line))
        before = dict(load.told)
        eventually(lambda: all(load.told[key] > token for key, token in before.items()), what="the calls that go on")
        gate.kill()
    gate.start()
    for key, token in load.told.items():
        assert token <= gate.fence(key) <= load.sent[key]
    assert (gate.store / "journal").exists()


def test_no_start_without_the_journal(gate):
    with Load(gate) as load:
        gate.kill()
    journal, aside = gate.store / "journal", gate.folder / "aside"
    journal.rename(aside)
    gate.spawn()
    assert gate.wait() == 3
    assert "journal" in "".join(gate.stderr)
    for name in (("fences", "list"), ("audit",), ("verify",), ("effects", "in-doubt")):
        done = gate.command(*name)
        assert done.returncode == 3 and "journal" in done.stderr, done
    assert not journal.exists()
    aside.rename(journal)
    gate.start()
    for key, token in load.told.items():
        assert token <= gate.fence(key) <= load.sent[key]


@pytest.mark.parametrize("blocks", [1, 2, 5, 2000])
def test_no_start_with_a_part_of_the_journal(gate, blocks):
    """A copy of the folder that did not end, say: what a torn write leaves is never shorter."""
    with Load(gate) as load:
        gate.kill()
    journal = gate.store / "journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole[: blocks * 4096])
    gate.spawn()
    assert gate.wait() == 3
    assert "journal" in "".join(gate.stderr)
    done = gate.command("fences", "list")
    assert done.returncode == 3 and "journal" in done.stderr, done
    journal.write_bytes(whole)
    gate.start()
    for key, token in load.told.items():
        assert token <= gate.fence(key) <= load.sent[key]


def test_no_new_store_beside_a_journal(gate):
    """It would know no fence."""
    gate.call("/pay/x", 5, "x")
    gate.kill()
    data, aside = gate.store / "data.mdb", gate.folder / "aside"
    data.rename(aside)
    gate.spawn()
    assert gate.wait() == 3
    assert "no data.mdb" in "".join(gate.stderr)
    assert not data.exists()
    aside.rename(data)
    gate.start()
    assert gate.fence("x") == 5


def test_no_start_with_an_older_data_mdb(gate, tmp_path):
    """One of before a stop in good order, put back after a kill: the journal is not its own, and is newer."""
    with Load(gate) as load:
        pass
    assert gate.stop() == 0
    assert not (gate.store / "journal").exists()  # nothing is left that could belong to anything
    data = gate.store / "data.mdb"
    older = data.read_bytes()
    gate.start()
    with Load(gate, first=max(load.told.values()) + 1) as load:
        gate.kill()
    newer = data.read_bytes()
    data.write_bytes(older)
    gate.spawn()
    assert gate.wait() == 3
    assert "older or of another store" in "".join(gate.stderr)
    for name in (("fences", "list"), ("verify",)):
        done = gate.command(*name)
        assert done.returncode == 3 and "journal" in done.stderr, done
    data.write_bytes(newer)
    gate.start()
    for key, token in load.told.items():
        assert token <= gate.fence(key) <= load.sent[key]
    assert gate.command("backup", tmp_path / "copy").returncode == 0
    gate.kill()
    data.unlink()
    assert run("restore", tmp_path / "copy", "--store", gate.store).returncode == 0  # and its journal with it
    gate.start()
    for key, token in load.told.items():
        assert token <= gate.fence(key) <= load.sent[key]


def test_no_start_with_an_older_journal(gate):
    """A copy from before changes that data.mdb has, and from before others that only the journal had."""
    journal = gate.store / "journal"
    with Load(gate) as load:
        load.settled()
        older = journal.read_bytes()
        load.goes_on(20)
        load.settled()
        gate.kill()
    newer = journal.read_bytes()
    assert older[:4096] == newer[:4096]
    journal.write_bytes(older)
    gate.spawn()
    assert gate.wait() == 3
    assert "lacks batch" in "".join(gate.stderr)
    for name in (("fences", "list"), ("verify",)):
        done = gate.command(*name)
        assert done.returncode == 3 and "journal" in done.stderr, done
    journal.write_bytes(newer)
    gate.start()
    for key, token in load.told.items():
        assert token <= gate.fence(key) <= load.sent[key]


def test_programs_of_before_refuse_it(gate):
    """Format 5 while a journal may hold something, 1 after an end in good order."""
    def version():
        text = subprocess.run(["mdb_dump", "-n", "-s", "meta", gate.store / "data.mdb"], capture_output=True, text=True).stdout
        rows = [line.strip() for line in text.splitlines() if line.startswith(" ")]
        return int(dict(zip(rows[::2], rows[1::2]))["format".encode().hex()], 16)

    gate.call("/pay/x", 1, "x")
    gate.kill()
    assert version() == 5
    gate.start()
    assert gate.stop() == 0
    assert version() == 1
