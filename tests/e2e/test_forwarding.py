"""What reaches the partner and what comes back: byte for byte, in order, with nothing added and nothing lost."""

import gzip
import os
import random
import re
import socket
import threading
import time

import pytest

import expect
from client import fenced, request
from gateway import Gateway, attempt, eventually, route
from partner import Held

GATEWAY_HEADERS = {"fencegate-effect", "fencegate-effect-id"}


@pytest.fixture(scope="module")
def gw(partner, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gw")
    (folder / "secret").write_text("Bearer sk_live_very_secret\n")
    base = partner.url
    routes = [
        route(partner),
        route(partner, name="sub", path="/sub/", upstream=base + "/base/v1/"),
        route(partner, name="deep", path="/pay/deep", upstream=base + "/DEEP"),
        route(partner, name="whole", path="/v1", host="api.partner.test", strip_path=False),
        route(partner, name="host", path="/pay", host="special.test", upstream=base + "/SPECIAL"),
        route(partner, name="port", path="/pay", host="special.test:8443", upstream=base + "/PORT"),
        route(partner, name="both", path="/both", forward_fencing_headers=True),
        route(partner, name="auth", path="/auth", request_headers={
            "set": {"Authorization": {"file": "secret"}, "X-Team": "billing", "X-Env": {"env": "E2E_SECRET"}},
            "remove": ["Cookie", "X-Drop"]}),
        route(partner, name="reads", path="/reads", fence={"unfenced_methods": ["GET", "HEAD"]}),
        route(partner, name="off", path="/off", fence={"mode": "off"}),
        route(partner, name="observe", path="/observe", fence={"mode": "observe", "equal": "reject", "max_jump": "1000"}),
        route(partner, name="drops", path="/drops", ledger="drops"),
        route(partner, name="names", path="/names", fence={"token_header": "X-Lease", "key_header": "X-Job"}),
    ]
    env = {"E2E_SECRET": "from-env-secret", "http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1",
           "HTTP_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "socks5://127.0.0.1:1", "all_proxy": "http://127.0.0.1:1"}
    gateway = Gateway(folder, routes, env=env, log={"level": "debug", "access": True}).start()
    yield gateway
    gateway.end()


def sent(gw, partner, mark, *arguments, **options):
    """Sends a call that must pass; what the partner got, and the answer."""
    answer = gw.call(*arguments, **options)
    assert answer.effect in ("sent", "unfenced"), answer
    (got,) = partner.seen(mark)
    return got, answer


# -- the target


@pytest.mark.parametrize("tail", [
    "", "/", "/a/b", "/a%20b", "/a%2Fb", "/A%2fb%2FC", "/~user/-._", "/%7Euser", "//double//slash", "/a;v=1/b", "/:@!$&'()*+,=",
    "/...", "/..a", "/a..", "/%252e%252e", "/caf%C3%A9", "/%E2%82%AC", "/a%7Cb", '/a|b"<>^`{}', "?", "?q", "?a=1&a=2&b=%20+%2B",
    "?next=/../x&u=http://a/b?c", "?sig=%2b%2F%3d%3D", "/x?y=[1]&z={2}",
])
def test_the_target_arrives_in_the_same_bytes(gw, partner, mark, tail):
    got, _ = sent(gw, partner, mark, f"/pay/{mark}{tail}", 5, mark)
    assert got.target == f"/{mark}{tail}"
    assert got.version == "HTTP/1.1"


@pytest.mark.parametrize("target,expected", [
    ("/sub/{}", "/base/v1/{}"), ("/sub?{}", "/base/v1?{}"), ("/sub/?{}", "/base/v1/?{}"), ("/sub//{}", "/base/v1//{}"),
    ("/pay?{}", "/?{}"), ("/pay/?{}", "/?{}"), ("/pay/deep/{}", "/DEEP/{}"), ("/pay/deeper/{}", "/deeper/{}"),
    ("/pay/deep?{}", "/DEEP?{}"),
])
def test_the_rest_of_the_path_is_appended_to_the_upstream_path(gw, partner, mark, target, expected):
    got, _ = sent(gw, partner, mark, target.format(mark), 5, mark)
    assert got.target == expected.format(mark)


@pytest.mark.parametrize("target", [
    "/pay/.", "/pay/..", "/pay/../x", "/pay/./x", "/pay/x/..", "/pay/%2e%2e/x", "/pay/%2E%2e", "/pay/.%2e/x", "/pay/%2e/x",
    "/pay/..%2Fx", "/pay/..%2fx", "/pay/x%2F..%2Fy", "/pay/..%5Cx", "/pay/..\\x", "/pay/x\\..\\y", "/pay/..;/x", "/pay/..;a=b/x",
    "/pay/;/../x", "/pay/..%3Bx", "/pay/%00", "/pay/a%0d%0ab", "/pay/a%0Ab", "/pay/%1f", "/pay/%7f", b"/pay/caf\xc3\xa9", b"/pay/\xff",
    b"/pay/a\x7fb", b"/pay/a\x01b", "pay/x", "*", "",
])
def test_a_target_that_could_mean_two_things_is_refused(gw, partner, mark, target):
    before = len(partner.seen())
    answer = gw.call(target, 5, mark)
    assert answer.status == 400, answer
    assert len(partner.seen()) == before
    assert gw.fence(mark) is None


@pytest.mark.parametrize("target", [
    "/%70ay/x", "/p%61y", "//pay/x", "///pay", "/pay;x/y", "/pay;x", "/;a/pay/x", "/pay/%64eep/x", "/pay//deep/x", "/pay/;/deep",
    "/pay/deep;v=1/x", "/pa%79/deep", "/reads;x",
])
def test_no_spelling_slips_past_a_fence(gw, partner, mark, target):
    before = len(partner.seen())
    expect.refusal(gw.call(target, 5, mark), 400, "malformed-request")
    assert len(partner.seen()) == before


@pytest.mark.parametrize("query", ["text=one%0Atwo", "a=%00", "b=%7f&c=%1F%zz%"])
def test_encoded_bytes_of_a_query_are_data(gw, partner, mark, query):
    got, _ = sent(gw, partner, mark, f"/pay/{mark}?{query}", 5, mark)
    assert got.target == f"/{mark}?{query}"


def test_options_star_is_400(gw, mark):
    answer = gw.call("*", 5, mark, method="OPTIONS")
    expect.refusal(answer, 400, "malformed-request")


@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
def test_absolute_form_is_routed_by_its_own_authority(gw, partner, mark, scheme):
    got, _ = sent(gw, partner, mark, f"{scheme}://api.partner.test/v1/{mark}?a=%2F", 5, mark, host="elsewhere.test")
    assert got.target == f"/v1/{mark}?a=%2F"
    assert got.get("Host") == f"127.0.0.1:{partner.port}"


def test_absolute_form_with_user_info_is_refused(gw, partner, mark):
    assert gw.call(f"http://user@api.partner.test/v1/{mark}", 5, mark).status == 400
    assert partner.seen(mark) == []


@pytest.mark.parametrize("host,expected", [
    ("special.test", "/SPECIAL"), ("SPECIAL.Test", "/SPECIAL"), ("special.test:9", "/SPECIAL"), ("special.test:8443", "/PORT"),
    ("other.test", ""), ("notspecial.test", ""),
])
def test_a_route_with_a_matching_host_comes_first(gw, partner, mark, host, expected):
    got, _ = sent(gw, partner, mark, f"/pay/{mark}", 5, mark, host=host)
    assert got.target == f"{expected}/{mark}"


def test_a_route_with_a_host_is_not_there_for_others(gw, mark):
    expect.refusal(gw.call(f"/v1/{mark}", 5, mark, host="other.test"), 404, "no-route")


# -- method, headers, body


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "M-SEARCH", "TRACE", "x!#$%&'*+.^_`|~9"])
@pytest.mark.parametrize("body", [b"", b"some body"])
def test_every_method_passes_with_its_body(gw, partner, mark, method, body):
    got, answer = sent(gw, partner, mark, f"/pay/{mark}", 5, mark, method=method, body=body)
    assert (got.method, got.body) == (method, body)
    if body or method in ("POST", "PUT", "PATCH"):
        assert got.get("Content-Length") == str(len(body))
    else:
        assert got.get("Content-Length") in (None, "0")
    expect.relayed(answer)


def test_methods_do_not_rub_off_on_the_next_call(gw, partner, mark):
    """A handle used again has turned PUT into POST in the past."""
    order = ["PUT", "GET", "POST", "HEAD", "DELETE", "POST", "HEAD", "GET", "PATCH", "GET"]
    with gw.connect() as connection:
        for method in order:
            body = b"body of " + method.encode() if method in ("PUT", "POST", "PATCH") else b""
            connection.send(request(method, f"/pay/{mark}", fenced(5, mark), body))
            assert connection.receive(method).status == 200
    got = partner.seen(mark)
    assert [r.method for r in got] == order
    assert [r.body for r in got] == [b"body of " + m.encode() if m in ("PUT", "POST", "PATCH") else b"" for m in order]


END_TO_END = [
    ("Accept", "a/b;q=0.5"), ("X-First", "1"), ("user-agent", "worker/1.0"), ("X-Twice", "b"), ("Content-Type", "application/json"),
    ("X-Twice", "a"), ("X-Empty", ""), ("Authorization", "Bearer abc=="), ("Accept-Encoding", "gzip, br"), ("Cookie", "a=1; b=2"),
    ("Idempotency-Key", "k-1"), ("X-Quoted", '"a, b;c"'), ("X-Latin", "caf\u00e9 \u20ac"), ("x-lower", "l"), ("X_Under", "u"),
    ("X-Colon", "a:b: c"), ("Referer", "http://x/?y=z"), ("Date", "Mon, 01 Jan 2024 00:00:00 GMT"), ("Range", "bytes=0-1"),
    ("If-None-Match", 'W/"x"'), ("X-Long", "v" * 6000),
]


def test_end_to_end_headers_pass_in_order_and_nothing_is_added(gw, partner, mark):
    got, _ = sent(gw, partner, mark, f"/pay/{mark}", 5, mark, headers=END_TO_END, body=b"{}")
    own = [(n, v.encode("latin-1").decode()) for n, v in got.headers if n.lower() not in ("host", "via", "content-length")]
    assert own == END_TO_END
    assert got.get("Host") == f"127.0.0.1:{partner.port}"
    assert re.fullmatch("1.1 fencegate-[0-9a-f]{8}", got.get("Via"))
    assert got.get("Content-Length") == "2"


def test_a_bare_request_stays_bare(gw, partner, mark):
    """No Accept, no User-Agent, no Content-Type of our own."""
    got, _ = sent(gw, partner, mark, f"/pay/{mark}", 5, mark, body=b"a=1")
    assert sorted(n.lower() for n, _ in got.headers) == ["content-length", "host", "via"]
    got, _ = sent(gw, partner, mark + "-get", f"/pay/{mark}-get", 5, mark, method="GET")
    assert {n.lower() for n, _ in got.headers} - {"content-length"} == {"host", "via"}


def test_hop_by_hop_headers_are_removed(gw, partner, mark):
    hop = [("Connection", "keep-alive, X-Hop ,x-other"), ("X-Hop", "1"), ("X-Other", "2"), ("Keep-Alive", "timeout=5"),
           ("Proxy-Connection", "keep-alive"), ("TE", "trailers"), ("Trailer", "X-T"), ("Upgrade", "h2c"), ("X-Stay", "3")]
    got, _ = sent(gw, partner, mark, f"/pay/{mark}", 5, mark, headers=hop)
    assert [(n, v) for n, v in got.headers if n.lower() not in ("host", "via", "content-length")] == [("X-Stay", "3")]


def test_several_connection_headers_count(gw, partner, mark):
    headers = [("Connection", "X-A"), ("X-A", "1"), ("X-B", "2"), ("Connection", "X-B"), ("X-C", "3")]
    got, _ = sent(gw, partner, mark, f"/pay/{mark}", 5, mark, headers=headers)
    assert [n for n, _ in got.headers if n.startswith("X-")] == ["X-C"]


def test_via_is_added_behind_others(gw, partner, mark):
    got, _ = sent(gw, partner, mark, f"/pay/{mark}", 5, mark, headers=[("Via", "1.0 first")])
    assert re.fullmatch("1.0 first, 1.1 fencegate-[0-9a-f]{8}", ", ".join(got.all("Via")))


def own_name(gw, partner, mark):
    got, _ = sent(gw, partner, mark + "-via", f"/pay/{mark}-via", 5, mark + "-via")
    return got.get("Via").split(" ")[1]


@pytest.mark.parametrize("form", ["1.1 {}", "HTTP/1.1 {} (a comment)", "1.0 first,1.1 {},2 last", "1.1 FENCEGATE-{hex}"])
def test_a_call_that_comes_back_is_508(gw, partner, mark, form):
    name = own_name(gw, partner, mark)
    via = ("Via", form.format(name, hex=name[-8:].upper()))
    answer = gw.call(f"/pay/{mark}", None, mark, headers=[("Via", "1.1 other"), via], body=b"x")  # before the token is missed
    expect.refusal(answer, 508, "loop-detected")
    answer = gw.call(f"/off/{mark}", 5, mark, headers=[via], method="GET")
    expect.refusal(answer, 508, "loop-detected")
    assert partner.seen(mark) == [] and gw.fence(mark) is None


@pytest.mark.parametrize("via", ["1.1 fencegate", "1.1 fencegate-", "1.1 {}0", "1.1 x{}", "1.1 fencegate-zzzzzzzz"])
def test_another_gateway_s_name_is_no_loop(gw, partner, mark, via):
    value = via.format(own_name(gw, partner, mark))
    got, _ = sent(gw, partner, mark, f"/pay/{mark}", 5, mark, headers=[("Via", value)])
    assert got.all("Via")[0] == value


def lead_back(door, port):
    """Passes the bytes of one connection on to the gateway, and its answer back."""
    inner, _ = door.accept()
    with inner, socket.create_connection(("127.0.0.1", port)) as outer:
        def pump(source, sink):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        back = threading.Thread(target=pump, args=(outer, inner))
        back.start()
        pump(inner, outer)
        back.join()


def test_an_upstream_that_leads_back_is_asked_once(launch, partner, mark):
    with socket.create_server(("127.0.0.1", 0)) as door:
        gw = launch({"name": "loop", "path": "/", "upstream": f"http://127.0.0.1:{door.getsockname()[1]}"})
        detour = threading.Thread(target=lead_back, args=(door, gw.port))
        detour.start()
        answer = gw.call(f"/{mark}", 5, mark, body=b"x")
        records = gw.wait_audit(key=mark)
        gw.end()
        detour.join()
    assert (answer.status, answer.get("Fencegate-Effect"), answer.json["reason"]) == (508, "sent", "loop-detected")
    (found,) = records
    expect.record(found, kind="sent", status=508, upstream_status=508)


def test_a_body_passes_byte_for_byte(gw, partner, mark):
    body = random.Random(5).randbytes(3_000_000)
    got, _ = sent(gw, partner, mark, f"/pay/{mark}", 5, mark, body=body)
    assert got.body == body
    assert got.get("Content-Length") == str(len(body))
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, request_bytes=len(body))


@pytest.mark.parametrize("sizes", [[5], [1, 1, 1], [70_000, 3, 500_000], []])
def test_a_chunked_body_gets_an_exact_length(gw, partner, mark, sizes):
    chunks = [os.urandom(size) for size in sizes]
    framed = b"".join(b"%X\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
    got, _ = sent(gw, partner, mark, f"/pay/{mark}", 5, mark, headers=[("Transfer-Encoding", "chunked")], body=framed)
    assert got.body == b"".join(chunks)
    assert got.get("Content-Length") == str(sum(sizes))
    assert got.get("Transfer-Encoding") is None


def test_headers_in_a_trailer_do_not_count(gw, partner, mark):
    trailer = f"1\r\nx\r\n0\r\nFencing-Token: 5\r\nWorkflow-Key: {mark}\r\n\r\n".encode()
    answer = gw.call(f"/pay/{mark}", headers=[("Transfer-Encoding", "chunked")], body=trailer)
    expect.refusal(answer, 428, "missing-token")
    assert partner.seen(mark) == []
    answer = gw.call(f"/pay/{mark}", 7, mark, headers=[("Transfer-Encoding", "chunked"), ("Trailer", "Fencing-Token")],
                     body=b"1\r\nx\r\n0\r\nFencing-Token: 9\r\nX-T: 1\r\n\r\n")
    expect.relayed(answer)
    assert gw.fence(mark) == 7
    assert partner.seen(mark)[0].get("X-T") is None


def test_a_request_in_pieces_is_one_request(gw, partner, mark):
    whole = request("POST", f"/pay/{mark}", fenced(5, mark), b"hello world")
    with gw.connect() as connection:
        for index in range(len(whole)):
            connection.send(whole[index:index + 1])
        expect.relayed(connection.receive())
    assert partner.seen(mark)[0].body == b"hello world"


def test_pipelined_requests_are_answered_in_order(gw, partner, mark):
    first, second = mark + "-first", mark + "-second"
    partner.on(first, lambda e: e.reply(200, b"first"))
    partner.on(second, lambda e: e.reply(201, b"second"))
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}/{first}", fenced(5, mark), b"a")
                        + request("POST", f"/pay/{mark}/{second}", fenced(6, mark), b"b"))
        assert connection.receive().body == b"first"
        assert connection.receive().body == b"second"
    assert [r.body for r in partner.seen(mark)] == [b"a", b"b"]


def test_100_continue_is_given_before_the_body(gw, partner, mark):
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Content-Length", "5"), ("Expect", "100-continue")]))
        connection.sock.settimeout(5)
        while b"\r\n\r\n" not in connection.buffer:
            assert connection._fill()
        assert connection.buffer.startswith(b"HTTP/1.1 100 ")
        connection.send(b"hello")
        answer = connection.receive()
    assert answer.interim == [100]
    expect.relayed(answer)
    (got,) = partner.seen(mark)
    assert got.body == b"hello" and got.get("Expect") is None


def test_http_1_0_is_served(gw, partner, mark):
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"hello", version="HTTP/1.0"))
        expect.relayed(connection.receive())
        assert connection.ended()
    assert partner.seen(mark)[0].body == b"hello"


def test_http_1_0_never_gets_chunks(gw, partner, mark):
    partner.on(mark, lambda e: e.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))
    with gw.connect() as connection:
        connection.send(request("GET", f"/pay/{mark}", fenced(5, mark), version="HTTP/1.0", host=None))
        answer = connection.receive("GET")
    assert answer.get("Transfer-Encoding") is None
    expect.relayed(answer, body=b"hello")


def test_connection_close_is_honoured(gw, mark):
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", [*fenced(5, mark), ("Connection", "close")], b"x"))
        expect.relayed(connection.receive())
        assert connection.ended()


# -- the answer


@pytest.mark.parametrize("status", [200, 201, 202, 203, 206, 301, 307, 400, 401, 402, 404, 407, 409, 412, 418, 422, 428, 429, 500, 502, 503, 504, 599])
def test_the_partners_own_answer_passes_as_it_is(gw, partner, mark, status):
    partner.on(mark, lambda e: e.reply(status, b'{"own":"answer"}', [("Content-Type", "application/json"), ("Retry-After", "7"),
                                                                      ("Location", f"{partner.url}/elsewhere-{mark}"),
                                                                      ("WWW-Authenticate", 'Basic realm="x"')]))
    answer = gw.call(f"/pay/{mark}", 5, mark, body=b"x")
    assert (answer.status, answer.effect, answer.body) == (status, "sent", b'{"own":"answer"}')
    assert answer.get("Content-Type") == "application/json"
    assert answer.get("Retry-After") == "7"
    assert answer.get("X-Should-Retry") is None
    assert len(partner.seen(mark)) == 1
    assert partner.seen(f"elsewhere-{mark}") == []
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", status=status, upstream_status=status)


ANSWER_HEADERS = [
    ("Set-Cookie", "a=1; Path=/"), ("Content-Type", "text/plain"), ("X-One", "1"), ("Set-Cookie", "b=2"), ("x-lower", "l"),
    ("X-Empty", ""), ("ETag", 'W/"v1"'), ("X-Latin", "caf\u00e9"), ("Set-Cookie", "c=3"), ("Server", "partner/1"), ("Via", "1.1 cdn"),
    ("Date", "Mon, 01 Jan 2024 00:00:00 GMT"), ("Request-Id", "req_1"), ("Cache-Control", "no-store"), ("X-Long", "v" * 6000),
]


def test_answer_headers_pass_and_nothing_is_added(gw, partner, mark):
    partner.on(mark, lambda e: e.reply(200, b"ok", ANSWER_HEADERS))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    ours = GATEWAY_HEADERS | {"content-length", "connection"}
    assert [h for h in answer.headers if h[0].lower() not in ours] == ANSWER_HEADERS
    assert answer.all("Set-Cookie") == ["a=1; Path=/", "b=2", "c=3"]


def test_only_a_missing_date_may_be_added(gw, partner, mark):
    answer = gw.call(f"/pay/{mark}", 5, mark)
    assert {n.lower() for n, _ in answer.headers} <= GATEWAY_HEADERS | {"content-length", "connection", "date"}


def test_hop_by_hop_headers_of_the_answer_are_removed(gw, partner, mark):
    partner.on(mark, lambda e: e.reply(200, b"ok", [("Connection", "X-Hop, keep-alive"), ("X-Hop", "1"), ("Keep-Alive", "timeout=5"),
                                                    ("Upgrade", "h2c"), ("Proxy-Connection", "x"), ("X-Stay", "2")]))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    names = {n.lower() for n, _ in answer.headers}
    assert names.isdisjoint({"x-hop", "keep-alive", "upgrade", "proxy-connection"}) and "x-stay" in names


def test_a_partner_cannot_speak_for_the_gateway(gw, partner, mark):
    partner.on(mark, lambda e: e.reply(200, b"ok", [("Fencegate-Effect", "not-sent"), ("fencegate-effect-id", "1"), ("Fencegate-X", "y")]))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    assert answer.all("Fencegate-Effect") == ["sent"]
    assert answer.effect_id != "1" and answer.get("Fencegate-X") is None


def test_a_partners_own_412_is_told_apart(gw, partner, mark):
    partner.on(mark, lambda e: e.reply(412, b"if-match failed"))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    expect.relayed(answer, 412, b"if-match failed")


def test_head_has_the_headers_without_a_body(gw, partner, mark):
    partner.on(mark, lambda e: e.reply(200, b"", [("Content-Length", "1234"), ("X-A", "b")]))
    with gw.connect() as connection:
        for _ in range(2):
            connection.send(request("HEAD", f"/pay/{mark}", fenced(5, mark)))
            answer = connection.receive("HEAD")
            assert (answer.status, answer.get("Content-Length"), answer.get("X-A")) == (200, "1234", "b")
        assert connection.silent(0.1)


@pytest.mark.parametrize("framing", [b"Transfer-Encoding: chunked\r\n", b"", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"])
def test_nothing_follows_a_head_of_unknown_length(gw, partner, mark, framing):
    """A last chunk, say: the next answer on the connection would begin with it."""
    partner.on(mark, lambda e: e.send(b"HTTP/1.1 200 OK\r\nX-A: b\r\n" + framing + b"\r\n"))
    with gw.connect() as connection:
        for _ in range(2):
            connection.send(request("HEAD", f"/pay/{mark}", fenced(5, mark)))
            answer = connection.receive("HEAD")
            assert (answer.status, answer.effect, answer.get("X-A")) == (200, "sent", "b")
            assert answer.get("Transfer-Encoding") is None and answer.get("Connection") is None
            assert connection.silent(0.1)


@pytest.mark.parametrize("status,headers", [(204, []), (304, [("ETag", '"x"')]), (304, [("Content-Length", "77")])])
def test_204_and_304_have_no_body(gw, partner, mark, status, headers):
    partner.on(mark, lambda e: e.reply(status, b"", headers))
    with gw.connect() as connection:
        for _ in range(2):
            connection.send(request("GET", f"/pay/{mark}", fenced(5, mark)))
            answer = connection.receive("GET")
            assert (answer.status, answer.effect, answer.body) == (status, "sent", b"")
            assert answer.get("Transfer-Encoding") is None
            assert answer.all("Content-Length") == [value for name, value in headers if name == "Content-Length"]
        assert connection.silent(0.1)
    assert len(partner.seen(mark)) == 2


@pytest.mark.parametrize("raw", [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nX-Trailer: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
    b"HTTP/1.0 200 OK\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
    b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
], ids=["chunked", "until close", "1.0", "length and close", "no reason phrase"])
def test_all_framings_of_an_answer_arrive_whole(gw, partner, mark, raw):
    partner.on(mark, lambda e: (e.send(raw), e.close()))
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark), body=b"hello")
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", response_bytes=5, note=None)


def test_an_empty_answer_is_complete(gw, partner, mark):
    partner.on(mark, lambda e: e.reply(200, b""))
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark), body=b"")


def test_a_large_answer_arrives_whole(gw, partner, mark):
    body = random.Random(6).randbytes(7_000_001)
    partner.on(mark, lambda e: e.reply(200, body))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    expect.relayed(answer, body=body)
    assert answer.get("Content-Length") == str(len(body))


def test_an_answer_streams(gw, partner, mark):
    """Its first half is with the client before the partner sends the second."""
    first_seen = threading.Event()

    def handler(exchange):
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        assert first_seen.wait(10)
        exchange.send(b"other")

    partner.on(mark, handler)
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"x"))
        answer = connection.read_head()
        got = b""
        for piece in connection.pieces(answer):
            got += piece
            if got == b"first":
                first_seen.set()
    assert got == b"firstother" and answer.complete


@pytest.mark.parametrize("head,part", [(b"Content-Length: 1000", b"x" * 500), (b"Transfer-Encoding: chunked", b"1f4\r\n" + b"x" * 500 + b"\r\n"),
                                       (b"Transfer-Encoding: chunked", b"3e8\r\n" + b"x" * 500), (b"Content-Length: 1000", b"")])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_truncated_answer_does_not_look_complete(gw, partner, mark, head, part, how):
    relayed = threading.Event()

    def handler(exchange):
        exchange.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + part)
        relayed.wait(10)
        getattr(exchange, how)()

    partner.on(mark, handler)
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"x"))
        answer = connection.read_head()
        assert (answer.status, answer.effect) == (200, "sent")
        relayed.set()
        body = b"".join(connection.pieces(answer))
        assert not answer.complete
        assert body == b"x" * len(body) and len(body) <= 500
        assert connection.ended()
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", upstream_status=200)
    assert found["note"]
    assert len(partner.seen(mark)) == 1


@pytest.mark.parametrize("pause", [0, 0.2])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_a_reset_while_the_body_is_on_its_way_is_no_end(gw, partner, mark, version, pause):
    """The kernel tells of a reset once: here to the gateway's sending, and reading then finds what looks like an end."""
    def handler(exchange):
        exchange.send(b"HTTP/1.1 200 OK\r\n\r\npart")
        time.sleep(pause)
        exchange.reset()

    partner.on(mark, handler, early=True)
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"x" * 8_000_000, version=version))
        answer = attempt(connection)
    (found,) = gw.wait_audit(key=mark)
    if answer is None or answer.effect == "unknown":  # the reset overtook the answer
        return
    assert (answer.status, answer.effect, answer.complete) == (200, "sent", False)
    expect.record(found, kind="sent", upstream_status=200)
    assert found["note"]


def test_an_answer_that_stalls_is_cut_by_the_total_timeout(launch, partner, mark):
    gw = launch(route(partner, timeout={"connect": "5s", "total": "500ms"}))
    stalled = threading.Event()
    partner.on(mark, lambda e: (e.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), stalled.wait(10)))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    stalled.set()
    assert (answer.status, answer.effect, answer.complete) == (200, "sent", False)
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", upstream_status=200)
    assert found["note"]


@pytest.mark.parametrize("interim", [
    b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nX-Early: 1\r\n\r\n",
    b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nX-Early: 1\r\nContent-Length: 3\r\n\r\n",
])
def test_1xx_answers_are_dropped(gw, partner, mark, interim):
    partner.on(mark, lambda e: e.send(interim + b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-Final: 1\r\n\r\nok"))
    answer = gw.call(f"/pay/{mark}", 5, mark)
    expect.relayed(answer, 201)
    assert answer.interim == []
    assert answer.get("X-Early") is None and answer.get("Link") is None and answer.get("X-Final") == "1"


def test_an_early_answer_passes_while_the_body_is_on_its_way(gw, partner, mark):
    """A partner that says 413 and closes without reading all: its answer counts, not the broken pipe."""
    def handler(exchange):
        exchange.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        exchange._stream.sock.shutdown(1)
        exchange.peer_left(5)
        exchange.close()

    partner.on(mark, handler, early=True)
    answer = gw.call(f"/pay/{mark}", 5, mark, body=b"x" * 7_000_000)
    expect.relayed(answer, 413, b"big")
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", upstream_status=413)


def test_content_is_not_decoded(gw, partner, mark):
    packed = gzip.compress(b"hello " * 1000)
    partner.on(mark, lambda e: e.reply(200, packed, [("Content-Encoding", "gzip")]))
    answer = gw.call(f"/pay/{mark}", 5, mark, headers=[("Accept-Encoding", "gzip")])
    expect.relayed(answer, body=packed)
    assert answer.get("Content-Encoding") == "gzip"
    assert answer.get("Content-Length") == str(len(packed))


def test_odd_answer_headers_do_no_harm(gw, partner, mark):
    partner.on(mark, lambda e: e.reply(200, b"ok", [("X-Tab", "a\tb"), ("X-C1", "a\x85b"), ("X-Semi", ";"), ("X-U", "\u00ff\u00fe")]))
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))


# -- settings of a route


def test_fencing_headers_stop_at_the_gateway(gw, partner, mark):
    got, _ = sent(gw, partner, mark, f"/pay/{mark}", 5, mark)
    assert got.all("Fencing-Token") == [] and got.all("Workflow-Key") == []


def test_fencing_headers_pass_where_the_partner_checks_too(gw, partner, mark):
    got, _ = sent(gw, partner, mark, f"/both/{mark}", 5, mark)
    assert (got.get("Fencing-Token"), got.get("Workflow-Key")) == ("5", mark)


def test_request_headers_are_set_and_removed(gw, partner, mark):
    headers = [("authorization", "Bearer of-the-worker"), ("Cookie", "a=1"), ("x-drop", "1"), ("X-Keep", "2"), ("X-Team", "other")]
    got, answer = sent(gw, partner, mark, f"/auth/{mark}", 5, mark, headers=headers)
    assert got.get("Authorization") == "Bearer sk_live_very_secret"
    assert (got.get("X-Team"), got.get("X-Env"), got.get("X-Keep")) == ("billing", "from-env-secret", "2")
    assert got.get("Cookie") is None and got.get("X-Drop") is None
    (found,) = gw.wait_audit(key=mark)
    for text in ("".join(gw.stderr), repr(answer), repr(found), gw.admin("/metrics").body.decode()):
        assert "sk_live_very_secret" not in text and "from-env-secret" not in text


@pytest.mark.parametrize("token,key", [(None, None), ("not a number", "")])
def test_unfenced_methods_pass_with_the_headers_removed_unread(gw, partner, mark, token, key):
    got, answer = sent(gw, partner, mark, f"/reads/{mark}", token, key, method="GET")
    expect.relayed(answer, effect="unfenced")
    assert got.all("Fencing-Token") == [] and got.all("Workflow-Key") == []
    expect.refusal(gw.call(f"/reads/{mark}", None, mark), 428, "missing-token")
    expect.refusal(gw.call(f"/reads/{mark}", None, mark, method="get"), 428, "missing-token")  # methods have a case
    assert len(partner.seen(mark)) == 1


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X_HTTP_Method_Override"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_unfenced_method_that_stands_for_another_is_fenced(gw, partner, mark, name, method):
    """A partner that heeds the override would make a POST of a GET without a token."""
    override = [(name, "POST")]
    answer = gw.call(f"/reads/{mark}", None, None, method=method, headers=override)
    expect.refusal(answer, 428, "missing-token", method=method)
    assert partner.seen(mark) == []
    answer = gw.call(f"/reads/{mark}", 7, mark, method=method, headers=override)
    assert (answer.status, answer.effect) == (200, "sent")
    assert gw.fence(mark) == 7
    expect.refusal(gw.call(f"/reads/{mark}", 6, mark, method=method, headers=override), 412, "stale-token", method=method)
    assert len(partner.seen(mark)) == 1


def test_mode_off_forwards_unfenced(gw, partner, mark):
    got, answer = sent(gw, partner, mark, f"/off/{mark}", 5, mark)
    expect.relayed(answer, effect="unfenced")
    assert got.all("Fencing-Token") == []
    assert answer.effect_id is None
    assert gw.fence(mark) is None
    expect.relayed(gw.call(f"/off/{mark}", "junk", None), effect="unfenced")


@pytest.mark.parametrize("token,key,reason", [(4, True, "stale-token"), (5, True, "token-used"), (2000, True, "implausible-token"),
                                              (None, True, "missing-token"), (6, False, "missing-key"), ("x", True, "malformed-token")])
def test_observe_forwards_what_it_would_have_refused(gw, partner, mark, token, key, reason):
    expect.relayed(gw.call(f"/observe/{mark}", 5, mark))
    answer = gw.call(f"/observe/{mark}", token, mark if key else None)
    expect.relayed(answer)
    assert len(partner.seen(mark)) == 2
    assert gw.fence(mark) == 5
    found = eventually(lambda: [r for r in gw.audit(route="observe", reason=reason) if r["path"] == f"/observe/{mark}"])
    assert len(found) == 1
    expect.record(found[0], kind="sent", would_drop=True, reason=reason, status=200, upstream_status=200)


def test_observe_raises_like_enforce(gw, partner, mark):
    for token, fence in [(5, 5), (7, 7), (6, 7)]:
        expect.relayed(gw.call(f"/observe/{mark}", token, mark))
        assert gw.fence(mark) == fence
    found = gw.wait_audit(3, key=mark)
    assert [r.get("would_drop") for r in sorted(found, key=lambda r: int(r["id"]))] == [None, None, True]


def test_ledger_drops_records_only_fences_and_drops(gw, partner, mark):
    answer = gw.call(f"/drops/{mark}", 5, mark)
    expect.relayed(answer)
    assert answer.effect_id is None
    expect.refusal(gw.call(f"/drops/{mark}", 4, mark), 412, "stale-token")
    assert gw.fence(mark) == 5
    assert [r["kind"] for r in gw.audit(key=mark)] == ["dropped"]


def test_header_names_are_settings(gw, partner, mark):
    got, answer = sent(gw, partner, mark, f"/names/{mark}", headers=[("x-lease", "5"), ("X-JOB", mark), ("Fencing-Token", "99"), ("Workflow-Key", "w")])
    expect.relayed(answer)
    assert (gw.fence(mark), gw.fence("w")) == (5, None)
    assert got.all("X-Lease") == [] and got.all("X-Job") == []
    assert (got.get("Fencing-Token"), got.get("Workflow-Key")) == ("99", "w")
    expect.refusal(gw.call(f"/names/{mark}", 9, mark), 428, "missing-token")


def test_forwarding_is_concurrent(gw, partner, mark):
    held = Held()
    partner.on(mark, held)
    calls = [gw.send_off(f"/pay/{mark}", 5, f"{mark}-{i}") for i in range(32)]
    partner.wait_seen(mark, 32)
    held.release()
    for call in calls:
        expect.relayed(call.result(10))
