"""No stale start, no overlap: per key, what is newer waits for what is older, and what is older never follows."""

import contextlib
import random
import socket
import threading

import pytest

import expect
from gateway import PATIENCE, Gateway, eventually, pool, route
from partner import Held


@pytest.fixture(scope="module")
def gw(partner, tmp_path_factory):
    routes = [
        route(partner, forward_fencing_headers=True),
        route(partner, name="other", path="/other", namespace="other"),
        route(partner, name="twin", path="/twin"),
        route(partner, name="once", path="/once", fence={"equal": "reject"}),
        route(partner, name="short", path="/short", drain_timeout="300ms"),
        route(partner, name="drops", path="/drops", ledger="drops"),
    ]
    gateway = Gateway(tmp_path_factory.mktemp("gw"), routes).start()
    yield gateway
    gateway.end()


def hold(gw, partner, mark, token=5, path="/pay"):
    """A call with that token that stays in flight until release()."""
    held = Held()
    partner.on(mark, held)
    call = gw.send_off(f"{path}/{mark}", token, mark)
    partner.wait_seen(mark)
    return held, call


@pytest.mark.parametrize("path", ["/pay", "/drops"])
def test_a_newer_call_waits_for_the_older_one(gw, partner, mark, path):
    held, older = hold(gw, partner, mark, path=path)
    newer = gw.send_off(f"{path}/{mark}", 6, mark)
    eventually(lambda: gw.fence(mark) == 6)
    expect.refusal(gw.call(f"{path}/{mark}", 5, mark), 412, "stale-token")  # it is shut out while 6 waits
    assert len(partner.seen(mark)) == 1 and not newer.done()
    held.release()
    expect.relayed(older.result(10))
    expect.relayed(newer.result(10))
    first, second = partner.seen(mark)
    assert first.answered <= second.began


def test_the_wait_is_per_key_not_per_route(gw, partner, mark):
    held, older = hold(gw, partner, mark)
    twin = mark + "-twin"
    newer = gw.send_off(f"/twin/{twin}", 6, mark)  # another route, the same namespace
    eventually(lambda: gw.fence(mark) == 6)
    expect.relayed(gw.call(f"/pay/{mark}-x", 1, mark + "-x"))  # another key
    expect.relayed(gw.call(f"/other/{mark}-y", 9, mark))  # another namespace
    assert partner.seen(twin) == []
    held.release()
    expect.relayed(older.result(10))
    expect.relayed(newer.result(10))


def test_equal_tokens_run_side_by_side(gw, partner, mark):
    held, first = hold(gw, partner, mark)
    second = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark, 2)
    held.release()
    expect.relayed(first.result(10))
    expect.relayed(second.result(10))


def test_a_newer_call_waits_for_all_older_ones(gw, partner, mark):
    held, first = hold(gw, partner, mark)
    slow = Held()
    partner.on(mark + "-slow", slow)
    second = gw.send_off(f"/pay/{mark}-slow", 5, mark)
    partner.wait_seen(mark + "-slow")
    newer = gw.send_off(f"/pay/{mark}-new", 6, mark)
    eventually(lambda: gw.fence(mark) == 6)
    held.release()
    expect.relayed(first.result(10))
    expect.relayed(gw.call(f"/pay/{mark}-else", 1, mark + "-else"))
    assert partner.seen(mark + "-new") == []
    slow.release()
    expect.relayed(second.result(10))
    expect.relayed(newer.result(10))


def test_equal_waiting_calls_go_together(gw, partner, mark):
    held, older = hold(gw, partner, mark)
    waiting = [gw.send_off(f"/pay/{mark}", 6, mark) for _ in range(3)]
    eventually(lambda: gw.fence(mark) == 6)
    held.release()
    for call in [older, *waiting]:
        expect.relayed(call.result(10))
    assert len(partner.seen(mark)) == 4


def test_an_equal_token_is_refused_where_each_works_once_even_in_flight(gw, partner, mark):
    held, first = hold(gw, partner, mark, path="/once")
    expect.refusal(gw.call(f"/once/{mark}", 5, mark), 412, "token-used")
    held.release()
    expect.relayed(first.result(10))
    assert len(partner.seen(mark)) == 1


def test_of_many_equal_tokens_at_once_one_works_where_each_works_once(gw, partner, mark):
    answers = [call.result(10) for call in [gw.send_off(f"/once/{mark}", 5, mark) for _ in range(24)]]
    assert sorted(a.status for a in answers) == [200] + [412] * 23
    assert len(partner.seen(mark)) == 1


def test_the_end_of_the_drain_timeout_sends_nothing(gw, partner, mark):
    held, older = hold(gw, partner, mark, path="/short")
    expect.refusal(gw.call(f"/short/{mark}", 6, mark), 503, "predecessor-in-flight")
    assert len(partner.seen(mark)) == 1
    held.release()
    expect.relayed(older.result(10))
    expect.refusal(gw.call(f"/short/{mark}", 5, mark), 412, "stale-token")  # 6 was accepted, sent or not
    expect.relayed(gw.call(f"/short/{mark}", 6, mark))


def test_only_the_newest_of_a_queue_is_sent(gw, partner, mark):
    held, older = hold(gw, partner, mark)
    waiting = []
    for token in range(6, 16):
        waiting.append(gw.send_off(f"/pay/{mark}", token, mark))
        eventually(lambda: gw.fence(mark) == token)
    for call in waiting[:-1]:
        expect.refusal(call.result(10), 412, "superseded")
    held.release()
    expect.relayed(older.result(10))
    expect.relayed(waiting[-1].result(10))
    assert [r.get("Fencing-Token") for r in partner.seen(mark)] == ["5", "15"]


def test_a_call_that_ends_unknown_lets_the_next_one_go(gw, partner, mark):
    held = Held(lambda e: e.reset())
    partner.on(mark, held)
    older = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    newer = gw.send_off(f"/pay/{mark}-new", 6, mark)
    eventually(lambda: gw.fence(mark) == 6)
    held.release()
    expect.refusal(older.result(10), 502, "upstream-failed", "unknown")
    expect.relayed(newer.result(10))


def test_a_slow_reader_of_an_older_answer_does_not_block_for_ever(gw, partner, mark):
    """The older effect has ended at the partner; a client that leaves its answer unread is not in flight for long."""
    partner.on(mark, lambda e: e.reply(200, b"x" * 200_000))
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark), body=b"x" * 200_000)
    expect.relayed(gw.call(f"/pay/{mark}-new", 6, mark))


def test_under_random_load_no_key_ever_goes_backwards(gw, partner, mark):
    """At the partner: per key tokens never fall, and calls with different tokens never overlap."""
    chance = random.Random(17)
    running, lock, trouble = {}, threading.Lock(), []

    def handler(exchange):
        key, token = exchange.request.get("Workflow-Key"), int(exchange.request.get("Fencing-Token"))
        with lock:
            tokens = running.setdefault(key, [])
            if any(t != token for t in tokens if t):
                trouble.append(f"{key}: {token} beside {tokens}")
            highest = running.setdefault(key + " highest", token)
            if token < highest:
                trouble.append(f"{key}: {token} after {highest}")
            running[key + " highest"] = max(highest, token)
            tokens.append(token)
        threading.Event().wait(chance.random() * 0.004)
        with lock:
            running[key].remove(token)
        exchange.reply()

    partner.on(mark, handler)
    plan = [(f"{mark}-{chance.randrange(3)}", token // 3 + chance.randrange(-6, 7)) for token in range(30, 930)]
    answers = list(pool.map(lambda p: (p, gw.call(f"/pay/{mark}", max(p[1], 1), p[0])), plan))
    assert trouble == []
    assert {a.status for _, a in answers} <= {200, 412}
    assert sum(a.status == 200 for _, a in answers) == len(partner.seen(mark))
    for key in {p[0] for p, _ in answers}:
        assert gw.fence(key) == max(max(t, 1) for k, t in plan if k == key)


@pytest.mark.parametrize("way", ["abort", "timeout"])
def test_what_the_kernel_still_holds_of_a_call_that_was_given_up_does_not_leave(launch, mark, way):
    """A newer call may have started by then: the partner must not read the older one to its end afterwards."""
    body = b"x" * 3_000_000
    with socket.socket() as partner:
        partner.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        partner.bind(("127.0.0.1", 0))
        partner.listen()
        partner.settimeout(PATIENCE)
        settings = {"on_supersede": "abort"} if way == "abort" else {"timeout": {"connect": "1s", "total": "1s"}}
        gw = launch(route(f"http://127.0.0.1:{partner.getsockname()[1]}", **settings))
        older = gw.send_off(f"/pay/{mark}", 1, mark, body=body)
        sock, _ = partner.accept()
        sock.settimeout(PATIENCE)
        assert sock.recv(1) == b"P"
        if way == "abort":
            newer = gw.send_off(f"/pay/{mark}", 2, mark)
        answer = older.result(PATIENCE)
        assert answer.effect == "unknown", answer
        got = 1
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(65536):
                got += len(piece)
        assert got < len(body) // 2, f"{got} bytes of the older call were read after its end"
        if way == "abort":
            second, _ = partner.accept()
            second.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert newer.result(PATIENCE).status == 200
            second.close()
        sock.close()
