"""BackgroundLoop: an asyncio event loop in a thread of its own, for synchronous callers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 5.0


class BackgroundLoop:
    """Owns the thread and the loop between `__enter__` and `__exit__`; both end with the block.

    The first interruption (Ctrl-C) cancels the work. Those within `patience_seconds` after it wait until everything is closed; a later
    one ends the waiting, for a user whose network hangs.
    """

    def __init__(self, name: str, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._interrupted_at: float | None = None
        self._task: _BackgroundTask | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run_until_stopped()), name=name, daemon=True)

    def __enter__(self) -> Self:
        try:
            self._thread.start()
            self._ready.wait()
        except KeyboardInterrupt:  # on a busy machine the thread may not have started yet
            self._until_ended(self._ready.wait)
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result. When the caller is interrupted, cancel it and wait until it has ended."""
        task = self._task = _BackgroundTask(coroutine)
        try:
            self._loop.call_soon_threadsafe(task.start)
            task.ended.wait()
        except BaseException:
            self._interrupted_at = time.monotonic()
            self._end(task)
            raise
        result: T = task.result()
        return result

    def close(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that closes something, after what an interruption may have left running. It is not cancelled by another one."""
        if self._task is not None:
            self._end(self._task)
        task = _BackgroundTask(coroutine)

        def ended() -> None:
            self._loop.call_soon_threadsafe(task.start)
            task.ended.wait()

        interruption = self._until_ended(ended)
        task.result()
        if interruption is not None:
            raise interruption

    def _end(self, task: _BackgroundTask) -> None:
        def ended() -> None:
            if not task.ended.is_set():
                self._loop.call_soon_threadsafe(task.cancel)
                task.ended.wait()

        self._until_ended(ended)

    def _until_ended(self, wait: Callable[[], object]) -> KeyboardInterrupt | None:
        """Wait; returns an interruption that came meanwhile, or raises it when the user has waited long enough."""
        interruption = None
        while True:
            try:
                wait()
            except KeyboardInterrupt as error:
                interruption = error
                self._raise_if_out_of_patience()
            else:
                return interruption

    def _raise_if_out_of_patience(self) -> None:
        now = time.monotonic()
        self._interrupted_at = now if self._interrupted_at is None else self._interrupted_at
        if now - self._interrupted_at > self._patience_seconds:
            raise KeyboardInterrupt

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._until_ended(self._thread.join)

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
        self._is_cancelled = False
        self.ended = threading.Event()

    def start(self) -> None:
        """Start once."""
        if self._task is not None:
            return
        self._task = asyncio.ensure_future(self._coroutine)
        self._task.add_done_callback(lambda _: self.ended.set())

    def cancel(self) -> None:
        """Cancel once: a second time would break off what the first has begun to close."""
        if self._is_cancelled:
            return
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()
        else:  # it was never started
            self._coroutine.close()
            self.ended.set()

    def result(self) -> Any:
        assert self._task is not None
        return self._task.result()
