"""Retention: how long each stream keeps its records, asked for in the background (A1)."""

from __future__ import annotations

import asyncio
import logging

from ..dependencies import FetcherParts

log = logging.getLogger("recordpublisher.fetcher")

HOUR = 3600.0
SPREAD_SECONDS = 0.1
"""Subtasks ask one after the other: an account has 20 DescribeStreamSummary calls a second."""


class Retention:
    """Owns what is known, ms by stream; nothing where nobody says."""

    def __init__(self, parts: FetcherParts) -> None:
        self._parts = parts
        self._known: dict[str, int | None] = {}

    def of(self, stream: str) -> int | None:
        """The retention of a stream, ms; None while it is not known."""
        return self._known.get(stream)

    async def run(self) -> None:
        """Ask now and once an hour, since it can be changed; without a port, never."""
        if self._parts.retention_ms is None:
            return
        await asyncio.sleep(self._parts.subtask * SPREAD_SECONDS)
        while True:
            for stream in self._parts.streams:
                try:
                    self._known[stream] = await self._parts.retention_ms(stream)
                except Exception:
                    log.exception("the retention of %s is not known; the job goes on", stream)
            await asyncio.sleep(HOUR)
