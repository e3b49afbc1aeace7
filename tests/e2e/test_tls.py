"""TLS to the partner: the certificate is verified, always."""

import socket
import ssl
import subprocess

import pytest

import expect
from gateway import route


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=partner", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out",
                    folder / "cert.pem"], check=True, capture_output=True)
    return folder


@pytest.fixture
def tls_partner(new_partner, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return new_partner(tls=context)


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
