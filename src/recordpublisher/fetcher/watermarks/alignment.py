"""Decides which shard emits next, and how many of its queued records are within the emit limit (W8, W9).

Alignment reports the lowest watermark of the records to be emitted next, for the global watermark. The sink receives `LocalWatermark`.
"""

import itertools
import math
from typing import Protocol

from recordpublisher.publishers.clock import Clock

from .. import watermark_functions
from ..active_minimum import ActiveMinimum
from ..min_heap import IndexedMinHeap
from ..settings import AlignmentTimes
from ..shards.shard_entry import ShardEntry
from .watermark_tracker import WatermarkTracker

BEFORE_ALL_WATERMARKS = -math.inf


class RunningTime(Protocol):
    """Measures how long this process has been running."""

    @property
    def running_seconds(self) -> float:
        """Total time in which the process was not suspended (seconds)."""

    def check(self) -> None:
        """Detect a suspension now."""


class Alignment:
    """Owns the next watermark of every shard, and what this subtask reports to the tracker.

    A record may be emitted if its watermark is at most the global watermark plus the lookahead (W8). A shard with queued records is
    reported with the watermark of its next record, so that a record that is held back can still raise the global watermark (W1). Without a
    lookahead the shards take turns.
    """

    def __init__(
        self,
        tracker: WatermarkTracker,
        settings: AlignmentTimes,
        clock: Clock,
        running_time: RunningTime,
    ) -> None:
        self._tracker = tracker
        self._lookahead = settings.lookahead_ms
        self._clock = clock
        self._running_time = running_time
        self._active = ActiveMinimum()
        self._next_shards = IndexedMinHeap()
        """The shards that may emit, in their order: by next watermark, or by turn."""
        self._stragglers = IndexedMinHeap()
        """The stragglers among the shards that may emit, by next watermark (W12)."""
        self._turns = itertools.count()
        self._entries: dict[str, ShardEntry] = {}
        self._until_event_time: int | None = None
        """The event-time bound of a bounded run (epoch ms)."""
        self.max_watermark: int | None = None
        """The highest watermark of this subtask's active shards (epoch ms): other subtasks measure their stragglers against it (W12)."""

    @property
    def global_watermark(self) -> int | None:
        """The last known global watermark (epoch ms)."""
        return self._tracker.current()

    @property
    def blocking_shard(self) -> str | None:
        """The shard with this subtask's lowest watermark, for which the other shards wait."""
        return self._active.lowest_key()

    @property
    def lag_ms(self) -> int | None:
        """How far this subtask's highest watermark is above the global watermark (ms).

        If it is much more than the lookahead, one shard blocks all others (W12).
        """
        value = self.global_watermark
        return None if value is None or self.max_watermark is None else max(0, self.max_watermark - value)

    def start_run(self, until_event_time: int | None) -> None:
        """Start a run. With an event-time bound (epoch ms), no record above it is emitted."""
        self._until_event_time = until_event_time

    def on_max_watermark(self, max_watermark: int | None) -> None:
        """Set the highest watermark of the subtask's active shards."""
        self.max_watermark = max_watermark

    def update(self, entry: ShardEntry, may_emit: bool = True, holds_watermark: bool = True) -> None:
        """Register a change of a shard's queue, stage or idleness.

        `may_emit` is False if the shard emits no more in this run, and `holds_watermark` if watermarks do not wait for it.
        """
        self._entries[entry.key] = entry
        watermark = entry.next_watermark
        is_active = holds_watermark and entry.is_active
        self._active.set(entry.key, is_active, entry.alignment_watermark)
        can_emit = bool(entry.reading.queue) and may_emit
        self._next_shards.set(entry.key, self._order(entry, watermark) if can_emit else None)
        self._stragglers.set(
            entry.key, watermark if can_emit and entry.status.is_straggler and self._has_limit else None
        )
        self._update_held_time(entry, watermark)

    def remove(self, key: str) -> None:
        """Forget a shard that was removed."""
        self._active.forget(key)
        self._next_shards.set(key, None)
        self._stragglers.set(key, None)
        self._entries.pop(key, None)

    def on_emitted(self, entry: ShardEntry) -> None:
        """Note that a shard has emitted. If the shards take turns, the next `update` puts it last."""
        self._next_shards.set(entry.key, None)
        self._stragglers.set(entry.key, None)

    def report(self) -> int | None:
        """Report this subtask's status and watermark to the tracker, even while idle (W7), and return the global watermark."""
        self._running_time.check()
        status, watermark = self._active.status()
        return self._tracker.report(status, watermark)

    def select_next(self) -> tuple[ShardEntry, int] | None:
        """Return the shard that emits next, and how many records of its first batch, or None if all shards are held back or empty.

        This reports to the tracker.
        """
        first = self._next_shards.lowest()
        if first is None:
            return None
        entry = self._entries[first[1]]
        watermark = entry.next_watermark
        if watermark is None:
            return entry, 0
        limit = self.emit_limit()
        count = entry.reading.queue.count_within(limit)
        if count:
            return entry, count
        lowest_straggler = self._stragglers.lowest()
        if lowest_straggler is not None:  # a straggler may be within the limit although it does not come first
            watermark = min(watermark, int(lowest_straggler[0]))
            entry = self._entries[lowest_straggler[1]]
            count = entry.reading.queue.count_within(limit)
            if count:
                return entry, count
        return None

    def emit_limit(self) -> float:
        """Return the highest watermark that may be emitted (epoch ms; infinite without alignment). This reports to the tracker."""
        return self._limit(None if self._lookahead is None else self.report())

    def _limit(self, global_watermark: int | None) -> float:
        limit = watermark_functions.emit_limit(global_watermark, self._lookahead)
        return limit if self._until_event_time is None else min(limit, self._until_event_time)

    @property
    def _has_limit(self) -> bool:
        return self._lookahead is not None or self._until_event_time is not None

    def _order(self, entry: ShardEntry, watermark: int | None) -> float:
        """Return the order of a shard. The shard with the lowest order emits next.

        A batch without records comes first. With a limit the order is the next watermark. Without a limit it is the number of a turn, which
        a shard keeps until it has emitted.
        """
        if watermark is None:
            return BEFORE_ALL_WATERMARKS
        if self._has_limit:
            return self._order_of_straggler(watermark) if entry.status.is_straggler else watermark
        turn = self._next_shards.value(entry.key)
        return next(self._turns) if turn is None or turn == BEFORE_ALL_WATERMARKS else turn

    def _order_of_straggler(self, watermark: int) -> float:
        """Return the order of a straggler, which takes turns with the lowest shard that counts (P7, W12).

        With its own watermark a straggler would always be the lowest.
        """
        lowest = self._active.status()[1]
        return watermark if lowest is None else max(watermark, lowest + 1)

    def _update_held_time(self, entry: ShardEntry, watermark: int | None) -> None:
        """Measure how long a shard is held back. In that time it gets no extra memory (P6)."""
        is_held = self._has_limit and watermark is not None and watermark > self._limit(self._tracker.current())
        entry.status.set_held(is_held, self._clock.monotonic())
