"""A query on a real Spark while its endpoint is away: nothing is lost, repeated or ended, and the progress shows it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from spark_jobs.queries import WAIT_SECONDS, numbers, to_parquet, wait_for_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]


@pytest.fixture
def outage(served):
    """Takes the endpoint away, and brings it back, at the end of the test too."""
    faults = served.endpoint.faults
    yield lambda rules: served.call(faults.start_random, rules) if rules else served.call(faults.stop_random)
    served.call(faults.stop_random)


def wait_until(query: Any, is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_there():
        if query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.1)


def outage_of(query: Any) -> dict[str, Any] | None:
    """The outage that the last progress shows."""
    progress = query.lastProgress
    return None if progress is None else json.loads(progress["sources"][0]["latestOffset"] or "{}").get("outage")


@pytest.mark.parametrize("rules", ["reset", "throttle"])
def test_a_query_waits_out_an_outage_and_shows_it(spark, kinesis, tmp_path, outage, rules):
    stream = kinesis(f"away-{rules}")
    stream.put(300)
    query = to_parquet(stream.load(spark, tmp_path), tmp_path)
    wait_for_rows(query, 300)
    outage(rules)
    stream.put(200)
    wait_until(query, lambda: outage_of(query) is not None)
    assert outage_of(query)["service"] == "Kinesis"
    outage("")
    wait_for_rows(query, 500)
    query.stop()
    assert numbers(spark, tmp_path) == list(range(500))
