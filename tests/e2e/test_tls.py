"""TLS to the partner: the certificate is verified, always."""

import ctypes
import ctypes.util
import shutil
import socket
import ssl
import subprocess
import time
import warnings

import pytest

import expect
from gateway import PATIENCE, route, run


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


def test_files_that_tls_could_not_use_are_refused_and_the_old_ones_stay(launch, tls_partner, certificate, other_certificate, mark, tmp_path):
    """`check`, a start and SIGHUP load them; a call is too late to find out."""
    own = {"ca_file": str(certificate / "cert.pem")}
    gw = launch(route(f"https://localhost:{tls_partner.port}", tls=own), workers=1)
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    half, hollow = tmp_path / "half.pem", tmp_path / "hollow.pem"
    half.write_text((certificate / "cert.pem").read_text()[:300])
    hollow.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    foreign = {"cert_file": str(certificate / "cert.pem"), "key_file": str(other_certificate / "key.pem")}
    for bad in ({"ca_file": str(half)}, own | {"cert_file": str(hollow)}, own | foreign):
        gw.settings["routes"][0]["tls"] = bad
        gw.reload()
        gw.wait_log(lambda line: line["event"] == "reload" and list(bad)[-1] in line["message"] and "refused" in line["message"])
        expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
        checked = run("check", "-c", gw.config)
        assert checked.returncode == 2 and "$.routes[0].tls." in checked.stderr, checked


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_partner_that_wants_a_client_certificate_is_named_as_one(launch, new_partner, certificate, other_certificate, mark, version):
    """With TLS 1.3 its alert may also come after the call has gone out: then the effect is unknown."""
    context = server_context(certificate)
    context.minimum_version = context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(other_certificate / "cert.pem")
    partner = new_partner(tls=context)
    trusted = {"ca_file": str(certificate / "cert.pem")}
    own = {"cert_file": str(other_certificate / "cert.pem"), "key_file": str(other_certificate / "key.pem")}
    gw = launch([route(f"https://localhost:{partner.port}", tls=trusted),
                 route(f"https://localhost:{partner.port}", name="known", path="/known", tls=trusted | own)])
    for i in range(5):
        answer = gw.call(f"/pay/{mark}", 5, f"{mark}-{i}")
        assert answer.json["reason"] in ("upstream-unreachable", "upstream-failed"), answer
        assert "client certificate" in answer.json["detail"] and "tls.cert_file" in answer.json["detail"], answer
    assert partner.seen(mark) == []
    expect.relayed(gw.call(f"/known/{mark}", 5, mark))


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


# -- rules that neither openssl.cnf nor the environment loosens


class Renegotiating:
    """A TLS 1.2 partner that asks for a new handshake in the segment of its Finished, and then only listens."""

    def __init__(self, folder):
        library = ctypes.CDLL(ctypes.util.find_library("ssl"))
        for name in ("TLS_server_method", "SSL_CTX_new", "SSL_new"):
            getattr(library, name).restype = ctypes.c_void_p
        crypto = ctypes.CDLL(ctypes.util.find_library("crypto"))
        for name in ("BIO_s_mem", "BIO_new"):
            getattr(crypto, name).restype = ctypes.c_void_p
        self._ssl, self._crypto = library, crypto
        context = ctypes.c_void_p(library.SSL_CTX_new(ctypes.c_void_p(library.TLS_server_method())))
        library.SSL_CTX_ctrl(context, 124, ctypes.c_long(0x0303), None)  # SSL_CTRL_SET_MAX_PROTO_VERSION, TLS 1.2
        library.SSL_CTX_set_options(context, ctypes.c_uint64(1 << 14))  # SSL_OP_NO_TICKET: its Finished is its last word
        assert library.SSL_CTX_use_certificate_file(context, str(folder / "cert.pem").encode(), 1) == 1
        assert library.SSL_CTX_use_PrivateKey_file(context, str(folder / "key.pem").encode(), 1) == 1
        self._tls = ctypes.c_void_p(library.SSL_new(context))
        self._in, self._out = (ctypes.c_void_p(crypto.BIO_new(ctypes.c_void_p(crypto.BIO_s_mem()))) for _ in range(2))
        library.SSL_set_bio(self._tls, self._in, self._out)
        library.SSL_set_accept_state(self._tls)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def _flush(self):
        piece = ctypes.create_string_buffer(65536)
        count = self._crypto.BIO_read(self._out, piece, len(piece))
        return piece.raw[:count] if count > 0 else b""

    def accept(self):
        """The socket, when HelloRequest has been sent."""
        sock = self._listener.accept()[0]
        sock.settimeout(PATIENCE)
        while self._ssl.SSL_do_handshake(self._tls) != 1:
            sock.sendall(self._flush())
            data = sock.recv(65536)
            assert data, "the gateway left inside the handshake"
            self._crypto.BIO_write(self._in, data, len(data))
        assert self._ssl.SSL_renegotiate(self._tls) == 1
        self._ssl.SSL_do_handshake(self._tls)
        sock.sendall(self._flush())
        return sock

    def close(self):
        self._listener.close()


def next_record(sock):
    """The type of the next TLS record."""
    data = b""
    while len(data) < 5 or len(data) < 5 + int.from_bytes(data[3:5], "big"):
        wanted = 5 if len(data) < 5 else 5 + int.from_bytes(data[3:5], "big")
        piece = sock.recv(wanted - len(data))
        assert piece, "the gateway closed the connection"
        data += piece
    return data[0]


ALERT, HANDSHAKE, DATA = 21, 22, 23


def test_a_partner_can_not_renegotiate_between_the_last_look_and_the_first_byte(launch, certificate, mark):
    partner = Renegotiating(certificate)
    gw = launch(route(f"https://localhost:{partner.port}", tls={"ca_file": str(certificate / "cert.pem")}))
    call = gw.send_off(f"/pay/{mark}", 5, mark)
    with partner.accept() as sock:
        kind = next_record(sock)
        while kind == ALERT:  # that it will not
            kind = next_record(sock)
        assert kind == DATA
    expect.refusal(call.result(PATIENCE), 502, "upstream-failed", "unknown")
    partner.close()


LOOSE = """openssl_conf = init
[init]
ssl_conf = ssl
[ssl]
system_default = loose
[loose]
MinProtocol = TLSv1
CipherString = ALL@SECLEVEL=0
"""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_an_old_protocol_is_refused_whatever_openssl_cnf_allows(launch, new_partner, certificate, mark, tmp_path, version):
    (tmp_path / "openssl.cnf").write_text(LOOSE)
    context = server_context(certificate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL@SECLEVEL=0")
    partner = new_partner(tls=context)
    gw = launch(route(f"https://localhost:{partner.port}", tls={"ca_file": str(certificate / "cert.pem")}),
                env={"OPENSSL_CONF": str(tmp_path / "openssl.cnf")})
    expect.refusal(gw.call(f"/pay/{mark}", 5, mark), 502, "upstream-unreachable", "not-sent")
    assert partner.seen() == []


def test_no_session_keys_are_written_for_the_environment(launch, tls_partner, certificate, mark, tmp_path):
    keys = tmp_path / "keys"
    gw = launch(route(f"https://localhost:{tls_partner.port}", tls={"ca_file": str(certificate / "cert.pem")}),
                env={"SSLKEYLOGFILE": str(keys)})
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    assert not keys.exists()


# -- partners that would keep the loop inside one call


def test_handshake_messages_without_end_end_the_connection(launch, partner, mark):
    """HelloRequest may come at any time before TLS 1.3 and is skipped: OpenSSL reads on for as long as there are any."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        gw = launch([route(f"https://127.0.0.1:{door.getsockname()[1]}"), route(partner, name="other", path="/other")], workers=1)
        hello = gw.send_off(f"/pay/{mark}", 5, mark)
        sock, _ = door.accept()
        sock.settimeout(PATIENCE)
        assert sock.recv(65536)[:1] == b"\x16"
        flood = b"\x16\x03\x03\x00\x04\x00\x00\x00\x00" * 4096
        ended = False
        for _ in range(2000):  # 70 MB at most
            try:
                sock.sendall(flood)
            except OSError:
                ended = True
                break
        assert ended
        sock.close()
        expect.refusal(hello.result(PATIENCE), 502, "upstream-unreachable", "not-sent")
        expect.relayed(gw.call(f"/other/{mark}-other", 5, f"{mark}-other"))
