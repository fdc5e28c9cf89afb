"""Emitter: writes batches to the sink and advances the position in one step (S1); passes the watermark on to the sink."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.records import RecordBatch

from ..shards.shard_entry import ShardEntry, ShardStage
from ..sink import Sink
from ..watermarks.alignment import Alignment
from ..watermarks.local_watermark import LocalWatermark
from ..watermarks.straggler_exclusion import count_late_after_idle
from .shard_queues import ShardQueues
from .suspension import SuspensionDetector
from .termination import TerminationCondition

MIN_TURN_SECONDS, MAX_TURN_SECONDS = 0.005, 0.05
"""How long the emitter runs before it yields to the readers if the sink never waits: as long as their last turn, within these limits."""


class WriteGate(Protocol):
    """Decides about the writes of a worker that others may replace (E4)."""

    async def may_write(self, entry: ShardEntry) -> bool:
        """Wait until the sink may be written to. False: the shard is not read any more, or the emitter stops: its batch must be dropped."""
        ...

    def has(self, entry: ShardEntry) -> bool:
        """Whether the shard is still this worker's."""
        ...


class Emitter:
    """The only caller of the sink's `write` and `watermark`, so that calls never overlap.

    It is stopped and never cancelled, so that a write is never cut off.
    """

    def __init__(
        self,
        sink: Sink,
        alignment: Alignment,
        queues: ShardQueues,
        clock: Clock,
        suspension: SuspensionDetector,
        emit_interval_ms: int,
        on_shard_ended: Callable[[ShardEntry], None],
        handle_undeserialized: Callable[[RecordBatch], Awaitable[None]],
    ) -> None:
        self._sink = sink
        self._alignment = alignment
        self._queues = queues
        self._clock = clock
        self._suspension = suspension
        self._emit_interval = emit_interval_ms / 1000
        self._on_shard_ended = on_shard_ended
        self._handle_undeserialized = handle_undeserialized
        self._wake = asyncio.Event()
        self.is_stopping = False
        self._last_watermark_at = float("-inf")
        self._turn_began = clock.monotonic()
        self._turn_seconds = MIN_TURN_SECONDS
        self.sink_lock = asyncio.Lock()
        """Held around every call of the sink."""
        self.local_watermark = LocalWatermark()
        self.records = 0
        self.records_in_write = 0
        """In the call of the sink's `write` that is going on."""
        self.write_gate: WriteGate | None = None
        """Asked before each write, where shards move between processes."""

    def wake(self) -> None:
        """Something changed: check again what may be emitted."""
        self._wake.set()

    def start(self) -> None:
        """Prepare for a run."""
        self.is_stopping = False

    def stop(self) -> None:
        """Return from `run` after the current write."""
        self.is_stopping = True
        self._wake.set()

    async def run(self, termination: TerminationCondition, on_bounds_reached: Callable[[], None]) -> None:
        """Emit until stopped. Calls `on_bounds_reached` when the run has reached its bounds."""
        while not self.is_stopping:
            if termination.end_reason() is not None:
                on_bounds_reached()
                break
            selected = self._alignment.select_next() if self._sink.has_room() else None
            if selected is not None:
                await self._emit(selected[0], selected[1], termination)
                continue
            self._wake.clear()
            await self._emit_watermark()
            if not self._sink.has_room() or self._alignment.select_next() is None:
                await self._wake.wait()
                self._suspension.check()  # after a suspension idleness is judged again before anything is emitted (W7)
                self._turn_began = self._clock.monotonic()
        self._last_watermark_at = float("-inf")
        await self._emit_watermark()

    def update(self, entry: ShardEntry, termination: TerminationCondition) -> None:
        """A shard's queue, stage or idleness changed."""
        termination.update(entry)
        holds_watermark = termination.holds_watermark(entry)
        self._alignment.update(entry, termination.may_emit(entry), holds_watermark)
        self.local_watermark.update(entry, holds_watermark)

    def remove(self, key: str, termination: TerminationCondition) -> None:
        """A shard was removed."""
        termination.remove(key)
        self._alignment.remove(key)
        self.local_watermark.remove(key)
        self._wake.set()

    def on_heartbeat(self) -> None:
        """Refresh the global watermark, also while idle or held back (W7), and emit to the sink what is due."""
        self._alignment.report()
        self._wake.set()

    async def _emit(self, entry: ShardEntry, count: int, termination: TerminationCondition) -> None:
        batch, freed = entry.pop(termination.max_emittable(entry, count))
        if len(batch) or batch.poisoned:
            entry.is_writing = True
            async with self.sink_lock:
                if self.write_gate is not None and not await self.write_gate.may_write(entry):
                    entry.is_writing = False
                    self._queues.on_emitted(entry, freed)
                    return
                late = count_late_after_idle(batch, entry.state.watermark, self._alignment.global_watermark)
                if batch.poisoned:
                    await self._handle_undeserialized(batch)
                if len(batch):
                    self.records_in_write = len(batch)
                    await self._sink.write(batch)
                    self.records_in_write = 0
                entry.is_writing = False
                entry.count_late(late)
                entry.advance(batch, self._clock.now_ms())
            self.records += len(batch)
            if self.write_gate is not None and not self.write_gate.has(entry):
                self._queues.on_emitted(entry, freed)
                return
            termination.count_emitted(entry, batch)
        else:
            entry.advance(batch, self._clock.now_ms())
        self._alignment.on_emitted(entry)
        self.update(entry, termination)
        if entry.stage is ShardStage.ENDED:
            self._on_shard_ended(entry)
        self._queues.on_emitted(entry, freed)
        await self._emit_watermark()
        await self._yield_to_readers()

    async def _yield_to_readers(self) -> None:
        """Let the readers run, also when the sink never waits (F1).

        The emitter's next turn is as long as theirs was: with a shorter one, many readers would fill the queues.
        """
        yielded_at = self._clock.monotonic()
        if yielded_at - self._turn_began < self._turn_seconds:
            return
        await asyncio.sleep(0)
        self._turn_began = self._clock.monotonic()
        self._turn_seconds = min(max(self._turn_began - yielded_at, MIN_TURN_SECONDS), MAX_TURN_SECONDS)

    async def _emit_watermark(self) -> None:
        if self._clock.monotonic() - self._last_watermark_at < self._emit_interval:
            return
        self._last_watermark_at = self._clock.monotonic()
        # Decided while holding the lock: during a flush a shard may become active again, and a value from before would be too high (W1).
        async with self.sink_lock:
            value = self.local_watermark.advance(self._alignment.report_and_get())
            if value is not None:
                await self._sink.watermark(value)
            elif self.local_watermark.take_idle_transition():
                await self._sink.idle()
