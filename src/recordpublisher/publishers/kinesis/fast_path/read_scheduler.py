"""Whose large body is read first when more come at once than can be read."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol


class BodyRead(Protocol):
    """A connection whose socket can be left unread for a while."""

    def pause(self) -> None:
        """Leave what comes to the kernel's buffers."""
        ...

    def resume(self) -> None:
        """Read again."""
        ...


class BodyReadScheduler:
    """One body after the other instead of all a bit at a time: the records of the first are through the pipeline, and their memory
    is there again, before those of the next are made.

    Only those who had more waiting for them than they could take stand in line, so the network is never the slower for it, and
    whoever has the turn and brings nothing in a round of the loop has lost it (P7).
    """

    def __init__(self) -> None:
        self._current: BodyRead | None = None
        self._has_read = False
        self._waiting: deque[BodyRead] = deque()

    def wait_turn(self, read: BodyRead) -> None:
        """The connection has read and there was more: it goes on, or waits for the one whose turn it is."""
        if self._current is None:
            self._begin(read)
        elif self._current is read:
            self._has_read = True
        else:
            read.pause()
            self._waiting.append(read)

    def finish(self, read: BodyRead) -> None:
        """The body is whole, or lost."""
        if self._current is read:
            self._next()
        elif read in self._waiting:
            self._waiting.remove(read)
            read.resume()

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    def _begin(self, read: BodyRead) -> None:
        self._current, self._has_read = read, True
        asyncio.get_running_loop().call_soon(self._check_progress, read)

    def _check_progress(self, read: BodyRead) -> None:
        """Once in a round of the loop: has the first one read since the last?"""
        if self._current is not read:
            return
        if self._has_read:
            self._has_read = False
            asyncio.get_running_loop().call_soon(self._check_progress, read)
        else:
            self._next()

    def _next(self) -> None:
        self._current = None
        if self._waiting:
            following = self._waiting.popleft()
            following.resume()
            self._begin(following)
