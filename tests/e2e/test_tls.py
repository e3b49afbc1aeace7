"""TLS to the partner: the certificate is verified, always."""

import shutil
import socket
import ssl
import subprocess
import time

import pytest

import expect
from gateway import route


def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=partner", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out",
                    folder / "cert.pem"], check=True, capture_output=True)
    return folder


def server_context(folder):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def other_certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("other"))


@pytest.fixture
def tls_partner(new_partner, certificate):
    return new_partner(tls=server_context(certificate))


def test_a_private_ca_is_trusted_where_it_is_named(launch, tls_partner, certificate, mark):
    url = f"https://localhost:{tls_partner.port}"
    gw = launch(route(url, tls={"ca_file": str(certificate / "cert.pem")}))
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark, body=b"x" * 300_000))
    (got,) = tls_partner.seen(mark)
    assert len(got.body) == 300_000
    assert got.get("Host") == f"localhost:{tls_partner.port}"


def test_an_unknown_certificate_sends_nothing(launch, tls_partner, mark):
    gw = launch(route(f"https://localhost:{tls_partner.port}"))
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark), 502, "upstream-unreachable", "not-sent")
    gw.wait_audit(key=mark, kind="not-sent")
    assert tls_partner.seen() == []


def test_a_certificate_for_another_name_sends_nothing(launch, tls_partner, certificate, mark):
    gw = launch(route(f"https://127.0.0.1:{tls_partner.port}", tls={"ca_file": str(certificate / "cert.pem")}))
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark), 502, "upstream-unreachable", "not-sent")
    assert tls_partner.seen() == []


def test_a_partner_that_speaks_no_tls_gets_no_request(launch, new_partner, mark):
    plain = new_partner()
    gw = launch(route(f"https://localhost:{plain.port}", timeout={"connect": "500ms", "total": "10s"}))
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark), 504, "upstream-timeout", "not-sent")  # it waits for more of the "head"
    assert plain.seen() == []


def test_a_partner_that_closes_inside_the_handshake_gets_no_request(launch, mark):
    listener = socket.create_server(("127.0.0.1", 0))
    gw = launch(route(f"https://localhost:{listener.getsockname()[1]}"))
    call = gw.send_off(f"/pay/{mark}", 5, mark)
    sock = listener.accept()[0]
    assert sock.recv(100)[:2] == b"\x16\x03"
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    sock.close()
    listener.close()
    expect.refusal(call.result(10), 502, "upstream-unreachable", "not-sent")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("how", ["good bye", "cut"])
def test_a_body_until_the_end_is_whole_only_by_the_partners_word(launch, new_partner, certificate, mark, version, how):
    """Anybody on the way can close the connection; close_notify is the partner's."""
    context = server_context(certificate)
    context.minimum_version = context.maximum_version = version
    partner = new_partner(tls=context)
    gw = launch(route(f"https://localhost:{partner.port}", tls={"ca_file": str(certificate / "cert.pem")}))

    def handler(exchange):
        exchange.send(b"HTTP/1.1 200 OK\r\n\r\npart")
        sock = exchange._stream.sock
        if how == "good bye":
            sock = sock.unwrap()
        socket.socket.shutdown(sock, socket.SHUT_WR)
        exchange.close()

    partner.on(mark, handler)
    answer = gw.call(f"/pay/{mark}", 5, mark)
    assert (answer.status, answer.effect, answer.body) == (200, "sent", b"part")
    assert answer.complete == (how == "good bye")
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", upstream_status=200)
    assert ("note" in found) == (how == "cut")


@pytest.mark.parametrize("pause", [0, 2.5])  # what is kept of the old file is kept by its age, too
def test_a_reload_looks_at_the_authorities_anew(launch, tls_partner, certificate, other_certificate, mark, tmp_path, pause):
    authorities = tmp_path / "authorities.pem"
    shutil.copy(certificate / "cert.pem", authorities)
    gw = launch(route(f"https://localhost:{tls_partner.port}", tls={"ca_file": str(authorities)}), workers=1)
    time.sleep(pause)
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    shutil.copy(other_certificate / "cert.pem", authorities)  # the partner's is not trusted any more
    gw.reload()
    gw.wait_log(lambda line: line["event"] == "reload")
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark), 502, "upstream-unreachable", "not-sent")
    tls_partner._tls = server_context(other_certificate)
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    assert len(tls_partner.seen(mark)) == 2


def test_the_systems_authorities_are_not_read_for_each_connection(launch, tls_partner, mark):
    """That takes some 40 ms, and nothing else of the worker moves meanwhile."""
    gw = launch(route(f"https://localhost:{tls_partner.port}"), workers=1)
    call = lambda i: expect.refusal(gw.call(f"/pay/{mark}", 5, f"{mark}-{i}"), 502, "upstream-unreachable", "not-sent")
    call(0)
    before = gw.metric("process_cpu_seconds_total")
    for i in range(1, 21):
        call(i)
    assert gw.metric("process_cpu_seconds_total") - before < 0.4
