"""HandlerTasks: the asyncio tasks that handle what is queued. The threads of a plain function are in `handler.py`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from .handler import is_cancelled

log = logging.getLogger("recordpublisher.plugins.sinks.map")
CLOSE_SECONDS = 10.0
"""For how long handlers that were cancelled may clean up."""
_TURN_SECONDS = 0.005
_CHECK_EVERY = 16
"""How often a task whose handlers never wait looks at the time, and after how long it lets the event loop run."""


class HandlerTasks:
    """Up to `limit` tasks, started when they are needed: a task for each handler that is waiting, none for each record.

    One task handles record after record as long as the handlers finish at once. When one suspends, the event loop wakes the next task.
    `may_take()` says whether there is something to handle; `handle_next()` takes and handles it. Its error ends its task and goes to
    `on_error`.
    """

    def __init__(
        self,
        limit: int,
        may_take: Callable[[], bool],
        handle_next: Callable[[], Awaitable[None]],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._limit = limit
        self._may_take = may_take
        self._handle_next = handle_next
        self._on_error = on_error
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._wakes_next = False

    def wake(self) -> None:
        """Something may be handled now, or a task has suspended: let one more look."""
        self._wakes_next = False
        if self._stopped or not self._may_take():
            return
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        if len(self._tasks) < self._limit:
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._on_ended)

    def stop(self) -> None:
        """Let no task take anything more."""
        self._stopped = True

    async def close(self) -> None:
        """Cancel the handlers that run, and wait until they have ended. Those that swallow that are left behind, with a log line."""
        self.stop()
        for task in (tasks := list(self._tasks)):
            task.cancel()
        if not tasks:
            return
        _, running = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        if running:
            log.error(
                "%d handlers have not ended %g s after they were cancelled: left behind", len(running), CLOSE_SECONDS
            )
        for task in running:
            asyncio._unregister_task(task)  # asyncio.run would cancel it again, and wait without end

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)
        self.wake()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        turn_began, handled = loop.time(), 0
        while not self._stopped:
            while not self._may_take():  # who is stopped wakes nobody
                idle = loop.create_future()
                self._idle.append(idle)
                await idle
                turn_began = loop.time()
            if not self._wakes_next:
                self._wakes_next = True
                loop.call_soon(self.wake)  # runs when this task suspends
            await self._handle_next()
            if is_cancelled(loop):  # another task takes its place
                return
            handled += 1
            if not handled % _CHECK_EVERY and loop.time() - turn_began > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn_began = loop.time()
