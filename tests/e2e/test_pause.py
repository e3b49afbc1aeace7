"""The process stands still past a time limit: what came in time is read before the limit is believed."""

import json
import pathlib
import signal
import time

import pytest

import expect
from client import fenced, request
from gateway import eventually, route
from partner import Held
from relay import Held as HeldRelay
from relay import Relay


class Paused:
    """The gateway stands still, and goes on when that many seconds are over."""

    def __init__(self, gw, seconds):
        self.gw, self.until = gw, time.monotonic() + seconds

    def __enter__(self):
        self.gw.process.send_signal(signal.SIGSTOP)
        stat = pathlib.Path(f"/proc/{self.gw.process.pid}/stat")
        eventually(lambda: stat.read_text().rsplit(") ", 1)[1].startswith("T"), what="the stop")

    def __exit__(self, *_):
        time.sleep(max(0.0, self.until - time.monotonic()))
        self.gw.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("size", [2, 50_000])
def test_an_answer_that_came_in_time_counts(launch, new_partner, mark, size):
    partner, held = new_partner(), Held(lambda exchange: exchange.reply(body=b"x" * size))
    partner.on(mark, held)
    gw = launch(route(partner, timeout={"connect": "5s", "total": "700ms"}))
    call = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    with Paused(gw, 1):
        held.release()
    answer = call.result(10)
    assert (answer.status, answer.effect, answer.complete, len(answer.body)) == (200, "sent", True, size), answer
    gw.wait_audit(key=mark, kind="sent")


def send_mail(launch, relay, mark, connect, total):
    gw = launch({"name": "mail", "path": "/mail", "kind": "smtp", "upstream": relay.url, "smtp": {"starttls": "off"},
                 "timeout": {"connect": connect, "total": total}})
    mail = {"from": "a@jobs.example", "to": ["b@home.example"], "subject": "hello", "text": "hi"}
    return gw, gw.send_off("/mail", 5, mark, headers=[("Content-Type", "application/json")], body=json.dumps(mail).encode())


def test_a_relay_s_word_that_came_in_time_counts(launch, mark):
    relay, held = Relay(), HeldRelay("250 kept")
    relay.on("DOT", held)
    gw, call = send_mail(launch, relay, mark, "5s", "700ms")
    held.wait()
    with Paused(gw, 1):
        held.release()
    assert call.result(10).status == 202
    relay.close()


def test_a_relay_s_greeting_that_came_in_time_counts(launch, mark):
    relay, held = Relay(), HeldRelay("250 relay.test")
    relay.on("EHLO", held)
    gw, call = send_mail(launch, relay, mark, "700ms", "10s")
    held.wait()
    with Paused(gw, 1):
        held.release()
    assert call.result(10).status == 202
    relay.close()


def test_a_relay_that_does_not_greet_is_late_all_the_same(launch, mark):
    relay, held = Relay(), HeldRelay("250 relay.test")
    relay.on("EHLO", held)
    gw, call = send_mail(launch, relay, mark, "700ms", "60s")
    held.wait()
    with Paused(gw, 3):
        pass
    began = time.monotonic()
    answer = call.result(10)
    expect.refusal(answer, 504, "upstream-timeout", "not-sent")
    assert "timeout.connect" in answer.json["detail"] and time.monotonic() - began < 1.5
    held.release()
    relay.close()


def test_a_request_that_came_in_time_is_served(launch, partner, mark):
    gw = launch(route(partner), limits={"request_timeout": "700ms"})
    whole = request("POST", f"/pay/{mark}", fenced(5, mark), b"x" * 1000)
    with gw.connect() as connection:
        connection.send(whole[:-500])
        eventually(lambda: gw.metric("fencegate_connections") >= 1)
        with Paused(gw, 1):
            connection.send(whole[-500:])
        expect.relayed(connection.receive())


def test_an_older_call_that_ended_in_time_is_waited_for(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner, drain_timeout="700ms"), workers=4)
    older = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    newer = gw.send_off(f"/pay/{mark}", 6, mark)
    eventually(lambda: gw.metric("fencegate_waiting") == 1)
    with Paused(gw, 1):
        held.release()
    expect.relayed(older.result(10))
    expect.relayed(newer.result(10))


def test_time_limits_hold_all_the_same(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner, timeout={"connect": "5s", "total": "700ms"}))
    call = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    with Paused(gw, 1):
        pass
    expect.refusal(call.result(10), 504, "upstream-timeout", "unknown")
    held.release()
