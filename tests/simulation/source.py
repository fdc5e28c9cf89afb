"""SimulatedSource: a read is a request and a response with delays; the response has the state of the shard when it was sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from recordpublisher.publishers.base import RecordPublisher, RecordPublisherFactory, RunResult
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from .simulated_stream import SimulatedShard, SimulatedStream
from .simulator import Process, Simulator

RECORDS_PER_READ = 7
LATENCY_SECONDS = 0.4


class SimulatedSource(RecordPublisherFactory):
    """Reads a stream for one process. With `continuations` an empty read has a position that is no record's, as with fan-out (F6)."""

    keyless = True

    def __init__(
        self, simulator: Simulator, process: Process, stream: SimulatedStream, seed: int, continuations: bool
    ) -> None:
        self.simulator = simulator
        self.process = process
        self.stream = stream
        self.random = random.Random(seed)
        self.of_empty_reads = random.Random(f"{seed} empty reads")
        self.continuations = continuations
        self.largest_batch: dict[str, int] = {}
        self.empty_reads: dict[str, tuple[float, float]] = {}
        """By shard: when the service sent the first and the last of its consecutive responses that were empty and at the tip."""
        self.other_reads: dict[str, float] = {}
        """By shard: when it sent the first of its consecutive responses that were not."""
        self.before_request: Callable[[str], None] = lambda key: None
        self.before_read: Callable[[], None] = lambda: None
        """After a response, before its records are queued."""

    async def create(self, shard: Shard, starting_position: StartingPosition, metrics: Any) -> RecordPublisher:
        return SimulatedPublisher(self, self.stream[shard.key], starting_position)

    async def list_shards(self, stream: str) -> list[Shard]:
        if self.stream.plan.has_two_streams:
            await asyncio.sleep(2 * LATENCY_SECONDS)  # a stream may leave the list meanwhile
        now = self.simulator.now + 1e-9
        listed = (each.listed(now) for each in self.stream.shards.values() if each.shard.stream == stream)
        return [shard for shard in listed if shard is not None]

    async def shard_exists(self, shard: Shard) -> bool | None:
        """The service finds a shard also while listings lack it."""
        await asyncio.sleep(LATENCY_SECONDS)
        return self.stream[shard.key].opens <= self.simulator.now + 1e-9

    def record_read(self, key: str, is_empty_at_tip: bool) -> None:
        now = self.simulator.now
        if is_empty_at_tip:
            self.empty_reads[key] = (self.empty_reads.get(key, (now, now))[0], now)
            self.other_reads.pop(key, None)
        else:
            self.empty_reads.pop(key, None)
            self.other_reads.setdefault(key, now)

    async def request(self, simulated: SimulatedShard, read: Callable[[], Any]) -> Any:
        """Send a read to the service and return its response. During an outage reads fail and are retried, until the outage is over."""
        responded: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        delay = LATENCY_SECONDS * self.random.choice([0.25, 0.5, 0.5, 2])

        def serve() -> None:
            began, ended = simulated.outage
            if began <= self.simulator.now < ended:
                self.simulator.at(ended, serve)
                return
            response = read()
            self.simulator.after(delay, lambda: None if responded.done() else responded.set_result(response))

        self.simulator.after(delay, serve)
        return await responded


class FiniteSource(SimulatedSource):
    """A source that lists its shards itself, as that of a plugin. None follows those that it lists as closed."""

    async def discover(self, stream: str) -> list[Shard]:
        return await self.list_shards(stream)


class SimulatedPublisher(RecordPublisher):
    def __init__(self, source: SimulatedSource, simulated: SimulatedShard, start: StartingPosition) -> None:
        self._source = source
        self._simulated = simulated
        self._size = source.stream.plan.aggregate
        self._next = self._index_of(start)
        self._budget_bytes: int | None = None

    def set_read_budget(self, held_bytes: int) -> None:
        self._budget_bytes = held_bytes

    async def run(self, consumer: Callable[[RecordBatch], Any]) -> RunResult:
        source = self._source
        for _ in range(source.random.randint(1, 20)):
            source.before_request(self._simulated.shard.key)
            batch, is_end = await source.request(self._simulated, self._read)
            source.before_read()
            position = await consumer(batch)
            if position is not None:
                self._next = (int(position.sequence) + 1) * self._size
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

    def _read(self) -> tuple[RecordBatch, bool]:
        simulated, size, now = self._simulated, self._size, self._source.simulator.now + 1e-9
        arrived = simulated.arrived(now)
        wanted = max(
            1, RECORDS_PER_READ if self._budget_bytes is None else min(RECORDS_PER_READ, self._budget_bytes // 400)
        )
        stop = min(arrived, -(-(self._next + wanted) // size) * size)
        if (
            self._source.stream.plan.has_empty_reads
            and stop > self._next
            and self._source.of_empty_reads.random() < 0.5
        ):
            stop = self._next
        is_end = simulated.closes is not None and simulated.closes <= now and stop == len(simulated.times)
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
        if position is None and self._source.continuations and stop % size == 0:
            position = SequenceNumber(str(stop // size - 1), continuation=True)
        is_empty = not simulated.usable_between(self._next, stop)
        self._source.record_read(simulated.shard.key, is_empty and arrived == stop)
        children = simulated.children if is_end else ()
        batch = RecordBatch(simulated.shard, records, (arrived - stop) * 1000, position, children, len(records), 10)
        key, held = simulated.shard.key, self._source.largest_batch
        held[key] = max(held.get(key, 0), batch.held_bytes)
        return batch, is_end
