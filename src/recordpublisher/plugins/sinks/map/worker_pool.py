"""WorkerPool: tasks that handle what is queued; a task for each handler that is waiting, none for each record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_TURN_SECONDS = 0.005
_CHECK_EVERY = 16
"""How often a worker whose handlers never wait looks at the time, and after how long it lets the event loop run."""


class WorkerPool:
    """Up to `limit` tasks, started when they are needed.

    One worker handles record after record as long as the handlers finish at once. When one suspends, the next worker is woken.
    `may_take()` says whether there is something to handle; `handle_next()` takes and handles it, and calls `wake` if it suspends. An error
    of `handle_next` ends its worker and goes to `on_error`.
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
        self._workers: set[asyncio.Task[None]] = set()
        self._stopped = False

    def wake(self) -> None:
        """Something may be handled now, or a worker has suspended: let one more worker look."""
        if self._stopped or not self._may_take():
            return
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        if len(self._workers) < self._limit:
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._on_ended)

    def stop(self) -> None:
        """Let no worker take anything more."""
        self._stopped = True

    async def close(self) -> None:
        """Cancel the handlers that run, and wait until they have ended."""
        self.stop()
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _on_ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and (error := worker.exception()) is not None:
            self._on_error(error)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        turn_began, handled = loop.time(), 0
        while not self._stopped:
            while not self._may_take():  # a stopped pool wakes nobody
                idle = loop.create_future()
                self._idle.append(idle)
                await idle
                turn_began = loop.time()
            await self._handle_next()
            handled += 1
            if not handled % _CHECK_EVERY and loop.time() - turn_began > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn_began = loop.time()
