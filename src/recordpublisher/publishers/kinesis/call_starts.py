"""CallStartLimiter limits how many calls start at once."""

import asyncio
from collections import deque

MAX_STARTS_PER_LOOP_ITERATION = 32
"""Most calls that start in one iteration: signing and sending a call takes half a millisecond of CPU.

A thousand at once would block the loop for half a second (F1).
"""


class CallStartLimiter:
    """Limits how many calls start in one iteration of the event loop. The others start in the next iterations, in order (P7).

    It does not limit how many calls are open, so a slow call delays no other call.
    """

    def __init__(self, per_iteration: int = MAX_STARTS_PER_LOOP_ITERATION) -> None:
        self._at_once = per_iteration
        self._free = per_iteration
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait_for_slot(self) -> None:
        """Wait until the call may start."""
        loop = asyncio.get_running_loop()
        if self._free == self._at_once:
            loop.call_soon(self._start_iteration, loop)
        if self._free:
            self._free -= 1
            return
        slot = loop.create_future()
        self._waiting.append(slot)
        await slot

    def _start_iteration(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a new iteration, in which waiting calls come first."""
        self._free = self._at_once
        while self._free and self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                self._free -= 1
        if self._free < self._at_once:
            loop.call_soon(self._start_iteration, loop)
