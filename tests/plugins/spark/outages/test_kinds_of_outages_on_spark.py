"""What is an outage on a real Spark, and what is not: a service that never answers is waited for, denied access is not."""

from __future__ import annotations

import time

import pytest

from recordpublisher.local import serve_in_thread

from spark_jobs.queries import WAIT_SECONDS, Kinesis, numbers, outage_of, to_parquet, wait_for_rows, wait_until
from spark_jobs.tcp_switch import switch_before

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3 * WAIT_SECONDS)]
FAR_BELOW_MAX_OUTAGE = 120


def test_a_query_waits_for_a_service_that_accepts_calls_and_never_answers(spark, kinesis, served, tmp_path):
    stream = kinesis("mute")
    stream.put(300)
    with switch_before(served.url) as switch:
        query = to_parquet(stream.load(spark, tmp_path, **{"aws.endpoint": switch.url}), tmp_path)
        wait_for_rows(query, 300)
        switch.turn_mute()
        stream.put(200)
        wait_until(query, lambda: outage_of(query) is not None)
        assert outage_of(query)["service"] == "Kinesis"
        switch.turn_on()
        wait_for_rows(query, 500)
        query.stop()
    assert numbers(spark, tmp_path) == list(range(500))


@pytest.mark.parametrize("operation", ["ListShards", "GetRecords"])
def test_denied_access_ends_a_query_at_once(spark, tmp_path, operation):
    """In planning, and in a task."""
    with serve_in_thread() as served:
        stream = Kinesis(served, "denied", 1)
        stream.put(10)
        served.call(served.endpoint.faults.fail_next, operation, "AccessDeniedException", 10_000)
        began = time.monotonic()
        query = to_parquet(stream.load(spark, tmp_path), tmp_path)
        with pytest.raises(Exception, match="AccessDeniedException") as ended:
            query.awaitTermination(WAIT_SECONDS)
    assert "have failed since" not in str(ended.value)
    assert time.monotonic() - began < FAR_BELOW_MAX_OUTAGE
