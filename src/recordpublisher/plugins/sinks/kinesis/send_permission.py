"""Decides which records of a job may be sent now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from recordpublisher.plugins.sinks.queued_writes import PERMISSION_SECONDS, SourceShard

from .pending_records import PendingRecord
from .shard_queues import KplAggregator


class SendPermission:
    """Decides which records of a job may be sent: none while the job may not write, and never those of a revoked shard."""

    def __init__(self, aggregator: KplAggregator | None) -> None:
        self._aggregator = aggregator
        self._sources: dict[str, SourceShard] = {}
        self._has_revoked = False
        self._may_write: Callable[[], bool] | None = None

    def ask(self, may_write: Callable[[], bool] | None) -> None:
        """Set the function that says whether the job may write. With None the job may always write."""
        self._may_write = may_write

    @property
    def is_given(self) -> bool:
        """Whether the job may write now."""
        return self._may_write is None or self._may_write()

    def source(self, key: str) -> SourceShard:
        """Return the object to which all records of the shard `key` refer. Records after a `revoke` of the shard get a new object."""
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = SourceShard()
        return source

    def revoke(self, keys: Collection[str]) -> None:
        """Mark the shards with these keys as read by another process. Their records are no longer sent here."""
        for key in self._sources.keys() & keys:
            self._sources.pop(key).is_revoked = self._has_revoked = True

    async def sendable(self, records: Sequence[PendingRecord]) -> list[PendingRecord | None]:
        """Wait until the job may write. Return the part of each record that may be sent, or None if no part may be sent."""
        while True:
            kept = [*(map(self._without_revoked, records) if self._has_revoked else records)]
            if self.is_given or not any(kept):
                return kept
            await asyncio.sleep(PERMISSION_SECONDS)

    def _without_revoked(self, record: PendingRecord) -> PendingRecord | None:
        """Return the record without the parts whose shards were revoked, or None if no part is left."""
        parts = [part for part in record.user_records if not part.is_revoked]
        if not parts or len(parts) == len(record.user_records) or self._aggregator is None:
            return record if parts else None
        kept = self._aggregator.aggregate(parts)
        kept.attempts, kept.failed_at, kept.failing_for = record.attempts, record.failed_at, record.failing_for
        return kept
