"""A lane: what waits for one shard, and when how much of it may go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from recordpublisher.publishers.shards import Shard

from ..pending_record import PendingRecord
from ..rate_control import CREDIT_SECONDS, CongestionWindow, ShardRateLimit
from .kpl_aggregator import KplAggregator

WAITED_ENOUGH = float("-inf")
Cut = tuple[list[PendingRecord], int]
"""Kinesis records and their bytes."""


class ShardQueue:
    """Owns the queue of one shard, what is in flight to it, its window and its turn."""

    def __init__(self, shard: Shard, pace: ShardRateLimit) -> None:
        self.shard = shard
        self.pace = pace
        self.window = CongestionWindow(pace.initial_window)
        self.queue: deque[PendingRecord] = deque()
        self.queued_bytes = 0
        self.in_flight = 0
        self.turn = 0.0
        """Nothing is sent before this time (the clock's seconds): the pace, or the backoff."""
        self._unanswered = 0.0
        """Seconds of rest for what is in flight."""
        self.since = 0.0
        """Since when the queue waits to be filled up."""
        self.refusals = 0
        """Calls in a row that the shard, or the network, took nothing of."""

    @property
    def room(self) -> int:
        """Kinesis records that may be sent to it now, as far as the window and the calls without an answer go."""
        return self.window.size - self.in_flight if self._unanswered <= CREDIT_SECONDS else 0

    def add(self, outgoing: PendingRecord, now: float) -> None:
        """Let a record wait with the others."""
        if not self.queue:
            self.since = now
        self.queue.append(outgoing)
        self.queued_bytes += outgoing.size

    def put_back(self, refused: Iterable[PendingRecord]) -> None:
        """Records that were refused go first, in their order."""
        for outgoing in reversed(list(refused)):
            self.queue.appendleft(outgoing)
            self.queued_bytes += outgoing.size
        self.hurry()

    def hurry(self) -> None:
        """What waits has waited long enough: it goes with the next call."""
        self.since = WAITED_ENOUGH

    def drained(self) -> list[PendingRecord]:
        """Everything that waits, which no longer waits here."""
        waiting = list(self.queue)
        self.queue.clear()
        self.queued_bytes = 0
        return waiting

    @property
    def estimate(self) -> int:
        """How many Kinesis records could go now, about."""
        return min(len(self.queue), self.room, self.pace.grain_records)

    def take(self, most: int, most_bytes: int, *, is_due: bool) -> Cut:
        """Take at most so many Kinesis records off the queue; one that is larger than the bytes alone.

        `is_due`: the lane has waited long enough, and what is not full goes too (aggregates).
        """
        most = min(most, self.room, self.pace.grain_records)
        most_bytes = min(most_bytes, self.pace.grain_bytes)
        taken: list[PendingRecord] = []
        size = 0
        queue = self.queue
        while queue and len(taken) < most and (not taken or size + queue[0].size <= most_bytes):
            outgoing = queue.popleft()
            taken.append(outgoing)
            size += outgoing.size
        self.queued_bytes -= size
        return taken, size

    def sent(self, cut: Cut, now: float) -> float:
        """So much is on its way; what is left, unless the limits held it back, waits for more to come. Returns the rest for it."""
        records, size = len(cut[0]), cut[1]
        rest = self.pace.rest(records, size, self.window.size)
        self._bound_credit(now)
        self.turn += rest
        self._unanswered += rest
        self.in_flight += records
        if self.is_low:
            self.since = now
        return rest

    def answered(self, records: int, rest: float, now: float) -> None:
        """A call ended that so much of this lane went with."""
        self._bound_credit(now)
        self.in_flight -= records
        self._unanswered = self._unanswered - rest if self.in_flight else 0.0  # no sum of roundings

    def _bound_credit(self, now: float) -> None:
        """Time that the shard was not written to counts up to the credit, and what is in flight may only arrive now.

        Otherwise calls that were held up arrive together with those of the time since, and the shard refuses what kept to its pace.
        """
        self.turn = max(self.turn, now - CREDIT_SECONDS + self._unanswered)

    @property
    def is_low(self) -> bool:
        """Whether what is left is too little to go by itself."""
        return not self.queue


class AggregatingShardQueue(ShardQueue):
    """A lane whose user records go as aggregates: full ones, or what there is once the lane is due (K1)."""

    def __init__(self, shard: Shard, pace: ShardRateLimit, aggregation: KplAggregator) -> None:
        super().__init__(shard, pace)
        self._aggregation = aggregation

    @property
    def estimate(self) -> int:
        """How many Kinesis records could go now, about."""
        full = self.queued_bytes // self._aggregation.most_bytes + len(self.queue) // self._aggregation.most_records
        return min(full, super().estimate)

    @property
    def is_low(self) -> bool:
        """Whether what is left would not fill an aggregate."""
        few = len(self.queue) < self._aggregation.most_records
        return few and self.queued_bytes < self._aggregation.most_bytes

    def take(self, most: int, most_bytes: int, *, is_due: bool) -> Cut:
        """Take at most so many Kinesis records, made of what waits; half-filled ones only when the lane is due."""
        most = min(most, self.room, self.pace.grain_records)
        most_bytes = min(most_bytes, self.pace.grain_bytes)
        taken: list[PendingRecord] = []
        size = 0
        while self.queue and len(taken) < most and (is_due or not self.is_low):
            if taken and size + min(self.queued_bytes, self._aggregation.most_bytes) > most_bytes:
                break
            parts = self._aggregation.cut(self.queue, self._aggregation.most_bytes)
            self.queued_bytes -= sum([part.size for part in parts])
            taken.append(self._aggregation.record_of(parts))
            size += taken[-1].size
        return taken, size
