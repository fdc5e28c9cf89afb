"""Queries on a real Spark that fall behind their stream's retention: a gap is named, a quiet stream has none (S5)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from recordpublisher.fetcher.shards.retention_check import STILL_THERE_SECONDS
from recordpublisher.local import serve_in_thread

from spark_jobs.queries import WAIT_SECONDS, Kinesis, numbers, to_parquet

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
NOW = {"availableNow": True}
HOUR_MS = 3_600_000
BEHIND_MS = 200 * HOUR_MS
MAX_RECORDS = 10


class EarlyClock:
    """The endpoint lives in the past, so that a test can step it ahead up to the present of Spark's processes."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 - BEHIND_MS


@pytest.fixture
def stream() -> Iterator[Kinesis]:
    with serve_in_thread(clock=EarlyClock()) as served:
        yield Kinesis(served, "retained", 2)


def step(stream: Kinesis, hours: float) -> None:
    stream.served.call(stream.served.endpoint.account.clock.step, round(hours * HOUR_MS))


def set_retention(stream: Kinesis, hours: int) -> None:
    stream.served.call(setattr, stream.stream, "retention_hours", hours)


def failure_of(query: Any) -> str:
    deadline = time.monotonic() + WAIT_SECONDS
    while query.exception() is None:
        assert time.monotonic() < deadline, "the query goes on"
        time.sleep(0.2)
    return str(query.exception())


@pytest.mark.parametrize("is_written", [False, True])
def test_an_available_now_run_a_day_later_fails_only_if_there_are_later_records(spark, stream, tmp_path, is_written):
    stream.put(100)
    to_parquet(stream.load(spark, tmp_path), tmp_path, **NOW).awaitTermination()
    step(stream, 25)
    if is_written:
        stream.put(100)
    again = to_parquet(stream.load(spark, tmp_path), tmp_path, **NOW)

    if is_written:
        assert "past retention and lost" in failure_of(again).splitlines()[0]
    else:
        again.awaitTermination()
    assert numbers(spark, tmp_path) == list(range(100))


class HeldSink:
    """A foreachBatch sink that keeps the numbers of each batch, and holds the one with which it has more than one batch of records."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.began = threading.Event()
        self.released = threading.Event()

    def __call__(self, frame: Any, batch_id: int) -> None:
        self.numbers += [json.loads(bytes(row.data))["n"] for row in frame.select("data").collect()]
        if len(self.numbers) > MAX_RECORDS:
            self.began.set()
            assert self.released.wait(WAIT_SECONDS)


def wait_until(query: Any, condition: Any) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.2)


@pytest.mark.parametrize("on_loss", ["FAIL", "CONTINUE"])
def test_a_running_query_that_falls_behind_a_shortened_retention_fails_or_goes_on_without(
    spark, stream, tmp_path, on_loss
):
    set_retention(stream, 48)
    stream.put(100, shard=0)
    step(stream, 25)
    sink = HeldSink()
    frame = stream.load(
        spark, tmp_path, maxRecordsPerBatch=MAX_RECORDS, maxTasks=1, **{"flink.state.dataloss": on_loss}
    )
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert sink.began.wait(WAIT_SECONDS)
        read = len(sink.numbers)
        set_retention(stream, 24)
        time.sleep(STILL_THERE_SECONDS)  # no answer of the service is cached for longer where records are missing
        stream.put(10, shard=0)
        sink.released.set()
        if on_loss == "FAIL":
            assert "retained/shardId-000000000000 after" in failure_of(query)
        else:
            wait_until(query, lambda: 109 in sink.numbers)
    finally:
        sink.released.set()
        query.stop()
    assert sink.numbers == [*range(read), *([] if on_loss == "FAIL" else range(100, 110))]
