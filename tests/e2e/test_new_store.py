"""A new store knows no fence: it is made only where there is nothing of one, and never in silence."""

import os
import re
import subprocess

import pytest

import expect
from gateway import Gateway, route, run


@pytest.fixture
def gate(launch, partner):
    """Started and stopped in good order, with a fence at 1001."""
    gateway = launch(route(partner))
    expect.relayed(gateway.call("/pay/x", 1001, "x"))
    assert gateway.stop() == 0
    return gateway


def refused(gate, *texts):
    before = sorted(os.listdir(gate.store)) if gate.store.exists() else None
    gate.spawn()
    assert gate.wait() == 3 and not gate.stdout
    said = "".join(gate.stderr)
    for text in (str(gate.store), *texts):
        assert text in said, said
    assert "store-created" not in said
    after = sorted(name for name in os.listdir(gate.store) if name != "gateway.lock") if gate.store.exists() else None
    assert after == (before and [name for name in before if name != "gateway.lock"])
    checked = gate.command("check")
    assert checked.returncode == 0 and "warning: store" in checked.stdout and texts[0] in checked.stdout, checked


def created(gate):
    return [line for line in gate.log if line["event"] == "store-created"]


def test_a_store_that_is_made_is_named(partner, tmp_path):
    gate = Gateway(tmp_path, [route(partner)])
    gate.write_config()
    assert "would make a new, empty one" in gate.command("check").stdout
    gate.start()
    (line,) = created(gate)
    assert line["level"] == "warn" and line["store"] == str(gate.store)
    assert gate.stop() == 0
    assert "would make" not in gate.command("check").stdout
    gate.start()
    assert gate.stop() == 0
    assert not created(gate)


def test_a_deleted_data_mdb_is_named(gate):
    (gate.store / "data.mdb").unlink()
    assert "would make a new, empty one" in gate.command("check").stdout
    gate.start()
    assert len(created(gate)) == 1


def test_folders_above_are_not_made(partner, tmp_path):
    gate = Gateway(tmp_path, [route(partner)], store={"path": "a/b", "max_size": "64MiB"})
    refused(gate, "the folder above it", str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").mkdir()
    gate.start()
    assert created(gate) and (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert gate.stop() == 0


def test_a_restore_that_was_cut(gate, tmp_path):
    assert gate.command("backup", tmp_path / "copy").returncode == 0
    (gate.store / "data.mdb").rename(gate.store / "data.mdb.part")
    refused(gate, "data.mdb.part", "fencegate restore")
    assert run("restore", tmp_path / "copy", "--store", gate.store).returncode == 0
    assert not (gate.store / "data.mdb.part").exists()
    gate.start()
    assert gate.fence("x") == 1001


def test_a_part_beside_a_store(gate):
    (gate.store / "data.mdb.part").write_bytes(b"x")
    refused(gate, "data.mdb.part", "remove it")
    (gate.store / "data.mdb.part").unlink()
    gate.start()
    assert gate.fence("x") == 1001


def test_an_empty_data_mdb(gate):
    os.truncate(gate.store / "data.mdb", 0)
    refused(gate, "data.mdb is empty", "restore a backup")


def test_a_data_mdb_without_tables(gate):
    (gate.store / "data.mdb").unlink()
    empty = "VERSION=3\nformat=bytevalue\ntype=btree\nmapsize=1048576\nHEADER=END\nDATA=END\n"
    subprocess.run(["mdb_load", "-n", gate.store / "data.mdb"], input=empty, text=True, check=True)
    (gate.store / "data.mdb-lock").unlink(missing_ok=True)
    gate.spawn()
    assert gate.wait() == 3 and not gate.stdout
    assert "data.mdb holds nothing" in "".join(gate.stderr)


def test_a_journal_without_a_batch_is_no_hindrance(gate):
    (gate.store / "data.mdb").unlink()
    (gate.store / "journal").write_bytes(bytes(40960))
    gate.start()
    assert len(created(gate)) == 1


def test_what_a_cut_first_start_leaves(gate):
    (gate.store / "data.mdb").unlink()
    (gate.store / "data.mdb.new").write_bytes(b"half of it")
    (gate.store / "admin.token").unlink()
    (gate.store / "admin.token.new").write_bytes(b"")
    gate.start()
    assert len(created(gate)) == 1 and not (gate.store / "data.mdb.new").exists()
    assert len(gate.admin_token) == 64 and not (gate.store / "admin.token.new").exists()


@pytest.mark.parametrize("change", [("raise", "x", 5, "--reason", "r"), ("reset", "x", "--reason", "r")])
def test_a_command_makes_no_store(tmp_path, change):
    done = run("fences", *change, "--store", tmp_path / "store")
    assert done.returncode == 3 and "there is no store in this folder" in done.stderr, done
    assert not (tmp_path / "store").exists()
    (tmp_path / "store").mkdir()
    assert run("fences", *change, "--store", tmp_path / "store").returncode == 3
    assert os.listdir(tmp_path / "store") == []


def test_a_command_after_a_kill_leaves_the_size_of_the_map(launch, partner):
    gate = launch(route(partner))
    expect.relayed(gate.call("/pay/x", 5, "x"))
    gate.kill()
    assert gate.command("fences", "list").returncode == 0
    text = subprocess.run(["mdb_stat", "-e", gate.store], capture_output=True, text=True, check=True).stdout
    assert int(re.search(r"Map size: (\d+)", text)[1]) == 256 << 20
