"""Mails through the gateway to a Postfix on loopback, and back out of its maildir. Started by postfix.sh."""

import email
import email.message
import email.policy
import json
import pathlib
import socket
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from gateway import Gateway, eventually  # noqa: E402

MAIL = {
    "from": "Zoë <zoe@jobs.example>", "to": ["Ann Ö <ann@home.example>", "nobody@home.example"], "bcc": ["jörg@home.example"],
    "subject": "Größe " * 30 + "!", "text": "Grüße\n.\n..\n" + "x" * 3000, "html": "<p>ü</p>",
    "attachments": [{"filename": "ä.bin", "content_type": "application/octet-stream", "content": "AAEC"}],
}


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def main():
    port, inbox = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    eventually(lambda: listens(port), what="Postfix")
    delivered = lambda: [email.message_from_bytes(f.read_bytes(), policy=email.policy.default) for f in inbox.glob("*")]
    with tempfile.TemporaryDirectory() as folder:
        gw = Gateway(folder, [{"name": "mail", "path": "/mail", "kind": "smtp", "upstream": f"smtp://127.0.0.1:{port}",
                               "smtp": {"starttls": "off"}}]).start()
        try:
            check(gw, delivered)
        finally:
            gw.end()


def check(gw, delivered):
    as_json = [("Content-Type", "application/json")]
    answer = gw.call("/mail", 5, "k", headers=as_json, body=json.dumps(MAIL).encode())
    assert answer.status == 202 and answer.json["accepted"] == ["ann@home.example", "jörg@home.example"], answer
    assert answer.json["reply"].startswith("250 2.0.0 Ok: queued as "), answer
    (refused,) = answer.json["rejected"]
    assert refused["address"] == "nobody@home.example" and refused["reply"].startswith("550 5.1.1 "), answer
    eventually(lambda: len(delivered()) == 2, what="the delivery to two mailboxes")
    for mail in delivered():
        assert mail["Subject"] == MAIL["subject"] and mail["From"] == MAIL["from"] and mail["Bcc"] is None, mail
        texts, attachment = mail.iter_parts()
        plain, html = texts.iter_parts()
        assert plain.get_content() == MAIL["text"] and html.get_content() == MAIL["html"], mail
        assert attachment.get_filename() == "ä.bin" and attachment.get_content() == b"\0\1\2", mail

    message = email.message.EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@jobs.example", "ann@home.example", "as it is"
    message.set_content("hi\n.\nMAIL FROM:<x@x>\n")
    envelope = [("Content-Type", "message/rfc822"), ("Envelope-From", "a@jobs.example"), ("Envelope-To", "ann@home.example")]
    assert gw.call("/mail", 6, "k", headers=envelope, body=message.as_bytes()).status == 202
    eventually(lambda: len(delivered()) == 3, what="the third delivery")
    (raw,) = [mail for mail in delivered() if mail["Subject"] == "as it is"]
    assert raw.get_content() == message.get_content(), raw

    answer = gw.call("/mail", 7, "k", headers=as_json, body=json.dumps({**MAIL, "to": ["nobody@home.example"], "bcc": []}).encode())
    assert answer.status == 422 and "550 5.1.1" in answer.json["detail"], answer
    assert gw.call("/mail", 6, "k", headers=as_json, body=json.dumps(MAIL).encode()).status == 412
    print("  PASS   postfix: mails from JSON and as they are, one recipient refused, all refused, a stale one")


if __name__ == "__main__":
    main()
