"""Mail routes: what the relay gets, what the worker is told, and that the final dot is the moment of no return."""

import base64
import contextlib
import email
import email.header
import email.policy
import json
import pathlib
import re
import socket
import ssl
import subprocess
import threading
import time

import pytest

import expect
from client import Connection, fenced, request
from gateway import PATIENCE, SANITIZED, eventually, route
from relay import Held, Relay, Stuck, close, reset, silent

JSON = ("Content-Type", "application/json")
RAW = ("Content-Type", "message/rfc822")
PLAIN = {"from": "a@jobs.example", "to": ["b@home.example"], "subject": "hello", "text": "hi\n"}


@pytest.fixture(scope="module")
def shared():
    relay = Relay()
    yield relay
    relay.close()


@pytest.fixture
def relay(shared):
    shared.begin()
    yield shared
    assert not shared.errors, shared.errors


def mail_route(relay, name="mail", **settings):
    smtp = {"starttls": "off", **settings.pop("smtp", {})}
    return {"name": name, "path": "/" + name, "kind": "smtp", "upstream": relay if isinstance(relay, str) else relay.url,
            "smtp": smtp, **settings}


@pytest.fixture(scope="module")
def gw(shared, partner, tmp_path_factory):
    from gateway import Gateway
    routes = [
        mail_route(shared),
        mail_route(shared, "greet", timeout={"connect": "300ms", "total": "20s"}),
        mail_route(shared, "short", timeout={"connect": "20s", "total": "1200ms"}),
        mail_route(shared, "flooded", timeout={"connect": "20s", "total": "2s"}),
        mail_route(shared, "abort", on_supersede="abort"),
        mail_route(shared, "off", fence={"mode": "off"}),
        mail_route(shared, "observe", fence={"mode": "observe"}),
        mail_route(shared, "again", retry_connect=3),
        mail_route(shared, "named", smtp={"hello_name": "jobs.example", "message_id_domain": "id.example"}),
        route(partner),
    ]
    gateway = Gateway(tmp_path_factory.mktemp("mail"), routes, workers=1).start()
    yield gateway
    gateway.end()


def send(gw, mail, token, key, path="/mail", **options):
    return gw.call(path, token, key, headers=[JSON], body=json.dumps(mail).encode(), **options)


def send_off(gw, mail, token, key, path="/mail", **options):
    return gw.send_off(path, token, key, headers=[JSON], body=json.dumps(mail).encode(), **options)


def send_raw(gw, body, token, key, sender="a@jobs.example", to="b@home.example", path="/mail"):
    envelope = [("Envelope-From", sender), ("Envelope-To", to)]
    return gw.call(path, token, key, headers=[RAW, *[(n, v) for n, v in envelope if v is not None]], body=body)


def taken(answer, accepted=("b@home.example",), rejected=(), effect="sent"):
    assert answer.status == 202 and answer.effect == effect, answer
    assert answer.get("Content-Type") == "application/json"
    body = answer.json
    assert set(body) <= {"message_id", "reply", "accepted", "rejected"}, body
    assert body["accepted"] == list(accepted), body
    assert [(r["address"], r["reply"]) for r in body["rejected"]] == list(rejected), body
    return body


def parse(mail):
    return email.message_from_bytes(mail.data, policy=email.policy.SMTP)


def settled(gw, mark, kind, **members):
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind=kind, **members)
    return found


# -- what the relay gets


def test_a_mail_from_json(gw, relay, mark):
    mail = {
        "from": "Zoë Müller <zoe@bücher.example>",
        "to": ["Ann Other <ann@home.example>", '"Doe, John" <john@home.example>'],
        "cc": ["cc@home.example"], "bcc": ["secret@home.example", "ANN@other.example"], "reply_to": ["r@jobs.example"],
        "subject": "Größe: " + "lange Wörter " * 12, "text": "Grüße\n.\n..\nFrom here\n" + "x" * 2000 + "\n",
        "html": "<p>Grüße &amp; more</p>", "headers": {"X-Campaign": "ß", "List-Unsubscribe": "<https://x.example/" + "u" * 300 + ">"},
        "attachments": [
            {"filename": "Rechnung März – lang " + "ä" * 60 + ".pdf", "content_type": "application/pdf",
             "content": base64.b64encode(bytes(range(256)) * 40).decode()},
            {"filename": 'a "quoted" name.txt', "content_type": "text/plain; charset=utf-8", "content": ""},
        ],
    }
    answer = send(gw, mail, 5, mark)
    everybody = ["ann@home.example", "john@home.example", "cc@home.example", "secret@home.example", "ANN@other.example"]
    body = taken(answer, everybody)
    assert body["reply"] == "250 2.0.0 queued"
    (got,) = relay.mails
    assert got.sender == "zoe@xn--bcher-kva.example" and got.recipients == everybody
    message = parse(got)
    assert not message.defects
    assert message["From"].addresses[0].display_name == "Zoë Müller"
    assert message["From"].addresses[0].addr_spec == "zoe@xn--bcher-kva.example"
    assert [(a.display_name, a.addr_spec) for a in message["To"].addresses] == [
        ("Ann Other", "ann@home.example"), ("Doe, John", "john@home.example")]
    assert message["Cc"] == "cc@home.example" and message["Reply-To"] == "r@jobs.example"
    assert message["Subject"] == mail["subject"].strip()
    assert message["X-Campaign"] == "ß" and message["List-Unsubscribe"] == mail["headers"]["List-Unsubscribe"]
    assert message["Message-ID"] == f"<{body['message_id']}>" and message["MIME-Version"] == "1.0"
    assert message["Date"].datetime.utcoffset().total_seconds() == 0
    assert b"secret" not in got.data and message["Bcc"] is None
    assert message.get_content_type() == "multipart/mixed"
    texts, first, second = message.iter_parts()
    assert texts.get_content_type() == "multipart/alternative"
    plain, html = texts.iter_parts()
    assert plain.get_content().replace("\r\n", "\n") == mail["text"] and html.get_content() == mail["html"]
    assert first.get_filename() == mail["attachments"][0]["filename"] and first.get_content() == bytes(range(256)) * 40
    assert second.get_filename() == mail["attachments"][1]["filename"] and second.get_content() == ""
    assert max(got.raw) < 0x80 and max(map(len, got.raw.split(b"\r\n"))) <= 998
    assert b"\r" not in got.raw.replace(b"\r\n", b"") and b"\n" not in got.raw.replace(b"\r\n", b"")
    settled(gw, mark, "sent", status=202, upstream_status=250, route="mail", method="POST", effect_id=answer.effect_id)
    assert gw.fence(mark) == 5


def test_names_and_ids_by_the_settings(gw, relay, mark):
    ids = {taken(send(gw, PLAIN, 5, mark, "/named"))["message_id"] for _ in range(3)}
    assert len(ids) == 3 and all(re.fullmatch(r"[0-9a-f]{32}@id\.example", i) for i in ids)
    assert relay.commands[0][1] == "EHLO jobs.example"


@pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "a\r\nb", "ä", ".", ".\n.\n", "trailing  \n\ttab\t\n", "=3D=", "x" * 76, "x" * 77 + "\n",
                                  "日本語の本文です。\n" * 50, "€" * 1000, "From me\n", "\x01\x02"])
def test_texts_come_out_as_they_went_in(gw, relay, mark, text):
    taken(send(gw, {**PLAIN, "text": text, "html": text}, 5, mark))
    (got,) = relay.mails
    for part in parse(got).iter_parts():
        assert part.get_content().replace("\r\n", "\n") == text.replace("\r\n", "\n")
    assert max(got.raw) < 0x80 and max(map(len, got.raw.split(b"\r\n"))) <= 78


@pytest.mark.parametrize("name", ["A B", "A.B", 'q"uote', "back\\slash", "=?UTF-8?B?QQ==?=", "Ünï", "x" * 200, "emoji 😀" * 20, "a, b", "a  b", "a" + " " * 2000 + "b"])
def test_names_come_out_as_they_went_in(gw, relay, mark, name):
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    taken(send(gw, {**PLAIN, "to": [f'"{quoted}" <b@home.example>'], "subject": name}, 5, mark))
    message = parse(relay.mails[0])
    assert max(map(len, relay.mails[0].raw.split(b"\r\n"))) <= 998
    assert message["To"].addresses[0].addr_spec == "b@home.example" and message["Subject"] == name
    (raw,) = re.findall(rb"^To: (.*?)[ \r\n]+<b@home.example>\r\n", relay.mails[0].data, re.M | re.S)
    if raw.startswith(b"=?"):  # the parser of Python 3.11 keeps the blanks between encoded words in a phrase
        assert str(email.header.make_header(email.header.decode_header(raw.decode()))) == name
    else:
        assert message["To"].addresses[0].display_name == name


def test_the_same_mailbox_twice_gets_one_mail(gw, relay, mark):
    taken(send(gw, {**PLAIN, "to": ["b@home.example", "B <b@HOME.example>"], "cc": ["b@home.example"]}, 5, mark))
    assert relay.mails[0].recipients == ["b@home.example"]


def test_only_hidden_recipients(gw, relay, mark):
    taken(send(gw, {"from": "a@jobs.example", "bcc": ["b@home.example"], "html": ""}, 5, mark))
    assert b"home.example" not in relay.mails[0].raw


def test_a_message_as_it_is(gw, relay, mark):
    body = b"Subject: x\r\nBcc: kept@home.example\r\nMessage-Id:\r\n <abc@def>\r\n\r\n.dot\r\n..\r\nno end"
    answer = send_raw(gw, body, 5, mark, "<a@jobs.example>", " b@home.example , <c@home.example>")
    assert taken(answer, ["b@home.example", "c@home.example"])["message_id"] == "abc@def"
    assert relay.mails[0].data == body + b"\r\n"
    assert b"\r\n..dot\r\n...\r\n" in relay.mails[0].raw
    settled(gw, mark, "sent", request_bytes=len(body))


def test_long_lines_of_a_message_stay_as_they_are(gw, relay, mark):
    """RFC 5321 bounds a line at 998 bytes; the relay knows whether it takes more, and breaking one would break a signature."""
    body = b"Subject: x\r\n\r\n" + b"a" * 998 + b"\r\n" + b"b" * 999 + b"\r\n" + b"c" * 70000 + b"\r\n"
    taken(send_raw(gw, body, 5, mark))
    assert relay.mails[0].data == body
    relay.on("DOT", "550 maximum allowed line length is 998 octets, got 999")
    expect.refusal(send_raw(gw, body, 5, mark), 422, "message-refused")


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\r\n", b"\n\r"])
def test_bare_line_ends_do_not_end_a_message(gw, relay, mark, end):
    trick = b"Subject: a" + end * 2 + b"one" + end + b"." + end + b"MAIL FROM:<evil@x>" + end + b"." + end
    answer = send_raw(gw, trick, 5, mark)
    assert "message_id" not in taken(answer)
    (got,) = relay.mails
    assert got.data == re.sub(b"\r\n|\r|\n", b"\r\n", trick)
    assert "evil" not in str(relay.commands)


def test_the_null_sender(gw, relay, mark):
    taken(send_raw(gw, b"Subject: bounce\r\n\r\n", 5, mark, "<>"))
    assert relay.mails[0].sender == ""


def test_eight_bit_only_where_the_relay_takes_it(gw, relay, mark):
    body = "Subject: x\r\n\r\nGrüße\r\n".encode()
    taken(send_raw(gw, body, 5, mark))
    assert "BODY=8BITMIME" in relay.mails[0].parameters and relay.mails[0].data == body
    relay.begin()
    relay.on("EHLO", "250 relay.test")
    expect.refusal(send_raw(gw, body, 5, mark), 422, "message-refused")
    taken(send(gw, {**PLAIN, "text": "Grüße"}, 5, mark))
    assert relay.verbs().count("MAIL") == 1 and max(relay.mails[0].raw) < 0x80


def test_a_local_part_that_is_not_ascii_needs_smtputf8(gw, relay, mark):
    mail = {**PLAIN, "to": ["jörg@home.example"]}
    taken(send(gw, mail, 5, mark), ["jörg@home.example"])
    assert "SMTPUTF8" in relay.mails[0].parameters and "jörg@home.example".encode() in relay.mails[0].raw
    relay.begin()
    relay.on("EHLO", "250-relay.test\r\n250 8BITMIME")
    expect.refusal(send(gw, mail, 5, mark), 422, "message-refused")
    assert "MAIL" not in relay.verbs()


# -- what is no mail

ATTACHMENT = {"filename": "a", "content_type": "text/plain", "content": ""}
MALFORMED = {
    "no json": b"{", "no object": b"[]", "empty": b"", "member twice": b'{"from":"a@b.c","from":"a@b.c","to":["b@c.d"],"text":""}',
    "inner member twice": b'{"from":"a@b.c","to":["b@c.d"],"text":"","headers":{"X":"1","X":"2"}}',
    "nul": b'{"from":"a@b.c","to":["b@c.d"],"text":"\\u0000"}', "no utf-8": b'{"from":"a@b.c","to":["b@c.d"],"text":"\xff"}',
    "unknown member": {"cc_": []}, "no from": {"from": None}, "from a list": {"from": ["a@b.c"]}, "no text": {"text": None},
    "text a number": {"text": 5}, "no recipient": {"to": []}, "to a string": {"to": "b@c.d"}, "subject a list": {"subject": ["x"]},
    "two in one": {"to": ["b@c.d, c@d.e"]}, "two named in one": {"to": ["B <b@c.d>, C <c@d.e>"]}, "no at": {"to": ["bob"]},
    "no domain": {"to": ["bob@"]}, "no local part": {"to": ["@c.d"]}, "two ats": {"to": ["a@b@c.d"]}, "blank": {"to": ["a b@c.d"]},
    "dots": {"to": ["a..b@c.d"]}, "bad label": {"to": ["a@-c.d"]}, "bad literal": {"to": ["a@[1.2.3]"]}, "group": {"to": ["g: a@b.c;"]},
    "line break in address": {"to": ["b@c.d>\r\nRCPT TO:<evil@x"]}, "line break in quotes": {"to": ['"a\r\nb"@c.d']},
    "brackets": {"to": ["<b@c.d> SIZE=1>"]}, "line break in name": {"to": ["a\nBcc: e@x <b@c.d>"]},
    "line break in from": {"from": "a\r\nX: y <a@b.c>"}, "line break in bcc": {"bcc": ["a\r@b.c"]}, "line break in reply_to": {"reply_to": ["a\n <b@c.d>"]},
    "line break in subject": {"subject": "a\r\nBcc: e@x"}, "bare cr in subject": {"subject": "a\rb"}, "bare lf in subject": {"subject": "a\nb"},
    "line break in header": {"headers": {"X-A": "a\r\nBcc: e@x"}}, "bare cr in header": {"headers": {"X-A": "\r"}},
    "line break in header name": {"headers": {"X-A\r\nBcc": "e@x"}}, "colon in header name": {"headers": {"X-A: b": "c"}},
    "empty header name": {"headers": {"": "c"}}, "header no string": {"headers": {"X-A": 1}}, "header twice": {"headers": {"X-A": "1", "x-a": "2"}},
    **{f"header {name}": {"headers": {name: "x"}} for name in ("From", "to", "CC", "Bcc", "Sender", "Reply-To", "Date", "Message-ID",
                                                                "Subject", "MIME-Version", "Content-Type", "content-x")},
    "word of 1000": {"headers": {"X-A": "x" * 1000}}, "1000 blanks in a row": {"headers": {"X-A": "a" + " " * 1000 + "b"}},
    "word behind many blanks": {"headers": {"X-A": "a" + " " * 500 + "x" * 500}},
    "attachment no base64": {"attachments": [{**ATTACHMENT, "content": "a"}]}, "attachment not padded": {"attachments": [{**ATTACHMENT, "content": "YQ"}]},
    "attachment with blanks": {"attachments": [{**ATTACHMENT, "content": "YWJj\nYWJj"}]}, "url base64": {"attachments": [{**ATTACHMENT, "content": "_-8="}]},
    "line break in filename": {"attachments": [{**ATTACHMENT, "filename": "a\r\nb"}]}, "no filename": {"attachments": [{"content_type": "a/b", "content": ""}]},
    "line break in type": {"attachments": [{**ATTACHMENT, "content_type": "text/plain\r\nX: y"}]}, "no type": {"attachments": [{**ATTACHMENT, "content_type": "text"}]},
    "multipart": {"attachments": [{**ATTACHMENT, "content_type": "multipart/mixed; boundary=x"}]}, "unknown in attachment": {"attachments": [{**ATTACHMENT, "x": 1}]},
    "too many": {"to": [f"u{i}@c.d" for i in range(1001)]}, "a flood of values": b'{"to":[' + b"1," * 30000 + b"1]}",
}


def test_malformed_messages(gw, relay, mark):
    for name, change in MALFORMED.items():
        body = change if isinstance(change, bytes) else json.dumps(
            {k: v for k, v in {**PLAIN, **change}.items() if v is not None}).encode()
        answer = gw.call("/mail", 5, mark, headers=[JSON], body=body)
        assert answer.reason == "malformed-message", f"{name}: {answer}"
        expect.refusal(answer, 400, "malformed-message")
    records = gw.audit(key=mark)
    assert len(records) == len(MALFORMED)
    for record in records:
        expect.record(record, kind="rejected", reason="malformed-message", status=400, effect_id=None, token="5")
    assert relay.commands == [] and gw.fence(mark) is None
    answer = send(gw, {**PLAIN, "reply-to-SECRET": []}, 5, mark)
    assert "reply_to" in answer.json["detail"] and '"reply-to-SECRET"' in answer.json["detail"]
    gw.wait_log(lambda line: line.get("audit_id") == answer.json["audit_id"])
    assert "SECRET" not in "".join(gw.stderr)


def test_malformed_heads(gw, relay, mark):
    body = json.dumps(PLAIN).encode()
    raw = b"Subject: x\r\n\r\nx\r\n"
    ok = [RAW, ("Envelope-From", "a@b.c"), ("Envelope-To", "b@c.d")]
    cases = [
        ([], body), ([("Content-Type", "text/plain")], body), ([JSON, JSON], body), ([("Content-Type", "application/jsonx")], body),
        ([JSON, ("Content-Encoding", "gzip")], body),
        ([JSON, ("Content-Encoding", "gzip"), ("Content-Encoding", "identity")], body), (ok[:2], raw), ([ok[0], ok[2]], raw), ([*ok, ok[1]], raw), ([*ok, ok[2]], raw),
        ([*ok[:2], ("Envelope-To", "")], raw), ([*ok[:2], ("Envelope-To", "a@b.c,")], raw), ([*ok[:2], ("Envelope-To", "<>")], raw),
        ([*ok[:2], ("Envelope-To", "Name <a@b.c>")], raw), ([ok[0], ("Envelope-From", ""), ok[2]], raw), (ok, b""), (ok, b"a\0b"),
        ([*ok[:2], ("Envelope-To", "a@b.c> SIZE=1")], raw),
    ]
    for headers, content in cases:
        answer = gw.call("/mail", 5, mark, headers=headers, body=content)
        expect.refusal(answer, 400, "malformed-message")
    assert len(gw.audit(key=mark, kind="rejected")) == len(cases) and relay.commands == []
    taken(gw.call("/mail", 5, mark, headers=[("content-type", "Application/JSON; charset=utf-8"), ("Content-Encoding", "identity")], body=body))


@pytest.mark.parametrize("method,headers,status,reason", [
    ("PUT", [JSON], 405, "method-not-allowed"), ("POST", [("Content-Type", "text/plain")], 400, "malformed-message"), ("POST", [], 400, "malformed-message"),
    ("POST", [RAW, ("Envelope-From", "a@b.c")], 400, "malformed-message"), ("POST", [JSON, ("Content-Encoding", "gzip")], 400, "malformed-message")])
def test_what_the_head_settles_waits_for_no_large_body(gw, relay, mark, method, headers, status, reason):
    with gw.connect() as connection:
        connection.send(request(method, "/mail", [*fenced(5, mark), *headers, ("Content-Length", 1000), ("Expect", "100-continue")]))
        answer = connection.receive()
    expect.refusal(answer, status, reason)
    assert answer.interim == [] and answer.get("Allow") == ("POST" if status == 405 else None)
    settled(gw, mark, "rejected", reason=reason, status=status, effect_id=None)
    raise_fence(gw, mark, 6)
    with gw.connect() as connection:
        connection.send(request(method, "/mail", [*fenced(5, mark), *headers, ("Content-Length", 1000), ("Expect", "100-continue")]))
        expect.refusal(connection.receive(), 412, "stale-token", highest="6")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "post"])
def test_only_post(gw, relay, mark, method):
    answer = gw.call("/mail", 5, mark, method=method)
    expect.refusal(answer, 405, "method-not-allowed", method=method)
    assert answer.get("Allow") == "POST"
    settled(gw, mark, "rejected", reason="method-not-allowed", status=405, method=method, effect_id=None)
    assert gw.fence(mark) is None and relay.commands == []


def test_a_stale_worker_is_told_that_whatever_it_sends(gw, relay, mark):
    taken(send(gw, PLAIN, 6, mark))
    for options in ({"method": "GET"}, {"headers": [JSON], "body": b"{"}, {}):
        expect.refusal(gw.call("/mail", 5, mark, **options), 412, "stale-token")
    expect.refusal(gw.call("/mail", None, mark), 428, "missing-token")
    expect.refusal(gw.call("/mail", 7, mark, headers=[JSON], body=b"{"), 400, "malformed-message")
    assert gw.fence(mark) == 6 and len(relay.mails) == 1


def test_without_a_fence(gw, relay, mark):
    taken(send(gw, PLAIN, None, None, "/off"), effect="unfenced")
    expect.refusal(gw.call("/off", method="GET"), 405, "method-not-allowed")
    expect.refusal(gw.call("/off", headers=[JSON], body=b""), 400, "malformed-message")
    taken(send(gw, PLAIN, 6, mark, "/observe"))
    taken(send(gw, PLAIN, 5, mark, "/observe"))
    expect.refusal(gw.call("/observe", 5, mark, headers=[JSON], body=b""), 400, "malformed-message")
    assert len(relay.mails) == 3


# -- what the relay did

OUTCOMES = [
    ("MAIL", "550 5.7.1 not you", 422, "message-refused", "550 5.7.1 not you"),
    ("RCPT", "550 5.1.1 nobody", 422, "message-refused", "550 5.1.1 nobody"),
    ("DATA", "554 5.0.0 no", 422, "message-refused", "554 5.0.0 no"),
    ("DOT", "554 5.7.1 spam", 422, "message-refused", "554 5.7.1 spam"),
    ("BANNER", "421 4.3.2 later", 503, "relay-busy", "421 4.3.2 later"),
    ("EHLO", "421 later", 503, "relay-busy", "421 later"),
    ("MAIL", "451 4.3.0 later", 503, "relay-busy", "451 4.3.0 later"),
    ("RCPT", "450 4.2.0 greylisted", 503, "relay-busy", "450 4.2.0 greylisted"),
    ("RCPT", "421 closing", 503, "relay-busy", "421 closing"),
    ("DATA", "451 later", 503, "relay-busy", "451 later"),
    ("MAIL", "250 ok\r\n421 closing", 503, "relay-busy", "421 closing"), ("DOT", "554 spam\r\n421 closing", 422, "message-refused", "554 spam"),
    ("DOT", "452 4.3.1 disk full", 503, "relay-busy", "452 4.3.1 disk full"),
    ("BANNER", "554 go away", 502, "upstream-unreachable", "554 go away"),
    ("EHLO", "550 no", 502, "upstream-unreachable", "550 no"),
    ("EHLO", "502 only HELO here", 502, "upstream-unreachable", ""),
    ("EHLO", "354 go on", 502, "upstream-unreachable", "354 go on"),
    *[(point, action, 502, "upstream-unreachable", "The connection to the relay was lost") for point in ("BANNER", "EHLO")
      for action in (close, reset)],
    *[(point, action, 502, "upstream-unreachable", "") for point in ("MAIL", "RCPT", "DATA") for action in (close, reset)],
    *[(point, "nonsense", 502, "upstream-unreachable", "") for point in ("BANNER", "EHLO", "MAIL", "RCPT", "DATA")],
    ("MAIL", "354 what", 502, "upstream-unreachable", ""), ("DATA", "250 fine", 502, "upstream-unreachable", ""),
    ("RCPT", "250 ok\r\n250 again", 502, "upstream-unreachable", ""),
    ("MAIL", "250-a\r\n251 b", 502, "upstream-unreachable", ""), ("MAIL", "999 x", 502, "upstream-unreachable", ""),
    ("DOT", close, 502, "upstream-failed", ""), ("DOT", reset, 502, "upstream-failed", ""), ("DOT", "nonsense", 502, "upstream-failed", ""),
    ("DOT", "354 more", 502, "upstream-failed", ""), ("DOT", lambda s: (s.say(b"25"), close(s)), 502, "upstream-failed", ""),
    ("DOT", lambda s: (s.say("250-half"), close(s)), 502, "upstream-failed", ""), ("DOT", "199 x", 502, "upstream-failed", ""),
    *[(point, silent, 504, "upstream-timeout", "") for point in ("BANNER", "EHLO", "MAIL", "RCPT", "DATA", "DOT")],
]


@pytest.mark.parametrize("point,action,status,reason,detail", OUTCOMES,
                         ids=[f"{p}-{a.__name__ if callable(a) else a.split()[0]}" for p, a, *_ in OUTCOMES])
def test_what_the_relay_did(gw, relay, mark, point, action, status, reason, detail):
    relay.on(point, action)
    after = point == "DOT" and status in (502, 504)
    path = "/mail" if action is not silent else "/greet" if point in ("BANNER", "EHLO") else "/short"
    answer = send(gw, PLAIN, 5, mark, path)
    expect.refusal(answer, status, reason, "unknown" if after else "not-sent")
    assert detail in answer.json["detail"]
    found = settled(gw, mark, "unknown" if after else "not-sent", reason=reason, status=status, effect_id=answer.effect_id)
    if detail[:3].isdigit() and point not in ("BANNER", "EHLO"):
        assert found["upstream_status"] == int(detail[:3])
    assert relay.mails == [] and relay.dots == (1 if point == "DOT" else 0) and relay.verbs().count("MAIL") <= 1
    assert gw.fence(mark) == 5
    if after:
        assert [e["id"] for e in gw.admin("/v1/effects?state=in-doubt").json["effects"]] == []
        resolved = gw.admin(f"/v1/effects/{answer.effect_id}/resolve", "POST", body=b'{"outcome":"sent","note":"asked"}')
        assert resolved.status == 200
    relay.script = {}
    taken(send(gw, PLAIN, 5, mark + "-after"))


@pytest.mark.parametrize("said,status,reason", [
    ("552 5.3.4 too big", 422, "message-refused"), ("451 disk", 503, "relay-busy"), ("250 already", 502, "upstream-unreachable"),
    ("nonsense", 502, "upstream-unreachable"), (None, 502, "upstream-unreachable"), ("", 504, "upstream-timeout")])
def test_what_the_relay_did_inside_the_message(gw, relay, mark, said, status, reason):
    stuck = Stuck(said or None)
    relay.on("MESSAGE", close if said is None else stuck)
    answer = send_raw(gw, b"Subject: x\r\n\r\n" + (b"x" * 70 + b"\r\n") * 100_000, 5, mark, path="/mail" if said != "" else "/short")
    stuck.go.set()
    expect.refusal(answer, status, reason)
    settled(gw, mark, "not-sent", reason=reason)
    assert relay.mails == [] and relay.dots == 0


@pytest.mark.parametrize("reply", ["250 ok", "251 will forward", "252 maybe", "250-two\r\n250 lines", "299", "250"])
def test_any_2xx_is_taken(gw, relay, mark, reply):
    relay.on("RCPT", reply)
    relay.on("DOT", reply)
    body = taken(send(gw, PLAIN, 5, mark))
    assert body["reply"] == {"250-two\r\n250 lines": "250 two lines"}.get(reply, reply)


def test_some_recipients_refused(gw, relay, mark):
    relay.refused = {"b@home.example": "550-5.1.1 no\r\n550 such user", "d@home.example": "450 later"}
    mail = {**PLAIN, "to": ["a@home.example", "b@home.example"], "cc": ["c@home.example"], "bcc": ["d@home.example"]}
    answer = send(gw, mail, 5, mark)
    taken(answer, ["a@home.example", "c@home.example"], [("b@home.example", "550 5.1.1 no such user"), ("d@home.example", "450 later")])
    assert relay.mails[0].recipients == ["a@home.example", "c@home.example"]
    relay.refused.update({"a@home.example": "550 x", "c@home.example": "550 y"})
    answer = send(gw, mail, 5, mark)
    expect.refusal(answer, 503, "relay-busy")
    assert "450 later" in answer.json["detail"] and answer.get("Retry-After")
    relay.refused["d@home.example"] = "551 z"
    expect.refusal(send(gw, mail, 5, mark), 422, "message-refused")
    assert len(relay.mails) == 1
    eventually(lambda: relay.verbs().count("QUIT") == 2)  # nobody hangs up on the relay


def test_endless_replies(gw, relay, mark):
    many = "".join(f"250-line {i} \x1b[31m\t{'x' * 100}\r\n" for i in range(10000)) + "250 end"
    relay.on("DOT", many)
    reply = taken(send(gw, PLAIN, 5, mark))["reply"]
    assert reply.startswith("250 line 0 ?[31m?xxx") and len(reply) == 2048
    relay.on("MAIL", "250-" + "y" * 3_000_000 + "\r\n250 ok")
    relay.on("DOT", "550 " + "é" * 3000)
    answer = send(gw, PLAIN, 5, mark)
    expect.refusal(answer, 422, "message-refused")
    assert "550 " + "é" * 1022 in answer.json["detail"] and "�" not in answer.json["detail"]


@pytest.mark.parametrize("point,reason,effect", [("MAIL", "upstream-timeout", "not-sent"), ("DOT", "upstream-timeout", "unknown")])
def test_a_relay_that_never_stops_talking_holds_nobody_else(gw, relay, partner, mark, point, reason, effect):
    lines = (b"250-" + b"x" * 70 + b"\r\n") * 20_000

    def flood(session):
        with contextlib.suppress(OSError):
            while True:
                session.sock.sendall(lines)
        session.end()

    relay.on(point, flood)
    began = time.monotonic()
    call = send_off(gw, PLAIN, 5, mark, "/flooded")
    relay.wait_verb("DATA" if point == "DOT" else "MAIL")
    while not call.done():
        asked = time.monotonic()
        expect.relayed(gw.call(f"/pay/{mark}", 5, mark + "-pay"))
        assert time.monotonic() - asked < 1
    expect.refusal(call.result(), 504, reason, effect)
    assert time.monotonic() - began < (PATIENCE / 2 if SANITIZED else 3.5)


# -- the token


def raise_fence(gw, key, token):
    answer = gw.admin(f"/v1/fences/default/{key}", "PUT", body=json.dumps({"token": str(token)}).encode())
    assert answer.status == 200, answer


@pytest.mark.parametrize("point", ["BANNER", "EHLO", "MAIL", "RCPT", "DATA"])
def test_too_late_before_the_dot(gw, relay, mark, point):
    held = Held()
    relay.on(point, held)
    call = send_off(gw, PLAIN, 5, mark)
    held.wait()
    raise_fence(gw, mark, 6)
    answer = call.result(10)
    held.release()
    expect.refusal(answer, 412, "superseded", highest="6")
    dropped = gw.wait_audit(key=mark, kind="dropped")
    expect.record(dropped[0], reason="superseded", token="5", highest="6", effect_id=answer.effect_id)
    relay.script = {}
    taken(send(gw, {**PLAIN, "subject": "next"}, 6, mark))
    assert len(relay.mails) == 1 and relay.dots == 1
    assert point not in ("BANNER", "EHLO") or relay.verbs().count("MAIL") == 1


def test_a_newer_call_goes_first_while_the_message_is_under_way(gw, relay, mark):
    held = Held()
    relay.on("DATA", held)
    old = send_off(gw, {**PLAIN, "subject": "old"}, 5, mark)
    held.wait()
    relay.script = {}
    taken(send(gw, {**PLAIN, "subject": "new"}, 6, mark))
    held.release()
    expect.refusal(old.result(10), 412, "superseded")
    assert [parse(m)["Subject"] for m in relay.mails] == ["new"]


def test_behind_the_dot_a_newer_call_waits(gw, relay, mark):
    held = Held()
    relay.on("DOT", held)
    old = send_off(gw, {**PLAIN, "subject": "old"}, 5, mark)
    held.wait()
    relay.script = {}
    new = send_off(gw, {**PLAIN, "subject": "new"}, 6, mark)
    eventually(lambda: gw.fence(mark) == 6)
    assert not new.done() and relay.dots == 1
    held.release()
    taken(old.result(10))
    taken(new.result(10))
    assert [parse(m)["Subject"] for m in relay.mails] == ["old", "new"]


def test_abort_behind_the_dot_is_unknown(gw, relay, mark):
    held = Held()
    relay.on("DOT", held)
    old = send_off(gw, PLAIN, 5, mark, "/abort")
    held.wait()
    relay.script = {}
    taken(send(gw, PLAIN, 6, mark, "/abort"))
    expect.refusal(old.result(10), 502, "aborted", "unknown")
    held.release()


def test_a_slow_relay_holds_nobody_else(gw, relay, partner, mark):
    held = Held()
    relay.on("DOT", held)
    slow = send_off(gw, PLAIN, 5, mark)
    held.wait()
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark + "-pay"))  # one worker: the same loop
    assert not slow.done()
    held.release()
    taken(slow.result(10))


def test_a_client_that_leaves_changes_nothing(gw, relay, mark):
    held = Held()
    relay.on("MAIL", held)
    with Connection(gw.port) as connection:
        connection.send(request("POST", "/mail", [*fenced(5, mark), JSON], json.dumps(PLAIN).encode()))
        held.wait()
    held.release()
    settled(gw, mark, "sent", status=202)
    assert len(relay.mails) == 1


# -- sessions


def test_a_session_serves_many_mails(gw, relay, mark):
    for i in range(120):
        taken(send(gw, PLAIN, 5, mark))
    sessions = {m.connection for m in relay.mails}
    assert len(relay.mails) == 120 and len(sessions) == 2  # 100 at most on one
    relay.on("DOT", "554 spam")
    expect.refusal(send(gw, PLAIN, 5, mark), 422, "message-refused")
    relay.script = {}
    taken(send(gw, PLAIN, 5, mark))
    assert {m.connection for m in relay.mails} == sessions  # a refused message does not cost the session


@pytest.mark.parametrize("say", [b"", b"421 4.4.2 idle too long\r\n", b"250 surprise\r\n"])
def test_an_idle_session_that_ended_is_not_used(gw, relay, mark, say):
    taken(send(gw, PLAIN, 5, mark))
    session = relay.sessions[-1]
    session.sock.sendall(say)
    if not say.startswith(b"250"):
        with contextlib.suppress(OSError):  # the gateway may have closed it by now
            session.sock.shutdown(socket.SHUT_RDWR)
    taken(send(gw, PLAIN, 5, mark))
    assert len(relay.mails) == 2 and len({m.connection for m in relay.mails}) == 2 and relay.verbs().count("MAIL") == 2


@pytest.mark.parametrize("point,status,reason", [("MAIL", 502, "upstream-unreachable"), ("DOT", 502, "upstream-failed")])
def test_a_used_session_that_dies_is_not_tried_again(gw, relay, mark, point, status, reason):
    taken(send(gw, PLAIN, 5, mark, "/again"))
    relay.on(point, close)
    answer = send(gw, PLAIN, 5, mark, "/again")
    expect.refusal(answer, status, reason, "unknown" if point == "DOT" else "not-sent")
    assert relay.verbs().count("MAIL") == 2 and len({c for c, _ in relay.commands}) == 1


def test_a_relay_that_is_not_there_is_tried_again_where_that_is_set(gw, relay, mark):
    tries = []

    def first_time(session):
        tries.append(session.number)
        return close(session) if len(tries) == 1 else None

    relay.on("BANNER", first_time)
    taken(send(gw, PLAIN, 5, mark, "/again"))
    assert len(tries) == 2 and len(relay.mails) == 1


def test_a_large_message_with_many_dots(gw, relay, mark):
    body = b"Subject: x\r\n\r\n" + b".\r\n" * 400_000 + b"y" * 1000 + b"\r\n"
    taken(send_raw(gw, body, 5, mark))
    assert relay.mails[0].data == body


# -- TLS and login


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=relay", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out",
                    folder / "cert.pem"], check=True, capture_output=True)
    return folder


@pytest.fixture
def secure(certificate):
    made = []

    def make(**options):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        made.append(Relay(tls=context, **options))
        return made[-1]

    yield make
    for relay in made:
        relay.close()
        assert not relay.errors, relay.errors


def tls_route(relay, certificate, host="localhost", ca=True, name="mail", **smtp):
    scheme = "smtps" if relay.implicit else "smtp"
    tls = {"tls": {"ca_file": str(certificate / "cert.pem")}} if ca else {}
    return {"name": name, "path": "/" + name, "kind": "smtp", "upstream": f"{scheme}://{host}:{relay.port}", "smtp": smtp, **tls}


LOGIN = {"username": "u@jobs.example", "password": "p w"}


def test_tls_and_login(launch, secure, certificate, mark):
    starttls, implicit = secure(auth="PLAIN"), secure(implicit=True, auth="GSSAPI LOGIN PLAIN")
    gw = launch([tls_route(starttls, certificate, **LOGIN), tls_route(implicit, certificate, name="smtps", **LOGIN)], workers=1)
    for relay, path in ((starttls, "/mail"), (implicit, "/smtps")):
        for _ in range(2):
            taken(send(gw, {**PLAIN, "text": "x" * 300_000}, 5, mark, path))
        assert [m.login for m in relay.mails] == [[b"u@jobs.example", b"p w"]] * 2
        assert all(m.tls for m in relay.mails) and len({m.connection for m in relay.mails}) == 1
    assert "p w" not in "".join(gw.stderr)


def test_without_tls_nothing_is_said(launch, secure, certificate, relay, mark):
    other = secure()
    gw = launch([
        {"name": "none", "path": "/none", "kind": "smtp", "upstream": relay.url},
        tls_route(other, certificate, ca=False, name="unknown"), tls_route(other, certificate, host="127.0.0.1", name="name"),
        tls_route(other, certificate),
    ])
    for path in ("/none", "/unknown", "/name"):
        answer = send(gw, PLAIN, 5, mark, path)
        expect.refusal(answer, 502, "upstream-unreachable")
        assert re.search(r"[^.]\.$", answer.json["detail"])
    other.on("STARTTLS", "454 4.7.0 not now")
    expect.refusal(send(gw, PLAIN, 5, mark), 503, "relay-busy")
    other.on("STARTTLS", "502 no")
    expect.refusal(send(gw, PLAIN, 5, mark), 502, "upstream-unreachable")
    other.on("STARTTLS", b"220 go\r\n250-injected\r\n250 AUTH PLAIN\r\n")
    expect.refusal(send(gw, PLAIN, 5, mark), 502, "upstream-unreachable")
    assert "MAIL" not in relay.verbs() + other.verbs()


def test_without_a_login_nothing_is_said(launch, secure, certificate, mark):
    relay = secure()
    gw = launch(tls_route(relay, certificate, **LOGIN))
    expect.refusal(send(gw, PLAIN, 5, mark), 502, "upstream-unreachable")
    relay.on("EHLO", "235-relay.test\r\n235 8BITMIME")
    expect.refusal(send(gw, PLAIN, 5, mark), 502, "upstream-unreachable")
    relay.on("EHLO", lambda session: None if session.tls else "235-relay.test\r\n235 STARTTLS")
    expect.refusal(send(gw, PLAIN, 5, mark), 502, "upstream-unreachable")
    relay.script = {}
    relay.auth = "GSSAPI XOAUTH2"
    expect.refusal(send(gw, PLAIN, 5, mark), 502, "upstream-unreachable")
    relay.auth = "PLAIN"
    relay.on("AUTH", "535 5.7.8 wrong")
    answer = send(gw, PLAIN, 5, mark)
    expect.refusal(answer, 502, "upstream-unreachable")
    assert "535" in answer.json["detail"]
    relay.on("AUTH", "454 4.7.0 later")
    expect.refusal(send(gw, PLAIN, 5, mark), 503, "relay-busy")
    assert "MAIL" not in relay.verbs()
    relay.script = {}
    taken(send(gw, PLAIN, 5, mark))


@pytest.mark.parametrize("auth, unknown, initial, asks, wanted", [
    ("PLAIN", (), "taken", True, ["PLAIN <>"]), ("PLAIN", (), "taken", "501 5.5.4 no response", ["PLAIN <>"]),
    ("PLAIN", (), "501 5.5.4 syntax", True, ["PLAIN <>", "PLAIN"]), ("PLAIN", (), "504 5.5.4 no", True, ["PLAIN <>", "PLAIN"]),
    ("PLAIN", (), "334 ", True, ["PLAIN <>", "PLAIN"]), ("PLAIN LOGIN", ("PLAIN",), "taken", True, ["PLAIN <>", "PLAIN", "LOGIN"]),
    ("LOGIN", (), "taken", True, ["LOGIN"]), ("CRAM-MD5 LOGIN", ("CRAM-MD5",), "taken", True, ["CRAM-MD5", "LOGIN"]),
    ("CRAM-MD5 PLAIN LOGIN", ("CRAM-MD5", "PLAIN"), "taken", True, ["CRAM-MD5", "PLAIN <>", "PLAIN", "LOGIN"]),
])
def test_every_way_to_log_in_is_tried(launch, secure, certificate, mark, auth, unknown, initial, asks, wanted):
    relay = secure(auth=auth)
    relay.auth_unknown, relay.auth_initial, relay.auth_asks = unknown, initial, asks
    gw = launch(tls_route(relay, certificate, **LOGIN))
    taken(send(gw, PLAIN, 5, mark))
    tried = [re.sub(r" .+", " <>", line[5:]) for _, line in relay.commands if line.startswith("AUTH ")]
    assert tried == wanted
    assert [m.login for m in relay.mails] == [[b"u@jobs.example", b"p w"]] and relay.dots == 1
    assert "p w" not in "".join(gw.stderr)


def test_a_refused_login_says_whether_it_is_the_password(launch, secure, certificate, mark):
    relay = secure(auth="PLAIN LOGIN")
    gw = launch(tls_route(relay, certificate, **LOGIN))
    relay.auth_unknown = ("PLAIN", "LOGIN")
    answer = send(gw, PLAIN, 5, mark)
    expect.refusal(answer, 502, "upstream-unreachable")
    assert "504" in answer.json["detail"] and "ways to log in" in answer.json["detail"] and "password" not in answer.json["detail"]
    relay.auth_unknown = ()
    for reply, words in (("535 5.7.8 wrong", "user name or password: 535."), ("530 5.7.0 first something", "refused the login: 530."), ("534 5.7.9 too weak", "refused the login: 534.")):
        relay.commands.clear()
        relay.on("AUTH", reply)
        answer = send(gw, PLAIN, 5, mark)
        expect.refusal(answer, 502, "upstream-unreachable")
        assert words in answer.json["detail"], answer
        assert len([1 for _, line in relay.commands if line.startswith("AUTH")]) == 1  # a wrong password is not tried again
    assert "MAIL" not in relay.verbs()


def test_a_login_without_an_answer_ends_in_time(launch, secure, certificate, mark):
    relay = secure(auth="PLAIN LOGIN")
    relay.auth_unknown = ("PLAIN",)
    relay.on("AUTH", silent)
    gw = launch({**tls_route(relay, certificate, **LOGIN), "timeout": {"connect": "1500ms"}})
    started = time.monotonic()
    expect.refusal(send(gw, PLAIN, 5, mark), 504, "upstream-timeout")
    assert time.monotonic() - started < 4


@pytest.mark.parametrize("greeting, status, reason, words", [
    ("250 relay.test", 502, "upstream-unreachable", "greeting is not 220: 250 relay.test"), ("354 go on", 502, "upstream-unreachable", "greeting is not 220: 354"),
    ("221 bye", 502, "upstream-unreachable", "greeting is not 220: 221"), ("554 no SMTP here", 502, "upstream-unreachable", "takes no connection: 554 no SMTP here"),
    ("521 never", 502, "upstream-unreachable", "takes no connection: 521"), ("421 too busy", 503, "relay-busy", "not ready: 421 too busy"),
    ("hello", 502, "upstream-unreachable", "no SMTP"), ("220 ", 202, None, ""),
])
def test_only_220_is_a_greeting(launch, shared, relay, mark, greeting, status, reason, words):
    gw = launch(mail_route(shared))
    relay.on("BANNER", greeting)
    answer = send(gw, PLAIN, 5, mark)
    if reason is None:
        taken(answer)
    else:
        expect.refusal(answer, status, reason)
        assert words in answer.json["detail"], answer
        assert relay.verbs() == [] or greeting == "hello", relay.verbs()
    relay.on("BANNER", "220 hi")
    relay.drop()
    relay.on("EHLO", "550 not you")
    assert "refused EHLO: 550 not you" in send(gw, PLAIN, 5, mark + "-ehlo").json["detail"]


# -- the end


def test_a_shutdown_lets_a_mail_end_and_cuts_what_does_not(launch, shared, relay, mark):
    gw = launch(mail_route(shared), shutdown_grace="300ms")
    gw.expected_exit = 4
    before, after = Held(), Held()
    relay.on("DATA", before)
    one = send_off(gw, PLAIN, 5, mark)
    before.wait()
    relay.on("DATA", "354 go on")
    relay.on("DOT", after)
    two = send_off(gw, PLAIN, 5, mark + "-dot")
    after.wait()
    gw.process.terminate()
    expect.refusal(one.result(10), 503, "shutting-down")
    expect.refusal(two.result(10), 502, "shutdown-cut", "unknown")
    assert gw.wait() == 4
    before.release(), after.release()
    assert relay.dots == 1


def test_a_crash_leaves_the_mail_in_doubt(launch, shared, relay, mark):
    gw = launch(mail_route(shared))
    held = Held()
    relay.on("DOT", held)
    call = send_off(gw, PLAIN, 5, mark)
    held.wait()
    gw.kill()
    held.release()
    assert call.exception(10) is not None
    gw.start()
    (effect,) = gw.admin("/v1/effects?state=in-doubt").json["effects"]
    assert effect["key"] == mark and effect["route"] == "mail" and effect["method"] == "POST"


def test_an_idle_session_is_told_good_bye_at_the_end(launch, shared, relay, mark):
    gw = launch(mail_route(shared), workers=1)
    taken(send(gw, PLAIN, 5, mark))
    assert gw.stop() == 0
    relay.wait_verb("QUIT")


# -- large mails are made beside the loop


def thread_ticks(gw):
    """User CPU time of each thread, by its name, in ticks."""
    found = {}
    for task in pathlib.Path(f"/proc/{gw.process.pid}/task").iterdir():
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        found[name] = found.get(name, 0) + int(rest.split()[11])
    return found


@pytest.mark.parametrize("kind", ["json", "raw"])
def test_large_mails_do_not_hold_the_loop(launch, shared, relay, partner, mark, kind):
    """Ten of 7.7 MiB at once: the one loop reads and sends them, and another thread makes them."""
    gw = launch([mail_route(shared), {"name": "pay", "path": "/pay", "upstream": partner.url}], workers=1)
    large = ("x" * 69 + " y\n") * (7_700_000 // 72)
    assert "fg-composer" not in thread_ticks(gw)
    taken(send(gw, PLAIN, 5, mark))
    assert "fg-composer" not in thread_ticks(gw)  # a small one is not worth another thread
    before = thread_ticks(gw)
    if kind == "json":
        calls = [send_off(gw, {**PLAIN, "text": large}, 5, f"{mark}-{turn}") for turn in range(10)]
    else:
        headers = [RAW, ("Envelope-From", "a@jobs.example"), ("Envelope-To", "b@home.example")]
        calls = [gw.send_off("/mail", 5, f"{mark}-{turn}", headers=headers, body=b"Subject: x\r\n\r\n" + large.encode()) for turn in range(10)]
    while not all(call.done() for call in calls):
        expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    for call in calls:
        taken(call.result())
    spent = {name: ticks - before.get(name, 0) for name, ticks in thread_ticks(gw).items()}
    assert spent["fg-composer"] > spent["fg-worker-0"] or kind == "raw", spent
    assert len(relay.mails) == 11
    assert gw.metric("fencegate_buffered_bytes") == 0


def test_large_mails_are_judged_like_small_ones(launch, shared, relay, mark):
    gw = launch([mail_route(shared), {**mail_route(shared), "name": "observe", "path": "/observe", "fence": {"mode": "observe"}}], workers=1)
    large = "x" * 100_000
    taken(send(gw, {**PLAIN, "text": large}, 5, mark))
    answer = send(gw, {**PLAIN, "text": large, "sbject": ""}, 5, mark + "-new")
    expect.refusal(answer, 400, "malformed-message")
    assert '"sbject"' in answer.json["detail"]
    assert gw.fence(mark + "-new") is None
    expect.refusal(send(gw, {**PLAIN, "text": large}, 4, mark), 412, "stale-token")
    taken(send(gw, {**PLAIN, "text": large}, 6, mark))
    taken(send(gw, {**PLAIN, "text": large}, None, mark, "/observe"))
    assert gw.metric("fencegate_buffered_bytes") == 0


def test_a_client_that_leaves_while_its_large_mail_is_made_changes_nothing(launch, shared, relay, mark):
    gw = launch(mail_route(shared), workers=1)
    body = json.dumps({**PLAIN, "text": ("x" * 69 + " y\n") * 100_000}).encode()
    connections = [gw.connect() for _ in range(4)]
    for turn, connection in enumerate(connections):
        connection.send(request("POST", "/mail", [*fenced(5, f"{mark}-{turn}"), JSON], body))
    eventually(lambda: "fg-composer" in thread_ticks(gw))
    for connection in connections:
        connection.close()
    eventually(lambda: gw.metric("fencegate_buffered_bytes") == 0 and gw.metric("fencegate_in_flight") == 0)
    eventually(lambda: 1 <= len(relay.mails) == sum(len(gw.audit(key=f"{mark}-{turn}", kind="sent")) for turn in range(4)))


def test_a_shutdown_refuses_mails_that_wait_to_be_made(launch, shared, relay, mark):
    gw = launch(mail_route(shared), workers=1)
    calls = [send_off(gw, {**PLAIN, "text": ("x" * 69 + " y\n") * 100_000}, 5, f"{mark}-{turn}") for turn in range(8)]
    eventually(lambda: "fg-composer" in thread_ticks(gw))
    assert gw.stop() == 0
    answers = [call.result(30) for call in calls if call.exception(30) is None]
    assert {answer.status for answer in answers} <= {202, 503}
    assert len(relay.mails) == sum(answer.status == 202 for answer in answers)
