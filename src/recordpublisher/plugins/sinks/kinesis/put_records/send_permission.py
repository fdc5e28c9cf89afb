"""SendPermission: what of a PutRecords call may be sent: not while the job may not write, and no records of revoked shards (E4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from recordpublisher.publishers.kinesis.ports import PutEntry

from ..pending_record import PendingRecord, SourceShard
from ..shard_queues.kpl_aggregator import KplAggregator

POLL_SECONDS = 0.1


class SendPermission:
    """Owns the shards that a job reads now. What was queued of a shard before it was revoked is never sent."""

    def __init__(self, aggregator: KplAggregator | None) -> None:
        self._aggregator = aggregator
        self._sources: dict[str, SourceShard] = {}
        self._has_revoked = False
        self._may_write: Callable[[], bool] | None = None

    def ask(self, may_write: Callable[[], bool] | None) -> None:
        """Whom to ask whether the job may write. None: it always may."""
        self._may_write = may_write

    def source(self, key: str) -> SourceShard:
        """Of records that are read from this shard now."""
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = SourceShard()
        return source

    def revoke(self, keys: Collection[str]) -> None:
        """These shards are read here no more."""
        for key in self._sources.keys() & keys:
            self._sources.pop(key).is_revoked = self._has_revoked = True

    async def entries(self, records: Sequence[PendingRecord]) -> list[PutEntry | None]:
        """Wait until these may be sent. None: a record that must not be sent any more."""
        while True:
            entries = [self._entry(record) for record in records]
            if self._may_write is None or self._may_write() or not any(entries):
                return entries
            await asyncio.sleep(POLL_SECONDS)

    def _entry(self, record: PendingRecord) -> PutEntry | None:
        sent: PendingRecord | None = self._without_revoked(record) if self._has_revoked else record
        return None if sent is None else PutEntry(sent.data, sent.partition_key, sent.explicit_hash_key)

    def _without_revoked(self, record: PendingRecord) -> PendingRecord | None:
        """The record, or an aggregate of those of its parts that may be sent."""
        parts = [part for part in record.user_records if part.source is None or not part.source.is_revoked]
        if not parts or len(parts) == len(record.user_records) or self._aggregator is None:
            return record if parts else None
        return self._aggregator.aggregate(parts)
