"""A query on a real Spark while its endpoint is away: nothing is lost, repeated or ended, and the progress shows it."""

from __future__ import annotations

import pytest

from spark_jobs.queries import WAIT_SECONDS, numbers, outage_of, to_parquet, wait_for_rows, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
SLOW = pytest.mark.slow


@pytest.fixture
def outage(served):
    """Takes the endpoint away, and brings it back, at the end of the test too."""
    faults = served.endpoint.faults
    yield lambda rules: served.call(faults.start_random, rules) if rules else served.call(faults.stop_random)
    served.call(faults.stop_random)


@pytest.mark.parametrize(
    "rules", ["reset", "throttle", pytest.param("error", marks=SLOW), pytest.param("page", marks=SLOW)]
)
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
