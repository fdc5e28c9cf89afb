"""`processAllAvailable` on a real Spark, as the unit test of a streaming job uses it; and the progress of the quiet query.

A thousand calls, and a hundred with fan-out: ALL_AVAILABLE_CALLS=1000 .venv/bin/pytest -m spark on this file.
"""

from __future__ import annotations

import json
import os
import time

import pytest

from fakes.spark.queries import FAN_OUT
from spark_jobs.queries import WAIT_SECONDS

CALLS = int(os.environ.get("ALL_AVAILABLE_CALLS", "50"))
pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * WAIT_SECONDS + 2 * CALLS)]


def figures_of(query):
    return json.loads(query.lastProgress["sources"][0]["latestOffset"])


@pytest.mark.parametrize(
    ("properties", "calls"),
    [
        pytest.param({}, 8, id="polling"),
        pytest.param({}, CALLS, id="polling, many calls", marks=pytest.mark.slow),
        pytest.param(FAN_OUT, CALLS // 10, id="fan-out", marks=pytest.mark.slow),
    ],
)
def test_each_call_returns_when_every_row_is_in_the_sink_and_the_progress_of_a_quiet_query_is_right(
    spark, kinesis, tmp_path, properties, calls
):
    table = f"all_available_{len(properties)}_{calls}"
    stream = kinesis(table.replace("_", "-"))
    rows = (
        spark.readStream.format("kinesis").options(**stream.options(tmp_path, probeInterval=100), **properties).load()
    )
    writer = rows.select("sequenceNumber").writeStream.format("memory").queryName(table)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        for number in range(calls):
            if number % 20 == 2:
                stream.split(0)
            if number % 20 == 12:
                stream.merge(0)
            stream.put(3)
            query.processAllAvailable()
            assert spark.table(table).count() == stream.count, f"call {number}"
        until = time.monotonic() + WAIT_SECONDS
        while figures_of(query)["records"] < stream.count and time.monotonic() < until:
            time.sleep(0.1)
        shown = figures_of(query)
        assert (shown["records"], shown["atTip"], shown["millisBehindLatest"]) == (stream.count, shown["shards"], 0)
    finally:
        query.stop()
