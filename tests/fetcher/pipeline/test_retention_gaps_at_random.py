"""S5 on random schedules: whatever stands still for however long, no record is lost without a count, and none is counted without cause."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from recordpublisher.fetcher.shard_fetcher import ShardFetcher
from recordpublisher.local import Account, Delays, MemoryTransport
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fetcher_over_transport import fetcher_over
from fakes.scripted_source import RecordingSink
from random_inputs import inputs

SEEDS = 30
HOUR = 3_600.0
SHARD = "orders/shardId-000000000000"
SETTLE_SECONDS = 60


class Schedule:
    """One job over the embedded endpoint that stands still now and then: suspended, or stopped and started again."""

    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        self.hours = draw.choice([24, 24, 48, 168])
        self.account = Account(VirtualClock(), "us-east-1", Delays(consumer=100), None)
        self.stream = self.account.create_stream("orders", 1)
        self.stream.retention_hours = self.hours
        self.may_describe = draw.random() < 0.7
        self.publisher = "POLLING" if not self.may_describe else draw.choice(["POLLING", "EFO"])
        if not self.may_describe:
            self.account.faults.fail_next("DescribeStreamSummary", "AccessDeniedException", 10_000)
        self.sink = RecordingSink()
        self.produced = 0
        self.fetcher: ShardFetcher | None = None
        self.running: asyncio.Task[Any] | None = None

    def put(self) -> None:
        for _ in range(self.random.choice([0, 1, 5])):
            self.stream.put(str(self.produced).encode(), "k")
            self.produced += 1

    async def start(self, *snapshots: dict[str, Any]) -> None:
        given = {
            "aws.region": "us-east-1",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.stream.efo.consumername": "c",
            "flink.stream.recordpublisher": self.publisher,
            "flink.state.dataloss": "CONTINUE",
            "flink.shard.getrecords.maxrecordcount": self.random.choice([1, 10_000]),
        }
        self.fetcher = fetcher_over(
            MemoryTransport(self.account), Properties(given), self.sink, VirtualClock(), restore=snapshots
        )
        await self.fetcher.open()
        self.running = asyncio.create_task(self.fetcher.run())

    async def stop(self) -> dict[str, Any]:
        assert self.fetcher is not None
        assert self.running is not None
        self.fetcher.stop()
        await self.running
        snapshot = self.fetcher.snapshot()
        await self.fetcher.close()
        return snapshot

    def counted(self) -> int:
        assert self.fetcher is not None
        metrics = self.fetcher.metrics()["shards"][SHARD]
        return int(metrics["retentionGaps"] + metrics["retentionNotChecked"])

    def missing(self) -> set[int]:
        return set(range(self.produced)) - {number for _, number in self.sink.rows}

    async def stand_still(self, hours: float) -> int:
        """Returns what was counted before, by the fetcher that runs afterwards."""
        parts = [hours * share for share in (0.21, 0.5, 0.29)]  # no record is exactly as old as a retention
        if self.random.random() < 0.5:
            loop: Any = asyncio.get_running_loop()
            before = self.counted()
            for part in parts:
                loop.suspend(part * HOUR)
                self.put()
            return before
        snapshot = await self.stop()
        for part in parts:
            await asyncio.sleep(part * HOUR)
            self.put()
        await self.start(snapshot)
        return 0

    async def run(self) -> None:
        self.put()
        await self.start()
        await asyncio.sleep(SETTLE_SECONDS)
        lost_before: set[int] = set()
        for _ in range(self.random.randint(2, 5)):
            self.put()
            await asyncio.sleep(self.random.choice([0.3, 5.0, SETTLE_SECONDS]))
            hours = self.random.choice([1, 20, 23.5, 30, 60, 200])
            before = await self.stand_still(hours)
            await asyncio.sleep(SETTLE_SECONDS)
            lost, counted = self.missing() - lost_before, self.counted() - before
            about = f"{self.publisher}, {hours} h of {self.hours} h, lost {sorted(lost)}, counted {counted}"
            assert counted == 1 if lost else counted <= 1, about
            if hours < 24 or (self.may_describe and hours < self.hours):
                assert (lost, counted) == (set(), 0), about
            lost_before |= lost
        await self.stop()
        numbers = [number for _, number in self.sink.rows]
        assert numbers == sorted(set(numbers))


@pytest.mark.random
@pytest.mark.parametrize("first", [0, *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(10, SEEDS, 10))])
def test_nothing_is_lost_without_a_count_and_nothing_is_counted_without_cause(first):
    for seed in range(first, first + (10 if first else inputs(10, 4))):
        try:
            run_virtual(Schedule(seed).run())
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
