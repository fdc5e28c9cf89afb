"""Flink's connector in the same simulation: the watermark rules of the legacy KinesisDataFetcher, before and after FLINK-29099.

Written after its sources: a shard is idle by elapsed time, the tracker keeps the last value of each subtask, and the emitter checks the
limit after each record. The tracker responds at once and never fails, which is the best case for the connector.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shards import Shard

from .rule_checker import RuleChecker
from .schedule import JobRun
from .simulated_stream import SimulatedStream
from .simulator import Simulator
from .source import SimulatedSource
from .subtask import owner_of

SYNC_SECONDS, EMIT_SECONDS, CAPACITY = 1.0, 0.2, 100
LOWEST, HIGHEST = -(2**63), 2**63 - 1


class JobManager:
    """The global aggregate: the last value of each subtask; stale values are skipped."""

    def __init__(self, simulator: Simulator, checker: RuleChecker) -> None:
        self._simulator = simulator
        self._checker = checker
        self._entries: dict[int, tuple[int, float]] = {}
        self.read: set[str] = set()
        """Shards that were read to their end."""

    def update(self, subtask: int, watermark: int) -> int:
        now = self._simulator.now
        if watermark != LOWEST:
            self._entries[subtask] = (watermark, now)
        fresh = [value for value, updated in self._entries.values() if updated + 3 * SYNC_SECONDS >= now]
        value = min(fresh, default=LOWEST)
        self._checker.check_global_watermark("one", value)
        return value


@dataclass
class ShardWatermarkState:
    updated: float
    queue: deque[RecordBatch] = field(default_factory=deque)
    top: int | None = None
    emitted: int | None = None
    head: int = LOWEST
    room: asyncio.Event = field(default_factory=asyncio.Event)


class FlinkSubtask:
    """One KinesisDataFetcher. `refreshes_while_idle`: FLINK-29099."""

    def __init__(
        self,
        number: int,
        simulator: Simulator,
        stream: SimulatedStream,
        job_run: JobRun,
        checker: RuleChecker,
        manager: JobManager,
        refreshes: bool,
    ) -> None:
        self.number = number
        self.process = simulator.process()
        self._simulator = simulator
        self._stream = stream
        self._job_run = job_run
        self._checker = checker
        self._manager = manager
        self._refreshes_while_idle = refreshes
        self._source = SimulatedSource(simulator, self.process, stream, number, job_run.continuations)
        self._shards: dict[str, ShardWatermarkState] = {}
        self._last_watermark = self._propagated = self._next_watermark = self._last_global = LOWEST
        self._is_idle = False
        self._max_emit: float = math.inf
        self.lookahead = None if job_run.lookahead is None else max(job_run.lookahead, round(3_000 * SYNC_SECONDS))
        self.running = [
            self.process.spawn(each) for each in (self._discover(), self._emit(), self._watch(), self._sync())
        ]

    # --- reading ------------------------------------------------------------------------------------------------------------------

    async def _discover(self) -> None:
        while True:
            for shard in await self._source.list_shards("s"):
                mine = owner_of(shard, self._job_run.parallelism) == self.number and shard.key not in self._shards
                if mine and all(parent in self._manager.read for parent in self._stream.parents(shard.key)):
                    self._shards[shard.key] = ShardWatermarkState(self._simulator.now)
                    self.process.spawn(self._read(shard))
            await asyncio.sleep(2.0)

    async def _read(self, shard: Shard) -> None:
        state = self._shards[shard.key]

        async def consumer(batch: RecordBatch) -> Any:
            times = [int(data) for data in batch.data]
            for index, time in enumerate(times):
                while len(state.queue) >= CAPACITY:
                    state.room.clear()
                    await state.room.wait()
                state.top = time if state.top is None else max(state.top, time)
                state.updated = self._simulator.now
                watermark = state.top - self._stream.plan.disorder_ms
                one = batch.slice(index, index + 1).with_columns(event_times=[time], watermarks=[watermark])
                state.queue.append(one)
            return batch.read_position

        publisher = await self._source.create(shard, StartingPosition.trim_horizon(), None)
        while (await publisher.run(consumer)).name != "COMPLETE":
            pass
        self._manager.read.add(shard.key)

    # --- RecordEmitter ------------------------------------------------------------------------------------------------------------

    async def _emit(self) -> None:
        heads: set[str] = set()
        while True:
            for key, state in self._shards.items():
                if key not in heads and state.queue:
                    heads.add(key)
                    state.head = state.queue[0].event_times[0]
            ordered = sorted(heads, key=lambda key: self._shards[key].head)
            if not ordered or self._shards[ordered[0]].head > self._max_emit:
                await asyncio.sleep(0.1)
                continue
            state = self._shards[ordered[0]]
            following = self._shards[ordered[1]].head if len(ordered) > 1 else math.inf
            while state.queue:
                self._write(state)
                if state.head > following or state.head > self._max_emit:
                    break
            else:
                heads.discard(ordered[0])
            await asyncio.sleep(0)

    def _write(self, state: ShardWatermarkState) -> None:
        one = state.queue.popleft()
        state.room.set()
        known = None if self._last_global == LOWEST else self._last_global
        if not self.process.is_dead:
            self._checker.check_alignment(one, known, self.lookahead)
            self._checker.check_write(one, known)
        state.head, state.emitted = one.event_times[0], one.watermarks[0]

    # --- emitWatermark and sync ---------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(EMIT_SECONDS)
            self._emit_watermark()

    def _emit_watermark(self) -> None:
        interval = self._job_run.idle_interval
        idle_time = self._simulator.now - interval / 1000 if interval > 0 else math.inf
        lowest, following = HIGHEST, HIGHEST
        for state in self._shards.values():
            emitted = state.emitted
            if emitted is not None and (state.updated >= idle_time or state.queue or emitted > self._last_watermark):
                lowest = min(lowest, emitted)
                following = min(following, state.queue[0].watermarks[0] if state.queue else emitted)
        if lowest == HIGHEST:
            self._is_idle = self._is_idle or not self._shards or interval > 0
            return
        if lowest > self._last_watermark:
            if not self.process.is_dead:
                self._checker.check_sink_watermark(self.number, lowest, ())
            self._last_watermark, self._is_idle = lowest, False
        self._next_watermark = following

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            if self.process.is_dead or self._next_watermark == LOWEST or self.lookahead is None:
                continue
            if not (self._is_idle and self._next_watermark == self._propagated):
                self._last_global = self._manager.update(self.number, self._next_watermark)
                self._propagated = self._next_watermark
            elif self._refreshes_while_idle:
                self._last_global = self._manager.update(self.number, LOWEST)
            self._max_emit = self._last_global + self.lookahead
