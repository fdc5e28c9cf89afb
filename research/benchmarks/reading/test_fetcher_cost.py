"""CPU per record of a whole fetcher without a network: decorator, queueing, slicing, writing (printed, without a goal)."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

import recordpublisher as rp
from recordpublisher.consumer.deserialization import BytesDeserializer
from recordpublisher.consumer.event_time import ArrivalTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.properties.properties import Properties

from fakes.scripted_source import make_fetcher

SHARDS, BATCHES, BATCH = 4, 25, 10_000


class InMemoryPublisher(rp.RecordPublisher):
    """Publishes batches made in advance."""

    def __init__(self, batches: list[rp.RecordBatch]) -> None:
        self._batches = batches

    async def run(self, consumer: Any) -> rp.RunResult:
        while self._batches:
            await consumer(self._batches.pop(0))
            await asyncio.sleep(0)
        return rp.RunResult.COMPLETE


class InMemoryFactory(rp.RecordPublisherFactory):
    """Shards whose records arrive a millisecond apart, the second shard's half a batch later than the first's, and so on."""

    def __init__(self) -> None:
        self.shards = [rp.Shard("s", str(number), closed=True) for number in range(SHARDS)]
        self._batches = {shard: [_batch(shard, number) for number in range(BATCHES)] for shard in self.shards}

    async def create(self, shard: rp.Shard, starting_position: Any, metrics: Any) -> rp.RecordPublisher:
        return InMemoryPublisher(self._batches[shard])

    async def list_shards(self, stream: str, after: str | None = None) -> list[rp.Shard]:
        return self.shards


class NoSink(rp.Sink):
    writes = 0

    async def write(self, batch: rp.RecordBatch) -> None:
        self.writes += 1


def _batch(shard: rp.Shard, number: int) -> rp.RecordBatch:
    first = number * BATCH
    offset = int(shard.shard_id) * BATCH // 2
    records = [
        rp.UserRecord(bytes(200), str(index), 1.7e9 + (index + offset) / 1000, "key")
        for index in range(first, first + BATCH)
    ]
    last = rp.SequenceNumber(records[-1].sequence_number)
    return rp.RecordBatch(shard, records, 1000, last, raw_count=BATCH, raw_bytes=200 * BATCH)


@pytest.mark.benchmark
@pytest.mark.parametrize("lookahead", [None, 1_000, 10_000], ids=["unaligned", "aligned 1 s", "aligned 10 s"])
def test_cpu_per_record(lookahead, capsys):
    source, sink = InMemoryFactory(), NoSink()
    given = Properties({"flink.watermark.lookahead.millis": lookahead})

    def decorator(shard, metrics):
        strategy = BoundedOutOfOrderness(given)
        return BatchDecorator(
            BytesDeserializer(),
            ArrivalTimestamps(),
            strategy,
            metrics,
            on_poison=OnBadRecord.FAIL,
            future_limit_ms=3_600_000,
        )

    async def job() -> float:
        fetcher = make_fetcher(cast(Any, source), sink, dict(given), clock=SystemClock(), decorator_for=decorator)
        await fetcher.open()
        began = time.process_time()
        result = await fetcher.run_bounded(Bounds(max_time=60))
        assert result.records == SHARDS * BATCHES * BATCH
        return time.process_time() - began

    seconds = asyncio.run(job())
    with capsys.disabled():
        print(f"\n{seconds / (SHARDS * BATCHES * BATCH) * 1e6:.3f} us of CPU a record, {sink.writes} writes")
