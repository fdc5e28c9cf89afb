"""BodyReadScheduler reads large response bodies one after the other."""

import asyncio
from collections import deque
from typing import Protocol


class BodyRead(Protocol):
    """A connection whose socket can be left unread for a while."""

    def pause(self) -> None:
        """Stop reading; the kernel buffers the bytes that arrive."""

    def resume(self) -> None:
        """Start reading again."""


class BodyReadScheduler:
    """Lets one connection read its body to the end while others are paused, instead of all in small parts at the same time.

    So the records of one body pass through the pipeline and free their memory before the records of the next body are
    made. Only a connection with more bytes waiting than it could read at once is queued, so the network stays busy. If
    the current connection reads nothing in one iteration of the event loop, the next connection replaces it (P7).
    """

    def __init__(self) -> None:
        self._current: BodyRead | None = None
        self._has_read = False
        self._waiting: deque[BodyRead] = deque()

    def wait_turn(self, read: BodyRead) -> None:
        """Make the connection, which has more to read, the current one, or pause it until its turn."""
        if self._current is None:
            self._begin(read)
        elif self._current is read:
            self._has_read = True
        else:
            read.pause()
            self._waiting.append(read)

    def finish(self, read: BodyRead) -> None:
        """Let the next connection read, because this body is complete or has failed."""
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
        """Replace the current connection if it has read nothing since the last check. Called once in an iteration of the loop."""
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
