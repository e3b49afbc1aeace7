"""The log: every line is JSON, whatever came in; what an operator has to know is there, and no secret is."""

import json
import os
import re
import ssl
import subprocess
import threading

import pytest

import expect
from client import Connection, request
from gateway import ROOT, Gateway, eventually, route
from partner import Held

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff]")
HOSTILE = "\x1b[2J\u202e\u2028\u200b\u2066\x85".encode()


def events(gw, name):
    return [line for line in list(gw.log) if line["event"] == name]


def whole(gw):
    """Every line so far: parsed strictly, with what each line has."""
    for text in list(gw.stderr):
        assert text.endswith("\n") and not SHOWN.search(text[:-1]), repr(text)
        line = json.loads(text)
        assert TIME.fullmatch(line["time"]) and line["level"] in ("error", "warn", "info", "debug") and line["event"], text


def reference():
    text = (ROOT / "config" / "REFERENCE.md").read_text().split("## Log events", 1)[1]
    return dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]*) \|", text, re.MULTILINE))


def calls(source, name):
    """The arguments of each call of a function, as text."""
    for match in re.finditer(rf"\b{name}\(", source):
        end, depth = match.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(source[end], 0)
            end += 1
        yield source[match.end() : end - 1]


def test_every_event_is_in_the_reference():
    found = {}
    for path in sorted((ROOT / "gateway").glob("*.c")):
        source = path.read_text()
        told = [(text, re.findall(r'"([^"]*)"', text)) for text in calls(source, "log_begin")]
        told += [(text, re.findall(r'"([^"]*)"', text)[:1]) for text in calls(source, "log_message")]
        for text, names in told:
            for name in names:
                found.setdefault(name, set()).update(re.findall(r"LOG_(ERROR|WARN|INFO|DEBUG)", text))
        for name in re.findall(r'\\"event\\":\\"([a-z-]+)\\"', source):
            found.setdefault(name, set())
        for name in re.findall(r'\[ALARM_[A-Z_]+\] = \{"[a-z-]+", "([a-z-]+)",', source):
            found[name] = {"WARN"} if name == "token-looks-like-clock" else {"WARN", "INFO"}
    listed = reference()
    assert len(found) > 20 and set(found) == set(listed), set(found) ^ set(listed)
    for name, levels in found.items():
        for level in levels:
            assert level.lower() in listed[name], f"{name} at {level}"


@pytest.fixture
def loud(launch, partner):
    """Everything is told: level debug."""
    return lambda *routes, **settings: launch(list(routes) or [route(partner)], **{"log": {"level": "debug"}, **settings})


def test_every_line_is_json_whatever_came_in(loud, mark):
    gw = loud()
    for key in (HOSTILE, b"\xff\xfe\xc0\x80\xed\xa0\x80", b"k\"\\\x7f", "ключ-☂-\U0001f600".encode(), b"k" * 256, b"k" * 5000):
        gw.call(f"/pay/{mark}", 5, key)
        gw.call(f"/{mark}/nowhere", key, key)
    for target in ("/pay/%1b%5b2J", "/pay/%e2%80%ae", b"/pay/\xff", b"/pay/\"\\", "/pay/" + "p" * 9000, "http://" + "h" * 3000 + "/pay"):
        gw.call(target, 5, mark)
    gw.call(f"/pay/{mark}", 5, mark, method="X" * 2000)
    gw.call(f"/pay/{mark}", 5, mark, headers=[("Host", HOSTILE)])
    for junk in (b"\x16\x03\x01\0\0\r\n\r\n", b"\xff" * 400 + b"\r\n\r\n", b"G\x1b T / HTTP/1.1\r\n\r\n", b"GET /\xe2\x80\xa8 HTTP/1.1\r\n\r\n"):
        with Connection(gw.port) as connection:
            connection.send(junk)
            connection.end_sending()
            connection.ended()
    gw.admin(f"/v1/fences/default/{mark}", "PUT", body=json.dumps({"token": "7", "reason": "\u202e\u200b☂"}).encode())
    gw.wait_log(lambda line: line["event"] == "admin-change")
    gw.call(f"/pay/{mark}/last", 9, mark)
    gw.wait_log(lambda line: line.get("path") == f"/pay/{mark}/last")
    whole(gw)
    assert any("\ufffd" in str(line.get("key")) or line.get("reason") == "malformed-key" for line in gw.log)
    assert gw.stop() == 0
    whole(gw)


def test_every_request_has_an_id_of_its_own(launch, partner, mark):
    gw = launch(route(partner))
    ids = []
    for _ in range(2):
        for number in range(20):
            gw.call(f"/pay/{mark}", 5, f"{mark}-{number}")
        gw.call(f"/{mark}/nowhere", 5, mark)
        with gw.connect() as connection:
            connection.send(b"GET / HTTP/3.0\r\nHost: x\r\n\r\n")  # refused before it is a request
            assert connection.receive("GET").status == 505
        eventually(lambda: len(events(gw, "request")) == 22)
        ids += [line["request_id"] for line in events(gw, "request")]
        assert gw.stop() == 0
        gw.start()
    assert len(ids) == len(set(ids)) == 44 and all(re.fullmatch(r"[0-9a-f]+-\d+-\d+", one) for one in ids), ids
    assert gw.call(f"/pay/{mark}", 5, mark).get("Request-Id") is None


def test_lines_about_a_request_share_its_id_and_the_ids_of_its_records(loud, mark):
    gw = loud(route("http://127.0.0.1:1"))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    line = gw.wait_log(lambda l: l["event"] == "request" and l.get("key") == mark)
    (about,) = events(gw, "upstream")
    assert about["request_id"] == line["request_id"] and about["route"] == "pay"
    assert line["effect_id"] == answer.effect_id and line["audit_id"] == gw.wait_audit(key=mark)[0]["id"] == answer.json["audit_id"]


def test_what_is_unknown_is_told_even_without_access_lines(launch, new_partner, mark):
    partner = new_partner()
    partner.on(mark, lambda exchange: exchange.reset())
    gw = launch(route(partner), log={"access": False})
    expect.relayed(gw.call(f"/pay/{mark}-fine", 5, mark + "-fine"))
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark), 502, "upstream-failed", "unknown")
    line = gw.wait_log(lambda l: l["event"] == "request")
    assert line["level"] == "warn" and line["key"] == mark and line["effect"] == "unknown" and line["effect_id"]
    assert gw.stop() == 0
    assert len(events(gw, "request")) == 1


def test_no_secret_is_told(loud, new_partner, mark, tmp_path):
    partner = new_partner()
    (tmp_path / "secret").write_text("s3cret-of-a-file\n")
    settings = {"set": {"Authorization": {"file": str(tmp_path / "secret")}, "X-Key": {"env": "MY_KEY"}, "X-Plain": "s3cret-plain"}}
    ways = [route(partner, request_headers=settings), route("http://127.0.0.1:1", name="none", path="/none", request_headers=settings)]
    gw = loud(*ways, env={"MY_KEY": "s3cret-of-the-environment"})
    theirs = [("Authorization", "Bearer s3cret-of-the-worker"), ("Cookie", "id=s3cret-cookie"), ("X-Api-Key", "s3cret-header")]
    partner.on("cut", lambda exchange: exchange.reset())
    for path in ("/pay/x", "/pay/cut", "/none/x", "/nowhere", "http://u:s3cret-of-the-target@gw.test/pay", "/pay/%zz"):
        for token in (5, 4, "x"):
            gw.call(f"{path}?card=s3cret-query", token, mark + path[-5:-1].replace("/", ""), headers=theirs, body=b"pin=s3cret-body")
    (got,) = [r for r in partner.seen("x")][:1]
    assert got.get("Authorization") == "s3cret-of-a-file" and got.get("X-Key") == "s3cret-of-the-environment"
    for token in ("s3cret-guess", gw.admin_token + "s3cret", None):
        assert gw.admin("/v1/audit?key=s3cret-query", token=token).status == 401
    gw.settings["routes"] = [route("http://user:s3cret-password@127.0.0.1:1")]
    gw.reload()
    gw.wait_log(lambda line: line["event"] == "reload" and line["level"] == "error")
    told = [gw.admin(path, token="").body.decode() for path in ("/v1/audit?limit=1000", "/v1/fences", "/metrics", "/readyz")]
    assert gw.stop() == 0
    for text in [*told, *gw.stderr, *gw.stdout]:
        assert "s3cret" not in text and gw.admin_token not in text, text


def test_changes_by_operators_are_told(loud, mark):
    gw = loud()
    path = f"/v1/fences/default/{mark}"
    for token, result in (("43", "done"), ("43", "no-change"), ("42", "would-lower")):
        gw.admin(path, "PUT", body=json.dumps({"token": token, "reason": "by hand"}).encode())
        line = gw.wait_log(lambda l: l["event"] == "admin-change" and l["result"] == result)
        assert (line["change"], line["key"], line["token"], line["highest"], line["reason"]) == ("raise", mark, token, "43", "by hand")
        assert re.fullmatch(r"127\.0\.0\.1:\d+", line["client"]) and ("audit_id" in line) == (result == "done")
    assert gw.admin(path + "?reason=start+over", "DELETE").status == 204
    line = gw.wait_log(lambda l: l.get("change") == "reset")
    assert (line["level"], line["result"], line["highest"], line["reason"]) == ("warn", "done", "43", "start over")
    assert line["audit_id"] == gw.audit(key=mark, kind="reset")[0]["id"]
    gw.admin("/v1/effects/7/resolve", "POST", body=b'{"outcome":"sent","note":"asked"}')
    line = gw.wait_log(lambda l: l.get("change") == "resolve")
    assert (line["level"], line["result"], line["effect_id"], line["note"]) == ("info", "not-found", "7", "asked")


def test_refused_operators_are_told_and_cannot_fill_the_log(launch, partner):
    gw = launch(route(partner))
    gw.admin("/v1/audit", token="guess-number-0")
    line = gw.wait_log(lambda l: l["event"] == "admin-refused")
    assert line["message"] == "wrong token" and line["level"] == "warn" and line["client"].startswith("127.0.0.1:")
    tries = 200
    for number in range(tries):
        assert gw.admin("/v1/audit", token=f"guess-number-{number}").status == 401
    eventually(lambda: gw.admin("/v1/audit", token=None).status == 401 and events(gw, "admin-refused")[-1]["message"] == "no token")
    told = events(gw, "admin-refused")
    assert tries <= len(told) + sum(line["skipped"] for line in told)
    assert len(told) < tries / 2 and "guess-number" not in "".join(gw.stderr)


def test_a_breaker_tells_that_it_opens_and_closes(launch, new_partner, mark):
    partner = new_partner()
    partner.on(mark, lambda exchange: exchange.reply(500))
    gw = launch(route(partner, breaker={"failures": 2, "open_for": "10ms"}))
    for number in range(2):
        gw.call(f"/pay/{mark}", 5, f"{mark}-{number}")
    line = gw.wait_log(lambda l: l["event"] == "breaker-open")
    assert (line["level"], line["route"], line["failures"]) == ("warn", "pay", 2)
    eventually(lambda: gw.call(f"/pay/{mark}-fine", 5, f"{mark}-x").status == 200)
    line = gw.wait_log(lambda l: l["event"] == "breaker-closed")
    assert (line["level"], line["route"]) == ("info", "pay") and len(events(gw, "breaker-open")) == 1


def test_a_partner_with_a_wrong_certificate_is_told_with_the_cause(launch, new_partner, mark, tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                    "/CN=partner", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    gw = launch(route(f"https://localhost:{new_partner(tls=context).port}"), log={"access": False})
    for number in range(5):
        expect.refusal(gw.call(f"/pay/{mark}", 5, f"{mark}-{number}"), 502, "upstream-unreachable")
    line = gw.wait_log(lambda l: l["event"] == "partner-tls")
    assert line["level"] == "warn" and line["route"] == "pay" and "certificate" in line["message"] and line["request_id"]
    assert len(events(gw, "partner-tls")) == 1


def test_the_life_of_the_process_is_told(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner), shutdown_grace="100ms")
    ready = gw.wait_log(lambda l: l["event"] == "ready")
    assert (ready["proxy"], ready["admin"]) == (f"127.0.0.1:{gw.port}", f"127.0.0.1:{gw.admin_port}")
    assert (ready["workers"], ready["routes"], ready["config"], ready["store"]) == (2, 1, str(gw.config), str(gw.store))
    gw.reload()
    assert gw.wait_log(lambda l: l["event"] == "reload")["level"] == "info"
    gw.config.write_text("{")
    gw.process.send_signal(1)
    gw.wait_log(lambda l: l["event"] == "reload" and l["level"] == "error")
    gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    gw.expected_exit = 4
    assert gw.stop() == 4
    held.release()
    (stop,), (cut,), stopped = events(gw, "stop"), events(gw, "stop-cut"), gw.log[-1]
    assert (stop["event"], stop["signal"], stop["running"], stop["grace_ms"]) == ("stop", "SIGTERM", 1, 100)
    assert cut["level"] == "warn"
    assert (stopped["event"], stopped["level"], stopped["cut"], stopped["exit_status"]) == ("stopped", "warn", 1, 4)


class Deaf(Gateway):
    """Nobody reads its log until `listening` is set."""

    def _read_stderr(self, stream):
        self.listening.wait()
        super()._read_stderr(stream)


def test_lost_lines_are_counted(partner, mark, tmp_path):
    Deaf.listening = threading.Event()
    gw = Deaf(tmp_path, [route(partner, name="long", path="/long")]).start()
    try:
        path, calls = "/none/" + "p" * 1000, 4000  # more than the queue and the pipe hold
        for _ in range(calls // 100):
            with gw.connect() as connection:
                connection.send(request("GET", path) * 100)
                assert [connection.receive("GET").status for _ in range(100)] == [404] * 100
        assert gw.admin("/readyz", token=None).status == 200
    finally:
        Deaf.listening.set()

    def lost():
        return sum(line["lines"] for line in events(gw, "log-lines-lost"))

    eventually(lambda: len(events(gw, "request")) + lost() == calls, what="an account of every line")
    assert 0 < lost() < calls and events(gw, "log-lines-lost")[0]["level"] == "warn"
    assert gw.stop() == 0
    whole(gw)


# ---- files at the limit of their size (RLIMIT_FSIZE)


def test_a_log_file_that_may_not_grow_ends_nothing(partner, tmp_path, mark):
    log = tmp_path / "log"
    log.touch()
    os.truncate(log, 1 << 30)  # sparse, and at the limit: each line fails
    gw = Gateway(tmp_path, [route(partner)], wrapper=["prlimit", f"--fsize={1 << 30}", "sh", "-c", f'exec "$@" 2>>{log}', "sh"]).start()
    try:
        for i in range(200):
            expect.relayed(gw.call(f"/pay/{mark}", 5, f"{mark}-{i}"))
    finally:
        gw.end()
    assert log.stat().st_size == 1 << 30


def test_a_start_that_may_not_write_its_store_says_why(partner, tmp_path):
    gw = Gateway(tmp_path, [route(partner)], wrapper=["prlimit", "--fsize=4096"])
    gw.spawn()
    assert gw.wait() == 3
    assert "limit of 4096 bytes" in "".join(gw.stderr), gw.stderr
