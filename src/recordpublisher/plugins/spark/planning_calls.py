"""PlanningCalls: the calls to services that planning needs. Each has an answer within some seconds, also while a service is away."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError

from .background_call import PatientCalls
from .outages import OutageWatch, is_outage

T = TypeVar("T")
ANSWER_SECONDS = 4.0
"""After this time Spark gets an answer: it can stop a query only between two calls."""
NO_ANSWER_SECONDS = 10.0
"""A call that has run for so long counts as an outage, until it ends."""
NO_ANSWER = "a call that planning needs has no answer"


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
