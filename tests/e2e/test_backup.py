"""Backup, restore and verify: copies beside a running gateway, the way back, and damage that is found."""

import fcntl
import json
import os
import pathlib
import subprocess
import tempfile
import threading

import pytest

import expect
from gateway import Gateway, route, run
from partner import Held


@pytest.fixture
def gate(launch, partner):
    return launch(route(partner))


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def names(folder):
    return sorted(path.name for path in pathlib.Path(folder).iterdir())


def backup(gate, folder):
    done = gate.command("backup", folder, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    return lines(done.stdout)[0]


def sound(folder):
    done = run("verify", "--store", folder, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    (summary,) = lines(done.stdout)
    assert summary["findings"] == 0
    return summary


def restore(gate, copy, *arguments):
    """Into the place of the gateway's store, which stays beside it."""
    gate.store.rename(gate.store.with_name("lost"))
    done = gate.command("restore", copy, *arguments)
    assert done.returncode == 0, done
    return done


def test_backup_and_verify_beside_calls(gate, tmp_path):
    stop = threading.Event()
    problems = []

    def work(number):
        token = 0
        while not stop.is_set():
            token += 1
            answer = gate.call("/pay/busy", token, f"busy-{number}-{token % 5}")
            if answer.status != 200:
                problems.append(answer)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in range(4):
            told = backup(gate, tmp_path / f"copy{number}")
            assert sound(gate.store)["fences"] >= told["fences"]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not problems
    for number in range(4):
        folder = tmp_path / f"copy{number}"
        assert names(folder) == ["data.mdb"]
        found = sound(folder)
        assert found["bytes"] == (folder / "data.mdb").stat().st_size
        assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "data.mdb").stat().st_mode & 0o777 == 0o600


def test_what_backup_says(gate, mark, tmp_path):
    gate.call("/pay/x", 7, mark)
    newest = gate.wait_audit(key=mark)[-1]["id"]
    told = backup(gate, tmp_path / "a")
    assert told == {"path": f"{tmp_path}/a/data.mdb", "bytes": (tmp_path / "a/data.mdb").stat().st_size, "fences": 1,
                    "records": 1, "effects": 0, "newest_audit_id": newest}
    done = gate.command("backup", tmp_path / "b")
    assert done.stdout == (f"{tmp_path}/b/data.mdb: {told['bytes']} bytes, 1 fence, 1 audit record up to id {newest}, "
                           "0 effects without an outcome\n")
    assert gate.stop() == 0
    assert gate.command("backup", tmp_path / "c").returncode == 0  # without a gateway too


def test_backup_refuses_a_folder_that_is_not_empty(gate, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letters").write_text("dear")
    done = gate.command("backup", tmp_path / "full")
    assert done.returncode == 1 and "not empty" in done.stderr and done.stdout == ""
    assert names(tmp_path / "full") == ["letters"]
    done = gate.command("backup", gate.store)
    assert done.returncode == 1 and done.stdout == ""
    assert gate.command("backup", tmp_path / "full" / "letters" / "x").returncode == 3
    assert gate.command("backup").returncode == 2


def test_a_full_disk_leaves_no_half(gate, mark, tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root and mount")
    try:
        for token in range(1, 60):
            gate.call("/pay/" + "x" * 4000, token, mark)
        done = gate.command("backup", place / "copy")
        assert done.returncode == 3 and "No space left" in done.stderr and done.stdout == ""
        assert names(place / "copy") == []
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_restore_with_a_floor(gate, partner, mark, tmp_path):
    """The whole way: what the backup has not seen is stale all the same."""
    held = Held()
    partner.on(mark, held)
    running = gate.send_off(f"/pay/{mark}", 5, f"{mark}-held")
    partner.wait_seen(mark)
    gate.call("/pay/x", 41, mark)
    gate.wait_audit(key=mark)
    told = backup(gate, tmp_path / "copy")
    assert told["effects"] == 1
    held.release()
    assert running.result(30).status == 200
    late = gate.call("/pay/x", 99, mark)
    gate.call("/pay/x", 77, f"{mark}-new")
    gate.kill()

    done = restore(gate, tmp_path / "copy", "--min-token", "100")
    assert "No token below 100" in done.stdout and "in doubt" in done.stdout and done.stderr == ""
    listed = lines(gate.command("fences", "list", "--json").stdout)
    assert {(fence["key"], fence["highest"]) for fence in listed} == {(mark, "100"), (f"{mark}-held", "100")}
    (doubt,) = lines(gate.command("effects", "in-doubt", "--json").stdout)
    assert doubt["key"] == f"{mark}-held"

    gate.start()
    for key in (mark, f"{mark}-new", f"{mark}-never-seen"):
        assert gate.fence(key) == 100
        expect.refusal(gate.call("/pay/x", 99, key), 412, "stale-token", token="99", highest="100")
        assert gate.call("/pay/x", 101, key).status == 200
        assert gate.fence(key) == 101
    (record,) = gate.audit(reason="restored")
    expect.record(record, kind="raised", token="100", highest="100")
    for key, tokens in ((mark, ["41", "99", "100", "101"]), (f"{mark}-unseen", ["100"])):
        told = gate.admin(f"/v1/fences/default/{key}/history")
        assert told.status == 200, told
        assert [row["token"] for row in told.json["tokens"]] == tokens, told.json
        floor = told.json["tokens"][tokens.index("100")]
        accepted = floor["accepted"]
        assert (accepted["by"], accepted["audit_id"], floor["last_seen"]) == ("restore", record["id"], None)
        assert accepted["time"] <= record["time"] and "client" not in accepted
    assert "restore --min-token" in gate.command("audit", "--key", f"{mark}-unseen").stderr
    assert "  restore\n" in gate.command("history", f"{mark}-unseen").stdout
    assert int(record["id"]) > int(late.effect_id)
    resolved = gate.command("effects", "resolve", doubt["id"], "--outcome", "sent", "--note", "asked")
    assert resolved.returncode == 0, resolved

    refused = gate.command("fences", "raise", f"{mark}-other", "99", "--reason", "r")
    assert refused.returncode == 1 and "below 100" in refused.stderr
    shown = lines(gate.command("fences", "get", f"{mark}-other", "--json").stdout)[0]
    assert shown["highest"] == "100"
    assert gate.command("fences", "reset", f"{mark}-other", "--reason", "r").returncode == 0
    assert gate.fence(f"{mark}-other") is None
    assert gate.command("fences", "reset", f"{mark}-other", "--reason", "r").returncode == 1
    assert gate.call("/pay/x", 3, f"{mark}-other").status == 200  # its first token
    assert gate.call("/pay/x", 2, f"{mark}-other").status == 412
    assert sound(gate.store)["floor"] == "100"


def test_restore_with_a_floor_that_leaves_no_tokens_warns(gate, mark, tmp_path):
    gate.call("/pay/x", 41, mark)
    backup(gate, tmp_path / "copy")
    gate.stop()
    done = restore(gate, tmp_path / "copy", "--min-token", "18446744073709551615")
    assert done.returncode == 0 and "warning" in done.stderr and "--min-token" in done.stderr


def test_restore_without_a_floor_warns(gate, mark, tmp_path):
    gate.call("/pay/x", 41, mark)
    backup(gate, tmp_path / "copy")
    gate.call("/pay/x", 50, mark)
    assert gate.stop() == 0
    done = restore(gate, tmp_path / "copy")
    assert "warning" in done.stderr and "--min-token" in done.stderr
    gate.start()
    assert gate.fence(mark) == 41 and gate.fence(f"{mark}-other") is None
    (record,) = gate.audit(reason="restored")
    assert record["kind"] == "reset" and "key" not in record
    assert "floor" not in sound(gate.store)


def test_restore_refuses(gate, mark, tmp_path):
    gate.call("/pay/x", 41, mark)
    backup(gate, tmp_path / "copy")
    done = gate.command("restore", tmp_path / "copy", "--min-token", "100")
    assert done.returncode == 1 and "there is a store in this folder" in done.stderr and done.stdout == ""
    assert gate.fence(mark) == 41
    done = run("restore", gate.store, "--store", tmp_path / "new")
    assert done.returncode == 3 and "not a backup" in done.stderr
    assert not (tmp_path / "new").exists()
    done = run("restore", tmp_path / "nothing", "--store", tmp_path / "new")
    assert done.returncode == 1 and "no backup" in done.stderr
    for token in ("0", "-1", "x", "18446744073709551616", ""):
        assert run("restore", tmp_path / "copy", "--store", tmp_path / "new", "--min-token", token).returncode == 2
    whole = (tmp_path / "copy/data.mdb").read_bytes()
    (tmp_path / "copy/data.mdb").write_bytes(whole[: len(whole) // 2])
    done = run("restore", tmp_path / "copy", "--store", tmp_path / "new")
    assert done.returncode == 3 and "cut short" in done.stderr
    (tmp_path / "copy/data.mdb").write_bytes(b"no database" * 1000)
    assert run("restore", tmp_path / "copy", "--store", tmp_path / "new").returncode == 3
    assert not (tmp_path / "new").exists()
    (tmp_path / "copy/data.mdb").write_bytes(whole)
    assert run("restore", tmp_path / "copy", "--store", tmp_path / "new", "--min-token", "7").returncode == 0
    (tmp_path / "new/admin.token").write_text("x")
    (tmp_path / "new/data.mdb").unlink()
    assert run("restore", tmp_path / "copy", "--store", tmp_path / "new", "--json").returncode == 0  # as good as empty


def test_verify_finds_damage(gate, mark, tmp_path):
    for token in range(1, 40):
        gate.call(f"/pay/unmistakable-{token}-", token, mark)
    gate.wait_audit(count=39, key=mark)
    backup(gate, tmp_path / "copy")
    file = tmp_path / "copy/data.mdb"
    whole = file.read_bytes()
    at = whole.index(b"/pay/unmistakable-7-") - 1
    file.write_bytes(whole[:at] + b"\xff" + whole[at + 1:])  # the length of a field of a record
    done = run("verify", "--store", tmp_path / "copy")
    assert done.returncode == 1, done
    assert "is no audit record" in done.stdout and "1 finding" in done.stdout
    done = run("verify", "--store", tmp_path / "copy", "--json")
    found, summary = lines(done.stdout)
    assert found["table"] == "audit" and found["id"].isdigit() and summary["findings"] == 1
    done = run("restore", tmp_path / "copy", "--store", tmp_path / "new")
    assert done.returncode == 1 and "damaged" in done.stderr and "is no audit record" in done.stdout
    assert not (tmp_path / "new").exists()
    for cut in (4000, 5000, 9000, len(whole) // 2, len(whole) - 5000):
        file.write_bytes(whole[:cut])
        assert run("verify", "--store", tmp_path / "copy").returncode == 3
    unused = 0
    for page in range(2, len(whole) // 4096):  # a page of noise is found, or ends it in good order
        file.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096:])
        status = run("verify", "--store", tmp_path / "copy").returncode
        assert status in (0, 1, 3)
        unused += status == 0
    assert unused <= 4  # what the last transaction of the copy gave back: the pages of `meta`
    file.write_bytes(whole)
    assert sound(tmp_path / "copy")["records"] == 39
    assert run("verify", "--store", tmp_path / "nothing").returncode == 3
    assert run("verify").returncode == 2


@pytest.mark.parametrize("content", [b"", b"\0" * 100, None, "cut"])
def test_a_restore_that_fails_leaves_the_place_as_it_was_and_names_the_backup(gate, mark, tmp_path, content):
    copy, target = tmp_path / "copy", tmp_path / "new" / "store"
    if content == "cut":
        expect.relayed(gate.call(f"/pay/{mark}", 5, mark))
        backup(gate, copy)
        os.truncate(copy / "data.mdb", 8192)
    else:
        copy.mkdir()
        if content is not None:
            (copy / "data.mdb").write_bytes(content)
    done = run("restore", copy, "--store", target)
    assert done.returncode in (1, 3) and done.stdout == "", done
    assert str(copy) in done.stderr and ".part" not in done.stderr and "descriptor" not in done.stderr, done
    assert not target.parent.exists()
    target.mkdir(parents=True)
    assert run("restore", copy, "--store", target).returncode in (1, 3)
    assert names(target) == []
    (target / "gateway.lock").touch()  # not its own
    assert run("restore", copy, "--store", target).returncode in (1, 3)
    assert names(target) == ["gateway.lock"]


def test_verify_leaves_a_backup_as_it_is_and_needs_only_to_read_it(gate, mark, tmp_path):
    expect.relayed(gate.call(f"/pay/{mark}", 5, mark))
    backup(gate, tmp_path / "copy")
    sound(tmp_path / "copy")
    assert names(tmp_path / "copy") == ["data.mdb"]
    if os.geteuid() != 0:
        pytest.skip("needs another user")
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        os.chmod(folder, 0o755)
        file = pathlib.Path(folder) / "data.mdb"
        file.write_bytes((tmp_path / "copy" / "data.mdb").read_bytes())
        file.chmod(0o644)
        other = dict(user=65534, group=65534, extra_groups=[])
        done = run("verify", "--store", folder, **other)
        assert (done.returncode, done.stderr) == (0, ""), done
        assert names(folder) == ["data.mdb"]
        (file.parent / "lock.mdb").touch(0o644)  # not for others to write
        assert run("verify", "--store", folder, **other).returncode == 0
        with file.open("rb") as served:
            fcntl.flock(served, fcntl.LOCK_EX)  # as a gateway holds it
            done = run("verify", "--store", folder, **other)
            assert done.returncode == 3 and "a gateway serves it" in done.stderr, done
