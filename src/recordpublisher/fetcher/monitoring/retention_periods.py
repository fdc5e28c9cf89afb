"""RetentionPeriods: how long each stream keeps its records; requested again as often as by `RetentionCheck`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from recordpublisher.publishers.log_fields import about

from ..shards.retention_check import CACHE_SECONDS

log = logging.getLogger("recordpublisher.fetcher")

SPREAD_SECONDS = 0.1
"""Between the requests of two subtasks: an account has 20 DescribeStreamSummary calls a second."""


class RetentionPeriods:
    """Owns the retention of each stream; None where it is not known."""

    def __init__(
        self, retention_ms: Callable[[str], Awaitable[int | None]] | None, streams: Collection[str], subtask: int = 0
    ) -> None:
        """`retention_ms` requests that of a stream; None: the source does not tell."""
        self._retention_ms = retention_ms
        self._streams = streams
        self._subtask = subtask
        self._known: dict[str, int | None] = {}

    def of(self, stream: str) -> int | None:
        """The retention of a stream, ms; None while it is not known."""
        return self._known.get(stream)

    async def run(self) -> None:
        """Request it now and then every five minutes, since it can be changed."""
        if self._retention_ms is None:
            return
        await asyncio.sleep(self._subtask * SPREAD_SECONDS)
        while True:
            for stream in self._streams:
                await self._request(stream)
            await asyncio.sleep(CACHE_SECONDS)

    async def request_missing(self) -> None:
        """Request that of streams which came later."""
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
