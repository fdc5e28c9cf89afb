"""MissingShards finds out whether a shard that a listing lacks has expired, or is only missing in that listing (S2, S5)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable

from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.shards import Shard

ShardExists = Callable[[Shard], Awaitable[bool | None]]
"""Returns whether the source still has a shard, by asking for the shard and not for a listing; None if the source does not tell."""

LISTINGS_UNTIL_EXPIRED = 3
"""If the source does not tell, a shard has expired when it was missing in this many listings in a row."""
PARALLEL_CALLS = 8

log = logging.getLogger("recordpublisher.discovery")


class MissingShards:
    """Owns what is known about the shards that the last listing of their stream lacked.

    ListShards is eventually consistent: a listing may lack a shard that an earlier one had, or a parent whose child it
    shows. Such a shard does not count as expired until the service cannot find it. Otherwise its children would be read
    too early, and the shard itself twice.
    """

    def __init__(self, exists: ShardExists | None = None) -> None:
        self._exists = exists
        self._missed: dict[str, int] = {}
        """How many listings in a row lacked each shard."""
        self._expired: set[str] = set()

    def is_expired(self, key: str) -> bool:
        """Return whether a shard that is not listed is past retention."""
        return key in self._expired

    async def check(self, missing: Collection[str], streams: Iterable[str]) -> None:
        """Check the shards `missing` (`Shard.key`) that new listings of `streams` lack.

        Shards already found to be expired are not checked again.
        """
        checked = {f"{stream}/" for stream in streams}
        self._expired = {key for key in self._expired if key in missing or _prefix(key) not in checked}
        self._missed = {
            key: count for key, count in self._missed.items() if key in missing or _prefix(key) not in checked
        }
        slots = asyncio.Semaphore(PARALLEL_CALLS)
        await asyncio.gather(*(self._check(key, slots) for key in sorted(missing) if key not in self._expired))

    async def _check(self, key: str, slots: asyncio.Semaphore) -> None:
        exists = None
        if self._exists is not None:
            async with slots:
                stream, _, shard_id = key.rpartition("/")
                exists = await self._exists(Shard(stream, shard_id))
        self._missed[key] = 0 if exists else self._missed.get(key, 0) + 1
        if exists is False or self._missed[key] >= LISTINGS_UNTIL_EXPIRED:
            del self._missed[key]
            self._expired.add(key)
            log.info("shard %s is no longer listed: it is past retention", key, extra=about(key))


def _prefix(key: str) -> str:
    return key[: key.rfind("/") + 1]
