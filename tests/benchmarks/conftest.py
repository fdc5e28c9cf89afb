"""The table of all paths, printed when everything is measured."""

import os

import pytest
from benchmarks.table import Row, head, line

ROWS = pytest.StashKey[list[Row]]()
GROWTH = pytest.StashKey[list[str]]()


@pytest.fixture
def table(request):
    """Rows to be printed at the end."""
    return request.config.stash.setdefault(ROWS, [])


@pytest.fixture
def growth(request):
    """Lines to be printed at the end."""
    return request.config.stash.setdefault(GROWTH, [])


def pytest_terminal_summary(terminalreporter, config):
    rows = config.stash.get(ROWS, [])
    if rows:
        terminalreporter.section("CPU per record through the whole pipeline")
        for text in (head(), *map(line, rows)):
            terminalreporter.write_line(text)
        terminalreporter.write_line(
            f"load average of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        )
    if lines := config.stash.get(GROWTH, []):
        terminalreporter.section("many shards")
        for text in lines:
            terminalreporter.write_line(text)
