"""BackgroundLoop: an asyncio event loop in a thread of its own, for synchronous callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Owns the thread and the loop between `__enter__` and `__exit__`; both end with the block."""

    def __init__(self, name: str) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run_until_stopped()), name=name, daemon=True)

    def __enter__(self) -> Self:
        try:
            self._thread.start()
            self._ready.wait()
        except KeyboardInterrupt:  # on a busy machine the thread may not have started yet
            self._ready.wait()
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result. When the caller is interrupted, cancel it and wait until it has ended."""
        task = _BackgroundTask(coroutine)
        try:
            self._loop.call_soon_threadsafe(task.start)
            task.ended.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(task.cancel)
            task.ended.wait()
            raise
        result: T = task.result()
        return result

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    async def _run_until_stopped(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._ready.set()
        await self._stopping.wait()


class _BackgroundTask:
    """One coroutine on the loop, with an event for the thread that waits for it."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[Any] | None = None
        self.ended = threading.Event()

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._coroutine)
        self._task.add_done_callback(lambda _: self.ended.set())

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:  # it was never started
            self._coroutine.close()
            self.ended.set()

    def result(self) -> Any:
        assert self._task is not None
        return self._task.result()
