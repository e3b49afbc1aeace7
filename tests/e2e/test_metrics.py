"""What watches the gateway: /v1/stats, /metrics by Prometheus' rules, alarms, and the files that are built on them."""

import datetime
import re

import expect
from gateway import eventually, route
from partner import Held

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
