"""Decides whether new shards may be found in a listing. ListShards is eventually consistent (S2, S3)."""

from collections.abc import Collection, Sequence

from recordpublisher.fetcher.shards.discovery import parent_keys
from recordpublisher.fetcher.shards.shard_table import MissingShards, ShardExists
from recordpublisher.publishers.shards import Shard, stream_of


class ListingCheck:
    """Owns what is known about shards that the newest listing of each stream lacks.

    An old listing may show a shard that was read and left the offset, but lack the shards between it and the shards of the offset. Only
    these would show that it was read. So no shard is taken from a listing that lacks a shard of the offset, or a parent of a listed shard,
    unless the missing shard has expired.
    """

    def __init__(self, exists: ShardExists) -> None:
        self._missing = MissingShards(exists)
        self._known: Collection[str] = ()

    def require(self, known: Collection[str]) -> None:
        """Set the shards of the current offset, by `Shard.key`."""
        self._known = known

    async def is_complete(self, stream: str, listed: Sequence[Shard]) -> bool:
        """Return whether a new listing of the stream lacks only shards that have expired."""
        parents = {parent for shard in listed for parent in parent_keys(shard)}
        known = {key for key in self._known if stream_of(key) == stream}
        lacking = (parents | known) - {shard.key for shard in listed}
        await self._missing.check(lacking, (stream,))
        return all(map(self._missing.is_expired, lacking))
