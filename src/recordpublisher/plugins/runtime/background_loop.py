"""BackgroundLoop: an asyncio loop in a thread of its own, for callers that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Owns the thread and the loop between `__enter__` and `__exit__`; nothing of either is left behind."""

    def __init__(self, name: str) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name=name, daemon=True)

    def __enter__(self) -> Self:
        try:
            self._thread.start()
            self._ready.wait()
        except KeyboardInterrupt:  # a busy machine takes its time to start a thread
            self._ready.wait()
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and answer its result. An interruption of the caller cancels it and waits until it has ended."""
        task = _Running(coroutine)
        try:
            self._loop.call_soon_threadsafe(task.start)
            task.ended.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(task.cancel)
            task.ended.wait()
            raise
        result: T = task.result()
        return result

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._ready.set()
        await self._over.wait()


class _Running:
    """One coroutine on the loop, and a thread that waits for it."""

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
        else:  # it was never begun
            self._coroutine.close()
            self.ended.set()

    def result(self) -> Any:
        assert self._task is not None
        return self._task.result()
