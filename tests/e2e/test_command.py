"""The command line, the configuration's errors, reload and shutdown."""

import fcntl
import json
import signal
import subprocess

import pytest

import expect
from client import fenced, request
from gateway import BINARY, ROOT, Gateway, eventually, route, run
from partner import Held


def test_version_and_help():
    version = run("version")
    assert version.returncode == 0 and version.stdout.strip() and version.stderr == ""
    assert any(c.isdigit() for c in version.stdout)
    helped = run("help")
    assert helped.returncode == 0 and helped.stderr == ""
    for word in ("serve", "check", "audit", "version", "help", "-c"):
        assert word in helped.stdout


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["serve"], ["check"], ["serve", "-x"], ["check", "-c"], ["audit"],
                                       ["serve", "-c", "/dev/null", "more"]])
def test_wrong_usage_is_exit_2(arguments):
    done = run(*arguments)
    assert done.returncode == 2, done
    assert done.stdout == "" and done.stderr


@pytest.mark.parametrize("name", ["serve", "check", "audit"])
def test_a_missing_file_is_exit_2(tmp_path, name):
    done = run(name, "-c", tmp_path / "missing.json")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "missing.json" in done.stderr


GOOD = {"routes": [{"name": "a", "path": "/a", "upstream": "http://127.0.0.1:1"}]}


def check(folder, text):
    file = folder / "gate.json"
    file.write_text(text if isinstance(text, str) else json.dumps(text))
    return run("check", "-c", file)


def test_the_smallest_configuration_is_good(tmp_path):
    done = check(tmp_path, GOOD)
    assert done.returncode == 0, done


def test_check_starts_and_makes_nothing(tmp_path):
    check(tmp_path, GOOD)
    assert [p.name for p in tmp_path.iterdir()] == ["gate.json"]


def with_route(**settings):
    return {"routes": [{**GOOD["routes"][0], **settings}]}


BAD = {
    "unknown key": ({**GOOD, "lisen": {}}, "lisen"),
    "unknown key inside": ({**GOOD, "limits": {"bodie": "1MiB"}}, "bodie"),
    "unknown key of a route": (with_route(strippath=True), "strippath"),
    "unknown key of a fence": (with_route(fence={"mod": "off"}), "mod"),
    "wrong type": ({**GOOD, "workers": "two"}, "workers"),
    "number for a size": ({**GOOD, "limits": {"body": 8}}, "body"),
    "bad unit of a size": ({**GOOD, "limits": {"body": "8MB"}}, "body"),
    "no unit": ({**GOOD, "limits": {"body": "8"}}, "body"),
    "negative size": ({**GOOD, "limits": {"body": "-8MiB"}}, "body"),
    "size past 64 bits": ({**GOOD, "limits": {"body": "99999999999999999999GiB"}}, "body"),
    "bad unit of a duration": ({**GOOD, "shutdown_grace": "30sec"}, "shutdown_grace"),
    "fraction of a duration": ({**GOOD, "shutdown_grace": "1.5s"}, "shutdown_grace"),
    "port too large": ({**GOOD, "listen": {"port": 65536}}, "port"),
    "port negative": ({**GOOD, "listen": {"port": -1}}, "port"),
    "address no address": ({**GOOD, "listen": {"address": "nowhere at all"}}, "address"),
    "no routes": ({}, "routes"),
    "empty routes": ({"routes": []}, "routes"),
    "routes no array": ({"routes": {}}, "routes"),
    "no name": ({"routes": [{"path": "/a", "upstream": "http://127.0.0.1"}]}, "name"),
    "no path": ({"routes": [{"name": "a", "upstream": "http://127.0.0.1"}]}, "path"),
    "no upstream": ({"routes": [{"name": "a", "path": "/a"}]}, "upstream"),
    "path without slash": (with_route(path="a"), "path"),
    "upstream without scheme": (with_route(upstream="127.0.0.1:80"), "upstream"),
    "upstream of another scheme": (with_route(upstream="ftp://127.0.0.1"), "upstream"),
    "upstream with user info": (with_route(upstream="http://u:p@127.0.0.1"), "upstream"),
    "upstream with query": (with_route(upstream="http://127.0.0.1/?x"), "upstream"),
    "two routes of one name": ({"routes": [*GOOD["routes"], {**GOOD["routes"][0], "path": "/b"}]}, "name"),
    "two routes of one path": ({"routes": [*GOOD["routes"], {**GOOD["routes"][0], "name": "b"}]}, "path"),
    "two routes of one path but a slash": ({"routes": [*GOOD["routes"], {**GOOD["routes"][0], "name": "b", "path": "/a/"}]}, "path"),
    "misspelt mode": (with_route(fence={"mode": "enforced"}), "mode"),
    "misspelt equal": (with_route(fence={"equal": "yes"}), "equal"),
    "max_jump as a number": (with_route(fence={"max_jump": 1000}), "max_jump"),
    "max_jump of zero": (with_route(fence={"max_jump": "0"}), "max_jump"),
    "max_jump past 64 bits": (with_route(fence={"max_jump": "18446744073709551616"}), "max_jump"),
    "stale_status out of range": (with_route(stale_status=503), "stale_status"),
    "missing_status out of range": (with_route(missing_status=200), "missing_status"),
    "header name no token": (with_route(fence={"token_header": "Fencing Token"}), "token_header"),
    "misspelt ledger": (with_route(ledger="all"), "ledger"),
    "misspelt rule": (with_route(on_supersede="wait"), "on_supersede"),
    "namespace too long": (with_route(namespace="n" * 65), "namespace"),
    "namespace with a slash": (with_route(namespace="a/b"), "namespace"),
    "namespace empty": (with_route(namespace=""), "namespace"),
    "secret file missing": (with_route(request_headers={"set": {"A": {"file": "none"}}}), "A"),
    "secret not in the environment": (with_route(request_headers={"set": {"A": {"env": "E2E_NOT_SET"}}}), "A"),
    "empty header value": (with_route(request_headers={"set": {"A": ""}}), "A"),
    "line feed in a header value": (with_route(request_headers={"set": {"A": "b\nc"}}), "A"),
    "mail route over http": (with_route(kind="smtp"), "upstream"),
    "webhook route": ({"routes": [{"name": "a", "path": "/a", "kind": "webhook"}]}, "kind"),
    "unknown kind": (with_route(kind="http2"), "kind"),
}


@pytest.mark.parametrize("config,names", BAD.values(), ids=BAD.keys())
def test_a_bad_configuration_is_one_line_with_file_and_path(tmp_path, config, names):
    done = check(tmp_path, config)
    assert done.returncode == 2, done
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1, done
    assert "gate.json" in done.stderr and names in done.stderr, done.stderr
    started = run("serve", "-c", tmp_path / "gate.json")
    assert started.returncode == 2 and started.stdout == "" and len(started.stderr.splitlines()) == 1, started
    assert "gate.json" in started.stderr


@pytest.mark.parametrize("text,line", [('{"routes": [\n  {"name": "a",}\n]}', "2"), ('{\n"workers": 1,\n"workers": 2\n}', "3"), ("", "1"), ("[]", ""),
                                       ('{"routes": []}\n{}', "2"), ('{"log": {"level": "\xff"}}', "")])
def test_bad_json_names_the_line(tmp_path, text, line):
    done = check(tmp_path, text)
    assert done.returncode == 2, done
    assert len(done.stderr.splitlines()) == 1 and "gate.json" in done.stderr and line in done.stderr, done.stderr


def test_a_secret_shows_in_no_error(tmp_path):
    (tmp_path / "secret").write_text("sk_live_very_secret\nsecond line\n")
    done = check(tmp_path, with_route(request_headers={"set": {"A": {"file": "secret"}}}))
    assert done.returncode == 2 and "very_secret" not in done.stderr + done.stdout
    (tmp_path / "secret").write_text("\n")
    assert check(tmp_path, with_route(request_headers={"set": {"A": {"file": "secret"}}})).returncode == 2


def test_paths_are_relative_to_the_configuration(launch, partner, mark):
    """Not to the folder in which the gateway was started; that of the store included."""
    gw = launch(route(partner), store={"path": "data"})
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    assert (gw.folder / "data" / "admin.token").exists()


def test_the_example_is_good_but_for_its_secrets():
    example = ROOT / "config" / "example.json"
    done = run("check", "-c", example)
    assert done.returncode in (0, 2), done
    if done.returncode == 2:  # its secret files are not here
        assert "file" in done.stderr


# -- audit


@pytest.fixture(scope="module")
def gw(partner, tmp_path_factory):
    gateway = Gateway(tmp_path_factory.mktemp("gw"), [route(partner), route(partner, name="b", path="/b", namespace="two")]).start()
    yield gateway
    gateway.end()


def lines(gw, *arguments):
    done = gw.command("audit", "--json", *arguments)
    assert done.returncode == 0 and done.stderr == "", done
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_audit_finds_by_key_reason_kind_and_route(gw, mark):
    gw.call(f"/pay/{mark}", 2, mark)
    gw.call(f"/pay/{mark}", 1, mark)
    gw.call(f"/b/{mark}", 1, mark)
    gw.call(f"/pay/{mark}", "x", mark)
    everything = gw.wait_audit(4, key=mark)
    assert lines(gw, "--key", mark) == everything
    assert lines(gw, "--key", mark, "--namespace", "two") == gw.audit(key=mark, namespace="two")
    for name, value in [("reason", "stale-token"), ("kind", "sent"), ("kind", "rejected"), ("route", "pay")]:
        assert lines(gw, "--key", mark, f"--{name}", value) == [r for r in everything if r.get(name) == value]
    assert lines(gw, "--key", mark, "--kind", "dropped", "--reason", "stale-token")[0]["token"] == "1"
    assert lines(gw, "--key", mark + "-none") == []


def test_audit_limit_shows_the_newest_oldest_first(gw, mark):
    gw.call(f"/pay/{mark}", 9, mark)
    for token in range(1, 6):
        gw.call(f"/pay/{mark}", token, mark)
    gw.wait_audit(6, key=mark)
    assert [r["token"] for r in lines(gw, "--key", mark, "--kind", "dropped", "--limit", "3")] == ["3", "4", "5"]


def test_audit_for_people_is_text(gw, mark):
    gw.call(f"/pay/{mark}", 2, mark)
    gw.call(f"/pay/{mark}", 1, mark)
    done = gw.command("audit", "--key", mark, "--reason", "stale-token")
    assert done.returncode == 0
    assert mark in done.stdout and "stale-token" in done.stdout and not done.stdout.startswith("{")


def test_no_key_can_forge_a_line(gw, mark):
    """Line separators, escapes and direction marks come out escaped."""
    key = f"{mark}-\u2028{{\"kind\":\"sent\"}}\u0085\u202e".encode()
    gw.call(f"/pay/{mark}", 2, key)
    gw.call(f"/pay/{mark}", 1, key)
    done = gw.command("audit", "--reason", "stale-token")
    for text in (done.stdout, "".join(gw.stderr)):
        assert not set(text) & set("\u2028\u2029\u0085\u202e\x1b\r")


def test_audit_works_without_a_gateway(launch, partner, mark):
    gw = launch(route(partner))
    gw.call(f"/pay/{mark}", 2, mark)
    gw.call(f"/pay/{mark}", 1, mark)
    records = gw.wait_audit(2, key=mark)
    assert gw.stop() == 0
    assert lines(gw, "--key", mark) == records
    done = run("audit", "--store", gw.store, "--json", "--key", mark)
    assert [json.loads(line) for line in done.stdout.splitlines()] == records


def test_audit_of_no_store_is_exit_3(tmp_path):
    done = run("audit", "--store", tmp_path / "none")
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1, done
    assert not (tmp_path / "none").exists()


def test_a_bad_filter_is_exit_2(gw):
    for arguments in (["--kind", "dropt"], ["--limit", "x"], ["--limit", "0"], ["--since", "yesterday"], ["--no-such"], ["--key"],
                      ["--key", "a\x01"], ["--key", "k" * 256], ["--route", "no such"], ["--route", "r" * 65], ["--namespace", "a/b"]):
        assert gw.command("audit", *arguments).returncode == 2, arguments


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_misspelt_reason_is_exit_2_and_names_the_allowed(gw, mark, form):
    for reason in ("stael-token", "Stale-Token", "stale_token", "stale", "none"):
        done = gw.command("audit", "--reason", reason, *form)
        assert done.returncode == 2 and done.stdout == "", done
        assert f"--reason {reason}: not one of missing-token, " in done.stderr and "gateway-crash" in done.stderr, done.stderr
        assert "--kind raised" in done.stderr
        assert gw.admin(f"/v1/audit?reason={reason}").status == 400
    assert "did you mean stale-token?" in gw.command("audit", "--reason", "stael-token", *form).stderr
    assert gw.command("audit", "--reason", "gateway-crash", *form).returncode == 0
    assert gw.command("fences", "raise", mark, 7, "--reason", "handover").returncode == 0
    assert gw.command("audit", "--reason", "handover", *form).returncode == 2
    assert lines(gw, "--reason", "handover", "--kind", "raised")[-1]["key"] == mark
    assert gw.command("audit", "--reason", "worker 3 is gone", *form).returncode == 0


# -- the log


def test_the_log_says_what_happened_and_keeps_secrets(gw, partner, mark):
    gw.call(f"/pay/{mark}?card=4242424242424242", 5, mark, headers=[("Authorization", "Bearer of-the-worker")], body=b"pin=1234")
    gw.call(f"/pay/{mark}?card=4242424242424242", 4, mark)
    for effect, reason in [("sent", None), ("not-sent", "stale-token")]:
        line = gw.wait_log(lambda l: l.get("path") == f"/pay/{mark}" and l.get("effect") == effect)
        assert line.get("reason") == reason and line["key"] == mark and line["route"] == "pay" and line["time"] and line["level"]
    for secret in ("4242424242424242", "of-the-worker", "pin=1234"):
        assert secret not in "".join(gw.stderr)


def test_access_lines_can_be_switched_off(launch, partner, mark):
    gw = launch(route(partner), log={"level": "info", "access": False})
    gw.call(f"/pay/{mark}", 5, mark)
    assert gw.stop() == 0
    assert mark not in "".join(gw.stderr)


# -- reload


def test_sighup_brings_new_routes_and_keeps_running_calls(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner))
    running = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    assert gw.call("/new", 1, "k").status == 404
    gw.settings["routes"] = [route(partner, name="new", path="/new")]
    gw.reload()
    eventually(lambda: gw.call("/new", 1, "k").status == 200)
    eventually(lambda: gw.call("/pay", 1, "k2").status == 404)
    held.release()
    expect.relayed(running.result(10))
    gw.wait_audit(key=mark, kind="sent")


def test_sighup_with_a_bad_file_keeps_the_old_settings_and_says_so(launch, partner, mark):
    gw = launch(route(partner))
    gw.config.write_text("{ this is no json")
    seen = len(gw.log)
    gw.process.send_signal(signal.SIGHUP)
    gw.wait_log(lambda line: line in gw.log[seen:] and line["level"] in ("error", "warn") and "fencegate.json" in json.dumps(line))
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))


def test_sighup_names_what_cannot_change(launch, partner, mark):
    gw = launch(route(partner))

    def names_after_reload():
        seen = len(gw.log)
        gw.reload()
        gw.wait_log(lambda line: line in gw.log[seen:] and "new settings are in force" in line.get("message", ""))
        return sorted(line["message"].split()[0] for line in gw.log[seen:] if "can't change" in line.get("message", ""))

    gw.settings["workers"] = 3
    gw.settings["store"] = {"path": "elsewhere"}
    assert names_after_reload() == ["store", "workers"]
    expect.relayed(gw.call(f"/pay/{mark}", 5, mark))
    assert gw.fence(mark) == 5
    # Compared with what runs, not with the file before.
    assert names_after_reload() == ["store", "workers"]
    gw.settings["workers"], gw.settings["listen"] = 2, {"address": "127.0.0.1", "port": 1}
    gw.settings["admin"] = {**gw.settings["admin"], "hosts": ["gate.example.com"]}
    assert names_after_reload() == ["admin", "listen", "store"]


def test_many_reloads_under_load_lose_nothing(launch, new_partner, mark):
    partner = new_partner()
    gw = launch(route(partner))
    calls = []
    for turn in range(30):
        calls += [gw.send_off(f"/pay/{mark}", 5, f"{mark}-{turn}-{i}") for i in range(5)]
        gw.process.send_signal(signal.SIGHUP)
    for call in calls:
        expect.relayed(call.result(20))
    assert len(partner.seen(mark)) == len(calls)


# -- shutdown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_gateway_leaves_at_once_with_0(launch, partner, mark, number):
    gw = launch(route(partner))
    with gw.connect() as connection:  # an idle kept-alive connection holds nothing up
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"x"))
        expect.relayed(connection.receive())
        assert gw.stop(number) == 0
        assert connection.ended()


def test_shutdown_lets_running_effects_end(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner))
    running = gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    assert gw.admin("/readyz", token=None).status == 200
    gw.process.send_signal(signal.SIGTERM)
    eventually(lambda: gw.admin("/readyz", token=None).status == 503)
    assert gw.admin("/healthz", token=None).status == 200
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", fenced(9, mark + "-new"), b"x"))
        expect.refusal(connection.receive(), 503, "shutting-down")
    held.release()
    expect.relayed(running.result(10))
    assert gw.wait() == 0
    gw.start()
    assert [r["kind"] for r in gw.audit(key=mark)] == ["sent"]
    assert gw.audit(reason="gateway-crash") == []


def test_a_second_signal_ends_at_once_and_leaves_the_running_effect_in_doubt(launch, new_partner, mark):
    partner, held = new_partner(), Held()
    partner.on(mark, held)
    gw = launch(route(partner))
    gw.send_off(f"/pay/{mark}", 5, mark)
    partner.wait_seen(mark)
    gw.process.send_signal(signal.SIGTERM)
    eventually(lambda: gw.admin("/readyz", token=None).status == 503)
    gw.process.send_signal(signal.SIGTERM)
    assert gw.wait() == 4
    held.release()
    gw.start()
    (found,) = gw.wait_audit(key=mark)
    expect.record(found, kind="unknown", reason="gateway-crash")
    assert len(partner.seen(mark)) == 1


def test_a_long_answer_is_delivered_during_shutdown(launch, new_partner, mark):
    partner, held = new_partner(), Held(lambda e: e.send(b"x" * 3_000_000))
    partner.on(mark, lambda e: (e.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n"), held(e)))
    gw = launch(route(partner))
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"x"))
        answer = connection.read_head()
        gw.process.send_signal(signal.SIGTERM)
        eventually(lambda: gw.admin("/readyz", token=None).status == 503)
        held.release()
        body = b"".join(connection.pieces(answer))
    assert answer.complete and len(body) == 3_000_000
    assert gw.wait() == 0


def test_an_unread_answer_does_not_hold_shutdown_past_the_grace(launch, new_partner, mark):
    partner = new_partner()
    partner.on(mark, lambda e: e.send(b"HTTP/1.1 200 OK\r\nContent-Length: 60000000\r\n\r\n" + b"x" * 60_000_000))
    gw = launch(route(partner), shutdown_grace="500ms")
    with gw.connect() as connection:
        connection.send(request("POST", f"/pay/{mark}", fenced(5, mark), b"x"))
        connection.read_head()
        gw.process.send_signal(signal.SIGTERM)
        assert gw.wait(10) in (0, 4)


def test_two_gateways_cannot_share_a_port(launch, partner, tmp_path):
    gw = launch(route(partner))
    other = tmp_path / "other"
    other.mkdir()
    second = Gateway(other, [route(partner)], listen={"address": "127.0.0.1", "port": gw.port})
    second.spawn()
    try:
        assert second.wait(5) in (2, 3), second.stderr
    finally:
        second.process.kill()
    assert second.stdout == [] and "".join(second.stderr).strip()


def test_two_processes_with_one_number(partner, tmp_path):
    """A gateway and a command that are both the first process of their container."""
    alone = ["unshare", "--pid", "--fork"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs the right to make PID namespaces")
    gate = Gateway(tmp_path, [route(partner)], wrapper=[*alone, "--kill-child"])
    gate.start()
    try:
        expect.relayed(gate.call("/pay/x", 5, "x"))
        done = subprocess.run([*alone, BINARY, "fences", "list", "-c", gate.config], capture_output=True, text=True, timeout=30)
        assert done.returncode == 3 and "the same number, 1, in another PID namespace" in done.stderr, done
        assert gate.command("fences", "list").returncode == 0
        assert gate.fence("x") == 5
    finally:
        gate.kill()
    listing = [*alone, BINARY, "fences", "list", "-c", gate.config]
    eventually(lambda: subprocess.run(listing, capture_output=True).returncode == 0, what="the gateway's end")
    with open(gate.store / "lock.mdb", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, 1)  # as a command that is process 1 has it while it reads
        done = subprocess.run([*alone, "--kill-child", BINARY, "serve", "-c", gate.config], capture_output=True, text=True,
                              timeout=30)
    assert done.returncode == 3 and "the same number, 1, in another PID namespace" in done.stderr, done
