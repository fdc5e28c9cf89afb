"""How many records `tail` prints a second, on a terminal; a pipe stays quiet."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recordpublisher.publishers.clock import Clock

from ..execution import print_note

INTERVAL_SECONDS = 10.0


class PrintedRate:
    """Owns the count of the records that were printed, and when the first wait for them began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._count = 0

    def add(self, count: int) -> None:
        """So many records were printed."""
        self._count += count

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Say it on stderr now and then while the block runs, if new records came, and at its end; only if stderr is a terminal."""
        if not sys.stderr.isatty():
            yield
            return
        saying = asyncio.create_task(self._say_again())
        try:
            yield
        finally:
            saying.cancel()
            self._say(self._count, self._clock.monotonic() - self._began)

    async def _say_again(self) -> None:
        before = 0
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            if self._count > before:
                self._say(self._count - before, INTERVAL_SECONDS)
            before = self._count

    def _say(self, count: int, seconds: float) -> None:
        print_note(f"{count:,} records in {seconds:.1f} s ({count / max(seconds, 0.001):,.1f} a second)")
