"""SparkSink on its own: when it delivers, what waits, what a failure means."""

from __future__ import annotations

import asyncio

import pytest

from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.sinks.spark.batch_sink import SparkSink
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard


class FakeSpark:
    """`createDataFrame` answers the rows' sequence numbers."""

    def createDataFrame(self, table):  # noqa: N802
        return table.column("sequenceNumber").to_pylist()


def batch(*sequence: int) -> RecordBatch:
    records = [UserRecord(b"12345", str(n), 1.0, "k") for n in sequence]
    return RecordBatch(Shard("s", "a"), records, raw_bytes=5 * len(records))


class Delivered(list):
    def __call__(self, frame, batch_id):
        self.append((batch_id, frame))


async def test_delivers_when_there_are_enough_rows():
    delivered = Delivered()
    sink = SparkSink(FakeSpark(), delivered, max_rows=3)
    await sink.write(batch(1, 2))
    assert delivered == []
    await sink.write(batch(3))
    await sink.write(batch(4))
    await sink.flush()
    await sink.close()
    assert delivered == [(0, ["1", "2", "3"]), (1, ["4"])]


async def test_delivers_when_there_are_enough_bytes():
    delivered = Delivered()
    sink = SparkSink(FakeSpark(), delivered, max_bytes=10)
    await sink.write(batch(1, 2))
    await sink.close()
    assert delivered == [(0, ["1", "2"])]


async def test_delivers_when_rows_have_waited_long_enough():
    called = asyncio.Event()
    loop = asyncio.get_running_loop()
    sink = SparkSink(FakeSpark(), lambda frame, n: loop.call_soon_threadsafe(called.set), max_seconds=0.01)
    await sink.write(batch(1))
    async with asyncio.timeout(10):
        await called.wait()
    await sink.close()


async def test_s6_a_failed_callback_is_never_confirmed_by_a_later_flush():
    def fail(frame, n):
        raise RuntimeError("disk full")

    sink = SparkSink(FakeSpark(), fail, max_rows=1)
    with pytest.raises(SinkError, match="disk full"):
        await sink.write(batch(1))
    with pytest.raises(SinkError, match="batch 0"):
        await sink.flush(Checkpoint({"v": 1}))
    await sink.close()


async def test_the_kept_state_and_the_number_of_the_next_batch_survive(tmp_path):
    path = tmp_path / "state.json"
    sink = SparkSink(FakeSpark(), Delivered(), state_path=path)
    assert await sink.open(SinkContext()) is None
    await sink.write(batch(1))
    await sink.flush(Checkpoint({"v": 1}))
    await sink.close()
    delivered = Delivered()
    again = SparkSink(FakeSpark(), delivered, state_path=path)
    assert await again.open(SinkContext()) == {"v": 1}
    await again.write(batch(2))
    await again.flush()
    await again.close()
    assert delivered == [(1, ["2"])]
