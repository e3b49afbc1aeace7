"""A call whose turn has not come is never in doubt after a crash; one whose turn has come is."""

import os
import pathlib
import signal

import expect
from client import fenced, request
from gateway import eventually, route
from partner import Held


def in_doubt(gw):
    return [(effect["key"], effect["token"]) for effect in gw.admin("/v1/effects?state=in-doubt").json["effects"]]


def crash(gw, held, *calls):
    gw.kill()
    held.release()
    for call in calls:
        assert call.exception(10) is not None
    gw.start()


def is_recorded_as_not_sent(gw, key, token):
    (found,) = [record for record in gw.audit(key=key) if record["token"] == str(token)]
    expect.record(found, kind="not-sent", reason="gateway-crash", route="pay", method="POST", path=f"/pay/{key}")
    assert found["effect_id"]


def test_a_call_that_waits_when_it_is_admitted(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner))
    older = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    newer = gw.send_off(f"/pay/{mark}", 6, mark)
    eventually(lambda: gw.metric("fencegate_waiting") == 1)
    running = gw.admin("/v1/effects?state=in-flight").json["effects"]
    assert [effect["token"] for effect in running] == ["5", "6"]
    crash(gw, held, older, newer)
    assert in_doubt(gw) == [(mark, "5")]
    is_recorded_as_not_sent(gw, mark, 6)
    assert gw.fence(mark) == 6 and gw.command("verify").returncode == 0
    gw.stop()
    gw.start()
    assert len(gw.audit(key=mark)) == 2, "told once"


def test_a_call_that_has_to_wait_after_its_admission(launch, new_partner, mark):
    """While its intent is written an older call, for which nothing has to be written, begins."""
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch([route(partner), {**route(partner), "name": "light", "path": "/light", "ledger": "drops"}], workers=1)
    with gw.connect() as newer, gw.connect() as older:
        for connection, path, key in ((newer, "/pay/x", mark + "-x"), (older, "/light/x", mark)):
            connection.send(request("POST", path, fenced(5, key)))
            expect.relayed(connection.receive())
        gw.wait_audit(key=mark + "-x")
        gw.process.send_signal(signal.SIGSTOP)
        stat = pathlib.Path(f"/proc/{gw.process.pid}/stat")
        eventually(lambda: stat.read_text().rsplit(") ", 1)[1].startswith("T"), what="the stop")
        newer.send(request("POST", f"/pay/{mark}", fenced(6, mark)))
        older.send(request("POST", f"/light/{mark}", fenced(5, mark)))
        gw.process.send_signal(signal.SIGCONT)
        assert [got.target for got in partner.wait_seen(mark)] == [f"/{mark}"]
        eventually(lambda: gw.metric("fencegate_waiting") == 1)
        eventually(lambda: [effect["token"] for effect in gw.admin("/v1/effects?state=in-flight").json["effects"]] == ["6"])
        assert gw.fence(mark) == 6
        expect.relayed(gw.call("/pay/x", 6, mark + "-x"))  # the change of that intent went before it
        gw.wait_audit(2, key=mark + "-x")
        crash(gw, held)
    assert in_doubt(gw) == []
    is_recorded_as_not_sent(gw, mark, 6)


def test_a_call_whose_turn_has_come_is_in_doubt(launch, new_partner, mark):
    partner, first, second = new_partner(), Held(), Held()
    partner.on(mark, first)
    gw = launch(route(partner))
    older = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    newer = gw.send_off(f"/pay/{mark}", 6, mark)
    eventually(lambda: gw.metric("fencegate_waiting") == 1)
    partner.on(mark, second)
    first.release()
    expect.relayed(older.result(10))
    partner.wait_seen(mark, 2)
    gw.wait_audit(key=mark, kind="sent")
    crash(gw, second, newer)
    assert in_doubt(gw) == [(mark, "6")]


def test_a_copy_leaves_in_doubt_what_waited_in_it(launch, new_partner, mark, tmp_path):
    """Nobody knows what became of it after the copy was made."""
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner))
    older = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    newer = gw.send_off(f"/pay/{mark}", 6, mark)
    eventually(lambda: gw.metric("fencegate_waiting") == 1)
    assert gw.command("backup", tmp_path / "copy").returncode == 0
    held.release()
    for call in (older, newer):
        expect.relayed(call.result(10))
    gw.stop()
    os.rename(gw.store, tmp_path / "lost")
    done = gw.command("restore", tmp_path / "copy")
    assert done.returncode == 0, done.stderr
    gw.start()
    assert in_doubt(gw) == [(mark, "5"), (mark, "6")]
