"""What watches the gateway: /v1/stats, /metrics by Prometheus' rules, alarms, and the files that are built on them."""

import collections
import datetime
import random
import re
import time

import pytest

import expect
import prometheus
from gateway import eventually, route
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


def test_stats_have_their_shape(gw, partner, mark):
    gw.call(f"/pay/{mark}", 5, mark)
    gw.wait_audit(key=mark)
    found = stats(gw)
    assert list(found) == ["time", "started_at", "version", "state", "reason", "store", "limits", "alarms", "minutes", "routes"]
    assert found["state"] == "ready" and found["reason"] is None and re.fullmatch(r"\d+\.\d+\.\d+.*", found["version"])
    assert moment(found["started_at"]) <= moment(found["time"])
    assert 0 <= moment(found["time"]) - moment(found["minutes"]["start"]) - 59 * 60 < 61 and found["minutes"]["count"] == 60
    store = found["store"]
    assert store["writable"] is True and store["max_bytes"] == 256 << 20 and 0 < store["used_bytes"] < store["max_bytes"]
    assert store["keys"] >= 1 and store["in_doubt"] == 0
    assert found["limits"]["connections"]["max"] == 10000 and found["limits"]["in_flight"]["max"] == 10000
    assert found["limits"]["buffered_bytes"]["max"] == 256 << 20
    for each in found["routes"]:
        assert list(each) == ["name", "in_flight", "waiting", *KINDS]
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
    assert stats(gw)["store"]["in_doubt"] == 2 and totals(gw) == dict.fromkeys(KINDS, 0)


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
            assert {name for name, _ in labels} <= {"route", "effect", "reason", "stage", "le", "version", "libmicrohttpd", "libcurl"}
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
    connecting = gw.send_off(f"/slow/{mark}", 9, mark)
    eventually(lambda: gw.fence(mark) == 9)
    expect.relayed(gw.call(f"/pay/{mark}", 10, mark))
    expect.refusal(connecting.result(10), 412, "superseded")
    assert eventually(lambda: drops(route="slow", reason="superseded", stage="connecting") == 1)
    found = scrape(gw)
    assert found("fencegate_drops_total") == 3
    assert found("fencegate_predecessor_wait_seconds_count", route="pay") == 2  # one was superseded, one got its turn
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
