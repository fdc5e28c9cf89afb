"""Collects the skipped tests of this session, and runs the test that checks them last."""

import pytest

SKIPPED = pytest.StashKey[dict[str, str]]()
LAST = "test_no_test_in_the_table_was_skipped"


class SkippedTests:
    """A plugin of the whole session, since hooks in this file get only the tests in this folder."""

    def __init__(self, skipped: dict[str, str]) -> None:
        self._skipped = skipped

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self._skipped[report.nodeid.removeprefix("tests/")] = str(report.longrepr)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skipped = config.stash[SKIPPED] = {}
    config.pluginmanager.register(SkippedTests(skipped))
    items.sort(key=lambda item: item.name == LAST)


@pytest.fixture
def skipped(pytestconfig: pytest.Config) -> dict[str, str]:
    """Return the tests that were skipped so far, with the reason."""
    return pytestconfig.stash[SKIPPED]
