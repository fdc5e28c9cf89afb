"""ShardReading: what reads have shown of one shard: its queue, tip, silence, end. ReadReservation, ReadProgress: of its next read."""

import asyncio
from collections.abc import Sequence

import msgspec

from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, to_millis
from recordpublisher.publishers.shards import Shard

from .idleness import IdlenessTimer
from .shard_queue import ShardQueue
from .shard_state import latest


class ReadMoment(msgspec.Struct, frozen=True):
    """When a read returned.

    - `now_ms`: epoch ms; `now`: monotonic seconds.
    - `lost_seconds`: the total time so far in which the process was suspended.
    - `read_ms`: when it was read at the latest (epoch ms): without time in which the process was suspended since the request.
    """

    now_ms: int
    now: float
    lost_seconds: float
    read_ms: int


class ShardReading:
    """Owns what was read and not emitted, and what the reads of this run have shown.

    - `has_started`: a reader has started, in this run or an earlier one. `has_reached_end`: the shard was read to its end.
    - `is_finished`: this run needs no more reads. `is_abandoned`: no run does here: another process has the shard, or its stream is not
      read any more.
    - `at_tip`: the last read stood at the tip; `has_seen_tip`: some read of this run did; `tip_seen_ms`: when the first and the last such
      read returned (epoch ms). `tip_ms`: when the last read at the tip that brought nothing was made.
    - `last_read_ms`: when the last read of any kind returned.
    - `children`: known once the shard was read to its end.
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
        """Whether it is not to be read any more, in this run or at all."""
        return self.is_finished or self.is_abandoned

    def start(self) -> None:
        """A reader starts: nothing was seen of this run yet."""
        self.has_started = True
        self.at_tip = self.has_seen_tip = False
        self.tip_seen_ms = None

    def record(self, batch: RecordBatch, at: ReadMoment, is_writing: bool) -> None:
        """Take a batch that a read returned, which is not queued yet. `is_writing`: whether records are being written."""
        self.last_read_ms = at.now_ms
        self.at_tip = batch.millis_behind_latest == 0
        if self.at_tip:
            self.has_seen_tip |= not batch.child_shards  # a batch with children is followed by the shard's end
            self.tip_seen_ms = (self.tip_seen_ms[0] if self.tip_seen_ms else at.now_ms, at.now_ms)
        if self.at_tip and not len(batch) and not self.queue.records:
            self.idleness.on_empty_read(at.now, at.lost_seconds)
            # A tip says that everything before it was written (S5): a record, or a dead letter, that waits would be forgotten at a restart.
            if not is_writing and not any(each.poisoned for each in (batch, *self.queue)):
                self.tip_ms = at.read_ms
        else:
            self.idleness.on_record()
        self.is_idle = self.idleness.is_idle

    def end(self, children: Sequence[Shard]) -> None:
        """The shard was read to its end."""
        self.has_reached_end = True
        self.children = tuple(children)

    def finish(self) -> None:
        """This run needs no more reads; what is queued stays."""
        self.is_finished = True

    def abandon(self) -> None:
        """No run reads the shard here any more."""
        self.is_abandoned = True

    def reset(self) -> None:
        """The run is over: its bounds do not count any more, and the time until the next read is not observed (W3)."""
        self.is_finished = False
        self.idleness.on_interruption()

    def drop_unread(self) -> int:
        """Drop what was read and not emitted: it is read again, with the shard's end. Returns the bytes freed."""
        self.at_tip = self.at_tip and not self.queue
        self.has_reached_end = False
        return self.queue.clear()

    def on_suspension(self) -> bool:
        """The process was suspended. Returns whether the shard was idle: it is not before it was read again (W3)."""
        self.idleness.on_suspension()
        was_idle, self.is_idle = self.is_idle, False
        return was_idle


class ReadReservation:
    """The memory of a shard's next read (P6). Written by MemoryBudget and PendingReads only.

    `bytes`: reserved for it. `expected_bytes`: the size of the last read, None before the first.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.expected_bytes: int | None = None
        self._grant: asyncio.Future[int] | None = None

    def reserve(self, count: int) -> None:
        """Reserve these bytes in place of those before."""
        self.bytes = count

    def settle(self, arrived_bytes: int) -> None:
        """The read returned. After each empty one the next reserves less."""
        self.bytes = 0
        self.expected_bytes = arrived_bytes or (self.expected_bytes or 0) // 2

    def request(self) -> asyncio.Future[int]:
        """The read waits for memory. The future returns how many bytes it may read."""
        self._grant = asyncio.get_running_loop().create_future()
        return self._grant

    @property
    def is_requested(self) -> bool:
        """Whether the read waits, and was not granted memory yet."""
        return self._grant is not None and not self._grant.done()

    def grant(self, read_bytes: int) -> None:
        """Let the waiting read start."""
        if self._grant is not None and not self._grant.done():
            self._grant.set_result(read_bytes)

    def withdraw(self) -> None:
        """The read does not wait any more."""
        self._grant = None


class ReadProgress:
    """How far a shard was read, which may be further than it was emitted (S5). Written by RetentionGaps only.

    - `position`: the last record read; None: the shard's beginning.
    - `seen_ms`: its arrival, or the last read at the tip, whichever is later (epoch ms); None: nothing was read.
    - `lost_seconds`: what the suspension detector had counted when the next read was requested.
    - `open_ms`: until when reads have shown that the shard was open (epoch ms). The last read at the tip does not count: a shard that was
      closed long ago is at its tip, too, when its end is read.
    - `counted_ms`: when a gap was counted, until the next record is read.
    - `logged_ms`: when a gap was last logged.
    """

    def __init__(self) -> None:
        self.position: SequenceNumber | None = None
        self.seen_ms: int | None = None
        self.open_ms: int | None = None
        self._tip_ms: int | None = None
        self.counted_ms: int | None = None
        self.lost_seconds = 0.0
        self.logged_ms: int | None = None

    def start(self, position: SequenceNumber | None, seen_ms: int | None, lost_seconds: float) -> None:
        """A reader starts here."""
        self.position, self.seen_ms, self.lost_seconds, self.logged_ms = position, seen_ms, lost_seconds, None
        self.open_ms, self._tip_ms, self.counted_ms = seen_ms, None, None

    def on_request(self, lost_seconds: float) -> None:
        """The next read may start."""
        self.lost_seconds = lost_seconds

    def on_read(self, batch: RecordBatch, read_ms: int) -> None:
        """A batch was read, at `read_ms` at the latest."""
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
        """A gap was counted: what is before now is not looked at again."""
        self.counted_ms = now_ms

    def on_logged(self, now_ms: int) -> None:
        """A gap was logged."""
        self.logged_ms = now_ms
