"""PlanningCalls: the calls to services that planning needs, in a thread of their own. Each has an answer within some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError

from .outages import OutageWatch, is_outage

T = TypeVar("T")
ANSWER_SECONDS = 4.0
"""After this time Spark gets an answer: it can stop a query only between two calls."""
NO_ANSWER_SECONDS = 10.0
"""A call that has run for so long counts as an outage, until it ends."""
NO_ANSWER = "a call that planning needs has no answer"


class PatientCalls(Protocol):
    """How blocking calls are made, one at a time."""

    def result(self, name: str, call: Callable[[], T], seconds: float) -> T:
        """The result of the call of that name, which begins with the first request. Raises: TimeoutError while it runs; its error."""


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


class PlanningCalls:
    """Owns when a call may be tried again, and tells the watch of outages how calls end."""

    def __init__(self, outages: OutageWatch, clock: Clock, background: PatientCalls) -> None:
        """`background` makes the calls."""
        self._background = background
        self._clock = clock
        self._watch = outages
        self._retry_at = 0.0
        self._began: float | None = None

    def result(self, name: str, call: Callable[[], T], seconds: float = ANSWER_SECONDS) -> T:
        """The result of the call of that name, which goes on in the background when there is none in time.

        Raises: TimeoutError when there is none now, since the call still runs or a service is away: call again later. OutageError past
        `maxOutage`; every error that is no outage, at once.
        """
        now = self._clock.monotonic()
        if now < self._retry_at:
            raise TimeoutError
        self._began = now if self._began is None else self._began
        try:
            result = self._background.result(name, call, max(0.0, seconds))
        except TimeoutError:
            if self._clock.monotonic() - self._began >= NO_ANSWER_SECONDS:
                self._watch.on_failure(NO_ANSWER)
            raise
        except RecordPublisherError as error:
            self._began = None
            if not is_outage(error):
                raise
            self._retry_at = self._clock.monotonic() + self._watch.on_failure(error)
            raise TimeoutError from error
        self._began = None
        self._watch.on_success()
        return result
