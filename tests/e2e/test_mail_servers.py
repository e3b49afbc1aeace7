"""Mail routes with a relay that others have written: aiosmtpd, with STARTTLS and login, and its own reading of SMTP."""

import email
import email.message
import email.policy
import json
import socket
import ssl
import subprocess

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

import expect
from gateway import PATIENCE, eventually


class Inbox:
    """Keeps what came; refuses one recipient."""

    def __init__(self):
        self.mails = []

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody@"):
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        self.mails.append((envelope, session.ssl is not None, session.authenticated))
        return "250 2.0.0 queued as 1"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=relay", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out",
                    folder / "cert.pem"], check=True, capture_output=True)
    return folder


@pytest.fixture
def server(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    inbox = Inbox()

    def login(server, session, envelope, mechanism, data):
        return AuthResult(success=(data.login, data.password) == (b"me", b"secret"), handled=False)

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    controller = Controller(inbox, hostname="127.0.0.1", port=port, tls_context=context, require_starttls=True,
                            auth_required=True, authenticator=login, enable_SMTPUTF8=True, ready_timeout=PATIENCE)
    controller.start()
    inbox.port = port
    yield inbox
    controller.stop()


def mail_route(server, certificate, password="secret", name="mail"):
    return {"name": name, "path": "/" + name, "kind": "smtp", "upstream": f"smtp://localhost:{server.port}",
            "smtp": {"username": "me", "password": password}, "tls": {"ca_file": str(certificate / "cert.pem")}}


def test_aiosmtpd(launch, server, certificate, mark):
    gw = launch([mail_route(server, certificate), mail_route(server, certificate, "wrong", "wrong")])
    mail = {"from": "Zoë <zoe@jobs.example>", "to": ["jörg@home.example", "nobody@home.example"], "subject": "Grüße",
            "text": "Grüße\n.\n", "attachments": [{"filename": "ä.bin", "content_type": "a/b", "content": "AAEC"}]}
    answer = gw.call("/mail", 5, mark, headers=[("Content-Type", "application/json")], body=json.dumps(mail).encode())
    assert answer.status == 202 and answer.effect == "sent", answer
    assert answer.json["accepted"] == ["jörg@home.example"] and answer.json["reply"] == "250 2.0.0 queued as 1"
    assert answer.json["rejected"] == [{"address": "nobody@home.example", "reply": "550 5.1.1 no such user"}]
    envelope, tls, login = server.mails[0]
    assert tls and login and envelope.smtp_utf8 and envelope.rcpt_tos == ["jörg@home.example"]
    message = email.message_from_bytes(envelope.original_content, policy=email.policy.SMTPUTF8)
    text, attachment = message.iter_parts()
    assert text.get_content().replace("\r\n", "\n") == mail["text"] and attachment.get_payload(decode=True) == b"\0\1\2"
    answer = gw.call("/wrong", 5, mark, headers=[("Content-Type", "application/json")], body=json.dumps(mail).encode())
    expect.refusal(answer, 502, "upstream-unreachable")
    assert len(server.mails) == 1


def test_a_message_of_pythons_own_library(launch, server, certificate, mark):
    gw = launch(mail_route(server, certificate))
    message = email.message.EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@jobs.example", "b@home.example", "Grüße"
    message["Message-ID"] = "<one@jobs.example>"
    message.set_content("Grüße\n.\n..\n" + "x" * 2000)
    message.add_attachment(bytes(range(256)), maintype="application", subtype="octet-stream", filename="ä.bin")
    headers = [("Content-Type", "message/rfc822"), ("Envelope-From", "a@jobs.example"), ("Envelope-To", "b@home.example")]
    for body in (message.as_bytes(), message.as_bytes(policy=email.policy.SMTP)):  # with LF, with CRLF
        answer = gw.call("/mail", 5, mark, headers=headers, body=body)
        assert answer.status == 202 and answer.json["message_id"] == "one@jobs.example", answer
        eventually(lambda: server.mails)
        envelope = server.mails.pop()[0]
        assert envelope.original_content == message.as_bytes(policy=email.policy.SMTP)
