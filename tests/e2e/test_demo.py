"""`make run` ends with all that it started, whatever ends it."""

import os
import pathlib
import re
import signal
import subprocess

import pytest

from gateway import ROOT, eventually


def processes(group):
    """Command lines of a process group, without those that have ended."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            state, _, pgrp = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:3]
            if int(pgrp) == group and state != "Z":
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError, IndexError):
            continue
    return found


@pytest.mark.parametrize("number, to_all", [(signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGINT, True), (signal.SIGHUP, True)])
def test_what_make_run_started_ends_with_it(tmp_path, number, to_all):
    """A supervisor ends make alone; a terminal sends Ctrl-C, and a hang-up, to the whole group."""
    recipe = re.search(r"^run:.*\n\t@?(.*)", (ROOT / "Makefile").read_text(), re.M)[1].replace("$(BUILD)/fencegate", os.environ.get("FENCEGATE_BIN", "build/fencegate"))
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"run:\n\t@{recipe}\n")
    with (tmp_path / "out").open("w") as out:
        make = subprocess.Popen(["make", "-s", "-f", makefile, "run"], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                                env={**os.environ, "TMPDIR": str(tmp_path), "FENCEGATE_PORT": "0", "FENCEGATE_ADMIN_PORT": "0"})
    try:
        eventually(lambda: "Serving;" in (tmp_path / "out").read_text(), 30)
        assert sum("serve -c" in line or "partner.py" in line for line in processes(make.pid).values()) == 2
        (os.killpg if to_all else os.kill)(make.pid, number)
        make.wait(40)
        eventually(lambda: not processes(make.pid), 40, "the end of what make started")
        assert not list(tmp_path.glob("fencegate-demo.*"))
    finally:
        if processes(make.pid):
            os.killpg(make.pid, signal.SIGKILL)
