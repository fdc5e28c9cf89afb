"""SkippedRows: a run fails that has skipped a test of the conformance table, unless for a server that is not installed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from .table import all_rows


class SkippedRows:
    """A plugin of the whole run. With CI=true a server that is missing is a failure anyway."""

    def __init__(self) -> None:
        self._skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a skipped test and its reason."""
        if report.skipped:
            self._skipped[report.nodeid.removeprefix("tests/")] = str(report.longrepr)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run, and name the tests."""
        if hasattr(session.config, "workerinput") or not (unread := left_out(self._skipped)):
            return
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(*("", "Tests of the conformance table were skipped:", *unread), sep="\n  ")


def left_out(skipped: Mapping[str, str]) -> list[str]:
    """Skipped tests of the table, of whose reason a missing server is no part."""
    if not skipped:
        return []
    named = {test for row in all_rows() for test in row.tests}
    return [
        f"{test}: {why}"
        for test, why in skipped.items()
        if (test in named or test.partition("[")[0] in named) and "is not installed" not in why
    ]
