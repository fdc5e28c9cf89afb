"""FLINK-34071: a fan-out source and a throttled sink on one loop, for hours of virtual time; neither blocks the other forever (F1)."""

import asyncio

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shard_fetcher import build_fetcher
from recordpublisher.fetcher.shards.discovery import ShardDiscovery
from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.publishers.fanout import FanOutRecordPublisherFactory
from recordpublisher.publishers.fanout.registration import ConsumerRefCounts
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.positions import PositionType
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fanout_service import EFO, ScriptedPorts, record
from fakes.scripted_source import fetcher_dependencies
from fakes.writable_stream import FakeKinesis

RECORDS, EVENT, RATE, LIMIT = 40_000, 500, 5, 10_000
SUBSCRIPTION_SECONDS = 300


class Backlog(ScriptedPorts):
    """A shard with a backlog; a subscription delivers events as fast as they are read, for five minutes."""

    async def subscribe_to_shard(self, consumer_arn, shard, position):
        self.script = [()]
        await super().subscribe_to_shard(consumer_arn, shard, position)
        start = 1 if position.type is PositionType.TRIM_HORIZON else int(position.sequence_number) + 1
        return _Subscription(start)


class _Subscription:
    def __init__(self, start):
        self._next = start
        self._ends = VirtualClock().monotonic() + SUBSCRIPTION_SECONDS

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(0.01)
        if VirtualClock().monotonic() > self._ends:
            raise StopAsyncIteration
        if self._next > RECORDS:
            await asyncio.sleep(5)
            return ReadResponse([], 0, continuation=str(RECORDS))
        stop = min(self._next + EVENT, RECORDS + 1)
        records = [record(number, str(number).encode()) for number in range(self._next, stop)]
        self._next = stop
        return ReadResponse(records, RECORDS - stop + 1, continuation=str(stop - 1), wire_bytes=200 * len(records))

    async def close(self):
        self._ends = 0.0


async def copy():
    source, target = Backlog(), FakeKinesis()
    target.rate = RATE
    sink = KinesisSink("out", {**EFO, "aws.region": "eu-west-1"}, queue_limit=LIMIT, port=target, clock=VirtualClock())
    factory = FanOutRecordPublisherFactory(EFO, ports=source, clock=VirtualClock(), ref_counts=ConsumerRefCounts())
    discovery = ShardDiscovery(source, ("orders",), 10_000)
    parts = fetcher_dependencies(factory, sink, EFO, discovery=discovery, streams=("orders",))
    fetcher = build_fetcher(parts)
    await fetcher.open()
    clock = VirtualClock()
    running = asyncio.create_task(fetcher.run_bounded(Bounds(stop_at_tip=True)))
    await asyncio.sleep(60)
    began = clock.monotonic()
    await fetcher.checkpoint()
    flushed = clock.monotonic() - began
    result = await running
    await fetcher.close()
    return result.records, target.user_records(), flushed, clock.monotonic(), sink.metrics()


@pytest.mark.slow
def test_hours_of_back_pressure_with_a_flush_of_half_an_hour_among_them():
    written, read, flushed, hours, metrics = run_virtual(copy())

    assert written == RECORDS
    assert sorted(int(data) for _, data in read) == list(range(1, RECORDS + 1))
    assert flushed > 1_800
    assert RECORDS / RATE * 0.99 <= hours < RECORDS / RATE * 1.1
    assert metrics["backpressureCycles"] > 1_000
    assert metrics["outstandingRecordsCount"] == 0
