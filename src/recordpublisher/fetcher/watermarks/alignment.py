"""Event-time alignment: whose turn it is, and how much of a queued batch lies below the ceiling (W8, W9)."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right

from recordpublisher.publishers.clock import Clock

from ..coordination.active_minimum import ActiveMinimum
from ..coordination.watermark_tracker import SubtaskReport, WatermarkTracker
from ..min_heap import IndexedMinHeap
from ..shards.shard_table import ShardEntry
from ..watermark_rules import emit_limit

MARKER_FIRST = -math.inf


class Alignment:
    """Decides; owns the heads of all queues and what this subtask reports.

    A record is emitted iff its watermark <= global watermark + lookahead (W8). The reported value of a shard is the head of its queue
    when something is queued, so that a held record can raise the global value (W1). Without lookahead the shards take turns.
    """

    def __init__(
        self, tracker: WatermarkTracker, subtask: int, lookahead_ms: int | None, startup_timeout_ms: int, clock: Clock
    ) -> None:
        self._tracker = tracker
        self._subtask = subtask
        self._lookahead = lookahead_ms
        self._clock = clock
        self._patience_seconds = startup_timeout_ms / 1000
        self._patience_ends = math.inf
        self._reported = ActiveMinimum()
        self._heads = IndexedMinHeap()
        self._tickets = itertools.count()
        self._entries: dict[str, ShardEntry] = {}
        self.until: int | None = None
        """A fixed ceiling of a bounded run (epoch ms)."""
        self.furthest: int | None = None
        """Where the furthest shard stands (epoch ms), for others to measure their shards against (W12)."""

    def begin(self) -> None:
        """The job was opened: from now on it waits for the first global value (W10)."""
        self._patience_ends = self._clock.monotonic() + self._patience_seconds

    @property
    def is_out_of_patience(self) -> bool:
        """Whether the start-up timeout is over (W6, W10)."""
        return self._clock.monotonic() >= self._patience_ends

    @property
    def is_alone(self) -> bool:
        """Whether the subtask goes by its own minimum, since nothing was ever heard of the tracker (W10)."""
        return self.is_out_of_patience and self._tracker.current() is None and not self._tracker.is_reachable

    @property
    def global_watermark(self) -> int | None:
        """The last known global watermark (epoch ms)."""
        return self._tracker.current()

    @property
    def holder(self) -> str | None:
        """The shard that holds this subtask's minimum (W10)."""
        return self._reported.lowest_key()

    @property
    def lag_ms(self) -> int | None:
        """How far this subtask's furthest shard lies above the global watermark: much more than the lookahead, and one holds all (W12)."""
        value = self.global_watermark
        return None if value is None or self.furthest is None else max(0, self.furthest - value)

    def changed(self, entry: ShardEntry, takes_part: bool = True, holds_others: bool = True) -> None:
        """A shard's queue, stage or idleness changed.

        `takes_part` is False for a shard that may emit no more in this run, `holds_others` for one that nobody should wait for.
        """
        self._entries[entry.key] = entry
        active = holds_others and entry.is_active
        head = entry.next_watermark
        self._reported.set(entry.key, active, entry.alignment_watermark)
        self._heads.set(entry.key, self._turn(entry, head) if entry.queue and takes_part else None)
        self._note_held(entry, head)

    def forget(self, key: str) -> None:
        """A shard is no more."""
        self._reported.forget(key)
        self._heads.set(key, None)
        self._entries.pop(key, None)

    def took_its_turn(self, entry: ShardEntry) -> None:
        """A shard emitted: without a gate it goes to the end of the line."""
        self._heads.set(entry.key, None)

    def report(self) -> int | None:
        """Tell the tracker where this subtask stands, idle or not (W7), and learn the global watermark."""
        status, watermark = self._reported.status()
        return self._tracker.report(SubtaskReport(self._subtask, status, watermark, self.furthest))

    def value(self) -> int | None:
        """The global watermark after telling where this subtask stands, or what stands in for it (W10)."""
        value = self.report()
        return self._own_minimum_after_patience() if value is None else value

    def next_emission(self) -> tuple[ShardEntry, int] | None:
        """The shard whose turn it is and how many records of its first batch may go; None: everything waits or is empty."""
        lowest = self._heads.lowest()
        if lowest is None:
            return None
        entry = self._entries[lowest[1]]
        if entry.next_watermark is None:
            return entry, 0
        count = self._below(entry, self.ceiling())
        if not count:
            self._wait_for(entry.next_watermark)
        return (entry, count) if count else None

    def ceiling(self) -> float:
        """No record with a watermark above it may be emitted (epoch ms; infinite without alignment)."""
        bound = math.inf if self.until is None else self.until
        if self._lookahead is None:
            return bound
        return min(bound, emit_limit(self.value(), self._lookahead))

    def _wait_for(self, head: int) -> None:
        """Say which global watermark lets the held record go, to be told when it is reached (W9a)."""
        if self._lookahead is not None and (self.until is None or head <= self.until):
            self._tracker.notify_at(head - self._lookahead)

    def _turn(self, entry: ShardEntry, head: int | None) -> float:
        """What orders the heads: markers first, then event time, or a ticket that is kept until the turn comes."""
        if head is None:
            return MARKER_FIRST
        if self._is_gated:
            return self._turn_beside_others(head) if entry.left_behind else head
        held_ticket = self._heads.value(entry.key)
        return next(self._tickets) if held_ticket is None or held_ticket == MARKER_FIRST else held_ticket

    def _turn_beside_others(self, head: int) -> float:
        """A shard that is left out would always be the lowest: it takes turns with the lowest of those that count (P7, W12)."""
        lowest = self._reported.status()[1]
        return head if lowest is None else max(head, lowest + 1)

    @property
    def _is_gated(self) -> bool:
        return self._lookahead is not None or self.until is not None

    def _own_minimum_after_patience(self) -> int | None:
        """Before any first value of a tracker that does not answer, its own minimum stands in once the start-up timeout is over (W10).

        One that answers and knows no value yet is waited for: some shard has not spoken (W2).
        """
        return self._reported.status()[1] if self.is_alone else None

    def _below(self, entry: ShardEntry, ceiling: float) -> int:
        watermarks = entry.queue[0].watermarks or ()
        if watermarks[-1] <= ceiling:
            return len(watermarks) - entry.offset
        return bisect_right(watermarks, ceiling, lo=entry.offset) - entry.offset

    def _note_held(self, entry: ShardEntry, head: int | None) -> None:
        """Keep the time that a shard was held at the gate; it borrows no memory meanwhile (P6)."""
        is_held = self._is_gated and head is not None and head > self._last_ceiling()
        if is_held and entry.held_since is None:
            entry.held_since = self._clock.monotonic()
        elif not is_held and entry.held_since is not None:
            entry.held_seconds += self._clock.monotonic() - entry.held_since
            entry.held_since = None

    def _last_ceiling(self) -> float:
        bound = math.inf if self.until is None else self.until
        if self._lookahead is None:
            return bound
        return min(bound, emit_limit(self._tracker.current(), self._lookahead))
