"""The last look holds until the kernel took a call's first byte: before that nothing was sent, and a newer token stops it.

A preloaded library (no_room.c) lets the kernel have no room for that byte as long as a file is there."""

import json
import os
import pathlib
import subprocess

import pytest

import expect
from gateway import Gateway, eventually, route
from relay import Relay
from test_tls import make_certificate, server_context

MAIL = json.dumps({"from": "a@jobs.example", "to": ["b@home.example"], "subject": "hello", "text": "hi\n"}).encode()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("no-room") / "no_room.so"
    source = pathlib.Path(__file__).parent / "no_room.c"
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-shared", "-Wall", "-Werror", "-o", path,
                    source, "-ldl"], check=True)
    return path


class Room:
    def __init__(self, path):
        self.path = path
        self._asked = path.with_name(path.name + ".asked")

    def take(self):
        self._asked.unlink(missing_ok=True)
        self.path.touch()

    def wait_asked(self):
        eventually(self._asked.exists, what="a try to send the first byte")

    def give(self):
        self.path.unlink(missing_ok=True)


class Side:
    """A gateway with one route, the partner behind it, and the room to send."""

    def __init__(self, kind, folder, library, new_partner):
        self.room = Room(folder / "room")
        self.mails = kind == "mail"
        if self.mails:
            self.partner = Relay()
            way = {"name": "pay", "path": "/pay", "kind": "smtp", "upstream": self.partner.url, "smtp": {"starttls": "off"}}
        elif kind == "tls":
            self.partner = new_partner(tls=server_context(make_certificate(folder)))
            way = route(f"https://localhost:{self.partner.port}", tls={"ca_file": str(folder / "cert.pem")})
        else:
            self.partner = new_partner()
            way = route(self.partner)
        way["timeout"] = {"connect": "5s", "total": "20s"}
        routes = [way, {**way, "name": "short", "path": "/short", "timeout": {"connect": "500ms", "total": "500ms"}}]
        env = {"LD_PRELOAD": str(library), "NO_ROOM": str(self.room.path),
               "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        self.gw = Gateway(folder, routes, env=env).start()

    def send_off(self, token, key, path="/pay"):
        if self.mails:
            return self.gw.send_off(path, token, key, headers=[("Content-Type", "application/json")], body=MAIL)
        return self.gw.send_off(f"{path}/{key}/{token}", token, key, body=b"x")

    def arrived(self):
        return len(self.partner.mails) if self.mails else len(self.partner.seen())

    def close(self):
        self.room.give()
        self.gw.end()
        if self.mails:
            self.partner.close()


@pytest.fixture(params=["plain", "tls", "mail"])
def side(request, tmp_path, library, new_partner):
    made = Side(request.param, tmp_path, library, new_partner)
    yield made
    made.close()


def test_a_newer_token_stops_a_call_of_which_no_byte_left(side, mark):
    side.room.take()
    older = side.send_off(5, mark)
    side.room.wait_asked()
    newer = side.send_off(6, mark)
    expect.refusal(older.result(15), 412, "superseded", "not-sent", highest="6")
    side.room.give()
    assert newer.result(15).effect == "sent"
    (found,) = [record for record in side.gw.wait_audit(2, key=mark) if record["token"] == "5"]
    expect.record(found, kind="dropped", reason="superseded")
    assert side.arrived() == 1


def test_it_goes_out_once_when_there_is_room(side, mark):
    side.room.take()
    call = side.send_off(5, mark)
    side.room.wait_asked()
    side.room.give()
    assert call.result(15).effect == "sent"
    assert side.arrived() == 1
    assert side.gw.metric("fencegate_effects_in_flight") == 0


def test_a_hang_up_before_the_first_byte_is_not_sent(side, mark):
    side.room.take()
    call = side.send_off(5, mark)
    side.room.wait_asked()
    (side.partner.drop if side.mails else side.partner.close)()
    expect.refusal(call.result(15), 502, "upstream-unreachable", "not-sent")
    side.gw.wait_audit(key=mark, kind="not-sent")
    assert side.arrived() == 0


def test_a_time_limit_before_the_first_byte_is_not_sent(side, mark):
    side.room.take()
    call = side.send_off(5, mark, "/short")
    side.room.wait_asked()
    expect.refusal(call.result(15), 504, "upstream-timeout", "not-sent")
    side.room.give()
    assert side.send_off(6, mark).result(15).effect == "sent"
    assert side.arrived() == 1
