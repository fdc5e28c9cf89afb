"""Counts the records that are accepted and not yet acknowledged, and enforces the limits on them (K1)."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from recordpublisher.publishers.errors import ConfigurationError

from .pending_record import PendingRecord
from .settings import QueueLimit
from .statistics import MeanSize, SinkStatistics

OVERHEAD_BYTES = 220
"""Memory of a record in addition to data and key: 180 B with distinct keys (tracemalloc, CPython 3.11), rounded up."""
BYTES_PER_SHARD = 10_000_000
"""Default limit for each shard: about ten seconds of its throughput (reviewers of FLINK-9374)."""
MAX_DEFAULT_BYTES = 128 * 2**20
"""Upper bound of the default limit: memory stays bounded with many shards."""
NO_LIMIT = 2**62


class OutstandingRecords:
    """Owns the counts of outstanding records and bytes, by flush epoch, and their limits.

    A flush ends an epoch and waits until that epoch's records are complete. `add` runs once for each record and is kept cheap. Everything
    else is counted once for each result of PutRecords.
    """

    def __init__(self, limit: QueueLimit | None, limit_bytes: int | None) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._mean = MeanSize()
        self._shards = 1
        self._ended_epochs: dict[int, int] = {}
        """Number of records that are still outstanding, by ended epoch, the oldest first."""
        self._in_ended_epochs = 0
        """The sum of `_ended_epochs`. It is kept because each write may end an epoch while the service is unavailable."""
        self.epoch = 0
        self.records = 0
        self.bytes = 0
        self.max_records = NO_LIMIT
        self.max_bytes = NO_LIMIT
        self.update_limits(1)

    @property
    def statistics(self) -> SinkStatistics:
        """The measured values that a limit function receives."""
        records, size = self.records, self.bytes  # Each is read once, because other threads measure a Producer.
        waiting = size / records - OVERHEAD_BYTES if records else 0.0
        return SinkStatistics(self._mean.value or waiting, self._shards, records, size)

    def has_capacity(self, size: int) -> bool:
        """Return whether a record of `size` bytes may be accepted.

        A record that is larger than the limit may be accepted if no other record is outstanding.
        """
        if self.records == 0:
            return True
        return self.records < self.max_records and self.bytes + size + OVERHEAD_BYTES <= self.max_bytes

    def fitting(self, records: Sequence[PendingRecord]) -> int:
        """Return how many records from the front of `records` may be accepted."""
        room = min(len(records), self.max_records - self.records)
        needed = [record.size + OVERHEAD_BYTES for record in records[: max(room, 0)]]
        if sum(needed) > self.max_bytes - self.bytes:
            room = bisect_right(list(accumulate(needed)), self.max_bytes - self.bytes)
        return max(room, 1 if self.records == 0 else 0)

    def add_all(self, records: Sequence[PendingRecord]) -> None:
        """Count accepted records."""
        for record in records:
            record.epoch = self.epoch
        self.records += len(records)
        self.bytes += sum([record.size for record in records]) + OVERHEAD_BYTES * len(records)

    def add(self, record: PendingRecord) -> None:
        """Count an accepted record."""
        record.epoch = self.epoch
        self.records += 1
        self.bytes += record.size + OVERHEAD_BYTES

    def complete(self, done: Sequence[PendingRecord]) -> tuple[int, int]:
        """Remove user records that were acknowledged or given up. Return their number, and their bytes of data and key."""
        records, size = len(done), sum([one.size for one in done])
        if self._ended_epochs:
            self._complete_in_ended_epochs(done)
        self.records -= records
        self.bytes -= size + OVERHEAD_BYTES * records
        self._mean.add(records, size)
        self.update_limits(self._shards)
        return records, size

    def end_epoch(self) -> int:
        """End the current epoch and begin the next. Return the epoch that ended."""
        ended, self.epoch = self.epoch, self.epoch + 1
        count = self.records - self._in_ended_epochs
        if count:
            self._ended_epochs[ended] = count
            self._in_ended_epochs = self.records
        return ended

    def left_of(self, epoch: int) -> int:
        """Return how many records of an ended epoch are outstanding."""
        return self._ended_epochs.get(epoch, 0)

    def is_complete(self, epoch: int) -> bool:
        """Return whether every record up to this ended epoch was acknowledged or given up."""
        return next(iter(self._ended_epochs), epoch + 1) > epoch

    def update_limits(self, shards: int) -> None:
        """Compute the limits for this number of shards.

        Raises: ConfigurationError if the limit function does not return a number of at least 1.
        """
        self._shards = shards
        default = min(MAX_DEFAULT_BYTES, BYTES_PER_SHARD * shards)
        self.max_bytes = default if self._limit_bytes is None else self._limit_bytes
        if callable(self._limit):
            self.max_records = _checked(self._limit(self.statistics))
        elif self._limit is not None:
            self.max_records = self._limit

    def _complete_in_ended_epochs(self, done: Sequence[PendingRecord]) -> None:
        for epoch, count in Counter([one.epoch for one in done]).items():
            if epoch in self._ended_epochs:
                self._ended_epochs[epoch] -= count
                self._in_ended_epochs -= count
                if not self._ended_epochs[epoch]:
                    del self._ended_epochs[epoch]


def _checked(returned: object) -> int:
    try:
        limit = int(returned)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        limit = 0
    if limit < 1:
        raise ConfigurationError("queue_limit", repr(returned), "a function that returns a number of at least 1")
    return int(limit)
