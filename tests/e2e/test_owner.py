"""Files that root makes in a folder of another user are that user's: the service must be able to open them."""

import os
import shutil

import pytest

import expect
from gateway import Gateway, route, run

USER, GROUP = 65533, 65532

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def owned(folder, *expected):
    found = {name: (folder / name).stat() for name in os.listdir(folder)}
    assert set(expected) <= set(found), found
    foreign = {name: (st.st_uid, st.st_gid) for name, st in found.items() if (st.st_uid, st.st_gid) != (USER, GROUP)}
    assert not foreign, foreign


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "store"
    made.mkdir()
    os.chown(made, USER, GROUP)
    return made


def test_a_first_start_by_root(folder, partner, tmp_path):
    gate = Gateway(tmp_path, [route(partner)]).start()
    expect.relayed(gate.call("/pay/x", 5, "x"))
    owned(folder, "data.mdb", "lock.mdb", "gateway.lock", "journal", "admin.token", "admin.addr")
    assert gate.stop() == 0
    owned(folder, "data.mdb")


def test_commands_by_root(folder, partner, tmp_path):
    gate = Gateway(tmp_path, [route(partner)]).start()
    expect.relayed(gate.call("/pay/x", 5, "x"))
    gate.kill()
    (folder / "lock.mdb").unlink()
    assert gate.command("fences", "list").returncode == 0
    owned(folder, "lock.mdb")
    place = tmp_path / "backups"
    place.mkdir()
    os.chown(place, USER, GROUP)
    assert gate.command("backup", place / "today").returncode == 0
    owned(place, "today")
    owned(place / "today", "data.mdb")
    for name in os.listdir(folder):
        (folder / name).unlink()
    assert run("restore", place / "today", "--store", folder).returncode == 0
    owned(folder, "data.mdb", "gateway.lock")
    shutil.rmtree(folder)


def test_a_second_name_or_a_link_is_left_alone(folder, partner, tmp_path):
    """A user who owns the folder gets no file of root's so."""
    secret, aimed = tmp_path / "secret", tmp_path / "aimed"
    secret.write_text("x" * 40)
    aimed.write_text("")
    os.link(secret, folder / "admin.token")
    (folder / "admin.addr.new").symlink_to(aimed)
    gate = Gateway(tmp_path, [route(partner)]).start()
    assert secret.stat().st_uid == 0 and aimed.stat().st_uid == 0
    assert gate.stop() == 0
