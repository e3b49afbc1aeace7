"""`make install`: the program runs from its place, and every link of an installed document leads to an installed file."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from gateway import BINARY

SOURCES = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that stands for /usr/local. What `make` would build is taken as it is (-o)."""
    root = tmp_path_factory.mktemp("root")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(["make", "-o", "all", "install", f"BUILD={Path(BINARY).parent}", f"DESTDIR={root}"],
                   cwd=SOURCES, env=environment, check=True, capture_output=True)
    return root / "usr/local"


def links(document):
    """Targets of [text](target) and src="target" that are no URL: (file or "", anchor or "")."""
    for target in re.findall(r'\]\(([^)\s]+)\)|src="([^"]+)"', document.read_text()):
        file, _, anchor = "".join(target).partition("#")
        if not re.match(r"[a-z]+:", file):
            yield file, anchor


def anchors(document):
    """The names that GitHub gives to headings."""
    for heading in re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_links_of_installed_documents(installed):
    documents = sorted((installed / "share/doc/fencegate").rglob("*.md"))
    assert {"README.md", "ARCHITECTURE.md", "REFERENCE.md"} <= {document.name for document in documents}
    dead = []
    for document in documents:
        for file, anchor in links(document):
            target = document.parent / file if file else document
            if not target.is_file() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                dead.append(f"{document.name}: {file}#{anchor}")
    assert dead == []


def test_the_installed_program_runs(installed):
    version = subprocess.run([installed / "bin/fencegate", "version"], check=True, capture_output=True, text=True)
    assert version.stdout.startswith("fencegate ")
    assert (installed / "share/man/man1/fencegate.1").is_file()


def test_the_unit_names_the_installed_program(installed):
    unit = (installed / "lib/systemd/system/fencegate.service").read_text()
    assert "ExecStart=/usr/local/bin/fencegate serve" in unit
