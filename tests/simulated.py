"""A simulated source on one virtual loop: records arrive, reads are slow or fail. Processes of their own: tests/simulation/."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.base import RecordPublisher, RecordPublisherFactory, RunResult
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from virtual_time import VirtualClock


@dataclass
class SimulatedShard:
    """`arrivals` (virtual seconds) and `times` (event times, ms) of its records; from `opens` on it is listed, from `closes` on it ends."""

    shard: Shard
    opens: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    closes: float | None = None
    children: tuple[Shard, ...] = ()
    outage: tuple[float, float] = (0.0, 0.0)
    """Reads between these moments are not answered before the second one."""

    def arrived(self, now: float) -> int:
        return sum(arrival <= now for arrival in self.arrivals)


class SimulatedSource(RecordPublisherFactory):
    """Reads a world: shards by key, and a plan with `aggregate`.

    `continuations` makes empty reads say a position that is not a record's, as fan-out does (F6).
    """

    def __init__(self, world: Any, seed: int, per_read: int, latency: float, continuations: bool) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.per_read = per_read
        self.latency = latency
        self.continuations = continuations
        self.restored = False
        self.largest_batch: dict[str, int] = {}
        self.before_read: Callable[[], None] = lambda: None

    async def create(self, shard: Shard, starting_position: StartingPosition, metrics: Any) -> RecordPublisher:
        return SimulatedPublisher(self, self.world[shard.key], starting_position)

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        now = VirtualClock().monotonic() + 1e-9
        return [each.shard for each in self.world.shards.values() if each.opens <= now]


class SimulatedPublisher(RecordPublisher):
    def __init__(self, source: SimulatedSource, simulated: SimulatedShard, start: StartingPosition) -> None:
        self._source = source
        self._simulated = simulated
        self._size = source.world._plan.aggregate
        self._next = self._index_of(start)
        self._room: int | None = None

    def offer_room(self, held_bytes: int) -> None:
        self._room = held_bytes

    async def run(self, consumer: Callable[[RecordBatch], Any]) -> RunResult:
        source, clock = self._source, VirtualClock()
        for _ in range(source.random.randint(1, 20)):
            await asyncio.sleep(source.latency * source.random.choice([0.5, 1, 1, 4]))
            began, ended = self._simulated.outage
            if began <= clock.monotonic() < ended:
                await asyncio.sleep(ended - clock.monotonic())
            source.before_read()
            batch, is_end = self._read(clock.monotonic())
            answered = await consumer(batch)
            if answered is not None:
                self._next = (int(answered.sequence) + 1) * self._size
            if is_end:
                return RunResult.COMPLETE
        return RunResult.INCOMPLETE

    def _index_of(self, start: StartingPosition) -> int:
        if start.sequence_number is None:
            assert start.type is PositionType.TRIM_HORIZON
            return 0
        if start.type is PositionType.AFTER_SEQUENCE_NUMBER:
            return (int(start.sequence_number) + 1) * self._size
        assert start.skip_through is not None
        return int(start.sequence_number) * self._size + start.skip_through.sub_sequence + 1

    def _read(self, now: float) -> tuple[RecordBatch, bool]:
        simulated, size = self._simulated, self._size
        arrived = simulated.arrived(now + 1e-9)
        wanted = max(1, self._source.per_read if self._room is None else min(self._source.per_read, self._room // 400))
        stop = min(arrived, -(-(self._next + wanted) // size) * size)
        is_end = simulated.closes is not None and simulated.closes <= now + 1e-9 and stop == len(simulated.times)
        records = [
            UserRecord(
                str(simulated.times[index]).encode(),
                str(index // size),
                simulated.arrivals[index],
                sub_sequence_number=index % size if size > 1 else -1,
            )
            for index in range(self._next, stop)
        ]
        position = SequenceNumber(records[-1].sequence_number) if records else None
        if position is None and self._source.continuations:
            position = SequenceNumber(str(stop // size - 1), continuation=True)
        children = simulated.children if is_end else ()
        batch = RecordBatch(simulated.shard, records, (arrived - stop) * 1000, position, children, len(records), 10)
        key, held = simulated.shard.key, self._source.largest_batch
        held[key] = max(held.get(key, 0), batch.held_bytes)
        return batch, is_end


class JournalSink(Sink):
    """Tells a judge of every call; a write takes `cost` virtual seconds."""

    def __init__(self, cost: float, written: Callable[[RecordBatch], None], told: Callable[[int], None]) -> None:
        self._cost = cost
        self._written = written
        self._told = told
        self._is_busy = False

    async def write(self, batch: RecordBatch) -> None:
        assert not self._is_busy, "calls of the sink overlap"
        self._is_busy = True
        if self._cost:
            await asyncio.sleep(self._cost)
        self._written(batch)
        self._is_busy = False

    async def watermark(self, watermark: int) -> None:
        assert not self._is_busy, "calls of the sink overlap"
        self._told(watermark)
