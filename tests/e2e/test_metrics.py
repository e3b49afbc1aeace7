"""What watches the gateway: /v1/stats, /metrics by Prometheus' rules, alarms, and the files that are built on them."""

import collections
import datetime
import json
import os
import pathlib
import random
import re
import resource
import subprocess
import time

import pytest

import expect
import prometheus
from client import fenced, request
from gateway import ROOT, eventually, route
from partner import FullListener, Held
from prometheus import scrape

KINDS = ("sent", "dropped", "not_sent", "unknown", "rejected")


def stats(gw):
    answer = gw.admin("/v1/stats")
    assert answer.status == 200 and answer.get("Content-Type").startswith("application/json"), answer
    return answer.json


def of_route(gw, name="pay"):
    return next(each for each in stats(gw)["routes"] if each["name"] == name)


def totals(gw, name="pay"):
    return {kind: sum(of_route(gw, name)[kind]) for kind in KINDS}


def moment(text):
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text), text
    return datetime.datetime.fromisoformat(text[:-1] + "+00:00").timestamp()


# -- /v1/stats


def test_stats_have_the_limits_of_the_settings(launch, partner):
    gw = launch(route(partner), limits={"connections": 40, "in_flight": 30, "buffered": "9MiB"})
    found = {name: each["max"] for name, each in stats(gw)["limits"].items()}
    assert found == {"connections": 40, "in_flight": 30, "buffered_bytes": 9 << 20}


def test_stats_have_their_shape(gw, partner, mark):
    gw.call(f"/pay/{mark}", 5, mark)
    gw.wait_audit(key=mark)
    found = stats(gw)
    assert list(found) == ["time", "started_at", "version", "state", "reason", "store", "limits", "alarms", "minutes", "routes"]
    assert found["state"] == "ready" and found["reason"] is None and re.fullmatch(r"\d+\.\d+\.\d+.*", found["version"])
    assert moment(found["started_at"]) <= moment(found["time"])
    assert 0 <= moment(found["time"]) - moment(found["minutes"]["start"]) - 59 * 60 < 61 and found["minutes"]["count"] == 60
    assert moment(found["started_at"]) - 1 <= moment(found["minutes"]["counted_from"]) <= moment(found["time"])
    store = found["store"]
    assert store["writable"] is True and store["max_bytes"] == 256 << 20 and 0 < store["used_bytes"] < store["max_bytes"]
    assert store["keys"] >= 1 and store["in_doubt"] == 0
    for each in ("connections", "in_flight"):  # fewer where there are fewer descriptors
        assert 1 <= found["limits"][each]["max"] <= 10000, found["limits"]
    assert found["limits"]["buffered_bytes"]["max"] == 256 << 20
    for each in found["routes"]:
        assert list(each) == ["name", "in_flight", "waiting", "unresolved", *KINDS]
        for kind in KINDS:
            assert len(each[kind]) == 60 and all(type(count) is int for count in each[kind])
    assert [each["name"] for each in found["routes"]] == ["pay"]
    assert mark not in gw.admin("/v1/stats").body.decode()


def test_stats_need_the_token_and_take_no_query(gw):
    assert gw.admin("/v1/stats", token=None).status == 401
    assert gw.admin("/v1/stats?x=1").status == 400
    assert gw.admin("/v1/stats", method="POST").status == 405


def test_stats_count_each_end_once(launch, new_partner, mark):
    partner = new_partner()
    gw = launch([route(partner, fence={"max_jump": "1000", "unfenced_methods": ["GET"]}), route(partner, name="shut", path="/shut", in_flight=1)])
    assert totals(gw) == dict.fromkeys(KINDS, 0)
    partner.on(f"{mark}-dead", lambda exchange: exchange.close())
    gw.call(f"/pay/{mark}", 5, mark)
    gw.call(f"/pay/{mark}", method="GET")  # unfenced
    for token in (4, 3, 100_000):  # stale, stale, implausible
        gw.call(f"/pay/{mark}", token, mark)
    gw.call(f"/pay/{mark}", None, mark)
    gw.call(f"/pay/{mark}", "x", mark)
    gw.call(f"/pay/{mark}", 5, None)
    gw.call(f"/pay/{mark}-dead", 5, f"{mark}-dead")
    gw.call("/nowhere", 5, mark)  # no route: in no route's numbers
    assert eventually(lambda: totals(gw) == {"sent": 2, "dropped": 3, "not_sent": 0, "unknown": 1, "rejected": 3})
    held = Held()
    partner.on(f"{mark}-held", held)
    call = gw.send_off(f"/shut/{mark}-held", 5, f"{mark}-held")
    partner.wait_seen(f"{mark}-held")
    expect.refusal(gw.call(f"/shut/{mark}", 5, mark), 503, "overloaded")
    assert eventually(lambda: of_route(gw, "shut")["in_flight"] == 1) and stats(gw)["limits"]["in_flight"]["now"] == 1
    held.release()
    call.result(10)
    assert eventually(lambda: totals(gw, "shut") == {"sent": 1, "dropped": 0, "not_sent": 1, "unknown": 0, "rejected": 0})
    assert of_route(gw, "shut")["in_flight"] == 0


def test_stats_show_what_waits_and_what_is_left_in_doubt(launch, new_partner, mark):
    partner = new_partner()
    gw, held = launch(route(partner)), Held()
    partner.on(mark, held)
    older = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    newer = gw.send_off(f"/pay/{mark}", 6, mark)
    assert eventually(lambda: (lambda r: (r["in_flight"], r["waiting"]))(of_route(gw)) == (1, 1))
    gw.kill()
    held.release()
    for call in (older, newer):
        call.exception(10)
    gw.start()
    assert stats(gw)["store"]["in_doubt"] == 1 and totals(gw) == {**dict.fromkeys(KINDS, 0), "unknown": 1}
    gw.stop()
    gw.start()
    assert stats(gw)["store"]["in_doubt"] == 1 and totals(gw) == dict.fromkeys(KINDS, 0), "they are counted once"


def test_stats_follow_a_reload(launch, partner, mark):
    gw = launch([route(partner), route(partner, name="old", path="/old"), route(partner, name="idle", path="/idle")])
    gw.call(f"/old/{mark}", 5, mark)
    eventually(lambda: totals(gw, "old")["sent"] == 1)
    gw.settings["routes"] = [route(partner), route(partner, name="new", path="/new")]
    gw.settings["limits"] = {"in_flight": 77}
    gw.reload()
    # What was removed goes when its last hour is empty.
    eventually(lambda: [each["name"] for each in stats(gw)["routes"]] == ["pay", "old", "new"])
    assert eventually(lambda: stats(gw)["limits"]["in_flight"]["max"] == 77)
    assert totals(gw, "old")["sent"] == 1


# -- /metrics


def test_metrics_keep_every_rule_of_prometheus(gw, partner, mark):
    gw.call(f"/pay/{mark}", 5, mark)
    gw.call(f"/pay/{mark}", 4, mark)
    gw.call("/nowhere", 5, mark)
    found = scrape(gw)
    assert mark not in found.text
    for family in found.families.values():
        for _, labels in family.samples:
            assert {name for name, _ in labels} <= {"route", "effect", "reason", "stage", "result", "le", "version", "libmicrohttpd", "libcurl"}
    assert found("fencegate_build_info") == 1 and found("fencegate_requests_total", route="pay", reason="stale-token") >= 1


@pytest.mark.parametrize("broken", [
    "fencegate_x 1\n",
    "# HELP fencegate_x What it is.\nfencegate_x 1\n",
    "# HELP fencegate_x What it is.\n# TYPE fencegate_x counter\nfencegate_x 1\n",
    "# HELP fencegate_x What it is.\n# TYPE fencegate_x gauge\nfencegate_x 1\nfencegate_x 2\n",
    "# HELP fencegate_x What it is.\n# TYPE fencegate_x gauge\nfencegate_y 1\n",
    '# HELP fencegate_x What it is.\n# TYPE fencegate_x gauge\nfencegate_x{a="1",a="2"} 1\n',
    '# HELP fencegate_x What it is.\n# TYPE fencegate_x gauge\nfencegate_x{a="1"} 1\nfencegate_x{b="1"} 1\n',
    "# HELP fencegate_x What it is.\n# TYPE fencegate_x gauge\nfencegate_x 1",
    "# HELP fencegate_x_ms What it is.\n# TYPE fencegate_x_ms gauge\nfencegate_x_ms 1\n",
    '# HELP fencegate_x What it is.\n# TYPE fencegate_x histogram\nfencegate_x_bucket{le="1"} 1\nfencegate_x_sum 1\nfencegate_x_count 1\n',
    '# HELP fencegate_x What it is.\n# TYPE fencegate_x histogram\nfencegate_x_bucket{le="1"} 2\nfencegate_x_bucket{le="+Inf"} 1\nfencegate_x_sum 1\nfencegate_x_count 1\n',
    '# HELP fencegate_x What it is.\n# TYPE fencegate_x histogram\nfencegate_x_bucket{le="+Inf"} 1\nfencegate_x_sum 1\nfencegate_x_count 2\n',
])
def test_the_rules_are_minded(broken):
    with pytest.raises((AssertionError, KeyError)):
        prometheus.parse(broken)


def test_drops_have_the_stage_that_they_reached(launch, new_partner, mark):
    full, partner, held = FullListener(), new_partner(), Held()
    gw = launch([route(full, name="slow", path="/slow", timeout={"connect": "30s", "total": "60s"}), route(partner)])

    def drops(**labels):
        return scrape(gw)("fencegate_drops_total", **labels)

    assert drops(route="pay", reason="stale-token", stage="arrival") == 0
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    expect.refusal(gw.call(f"/pay/{mark}", 4, mark), 412, "stale-token")
    assert eventually(lambda: drops(route="pay", reason="stale-token", stage="arrival") == 1)
    # 6 is in flight, 7 waits for it, and 8 takes 7's place.
    partner.on(f"{mark}-held", held)
    first = gw.send_off(f"/pay/{mark}-held", 6, mark)
    partner.wait_seen(f"{mark}-held")
    second = gw.send_off(f"/pay/{mark}", 7, mark)
    eventually(lambda: gw.fence(mark) == 7)
    third = gw.send_off(f"/pay/{mark}", 8, mark)
    expect.refusal(second.result(10), 412, "superseded")
    assert eventually(lambda: drops(route="pay", reason="superseded", stage="waiting") == 1)
    held.release()
    expect.relayed(first.result(10))
    expect.relayed(third.result(10))
    # One was superseded, one got its turn.
    assert scrape(gw)("fencegate_predecessor_wait_seconds_count", route="pay") == 2
    connecting = gw.send_off(f"/slow/{mark}", 9, mark)
    eventually(lambda: gw.fence(mark) == 9)
    expect.relayed(gw.call(f"/pay/{mark}", 10, mark))
    expect.refusal(connecting.result(10), 412, "superseded")
    assert eventually(lambda: drops(route="slow", reason="superseded", stage="connecting") == 1)
    found = scrape(gw)
    assert found("fencegate_drops_total") == 3
    assert found("fencegate_partner_seconds_count", route="slow") == 0
    full.close()


def test_drops_and_requests_agree_after_a_storm(launch, new_partner, mark):
    gw = launch(route(new_partner()))
    tokens = list(range(1, 41)) * 4
    random.Random(7).shuffle(tokens)
    answers = [call.result(30) for call in [gw.send_off(f"/pay/{mark}", token, mark) for token in tokens]]
    counts = collections.Counter(answer.json["reason"] if answer.status == 412 else "" for answer in answers)
    assert counts["stale-token"] > 0
    found = eventually(lambda: (lambda m: m if m("fencegate_requests_total") == len(tokens) else None)(scrape(gw)))
    for reason in ("stale-token", "superseded"):
        assert (found("fencegate_requests_total", reason=reason) or 0) == found("fencegate_drops_total", reason=reason) == counts[reason]
    assert found("fencegate_requests_total", effect="sent") == counts[""]
    assert found("fencegate_gateway_seconds_count") == found("fencegate_partner_seconds_count") == counts[""]
    assert found("fencegate_effects_in_flight") == found("fencegate_waiting") == 0


def test_the_partners_time_is_not_the_gateways(launch, new_partner, mark):
    partner = new_partner()
    gw = launch(route(partner))

    def slowly(exchange):
        time.sleep(0.3)
        exchange.reply()

    partner.on(mark, slowly)
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    found = eventually(lambda: (lambda m: m if m("fencegate_partner_seconds_count") == 1 else None)(scrape(gw)))
    assert found("fencegate_partner_seconds_sum") >= 0.3
    assert found("fencegate_partner_seconds_bucket", le="0.25") == 0
    assert found("fencegate_gateway_seconds_count") == 1 and found("fencegate_predecessor_wait_seconds_count") == 0


def test_the_store_is_measured(launch, new_partner, mark):
    gw = launch(route(new_partner()))
    for token in range(1, 6):
        expect.relayed(gw.call(f"/pay/{mark}", token, mark))
    gw.wait_audit(5, key=mark)
    found = scrape(gw)
    commits = found("fencegate_store_commits_total")
    assert commits >= 6 and found("fencegate_store_commit_seconds_count") == found("fencegate_store_batch_seconds_count") == commits
    assert found("fencegate_store_batch_operations_sum") == found("fencegate_store_operations_total") == 10
    assert 0 < found("fencegate_store_commit_seconds_sum") < found("fencegate_store_batch_seconds_sum")
    assert (found("fencegate_store_keys"), found("fencegate_store_audit_records")) == (1, 5)
    assert 0 < found("fencegate_store_disk_free_bytes") <= found("fencegate_store_disk_size_bytes")
    assert 0 < found("fencegate_store_free_pages") <= (256 << 20) / resource.getpagesize()


def test_the_process_is_measured(gw):
    found = scrape(gw)
    assert 0 <= time.time() - found("process_start_time_seconds") < 600
    folder = pathlib.Path(f"/proc/{gw.process.pid}")
    assert abs(found("process_open_fds") - len(os.listdir(folder / "fd"))) <= 8
    assert found("process_open_fds") < found("process_max_fds") and found("process_cpu_seconds_total") > 0
    assert found("process_resident_memory_bytes") >= 1 << 20


def test_threads_have_names(launch, partner):
    gw = launch(route(partner), workers=2)
    tasks = pathlib.Path(f"/proc/{gw.process.pid}/task")
    wanted = {"fg-worker-0", "fg-worker-1", "fg-writer", "fg-admin", "fg-log"}  # each gives itself its own
    eventually(lambda: {(task / "comm").read_text().strip() for task in tasks.iterdir()} >= wanted, what="the names")
    assert (tasks / str(gw.process.pid) / "comm").read_text() == "fencegate\n"


def test_a_reader_that_stays_behind_shows(launch, new_partner, mark):
    """mdb_dump holds its snapshot while nobody reads what it writes."""
    gw = launch(route(new_partner()))
    for turn in range(150):  # more than a pipe holds
        gw.call(f"/pay/{mark}/{'x' * 1000}", None, mark)
    gw.wait_audit(150, reason="missing-token")
    with subprocess.Popen(["mdb_dump", "-a", str(gw.store)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as dump:
        assert dump.stdout.read(1)
        for token in range(1, 4):
            expect.relayed(gw.call(f"/pay/{mark}", token, mark))
        found = eventually(lambda: (lambda m: m if m("fencegate_store_oldest_reader_held_seconds") > 0 else None)(scrape(gw)))
        assert found("fencegate_store_oldest_reader_lag") >= 1 and found("fencegate_store_old_reader") == 0
        dump.kill()
    gw.call(f"/pay/{mark}", 9, mark)


# -- alarms


def alarms(gw):
    found = stats(gw)["alarms"]
    for each in found:
        assert set(each) - {"route"} == {"name", "since", "text"} and each["text"].endswith("."), each
        assert abs(moment(each["since"]) - time.time()) < 600
    # What the machine's disk is like is no matter of these tests.
    return {each["name"]: each for each in found if each["name"] != "disk-nearly-full"}


def lines(gw, event, state):
    return [line for line in list(gw.log) if line["event"] == event and line.get("state") == state]


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_tokens_from_a_clock_are_told_once_a_route(launch, new_partner, mark, unit):
    partner = new_partner()
    gw = launch([route(partner), route(partner, name="other", path="/other")])
    expect.relayed(gw.call(f"/pay/{mark}", 41, f"{mark}-counted"))
    assert alarms(gw) == {} and scrape(gw)("fencegate_clock_like_token") == 0
    token = int(time.time() * unit)
    for turn in range(3):
        gw.call(f"/pay/{mark}", token + turn, f"{mark}-{turn}")
    line = gw.wait_log(lambda line: line["event"] == "token-looks-like-clock")
    assert (line["route"], line["namespace"], line["key"], line["token"]) == ("pay", "default", f"{mark}-0", str(token))
    assert line["level"] == "warn" and "max_jump" in line["message"]
    found = alarms(gw)
    assert list(found) == ["clock-like-token"] and found["clock-like-token"]["route"] == "pay"
    assert f"{mark}-0, namespace default" in found["clock-like-token"]["text"] and str(token) not in found["clock-like-token"]["text"]
    assert mark.encode() not in gw.admin("/metrics", token=None).body
    assert scrape(gw)("fencegate_clock_like_token", route="pay") == 1 and scrape(gw)("fencegate_clock_like_token", route="other") == 0
    assert len(lines(gw, "token-looks-like-clock", "on")) == 1


def test_a_lock_service_that_went_back_is_noticed(launch, new_partner, mark):
    gw = launch(route(new_partner()))
    for turn in range(10):
        expect.relayed(gw.call(f"/pay/{mark}", 100, f"{mark}-{turn}"))
    for turn in range(9):
        for _ in range(2):
            expect.refusal(gw.call(f"/pay/{mark}", 50, f"{mark}-{turn}"), 412, "stale-token")
    expect.relayed(gw.call(f"/pay/{mark}", 51, f"{mark}-new"))  # a first token says nothing
    expect.relayed(gw.call(f"/pay/{mark}", 100, f"{mark}-0"))  # nor does a holder at work
    assert alarms(gw) == {}
    expect.refusal(gw.call(f"/pay/{mark}", 50, f"{mark}-9"), 412, "stale-token")
    assert eventually(lambda: scrape(gw)("fencegate_token_regression", route="pay") == 1)
    assert alarms(gw)["token-regression"]["route"] == "pay"
    expect.relayed(gw.call(f"/pay/{mark}", 52, f"{mark}-new2"))
    expect.relayed(gw.call(f"/pay/{mark}", 100, f"{mark}-0"))
    assert list(alarms(gw)) == ["token-regression"]
    expect.relayed(gw.call(f"/pay/{mark}", 101, f"{mark}-0"))
    assert alarms(gw) == {} and scrape(gw)("fencegate_token_regression") == 0
    over = gw.wait_log(lambda line: line["event"] == "token-regression" and line["state"] == "off")
    assert "got a higher token" in over["message"] and "stale" not in over["message"]
    assert len(lines(gw, "token-regression", "on")) == 1


def test_a_route_that_is_gone_takes_its_regression_along(launch, new_partner, mark):
    partner = new_partner()
    gw = launch([route(partner), route(partner, name="old", path="/old")])
    for turn in range(10):
        gw.call(f"/old/{mark}", 100, f"{mark}-{turn}")
        gw.call(f"/old/{mark}", 50, f"{mark}-{turn}")
    assert eventually(lambda: list(alarms(gw)) == ["token-regression"])
    gw.settings["routes"] = [route(partner)]
    gw.reload()
    assert eventually(lambda: alarms(gw) == {})


def test_reloads_are_counted(launch, partner):
    gw = launch(route(partner))
    found = scrape(gw)
    read = found("fencegate_settings_time_seconds")
    assert (found("fencegate_reloads_total", result="applied"), found("fencegate_reloads_total", result="refused"), found("fencegate_reload_refused")) == (0, 0, 0)
    assert 0 <= time.time() - read < 600
    good = gw.settings["routes"]
    gw.settings["routes"] = []
    gw.reload()
    found = eventually(lambda: (lambda seen: seen if seen("fencegate_reloads_total", result="refused") == 1 else None)(scrape(gw)))
    assert (found("fencegate_reload_refused"), found("fencegate_reloads_total", result="applied"), found("fencegate_settings_time_seconds")) == (1, 0, read)
    gw.settings["routes"] = good
    gw.reload()
    found = eventually(lambda: (lambda seen: seen if seen("fencegate_reloads_total", result="applied") == 1 else None)(scrape(gw)))
    assert found("fencegate_reload_refused") == 0 and found("fencegate_settings_time_seconds") > read


def test_effects_in_doubt_are_told_at_the_start(launch, new_partner, mark):
    partner = new_partner()
    gw, held = launch(route(partner)), Held()
    partner.on(mark, held)
    call = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    gw.kill()
    held.release()
    call.exception(10)
    gw.start()
    line = gw.wait_log(lambda line: line["event"] == "in-doubt")
    assert line["state"] == "on" and line["level"] == "warn"
    assert eventually(lambda: alarms(gw).get("in-doubt"))["text"].startswith("1 effect ")
    (effect,) = gw.admin("/v1/effects?state=in-doubt").json["effects"]
    assert alarms(gw)["in-doubt"]["since"] == effect["time"], "in doubt since the call, not since the restart"
    assert gw.admin(f"/v1/effects/{effect['id']}/resolve", "POST", headers=[("Content-Type", "application/json")],
                    body=b'{"outcome":"sent","note":"asked"}').status == 200
    assert eventually(lambda: alarms(gw) == {}) and "No effect is in doubt" in gw.wait_log(lambda line: line["event"] == "in-doubt" and line["state"] == "off")["message"]


def unresolved(gw):
    """Of each route, in three places that must agree: the metric, /v1/stats, the alarms."""
    found = stats(gw)
    counts = {each["name"]: each["unresolved"] for each in found["routes"]}
    told = {each["route"]: int(each["text"].split()[0]) for each in found["alarms"] if each["name"] == "unresolved"}
    seen = scrape(gw)
    assert told == {name: count for name, count in counts.items() if count} and found["store"]["unresolved"] == sum(counts.values())
    assert {name: seen("fencegate_effects_unresolved", route=name) for name in counts} == counts
    return counts


def settle(gw, effect):
    answer = gw.admin(f"/v1/effects/{effect}/resolve", "POST", headers=[("Content-Type", "application/json")], body=b'{"outcome":"sent","note":"asked"}')
    assert answer.status == 200, answer


def test_what_is_unknown_counts_by_route_until_it_is_resolved(launch, new_partner, mark):
    partner = new_partner()
    gw = launch([route(partner), route(partner, name="old", path="/old")])
    partner.on(f"{mark}-lost", lambda exchange: exchange.reset())
    assert unresolved(gw) == {"pay": 0, "old": 0}
    for number, path in enumerate(("pay", "pay", "old")):
        expect.refusal(gw.call(f"/{path}/{mark}-lost", 5 + number, f"{mark}-lost"), 502, "upstream-failed", "unknown")
    partner.on(f"{mark}-held", held := Held())
    call = gw.send_off(f"/old/{mark}-held", 5, f"{mark}-held")
    partner.wait_seen(f"{mark}-held")
    eventually(lambda: unresolved(gw) == {"pay": 2, "old": 1})
    assert eventually(lambda: {line["route"] for line in lines(gw, "effects-unresolved", "on")} == {"pay", "old"})
    # A crash leaves one more, recorded as `unknown` too; the route is no longer in the settings.
    gw.kill()
    held.release()
    call.exception(10)
    gw.settings["routes"] = [route(partner)]
    gw.start()
    assert unresolved(gw) == {"pay": 2, "old": 2} and stats(gw)["store"]["in_doubt"] == 1
    first = gw.audit(kind="unknown", limit=1)[0]
    (since,) = [each["since"] for each in stats(gw)["alarms"] if each.get("route") == "pay"]
    assert abs(moment(since) - moment(first["time"])) < 5, "since the call, not since the restart"
    for left, effect in ((3, first), *((2 - at, each) for at, each in enumerate(gw.audit(kind="unknown")[1:]))):
        settle(gw, effect["effect_id"])
        assert sum(unresolved(gw).values()) == left
        if left == 2:
            assert gw.stop() == 0
            gw.start()
            assert sum(unresolved(gw).values()) == left
    assert set(unresolved(gw).values()) == {0}
    assert eventually(lambda: {line["route"] for line in lines(gw, "effects-unresolved", "off")} >= {"old"})
    assert gw.stop() == 0
    gw.start()
    assert unresolved(gw) == {"pay": 0}


def test_a_store_that_fills_up_is_told_before_it_is_full(launch, new_partner, mark):
    gw = launch(route(new_partner()), store={"path": "store", "max_size": "3MiB"})
    expect.relayed(gw.call(f"/pay/{mark}", 9, mark))

    def fill(rounds, token):
        """Drops, or calls (which alone may have the last tenth), twenty a round and some two a page: rejected records have room of their own. True: all were recorded."""
        connections = [gw.connect() for _ in range(20)]
        answers = set()
        for _ in range(rounds):
            for connection in connections:
                connection.send(request("POST", f"/pay/{'x' * 1500}", fenced(token, mark)))
            answers |= {connection.receive("POST").status for connection in connections}
            if 503 in answers:
                break
        for connection in connections:
            connection.close()
        return 503 not in answers

    assert fill(92, 1)
    assert eventually(lambda: "store-nearly-full" in alarms(gw)) and scrape(gw)("fencegate_store_nearly_full") == 1
    line = gw.wait_log(lambda line: line["event"] == "store-nearly-full")
    assert line["state"] == "on" and "% used" in line["message"] and gw.admin("/readyz").status == 200
    assert not fill(60, 9)
    assert eventually(lambda: set(alarms(gw)) == {"store-nearly-full", "store-not-writable"})
    assert stats(gw)["state"] == "not-ready" and stats(gw)["reason"]
    assert alarms(gw)["store-not-writable"]["text"] == f"Nothing is sent: {stats(gw)['reason']}."
    gw.settings["audit"] = {"retain": "1s"}
    gw.reload()
    assert eventually(lambda: alarms(gw) == {})
    gw.wait_log(lambda line: line["event"] == "store-nearly-full" and line["state"] == "off")
    assert scrape(gw)("fencegate_store_nearly_full") == 0


# -- what is built on the metrics: docker/

DOCKER = ROOT / "docker"
WORD = re.compile(r"\b(?:fencegate|process)_[a-z0-9_]+\b")
SELECTOR = re.compile(r"\b((?:fencegate|process)_[a-z0-9_]+)\{([^}]*)\}")


def dashboard_expressions():
    board = json.loads((DOCKER / "grafana" / "dashboards" / "fencegate.json").read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    yield from (target["expr"] for panel in board["panels"] for target in panel.get("targets", []))
    yield from (each["expr"] for each in board["annotations"]["list"])
    yield from (each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query")


def rule_expressions():
    text = (DOCKER / "prometheus" / "fencegate.rules.yml").read_text()
    found = re.findall(r"^ +expr: (\S.*)$", text, re.MULTILINE)
    assert len(found) == len(re.findall(r"^ +- alert: Fencegate\w+$", text, re.MULTILINE)) == text.count("expr") - 1  # its head says it once
    yield from found


@pytest.mark.parametrize("source", [dashboard_expressions, rule_expressions])
def test_dashboard_and_rules_name_what_there_is(gw, source):
    found = scrape(gw)
    names = {name for name, _ in found.samples}
    labels = {name: {label for each, has in found.samples if each == name for label, _ in has} for name in names}
    expressions = list(source())
    assert len(expressions) >= 15
    for expression in expressions:
        used = set(WORD.findall(expression))
        assert (used or "up{" in expression) and used <= names, f"{used - names} in {expression}"
        for name, matchers in SELECTOR.findall(expression):
            for label in re.findall(r'([a-z_]+)(?:=~|!~|!=|=)"', matchers):
                assert label in labels[name] | {"instance", "job"}, f"{label} in {expression}"
        for by in re.findall(r"\bby \(([^)]*)\)", expression):
            assert set(by.split(", ")) <= set().union(*(labels[name] for name in used)) | {"instance", "job"}, expression
        for reasons in re.findall(r'reason=~"([^"]*)"', expression):
            known = (ROOT / "gateway" / "reason.def").read_text()
            assert all(re.search(f'"{reason}"', known) for reason in reasons.split("|")), expression
        for effect in re.findall(r'effect="([^"]*)"', expression):
            assert found("fencegate_requests_total", effect=effect) is not None, expression


def test_every_alarm_has_a_rule():
    rules = "\n".join(rule_expressions())
    for name in ("token_regression", "clock_like_token", "effects_unresolved", "effects_in_doubt", "store_nearly_full", "store_disk_nearly_full", "store_old_reader", "store_writable", "reload_refused"):
        assert f"fencegate_{name} " in rules + " ", name


def test_compose_mounts_what_there_is():
    text = (DOCKER / "compose.yaml").read_text()
    mounted = re.findall(r'[-"\[] ?"?(\./[^:"]+):/', text)
    assert {"./prometheus", "./grafana/provisioning", "./grafana/dashboards"} <= set(mounted)
    for path in mounted:
        assert (DOCKER / path).exists(), path
    prometheus_settings = (DOCKER / "prometheus" / "prometheus.yml").read_text()
    (rules,) = re.findall(r"rule_files: \[/etc/prometheus/(.*)\]", prometheus_settings)
    assert (DOCKER / "prometheus" / rules).exists() and '"gateway:8081"' in prometheus_settings
