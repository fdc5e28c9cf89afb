"""The port by which a shard's batches leave this floor; the fetcher implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shards import Shard


class ShardOutput(Protocol):
    """Takes one shard's stamped batches, in order."""

    def first_room(self) -> int:
        """The bytes, as held in memory, that the first read may bring (P6)."""
        ...

    async def put(self, batch: RecordBatch) -> int:
        """Queue a batch; returns when the next read may start, with the bytes, as held in memory, that it may bring (P6)."""
        ...

    def end(self, children: Sequence[Shard]) -> None:
        """The shard was read to its end; everything put before is still to be emitted (S2)."""
        ...
