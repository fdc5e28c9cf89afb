"""BatchWait: whether enough is ready for a list of records, or the wait for more of them is over."""

import asyncio
from collections import deque
from collections.abc import Callable

from .unhandled_record import UnhandledRecord


class BatchWait:
    """A batch may be taken when `size` records are ready, `seconds` after the first of them, or at once while all must be handled."""

    def __init__(self, queue: deque[UnhandledRecord], size: int, seconds: float, wake: Callable[[], None]) -> None:
        self._queue = queue
        self._size = size
        self._seconds = seconds
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._is_draining = False

    def may_take(self) -> bool:
        """Whether a batch may be taken now. If not, `wake` is called when that has changed by time."""
        if not self._queue:
            return False
        if len(self._queue) >= self._size or not self._seconds or self._is_draining or self._is_over:
            return True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._end)
        return False

    def drain(self, is_draining: bool) -> None:
        """Whether all that is ready is to be handled now, without waiting for more."""
        self._is_draining = is_draining

    def reset(self) -> None:
        """A batch was taken: the wait for the next one begins with its first record."""
        self._is_over = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        self._is_over = True
        self._wake()
