"""KeyOrder (ordering PER_KEY): one Kinesis record of each partition key is in flight, later ones are held here (K2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ..pending_record import PendingRecord
from ..shard_queues.kpl_aggregator import KplAggregator


class KeyOrder:
    """Owns the records that wait until an earlier record of their key is acknowledged."""

    def __init__(self, aggregator: KplAggregator | None) -> None:
        self._aggregator = aggregator
        self._held: dict[str, deque[PendingRecord]] = {}

    def admit_or_hold(self, record: PendingRecord) -> bool:
        """Return True if the record may be sent now; otherwise hold it until `release_after` returns it."""
        held = self._held.get(record.partition_key)
        if held is None:
            self._held[record.partition_key] = deque()
            return True
        held.append(record)
        return False

    def release_after(self, done: Iterable[PendingRecord]) -> list[PendingRecord]:
        """Remove and return what may be sent now that these user records are complete: the next record, or aggregate, of each key."""
        return [one for key in {one.partition_key for one in done} if (one := self._release_next(key)) is not None]

    def _release_next(self, key: str) -> PendingRecord | None:
        held = self._held[key]
        if not held:
            del self._held[key]
            return None
        if self._aggregator is None:
            return held.popleft()
        return self._aggregator.aggregate(
            self._aggregator.take_parts(held, self._aggregator.max_bytes, of_one_key=True)
        )
