"""Reads the Prometheus text format 0.0.4 and minds every rule of it, and of the naming conventions, on the way."""

import collections
import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
UNITS = ("_seconds", "_bytes", "_total", "_info")
FOREIGN_UNITS = {"milliseconds", "microseconds", "ms", "us", "kb", "mib", "percent", "minutes", "hours", "days"}


class Family:
    def __init__(self, name, kind, text):
        self.name, self.kind, self.help = name, kind, text
        self.samples = {}  # (sample name, labels) -> value


def labels_of(text):
    found, at = {}, 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, f"labels: {text!r}"
        assert match[1] not in found and not match[1].startswith("__"), text
        found[match[1]] = match[2]
        at = match.end()
    assert not text.endswith(","), text
    return tuple(sorted(found.items()))


def parse(text):
    """{family name: Family}"""
    assert text.endswith("\n") and "\r" not in text and "\n\n" not in text
    families, current, expected = {}, None, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            match = re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line)
            assert match and match[1] not in families, f"HELP twice or broken: {line}"
            expected = (match[1], match[2])
            continue
        if line.startswith("# TYPE "):
            match = re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line)
            assert match and expected and match[1] == expected[0], f"TYPE without its HELP before it: {line}"
            current = families[match[1]] = Family(match[1], match[2], expected[1])
            expected = None
            continue
        match = re.fullmatch(rf"({NAME})(?:\{{(.*)\}})? ([0-9]+(?:\.[0-9]+)?)", line)
        assert match and expected is None and current, f"no sample: {line}"
        suffix = match[1][len(current.name):]
        assert match[1].startswith(current.name) and suffix in SUFFIXES.get(current.kind, ("",)), f"{line} is not of {current.name}"
        key = (match[1], labels_of(match[2] or ""))
        assert key not in current.samples, f"twice: {line}"
        current.samples[key] = float(match[3])
    assert expected is None
    for family in families.values():
        check_name(family)
        check_labels(family)
        if family.kind == "histogram":
            check_histogram(family)
    return families


def check_name(family):
    name = family.name
    assert re.fullmatch(r"(fencegate|process)_[a-z][a-z0-9_]*", name), name
    assert (family.kind == "counter") == name.endswith("_total"), f"{name} is a {family.kind}"
    assert not FOREIGN_UNITS & set(name.split("_")), f"{name}: base units are seconds and bytes"
    assert not name.endswith(SUFFIXES["histogram"]) and not re.search("_(counter|gauge|histogram)$", name), name
    for unit in UNITS:
        assert unit not in name or name.endswith((unit, unit + "_total")), f"{name}: the unit comes last"
    assert len(family.help) > 10 and family.help.endswith("."), name


def check_labels(family):
    shapes = {tuple(name for name, _ in labels if name != "le") for _, labels in family.samples}
    assert len(shapes) <= 1, f"{family.name}: series with different labels {shapes}"


def check_histogram(family):
    series = collections.defaultdict(list)
    for (name, labels), value in family.samples.items():
        rest = tuple(label for label in labels if label[0] != "le")
        assert (name.endswith("_bucket")) == (rest != labels), name
        if name.endswith("_bucket"):
            series[rest].append((dict(labels)["le"], value))
    for rest, buckets in series.items():
        bounds = [math.inf if le == "+Inf" else float(le) for le, _ in buckets]
        assert bounds == sorted(set(bounds)) and bounds[-1] == math.inf, f"{family.name}{rest}: bounds {bounds}"
        counts = [count for _, count in buckets]
        assert counts == sorted(counts), f"{family.name}{rest}: buckets are cumulative"
        assert family.samples[(family.name + "_count", rest)] == counts[-1], rest
        total = family.samples[(family.name + "_sum", rest)]
        assert counts[-1] > 0 or total == 0, rest
    for name, labels in family.samples:
        assert name.endswith("_bucket") or labels in series, f"{name}{labels} without buckets"


class Metrics:
    """One scrape. m("fencegate_waiting", route="pay") sums what has these labels; None when there is no such series."""

    def __init__(self, text):
        self.text, self.families = text, parse(text)
        self.samples = {key: value for family in self.families.values() for key, value in family.samples.items()}

    def __call__(self, name, **labels):
        found = [value for (each, has), value in self.samples.items() if each == name and labels.items() <= dict(has).items()]
        return sum(found) if found else None


def scrape(gw):
    answer = gw.admin("/metrics", token=None)
    assert answer.status == 200 and answer.get("Content-Type") == "text/plain; version=0.0.4; charset=utf-8", answer
    return Metrics(answer.body.decode())
