"""When the store cannot be trusted nothing is sent; when it can again, work goes on; and nothing that was accepted is lost."""

import os
import shutil
import stat
import subprocess

import pytest

import expect
from client import fenced, request
from gateway import Gateway, eventually, route
from partner import Held


def serve_once(folder, upstream="http://127.0.0.1:1", store="store", **settings):
    """A `serve` that is expected to refuse: (exit status, lines on standard error)."""
    gateway = Gateway(folder, [route(upstream)], **{"store": {"path": store}, **settings})
    gateway.spawn()
    status = gateway.wait()
    assert gateway.stdout == [], "it said that it is ready"
    return status, gateway.stderr


def refused(status_and_lines, path):
    """Exit 3 and one clear line that names the store; one before it may say that the machine allows few descriptors."""
    status, lines = status_and_lines
    lines = [line for line in lines if '"event":"open-files"' not in line]
    assert status == 3, lines
    assert len(lines) == 1, lines
    assert str(path) in lines[0], lines


def test_a_missing_folder_is_made_and_closed_to_others(launch, partner, mark):
    gw = launch(route(partner))
    assert stat.S_IMODE(gw.store.stat().st_mode) == 0o700
    assert stat.S_IMODE((gw.store / "admin.token").stat().st_mode) == 0o600
    assert len(gw.admin_token) >= 32
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))


def test_a_file_in_the_way_is_one_line_and_exit_3(tmp_path):
    (tmp_path / "store").write_text("not a folder")
    refused(serve_once(tmp_path), tmp_path / "store")
    assert (tmp_path / "store").read_text() == "not a folder"


def test_a_parent_that_cannot_be_made_is_one_line_and_exit_3(tmp_path):
    (tmp_path / "file").write_text("")
    refused(serve_once(tmp_path, store="file/store"), tmp_path / "file/store")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MiB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", place]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root and mount")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_read_only_disk_is_one_line_and_exit_3(tmp_path, small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    refused(serve_once(tmp_path, store="disk/store"), small_disk / "store")


def test_a_store_that_is_no_store_is_one_line_and_exit_3(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "data.mdb").write_bytes(b"this is no database\n" * 1000)
    refused(serve_once(tmp_path), tmp_path / "store")
    assert (tmp_path / "store" / "data.mdb").read_bytes() == b"this is no database\n" * 1000


def test_an_unknown_format_version_is_one_line_and_exit_3(launch, partner, mark):
    gw = launch(route(partner))
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    assert gw.stop() == 0
    before = raise_format_version(gw.store)
    refused(serve_once(gw.folder), gw.store)
    done = gw.command("audit")
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1, done
    raise_format_version(gw.store, back_to=before)
    gw.start()
    assert gw.fence(mark) == 5


def raise_format_version(folder, back_to=None):
    """Changes what the store's `meta` table says about its format, with LMDB's own tools."""
    if not shutil.which("mdb_dump"):
        pytest.skip("needs lmdb-utils")
    dump = subprocess.run(["mdb_dump", "-s", "meta", folder], check=True, capture_output=True, text=True).stdout
    lines = dump.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith(" ") and (b"format" in (k := bytes.fromhex(line.strip())) or b"version" in k))
    before, lines[place + 1] = lines[place + 1], back_to or " " + "7f" * (len(lines[place + 1].strip()) // 2)
    subprocess.run(["mdb_load", "-s", "meta", folder], input="\n".join(lines) + "\n", text=True, check=True)
    return before


def test_a_second_serve_on_the_same_store_is_refused(launch, partner, mark):
    gw = launch(route(partner))
    other = gw.folder / "other"
    other.mkdir()
    refused(serve_once(other, store=str(gw.store)), gw.store)
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    gw.kill()
    gw.start()  # a killed one leaves no lock behind
    assert gw.fence(mark) == 5


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_fences_and_audit_outlive_a_restart(launch, partner, mark, end):
    gw = launch(route(partner))
    expect.relayed(gw.call(f"/pay/{mark}", 42, mark))
    expect.refusal(gw.call(f"/pay/{mark}", 41, mark), 412, "stale-token")
    before = gw.wait_audit(2, key=mark)
    getattr(gw, end)()
    gw.start()
    assert gw.fence(mark) == 42
    assert gw.audit(key=mark) == before
    expect.refusal(gw.call(f"/pay/{mark}", 41, mark), 412, "stale-token")
    expect.relayed(gw.call(f"/pay/{mark}", 42, mark))
    ids = [int(r["id"]) for r in gw.wait_audit(4, key=mark)]
    assert ids == sorted(set(ids))
    assert len(partner.seen(mark)) == 2


def test_after_a_crash_every_open_effect_is_in_doubt(launch, partner, mark):
    held = Held()
    partner.on(mark, held)
    gw = launch(route(partner))
    expect.relayed(gw.call("/pay/done", 1, mark + "-done"))
    gw.wait_audit(key=mark + "-done", kind="sent")
    calls = [gw.send_off(f"/pay/{mark}?n={i}", 5, f"{mark}-{i}") for i in range(3)]
    partner.wait_seen(mark, 3)
    waiting = gw.send_off(f"/pay/{mark}-never", 6, f"{mark}-0")
    eventually(lambda: gw.fence(f"{mark}-0") == 6)
    gw.kill()
    held.release()
    for call in [*calls, waiting]:
        assert call.exception(10) is not None
    gw.start()
    found = gw.audit(kind="unknown", reason="gateway-crash")
    assert sorted((r["key"], r["token"]) for r in found) == sorted((f"{mark}-{i}", "5") for i in range(3))
    (waited,) = gw.audit(reason="gateway-crash", kind="not-sent")
    expect.record(waited, key=f"{mark}-0", token="6")
    found.append(waited)
    for record in found:
        expect.record(record, route="pay", namespace="default", method="POST", upstream_status=None)
        assert record["effect_id"] and "?" not in record["path"]
    assert [r["kind"] for r in gw.audit(key=mark + "-done")] == ["sent"]
    assert len(partner.seen(mark)) == 3 and partner.seen(mark + "-never") == []
    gw.kill()
    gw.start()
    assert sorted(gw.audit(reason="gateway-crash"), key=lambda r: r["kind"], reverse=True) == found, "told twice"


def fill_up(place):
    """Takes what room is left."""
    with open(place / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"\0" * 4096)
        except OSError:
            pass


def test_a_full_disk_sends_nothing_and_mends_itself(launch, new_partner, small_disk, mark, tmp_path):
    partner = new_partner()
    gw = launch(route(partner), store={"path": str(small_disk / "store"), "max_size": "64MiB"})
    expect.relayed(gw.call(f"/pay/{mark}", 1, mark + "-first"))
    held = Held()
    partner.on(mark + "-held", held)
    running = gw.send_off(f"/pay/{mark}-held", 5, mark + "-held")
    partner.wait_seen(mark + "-held")
    fill_up(small_disk)
    accepted = {}
    for number in range(2000):
        key = f"{mark}-{number}-" + "k" * 150
        answer = gw.call(f"/pay/{mark}", 7, key)
        if answer.status == 503:
            break
        expect.relayed(answer)
        accepted[key] = 7
    expect.refusal(answer, 503, "store-unavailable", "not-sent")
    arrived = len(partner.seen(mark))
    assert arrived == len(accepted) + 1
    expect.refusal(gw.call(f"/pay/{mark}", 8, mark + "-more"), 503, "store-unavailable", "not-sent")
    assert len(partner.seen(mark)) == arrived
    eventually(lambda: gw.admin("/readyz", token=None).status == 503)
    assert gw.admin("/healthz", token=None).status == 200
    held.release()
    expect.relayed(running.result(10))  # the effect happened; the partner's answer is the truth
    (small_disk / "filler").unlink()
    eventually(lambda: gw.call(f"/pay/{mark}", 9, mark + "-more").status == 200, what="recovery")
    eventually(lambda: gw.admin("/readyz", token=None).status == 200)
    for key, token in accepted.items():
        assert gw.fence(key) == token
    assert [r["kind"] for r in gw.wait_audit(1, key=mark + "-held")] == ["sent"]
    assert gw.stop() == 0
    gw.start()
    assert all(gw.fence(key) == token for key, token in list(accepted.items())[-20:])


def test_a_drop_that_cannot_be_recorded_is_503(launch, new_partner, small_disk, mark):
    partner = new_partner()
    gw = launch(route(partner), store={"path": str(small_disk / "store"), "max_size": "64MiB"})
    expect.relayed(gw.call(f"/pay/{mark}", 9, mark))
    gw.wait_audit(key=mark)
    fill_up(small_disk)
    drops = []
    for _ in range(3000):
        answer = gw.call(f"/pay/{mark}/" + "p" * 2000, 8, mark)
        if answer.status != 412:
            break
        drops.append(answer.json["audit_id"])
    expect.refusal(answer, 503, "store-unavailable", "not-sent")
    (small_disk / "filler").unlink()
    eventually(lambda: gw.call(f"/pay/{mark}", 8, mark).status == 412, what="recovery")
    assert len(partner.seen(mark)) == 1
    recorded = {r["id"] for r in gw.audit(key=mark, kind="dropped")}
    assert set(drops) <= recorded


def test_a_full_store_sends_nothing_and_still_records_outcomes(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark + "-held", held)
    gw = launch(route(partner), store={"path": "store", "max_size": "1MiB"})
    running = [gw.send_off(f"/pay/{mark}-held", 5, f"{mark}-held{i}") for i in range(10)]
    partner.wait_seen(mark + "-held", 10)
    sent = 0
    for number in range(3000):
        answer = gw.call(f"/pay/{mark}/" + "p" * 3000, 7, f"{mark}-{number}")
        if answer.status == 503:
            break
        expect.relayed(answer)
        sent += 1
    expect.refusal(answer, 503, "store-unavailable", "not-sent")
    assert len(partner.seen(mark)) == sent
    held.release()
    for call in running:
        expect.relayed(call.result(10))
    for i in range(10):
        (found,) = gw.wait_audit(key=f"{mark}-held{i}")
        assert found["kind"] == "sent"
    gw.settings["store"]["max_size"] = "64MiB"
    assert gw.stop() == 0
    gw.start()
    expect.relayed(gw.call(f"/pay/{mark}", 8, mark + "-again"))
    assert gw.fence(f"{mark}-0") == 7


def test_a_full_store_can_make_room_by_itself(launch, new_partner, mark):
    """`drop-oldest`: the oldest records go, a record says so, fences stay."""
    partner = new_partner()
    gw = launch(route(partner), store={"path": "store", "max_size": "1MiB"}, audit={"when_full": "drop-oldest"})
    for number in range(600):
        expect.relayed(gw.call(f"/pay/{mark}/" + "p" * 3000, 7, f"{mark}-{number % 50}"))
    assert gw.admin("/readyz", token=None).status == 200
    assert all(gw.fence(f"{mark}-{number}") == 7 for number in range(50))
    assert any("note" in record for record in gw.audit())
    told = gw.admin(f"/v1/fences/default/{mark}-0/history").json
    assert told["complete"] is False and int(told["removed_audit_id"]) > 0 and "oldest_audit_id" not in told
    assert f"Records up to {told['removed_audit_id']} are no longer kept" in gw.command("history", f"{mark}-0").stdout


@pytest.mark.parametrize("way", ["retention", "drop-oldest"])
def test_what_is_unresolved_stays_while_others_go(launch, new_partner, mark, way):
    partner = new_partner()
    audit = {"retain": "1s", "when_full": "refuse"} if way == "retention" else {"retain": "90d", "when_full": "drop-oldest"}
    gw = launch(route(partner), store={"path": "store", "max_size": "1MiB"}, audit=audit)
    partner.on(f"{mark}-lost", lambda exchange: exchange.reset())
    expect.refusal(gw.call(f"/pay/{mark}-lost", 5, f"{mark}-lost"), 502, "upstream-failed", "unknown")
    (lost,) = gw.wait_audit(kind="unknown")
    gw.call(f"/pay/{mark}", 5, mark)
    (newer,) = gw.wait_audit(key=mark)
    for number in range(600 if way == "drop-oldest" else 0):
        expect.relayed(gw.call(f"/pay/{mark}/" + "p" * 3000, 7, f"{mark}-{number % 20}"))
    eventually(lambda: gw.audit(id=newer["id"]) == [], what="the end of a newer record")
    for _ in range(2):
        assert gw.metric("fencegate_effects_unresolved") == 1 and gw.audit(kind="unknown") == [lost]
        assert [each["name"] for each in gw.admin("/v1/stats").json["alarms"] if each["name"] == "unresolved"] == ["unresolved"]
        assert gw.stop() == 0
        gw.start()
    answer = gw.admin(f"/v1/effects/{lost['effect_id']}/resolve", "POST", headers=[("Content-Type", "application/json")], body=b'{"outcome":"sent","note":"asked"}')
    assert answer.status == 200 and gw.metric("fencegate_effects_unresolved") == 0
    if way == "retention":
        eventually(lambda: gw.audit(kind="unknown") == [], what="its end, as it is resolved")


KEYS = 20


def until_full(gw, mark, most=5000):
    """Calls of a few keys with long paths until the store has no room, also with every outcome recorded; how many were sent."""
    sent = refused = 0
    while refused < 3:
        answer = gw.call(f"/pay/{mark}/" + "p" * 3000, 7, f"{mark}-{sent % KEYS}")
        if answer.status == 503:
            expect.refusal(answer, 503, "store-unavailable", "not-sent")
            eventually(lambda: gw.metric("fencegate_effects_in_flight") == 0)
            refused += 1
            continue
        expect.relayed(answer)
        sent, refused = sent + 1, 0
        assert sent < most, "it never was full"
    return sent


@pytest.mark.parametrize("way", ["retention", "drop-oldest"])
def test_a_full_store_is_read_and_goes_on_when_there_is_room(launch, new_partner, mark, way):
    partner = new_partner()
    gw = launch(route(partner), store={"path": "store", "max_size": "1MiB"}, audit={"retain": "90d", "when_full": "refuse"})
    sent = until_full(gw, mark)
    eventually(lambda: len(gw.audit(kind="sent")) == min(sent, 1000), what="all outcomes")
    (newest,), (oldest,) = gw.audit(order="desc", limit=1), gw.audit(limit=1)
    answer = gw.call(f"/pay/{mark}", 8, mark + "-new")
    expect.refusal(answer, 503, "store-unavailable", "not-sent")
    assert "the store is full" in answer.json["detail"] or "store.max_size" in answer.json["detail"]
    expect.refusal(gw.call(f"/pay/{mark}", 6, f"{mark}-0"), 503, "store-unavailable", "not-sent")  # a drop can't be recorded either
    assert len(partner.seen(mark)) == sent
    line = gw.wait_log(lambda l: l["event"] == "store" and l["level"] == "error")
    assert "full" in line["message"]
    eventually(lambda: gw.admin("/readyz", token=None).json.get("reason") == "the store is full")
    # all reads work
    assert gw.fence(f"{mark}-0") == 7 and gw.fence(mark + "-new") is None
    assert gw.admin("/v1/fences?limit=1000").json["fences"] and gw.admin("/v1/effects").json["effects"] == []
    assert gw.audit(order="desc", limit=1) == [newest]
    assert gw.command("audit", "--limit", 1, "--json").returncode == 0 and gw.metric("fencegate_store_writable") == 0
    # room is made while it runs
    gw.settings["audit"] = {"retain": "1s", "when_full": "refuse"} if way == "retention" else {"retain": "90d", "when_full": "drop-oldest"}
    gw.reload()
    eventually(lambda: gw.call(f"/pay/{mark}", 9, mark + "-new").status == 200, what="room")
    eventually(lambda: gw.admin("/readyz", token=None).status == 200)
    gw.wait_log(lambda l: l["event"] == "store" and l["level"] == "info")
    expect.refusal(gw.call(f"/pay/{mark}", 6, f"{mark}-0"), 412, "stale-token")
    if way == "drop-oldest":
        for number in range(300):  # far more than fits: it goes on
            expect.relayed(gw.call(f"/pay/{mark}/" + "p" * 3000, 9, f"{mark}-{number % 20}"))
        gw.wait_log(lambda l: l["event"] == "store" and l["level"] == "warn" and "make room" in l["message"])
        told = [r["note"] for r in gw.audit() if r.get("reason") == "audit-full"]
        assert told and all("oldest audit records" in note for note in told)
        assert gw.admin("/readyz", token=None).status == 200
    eventually(lambda: int(gw.audit(limit=1)[0]["id"]) > int(oldest["id"]), what="the oldest record's end")
    assert gw.fence(f"{mark}-0") == (9 if way == "drop-oldest" else 7), "a fence went with the records"
    assert len(gw.admin(f"/v1/fences?prefix={mark}").json["fences"]) == KEYS + 1


def test_new_keys_leave_the_last_tenth_to_known_ones(launch, new_partner, mark):
    partner = new_partner()
    gw = launch(route(partner), store={"path": "store", "max_size": "1MiB"}, audit={"retain": "90d", "when_full": "refuse"})
    expect.relayed(gw.call(f"/pay/{mark}", 7, mark))
    for number in range(5000):
        answer = gw.call(f"/pay/{mark}", 1, f"{mark}-{number}-" + "k" * 200)
        if answer.status != 200:
            break
    expect.refusal(answer, 503, "store-unavailable", "not-sent")
    assert "tenth" in answer.json["detail"] and answer.get("Retry-After")
    assert gw.fence(f"{mark}-{number}-" + "k" * 200) is None
    gw.wait_log(lambda line: line["event"] == "store" and "new key" in line["message"])
    for token in range(7, 27):
        expect.relayed(gw.call(f"/pay/{mark}", token, mark))
    expect.refusal(gw.call(f"/pay/{mark}", 6, mark), 503, "store-unavailable", "not-sent")  # the record of a drop has no share either
    gw.wait_audit(count=21, key=mark, kind="sent")
    assert gw.admin("/readyz", token=None).status == 200 and gw.admin("/healthz", token=None).status == 200


@pytest.mark.parametrize("mode, ledger", [("enforce", "effects"), ("enforce", "drops"), ("observe", "effects")])
def test_a_stale_worker_in_a_loop_leaves_room_for_the_current_one(launch, new_partner, mark, mode, ledger):
    """Its calls end as store-unavailable while a tenth of the room is left, and the current worker's go on."""
    partner = new_partner()
    gw = launch([route(partner), route(partner, name="loop", path="/loop", ledger=ledger, fence={"mode": mode})],
                store={"path": "store", "max_size": "4MiB"}, audit={"retain": "90d", "when_full": "refuse"})
    assert gw.call("/pay/x", 7, mark).status == 200
    tokens = [(6, mark)] if mode == "enforce" else [(6, mark), (None, None)]
    refused, told = 0, 0
    with gw.connect() as connection:
        while refused < 500:
            connection.send(request("POST", f"/loop/{mark}-" + "p" * 3000, fenced(*tokens[told % len(tokens)])))
            answer = connection.receive("POST")
            if answer.status == 503:
                expect.refusal(answer, 503, "store-unavailable", "not-sent")
                refused += 1
            else:
                assert answer.status == (412 if mode == "enforce" else 200)
                told += 1
                assert told < 6000, "it never was full"
    assert "known keys" in answer.json["detail"]
    for number in range(20):
        assert gw.call(f"/pay/{mark}-{number}", 7 + number, mark).status == 200
    expect.refusal(gw.call("/pay/x", 7, mark + "-new"), 503, "store-unavailable", "not-sent")
    assert gw.admin("/readyz", token=None).status == 200 and gw.metric("fencegate_store_writable") == 1
    if mode == "enforce":
        assert len(gw.audit(kind="dropped", limit=1000)) == min(told, 1000)


def test_paths_without_a_token_take_no_room_of_others(launch, new_partner, mark):
    """Several times the store's size in long paths: each is refused, and calls and their outcomes go on."""
    partner = new_partner()
    gw = launch(route(partner), store={"path": "store", "max_size": "1MiB"}, audit={"retain": "90d", "when_full": "refuse"})
    assert gw.call(f"/pay/{mark}-first", 7, mark).status == 200
    path = f"/pay/{mark}-" + "%E2%82%AC" * 1300
    for _ in range(1500):
        answer = gw.call(path, None, None)
        expect.refusal(answer, 428, "missing-token", "not-sent")
    newest = gw.audit(order="desc", limit=1, kind="rejected")[0]
    assert newest["path"].endswith("%AC…") and 1000 < len(newest["path"].encode()) <= 1024
    assert path.startswith(newest["path"][:-1])
    assert gw.call(f"/pay/{mark}-last", 7, mark).status == 200  # a known key
    assert gw.call(f"/pay/{mark}-new", 7, mark + "-new").status == 200
    assert gw.admin("/healthz", token=None).status == 200 and gw.metric("fencegate_store_writable") == 1
    paths = [f"/pay/{mark}-first", f"/pay/{mark}-last", f"/pay/{mark}-new"]
    eventually(lambda: [record["path"] for record in gw.audit(kind="sent")] == paths)
    everything = gw.audit(limit=1000)
    assert [int(record["id"]) for record in everything] == sorted(int(record["id"]) for record in everything)
    assert gw.command("verify").returncode == 0
