"""The bounds of what is outstanding: handed over and not yet acknowledged (K1)."""

from __future__ import annotations

from collections.abc import Iterable

from ....publishers.errors import ConfigurationError
from .outgoing import Outgoing
from .settings import QueueLimit
from .statistics import MeanSize, SinkStatistics

OVERHEAD_BYTES = 220
"""What a record costs in memory besides data and key: measured with distinct keys, CPython 3.11."""
SHARD_BYTES = 10_000_000
"""Default room for each shard: about ten seconds of what it takes (reviewers of FLINK-9374)."""
MOST_BYTES = 128 * 2**20
"""The default for many shards: memory is bounded whatever their number."""
NO_LIMIT = 2**62


class OutstandingRecords:
    """Owns the counts of outstanding records and bytes, by flush epoch, and the limits that they are held against."""

    def __init__(self, limit: QueueLimit | None, limit_bytes: int | None) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._mean = MeanSize()
        self._shards = 1
        self._of_epoch = {0: 0}
        self.epoch = 0
        self.records = 0
        self.bytes = 0
        self.most_records = NO_LIMIT
        self.most_bytes = NO_LIMIT
        self.measure(1)

    @property
    def statistics(self) -> SinkStatistics:
        """What was measured."""
        return SinkStatistics(self._mean.value, self._shards, self.records, self.bytes)

    def has_room(self, size: int) -> bool:
        """Whether a record of `size` bytes may be handed over; one that is larger than the limit may when nothing else is there."""
        if self.records == 0:
            return True
        return self.records < self.most_records and self.bytes + size + OVERHEAD_BYTES <= self.most_bytes

    def add(self, outgoing: Outgoing) -> None:
        """A record was handed over."""
        outgoing.epoch = self.epoch
        self._of_epoch[self.epoch] += 1
        self.records += 1
        self.bytes += outgoing.size + OVERHEAD_BYTES
        self._mean.add(1, outgoing.size)

    def settle(self, done: Iterable[Outgoing]) -> tuple[int, int]:
        """User records were acknowledged or given up; answers how many, and their bytes of data and key."""
        records = size = 0
        for one in done:
            self._of_epoch[one.epoch] -= 1
            size += one.size
            records += 1
        self.records -= records
        self.bytes -= size + OVERHEAD_BYTES * records
        self.measure(self._shards)
        return records, size

    def next_epoch(self) -> int:
        """What is handed over from now on belongs to another epoch; answers the one that ended."""
        self._of_epoch = {epoch: count for epoch, count in self._of_epoch.items() if count}
        self.epoch += 1
        self._of_epoch[self.epoch] = 0
        return self.epoch - 1

    def is_settled(self, epoch: int) -> bool:
        """Whether everything up to this epoch was acknowledged or given up."""
        return not any(count for of, count in self._of_epoch.items() if of <= epoch)

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
