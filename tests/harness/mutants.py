#!/usr/bin/env python3
"""Proof that the harnesses can see: each planted mistake must make the harness that looks for its kind fail.

A mutant is the tree with one place changed, compiled in a folder of its own. The place is found by its text; when that
is no longer there exactly once, the mutant is out of date, and that fails too. `mutants.py NAME...` runs some.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent

HISTORY = ["history.py", "--seed", "1", "--histories", "40", "--stop"]
LASTLOOK = ["lastlook.py", "--seed", "1", "--tries", "5"]
POWERCUT = ["powercut.py", "--seed", "1", "--cycles", "60", "--stop"]
KILL = ["kill.py", "--seed", "1", "--cycles", "50", "--stop"]
FIRST_BYTE = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "e2e" / "test_first_byte.py")]
TURN = [*FIRST_BYTE[:-1], str(ROOT / "tests" / "e2e" / "test_turn.py")]
PAUSE = [*FIRST_BYTE[:-1], str(ROOT / "tests" / "e2e" / "test_pause.py")]
TLS = [*FIRST_BYTE[:-1], str(ROOT / "tests" / "e2e" / "test_tls.py")]

# name: (what is wrong, file, its text, the mistake, the harness that must fail)
MUTANTS = {
    "no-last-look": (
        "the token is not looked at again before the first byte", "gateway/gate.c",
        "    bool current = !too_late(entry, ticket);\n    if (current)", "    bool current = true;\n    if (current)", LASTLOOK),
    "not-taken-back": (
        "a call of which the kernel took nothing counts as begun", "gateway/upstream_exchange.c",
        "    if (call->link->taken)\n        return;", "    if (call->link->taken || !call->send_failed)\n        return;", FIRST_BYTE),
    "dot-not-taken-back": (
        "so does a mail's final dot", "gateway/upstream_mail.c",
        "!call->link->taken && !take_back_dot(call)", "io == LINK_CLOSED && !take_back_dot(call)", FIRST_BYTE),
    "renegotiation": (
        "a partner may renegotiate between the last look and the first byte", "gateway/upstream_tls.c",
        "    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);", "", TLS),
    "waits-in-doubt": (
        "the intent of a call that waits is written as if it might start", "store/apply.c",
        "op->admit.waits ? EFFECT_WAITING : EFFECT_OPEN, intent", "EFFECT_OPEN, intent", TURN),
    "not-parked": (
        "so is that of one that finds out later that it must wait", "gateway/request_call.c",
        "if (request->effect_id == 0 || request->parked) {", "if (request->effect_id == 0 || !request->parked || request->parked) {", TURN),
    "turn-not-written": (
        "a call that waited is sent, and on disk it still waits", "gateway/request_call.c",
        "    if (!request->parked) {", "    if (!request->parked || request->waited_us > 0) {", KILL),
    "clock-before-socket": (
        "a time limit is believed before the sockets are read", "gateway/worker.c",
        "bool listed = count >= 0 && count < EVENTS_PER_TURN, all = listed && !is_hungry(worker);", "bool listed = true, all = true;\n    asked_ms = worker->now_ms;", PAUSE),
    "clock-before-greeting": (
        "libcurl believes its limits before it reads", "gateway/worker.c",
        "    if (late_ms > PAUSE_MS)\n", "    if (late_ms > UINT32_MAX)\n", PAUSE),
    "no-waiting": (
        "a newer call does not wait for older ones", "gateway/gate.c",
        "return entry->low_count > 0 && entry->low_order < token;",
        "(void)entry, (void)token;\n    return false;", HISTORY),
    "gate-not-told": (
        "the gate does not hear of a raise by the lock service", "gateway/gate.c",
        "    if (entry != NULL)\n        hear_of(entry, token);", "    if (token == 0)\n        hear_of(entry, token);",
        HISTORY + ["--announce"]),
    "wait-cut-short": (
        "a raise with wait does not wait", "gateway/gate.c",
        "count += ticket->order < token ? 1 : 0;", "count += ticket->order == 0 ? 1 : 0;", HISTORY + ["--announce"]),
    "left-too-early": (
        "the gate is left when the call begins", "gateway/request_call.c",
        "request_move(request, REQUEST_SENT);", "request_move(request, REQUEST_SENT);\n    request_leave_gate(request);",
        HISTORY),
    "sent-again": (
        "a call whose connection dies is begun anew on another", "gateway/upstream_exchange.c",
        "void call_break(struct call *call, const char *detail)\n{\n",
        "static void send_on(struct call *call);\nstatic bool make_out(struct call *call);\n"
        "void call_break(struct call *call, const char *detail)\n{\n"
        "    struct link *other = call->request->reply.head_done ? NULL : link_take(call->upstream, call->request);\n"
        "    if (other != NULL && make_out(call)) {\n"
        "        link_close(&call->link);\n        other->call = call;\n        call->link = other;\n"
        "        call->wire = (struct wire){0};\n        send_on(call);\n        return;\n    }\n",
        HISTORY),
    "false-not-sent": (
        "a connection lost after the bytes left counts as not sent", "gateway/upstream_exchange.c",
        "== REQUEST_SENT ? CALL_FAILED : CALL_UNREACHABLE;", "== REQUEST_SENT ? CALL_UNREACHABLE : CALL_UNREACHABLE;",
        HISTORY),
    "cut-with-client": (
        "the call is cut when its client leaves", "gateway/request.c",
        "    request->conn = NULL;\n    if (request->state == REQUEST_RECEIVING)",
        "    request->conn = NULL;\n    if (request->state == REQUEST_SENT) {\n"
        "        request_cut_call(request, REASON_UPSTREAM_FAILED, NULL);\n        return;\n    }\n"
        "    if (request->state == REQUEST_RECEIVING)",
        HISTORY + ["--leave"]),
    "verdict-forgotten": (
        "the writer takes what looked current before", "store/apply.c",
        "if (token < fence->token)\n        return VERDICT_STALE;", "", HISTORY),
    "no-metasync": (
        "the root page is not synced (MDB_NOMETASYNC)", "store/lmdb_open.c",
        "MDB_NOTLS | (db->readonly", "MDB_NOMETASYNC | MDB_NOTLS | (db->readonly", POWERCUT),
    "no-sync": (
        "data.mdb is not synced (MDB_NOSYNC)", "store/lmdb_open.c",
        "MDB_NOTLS | (db->readonly", "MDB_NOSYNC | MDB_NOTLS | (db->readonly", POWERCUT),
    "no-journal-sync": (
        "the journal is not synced, nor written past the page cache", "store/journal.c",
        "    if (number == 0 && fdatasync(journal->fd) != 0)", "    if (number == 0 && fcntl(journal->fd, F_SETFL, 0) != 0)",
        POWERCUT),
    "no-journal-write": (
        "verdicts are handed out before the journal is written", "store/journal.c",
        "    int number = write_batch(journal, batch, whole, BLOCK + at);", "    int number = 0;", KILL),
    "journal-forgotten": (
        "what the journal has is not brought back", "store/recover.c",
        "        while (txn->error == 0 && change_read(&changes, &change))\n            db_change(txn, &change);",
        "        while (txn->error == 0 && change_read(&changes, &change))\n            continue;", KILL),
    "last-batch-forgotten": (
        "the last batch is not brought back", "store/recover.c",
        "        ++*batches;\n", "        if (++*batches, seq + 1 == last)\n            return true;\n", KILL),
    "no-intent": (
        "an effect gets an id but no intent", "store/apply.c",
        "    put_effect(batch, op->effect_id, op->admit.waits ? EFFECT_WAITING : EFFECT_OPEN, intent);", "    (void)intent;",
        POWERCUT),
    "no-intent-killed": (
        "an effect gets an id but no intent", "store/apply.c",
        "    put_effect(batch, op->effect_id, op->admit.waits ? EFFECT_WAITING : EFFECT_OPEN, intent);", "    (void)intent;",
        KILL),
    "leftovers-forgotten": (
        "what a crash left open gets no record", "store/apply.c",
        "    mark_in_doubt(batch, state->after, intent);", "    (void)mark_in_doubt;", KILL),
}


def make(tree):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    return subprocess.run(["make", "-C", str(tree), "-j2", "BUILD=build", "OPT=-O1", "build/fencegate"], capture_output=True,
                          text=True, env=clean)


def base(folder):
    """The tree as it is, compiled: what every mutant starts from."""
    tree = folder / "base"
    tree.mkdir()
    for part in ("gateway", "config", "store"):
        shutil.copytree(ROOT / part, tree / part)
    shutil.copy2(ROOT / "Makefile", tree)
    made = make(tree)
    if made.returncode != 0:
        sys.exit(f"mutants: the tree itself does not compile:\n{made.stderr[-2000:]}")


def build(name, file, old, new, folder):
    """The mutant's program; None with a word why not."""
    tree = folder / name
    shutil.copytree(folder / "base", tree)
    source = tree / file
    text = source.read_text()
    if text.count(old) != 1:
        print(f"  {name}: out of date: its text is in {file} {text.count(old)} times, not once")
        return None
    source.write_text(text.replace(old, new))
    made = make(tree)
    if made.returncode != 0:
        print(f"  {name}: does not compile:\n{made.stderr[-2000:]}")
        return None
    return tree / "build" / "fencegate"


def caught(name, folder):
    what, file, old, new, harness = MUTANTS[name]
    program = build(name, file, old, new, folder)
    if program is None:
        return False
    tests = harness[0] == "-m"
    ran = subprocess.run([sys.executable, "-B", *(harness if tests else [str(HERE / harness[0]), *harness[1:]])], capture_output=True,
                         text=True, env={**os.environ, "FENCEGATE_BIN": str(program)})
    seen = re.search(r"^FAILED (.*)$" if tests else r"^FAILED: .*\n(.*)$", ran.stdout, re.M)
    shutil.rmtree(folder / name)
    if ran.returncode == 1 and seen:
        print(f"  caught  {name} ({what}): {pathlib.Path(harness[-1]).name if tests else harness[0]}: {seen[1].strip()[:100]}", flush=True)
        return True
    print(f"  MISSED  {name} ({what}): {' '.join(harness)} ended with {ran.returncode}:\n"
          f"{ran.stdout[-1500:]}{ran.stderr[-1500:]}", flush=True)
    return False


def main():
    names = sys.argv[1:] or list(MUTANTS)
    print(f"mutants: {len(names)} planted mistakes", flush=True)
    with tempfile.TemporaryDirectory(prefix="fencegate-mutants-") as folder:
        base(pathlib.Path(folder))
        results = [caught(name, pathlib.Path(folder)) for name in names]
    print(f"mutants: {sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
