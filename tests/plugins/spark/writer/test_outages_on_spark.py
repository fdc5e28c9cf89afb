"""Rows written by a real Spark while the target's endpoint is away: each arrives, and no task fails."""

from __future__ import annotations

import pytest

from recordpublisher.local import serve_in_thread

from spark_jobs.queries import WAIT_SECONDS, Kinesis, write_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]


def test_a_task_waits_for_an_endpoint_that_is_away(spark):
    with serve_in_thread() as served:
        target = Kinesis(served, "away-out", 1)
        served.call(served.endpoint.faults.drop_next, "PutRecords", 3)
        rows = spark.range(100).selectExpr("cast(id as string) data").coalesce(1)
        write_rows(rows, target)
        assert sorted({int(record.data) for record in target.records()}) == list(range(100))
