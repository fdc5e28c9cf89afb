"""Emitter: writes to the sink and moves the position, one step (S1); tells the sink the watermark."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.records import RecordBatch

from ..shards.shard_table import ShardEntry, ShardStage
from ..sink import Sink
from ..watermarks.alignment import Alignment
from ..watermarks.local_watermark import LocalWatermark
from ..watermarks.stragglers import late_after_idle
from .shard_queues import ShardQueues
from .suspension import SuspensionDetector
from .termination import TerminationCondition

SHORTEST_TURN_SECONDS, LONGEST_TURN_SECONDS = 0.005, 0.05
"""How long the emitter may keep the loop for itself while the sink never waits: as long as the readers kept it before, within these."""


class Emitter:
    """The only caller of the sink's `write` and `watermark`, so that calls never overlap. It is told to stop and never cancelled, so
    that a write is never cut off."""

    def __init__(
        self,
        sink: Sink,
        alignment: Alignment,
        intake: ShardQueues,
        clock: Clock,
        pulse: SuspensionDetector,
        emit_interval_ms: int,
        ended: Callable[[ShardEntry], None],
        poisoned: Callable[[RecordBatch], Awaitable[None]],
    ) -> None:
        self._sink = sink
        self._alignment = alignment
        self._intake = intake
        self._clock = clock
        self._pulse = pulse
        self._emit_interval = emit_interval_ms / 1000
        self._ended = ended
        self._poisoned = poisoned
        self._wake = asyncio.Event()
        self._stopping = False
        self._last_told = float("-inf")
        self._turn_began = clock.monotonic()
        self._turn_seconds = SHORTEST_TURN_SECONDS
        self.sink_calls = asyncio.Lock()
        """Held around every call to the sink."""
        self.local_watermark = LocalWatermark()
        self.records = 0

    def wake(self) -> None:
        """Something changed: look again."""
        self._wake.set()

    def begin(self) -> None:
        """Get ready for a run."""
        self._stopping = False

    def stop(self) -> None:
        """Return after the write that is going on."""
        self._stopping = True
        self._wake.set()

    async def run(self, finish_line: TerminationCondition, finished: Callable[[], None]) -> None:
        """Emit until stopped; calls `finished` when the finish line is reached."""
        while not self._stopping:
            if finish_line.reason() is not None:
                finished()
                break
            turn = self._alignment.next_emission()
            if turn is not None:
                await self._emit(turn[0], turn[1], finish_line)
                continue
            self._wake.clear()
            await self._tell_watermark()
            if self._alignment.next_emission() is None:
                await self._wake.wait()
                self._pulse.look()  # after a suspension everything is looked at anew before anything is gated (W7)
                self._turn_began = self._clock.monotonic()
        self._last_told = float("-inf")
        await self._tell_watermark()

    def note(self, entry: ShardEntry, finish_line: TerminationCondition) -> None:
        """A shard's queue, stage or idleness changed."""
        finish_line.changed(entry)
        holds_others = finish_line.holds_others(entry)
        self._alignment.changed(entry, finish_line.takes_part(entry), holds_others)
        self.local_watermark.changed(entry, holds_others)

    def forget(self, key: str, finish_line: TerminationCondition) -> None:
        """A shard is no more."""
        finish_line.forget(key)
        self._alignment.forget(key)
        self.local_watermark.forget(key)
        self._wake.set()

    def tick(self) -> None:
        """The heartbeat: the global watermark is refreshed, idle and held or not (W7), and the sink hears what is due."""
        self._alignment.report()
        self._wake.set()

    async def _emit(self, entry: ShardEntry, count: int, finish_line: TerminationCondition) -> None:
        batch, freed = entry.pop(finish_line.allowed(entry, count))
        if len(batch) or batch.poisoned:
            entry.is_writing = True
            async with self.sink_calls:
                late = late_after_idle(batch, entry.state.watermark, self._alignment.global_watermark)
                if batch.poisoned:
                    await self._poisoned(batch)
                if len(batch):
                    await self._sink.write(batch)
                entry.is_writing = False
                entry.late_after_idle += late
                entry.emitted(batch, self._clock.now_ms())
            self.records += len(batch)
            finish_line.emitted(entry, batch)
        else:
            entry.emitted(batch, self._clock.now_ms())
        self._alignment.took_its_turn(entry)
        self._after(entry, finish_line)
        self._intake.emitted(entry, freed)
        await self._tell_watermark()
        await self._give_way()

    async def _give_way(self) -> None:
        """Let the readers run also when the sink never waits (F1). Then the turn is as long as theirs was: else many fill the queues."""
        gave_way = self._clock.monotonic()
        if gave_way - self._turn_began < self._turn_seconds:
            return
        await asyncio.sleep(0)
        self._turn_began = self._clock.monotonic()
        self._turn_seconds = min(max(self._turn_began - gave_way, SHORTEST_TURN_SECONDS), LONGEST_TURN_SECONDS)

    def _after(self, entry: ShardEntry, finish_line: TerminationCondition) -> None:
        self.note(entry, finish_line)
        if entry.stage is ShardStage.ENDED:
            self._ended(entry)

    async def _tell_watermark(self) -> None:
        if self._clock.monotonic() - self._last_told < self._emit_interval:
            return
        self._last_told = self._clock.monotonic()
        # decided inside the lock: a shard may wake up while a flush is waited for, and then the value would be too high (W1)
        async with self.sink_calls:
            value = self.local_watermark.advance(self._alignment.value())
            if value is not None:
                await self._sink.watermark(value)
            elif self.local_watermark.turned_idle():
                await self._sink.idle()
