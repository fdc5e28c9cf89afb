"""ShardReading: what reads have shown of one shard: its queue, its tip, its silence, its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shards import Shard

from .idleness import IdlenessTimer
from .shard_queue import ShardQueue


@dataclass(frozen=True, slots=True)
class ReadMoment:
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

    def __init__(self) -> None:
        self.queue = ShardQueue()
        self.idleness = IdlenessTimer()
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

    def record(self, batch: RecordBatch, at: ReadMoment, idle_interval_ms: int) -> None:
        """A read returned this batch, which is not queued yet."""
        self.last_read_ms = at.now_ms
        self.at_tip = batch.millis_behind_latest == 0
        if self.at_tip:
            self.has_seen_tip |= not batch.child_shards  # a batch with children is followed by the shard's end
            self.tip_seen_ms = (self.tip_seen_ms[0] if self.tip_seen_ms else at.now_ms, at.now_ms)
        if self.at_tip and not len(batch) and not self.queue.records:
            self.idleness.on_empty_read(at.now, at.lost_seconds)
            self.tip_ms = at.read_ms
        else:
            self.idleness.on_record()
        self.is_idle = self.idleness.is_idle(idle_interval_ms)

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
