"""SimulatedReaders: reads the shards of one life and writes them to an at-least-once sink, in small steps."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from recordpublisher.fetcher.elastic.committed_positions import SinkLives
from recordpublisher.fetcher.leases.documents.position_part import StoredPosition
from recordpublisher.fetcher.leases.planning.group_watermark import ShardWatermark
from recordpublisher.fetcher.leases.planning.shard_loads import LoadRate
from recordpublisher.fetcher.leases.shard_readers import ReadPositions
from recordpublisher.fetcher.pipeline.suspension import SuspensionDetector
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

from ..simulator import Process, Simulator
from .group_checker import GroupChecker
from .simulated_shards import SimulatedShards


@dataclass
class _Reader:
    position: int
    epoch: int
    rate: LoadRate
    observed: float
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
    ) -> None:
        """`sink_lives`: of a sink that commits."""
        self.may_write: Callable[[], bool] = lambda: True
        self.detector: SuspensionDetector | None = None
        self.emit_limit: Callable[[], float] = lambda: math.inf
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
        self._readers[shard] = _Reader(position, self._checker.epoch_of(self._worker, shard), LoadRate(now), now)

    async def stop(self, shards: Collection[str]) -> None:
        for shard in shards:
            if shard in self._readers:
                self._readers[shard].is_stopped = True
        if self._writing in shards:
            await self._written.wait()

    def drop(self, shards: Collection[str]) -> None:
        for shard in shards:
            self._readers.pop(shard, None)
        if self._sink_lives is not None:
            self._sink_lives.sink.revoked(shards)

    @asynccontextmanager
    async def checkpoint(self, *, may_be_partial: bool = False) -> AsyncIterator[ReadPositions]:
        if self._sink_lives is not None:
            async with self._sink_lives._emitter.between_writes():
                positions = {shard: self._stored(shard, reader) for shard, reader in self._readers.items()}
                yield ReadPositions(positions, is_before_commit=True)
            return
        positions = {shard: self._stored(shard, reader) for shard, reader in self._readers.items()}
        longest = self._random.choice([0.0, 0.1, 0.1, 2.0]) if self._flush_seconds is None else self._flush_seconds
        await asyncio.sleep(longest * self._random.random())
        yield ReadPositions(positions)

    @property
    def is_held(self) -> bool:
        return self._is_held

    def watermarks(self) -> Mapping[str, ShardWatermark]:
        return {shard: self._watermark(shard) for shard in self._readers}

    def loads(self) -> Mapping[str, float]:
        now, found = self._simulator.now, {}
        for shard, reader in self._readers.items():
            reader.total_bytes += self._shards.by_key[shard].bytes_per_second * (now - reader.observed)
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
            if self._has_ended_shards():
                self.request_checkpoint.set()
            unread = [
                shard
                for shard, reader in self._readers.items()
                if not reader.is_stopped and reader.position < self._shards.by_key[shard].records
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
            self._checker.on_write(self._worker, shard, reader.position, count, reader.epoch, was_suspended)
            if self._sink_lives is not None:
                self._sink_lives.sink.waiting.append((shard, reader.position, reader.position + count))  # type: ignore[attr-defined]
            reader.position += count
        self._writing = None
        self._written.set()

    def _has_ended_shards(self) -> bool:
        return any(
            reader.position == self._shards.by_key[shard].records and self._shards.by_key[shard].children
            for shard, reader in self._readers.items()
        )

    def _emittable(self, shard: str) -> int:
        """How many of the next records are not above the emit limit (W8)."""
        position, described, limit = self._readers[shard].position, self._shards.by_key[shard], self.emit_limit()
        unread = range(position, described.records)
        return sum(1 for each in unread[:10] if described.watermark(each) <= limit)

    def _watermark(self, shard: str) -> ShardWatermark:
        """An open shard that was read to its tip is idle."""
        position, described = self._readers[shard].position, self._shards.by_key[shard]
        is_idle = position == described.records and not described.children
        return ShardWatermark(described.watermark(position), is_idle)

    def _stored(self, shard: str, reader: _Reader) -> StoredPosition:
        described = self._shards.by_key[shard]
        has_ended = reader.position == described.records and bool(described.children)
        state = ShardState(
            StartingPosition.trim_horizon(),
            SequenceNumber(str(reader.position)) if reader.position else None,
            watermark=described.watermark(reader.position),
            ended=has_ended,
        )
        return StoredPosition(state, described.children if has_ended else {}, self._watermark(shard).is_idle)
