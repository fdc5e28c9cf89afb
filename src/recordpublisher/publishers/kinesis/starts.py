"""Starts: how many calls begin in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque

AT_ONCE = 32
"""Signing and sending a call is half a millisecond of CPU: a turn that begins a thousand reads no answer for that long (F1)."""


class Starts:
    """Lets so many pass in one turn of the loop, the others in the next ones, in order; how long a call then takes delays nobody (P7)."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._left = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def next(self) -> None:
        """Wait for a place in a turn."""
        loop = asyncio.get_running_loop()
        if self._left == self._at_once:
            loop.call_soon(self._begin, loop)
        if self._left:
            self._left -= 1
            return
        place = loop.create_future()
        self._waiting.append(place)
        await place

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """A new turn: who waits goes first."""
        self._left = self._at_once
        while self._left and self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                self._left -= 1
        if self._left < self._at_once:
            loop.call_soon(self._begin, loop)
