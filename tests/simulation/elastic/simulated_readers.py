"""SimulatedReaders: reads the shards of one life and writes them to an at-least-once sink, in small steps."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from recordpublisher.fetcher.elastic.positions_with_rows import SinkLives
from recordpublisher.fetcher.leases.group_watermark import ShardWatermark
from recordpublisher.fetcher.leases.planning import LoadRate
from recordpublisher.fetcher.leases.position_documents import StoredPosition
from recordpublisher.fetcher.leases.position_store import CheckpointPositions
from recordpublisher.fetcher.pipeline.process_suspension import SuspensionDetector
from recordpublisher.fetcher.shards.read_state import latest
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import RevocationReason
from recordpublisher.publishers.positions import SequenceNumber

from ..simulator import Clock, Process, Simulator
from .group_checker import GroupChecker
from .simulated_shards import SimulatedShard, SimulatedShards


@dataclass
class _Reader:
    position: int
    epoch: int
    rate: LoadRate
    observed: float
    described: SimulatedShard
    state: ShardState
    """As it began."""
    seen_ms: int | None
    """Until when nothing of the shard was lost (S5)."""
    total_bytes: float = 0.0
    is_stopped: bool = False


class SimulatedReaders:
    """The ShardReaders port. `may_write` is asked before each write; the write itself takes up to half a second."""

    def __init__(
        self,
        worker: str,
        simulator: Simulator,
        process: Process,
        shards: SimulatedShards,
        checker: GroupChecker,
        draw: random.Random,
        flush_seconds: float | None = None,
        sink_lives: SinkLives | None = None,
        *,
        names_children: bool = True,
    ) -> None:
        """`sink_lives`: of a sink that commits. `names_children`: whether the end of a shard does."""
        self._names_children = names_children
        self.on_deleted: Callable[[], None] = lambda: None
        """The stream of a shard that is read was deleted."""
        self.may_write: Callable[[], bool] = lambda: True
        self.detector: SuspensionDetector | None = None
        self.emit_limit: Callable[[], float] = lambda: math.inf
        self.is_limited = False
        """Whether `emit_limit` is set."""
        self._is_held = False
        self._worker = worker
        self._simulator = simulator
        self._process = process
        self._shards = shards
        self._checker = checker
        self._random = draw
        self._flush_seconds = flush_seconds
        self._sink_lives = sink_lives
        self._readers: dict[str, _Reader] = {}
        self._writing: str | None = None
        self._written = asyncio.Event()
        self.request_checkpoint = asyncio.Event()

    def begin(self, shard: str, state: ShardState, *, is_taken_over: bool = False) -> None:
        position = 0 if state.position is None else int(state.position.sequence)
        now = self._simulator.now
        epoch = self._checker.epoch_of(self._worker, shard)
        described, seen_ms = self._shards.described(shard), latest(state.arrival_ms, state.seen_ms)
        if position < described.oldest:
            self._checker.on_begin_past_retention(shard, described.oldest, seen_ms)
            position = described.oldest
        self._readers[shard] = _Reader(position, epoch, LoadRate(now), now, described, state, seen_ms)

    async def stop(self, shards: Collection[str]) -> None:
        for shard in shards:
            if shard in self._readers:
                self._readers[shard].is_stopped = True
        if self._writing in shards:
            await self._written.wait()

    def drop(self, shards: Mapping[str, RevocationReason]) -> None:
        for shard, reason in shards.items():
            if shard in self._readers:
                if reason in (RevocationReason.GIVEN, RevocationReason.ENDED) and self._is_there(shard):
                    self._checker.on_finished(self._worker, shard, self._readers[shard].position)
                del self._readers[shard]
        if self._sink_lives is not None:
            self._sink_lives.sink.revoked(shards)

    def drop_all(self) -> None:
        self.drop(dict.fromkeys(self._readers, RevocationReason.LOST))

    @asynccontextmanager
    async def checkpoint(self, *, may_be_partial: bool = False) -> AsyncIterator[CheckpointPositions]:
        if self._sink_lives is not None:
            async with self._sink_lives._emitter.between_writes():
                positions = {shard: self._stored(shard, reader) for shard, reader in self._readers.items()}
                yield CheckpointPositions(positions, is_before_commit=True)
            return
        positions = {shard: self._stored(shard, reader) for shard, reader in self._readers.items()}
        longest = self._random.choice([0.0, 0.1, 0.1, 2.0]) if self._flush_seconds is None else self._flush_seconds
        await asyncio.sleep(longest * self._random.random())
        yield CheckpointPositions(positions)

    @property
    def is_aligned(self) -> bool:
        return self.is_limited

    @property
    def is_held(self) -> bool:
        return self._is_held

    def watermarks(self) -> Mapping[str, ShardWatermark]:
        return {shard: self._watermark(shard) for shard in self._readers}

    def has_unfinished(self, shards: Collection[str]) -> bool:
        return False

    def loads(self) -> Mapping[str, float]:
        now, found = self._simulator.now, {}
        for shard, reader in self._readers.items():
            reader.total_bytes += reader.described.bytes_per_second * (now - reader.observed)
            reader.observed = now
            reader.rate.observe(round(reader.total_bytes), now)
            if (load := reader.rate.bytes_per_second) is not None:
                found[shard] = load
        return found

    async def run(self) -> None:
        """Read and write until cancelled; look rarely while there is nothing to read, since each look costs the simulation time."""
        readable: list[str] = []
        while True:
            await asyncio.sleep(self._random.uniform(0.3, 0.7) * (1 if readable else 4))
            if any(not self._is_there(shard) for shard in self._readers):
                self.on_deleted()
            if self._has_ended_shards():
                self.request_checkpoint.set()
            unread = [
                shard
                for shard, reader in self._readers.items()
                if not reader.is_stopped and self._is_there(shard) and reader.position < reader.described.records
            ]
            readable = [shard for shard in unread if self._emittable(shard)]
            self._is_held = len(readable) < len(unread)
            if readable:
                await self._write(self._random.choice(readable))

    async def _write(self, shard: str) -> None:
        if self.detector is not None:
            self.detector.check()
        if not self.may_write():
            return
        reader, suspensions = self._readers[shard], self._process.suspensions
        count = min(self._random.randint(1, 6), self._emittable(shard))
        self._writing = shard
        self._written.clear()
        async with AsyncExitStack() as held:
            if self._sink_lives is not None:
                await held.enter_async_context(self._sink_lives._emitter.between_writes())
            await asyncio.sleep(self._random.uniform(0, 0.5))
            was_suspended = self._process.suspensions > suspensions
            is_there = reader.described is self._shards.by_key.get(shard)
            if is_there:
                self._checker.on_write(self._worker, shard, reader.position, count, reader.epoch, was_suspended)
            if self._sink_lives is not None and is_there:
                self._sink_lives.sink.waiting.append((shard, reader.position, reader.position + count))  # type: ignore[attr-defined]
            reader.position += count
            reader.seen_ms = Clock(self._simulator).now_ms()
        self._writing = None
        self._written.set()

    def _has_ended_shards(self) -> bool:
        return any(
            reader.position == reader.described.records and reader.described.children
            for reader in self._readers.values()
        )

    def _is_there(self, shard: str) -> bool:
        """Whether the shard that is read belongs to the stream that is there now."""
        return self._readers[shard].described is self._shards.by_key.get(shard)

    def _emittable(self, shard: str) -> int:
        """How many of the next records are not above the emit limit (W8)."""
        position, described, limit = self._readers[shard].position, self._readers[shard].described, self.emit_limit()
        unread = range(position, described.records)
        return sum(1 for each in unread[:10] if described.watermark(each) <= limit)

    def _watermark(self, shard: str) -> ShardWatermark:
        """An open shard that was read to its tip is idle."""
        position, described = self._readers[shard].position, self._readers[shard].described
        is_idle = position == described.records and not described.children
        return ShardWatermark(described.watermark(position), is_idle)

    def _stored(self, shard: str, reader: _Reader) -> StoredPosition:
        described = reader.described
        has_ended = self._is_there(shard) and reader.position == described.records and bool(described.children)
        state = ShardState(
            reader.state.start,
            SequenceNumber(str(reader.position)) if reader.position else None,
            watermark=described.watermark(reader.position),
            ended=has_ended,
            seen_ms=reader.seen_ms,
        )
        is_named = has_ended and self._names_children and not described.is_expired
        return StoredPosition(state, described.children if is_named else {}, self._watermark(shard).is_idle)
