"""What the command line looks like and how it behaves: on a terminal, in a pipe, and while it follows."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import threading
import unicodedata

import pytest

import expect
from gateway import BINARY, PATIENCE, REPORTS, ROOT, Gateway, eventually, route, run


class Follower:
    """`fencegate audit --follow` in a pipe; `lines` grows."""

    def __init__(self, store, *arguments):
        self.lines = []
        self.process = subprocess.Popen([BINARY, "audit", "--follow", "--store", str(store), *arguments], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def wait(self, look):
        return eventually(lambda: look(list(self.lines)), what=f"the output, so far {self.lines[-5:]},")

    def ids(self):
        return [json.loads(line)["id"] for line in self.lines]

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.result()

    def result(self):
        """Exit status and standard error."""
        status = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        text = self.process.stderr.read()
        assert not any(report in text for report in REPORTS), text
        return status, text


@pytest.fixture
def follow():
    made = []

    def start(*arguments):
        made.append(Follower(*arguments))
        return made[-1]

    yield start
    for follower in made:
        if follower.process.poll() is None:
            follower.process.kill()
            follower.process.wait()


def on_terminal(*arguments, columns=80, **env):
    """Output and exit status of a command whose standard output is a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen([BINARY, *map(str, arguments)], stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                               env={**kept, "TERM": "xterm", **env})
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:
        pass  # how a terminal says that the other side is gone
    os.close(ours)
    assert not any(report in process.stderr.read().decode() for report in REPORTS)
    return seen.decode().replace("\r\n", "\n"), process.wait(PATIENCE)


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def width(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


# -- follow


def test_follow_shows_the_newest_then_what_comes(gw, follow, mark):
    for token in range(1, 5):
        gw.call(f"/pay/{mark}", token, mark)
    first = [r["id"] for r in gw.wait_audit(4, key=mark)]
    follower = follow(gw.store, "--json", "--key", mark, "--limit", "2")
    follower.wait(lambda lines: len(lines) >= 2)
    assert follower.ids() == first[-2:]
    gw.call(f"/pay/{mark}", 2, mark)
    gw.call(f"/pay/{mark}-other", 1, mark + "-other")
    gw.call(f"/pay/{mark}", 9, mark)
    every = [r["id"] for r in gw.wait_audit(6, key=mark)]
    follower.wait(lambda lines: len(lines) >= 4)
    assert follower.ids() == every[2:]
    assert follower.end() == (0, "")


@pytest.mark.parametrize("filters", [["--kind", "dropped"], ["--reason", "stale-token"], ["--namespace", "two"], ["--route", "other"]])
def test_follow_filters(launch, partner, follow, mark, filters):
    gw = launch([route(partner), route(partner, name="other", path="/other", namespace="two")])
    follower = follow(gw.store, "--json", *filters)
    for target in ("/pay", "/other"):
        for token in (5, 4, 6):
            gw.call(f"{target}/{mark}", token, mark)
    gw.wait_audit(6)
    expected = [r["id"] for r in gw.audit(**{filters[0][2:]: filters[1]})]
    follower.wait(lambda lines: len(lines) >= len(expected))
    gw.call(f"/other/{mark}", 1, mark)  # dropped, stale, two, other: fits all four
    gw.wait_audit(7)
    follower.wait(lambda lines: len(lines) > len(expected))
    assert follower.ids() == [r["id"] for r in gw.audit(**{filters[0][2:]: filters[1]})]
    assert follower.end(signal.SIGTERM) == (0, "")


def test_follow_waits_for_a_store_and_outlives_gateways(partner, tmp_path, follow, mark):
    """Started first, it sees every record once: over an orderly stop, a kill and a folder that comes late."""
    gw = Gateway(tmp_path, [route(partner)])
    follower = follow(gw.store, "--json", "--limit", "1000")
    gw.start()
    try:
        for turn in range(3):
            calls = [gw.send_off(f"/pay/{mark}", 1, f"{mark}-{turn}-{i}") for i in range(40)]
            for call in calls:
                assert call.result(PATIENCE).status == 200
            if turn == 0:
                assert gw.stop() == 0
                gw.start()
            elif turn == 1:
                gw.kill()
                gw.start()
        eventually(lambda: len(gw.audit()) >= 120 and gw.metric("fencegate_in_flight") == 0)
        expected = [r["id"] for r in gw.audit()]
        follower.wait(lambda lines: len(lines) >= len(expected))
        assert follower.ids() == expected
    finally:
        gw.end()
    status, text = follower.end()
    assert status == 0 and text.count("\n") <= 1 and ("waiting" in text or text == "")


def test_follow_notices_another_store_in_its_place(launch, partner, follow, mark):
    gw = launch(route(partner))
    for token in range(1, 6):
        gw.call(f"/pay/{mark}", token, mark)
    gw.wait_audit(5)
    follower = follow(gw.store, "--json")
    follower.wait(lambda lines: len(lines) == 5)
    assert gw.stop() == 0
    shutil.rmtree(gw.store)
    gw.start()
    gw.call(f"/pay/{mark}", 1, mark + "-new")
    (record,) = gw.wait_audit(1)
    follower.wait(lambda lines: len(lines) == 6)
    assert json.loads(follower.lines[-1]) == record
    assert follower.end()[0] == 0


def test_follow_holds_no_old_pages(gw, follow, mark):
    """Between two looks it has no reader's slot in the store: the gateway may use old pages again."""
    follower = follow(gw.store, "--json", "--key", mark)
    gw.call(f"/pay/{mark}", 1, mark)
    follower.wait(lambda lines: len(lines) == 1)

    def readers():
        shown = subprocess.run(["mdb_stat", "-r", str(gw.store)], capture_output=True, text=True, timeout=PATIENCE)
        return [line.split()[0] for line in shown.stdout.splitlines() if line.split() and line.split()[0].isdigit()]

    eventually(lambda: str(follower.process.pid) not in readers())
    assert str(gw.process.pid) in readers()  # it can be seen there when it is there
    assert follower.end() == (0, "")


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_follow_ends_when_nobody_reads_any_more(gw, mark, arguments):
    """`... | head -1`: at once, not with the next record."""
    gw.call(f"/pay/{mark}", 1, mark)
    gw.wait_audit(1, key=mark)
    process = subprocess.Popen([BINARY, "audit", "-f", "-c", gw.config, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(PATIENCE) == 0
    assert process.stderr.read() == b""


def test_follow_ends_by_a_signal_although_its_reader_stalls(launch, partner, mark):
    gw = launch(route(partner))
    calls = [gw.send_off(f"/pay/{'x' * 500}", 1, f"{mark}-{i}") for i in range(150)]
    for call in calls:
        call.result(PATIENCE)
    gw.wait_audit(150)
    process = subprocess.Popen([BINARY, "audit", "-f", "--limit", "1000", "--json", "-c", gw.config], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    eventually(lambda: blocked(process.pid), what="the stall")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    assert process.stderr.read() == b""


def blocked(pid):
    """In a write that does not end, as /proc shows it (the number of write(2) is 1 on x86-64, 64 on arm64)."""
    try:
        return open(f"/proc/{pid}/syscall").read().split()[0] in ("1", "64")
    except PermissionError:
        return False


def test_follow_and_until_do_not_go_together(gw):
    done = gw.command("audit", "--follow", "--until", "1h")
    assert done.returncode == 2 and done.stdout == "" and "--until" in done.stderr


def test_following_text_stays_in_columns(launch, partner, follow, mark):
    gw = launch(route(partner))
    gw.call(f"/pay/{mark}", 5, "k")
    gw.wait_audit(1)
    follower = follow(gw.store)
    follower.wait(lambda lines: len(lines) == 2)
    gw.call(f"/pay/{mark}/much-longer-than-before", 4, "a-longer-key")
    gw.call("/pay", 3, "k")  # brings a reason, which no row had: the titles come again
    gw.wait_audit(3)
    follower.wait(lambda lines: len(lines) >= 5)
    assert follower.end() == (0, "")
    titles = [i for i, line in enumerate(follower.lines) if line.startswith("TIME ")]
    assert 2 <= len(titles) and "REASON" not in follower.lines[0] and "REASON" in follower.lines[titles[-1]]
    row = follower.lines[-1]
    assert row.index("dropped") == follower.lines[titles[-1]].index("KIND")
    assert row.index("stale-token") == follower.lines[titles[-1]].index("REASON")


# -- the terminal


@pytest.fixture(scope="module")
def shown(partner, tmp_path_factory):
    """A gateway with records of many shapes."""
    gw = Gateway(tmp_path_factory.mktemp("shown"), [route(partner)]).start()
    for key in (b"order-17", "注文-十七".encode(), "cafe\u0301".encode(), "e\u202e\u2066".encode()):
        gw.call("/pay/" + "long/" * 30, 5, key)
        gw.call("/pay/x", 4, key)
    gw.wait_audit(8)
    yield gw
    gw.end()


def test_colours_on_a_terminal_alone(shown):
    text, status = on_terminal("audit", "-c", shown.config)
    assert status == 0
    assert "\x1b[31mdropped\x1b[0m" in text and "\x1b[1mTIME\x1b[0m" in text and "\x1b[1mKIND" in text
    assert not re.search(r"\x1b\[[0-9;]*msent", text)  # what went well does not shout
    assert not set(plain(text)) & set("\x1b\u202e\u2066")  # nothing of it came from a key
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}):
        text, status = on_terminal("audit", "-c", shown.config, **env)
        assert status == 0 and "\x1b" not in text and "dropped" in text
    assert "\x1b" in on_terminal("audit", "-c", shown.config, NO_COLOR="")[0]
    assert "\x1b" not in on_terminal("audit", "-c", shown.config, "--json")[0]
    assert "\x1b" not in shown.command("audit").stdout


def test_a_long_path_is_cut_on_a_terminal_and_nowhere_else(shown):
    path = "/pay/" + "long/" * 30
    text, status = on_terminal("audit", "-c", shown.config, columns=220)
    rows = plain(text).splitlines()
    assert status == 0 and path not in text and all(width(row) <= 220 for row in rows), [width(row) for row in rows]
    assert sum(row.count("\u2026") for row in rows) == 4
    assert all("order-17" in row or "POST /pay/long" in row or row.startswith("TIME") or "/pay/x" in row for row in rows)
    piped = shown.command("audit").stdout
    assert piped.count(path) == 4 and "\u2026" not in piped
    assert path in on_terminal("audit", "-c", shown.config, columns=500)[0]  # there is room
    assert path in on_terminal("audit", "-c", shown.config, "--json", columns=40)[0]


def test_keys_and_tokens_are_never_cut(shown):
    text, status = on_terminal("audit", "-c", shown.config, columns=20)
    assert status == 0
    for whole in ("order-17", "注文-十七", "stale-token", "dropped", "default", "127.0.0.1:"):
        assert whole in text


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
def test_columns_stand_below_their_titles_whatever_the_key_is_written_in(shown, locale):
    done = run("audit", "-c", shown.config, "--kind", "dropped", env={**os.environ, "LC_ALL": locale})
    title, *rows = done.stdout.splitlines()
    assert len(rows) == 4
    for row in rows:
        before = row[:row.index(" 4  ") + 1]  # the token's column
        assert width(before) == title.index("TOKEN"), (title, row)


def test_times_are_local_with_their_offset(shown):
    done = run("audit", "-c", shown.config, "--limit", "1", env={**os.environ, "TZ": "XYZ-05:45"})
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+0545 ", done.stdout, re.M)


# -- what to do next


def test_errors_say_what_to_do(shown, tmp_path):
    done = run("audit", "--store", tmp_path / "none")
    assert done.returncode == 3 and "fencegate check -c" in done.stderr and len(done.stderr.splitlines()) == 1
    checked = run("check", "-c", shown.config)
    assert checked.returncode == 0 and str(shown.store) in checked.stdout and "pay" in checked.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can be somebody else")
def test_a_store_of_somebody_else_says_so(shown):
    done = run("audit", "--store", shown.store, preexec_fn=lambda: os.seteuid(65534) or os.setresuid(65534, 65534, 65534))
    assert done.returncode == 3 and "the user that owns the store" in done.stderr, done


def test_what_is_not_found_has_a_hint(shown):
    for arguments, hint in [(["--key", "Order-17"], "order-17 in namespace default"),
                            (["--key", "order-17", "--namespace", "two"], "order-17 in namespace default"),
                            (["--key", "order-17", "--kind", "unknown"], "leave out")]:
        done = shown.command("audit", *arguments)
        assert done.returncode == 0 and done.stdout == "" and hint in done.stderr, done
        assert shown.command("audit", "--json", *arguments).stderr == ""
    done = shown.command("fences", "get", "ORDER-17")
    assert done.returncode == 1 and "order-17 in namespace default" in done.stderr
    nothing = shown.command("audit", "--key", "nobody-knows")
    assert nothing.stderr == "fencegate audit: no record matches\n"


def test_closed_standard_output_is_an_error_and_reaches_no_file_of_the_store(shown):
    before = {file.name: file.stat().st_size for file in shown.store.iterdir()}
    done = subprocess.run(f"exec {BINARY} audit -c {shown.config} >&-", shell=True, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 3 and "standard output" in done.stderr
    assert {file.name: file.stat().st_size for file in shown.store.iterdir()} == before
    assert run("audit", "-c", shown.config).returncode == 0
    full = subprocess.run(f"exec {BINARY} audit -c {shown.config} >/dev/full", shell=True, capture_output=True, text=True, timeout=PATIENCE)
    assert full.returncode == 3 and "No space" in full.stderr


def test_a_story_keeps_the_clients(launch, partner, mark):
    gw = launch(route(partner))
    expect.relayed(gw.call(f"/pay/{mark}", 41, mark))
    client = gw.wait_audit(1, key=mark)[0]["client"]
    reason = "the lock service says that the worker on machine 7 is gone for good"
    assert gw.command("fences", "raise", mark, "42", "--reason", reason).returncode == 0
    text, status = on_terminal("history", mark, "-c", gw.config, columns=100)
    assert status == 0 and f"call {client}" in text and reason not in text and "\u2026" in text, text


# -- completion and manual


def completed(*words, env=None):
    """What bash offers for the last of the words."""
    script = 'source "$COMPLETION"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fencegate; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", BINARY, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "COMPLETION": str(ROOT / "config" / "fencegate.bash-completion"), **(env or {})})
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout.split()


def commands():
    """The names in `fencegate help`, each with the options of its own help."""
    names = re.findall(r"^  ([a-z]+) {2,}\S", run("help").stdout, re.M)
    assert {"serve", "check", "audit", "fences", "history", "effects", "version", "help"} <= set(names)
    return {name: re.findall(r"^  (?:-., |    )(--[a-z-]+)", run("help", name).stdout, re.M) for name in names}


def test_completion_knows_every_command_and_option():
    known = commands()
    assert completed("") == list(known) and completed("help", "") == list(known) and completed("au") == ["audit"]
    for name, options in known.items():
        assert "--help" in options
        if name != "help":
            assert completed(name, "--") == options


def test_completion_of_words_and_values(shown, tmp_path):
    assert completed("fences", "") == ["list", "get", "raise", "reset"]
    assert completed("effects", "-c", shown.config, "r") == ["resolve"]
    assert completed("fences", "get", "") == [] and completed("fences", "get", "--n") == ["--namespace"]
    assert completed("audit", "--kind", "d") == ["dropped"] and completed("audit", "--kind", "=", "re") == ["rejected", "reset", "resolved"]
    reasons = completed("audit", "--reason", "=")
    assert {"stale-token", "superseded", "gateway-crash", "upstream-failed"} <= set(reasons) and "no-route" not in reasons
    assert completed("fences", "raise", "k", "5", "--reason", "") == []
    assert completed("audit", "--limit", "") == [] and completed("audit", "--key", "-") == []
    assert completed("audit", "-c", shown.config, "--route", "") == ["pay"]
    assert completed("audit", "--config", "=", shown.config, "--route", "=", "p") == ["pay"]
    (tmp_path / "store").mkdir()
    (tmp_path / "settings.json").write_text("")
    assert completed("check", "-c", f"{tmp_path}/set") == [f"{tmp_path}/settings.json"]
    assert completed("audit", "--store", f"{tmp_path}/s") == [f"{tmp_path}/store"]


def test_the_manual_has_every_command_and_option():
    text = (ROOT / "config" / "fencegate.1").read_text().replace("\\-", "-")
    for name, options in commands().items():
        assert re.search(rf'^\.(B|BI) "?{name}\b', text, re.M), name
        for option in options:
            assert option in text, option
        for action in re.findall(rf"^(?:usage:|      ) fencegate {name} ([a-z-]+)", run("help", name).stdout, re.M):
            assert re.search(rf'^\.(B|BI) "?{name} {action}\b', text, re.M), (name, action)
    for other in ("NO_COLOR", "SIGHUP", "SIGTERM", "admin.token", "data.mdb", "EXIT STATUS"):
        assert other in text


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff")
def test_the_manual_is_sound():
    done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", ROOT / "config" / "fencegate.1"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and done.stderr == "" and "receipt 4711" in done.stdout
