"""ShardDiscovery lists the shards of every stream, at the start and periodically (S3). A lister makes the listings."""

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
    """Lists a stream's shards. Raises StreamNotFoundError if the stream does not exist."""

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        """Return every shard that is still listed, or the shards after the shard id `after`."""


class ShardDiscovery:
    """Lists shards. Owns which streams are read, and which of them are known to be deleted.

    `streams` is a list that may change (S10), or names that stay the same.
    """

    def __init__(self, lister: ShardLister, streams: Sequence[str], interval_ms: int) -> None:
        self._lister = lister
        self.streams = streams if isinstance(streams, StreamList) else StreamList(streams)
        self._interval = interval_ms / 1000
        self.deleted: set[str] = set()
        self.opened = set(self.streams)
        """Streams that are read. Other streams of the list do not exist yet, could not be listed, or were added a moment ago."""
        self._has_listed = False
        self.not_found: set[str] = set()
        """Streams that the last listing of all streams did not find, and of which a warning was logged."""

    async def list_all(self) -> list[Shard]:
        """Return every shard of every stream.

        Streams that do not exist are left out, with one warning, if the list may change or a fixed list was listed
        before: such a stream was deleted, and the job continues to read the others.

        Raises: StreamNotFoundError if no stream exists, or a stream of a fixed list has never existed; any other error
        of a listing.
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
        """Note that a stream was deleted. It is read again when a stream of the same name exists again."""
        self.deleted.add(stream)
        self.opened.discard(stream)

    async def list_stream(self, stream: str) -> list[Shard]:
        """Return every shard of one stream. Raises: StreamNotFoundError if it does not exist, KinesisError if the listing fails."""
        return await self._lister.list_shards(stream)

    @property
    def all_deleted(self) -> bool:
        """Whether no stream is left, and none can be added."""
        return self.streams.is_fixed and bool(self.streams) and len(self.deleted) == len(self.streams)

    async def run(self, on_listing: ListingHandler, on_closed: Callable[[str], Awaitable[None]]) -> None:
        """List periodically. A failed listing never ends the job (S3). Return when the last stream was deleted.

        - `on_closed`: called with each stream of a fixed list that is not read, because it was deleted. The streams of
          a list that may change are looked for whenever the list is read again.
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
