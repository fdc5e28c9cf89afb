"""Prometheus's own programs, from Debian's package or wherever they are on the PATH."""

import os
import shutil

import pytest

MISSING = (
    "prometheus or promtool is missing: tests of dashboard and alerts are skipped (Debian: apt-get install prometheus)"
)


def program(name):
    found = shutil.which(name)
    if found is None:
        assert os.environ.get("CI") != "true", MISSING
        pytest.skip(MISSING)
    return found


@pytest.fixture(scope="session")
def promtool():
    return program("promtool")


@pytest.fixture(scope="session")
def prometheus():
    return program("prometheus")
