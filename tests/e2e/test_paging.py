"""Lists while writes go on: filters combine, and paging loses and doubles nothing that was there when it began."""

import json
import random
import threading
import urllib.parse

import pytest

from gateway import Gateway, eventually, pool, route
from partner import Held

SPACES = ("one", "two")
BOOKS = 150  # keys that are there before, in each namespace
DOUBT = 40


def pages(gw, path, member, cursor, **query):
    """One page after the other; `cursor` names what the next one goes on from: (parameter, member)."""
    parameter, following = cursor
    while True:
        answer = gw.admin(f"{path}?{urllib.parse.urlencode(query)}")
        assert answer.status == 200, answer
        assert len(answer.json[member]) <= query["limit"]
        yield answer.json[member]
        if answer.json[following] is None:
            return
        query[parameter] = answer.json[following]


def audit_pages(gw, **query):
    return pages(gw, "/v1/audit", "records", ("after", "next_after"), **query)


def change(gw, method, namespace, key, body=None, query=""):
    return gw.admin(f"/v1/fences/{namespace}/{urllib.parse.quote(key, safe='')}{query}", method, body=json.dumps(body).encode() if body else b"")


@pytest.fixture(scope="module")
def busy(partner, tmp_path_factory):
    """A store with fences, an audit of every kind and effects in doubt, and writers beside it until the end."""
    held = Held()
    partner.on("held", held)
    routes = [route(partner, name=name, path="/" + name, namespace=name) for name in SPACES]
    gw = Gateway(tmp_path_factory.mktemp("busy"), routes).start()
    for name in SPACES:
        for number in range(BOOKS):
            assert change(gw, "PUT", name, f"book-{number:03}", {"token": "100", "reason": "made"}).status == 200
        for number in range(30):
            gw.call(f"/{name}/x", 100 + number % 2, f"book-{number:03}")
            gw.call(f"/{name}/x", 50, f"book-{number:03}")
            gw.call(f"/{name}/x", "junk", f"book-{number:03}")
    calls = [gw.send_off("/one/held", 7, f"doubt-{number:03}") for number in range(DOUBT)]
    partner.wait_seen("held", DOUBT)
    gw.kill()
    held.release()
    for call in calls:
        assert call.exception(10) is not None
    gw.start()
    over = threading.Event()

    def write(seed):
        chance = random.Random(seed)
        while not over.is_set():
            name, number = chance.choice(SPACES), chance.randrange(40)
            what = chance.randrange(6)
            if what < 3:
                gw.call(f"/{name}/x", chance.randrange(1, 400), f"book-{number:03}")
            elif what == 3:
                change(gw, "PUT", name, f"new-{seed}-{chance.randrange(1000):03}", {"token": "5"})
            elif what == 4:
                change(gw, "DELETE", name, f"new-{seed}-{number:03}", query="?reason=gone")
            else:
                gw.call(f"/{name}/x", "junk", f"book-{number:03}")

    writers = [pool.submit(write, seed) for seed in range(4)]
    gw.stop_writing = lambda: (over.set(), [writer.result(20) for writer in writers])
    yield gw
    gw.stop_writing()
    gw.end()


def everything(gw):
    return [record for page in audit_pages(gw, limit=1000) for record in page]


FILTERS = [
    {}, {"namespace": "one"}, {"key": "book-003"}, {"namespace": "two", "key": "book-003"}, {"kind": "dropped"}, {"kind": "raised", "namespace": "two"},
    {"reason": "stale-token"}, {"route": "one", "kind": "rejected"}, {"key": "book-003", "kind": "sent"}, {"namespace": "one", "key": "book-007", "reason": "stale-token", "kind": "dropped", "route": "one"},
    {"kind": "reset"}, {"kind": "unknown", "route": "one"},
]


def fits(record, filters):
    return all(record.get(name) == value for name, value in filters.items())


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("number", range(len(FILTERS)))
def test_audit_pages_while_writes_go_on(busy, order, number):
    filters = FILTERS[number]
    before = [record for record in everything(busy) if fits(record, filters)]
    last = int(before[-1]["id"]) if before else 0
    limit = 1 if len(before) < 40 else 7 if len(before) < 300 else 93
    seen = []
    for page in audit_pages(busy, limit=limit, order=order, **filters):
        seen += page
        if order == "asc" and (not page or int(page[-1]["id"]) >= last):
            break  # the writers go on
    ids = [int(record["id"]) for record in seen]
    assert ids == sorted(set(ids), reverse=order == "desc"), "doubled, or out of order"
    assert all(fits(record, filters) for record in seen)
    told = {record["id"]: record for record in seen}
    assert [told.get(record["id"]) for record in before] == before


def test_who_follows_the_audit_sees_every_record_once(busy):
    """From the last record on, page by page, with the writers ahead: ids rise in the order of writing."""
    start = int(everything(busy)[-1]["id"])
    seen, after = [], start
    while len(seen) < 300:
        page = busy.admin(f"/v1/audit?after={after}&limit=3").json["records"]
        seen += page
        after = page[-1]["id"] if page else after
    wanted = [r for page in audit_pages(busy, limit=1000, after=start) for r in page][: len(seen)]
    assert seen == wanted


@pytest.mark.parametrize("query", [{}, {"namespace": "two"}, {"prefix": "book-"}, {"namespace": "one", "prefix": "book-1"}, {"prefix": "none"}])
@pytest.mark.parametrize("limit", [1, 13])
def test_fences_pages_while_writes_go_on(busy, query, limit):
    seen = [(fence["namespace"], fence["key"]) for page in pages(busy, "/v1/fences", "fences", ("cursor", "next_cursor"), limit=limit, **query) for fence in page]
    assert seen == sorted(set(seen)), "doubled, or out of order"
    spaces = [query["namespace"]] if "namespace" in query else SPACES
    wanted = [(name, f"book-{number:03}") for name in spaces for number in range(BOOKS)]
    wanted = [fence for fence in wanted if fence[1].startswith(query.get("prefix", ""))]
    assert [fence for fence in seen if fence[1].startswith("book-")] == wanted


@pytest.mark.parametrize("limit", [1, 7])
def test_effects_pages_while_some_are_resolved(busy, limit):
    listed = [effect["id"] for effect in busy.admin("/v1/effects?state=in-doubt&limit=1000").json["effects"]]
    assert len(listed) >= DOUBT // 2
    resolved, seen = listed[1 :: 9], []
    for turn, page in enumerate(pages(busy, "/v1/effects", "effects", ("after", "next_after"), limit=limit)):
        seen += [effect["id"] for effect in page]
        if turn == 1:
            for one in resolved:
                assert busy.admin(f"/v1/effects/{one}/resolve", "POST", body=b'{"outcome":"sent","note":"asked"}').status == 200
    assert len(seen) == len(set(seen)) and [one for one in seen if one not in resolved] == [one for one in listed if one not in resolved]


@pytest.mark.parametrize("arguments", [[], ["--kind", "sent"], ["--namespace", "two", "--kind", "dropped"], ["--key", "book-003"]])
@pytest.mark.parametrize("limit", [5, 200])
def test_the_command_shows_the_newest_without_a_gap(busy, arguments, limit):
    shown = [json.loads(line) for line in busy.command("audit", "--json", "--limit", limit, *arguments).stdout.splitlines()]
    names = [name.removeprefix("--") for name in arguments[::2]]
    wanted = [record for record in everything(busy) if fits(record, dict(zip(names, arguments[1::2])))]
    first = next(place for place, record in enumerate(wanted) if record["id"] == shown[0]["id"])
    assert shown == wanted[first : first + len(shown)] and (len(shown) == limit or first == 0)


def test_filters_combine(busy):
    """The last test here: the writers rest, and every combination is judged by the records themselves."""
    busy.stop_writing()
    eventually(lambda: len({len(everything(busy)) for _ in range(3)}) == 1)
    records = everything(busy)
    chance = random.Random(7)
    some = 0
    for _ in range(120):
        like = chance.choice(records)
        names = chance.sample(["namespace", "key", "kind", "reason", "route"], chance.randrange(1, 6))
        if "reason" in names:  # one of a list, unless it is an operator's words: those need their kind beside them
            names.append("kind")
        filters = {name: like.get(name) or "none" for name in names if name != "reason" or like.get(name)}
        since, until = sorted(chance.choice(records)["time"] for _ in range(2))
        window = {name: value for name, value in (("since", since), ("until", until)) if chance.randrange(2)}
        order = chance.choice(("asc", "desc"))
        wanted = [r for r in records if fits(r, filters) and r["time"] >= window.get("since", "") and r["time"] < window.get("until", "9")]
        found = [r for page in audit_pages(busy, limit=1000, order=order, **filters, **window) for r in page]
        assert found == (wanted if order == "asc" else wanted[::-1]), (filters, window, order)
        some += len(found) > 0
    assert some > 40
