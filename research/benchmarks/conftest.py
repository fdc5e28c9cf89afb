"""The table of all paths: each row is printed when it is measured, and all of them at the end."""

import os
from itertools import groupby

import pytest

from benchmarks.figures import results
from benchmarks.figures.table import Row, head, line

ROWS = pytest.StashKey[list[Row]]()
GROWTH = pytest.StashKey[list[str]]()
IS_KEPT = bool(os.environ.get("RECORDPUBLISHER_KEEP"))
"""Whether the figures go into the repository, for the page (`make bench`)."""


class Table(list):
    """Rows; each is stored at once, so that a failing benchmark loses no other's results."""

    def append(self, row):
        super().append(row)
        print(f"\n  {line(row)}", flush=True)
        if IS_KEPT:
            results.keep([row])


@pytest.fixture
def table(request):
    """Rows to be printed at the end."""
    return request.config.stash.setdefault(ROWS, Table())


@pytest.fixture
def growth(request):
    """Lines to be printed at the end."""
    return request.config.stash.setdefault(GROWTH, [])


def pytest_terminal_summary(terminalreporter, config):
    rows = config.stash.get(ROWS, [])
    for section, of_section in groupby(rows, key=lambda row: row.section):
        terminalreporter.section(section)
        for text in (head(), *map(line, of_section)):
            terminalreporter.write_line(text)
    if rows:
        load = os.getloadavg()[0]
        terminalreporter.write_line(f"load average of the last minute: {load:.1f} on {os.cpu_count()} cores")
    if lines := config.stash.get(GROWTH, []):
        terminalreporter.section("further")
        for text in lines:
            terminalreporter.write_line(text)
