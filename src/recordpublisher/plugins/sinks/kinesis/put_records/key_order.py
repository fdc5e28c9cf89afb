"""PER_KEY: of each partition key one Kinesis record is unacknowledged, later ones wait here (K2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ..pending_record import PendingRecord
from ..shard_queues.kpl_aggregator import KplAggregator


class KeyOrder:
    """Owns what waits for the acknowledgement of an earlier record of its key."""

    def __init__(self, aggregation: KplAggregator | None) -> None:
        self._aggregation = aggregation
        self._waiting: dict[str, deque[PendingRecord]] = {}

    def admit(self, outgoing: PendingRecord) -> bool:
        """Whether the record may go now; otherwise it is kept until its turn."""
        waiting = self._waiting.get(outgoing.partition_key)
        if waiting is None:
            self._waiting[outgoing.partition_key] = deque()
            return True
        waiting.append(outgoing)
        return False

    def next_after(self, done: Iterable[PendingRecord]) -> list[PendingRecord]:
        """What may go now that these user records are acknowledged or given up: of each key the next, or the next ones as an aggregate."""
        return [one for key in {one.partition_key for one in done} if (one := self._next_of(key)) is not None]

    def _next_of(self, key: str) -> PendingRecord | None:
        waiting = self._waiting[key]
        if not waiting:
            del self._waiting[key]
            return None
        if self._aggregation is None:
            return waiting.popleft()
        return self._aggregation.record_of(
            self._aggregation.cut(waiting, self._aggregation.most_bytes, of_one_key=True)
        )
