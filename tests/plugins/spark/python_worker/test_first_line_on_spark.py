"""Errors inside tasks: the first line of what the user catches has their sentence, but for a heading of Spark's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from iam.policy_front import PolicyFront, serve_front
from spark_jobs.queries import WAIT_SECONDS, Kinesis, to_parquet, write_rows, write_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
NOW = {"availableNow": True}
HEADING = "An exception was thrown from the Python worker"
"""Spark's driver puts it before the error of a task that is not part of a query."""


class RefusingFront(PolicyFront):
    """Refuses one kind of call: it is not allowed, or its token has expired."""

    def __init__(self, url: str) -> None:
        super().__init__({"kinesis": url}, {"Statement": []})
        self.denied_action = self.expired_action = "none"

    def has_expired(self, headers: Any) -> bool:
        return headers.get("X-Amz-Target", "").endswith(f".{self.expired_action}")

    def _allows(self, action: str, resource: str) -> bool:
        return action != f"kinesis:{self.denied_action}"


@pytest.fixture
def front(served: Any) -> Iterator[RefusingFront]:
    with serve_front(RefusingFront(served.url)) as front:
        yield front


def first_line(run: Callable[[], object]) -> str:
    """The first line of the error that a user catches, behind the heading."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's kinds of errors differ by call
        run()
    first, second, *_ = str(caught.value).strip().splitlines()
    return second if first.startswith(HEADING) else first


def batch(spark: Any, stream: Kinesis, **more: object) -> Any:
    given = {"stream": stream.name, **stream.served.endpoint.properties(), **more}
    return spark.read.format("kinesis").options(**{key: str(value) for key, value in given.items()}).load()


def test_a_batch_read_whose_getrecords_is_denied(spark, kinesis, front):
    stream, front.denied_action = kinesis("denied-batch", 1), "GetRecords"
    stream.put(10)
    line = first_line(batch(spark, stream, **{"aws.endpoint": front.url}).collect)
    assert "is not authorized to perform: kinesis:GetRecords" in line


def test_a_batch_read_whose_token_has_expired(spark, kinesis, front):
    stream, front.expired_action = kinesis("expired-batch", 1), "GetRecords"
    stream.put(10)
    line = first_line(batch(spark, stream, **{"aws.endpoint": front.url}).collect)
    assert "GetRecords" in line
    assert "expired" in line.lower()


def test_a_batch_read_from_a_position_of_a_stream_that_was_recreated(spark, kinesis):
    kinesis("recreated-batch", 1).put(10)
    old = kinesis("recreated-batch", 1)
    old.put(10)
    (*_, record) = old.records()
    start = json.dumps({record.shard_id: str(int(record.sequence_number) + 2**100)})
    line = first_line(batch(spark, old, startingPosition=start).collect)
    assert "If the stream was deleted and created again" in line


def test_a_query_whose_getrecords_is_denied(spark, kinesis, front, tmp_path):
    stream, front.denied_action = kinesis("denied-query", 1), "GetRecords"
    stream.put(10)
    frame = stream.load(spark, tmp_path, **{"aws.endpoint": front.url})
    line = first_line(lambda: to_parquet(frame, tmp_path, **NOW).awaitTermination())
    assert "is not authorized to perform: kinesis:GetRecords" in line


def test_a_batch_write_whose_putrecords_is_denied(spark, kinesis, front):
    target, front.denied_action = kinesis("denied-write", 1), "PutRecords"
    rows = spark.createDataFrame([("k", "v")], ["partitionKey", "data"])
    line = first_line(lambda: write_rows(rows, target, **{"aws.endpoint": front.url}))
    assert "task " in line
    assert "is not authorized to perform: kinesis:PutRecords" in line


def test_a_written_query_whose_putrecords_is_denied(spark, kinesis, front, tmp_path):
    target, front.denied_action = kinesis("denied-written", 1), "PutRecords"
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    rows = rows.selectExpr("'k' AS partitionKey", "CAST(value AS STRING) AS data")
    ends = {"trigger": NOW, "aws.endpoint": front.url}
    line = first_line(lambda: write_stream(rows, target, tmp_path, **ends).awaitTermination())
    assert "of batch 0: " in line
    assert "is not authorized to perform: kinesis:PutRecords" in line
