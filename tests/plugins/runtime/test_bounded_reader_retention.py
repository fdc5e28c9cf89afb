"""A Spark task that reads on behind its shard's retention names the gap; a replay of claimed records does not look for one (S5)."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.runtime.bounded_reader import BoundedReader
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.positions import StartingPosition

SHARD = rp.Shard("orders", "shardId-000000000000")
START = ShardState(StartingPosition.trim_horizon())
TIP = Bounds(stop_at_tip=True)
HOUR_MS = 3_600_000


class SteppedClock(SystemClock):
    """The machine's clocks; the wall clock can be moved ahead."""

    ahead_ms = 0

    def now_ms(self):
        return super().now_ms() + self.ahead_ms


class Task:
    """Reads the shard again and again, each time from where the last read ended."""

    def __init__(self, endpoint, clock, **properties):
        self.endpoint, self.clock, self.state = endpoint, clock, START
        self.reader = BoundedReader(rp.Properties({**endpoint.properties(), **properties}), "POLLING", clock)

    async def read(self, **more):
        sink = rp.MemorySink()
        result = await self.reader.read({SHARD: self.state}, sink, TIP, **more)
        self.state = result.shards[SHARD.key].state
        return [record.data for record in sink.records]

    def put(self, data):
        self.endpoint.stream("orders").put(data, "k")


@asynccontextmanager
async def a_task(**properties):
    clock = SteppedClock()
    async with LocalKinesis(streams={"orders": 1}, clock=clock) as endpoint:
        task = Task(endpoint, clock, **properties)
        try:
            task.put(b"0")
            assert await task.read() == [b"0"]
            yield task
        finally:
            await task.reader.close()


async def test_a_read_behind_the_retention_names_the_gap():
    async with a_task() as task:
        task.put(b"lost")
        task.clock.ahead_ms += 25 * HOUR_MS
        task.put(b"later")

        with pytest.raises(rp.DataLossError, match=SHARD.key):
            await task.read()


async def test_a_job_that_accepts_the_loss_reads_on():
    async with a_task(**{"flink.state.dataloss": "CONTINUE"}) as task:
        task.put(b"lost")
        task.clock.ahead_ms += 25 * HOUR_MS
        task.put(b"later")

        assert await task.read() == [b"later"]


async def test_a_tip_that_an_empty_read_has_seen_is_in_the_state():
    async with a_task() as task:
        task.clock.ahead_ms += 20 * HOUR_MS
        assert await task.read() == []
        task.clock.ahead_ms += 20 * HOUR_MS
        task.put(b"later")

        assert await task.read() == [b"later"]


async def test_a_replay_finds_its_records_by_the_claim():
    async with a_task() as task:
        task.clock.ahead_ms += 25 * HOUR_MS
        task.put(b"claimed")

        assert await task.read(is_replay=True) == [b"claimed"]


async def test_a_reader_that_is_not_behind_never_asks_for_the_retention(caplog):
    async with a_task() as task:
        task.endpoint.faults.fail_next("DescribeStreamSummary", "AccessDeniedException", 100)
        task.put(b"1")

        assert await task.read() == [b"1"]
    assert "retention" not in caplog.text
