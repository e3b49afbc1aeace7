"""Webhook routes: the request names the target, the route says which ones, the gateway signs.

Stand-in targets are on loopback, so routes that shall reach one allow private addresses; one that does not shares
ports with a listener that must stay silent.
"""

import base64
import hashlib
import hmac
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import time

import pytest

import expect
from client import fenced, request
from gateway import Gateway, run
from partner import Held

SECRETS = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_" + base64.b64encode(bytes(range(40))).decode()]


def hook(name, partner=None, rules=(), **settings):
    """A webhook route on /NAME that may call the partner's port, anywhere, and by http."""
    ports = [443] + ([partner.port] if partner else [])
    webhook = {"allow_hosts": ["*"], "ports": ports, "allow_http": True, "allow_private": True, **dict(rules)}
    return {"name": name, "path": f"/{name}", "kind": "webhook", "webhook": webhook, **settings}


def call(gw, where, target, token, key, headers=(), **options):
    """`target` is one value, or a list of them, or None for none at all."""
    values = target if isinstance(target, list) else [] if target is None else [target]
    return gw.call(where, token, key, headers=[*(("Fencegate-Target", v) for v in values), *headers], **options)


def refused(gw, answer, key, where, **members):
    """422, recorded, nothing sent, no fence moved."""
    expect.refusal(answer, 422, "target-refused", key=key)
    assert gw.fence(key) is None
    (found,) = gw.audit(key=key)
    expect.record(found, kind="rejected", reason="target-refused", route=where, key=key, status=422, effect_id=None,
                  upstream_status=None, id=answer.json["audit_id"], **members)


@pytest.fixture(scope="module")
def gw(partner, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gw")
    (folder / "whsec").write_text(SECRETS[0] + "\n")
    routes = [
        hook("open", partner),
        hook("closed", partner, {"allow_private": False}),
        hook("names", partner, {"allow_hosts": ["127.0.0.1", "*.localhost", "a.example"]}),
        hook("https", partner, {"allow_http": False}),
        hook("signed", partner, {"secrets": [{"file": "whsec"}, {"env": "WHSEC"}]}),
        hook("signed-often", partner, {"secrets": [SECRETS[0]] * 16}, timeout={"connect": "20ms", "total": "20ms"}),
        hook("signed-drops", partner, {"secrets": [SECRETS[0]]}, ledger="drops"),
        hook("signed-off", partner, {"secrets": [SECRETS[0]]}, fence={"mode": "off"}),
        hook("off", partner, {"allow_private": False}, fence={"mode": "off"}),
        hook("observe", partner, {"allow_private": False}, fence={"mode": "observe"}),
        hook("headers", partner, request_headers={"set": {"X-Team": "hooks"}, "remove": ["Cookie"]}),
        {"name": "plain", "path": "/plain", "upstream": partner.url},
    ]
    gateway = Gateway(folder, routes, env={"WHSEC": SECRETS[1]}).start()
    yield gateway
    gateway.end()


# ---- to the target

def test_the_request_goes_to_the_target_it_names(gw, partner, mark):
    target = f"http://127.0.0.1:{partner.port}/{mark}/%41%2fb//c;d?x=%20&y=%zz&z=%0a"
    headers = [("X-B", "2"), ("Content-Type", "application/json"), ("X-A", "1"), ("Webhook-Id", "not.signed.here")]
    answer = call(gw, "/open/whatever/path?q=1", target, 7, mark, headers, method="PUT", body=b'{"a": 1}')
    expect.relayed(answer)
    (got,) = partner.seen(mark)
    assert (got.method, got.target, got.body) == ("PUT", f"/{mark}/%41%2fb//c;d?x=%20&y=%zz&z=%0a", b'{"a": 1}')
    assert got.headers == [("Host", f"127.0.0.1:{partner.port}"), *headers, ("Via", got.get("Via")), ("Content-Length", "8")]
    assert re.fullmatch("1.1 fencegate-[0-9a-f]{8}", got.get("Via"))
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", route="open", token="7", highest="7", method="PUT", path="/open/whatever/path",
                  target=f"http://127.0.0.1:{partner.port}", status=200, upstream_status=200, effect_id=answer.effect_id)
    assert gw.fence(mark) == 7
    line = gw.wait_log(lambda line: line.get("key") == mark)
    assert line["target"] == f"http://127.0.0.1:{partner.port}"
    assert "%41" not in "".join(gw.stderr)


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PATCH", "POST"])
def test_every_method(gw, partner, mark, method):
    answer = call(gw, "/open", f"http://127.0.0.1:{partner.port}?{mark}", 7, mark, method=method)
    expect.relayed(answer, body=b"" if method == "HEAD" else b"ok")
    (got,) = partner.seen(mark)
    assert (got.method, got.target) == (method, f"/?{mark}")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "a.b.localhost.", "127.0.0.1.", "2130706433", "0x7f.1", "0177.0.0.01",
                                  "127.1", "127.0.1", "0x7F000001", "017700000001"])
def test_what_a_spelling_means_is_where_it_goes(gw, partner, mark, host):
    """Ours and libcurl's reading of a URL are one: all of these are this machine."""
    expect.relayed(call(gw, "/open", f"http://{host}:{partner.port}/{mark}", 7, mark))
    assert len(partner.seen(mark)) == 1


def test_route_headers_apply(gw, partner, mark):
    expect.relayed(call(gw, "/headers", f"http://127.0.0.1:{partner.port}/{mark}", 7, mark, [("Cookie", "a=b"), ("x-team", "x")]))
    (got,) = partner.seen(mark)
    assert got.get("Cookie") is None and got.get("X-Team") == "hooks"


def test_on_other_routes_the_header_is_one_like_others(gw, partner, mark):
    expect.relayed(gw.call(f"/plain/{mark}", 7, mark, headers=[("Fencegate-Target", "https://a.example/")]))
    (got,) = partner.seen(mark)
    assert got.get("Fencegate-Target") == "https://a.example/"
    (found,) = gw.wait_audit(key=mark)
    assert "target" not in found


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_the_partners_answer(gw, partner, new_partner, mark, status):
    other = new_partner()
    location = f"http://127.0.0.1:{other.port}/latest/meta-data/"
    partner.on(mark, lambda exchange: exchange.reply(status, b"there", [("Location", location)]))
    answer = call(gw, "/open", f"http://127.0.0.1:{partner.port}/{mark}", 7, mark, body=b"x")
    expect.relayed(answer, status=status, body=b"there")
    assert answer.get("Location") == location
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", upstream_status=status)
    assert len(partner.seen(mark)) == 1 and other.connections == 0


@pytest.fixture(scope="module")
def tls_target(tmp_path_factory):
    from partner import Partner
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=target", "-addext", "subjectAltName=DNS:localhost,DNS:a.localhost", "-keyout", folder / "key.pem",
                    "-out", folder / "cert.pem"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    target = Partner(tls=context)
    target.ca = str(folder / "cert.pem")
    yield target
    target.close()


def test_tls_to_targets_is_verified(launch, tls_target, mark):
    rules = {"allow_hosts": ["*"], "ports": [tls_target.port], "allow_private": True, "secrets": SECRETS}
    route = {"kind": "webhook", "webhook": rules}
    gw = launch([{"name": "with-ca", "path": "/ca", **route, "tls": {"ca_file": tls_target.ca}},
                 {"name": "without", "path": "/no", **route}])
    expect.relayed(call(gw, "/ca", f"https://localhost:{tls_target.port}/{mark}", 7, mark, body=b"x" * 100_000))
    expect.relayed(call(gw, "/ca", f"https://A.localhost:{tls_target.port}/{mark}", 7, mark))
    for where, host in [("/no", "localhost"), ("/ca", "b.localhost"), ("/ca", "127.0.0.1")]:
        answer = call(gw, where, f"https://{host}:{tls_target.port}/{mark}", 7, mark)
        expect.refusal(answer, 502, "upstream-unreachable")
    first, second = tls_target.seen(mark)
    assert first.get("Host") == f"localhost:{tls_target.port}" and second.get("Host") == f"a.localhost:{tls_target.port}"
    verify(first)


# ---- refused

OWN = "http://127.0.0.1:{port}/"
BAD_TARGETS = {
    "missing": None,
    "twice": [OWN, OWN],
    "two lines": ["https://a.example/", OWN],
    "empty": "",
    "list": f"{OWN}, {OWN}",
    "no scheme": "127.0.0.1:{port}/",
    "path": "/hook",
    "scheme": "ftp://127.0.0.1:{port}/",
    "file": "file:///etc/passwd",
    "one slash": "http:/127.0.0.1:{port}/",
    "backslashes": "http:\\\\127.0.0.1:{port}\\",
    "no host": "http:///x",
    "user": "http://u@127.0.0.1:{port}/",
    "password": "http://u:p@127.0.0.1:{port}/",
    "empty user": "http://@127.0.0.1:{port}/",
    "fragment": OWN + "#x",
    "empty fragment": OWN + "#",
    "backslash": OWN + "a\\b",
    "space": OWN + "a b",
    "tab": OWN + "a\tb",
    "non-ASCII path": OWN + "ä",
    "non-ASCII host": "http://bücher.example:{port}/",
    "full-width digits": "http://１２７.0.0.1:{port}/",
    "ideographic stop": "http://127。0。0。1:{port}/",
    "encoded host": "http://127%2e0.0.1:{port}/",
    "dot segment": OWN + "a/../b",
    "encoded dot segment": OWN + "%2e%2e/b",
    "encoded control": OWN + "%0d%0aX",
    "port 0": "http://127.0.0.1:0/",
    "padded port": "http://127.0.0.1:0{port}/",
    "empty port": "http://127.0.0.1:/",
    "large port": "http://127.0.0.1:65536/",
    "negative port": "http://127.0.0.1:-1/",
    "zone": "http://[fe80::1%25lo]:{port}/",
    "open bracket": "http://[::1:{port}/",
    "large number": "http://4294967296:{port}/",
    "number at the end": "http://a.0x4:{port}/",
    "large part": "http://256.0.0.1:{port}/",
    "empty label": "http://a..example:{port}/",
    "two final dots": "http://127.0.0.1..:{port}/",
}


@pytest.mark.parametrize("name", BAD_TARGETS)
def test_a_bad_target_is_refused(gw, partner, mark, name):
    before = partner.connections
    bad = BAD_TARGETS[name]
    fill = lambda text: text.replace("{port}", str(partner.port))  # noqa: E731
    target = [fill(t) for t in bad] if isinstance(bad, list) else bad if bad is None else fill(bad)
    refused(gw, call(gw, "/open", target, 7, mark, body=b"x"), mark, "open", target=None)
    assert partner.connections == before


@pytest.mark.parametrize("where, target", [
    ("names", "http://127.0.0.2:{port}"), ("names", "http://2130706433:{port}"), ("names", "http://localhost:{port}"),
    ("names", "http://127.0.0.1.a.localhostx:{port}"), ("names", "http://xa.example:{port}"), ("names", "http://b.a.example:{port}"),
    ("names", "http://[::1]:{port}"), ("https", "http://127.0.0.1:{port}"), ("open", "http://127.0.0.1:1"),
    ("open", "http://127.0.0.1:80"), ("open", "https://127.0.0.1:444")])
def test_a_target_that_the_route_does_not_allow_is_refused(gw, partner, mark, where, target):
    target = target.replace("{port}", str(partner.port))
    refused(gw, call(gw, f"/{where}", f"{target}/{mark}", 7, mark), mark, where, target=target)
    assert partner.seen(mark) == []


def test_allowed_names(gw, partner, mark):
    for host in ("127.0.0.1", "x.localhost", "X.Y.LocalHost."):
        expect.relayed(call(gw, "/names", f"http://{host}:{partner.port}/{mark}", 7, mark))
    assert len(partner.seen(mark)) == 3


def v4_spellings():
    """The addresses that no webhook may reach, each in the forms that some resolver takes."""
    addresses = ["127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.5.4", "192.168.1.1", "169.254.169.254", "100.64.0.1",
                 "192.0.0.8", "198.18.0.1", "203.0.113.7", "224.0.0.1", "255.255.255.255"]
    for address in addresses:
        a, b, c, d = map(int, address.split("."))
        whole = a << 24 | b << 16 | c << 8 | d
        yield from (address, address + ".", str(whole), hex(whole), oct(whole).replace("0o", "0"), f"{a}.{b << 16 | c << 8 | d}",
                    f"{a}.{b}.{c << 8 | d}", f"0{a:o}.0{b:o}.0{c:o}.0{d:o}", f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}", f"{a:#x}.{b}.0{c:o}.{d}")


V6 = ["::1", "::", "::7f00:1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1",
      "64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1", "fc00::1",
      "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "4000::1", "0:0:0:0:0:0:0:1", "0000:0000:0000:0000:0000:ffff:7f00:0001"]
SPELLINGS = [*v4_spellings(), *(f"[{address}]" for address in V6), "localhost", "LocalHost", "localhost.", "a.localhost",
             "0", "00", "0x0", "127.0.00000.1", "0x7f000001.", "017700000001."]


def test_no_spelling_of_another_address_passes(gw, partner):
    assert len(set(SPELLINGS)) >= 150
    before = partner.connections
    with gw.connect() as connection:
        for n, host in enumerate(SPELLINGS):
            target = f"http://{host}:{partner.port}/x"
            connection.send(request("POST", "/closed", [*fenced(7, f"spelling-{n}"), ("Fencegate-Target", target)], b"x"))
            answer = connection.receive()
            assert (answer.status, answer.reason) == (422, "target-refused"), (host, answer)
            assert answer.effect == "not-sent"
    records = [r for r in gw.audit(route="closed", reason="target-refused") if r.get("key", "").startswith("spelling-")]
    assert len(records) == len(SPELLINGS) and {r["kind"] for r in records} == {"rejected"}
    assert gw.admin("/v1/fences?prefix=spelling-").json["fences"] == []
    assert partner.connections == before


def test_a_private_address_is_recorded_with_its_target(gw, partner, mark):
    answer = call(gw, "/closed", f"http://LOCALHOST:{partner.port}/{mark}?secret=1", 7, mark, body=b"x")
    refused(gw, answer, mark, "closed", target=f"http://localhost:{partner.port}")
    assert "public" in answer.json["detail"]


def test_a_connection_of_another_route_is_not_used_past_the_rule(gw, partner, mark):
    for _ in range(4):  # either worker has one in its pool
        expect.relayed(call(gw, "/open", f"http://localhost:{partner.port}/{mark}", 7, mark))
    for n in range(6):
        expect.refusal(call(gw, "/closed", f"http://localhost:{partner.port}/{mark}", 8, f"{mark}{n}"), 422, "target-refused")
    assert len(partner.seen(mark)) == 4


def test_a_name_that_does_not_resolve_is_unreachable(gw, mark):
    expect.refusal(call(gw, "/closed", "https://no-such-name.invalid/x", 7, mark), 502, "upstream-unreachable")
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="not-sent", reason="upstream-unreachable", target="https://no-such-name.invalid:443")


# ---- order of refusals

def test_the_fence_comes_before_the_target(gw, partner, mark):
    expect.relayed(call(gw, "/open", f"http://127.0.0.1:{partner.port}/{mark}", 42, mark))
    for where, target in [("open", None), ("open", "nonsense"), ("closed", f"http://127.0.0.1:{partner.port}/{mark}")]:
        answer = call(gw, f"/{where}", target, 41, mark)
        expect.refusal(answer, 412, "stale-token", highest="42")
    for where, target in [("open", None), ("closed", f"http://127.0.0.1:{partner.port}/{mark}")]:
        expect.refusal(call(gw, f"/{where}", target, 43, mark), 422, "target-refused", highest="42")
    assert gw.fence(mark) == 42
    assert len(partner.seen(mark)) == 1
    assert [r["kind"] for r in gw.wait_audit(6, key=mark)] == ["sent", "dropped", "dropped", "dropped", "rejected", "rejected"]


@pytest.mark.parametrize("token, key, status, reason", [(None, "k", 428, "missing-token"), ("x", "k", 400, "malformed-token"),
                                                        (5, None, 428, "missing-key"), (5, "", 400, "malformed-key")])
def test_token_and_key_come_before_the_target(gw, token, key, status, reason):
    expect.refusal(call(gw, "/open", "nonsense", token, key), status, reason)


def test_unfenced_and_observed_calls_have_no_other_targets(gw, partner, mark):
    own = f"http://127.0.0.1:{partner.port}/{mark}"
    for where in ("off", "observe"):
        for target in (own, "nonsense", None):
            expect.refusal(call(gw, f"/{where}", target, 5, mark), 422, "target-refused")
    expect.refusal(call(gw, "/observe", own, None, None), 422, "target-refused")
    assert partner.seen(mark) == [] and gw.fence(mark) is None
    assert {(r["kind"], r["reason"], r.get("would_drop")) for r in gw.audit(route="observe")} == {("rejected", "target-refused", None)}
    assert len(gw.audit(route="off")) == 3


def test_a_bad_target_is_refused_before_a_large_body_is_read(gw, partner, mark):
    with gw.connect() as connection:
        connection.send(request("POST", "/open", [*fenced(7, mark), ("Fencegate-Target", "nonsense"), ("Content-Length", 1000),
                                                  ("Expect", "100-continue")]))
        answer = connection.receive()
    refused(gw, answer, mark, "open")
    assert answer.interim == []
    with gw.connect() as connection:  # where the address is to be seen, the request is read whole first
        connection.send(request("POST", "/closed", [*fenced(7, mark + "2"), ("Fencegate-Target", f"http://127.0.0.1:{partner.port}/"),
                                                    ("Content-Length", 5), ("Expect", "100-continue")]), b"hello")
        answer = connection.receive()
    refused(gw, answer, mark + "2", "closed")


def test_a_refused_target_says_nothing_to_the_breaker(launch, partner, mark):
    gw = launch(hook("hooks", partner, {"allow_private": True, "allow_hosts": ["127.0.0.1"]}, breaker={"failures": 1}, in_flight=1))
    for n in range(3):
        expect.refusal(call(gw, "/hooks", "https://a.example/", 7, f"{mark}{n}"), 422, "target-refused")
    expect.relayed(call(gw, "/hooks", f"http://127.0.0.1:{partner.port}/{mark}", 7, mark))
    closed = partner_that_is_gone()
    gw.settings["routes"][0]["webhook"]["ports"].append(closed)
    gw.reload()
    gw.wait_log(lambda line: line["event"] == "reload")
    expect.refusal(call(gw, "/hooks", f"http://127.0.0.1:{closed}/{mark}", 7, mark), 502, "upstream-unreachable")
    expect.refusal(call(gw, "/hooks", f"http://127.0.0.1:{partner.port}/{mark}", 7, mark), 503, "overloaded")


def partner_that_is_gone():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


# ---- signatures

def verify(got, secrets=SECRETS):
    """By the specification's words, with Python's own hmac; the id."""
    name, stamp, signatures = got.get("webhook-id"), got.get("webhook-timestamp"), got.get("webhook-signature").split(" ")
    assert re.fullmatch("[1-9][0-9]{9}", stamp)
    signed = f"{name}.{stamp}.".encode() + got.body
    want = [base64.b64encode(hmac.new(base64.b64decode(s[6:]), signed, hashlib.sha256).digest()).decode() for s in secrets]
    assert signatures == ["v1," + value for value in want]
    return name


@pytest.mark.parametrize("body", [b"", b'{"test": 2432232314}', bytes(range(256)) * 1000,
                                  bytes(range(255)) * 9001], ids=["empty", "json", "large", "in-slices"])
def test_calls_are_signed_with_every_secret(gw, partner, mark, body):
    before = int(time.time())
    answer = call(gw, "/signed", f"http://127.0.0.1:{partner.port}/{mark}", 7, mark, body=body)
    expect.relayed(answer)
    (got,) = partner.seen(mark)
    assert verify(got) == f"msg_{answer.effect_id}"
    assert before <= int(got.get("webhook-timestamp")) <= int(time.time())
    assert got.body == body


def test_a_long_signing_holds_nobody_up(gw, partner, mark):
    """8 MiB under 16 secrets take longer than this route's 20 ms: the limit holds while the signing is under way, so
    the loop has turns in between."""
    target = f"http://127.0.0.1:{partner.port}/{mark}"
    answer = call(gw, "/signed-often", target, 7, mark, body=bytes(8 << 20))
    expect.refusal(answer, 504, "upstream-timeout")
    assert partner.seen(mark) == []
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="not-sent", reason="upstream-timeout", effect_id=answer.effect_id, upstream_status=None)


def test_the_workers_own_id_is_kept_and_the_rest_replaced(gw, partner, mark):
    headers = [("Webhook-Id", f"evt/{mark}~!"), ("Webhook-Timestamp", "1"), ("WEBHOOK-SIGNATURE", "v1,AAAA"), ("Webhook-Signature", "x"),
               ("Connection", "Webhook-Id")]
    for _ in range(2):
        expect.relayed(call(gw, "/signed", f"http://127.0.0.1:{partner.port}/{mark}", 7, mark, headers, body=b"x"))
    first, second = partner.seen(mark)
    assert verify(first) == verify(second) == f"evt/{mark}~!"
    assert abs(int(first.get("webhook-timestamp")) - time.time()) < 60


@pytest.mark.parametrize("ids", [["a", "a"], ["a", "b"], [""], ["a.b"], ["."], ["a b"], ["a\tb"], ["\u00e4"], ["x" * 256]], ids=ascii)
def test_a_bad_id_is_400(gw, partner, mark, ids):
    answer = call(gw, "/signed", f"http://127.0.0.1:{partner.port}/{mark}", 7, mark, [("Webhook-Id", i) for i in ids])
    expect.refusal(answer, 400, "malformed-request")
    assert partner.seen(mark) == [] and gw.fence(mark) is None


def test_the_longest_id(gw, partner, mark):
    expect.relayed(call(gw, "/signed", f"http://127.0.0.1:{partner.port}/{mark}", 7, mark, [("Webhook-Id", "x" * 255)]))
    assert verify(partner.seen(mark)[0]) == "x" * 255


@pytest.mark.parametrize("where", ["signed-drops", "signed-off"])
def test_without_an_effect_record_the_id_is_random(gw, partner, mark, where):
    for _ in range(3):
        answer = call(gw, f"/{where}", f"http://127.0.0.1:{partner.port}/{mark}", 7, mark)
        assert (answer.status, answer.effect_id) == (200, None)
    ids = {verify(got, SECRETS[:1]) for got in partner.seen(mark)}
    assert len(ids) == 3 and all(re.fullmatch("msg_[0-9a-f]{32}", i) for i in ids)


def test_without_secrets_nothing_is_signed(gw, partner, mark):
    expect.relayed(call(gw, "/open", f"http://127.0.0.1:{partner.port}/{mark}", 7, mark))
    (got,) = partner.seen(mark)
    assert not [name for name, _ in got.headers if name.lower().startswith("webhook-")]


def test_the_timestamp_is_of_the_sending_not_of_the_waiting(gw, partner, mark):
    target = f"http://127.0.0.1:{partner.port}/{mark}"
    held = Held()
    partner.on(mark, held)
    first = gw.send_off("/signed", 7, mark, headers=[("Fencegate-Target", target)])
    partner.wait_seen(mark)
    second = gw.send_off("/signed", 8, mark, headers=[("Fencegate-Target", target)])
    arrived = int(time.time())
    while int(time.time()) < arrived + 2:  # waits for the clock itself
        time.sleep(0.02)
    released = int(time.time())
    held.release()
    expect.relayed(first.result(10))
    expect.relayed(second.result(10))
    got = partner.seen(mark)[1]
    verify(got)
    assert int(got.get("webhook-timestamp")) >= released


def test_the_published_vector(gw, partner, mark):
    """The key, id and body of the Standard Webhooks project; the time is now, so the value is made anew."""
    folder = os.environ.get("FENCEGATE_CASES")
    if folder is None:
        pytest.skip("FENCEGATE_CASES is not set")
    vector = json.loads((pathlib.Path(folder) / "standard_webhooks_vectors.json").read_text())["sign_vector"]
    assert vector["key"] == SECRETS[0]
    expect.relayed(call(gw, "/signed", f"http://127.0.0.1:{partner.port}/{mark}", 7, mark, [("Webhook-Id", vector["msg_id"])],
                        body=vector["payload"].encode()))
    assert verify(partner.seen(mark)[0]) == vector["msg_id"]


# ---- configuration

@pytest.mark.parametrize("secret", ["", "\n", "whsec_", "whsec_AAE", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_A\nA==", "whsec_AA==\n\n"])
def test_a_bad_secret_stops_the_start(tmp_path, partner, secret):
    (tmp_path / "whsec").write_text(secret)
    gateway = Gateway(tmp_path, [hook("hooks", partner, {"secrets": [{"file": "whsec"}]})])
    gateway.write_config()
    for command in ("check", "serve"):
        result = run(command, "-c", gateway.config)
        assert result.returncode == 2 and "secrets[0]" in result.stderr and len(result.stderr.splitlines()) == 1
        assert secret.strip() == "" or secret.split("\n")[0] not in result.stderr.replace('"whsec_"', "")


def test_check_warns_of_what_opens_the_own_network(tmp_path, partner):
    gateway = Gateway(tmp_path, [hook("hooks", partner)])
    gateway.write_config()
    result = run("check", "-c", gateway.config)
    assert result.returncode == 0
    text = result.stdout + result.stderr
    assert "allow_private" in text and "every host of your own network" in text and "allow_http" in text
