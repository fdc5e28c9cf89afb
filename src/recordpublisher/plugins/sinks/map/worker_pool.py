"""WorkerPool: tasks that handle what is queued, and when they may: enough for a batch is ready, and the job may write."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from recordpublisher.fetcher.sink import SinkContext

from .handler import is_cancelled
from .unhandled_record import UnhandledRecord

log = logging.getLogger("recordpublisher.plugins.sinks.map")
CLOSE_SECONDS = 10.0
"""For how long handlers that were cancelled may clean up."""
_PERMISSION_POLL_SECONDS = 0.1
_TURN_SECONDS = 0.005
_CHECK_EVERY = 16
"""How often a worker whose handlers never wait looks at the time, and after how long it lets the event loop run."""


class WorkerPool:
    """Up to `limit` tasks, started when they are needed: a task for each handler that is waiting, none for each record.

    One worker handles record after record as long as the handlers finish at once. When one suspends, the event loop wakes the next worker.
    `may_take()` says whether there is something to handle; `handle_next()` takes and handles it. Its error ends its worker and goes to
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
        self._workers: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._wakes_next = False

    def wake(self) -> None:
        """Something may be handled now, or a worker has suspended: let one more worker look."""
        self._wakes_next = False
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
        """Cancel the handlers that run, and wait until they have ended. Those that swallow that are left behind, with a log line."""
        self.stop()
        for worker in (workers := list(self._workers)):
            worker.cancel()
        if not workers:
            return
        _, running = await asyncio.wait(workers, timeout=CLOSE_SECONDS)
        if running:
            log.error(
                "%d handlers have not ended %g s after they were cancelled: left behind", len(running), CLOSE_SECONDS
            )
        for worker in running:
            asyncio._unregister_task(worker)  # asyncio.run would cancel it again, and wait without end

    def _on_ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and (error := worker.exception()) is not None:
            self._on_error(error)
        self.wake()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        turn_began, handled = loop.time(), 0
        while not self._stopped:
            while not self._may_take():  # a stopped pool wakes nobody
                idle = loop.create_future()
                self._idle.append(idle)
                await idle
                turn_began = loop.time()
            if not self._wakes_next:
                self._wakes_next = True
                loop.call_soon(self.wake)  # runs when this worker suspends
            await self._handle_next()
            if is_cancelled(loop):  # another worker takes its place
                return
            handled += 1
            if not handled % _CHECK_EVERY and loop.time() - turn_began > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn_began = loop.time()


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


class JobPermission:
    """Whether the job may write now (E4). Owns the timer of the next question while it may not."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._may_write = SinkContext().may_write
        self._timer: asyncio.TimerHandle | None = None

    def open(self, context: SinkContext) -> None:
        """Ask this job."""
        self._may_write = context.may_write

    def is_given(self) -> bool:
        """Whether a handler may be called now. If not, `wake` is called a little later."""
        if self._may_write():
            return True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PERMISSION_POLL_SECONDS, self._ask_again)
        return False

    async def wait(self, items: Sequence[UnhandledRecord]) -> list[UnhandledRecord]:
        """Wait until a handler may be called. Returns the items that are still this process's: those of revoked shards are not."""
        while True:
            left = [item for item in items if not item.pending.shard.is_revoked]
            if not left or self._may_write():
                return left
            await asyncio.sleep(_PERMISSION_POLL_SECONDS)

    def close(self) -> None:
        """Ask no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _ask_again(self) -> None:
        self._timer = None
        self._wake()
