"""Keeps what reads have shown of one shard (queue, tip, silence, end), the memory of its next read, and how far it was read and emitted."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from recordpublisher.publishers.positions import WHOLE_RECORD, PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, to_millis
from recordpublisher.publishers.shards import Shard

from ..conditional_store import Count, Millis, SequenceText, check_document
from ..settings import WAITS_FOR_EVERY_SHARD, IdleIntervals
from ..watermark_rules import is_idle


class ShardReading:
    """Keeps the records of a shard that were read and not emitted, and what the reads of this run have shown.

    - `has_started`: whether a reader has started, in this run or an earlier one.
    - `has_reached_end`: whether the shard was read to its end.
    - `is_finished`: whether this run needs no more reads of the shard.
    - `is_abandoned`: whether no run of this process reads the shard any longer: another process has it, or its stream is no longer read.
    - `at_tip`: whether the last read was at the tip.
    - `has_seen_tip`: whether any read of this run was at the tip.
    - `tip_seen_ms`: when the first and the last read at the tip returned (epoch ms).
    - `tip_ms`: when the last read at the tip that found no record was made (epoch ms).
    - `last_read_ms`: when the last read of any kind returned (epoch ms).
    - `children`: the child shards, known when the shard was read to its end.
    """

    def __init__(self, idleness: IdlenessTimer) -> None:
        self.queue = ShardQueue()
        self.idleness = idleness
        self.is_idle = False
        self.has_started = self.has_reached_end = False
        self.is_finished = self.is_abandoned = False
        self.at_tip = self.has_seen_tip = False
        self.tip_seen_ms: tuple[int, int] | None = None
        self.tip_ms: int | None = None
        self.last_read_ms: int | None = None
        self.children: tuple[Shard, ...] = ()

    @property
    def needs_no_more(self) -> bool:
        """Whether the shard must not be read any further, in this run or at all."""
        return self.is_finished or self.is_abandoned

    def start(self) -> None:
        """Prepare for a reader that starts: it has not reached the shard's tip in this run yet."""
        self.has_started = True
        self.at_tip = self.has_seen_tip = False
        self.tip_seen_ms = None

    def record(self, batch: RecordBatch, at: ReadMoment, is_writing: bool) -> None:
        """Keep what a batch that a read returned shows of the shard. The batch itself is queued later.

        `is_writing`: whether records of the shard are being written now.
        """
        self.last_read_ms = at.now_ms
        self.at_tip = batch.millis_behind_latest == 0
        if self.at_tip:
            # A batch with children is followed by the shard's end, so it does not show the tip.
            self.has_seen_tip |= not batch.child_shards
            self.tip_seen_ms = (self.tip_seen_ms[0] if self.tip_seen_ms else at.now_ms, at.now_ms)
        if self.at_tip and not len(batch) and not self.queue.records:
            self.idleness.on_empty_read(at.now, at.lost_seconds)
            # A stored time at the tip means that everything before it was written (S5). So it is not set while a record or dead letter
            # waits to be written: after a restart that record would seem to be written.
            if not is_writing and not any(each.poisoned for each in (batch, *self.queue)):
                self.tip_ms = at.read_ms
        else:
            self.idleness.on_record()
        self.is_idle = self.idleness.is_idle

    def end(self, children: Sequence[Shard]) -> None:
        """Mark the shard as read to its end."""
        self.has_reached_end = True
        self.children = tuple(children)

    def finish(self) -> None:
        """Mark the shard as not to be read again in this run. Records that are queued are still emitted."""
        self.is_finished = True

    def abandon(self) -> None:
        """Mark the shard as not to be read in this process from now on."""
        self.is_abandoned = True

    def reset(self) -> None:
        """Reset what counts for one run, because the run is over. The time until the next read does not count as silence (W3)."""
        self.is_finished = False
        self.idleness.on_interruption()

    def drop_unread(self) -> int:
        """Drop the records that were read and not emitted. They are read again, and the end of the shard too. Return the bytes freed."""
        self.at_tip = self.at_tip and not self.queue
        self.has_reached_end = False
        return self.queue.clear()

    def on_suspension(self) -> bool:
        """Make the shard count as not idle until it was read again, because the process was suspended (W3). Return whether it was idle."""
        self.idleness.on_suspension()
        was_idle, self.is_idle = self.is_idle, False
        return was_idle


class ReadMoment(msgspec.Struct, frozen=True):
    """The moment at which a read returned.

    - `now_ms`, `now`: the moment in epoch ms and in monotonic seconds.
    - `lost_seconds`: the total time so far in which the process was suspended.
    - `read_ms`: the latest moment at which the service can have read the records (epoch ms). Time in which the process was suspended since
      the request is subtracted.
    """

    now_ms: int
    now: float
    lost_seconds: float
    read_ms: int


class ReadReservation:
    """The memory that is reserved for a shard's next read (P6). Only MemoryBudget and PendingReads change it.

    - `bytes`: the bytes reserved for the read.
    - `expected_bytes`: the expected size of the read, from the reads before; None before the first read.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.expected_bytes: int | None = None
        self._grant: asyncio.Future[int] | None = None

    def reserve(self, count: int) -> None:
        """Reserve this many bytes instead of the bytes reserved before."""
        self.bytes = count

    def settle(self, arrived_bytes: int) -> None:
        """Release the reservation of a read that returned. Expect the next one to bring `arrived_bytes`, or half as much if nothing
        arrived.
        """
        self.bytes = 0
        self.expected_bytes = arrived_bytes or (self.expected_bytes or 0) // 2

    def request(self) -> asyncio.Future[int]:
        """Note that the next read waits for memory. Return a future, whose result is the number of bytes that the read may bring."""
        self._grant = asyncio.get_running_loop().create_future()
        return self._grant

    @property
    def is_requested(self) -> bool:
        """Whether the read waits, and was not granted memory yet."""
        return self._grant is not None and not self._grant.done()

    def grant(self, read_bytes: int) -> None:
        """Let the waiting read start. `read_bytes`: how many bytes it may bring."""
        if self._grant is not None and not self._grant.done():
            self._grant.set_result(read_bytes)

    def withdraw(self) -> None:
        """Forget the read that waits for memory, because it will not take place."""
        self._grant = None


class ReadProgress:
    """How far a shard was read, which may be further than it was emitted (S5). Only RetentionGaps changes it.

    - `position`: the last record read, or None for the shard's beginning.
    - `seen_ms`: the arrival of that record, or the time of the last read at the tip, whichever is later (epoch ms); None if nothing was
      read.
    - `lost_seconds`: the total suspended time of the process when the next read was requested.
    - `open_ms`: the time until which reads have shown that the shard was open (epoch ms). The last read at the tip does not count, because
      a shard that was closed long ago is also at its tip when its end is read.
    - `counted_ms`: when a gap was counted, until the next record is read.
    - `logged_ms`: when a gap was last logged.
    - `has_gap`: whether the job has accepted a gap before the next batch.
    """

    def __init__(self) -> None:
        self.position: SequenceNumber | None = None
        self.seen_ms: int | None = None
        self.open_ms: int | None = None
        self._tip_ms: int | None = None
        self.counted_ms: int | None = None
        self.lost_seconds = 0.0
        self.logged_ms: int | None = None
        self.has_gap = False

    def start(self, position: SequenceNumber | None, seen_ms: int | None, lost_seconds: float) -> None:
        """Begin at the position where a reader starts. The arguments are described at the class."""
        self.position, self.seen_ms, self.lost_seconds, self.logged_ms = position, seen_ms, lost_seconds, None
        self.open_ms, self._tip_ms, self.counted_ms = seen_ms, None, None
        self.has_gap = False

    def on_request(self, lost_seconds: float) -> None:
        """Note that the next read may start. `lost_seconds`: the total suspended time of the process so far."""
        self.lost_seconds = lost_seconds

    def on_read(self, batch: RecordBatch, read_ms: int) -> None:
        """Move past a batch that was read. `read_ms`: the latest time at which the service can have read it."""
        self.open_ms = latest(self.open_ms, self._tip_ms)
        if batch.records:
            self.seen_ms, self.counted_ms = to_millis(batch.records[-1].arrival), None
            self.open_ms = latest(self.open_ms, self.seen_ms)
        if batch.read_position is not None and not batch.read_position.continuation:
            self.position = batch.read_position
        if batch.millis_behind_latest == 0:
            self.seen_ms = latest(self.seen_ms, read_ms)
            self._tip_ms = read_ms

    def on_gap(self, now_ms: int) -> None:
        """Note that a gap was counted, so that the time before `now_ms` is not checked again."""
        self.counted_ms = now_ms

    def on_accepted(self) -> None:
        """Note that the job has accepted a gap before the next batch."""
        self.has_gap = True

    def take_gap(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch, marked if it is the first one after an accepted gap."""
        if not self.has_gap or batch.is_empty_read:
            return batch
        self.has_gap = False
        return replace(batch, after_gap=True)

    def on_logged(self, now_ms: int) -> None:
        """Note when a gap was logged, so that it is not logged again at once."""
        self.logged_ms = now_ms


# ShardQueue holds the batches of one shard that were read and not emitted, in order.


class ShardQueue:
    """The queue of a shard: its batches, the memory that they hold, and how many records of the first batch were taken already."""

    def __init__(self) -> None:
        self._batches: deque[RecordBatch] = deque()
        self._offset = 0
        self.bytes = 0
        self.records = 0
        self.dead_letters = 0
        """Records that could not be deserialised and wait for the dead-letter sink."""

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[RecordBatch]:
        return iter(self._batches)

    def __getitem__(self, index: int) -> RecordBatch:
        return self._batches[index]

    @property
    def next_watermark(self) -> int | None:
        """The watermark of the next record. None if the queue is empty, or if its first batch has no records."""
        if not self._batches or not self._batches[0].watermarks:
            return None
        return self._batches[0].watermarks[self._offset]

    @property
    def unhandled(self) -> int:
        """Number of queued records and dead letters.

        Batches without any do not count. They need no bound, because there are never two of them in a row (P6).
        """
        return self.records + self.dead_letters

    @property
    def arrival_ms(self) -> tuple[int, int] | None:
        """When the next and the last queued record arrived (epoch ms); None if no record is queued."""
        filled = [batch for batch in self._batches if len(batch)]
        if not filled:
            return None
        offset = self._offset if filled[0] is self._batches[0] else 0
        return filled[0].arrival_millis[offset], filled[-1].arrival_millis[-1]

    @property
    def oldest_ms(self) -> int | None:
        """When the next queued record arrived (epoch ms); None if no record is queued."""
        offset = self._offset
        for batch in self._batches:
            if len(batch):
                return to_millis(batch.records[offset].arrival)
            offset = 0  # Only the first batch can have records that were already taken.
        return None

    def count_within(self, limit: float) -> int:
        """Return how many of the first batch's next records have a watermark of at most `limit`. Within a batch watermarks never fall."""
        watermarks = self._batches[0].watermarks or ()
        if watermarks[-1] <= limit:
            return len(watermarks) - self._offset
        return bisect_right(watermarks, limit, lo=self._offset) - self._offset

    def push(self, batch: RecordBatch) -> int:
        """Add a batch at the end. Return the bytes that this freed.

        If two batches in a row have no records, the first one is dropped. Otherwise they would pile up without a bound while a sink stalls
        (P6). A batch with dead letters is kept.
        """
        freed = 0
        if self._batches and not len(batch) and not len(self._batches[-1]) and not self._batches[-1].poisoned:
            dropped = self._batches.pop()
            freed = dropped.held_bytes
            if dropped.after_gap:
                batch = replace(batch, after_gap=True)
            self.bytes -= freed
        self._batches.append(batch)
        self.bytes += batch.held_bytes
        self.records += len(batch)
        self.dead_letters += len(batch.poisoned)
        return freed

    def pop(self, count: int) -> tuple[RecordBatch, int]:
        """Take the next `count` records of the first batch.

        Return them, and the bytes freed. Memory is freed only when the last record of the batch is taken.
        """
        head = self._batches[0]
        stop = self._offset + count
        part = head.slice(self._offset, stop)
        self.records -= len(part)
        self.dead_letters -= len(part.poisoned)
        if stop < len(head):
            self._offset = stop
            return part, 0
        self._batches.popleft()
        self._offset = 0
        self.bytes -= head.held_bytes
        return part, head.held_bytes

    def clear(self) -> int:
        """Drop everything. Return the bytes freed."""
        freed = self.bytes
        self._batches.clear()
        self._offset = self.bytes = self.records = self.dead_letters = 0
        return freed


# ShardState: how far one shard was emitted. It is immutable, and stored as readable JSON (S5).


@dataclass(frozen=True, slots=True)
class ShardState:
    """How far a shard was emitted.

    - `position`: the last emitted record, or None if the shard begins at `start`.
    - `continuation`: the last ContinuationSequenceNumber of enhanced fan-out at or after the position. Polling never uses it (F6).
    - `watermark`: the shard's watermark after the last emitted record (epoch ms).
    - `arrival_ms`: when that record arrived (epoch ms).
    - `tip_ms`: when a read last was at the shard's tip (epoch ms).
    - `seen_ms`: a time until which no record of the shard can have been lost (epoch ms). For a child it is the time until which its parents
      were open, and for a shard that began at LATEST the time that replaced LATEST (P3). If the shard has ended, it is a time until which
      the shard certainly was open.
    - `ended`: whether the last record was emitted (S2).
    - `waiting`: whether the shard has not started, because its parents have not ended.
    - `parents`: the ids of the parent shards.
    """

    start: StartingPosition
    position: SequenceNumber | None = None
    continuation: str | None = None
    watermark: int | None = None
    ended: bool = False
    arrival_ms: int | None = None
    tip_ms: int | None = None
    parents: tuple[str, ...] = ()
    waiting: bool = False
    seen_ms: int | None = None

    def starting_position(self, use_continuation: bool) -> StartingPosition:
        """Return where a publisher resumes: after the last emitted record or, if `use_continuation` (enhanced fan-out), after the
        continuation.
        """
        is_inside_aggregate = self.position is not None and self.position.is_inside_aggregate
        if use_continuation and self.continuation is not None and not is_inside_aggregate:
            return StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, self.continuation)
        return self.start if self.position is None else StartingPosition.after(self.position)

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict, without fields that are None or False."""
        entries = {
            "start": start_to_json(self.start),
            "position": None if self.position is None else self.position.sequence,
            "subSequenceNumber": self.position.sub_sequence
            if self.position is not None and self.position.is_inside_aggregate
            else None,
            "continuation": self.continuation,
            "watermark": self.watermark,
            "ended": self.ended or None,
            "arrivalMs": self.arrival_ms,
            "tipMs": self.tip_ms,
            "parents": list(self.parents) or None,
            "waitingForParents": self.waiting or None,
            "seenMs": self.seen_ms,
        }
        return {name: value for name, value in entries.items() if value is not None}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> ShardState:
        """Return the state that `to_json` has written. Raises: StateError if the entries do not fit."""
        return check_document(entries, StoredState, "a shard's state").state


def latest(*moments: int | None) -> int | None:
    """Return the latest of the times that are known, or None if none is known."""
    return max((moment for moment in moments if moment is not None), default=None)


class StoredStart(msgspec.Struct, omit_defaults=True):
    """The start of a shard, as it is stored."""

    type: PositionType
    sequence: SequenceText | None = None
    timestamp: Millis | None = None

    def __post_init__(self) -> None:
        needed = self.timestamp if self.type is PositionType.AT_TIMESTAMP else self.sequence
        if needed is None and self.type not in (PositionType.TRIM_HORIZON, PositionType.LATEST):
            raise ValueError(f"{self.type.value} needs a time or a sequence number")


StoredStarts = Literal["TRIM_HORIZON", "LATEST"] | StoredStart


class StoredState(msgspec.Struct, rename="camel"):
    """The fields of a shard's state as they are stored, with checks of their types and ranges. `ShardState` is used everywhere else."""

    start: StoredStarts
    position: SequenceText | None = None
    sub_sequence_number: Count | None = None
    continuation: SequenceText | None = None
    watermark: Millis | None = None
    ended: bool = False
    arrival_ms: Millis | None = None
    tip_ms: Millis | None = None
    parents: tuple[str, ...] = ()
    waiting_for_parents: bool = False
    seen_ms: Millis | None = None

    @property
    def state(self) -> ShardState:
        """The `ShardState` with these fields."""
        part = WHOLE_RECORD if self.sub_sequence_number is None else self.sub_sequence_number
        position = None if self.position is None else SequenceNumber(self.position, part)
        return ShardState(
            start_of(self.start),
            position,
            self.continuation,
            self.watermark,
            self.ended,
            self.arrival_ms,
            self.tip_ms,
            self.parents,
            self.waiting_for_parents,
            self.seen_ms,
        )


def start_to_json(start: StartingPosition) -> str | dict[str, Any]:
    """Return a starting position as JSON: a text, or an object if the position has a time or a sequence number."""
    entry: str | dict[str, Any] = msgspec.to_builtins(stored_start(start))
    return entry


def start_from_json(entry: str | Mapping[str, Any]) -> StartingPosition:
    """Return the starting position that `start_to_json` has written. Raises: StateError if the entry is malformed."""
    return start_of(check_document(entry, StoredStarts, "a starting position"))  # type: ignore[arg-type]


def stored_start(start: StartingPosition) -> StoredStarts:
    """Return the form in which a starting position is stored."""
    if start.type is PositionType.TRIM_HORIZON:
        return "TRIM_HORIZON"
    if start.type is PositionType.LATEST:
        return "LATEST"
    return StoredStart(start.type, start.sequence_number, start.timestamp_ms)


def start_of(stored: StoredStarts) -> StartingPosition:
    """Return the starting position that is stored in this form."""
    if isinstance(stored, str):
        return StartingPosition(PositionType(stored))
    return StartingPosition(stored.type, stored.sequence, stored.timestamp)


# IdlenessTimer decides whether a shard is idle from reads that returned nothing, never from elapsed time alone (W3).

MAX_CREDIT_SECONDS = 6.0
"""The longest time between two empty reads that counts as silence (seconds). A healthy subscription sends an empty event about every 5
s.

A longer pause means failed, throttled or delayed reads, or a process that was suspended, starved of CPU, or waiting for its sink. Of such a
pause only this much counts.
"""
MIN_SECONDS_AFTER_SUSPENSION = 2.0
"""How long a shard must be observed silent after a suspension of the process before it counts as idle again (seconds).

The first responses after a suspension may have been sent before it: they were on the network or in the socket's buffer.
"""


class IdlenessTimer:
    """Measures for how long a shard has had no records: it adds up the time over successful reads at the tip that returned no record.

    `lost` in `on_empty_read` is the total time so far in which this process was suspended (see `SuspensionDetector`). That time does not
    count as silence.
    """

    def __init__(self, intervals: IdleIntervals = WAITS_FOR_EVERY_SHARD) -> None:
        self._interval_ms = intervals.watermarks_ms
        self._observed = 0.0
        self._since_suspension = MIN_SECONDS_AFTER_SUSPENSION
        self._last_read: float | None = None
        self._lost_at_last_read = 0.0

    @property
    def observed_ms(self) -> int:
        """How long the shard was observed without records (ms)."""
        return round(self._observed * 1000)

    @property
    def is_idle(self) -> bool:
        """Whether the shard had no records for the whole idle interval, and was read since the last suspension of the process."""
        was_read_since_suspension = self._since_suspension >= min(
            MIN_SECONDS_AFTER_SUSPENSION, self._interval_ms / 1000
        )
        return is_idle(self.observed_ms, self._interval_ms) and was_read_since_suspension

    def on_empty_read(self, now: float, lost: float = 0.0) -> None:
        """Count a read at the tip that returned no record.

        - `now`: the time in monotonic seconds.
        - `lost`: the total time so far in which this process was suspended (seconds).
        """
        if self._last_read is not None:
            seconds = now - self._last_read - (lost - self._lost_at_last_read)
            credit = max(0.0, min(seconds, MAX_CREDIT_SECONDS))
            self._observed += credit
            self._since_suspension += credit
        self._last_read, self._lost_at_last_read = now, lost

    def on_record(self) -> None:
        """Start again from zero, because a record arrived or a read was behind the tip (W4)."""
        self._observed = 0.0
        self._since_suspension = MIN_SECONDS_AFTER_SUSPENSION
        self._last_read = None

    def on_interruption(self) -> None:
        """Do not count the time until the next read as silence, because reads have failed or were delayed (W3)."""
        self._last_read = None

    def on_suspension(self) -> None:
        """Let the shard count as idle only after it was read again, because the process was suspended (W3). The silence so far is kept."""
        self._last_read = None
        self._since_suspension = 0.0


# WatermarkStatus says how one shard counts for watermarks, in addition to its stage and idleness.


class WatermarkStatus:
    """Keeps why watermarks do not wait for a shard although it is open, or wait for it although it has ended.

    - `is_straggler`: whether the shard is so far behind that watermarks do not wait for it (W12).
    - `awaits_children`: whether the shard has ended, and a child has no reader yet (W5).
    - `held_since`: since when alignment has been holding the shard back (monotonic seconds), or None.
    - `held_seconds`: the total time for which alignment held the shard back before that.
    """

    def __init__(self) -> None:
        self.is_straggler = self.awaits_children = False
        self.held_since: float | None = None
        self.held_seconds = 0.0

    @property
    def is_held(self) -> bool:
        """Whether alignment holds the shard back now."""
        return self.held_since is not None

    def mark_straggler(self, is_straggler: bool) -> bool:
        """Set `is_straggler`. Return whether that is a change."""
        was, self.is_straggler = self.is_straggler, is_straggler
        return was != is_straggler

    def await_children(self, awaits: bool) -> bool:
        """Set `awaits_children`. Return whether that is a change."""
        awaited, self.awaits_children = self.awaits_children, awaits
        return awaited != awaits

    def set_held(self, is_held: bool, now: float) -> None:
        """Set whether alignment holds the shard back. `now` is in monotonic seconds."""
        if is_held and self.held_since is None:
            self.held_since = now
        elif not is_held and self.held_since is not None:
            self.held_seconds += now - self.held_since
            self.held_since = None
