"""The conformance table names tests that exist, are selected, and run."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from conformance.table import all_rows
from processes.command_line import ROOT

ROWS = all_rows()
LONG = "kills or sinks or time or simulation or faults or benchmark"
RUN_BY_MAKE_TEST = f"not ({LONG} or skip or skipif or xfail)"


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """The tests that `make test` would run and that no mark can skip, as collected by pytest."""
    files = sorted({test.partition("::")[0] for row in ROWS for test in row.tests})
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", RUN_BY_MAKE_TEST]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [*line, *(f"tests/{file}" for file in files)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    ids = [line.removeprefix("tests/") for line in done.stdout.splitlines() if "::" in line]
    return {*ids, *(each.partition("[")[0] for each in ids)}


@pytest.mark.slow
def test_every_test_in_the_table_runs(collected):
    assert [test for row in ROWS for test in row.tests if test not in collected] == []


def test_no_behaviour_is_missing():
    assert len(ROWS) > 350
    for row in ROWS:
        assert row.tests or row.not_here, f"{row.owner}.{row.name} has neither a test nor a reason"
        assert not (row.differs and row.not_here), f"{row.owner}.{row.name} says two things"
        assert not (row.not_here and row.tests), f"{row.owner}.{row.name} does not apply and is tested"


def test_the_page_tells_the_counts():
    counts = Counter(row.status for row in ROWS)
    page = (ROOT / "tests/conformance/README.md").read_text()

    assert f"{len(ROWS)} behaviours: {counts['same']} are the same, {counts['differs on purpose']} differ" in page
    assert f"and {counts['does not apply']} do not apply" in page


def test_every_class_is_covered_completely():
    """At least as many rows as the connector's class has tests."""
    wanted = {
        "ShardConsumerTest": 10, "ShardConsumerFanOutTest": 12, "PollingRecordPublisherTest": 8, "FanOutRecordPublisherTest": 20,
        "FanOutShardSubscriberTest": 11, "FanOutRecordPublisherConfigurationTest": 10, "StreamConsumerRegistrarTest": 13,
        "KinesisProxyTest": 14, "KinesisProxySyncV2Test": 11, "AwsV2UtilTest": 14, "KinesisDataFetcherTest": 18,
        "FlinkKinesisConsumerTest": 15, "RecoverableErrorsConfigTest": 5, "StartingPositionTest": 7, "KinesisConfigUtilTest": 64,
        "FanOutKinesisShardSubscriptionTest": 23, "SplitTrackerTest": 11, "FanOutKinesisShardSplitReaderTest": 5,
        "PollingKinesisShardSplitReaderTest": 13,
    }  # fmt: skip
    counts = {owner: sum(row.owner == owner for row in ROWS) for owner in wanted}
    assert {owner: count for owner, count in counts.items() if count < wanted[owner]} == {}
