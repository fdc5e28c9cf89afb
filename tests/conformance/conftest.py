"""Keeps what was skipped in this session, and runs the look at it last."""

import pytest

SKIPPED = pytest.StashKey[dict[str, str]]()
LAST = "test_nothing_on_the_table_was_skipped"


class Keeper:
    """A plugin of the whole session: the hooks of this file would hear of the tests beside it only."""

    def __init__(self, skipped: dict[str, str]) -> None:
        self._skipped = skipped

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self._skipped[report.nodeid.removeprefix("tests/")] = str(report.longrepr)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skipped = config.stash[SKIPPED] = {}
    config.pluginmanager.register(Keeper(skipped))
    items.sort(key=lambda item: item.name == LAST)


@pytest.fixture
def skipped(pytestconfig: pytest.Config) -> dict[str, str]:
    """Return the tests that were skipped so far, with the reason."""
    return pytestconfig.stash[SKIPPED]
