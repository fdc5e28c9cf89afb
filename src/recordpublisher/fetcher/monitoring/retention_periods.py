"""Keeps how long each stream retains its records; requests it as often as `RetentionCheck` does."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from recordpublisher.publishers.log_fields import about

from ..shards.retention_check import CACHE_SECONDS

log = logging.getLogger("recordpublisher.fetcher")


class RetentionPeriods:
    """Owns the retention period of each stream. It is None while it is not known.

    `retention_ms` requests the period of a stream; it is None if the source does not report periods.
    """

    def __init__(self, retention_ms: Callable[[str], Awaitable[int | None]] | None, streams: Collection[str]) -> None:
        self._retention_ms = retention_ms
        self._streams = streams
        self._known: dict[str, int | None] = {}

    def of(self, stream: str) -> int | None:
        """Return the retention period of a stream (ms), or None while it is not known."""
        return self._known.get(stream)

    async def run(self) -> None:
        """Request the period of every stream now, and again every five minutes, because it can be changed."""
        if self._retention_ms is None:
            return
        while True:
            for stream in self._streams:
                await self._request(stream)
            await asyncio.sleep(CACHE_SECONDS)

    async def request_missing(self) -> None:
        """Request the periods of streams that were added later."""
        for stream in self._streams:
            if stream not in self._known:
                await self._request(stream)

    async def _request(self, stream: str) -> None:
        if self._retention_ms is None:
            return
        try:
            self._known[stream] = await self._retention_ms(stream)
        except Exception:
            log.exception("the retention of %s cannot be read, the job continues", stream, extra=about(stream))
