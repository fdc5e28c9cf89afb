"""RetentionPeriods: how long each stream keeps its records; requested once an hour."""

from __future__ import annotations

import asyncio
import logging

from ..dependencies import FetcherDependencies

log = logging.getLogger("recordpublisher.fetcher")

HOUR_SECONDS = 3600.0
SPREAD_SECONDS = 0.1
"""Between the requests of two subtasks: an account has 20 DescribeStreamSummary calls a second."""


class RetentionPeriods:
    """Owns the retention of each stream; None where it is not known."""

    def __init__(self, dependencies: FetcherDependencies) -> None:
        self._dependencies = dependencies
        self._known: dict[str, int | None] = {}

    def of(self, stream: str) -> int | None:
        """The retention of a stream, ms; None while it is not known."""
        return self._known.get(stream)

    async def run(self) -> None:
        """Request it now and then once an hour, since it can be changed."""
        if self._dependencies.retention_ms is None:
            return
        await asyncio.sleep(self._dependencies.subtask * SPREAD_SECONDS)
        while True:
            for stream in self._dependencies.streams:
                try:
                    self._known[stream] = await self._dependencies.retention_ms(stream)
                except Exception:
                    log.exception("the retention of %s cannot be read, the job continues", stream)
            await asyncio.sleep(HOUR_SECONDS)
