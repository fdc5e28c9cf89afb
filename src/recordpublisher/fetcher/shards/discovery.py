"""ShardDiscovery: lists the shards of every stream, at the start and periodically (S3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from recordpublisher.publishers.errors import FatalKinesisError, RecordPublisherError, StreamNotFoundError
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.shards import Shard

ListingHandler = Callable[[str, list[Shard]], Awaitable[None]]
"""Called with a stream and its complete listing."""

log = logging.getLogger("recordpublisher.discovery")


class ShardLister(Protocol):
    """Lists a stream's shards; raises StreamNotFoundError when it does not exist."""

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        """Every shard still listed."""
        ...


class ShardDiscovery:
    """Lists shards. Owns which streams are known to be deleted."""

    def __init__(self, lister: ShardLister, streams: Sequence[str], interval_ms: int) -> None:
        self._lister = lister
        self._streams = tuple(streams)
        self._interval = interval_ms / 1000
        self.deleted: set[str] = set()

    async def list_all(self) -> list[Shard]:
        """Every shard of every stream. Raises: StreamNotFoundError, and any other error of the first listing."""
        found: list[Shard] = []
        for stream in self._streams:
            found += await self._lister.list_shards(stream)
        return found

    @property
    def all_deleted(self) -> bool:
        """Whether no stream is left."""
        return bool(self._streams) and len(self.deleted) == len(self._streams)

    async def run(self, on_listing: ListingHandler) -> None:
        """List periodically. A failed listing never ends the job (S3); this returns when the last stream was deleted."""
        while not self.all_deleted:
            if self._interval < 0:
                return
            await asyncio.sleep(self._interval)
            for stream in self._streams:
                if stream not in self.deleted:
                    await self._list(stream, on_listing)

    async def _list(self, stream: str, on_listing: ListingHandler) -> None:
        try:
            await on_listing(stream, await self._lister.list_shards(stream))
        except StreamNotFoundError:
            log.warning("stream %s was deleted", stream, extra=about(stream))
            self.deleted.add(stream)
        except FatalKinesisError as error:
            log.warning(
                "shards of %s may not be listed, reshards are found by ChildShards only: %s",
                stream,
                error,
                extra=about(stream),
            )
        except RecordPublisherError as error:
            line = "listing the shards of %s failed, next attempt in %.0f s: %s"
            log.warning(line, stream, self._interval, error, extra=about(stream))
