"""BackgroundCall: a blocking call in a thread of its own, for which the caller waits only as long as it likes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class PatientCalls(Protocol):
    """How blocking calls are made, one at a time."""

    def result(self, name: str, call: Callable[[], T], seconds: float) -> T:
        """The result of the call of that name, which begins with the first request. Raises: TimeoutError while it runs; its error."""
        ...


class BackgroundCall:
    """Owns the running call. It is never cut off: a later request of the same name gets its result.

    A call of another name begins when the running one has ended, and then its result is dropped. The thread does not keep the process
    from ending.
    """

    def __init__(self) -> None:
        self._running: tuple[str, Future[Any]] | None = None

    def result(self, name: str, call: Callable[[], T], seconds: float) -> T:
        """Begin the call, or go on waiting for it. `seconds` are for both, the running call and this one."""
        until = time.monotonic() + seconds
        if self._running is not None and self._running[0] != name:
            self._running[1].exception(seconds)
            self._running = None
        if self._running is None:
            self._running = name, _started(call)
        future: Future[T] = self._running[1]
        future.exception(max(0.0, until - time.monotonic()))
        self._running = None
        return future.result()


def _started(call: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="recordpublisher-planning", daemon=True).start()
    return future
