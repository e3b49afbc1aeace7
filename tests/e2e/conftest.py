"""Fixtures. A module shares one gateway and one partner; tests keep apart by `mark`, their own key and path segment.

Tests that need other settings, or that break things, start their own with `launch` and `new_partner`.
"""

import itertools
import os
import re

import pytest

from gateway import BINARY, Gateway, route
from partner import Partner

numbers = itertools.count(1)


def pytest_sessionstart():
    if not os.access(BINARY, os.X_OK):
        pytest.exit(f"{BINARY} is not there: build it, or name another in FENCEGATE_BIN", 2)


@pytest.fixture
def mark(request):
    """A name that no other test uses: workflow key and path segment in one."""
    name = re.sub("[^a-z0-9_]", "", request.node.name.lower())[:40]
    return f"{name}-{next(numbers)}"


@pytest.fixture(scope="module")
def partner():
    partner = Partner()
    yield partner
    partner.close()


@pytest.fixture(scope="module")
def gw(partner, tmp_path_factory):
    gateway = Gateway(tmp_path_factory.mktemp("gw"), [route(partner)]).start()
    yield gateway
    gateway.end()


@pytest.fixture
def new_partner():
    made = []

    def make(*arguments, **options):
        made.append(Partner(*arguments, **options))
        return made[-1]

    yield make
    for partner in made:
        partner.close()


@pytest.fixture
def launch(tmp_path):
    """launch(routes, **settings) starts a gateway; all are stopped and looked at in the end."""
    made = []

    def start(routes, **settings):
        folder = tmp_path / f"gw{len(made)}"
        folder.mkdir()
        gateway = Gateway(folder, routes if isinstance(routes, list) else [routes], **settings)
        made.append(gateway)
        return gateway.start()

    yield start
    for gateway in made:
        gateway.end()


@pytest.fixture(autouse=True)
def still_alive():
    """No test may pass while a gateway died or a sanitizer spoke."""
    yield
    for gateway in list(Gateway.running):
        gateway.check()
