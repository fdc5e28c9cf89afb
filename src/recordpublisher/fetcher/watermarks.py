"""Computes watermarks over the shards of a worker: the global watermark, and the watermark that the sink receives.

`WatermarkTracker` is the port that provides the global watermark, and `OwnWatermark` its implementation for a process that reads every
shard (W6). `Alignment` orders the shards, `EndedParentHold` lets watermarks wait for ended parents (W5), `LocalWatermark` keeps the sink's
watermark, and `StragglerDetector` excludes shards that are far behind (W12). The rules for one shard are in `global_watermark_rules.py`.
"""

from __future__ import annotations

import heapq
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

from ..publishers.clock import Clock
from ..publishers.shards import Shard
from . import global_watermark_rules
from .global_watermark_rules import holds_after_end, raised_watermark
from .settings import AlignmentTimes
from .shards.lineage import parent_keys
from .shards.shard_entry import ShardEntry
from .shards.shard_table import ShardTable

# WatermarkTracker is the port that provides the global watermark (W6): of the shards of this process alone, or of a group of workers.


class WatermarkTracker(ABC):
    """Provides the global watermark, which never falls. No call waits for a service."""

    @abstractmethod
    def report(self, status: ShardsStatus, watermark: int | None) -> int | None:
        """Report the lowest watermark of this process, and return the global watermark (epoch ms), or None before one is known.

        - `status`: whether any shard counts.
        - `watermark`: the lowest watermark of the shards that count (epoch ms), or None if one of them has had no record yet.
        """

    @abstractmethod
    def current(self) -> int | None:
        """Return the global watermark (epoch ms), or None before one is known."""

    @property
    def has_others(self) -> bool:
        """Whether the global watermark depends on shards of other processes as well."""
        return False

    @property
    def waits_for_others(self) -> bool:
        """Whether the global watermark waits for a shard of another process. Every shard of this process was above it."""
        return False

    @property
    def worker(self) -> str | None:
        """Name of this process in its group. It changes when other processes replace the worker. None without a group."""
        return None

    def after_suspension(self) -> None:  # noqa: B027 - optional on purpose
        """Called when this process was suspended."""

    def start_at(self, watermark: int | None) -> None:  # noqa: B027 - optional on purpose
        """Set the global watermark at the start of the job: the lowest watermark in the restored state."""

    def max_shard_watermark(self) -> int | None:
        """Return the highest watermark of any active shard of other processes (epoch ms); None if there are none."""
        return None


class OwnWatermark(WatermarkTracker):
    """The global watermark of a process that reads every shard: the minimum of all shards, computed at every decision."""

    def __init__(self) -> None:
        self._highest: int | None = None

    def report(self, status: ShardsStatus, watermark: int | None) -> int | None:
        """Raise the global watermark to the lowest watermark of the shards that count."""
        if status is ShardsStatus.ACTIVE:
            self._highest = raised_watermark(self._highest, watermark)
        return self._highest

    def current(self) -> int | None:
        """Return the global watermark: the highest minimum so far, so it never falls."""
        return self._highest

    def start_at(self, watermark: int | None) -> None:
        """Raise the global watermark to `watermark`, the lowest restored one. A higher global watermark stays."""
        self._highest = raised_watermark(self._highest, watermark)


BEFORE_ALL_WATERMARKS = -math.inf


class Alignment:
    """Decides which shard may emit next, so that no shard gets too far ahead, and reports the worker's watermark to `tracker`.

    A record may be emitted if the watermark that its shard would then have is at most the global watermark plus the lookahead. A shard with
    queued records counts with the watermark of its next record, so a record that is held back can still raise the global watermark. Without
    a lookahead the shards take turns.
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
        """Shards that may emit and are stragglers (far behind), by next watermark."""
        self._turns = itertools.count()
        self._entries: dict[str, ShardEntry] = {}
        self._removed: int | None = None
        """The highest watermark of the shards that were removed (epoch ms)."""
        self._until_event_time: int | None = None
        """The event-time bound of a bounded run (epoch ms)."""
        self.max_watermark: int | None = None
        """The highest watermark of this worker's active shards (epoch ms). Other workers decide by it which of their shards are
        stragglers.
        """

    @property
    def global_watermark(self) -> int | None:
        """The last known global watermark (epoch ms)."""
        return self._tracker.current()

    @property
    def blocking_shard(self) -> str | None:
        """The shard with this worker's lowest watermark, or None if there is none. The other shards wait for it."""
        return self._active.lowest_key()

    @property
    def waits_for_others(self) -> bool:
        """Whether the global watermark waits for a shard of another worker."""
        return self._tracker.waits_for_others

    @property
    def lag_ms(self) -> int | None:
        """How far this worker's highest watermark is above the global watermark (ms).

        If it is much more than the lookahead, one shard holds back all others.
        """
        value = self.global_watermark
        return None if value is None or self.max_watermark is None else max(0, self.max_watermark - value)

    def start_run(self, until_event_time: int | None) -> None:
        """Start a run. With an event-time bound (epoch ms), no record above it is emitted."""
        self._until_event_time = until_event_time

    def on_max_watermark(self, max_watermark: int | None) -> None:
        """Set the highest watermark of the worker's active shards."""
        self.max_watermark = max_watermark

    def update(self, entry: ShardEntry, may_emit: bool = True, holds_watermark: bool = True) -> None:
        """Register a change of a shard's queue, stage or idleness.

        - `may_emit`: False if the shard emits no more records in this run.
        - `holds_watermark`: False if watermarks do not wait for the shard.
        """
        self._entries[entry.key] = entry
        watermark = entry.next_watermark
        is_active = holds_watermark and entry.is_active
        self._active.set(entry.key, is_active, entry.alignment_watermark)
        can_emit = bool(entry.reading.queue) and may_emit
        self._next_shards.set(entry.key, self._order(entry, watermark) if can_emit else None)
        self._stragglers.set(
            entry.key, watermark if can_emit and entry.status.is_straggler and self.has_limit else None
        )
        self._update_held_time(entry, watermark)

    def remove(self, key: str) -> None:
        """Forget a shard that was removed."""
        self._active.forget(key)
        self._next_shards.set(key, None)
        self._stragglers.set(key, None)
        if (entry := self._entries.pop(key, None)) is not None:
            self._removed = raised_watermark(self._removed, entry.state.watermark)

    def on_emitted(self, entry: ShardEntry) -> None:
        """Note that a shard has emitted records. If the shards take turns, the next `update` puts this shard last."""
        self._next_shards.set(entry.key, None)
        self._stragglers.set(entry.key, None)

    def entries(self) -> list[ShardEntry]:
        """Return the shards that were added and not removed, including those that watermarks do not wait for now."""
        return list(self._entries.values())

    def report(self) -> int | None:
        """Report this worker's watermark to the tracker, even while its shards are idle. Return the global watermark."""
        # A suspension of this process must not count as time in which the other workers did not report.
        self._running_time.check()
        status, watermark = self._active.status()
        return self._tracker.report(status, watermark)

    def report_end(self) -> int | None:
        """Report that no record follows: raise the global watermark to the highest watermark of all shards, even removed ones. Return it.

        It is not raised while watermarks still wait for a shard, because children of that shard may follow.
        """
        if self._active.status()[0] is ShardsStatus.IDLE:
            highest = self._removed
            for each in self._entries.values():
                highest = raised_watermark(highest, each.state.watermark)
            self._tracker.report(ShardsStatus.ACTIVE, highest)
        return self.report()

    def select_next(self) -> tuple[ShardEntry, int] | None:
        """Return the shard that emits next, and how many records of its first queued batch.

        Return None if no shard has queued records that alignment and the bounds of the run allow. The worker's watermark is reported to the
        tracker first.
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
        if lowest_straggler is not None:  # A straggler may be within the limit even if another shard comes first.
            watermark = min(watermark, int(lowest_straggler[0]))
            entry = self._entries[lowest_straggler[1]]
            count = entry.reading.queue.count_within(limit)
            if count:
                return entry, count
        return None

    def emit_limit(self) -> float:
        """Return the highest watermark that may be emitted (epoch ms; infinite without alignment).

        The worker's watermark is reported to the tracker first.
        """
        return self._limit(None if self._lookahead is None else self.report())

    def _limit(self, global_watermark: int | None) -> float:
        limit = global_watermark_rules.emit_limit(global_watermark, self._lookahead)
        return limit if self._until_event_time is None else min(limit, self._until_event_time)

    @property
    def has_limit(self) -> bool:
        """Whether records above some time are held back, by a lookahead or because the run ends at an event time."""
        return self._lookahead is not None or self._until_event_time is not None

    def _order(self, entry: ShardEntry, watermark: int | None) -> float:
        """Return a number by which shards are ordered: the shard with the lowest one emits next.

        A batch without records comes first. With alignment the number is the next watermark. Without alignment it is the number of a turn,
        which a shard keeps until it has emitted.
        """
        if watermark is None:
            return BEFORE_ALL_WATERMARKS
        if self.has_limit:
            return self._order_of_straggler(watermark) if entry.status.is_straggler else watermark
        turn = self._next_shards.value(entry.key)
        return next(self._turns) if turn is None or turn == BEFORE_ALL_WATERMARKS else turn

    def _order_of_straggler(self, watermark: int) -> float:
        """Return the number by which a straggler is ordered, so that it takes turns with the first other shard.

        If it were ordered by its own watermark, a straggler would always be first.
        """
        lowest = self._active.status()[1]
        return watermark if lowest is None else max(watermark, lowest + 1)

    def _update_held_time(self, entry: ShardEntry, watermark: int | None) -> None:
        """Note whether alignment holds the shard back now. While it does, the shard gets no extra memory."""
        is_held = self.has_limit and watermark is not None and watermark > self._limit(self._tracker.current())
        entry.status.set_held(is_held, self._clock.monotonic())


class RunningTime(Protocol):
    """Measures for how long this process has been running, without the time in which it was suspended."""

    @property
    def running_seconds(self) -> float:
        """Total time in which the process was not suspended (seconds)."""

    def check(self) -> None:
        """Find out now whether the process was suspended."""


# EndedParentHold lets watermarks wait for a shard after its end, until its children have readers (W5).

MAX_LISTINGS_WITHOUT_CHILDREN = 2
"""After this many listings without a child, an ended shard of a finite source counts as having none.

The first listing after a shard's end may have begun before that end; the second one would show a child.
"""


class _EndedShard(msgspec.Struct):
    """When a shard ended (monotonic seconds), and how many listings have shown no child since then."""

    at: float
    listings: int = 0

    def count_listing(self, *, is_last: bool) -> None:
        """Count a complete listing that shows no child. `is_last`: whether this listing proves that there is none."""
        self.listings += MAX_LISTINGS_WITHOUT_CHILDREN if is_last else 1


class EndedParentHold:
    """Decides for which ended shards watermarks still wait.

    Between the parent's last record and the start of the child's reader, no shard would count for the child. The global watermark could
    rise past the child's first records, which would then be late. Therefore watermarks wait for the parent until its children are known and
    read.

    - `has_others`: whether other workers exist. They may read a child that is not in the table. The lease table then makes the watermark
      wait for that child.
    - `is_endless`: returns whether a stream always has an open shard. An ended shard of such a stream has children.

    After a merge, watermarks do not wait for the parent that ended first. It may be further ahead than the lookahead. The other parent is
    still open and counts for the child.
    """

    def __init__(
        self,
        table: ShardTable,
        has_others: bool,
        timeout_ms: int,
        clock: Clock,
        is_endless: Callable[[str], bool] = lambda stream: False,
    ) -> None:
        self._table = table
        self._has_others = has_others
        self._timeout_seconds = timeout_ms / 1000
        self._clock = clock
        self._is_endless = is_endless
        self._ended: dict[str, _EndedShard] = {}

    def on_shard_ended(self, entry: ShardEntry) -> None:
        """Register a shard whose last record was emitted."""
        self._ended[entry.key] = _EndedShard(self._clock.monotonic())

    def on_listing(self, stream: str, shards: Iterable[Shard]) -> None:
        """Register a complete listing of a stream, after the table of shards has applied it.

        If a closed shard of a finite source has no child in this listing, no child follows later. Watermarks no longer wait for the shard.
        """
        closed = {shard.key for shard in shards if shard.closed}
        for key, ended in self._ended.items():
            if key in self._table and self._table[key].shard.stream == stream:
                ended.count_listing(is_last=key in closed)

    def update(self) -> None:
        """Decide again, for every ended shard, whether watermarks wait for it."""
        for key in tuple(self._ended):
            self._update(key)

    def update_parents_of_children(self, parent: str) -> None:
        """Decide again for an ended shard, and for shards that have a child in common with it. Other shards do not depend on its end."""
        children = self._table.children_of(parent)
        for key in {parent}.union(*map(parent_keys, children)) & self._ended.keys():
            self._update(key)

    def _update(self, key: str) -> None:
        if key not in self._table:
            del self._ended[key]
            return
        entry, ended = self._table[key], self._ended[key]
        children = self._table.children_of(key)
        waited_seconds = self._clock.monotonic() - ended.at
        if waited_seconds >= self._timeout_seconds or self._is_complete(entry, children, ended):
            del self._ended[key]
            holds = False
        else:
            has_unread_child = any(map(self._could_be_read_but_is_not, children))
            holds = holds_after_end(bool(children), has_unread_child, waited_seconds, self._timeout_seconds)
        entry.await_children(holds)

    def _is_complete(self, entry: ShardEntry, children: list[Shard], ended: _EndedShard) -> bool:
        """Return whether watermarks need no longer wait: every child has a reader, or there are no children.

        A closed shard of a finite source is listed together with its children. An ended shard of Kinesis always has children, even if
        listings do not show them yet.
        """
        if children or self._is_endless(entry.shard.stream):
            return bool(children) and all(map(self._is_started, children))
        return entry.shard.closed or ended.listings >= MAX_LISTINGS_WITHOUT_CHILDREN

    def _could_be_read_but_is_not(self, child: Shard) -> bool:
        return self._table.parents_finished(child) and not self._is_started(child)

    def _is_started(self, child: Shard) -> bool:
        if child.key in self._table:
            return not self._table[child.key].is_waiting
        return self._has_others


# LocalWatermark is the watermark that the sink receives: the lowest one of the active shards, as far as they were emitted, and never above
# the global watermark (W1).
#
# The global watermark is computed from what `Alignment` reports.


class LocalWatermark:
    """Keeps the watermark up to which each shard was emitted, and the sink's watermark: the last one that it received. It never falls."""

    def __init__(self) -> None:
        self._emitted = ActiveMinimum()
        self._last: int | None = None
        self._was_idle = False

    @property
    def value(self) -> int | None:
        """The last watermark that the sink received (epoch ms)."""
        return self._last

    def update(self, entry: ShardEntry, holds_watermark: bool = True) -> None:
        """Register that a shard has emitted, started or ended, or has become idle or active.

        `holds_watermark`: False if watermarks do not wait for the shard.
        """
        self._emitted.set(entry.key, holds_watermark and entry.is_active, entry.state.watermark)

    def remove(self, key: str) -> None:
        """Forget a shard that was removed."""
        self._emitted.forget(key)

    def advance(self, global_watermark: int | None, *, has_ended: bool = False) -> int | None:
        """Raise the watermark as far as possible, and return it. Return None if it did not rise, or if no global watermark is known yet.

        `has_ended`: whether every shard was read to its end. Then only the global watermark counts, because no record follows.
        """
        status, lowest = self._emitted.status()
        if status is ShardsStatus.IDLE and has_ended:
            lowest = global_watermark
        elif status is ShardsStatus.IDLE:
            return None
        self._was_idle = False
        if lowest is None or global_watermark is None:
            return None
        candidate = min(lowest, global_watermark)
        if self._last is not None and candidate <= self._last:
            return None
        self._last = candidate
        return candidate

    def take_idle_transition(self) -> bool:
        """Return whether the shards became idle since the last call."""
        is_idle = self._emitted.status()[0] is ShardsStatus.IDLE
        became_idle = is_idle and not self._was_idle
        self._was_idle = is_idle
        return became_idle


# StragglerDetector finds shards that are so far behind that watermarks do not wait for them (W12).


class StragglerDetector:
    """Decides which shards are excluded from watermarks (stragglers). The fetcher calls `update` after each sync interval.

    A shard is excluded while the watermark of its next record is more than `flink.watermark.alignment.max.lag` below the highest watermark
    of the job. It is read and emitted as before, but neither the global watermark nor the sink's watermark waits for it. It counts again
    when it has caught up. The shard with the highest watermark is never excluded, so at least one shard counts.
    """

    def __init__(
        self,
        table: ShardTable,
        tracker: WatermarkTracker,
        max_lag_ms: int | None,
    ) -> None:
        self._table = table
        self._tracker = tracker
        self._max_lag_ms = max_lag_ms
        self.max_watermark: int | None = None
        """The highest watermark of this worker's active shards (epoch ms). A shard counts with its next queued record, or else its last
        record.
        """

    def update(self) -> None:
        """Decide again for every shard whether it is excluded."""
        watermarks = {entry.key: value for entry in self._table if (value := watermark_of(entry)) is not None}
        self.max_watermark = max(watermarks.values(), default=None)
        if self._max_lag_ms is None:
            return
        highest = self.job_max_watermark
        for entry in self._table:
            entry.mark_straggler(is_straggler(watermarks.get(entry.key), highest, self._max_lag_ms))

    @property
    def job_max_watermark(self) -> int | None:
        """The highest watermark of the job's active shards, as far as this worker knows it (epoch ms)."""
        known = [each for each in (self.max_watermark, self._tracker.max_shard_watermark()) if each is not None]
        return max(known, default=None)


def is_straggler(watermark: int | None, highest: int | None, max_lag_ms: int) -> bool:
    """Return whether a shard is more than `max_lag_ms` below the highest watermark of the job.

    The result is False if either watermark is unknown.
    """
    return highest is not None and watermark is not None and highest - watermark > max_lag_ms


def watermark_of(entry: ShardEntry) -> int | None:
    """Return the watermark of a shard's next unwritten record, or else of its last record. Return None if the shard is idle or not open."""
    if not entry.is_open or (entry.reading.is_idle and not entry.has_unwritten):
        return None
    return entry.alignment_watermark


# IndexedMinHeap finds the lowest of many changing values in O(log n).

K = TypeVar("K", str, int)


class IndexedMinHeap(Generic[K]):
    """Keeps a value for each key. Setting a value, and finding the lowest one, cost O(log n).

    A replaced value stays in the heap until it would be the lowest, or until replaced values outnumber the current ones.
    """

    def __init__(self) -> None:
        self._values: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []

    def __len__(self) -> int:
        return len(self._values)

    def value(self, key: K) -> float | None:
        """Return the value of one key, or None if it has none."""
        return self._values.get(key)

    def set(self, key: K, value: float | None) -> None:
        """Set the value of `key`; None removes it."""
        if value is None:
            self._values.pop(key, None)
        elif self._values.get(key) != value:
            self._values[key] = value
            heapq.heappush(self._heap, (value, key))
            if len(self._heap) > 2 * len(self._values) + 64:
                self._rebuild()

    def lowest(self) -> tuple[float, K] | None:
        """Return the lowest value with its key, or None if the heap is empty."""
        heap, values = self._heap, self._values
        while heap:
            value, key = heap[0]
            if values.get(key) == value:
                return heap[0]
            heapq.heappop(heap)
        return None

    def _rebuild(self) -> None:
        self._heap = [(value, key) for key, value in self._values.items()]
        heapq.heapify(self._heap)


# ActiveMinimum finds the lowest watermark of the shards or workers that count, and whether any of them counts.


class ShardsStatus(Enum):
    """Whether the shards of a process, or a worker, count in the global minimum."""

    ACTIVE = "they count with the lowest watermark; without one the global watermark cannot rise"
    IDLE = "none of them counts"


class ActiveMinimum(Generic[K]):
    """Keeps the watermark of each active shard or worker, and finds the lowest. (Active means that watermarks wait for it.)

    While an active one has no watermark, the lowest watermark is None.
    """

    def __init__(self) -> None:
        self._known: IndexedMinHeap[K] = IndexedMinHeap()
        self._unknown: dict[K, None] = {}

    def set(self, key: K, active: bool, watermark: int | None) -> None:
        """Set the watermark of one key. `active`: whether the key counts."""
        self._known.set(key, watermark if active else None)
        if active and watermark is None:
            self._unknown[key] = None
        else:
            self._unknown.pop(key, None)

    def forget(self, key: K) -> None:
        """Remove a key."""
        self.set(key, False, None)

    def status(self) -> tuple[ShardsStatus, int | None]:
        """Return ACTIVE with the lowest watermark, or IDLE if no key counts. The watermark is None while an active key has none."""
        if self._unknown:
            return ShardsStatus.ACTIVE, None
        lowest = self._known.lowest()
        return (ShardsStatus.IDLE, None) if lowest is None else (ShardsStatus.ACTIVE, int(lowest[0]))

    def lowest_key(self) -> K | None:
        """Return the key that determines the minimum, or None if no key counts.

        If active keys have no watermark, it is the key that has had none for the longest time.
        """
        if self._unknown:
            return next(iter(self._unknown))
        lowest = self._known.lowest()
        return None if lowest is None else lowest[1]


def lowest_active(watermarks: Iterable[int | None]) -> tuple[ShardsStatus, int | None]:
    """Return ACTIVE with the lowest of `watermarks`, or with None if one of them is None. Return IDLE if there are none.

    `watermarks`: the watermark of each active shard or worker; None if it has none yet.
    """
    minimum: ActiveMinimum[int] = ActiveMinimum()
    for number, watermark in enumerate(watermarks):
        minimum.set(number, True, watermark)
    return minimum.status()
