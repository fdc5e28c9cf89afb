"""Keeps what reads have shown of one shard: its tip, silence and end, how far it was read, and the memory of its next read.

`ShardQueue` holds the batches that were read and not emitted.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, SkippedRecords, to_millis
from recordpublisher.publishers.shards import Shard

from .idleness import IdlenessTimer


class ShardReadState:
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
    - `first_past_run_end`: the sequence number of the first record that was read after the position at which this run ends in the shard
      (`Bounds.ends`); None before that.
    """

    def __init__(self, idleness: IdlenessTimer) -> None:
        self.queue = ShardQueue()
        self.idleness = idleness
        self.is_idle = False
        self.has_started = self.has_reached_end = False
        self.is_finished = self.is_abandoned = False
        self.first_past_run_end: str | None = None
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
        self.first_past_run_end = None
        self.at_tip = self.has_seen_tip = False
        self.tip_seen_ms = None

    def on_read(self, batch: RecordBatch, at: ReadMoment, is_writing: bool) -> None:
        """Update this state after a read has returned `batch`. The batch itself is queued later.

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

    def reopen(self) -> None:
        """Mark the shard as not read to its end, because a later run may find more of its records."""
        self.has_reached_end = False

    def reach_run_end(self, first_past: str) -> None:
        """Mark the shard as read to the position at which this run ends in it. Records that are queued are still emitted."""
        self.first_past_run_end = first_past

    def finish(self) -> None:
        """Mark the shard as not to be read again in this run. Records that are queued are still emitted."""
        self.is_finished = True

    def abandon(self) -> None:
        """Mark the shard as not to be read in this process from now on."""
        self.is_abandoned = True

    def reset(self) -> None:
        """Reset what counts for one run, because the run is over. The time until the next read does not count as silence."""
        self.is_finished = False
        self.idleness.on_interruption()

    def drop_unread(self) -> int:
        """Drop the records that were read and not emitted, and return the bytes freed. The records, and the shard's end, are read again."""
        self.at_tip = self.at_tip and not self.queue
        if self.queue:
            self.first_past_run_end = None
        self.has_reached_end = False
        return self.queue.clear()

    def on_suspension(self) -> bool:
        """Make the shard count as not idle until it was read again, because the process was suspended. Return whether it was idle."""
        self.idleness.on_suspension()
        was_idle, self.is_idle = self.is_idle, False
        return was_idle


class ReadMoment(msgspec.Struct, frozen=True):
    """The moment at which a read returned.

    - `now_ms`, `now`: the moment in epoch ms and in monotonic seconds.
    - `lost_seconds`: the total time so far in which the process was suspended.
    - `read_ms`: when the service read the records (epoch ms). If the process was suspended since the request, that time is subtracted,
      because the service may have read them before the suspension.
    """

    now_ms: int
    now: float
    lost_seconds: float
    read_ms: int


class ReadReservation:
    """The memory that is reserved for a shard's next read. Only MemoryBudget and PendingReads change it.

    - `bytes`: the bytes reserved for the read.
    - `expected_bytes`: the expected size of the read, from the reads before; None before the first read.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.expected_bytes: int | None = None
        self._grant: asyncio.Future[int] | None = None

    def reserve(self, count: int) -> None:
        """Reserve `count` bytes instead of the bytes reserved before."""
        self.bytes = count

    def settle(self, arrived_bytes: int) -> None:
        """Release the reservation of a read that returned. Expect `arrived_bytes` for the next read, or half as much after an empty one."""
        self.bytes = 0
        self.expected_bytes = arrived_bytes or (self.expected_bytes or 0) // 2

    def request(self) -> asyncio.Future[int]:
        """Note that the next read waits for memory. Return a future. Its result is the number of bytes that the read may bring."""
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
    """How far a shard was read. It may be further than the shard was emitted. Only RetentionGaps changes it.

    - `position`: the last record read, or None for the shard's beginning.
    - `seen_ms`: the arrival of that record, or the time of the last read at the tip, whichever is later (epoch ms); None if nothing was
      read.
    - `lost_seconds`: the total suspended time of the process when the next read was requested.
    - `open_ms`: the latest time at which reads have shown the shard to be open (epoch ms). The last read at the tip does not count: it may
      be the read of the shard's end, long after the shard was closed.
    - `counted_gaps`: how many gaps (losses of expired records) of the shard were counted when the last batch was queued.
    - `counted_ms`: when a gap was last counted (epoch ms); None after the next record was read.
    - `logged_ms`: when a gap was last logged (epoch ms).
    - `has_gap`: whether the job has accepted a gap before the next batch.
    """

    def __init__(self) -> None:
        self.position: SequenceNumber | None = None
        self.seen_ms: int | None = None
        self.open_ms: int | None = None
        self._tip_ms: int | None = None
        self.counted_ms: int | None = None
        self.counted_gaps = 0
        self.lost_seconds = 0.0
        self.logged_ms: int | None = None
        self.has_gap = False

    def start(self, position: SequenceNumber | None, seen_ms: int | None, lost_seconds: float) -> None:
        """Set the position at which a reader starts. The class docstring describes the arguments."""
        self.position, self.seen_ms, self.lost_seconds, self.logged_ms = position, seen_ms, lost_seconds, None
        self.open_ms, self._tip_ms, self.counted_ms = seen_ms, None, None
        self.has_gap = False

    def on_request(self, lost_seconds: float) -> None:
        """Note that the next read may start. `lost_seconds`: the total suspended time of the process so far."""
        self.lost_seconds = lost_seconds

    def on_read(self, batch: RecordBatch, read_ms: int, gaps: int = 0) -> None:
        """Move `position` past a batch that was read.

        - `read_ms`: when the service read it (epoch ms), as in `ReadMoment`.
        - `gaps`: the number of gaps of the shard that were counted so far.
        """
        self.counted_gaps = gaps
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
        """Return the batch, marked (`after_gap`) if it is the first one after lost records that the job has accepted."""
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
        """Records that could not be deserialized and wait for the dead-letter sink."""

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

        Empty batches do not count, because the queue never has more than two of them in a row.
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
        """Return how many of the next records have a watermark of at most `limit`. Only the first queued batch is looked at."""
        watermarks = self._batches[0].watermarks or ()
        if watermarks[-1] <= limit:
            return len(watermarks) - self._offset
        return bisect_right(watermarks, limit, lo=self._offset) - self._offset

    def push(self, batch: RecordBatch) -> int:
        """Add a batch at the end. Return the bytes freed.

        If two batches in a row have no records, the first one is dropped, so that such batches cannot pile up while a sink stalls. The
        second batch takes over the skipped records of the first. A batch with dead letters is kept.
        """
        freed = 0
        while self._batches and not len(batch) and _is_replaced(self._batches[-1], batch):
            dropped = self._batches.pop()
            freed += dropped.held_bytes
            batch = replace(
                batch,
                after_gap=batch.after_gap or dropped.after_gap,
                skipped=_added(dropped.skipped, batch.skipped),
            )
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


def _is_replaced(queued: RecordBatch, batch: RecordBatch) -> bool:
    """Return whether `batch`, which has no records, replaces the batch that was queued before it.

    A batch with records or dead letters is never replaced. A batch with skipped records is not replaced if the position of `batch` is a
    continuation of enhanced fan-out. Only a sequence number shows that the skipped records need not be read again.
    """
    position = batch.read_position
    is_kept = bool(queued.skipped) and position is not None and position.continuation
    return not len(queued) and not queued.poisoned and not is_kept


def _added(first: tuple[SkippedRecords, ...], second: tuple[SkippedRecords, ...]) -> tuple[SkippedRecords, ...]:
    """Return the skipped records of two batches as one entry, so that memory stays bounded. The batches have no other records."""
    if not first or not second:
        return first or second
    return (SkippedRecords(0, first[0].count + second[0].count, first[0].sequence_number),)


def latest(*moments: int | None) -> int | None:
    """Return the latest of the times that are known, or None if none is known."""
    return max((moment for moment in moments if moment is not None), default=None)
