"""The bounds of what is outstanding: handed over and not yet acknowledged (K1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from recordpublisher.publishers.errors import ConfigurationError

from .pending_record import PendingRecord
from .settings import QueueLimit
from .statistics import MeanSize, SinkStatistics

OVERHEAD_BYTES = 220
"""What a record costs in memory besides data and key: 180 B with distinct keys (tracemalloc, CPython 3.11), and what is rounded up."""
SHARD_BYTES = 10_000_000
"""Default room for each shard: about ten seconds of what it takes (reviewers of FLINK-9374)."""
MOST_BYTES = 128 * 2**20
"""The default for many shards: memory is bounded whatever their number."""
NO_LIMIT = 2**62


class OutstandingRecords:
    """Owns the counts of outstanding records and bytes, by flush epoch, and the limits that they are held against.

    Adding costs a few operations; what can be counted for a whole answer is counted there.
    """

    def __init__(self, limit: QueueLimit | None, limit_bytes: int | None) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._mean = MeanSize()
        self._shards = 1
        self._older: dict[int, int] = {}
        self.epoch = 0
        self.records = 0
        self.bytes = 0
        self.most_records = NO_LIMIT
        self.most_bytes = NO_LIMIT
        self.measure(1)

    @property
    def statistics(self) -> SinkStatistics:
        """What was measured."""
        waiting = self.bytes / self.records - OVERHEAD_BYTES if self.records else 0.0
        return SinkStatistics(self._mean.value or waiting, self._shards, self.records, self.bytes)

    def has_room(self, size: int) -> bool:
        """Whether a record of `size` bytes may be handed over; one that is larger than the limit may when nothing else is there."""
        if self.records == 0:
            return True
        return self.records < self.most_records and self.bytes + size + OVERHEAD_BYTES <= self.most_bytes

    def add(self, outgoing: PendingRecord) -> None:
        """A record was handed over."""
        outgoing.epoch = self.epoch
        self.records += 1
        self.bytes += outgoing.size + OVERHEAD_BYTES

    def settle(self, done: Sequence[PendingRecord]) -> tuple[int, int]:
        """User records were acknowledged or given up; answers how many, and their bytes of data and key."""
        records, size = len(done), sum([one.size for one in done])
        if self._older:
            self._settle_older(done)
        self.records -= records
        self.bytes -= size + OVERHEAD_BYTES * records
        self._mean.add(records, size)
        self.measure(self._shards)
        return records, size

    def next_epoch(self) -> int:
        """What is handed over from now on belongs to another epoch; answers the one that ended."""
        ended, self.epoch = self.epoch, self.epoch + 1
        count = self.records - sum(self._older.values())
        if count:
            self._older[ended] = count
        return ended

    def is_settled(self, epoch: int) -> bool:
        """Whether everything up to this epoch, which has ended, was acknowledged or given up."""
        return not any(older <= epoch for older in self._older)

    def _settle_older(self, done: Sequence[PendingRecord]) -> None:
        for epoch, count in Counter([one.epoch for one in done]).items():
            if epoch in self._older:
                self._older[epoch] -= count
                if not self._older[epoch]:
                    del self._older[epoch]

    def measure(self, shards: int) -> None:
        """Work the limits out again for so many shards. Raises: ConfigurationError when the function answers no number above 0."""
        self._shards = shards
        room = min(MOST_BYTES, SHARD_BYTES * shards)
        self.most_bytes = room if self._limit_bytes is None else self._limit_bytes
        if callable(self._limit):
            self.most_records = _checked(self._limit(self.statistics))
        elif self._limit is not None:
            self.most_records = self._limit


def _checked(answer: object) -> int:
    try:
        limit = int(answer)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        limit = 0
    if limit < 1:
        raise ConfigurationError("queue_limit", repr(answer), "a function that answers a number of at least 1")
    return int(limit)
