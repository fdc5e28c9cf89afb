"""ShardDiscovery: when the shards of every stream are listed: at the start and periodically (S3). Its lister says which there are."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from recordpublisher.publishers.errors import FatalKinesisError, RecordPublisherError, StreamNotFoundError
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.shards import Shard

from .stream_list import StreamList

ListingHandler = Callable[[str, list[Shard]], Awaitable[None]]
"""Called with a stream and its complete listing."""

log = logging.getLogger("recordpublisher.discovery")


class ShardLister(Protocol):
    """Lists a stream's shards; raises StreamNotFoundError when it does not exist."""

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        """Every shard still listed."""


class ShardDiscovery:
    """Lists shards. Owns which streams are read, and which of them are known to be deleted.

    `streams`: a list that may change (S10), or names that stay the same.
    """

    def __init__(self, lister: ShardLister, streams: Sequence[str], interval_ms: int) -> None:
        self._lister = lister
        self.streams = streams if isinstance(streams, StreamList) else StreamList(streams)
        self._interval = interval_ms / 1000
        self.deleted: set[str] = set()
        self.opened = set(self.streams)
        """Streams that are read. Others of the list do not exist yet, could not be listed, or came a moment ago."""
        self._has_listed = False
        self.not_found: set[str] = set()
        """Streams of a list that may change which the last listing of all did not find, and which were warned of."""

    async def list_all(self) -> list[Shard]:
        """Return every shard of every stream.

        Streams that do not exist are left out, with one warning, if the list may change or a fixed one was listed before: such a stream was
        deleted, and the others are read on.

        Raises: StreamNotFoundError if no stream exists, or one of a fixed list did never; any other error of a listing.
        """
        found: list[Shard] = []
        missing: list[StreamNotFoundError] = []
        for stream in self.streams:
            try:
                found += await self._lister.list_shards(stream)
                self.opened.add(stream)
                self.not_found.discard(stream)
            except StreamNotFoundError as error:
                missing.append(error)
                is_needed = self.streams.is_fixed and not self._has_listed
                if is_needed or len(missing) == len(self.streams):
                    raise
                if stream not in self.not_found:
                    log.warning("%s; it is looked for again", error, extra=about(stream))
                self.opened.discard(stream)
                self.not_found.add(stream)
        self._has_listed = True
        return found

    def on_deleted(self, stream: str) -> None:
        """Note that a stream was deleted. It is read again when a stream of that name is there again."""
        self.deleted.add(stream)
        self.opened.discard(stream)

    async def list_stream(self, stream: str) -> list[Shard]:
        """Every shard of one stream. Raises: StreamNotFoundError, KinesisError."""
        return await self._lister.list_shards(stream)

    @property
    def all_deleted(self) -> bool:
        """Whether no stream is left, nor can come."""
        return self.streams.is_fixed and bool(self.streams) and len(self.deleted) == len(self.streams)

    async def run(self, on_listing: ListingHandler, on_closed: Callable[[str], Awaitable[None]]) -> None:
        """List periodically. A failed listing never ends the job (S3); this returns when the last stream was deleted.

        - `on_closed`: called with each stream of a fixed list that is not read, because it was deleted. Of a list that may change it is
          looked for after each look.
        """
        while not self.all_deleted:
            if self._interval < 0:
                return
            await asyncio.sleep(self._interval)
            for stream in tuple(self.streams):
                if stream in self.opened:
                    await self._list(stream, on_listing)
                elif self.streams.is_fixed:
                    await on_closed(stream)

    async def _list(self, stream: str, on_listing: ListingHandler) -> None:
        try:
            await on_listing(stream, await self._lister.list_shards(stream))
        except StreamNotFoundError:
            log.warning("stream %s was deleted", stream, extra=about(stream))
            self.on_deleted(stream)
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
