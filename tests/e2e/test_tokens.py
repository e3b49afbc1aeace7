"""The token is a decision about money: what is no plain decimal number is refused, what is one is compared exactly."""

import pytest

import expect

BAD = {
    "empty": b"", "blanks": b"   ", "zero": b"0", "zeros": b"0" * 20, "minus": b"-1", "minus zero": b"-0", "plus": b"+5",
    "letter behind": b"5x", "letter before": b"x5", "hex": b"0x10", "hex digits": b"1f", "exponent": b"1e3",
    "decimal point": b"5.0", "decimal comma": b"5,0", "list": b"5, 6", "inner space": b"4 2", "inner tab": b"4\t2",
    "quotes": b'"5"', "semicolon": b"5;", "underscore": b"1_000", "apostrophe": b"1'000", "octal": b"0o17", "nan": b"NaN",
    "infinity": b"Infinity", "null": b"null", "true": b"true", "percent": b"%35", "arabic digit": "٥".encode(),
    "fullwidth digit": "５".encode(), "superscript": "²".encode(), "no-break space": "5\u00a0".encode(),
    "byte order mark": "\ufeff5".encode(), "21 digits": b"000000000000000000005", "10 kB of digits": b"1" * 10_000,
    "2^64": b"18446744073709551616", "2^64+5": b"18446744073709551621", "20 nines": b"9" * 20,
    "2^128": b"340282366920938463463374607431768211456", "latin-1": b"5\xb2",
}


@pytest.mark.parametrize("token", BAD.values(), ids=BAD.keys())
def test_a_bad_token_is_refused_and_leaves_no_trace_in_the_fence(gw, partner, mark, token):
    answer = gw.call(f"/pay/{mark}", token, mark, body=b"amount=1")
    expect.refusal(answer, 400, "malformed-token")
    assert partner.seen(mark) == []
    assert gw.fence(mark) is None
    (found,) = gw.audit(key=mark)
    expect.record(found, kind="rejected", reason="malformed-token", token=None, status=400)
    expect.relayed(gw.call(f"/pay/{mark}", 1, mark))
    assert gw.fence(mark) == 1


GOOD = {
    "one": (b"1", 1), "zero-padded": (b"007", 7), "20 digits padded": (b"00000000000000000042", 42),
    "2^53-1": (b"9007199254740991", 2**53 - 1), "2^53": (b"9007199254740992", 2**53),
    "2^53+1": (b"9007199254740993", 2**53 + 1), "2^63-1": (b"9223372036854775807", 2**63 - 1),
    "2^63": (b"9223372036854775808", 2**63), "2^64-1": (b"18446744073709551615", 2**64 - 1),
    "blanks around": (b"  5 \t ", 5),
}


@pytest.mark.parametrize("token,value", GOOD.values(), ids=GOOD.keys())
def test_a_good_token_is_taken_exactly(gw, partner, mark, token, value):
    expect.relayed(gw.call(f"/pay/{mark}", token, mark))
    assert gw.fence(mark) == value
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="sent", token=str(value))
    expect.relayed(gw.call(f"/pay/{mark}", value, mark))
    if value > 1:
        answer = gw.call(f"/pay/{mark}", value - 1, mark)
        expect.refusal(answer, 412, "stale-token", token=str(value - 1), highest=str(value))
    assert len(partner.seen(mark)) == 2


@pytest.mark.parametrize("lower,higher", [("9", "10"), ("99", "100"), ("09", "10"), ("9007199254740992", "9007199254740993"),
                                          ("9223372036854775807", "9223372036854775808"),
                                          ("18446744073709551614", "18446744073709551615")])
def test_tokens_are_compared_as_numbers(gw, mark, lower, higher):
    expect.relayed(gw.call(f"/pay/{mark}", lower, mark))
    expect.relayed(gw.call(f"/pay/{mark}", higher, mark))
    expect.refusal(gw.call(f"/pay/{mark}", lower, mark), 412, "stale-token")
    assert gw.fence(mark) == int(higher)


BAD_KEYS = {
    "empty": b"", "blanks": b"  \t", "256 bytes": b"k" * 256, "10 kB": b"k" * 10_000, "256 bytes of UTF-8": "é".encode() * 128,
    "inner tab": b"a\tb", "latin-1": b"caf\xe9", "lone continuation": b"a\x80", "cut sequence": b"a\xe2\x82",
    "overlong slash": b"a\xc0\xaf", "overlong NUL": b"a\xc0\x80", "surrogate": b"a\xed\xa0\x80",
    "past U+10FFFF": b"a\xf4\x90\x80\x80", "five bytes": b"a\xf8\x88\x80\x80\x80", "0xff": b"a\xff",
}


@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS.keys())
def test_a_bad_key_is_refused(gw, partner, mark, key):
    answer = gw.call(f"/pay/{mark}", 5, key)
    expect.refusal(answer, 400, "malformed-key")
    assert partner.seen(mark) == []
    (found,) = [r for r in gw.audit(reason="malformed-key") if r["path"] == f"/pay/{mark}"]
    expect.record(found, kind="rejected", key=None, status=400)


@pytest.mark.parametrize("byte", [1, 7, 8, 0x0b, 0x0c, 0x1b, 0x1f, 0x7f])
def test_a_control_byte_in_a_key_is_refused(gw, partner, mark, byte):
    answer = gw.call(f"/pay/{mark}", 5, b"order" + bytes([byte]) + b"17")
    assert (answer.status, answer.effect) == (400, "not-sent"), answer
    assert partner.seen(mark) == []


GOOD_KEYS = {
    "one byte": b"k", "255 bytes": b"k" * 255, "255 bytes of UTF-8": "é".encode() * 127 + b"k", "slashes": b"a/b//c",
    "percent": b"100%25", "space inside": b"order 17", "comma": b"a,b", "quotes": b'"a"', "colon": b"order:17", "dots": b"..",
    "emoji": "🧾-17".encode(), "C1 control": "a\u0085b".encode(), "line separator": "a\u2028b".encode(),
    "right-to-left override": "a\u202eb".encode(), "U+10FFFF": "a\U0010ffff".encode(), "backslash": b"a\\b", "query": b"a?b#c",
}


@pytest.mark.parametrize("key", GOOD_KEYS.values(), ids=GOOD_KEYS.keys())
def test_a_good_key_has_its_own_fence(gw, partner, mark, key):
    expect.relayed(gw.call(f"/pay/{mark}", 5, key))
    assert gw.fence(key) == 5
    answer = gw.call(f"/pay/{mark}", 4, key)
    expect.refusal(answer, 412, "stale-token", key=key.decode())
    assert len(partner.seen(mark)) == 1
    found = gw.wait_audit(2, key=key.decode())
    assert [r["kind"] for r in found] == ["sent", "dropped"]


def test_keys_are_compared_byte_by_byte(gw, mark):
    spellings = [mark.encode() + s for s in (b"-A", b"-a", "-é".encode(), "-e\u0301".encode(), b"-", b"-a ".strip() + b"b")]
    for token, key in enumerate(spellings, 1):
        expect.relayed(gw.call(f"/pay/{mark}", token, key))
    for token, key in enumerate(spellings, 1):
        assert gw.fence(key) == token


def test_namespaces_keep_equal_keys_apart(launch, new_partner, mark):
    partner = new_partner()
    gw = launch([route_in(partner, "a"), route_in(partner, "b"), {**route_in(partner, "a"), "name": "a2", "path": "/a2"}])
    expect.relayed(gw.call("/a", 9, mark))
    expect.relayed(gw.call("/b", 3, mark))
    expect.refusal(gw.call("/a2", 8, mark), 412, "stale-token", namespace="space-a")  # one namespace, two routes
    assert (gw.fence(mark, "space-a"), gw.fence(mark, "space-b"), gw.fence(mark)) == (9, 3, None)


def route_in(partner, name):
    return {"name": name, "path": f"/{name}", "upstream": partner.url, "namespace": f"space-{name}"}
