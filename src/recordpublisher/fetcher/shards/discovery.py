"""ShardDiscovery: which shards there are, at the start and from time to time (S3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from recordpublisher.publishers.errors import FatalKinesisError, RecordPublisherError, StreamNotFoundError
from recordpublisher.publishers.shards import Shard

Looked = Callable[[str, list[Shard]], Awaitable[None]]
"""Takes a stream and everything it lists."""

log = logging.getLogger("recordpublisher.discovery")


class ShardLister(Protocol):
    """Lists a stream's shards; raises StreamNotFoundError when it does not exist."""

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        """Every shard still listed."""
        ...


class ShardDiscovery:
    """Looks for shards. Owns which streams are known to be deleted."""

    def __init__(self, lister: ShardLister, streams: Sequence[str], interval_ms: int) -> None:
        self._lister = lister
        self._streams = tuple(streams)
        self._interval = interval_ms / 1000
        self.deleted: set[str] = set()

    async def initial(self) -> list[Shard]:
        """Every shard of every stream. Raises: StreamNotFoundError, and whatever else makes the first look fail."""
        found: list[Shard] = []
        for stream in self._streams:
            found += await self._lister.list_shards(stream)
        return found

    @property
    def all_deleted(self) -> bool:
        """Whether no stream is left."""
        return bool(self._streams) and len(self.deleted) == len(self._streams)

    async def run(self, looked: Looked) -> None:
        """Look again and again; trouble on the way never ends the job (S3), deletion of the last stream does."""
        while not self.all_deleted:
            if self._interval < 0:
                return
            await asyncio.sleep(self._interval)
            for stream in self._streams:
                if stream not in self.deleted:
                    await self._look(stream, looked)

    async def _look(self, stream: str, looked: Looked) -> None:
        try:
            await looked(stream, await self._lister.list_shards(stream))
        except StreamNotFoundError:
            log.warning("stream %s does not exist any more", stream)
            self.deleted.add(stream)
        except FatalKinesisError as error:
            log.warning("discovery of %s is refused, reshards are seen by ChildShards only: %s", stream, error)
        except RecordPublisherError as error:
            log.warning("discovery of %s failed and is tried again in %.0f s: %s", stream, self._interval, error)
