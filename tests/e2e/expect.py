"""What every refusal owes its reader, in one place."""

import re

TITLES = {}  # reason -> title: one reason, one title


def refusal(answer, status, reason, effect="not-sent", method="POST", **members):
    """Status, effect, problem body with all members, headers that stop or pace repeats."""
    assert answer.status == status, answer
    assert answer.complete, answer
    assert answer.effect == effect, answer
    assert answer.get("Content-Type") == "application/problem+json; charset=utf-8", answer
    if method == "HEAD":
        assert answer.body == b""
    else:
        problem(answer, reason, members)
    no_retry = 400 <= status < 500 or effect in ("unknown", "sent")
    for name in ("Stripe-Should-Retry", "X-Should-Retry"):
        if no_retry:
            assert answer.get(name) == "false", answer
        elif status in (502, 503, 504):
            assert answer.get(name) is None, answer
    if status == 503:
        assert re.fullmatch("[1-9][0-9]*", answer.get("Retry-After") or ""), answer
    else:
        assert answer.get("Retry-After") is None, answer


def problem(answer, reason, members):
    body = answer.json
    assert body["type"] == f"urn:fencegate:problem:{reason}"
    assert body["reason"] == reason
    assert body["status"] == answer.status
    assert body["effect"] == answer.effect
    assert isinstance(body["detail"], str) and body["detail"]
    assert body["title"] and body["message"] == body["title"] and body["Message"] == body["title"]
    assert TITLES.setdefault(reason, body["title"]) == body["title"]
    assert body["ErrorCode"] == 0 and body["ErrorCode"] is not False
    assert body["error"] == {"type": "fencegate_error", "code": reason, "message": body["detail"]}
    for name in ("token", "highest", "audit_id"):
        assert name not in body or re.fullmatch("[1-9][0-9]*", body[name]), f"{name} is no decimal string: {body}"
    for name, value in members.items():
        assert body.get(name) == value, f"{name}: {body}"


def record(found, **members):
    """One audit record: its members, the shape of those that are always there."""
    assert re.fullmatch("[1-9][0-9]*", found["id"]), found
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["time"]), found
    for name in ("token", "highest", "effect_id"):
        assert name not in found or re.fullmatch("[1-9][0-9]*", found[name]), found
    if "client" in found:
        assert re.fullmatch(r"127\.0\.0\.1:\d+", found["client"]), found
    for name, value in members.items():
        if value is None:
            assert name not in found, f"{name} does not apply: {found}"
        else:
            assert found.get(name) == value, f"{name}: {found}"


def relayed(answer, status=200, body=b"ok", effect="sent"):
    """The partner's own answer."""
    assert answer.status == status, answer
    assert answer.effect == effect, answer
    assert answer.complete and answer.body == body, answer
    for name in ("Stripe-Should-Retry", "X-Should-Retry", "Retry-After"):
        assert answer.get(name) is None, answer
