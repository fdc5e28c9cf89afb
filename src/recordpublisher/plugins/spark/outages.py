"""Detects outages of Kinesis and of the store of claims (records of what tasks have read), and waits until they end.

A service is unreachable while its calls fail in a way that may pass: connection errors, throttling, 5xx. The option `maxOutage` limits how
long a job waits.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from recordpublisher.publishers import kinesis
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import (
    ConfigurationError,
    KinesisError,
    OutageError,
    RecordPublisherError,
    Remedy,
    RetriesExhaustedError,
    StoreUnavailableError,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import ALL_RETRIES
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE
from recordpublisher.publishers.properties.times_and_sizes import iso_time
from recordpublisher.publishers.retry import RetryPolicy, logs_outages

LOG = logging.getLogger("recordpublisher.spark")
T = TypeVar("T")

UNKNOWN_HOST_MS = 20_000
"""How long to wait for a host that DNS does not know (ms). The host's name or its region is probably wrong.

The limit does not hold once the service was reached.
"""
UNANSWERED_MS = 30_000
"""How long a job waits for a service that has never answered (ms), because its endpoint may be wrong.

The limit holds for a batch read, and for a query without a checkpoint.
"""
CALL_RETRIES_MS = 10_000
"""How long a call to a service is retried before it counts as a failed try (ms)."""
PAUSES = RetryPolicy(max_retries=0, base_ms=500, max_ms=10_000, exponent=2.0)
"""The pauses between two tries. The length of an outage is limited (`maxOutage`); the number of tries is not."""

MOST_BETWEEN_TRIES = 1 / 3
"""How much of the time between two tries counts as outage: at most this part of `maxOutage`.

More time has passed only if the process was suspended, or if Spark runs batches less often.
"""
LONG_TRY_MS = 60_000
"""The time between two tries always counts as outage up to this length (ms). One try and its pause may take that long."""


@dataclass(slots=True)
class Outage:
    """An outage of a service.

    - `since_ms`: when it began, by the wall clock (epoch ms).
    - `began`: when it began, by the monotonic clock (seconds). Time that does not count, such as while the process was suspended, is added.
    - `failed_at`: when the last try failed (seconds of the monotonic clock).
    - `tries`: how many tries have failed.
    - `error`: the last error.
    """

    service: str
    since_ms: int
    began: float
    failed_at: float
    tries: int = 0
    error: str = ""


def outage_figures(outage: Outage | None) -> dict[str, object]:
    """Return an outage as the query's progress shows it, or {} if there is no outage."""
    if outage is None:
        return {}
    since, tries = iso_time(outage.since_ms), outage.tries
    return {"outage": {"service": outage.service, "since": since, "tries": tries, "error": outage.error}}


class OutageWatch:
    """Owns the outages of one process. Each `key`, for example a shard, has outages of its own.

    A warning is logged when the first key of a service fails, and when all of them succeed again. Any thread may call the methods.

    - `max_ms`: how long an outage may last (option `maxOutage`).
    - `is_batch_read`: whether the job is a batch read. If no process listens at the service's port at first, it stops waiting sooner.
    """

    def __init__(self, max_ms: int, clock: Clock | None = None, *, is_batch_read: bool = False) -> None:
        self._is_first_start = is_batch_read
        self._max_ms = max_ms
        self._is_batch_read = is_batch_read
        self._clock = clock or SystemClock()
        self._down: dict[str, Outage] = {}
        self._was_reached = False
        self._who = ""
        self._lock = threading.Lock()

    @property
    def longest(self) -> Outage | None:
        """The outage that began first, or None if there is none."""
        with self._lock:
            return min(self._down.values(), key=lambda outage: outage.began, default=None)

    def begin(self, name: str, *, is_first_start: bool) -> None:
        """Set the name of the query for log lines, and whether the query has never run before.

        A query that has never run soon stops waiting for a service that has never answered.
        """
        self._who, self._is_first_start = f"{name}: ", is_first_start

    def on_failure(self, error: object, key: str = "", took: float = 0.0) -> float:
        """Count a failed try of `key`, which took `took` seconds. Return how long to wait before the next try (seconds).

        Raises: OutageError if the outage has lasted for `max_ms`, or too long for a service that was never reached.
        """
        now, service = self._clock.monotonic(), failing_service(error)
        with self._lock:
            is_known = self._is_down(service)
            most = max(self._max_ms * MOST_BETWEEN_TRIES, LONG_TRY_MS) / 1000
            took = min(took, most)
            outage = self._down.setdefault(
                key, Outage(service, self._clock.now_ms() - round(took * 1000), now - took, now)
            )
            outage.began += max(0.0, now - outage.failed_at - most)
            outage.failed_at = now
            outage.service, outage.error, outage.tries = service, _last_error(error), outage.tries + 1
        down_ms, since = int((now - outage.began) * 1000), iso_time(outage.since_ms)
        if down_ms >= self._max_ms:
            raise OutageError(
                f"calls to {service} have failed since {since}, for longer than maxOutage ({self._max_ms / 1000:g} s): {outage.error}"
            )
        first_wait_ms = math.inf if self._was_reached else self._first_wait_ms(error)
        if down_ms >= first_wait_ms:
            tried = f"tried {outage.tries} times; is the region, or the endpoint, right, and does the network let the driver through?"
            raise OutageError(f"{service} has not been reached since {since}: {tried} {outage.error}")
        limit_ms, name = min((self._max_ms, "maxOutage"), (first_wait_ms, "it was never reached"))
        if not is_known:
            text = "%scalls to %s have failed since %s, and are repeated for up to %g s (%s): %s"
            LOG.warning(text, self._who, service, since, limit_ms / 1000, name, outage.error)
        return min(PAUSES.delay_seconds(outage.tries - 1), (limit_ms - down_ms) / 1000)

    def on_success(self, key: str = "") -> None:
        """End the outage of `key`, if there is one, because a try has succeeded."""
        with self._lock:
            self._was_reached = True
            outage = self._down.pop(key, None)
            is_back = outage is not None and not self._is_down(outage.service)
        if outage is not None and is_back:
            lasted = self._clock.monotonic() - outage.began
            LOG.warning("%scalls to %s succeed again after %.0f s", self._who, outage.service, lasted)

    def _first_wait_ms(self, error: object) -> float:
        """Return how long to wait for a service that was never reached (ms)."""
        if kinesis.speaks_no_tls(error):
            return 0
        if kinesis.is_host_unknown(error) or (self._is_batch_read and kinesis.is_refused(error)):
            return UNKNOWN_HOST_MS
        return UNANSWERED_MS if self._is_first_start and kinesis.is_unanswered(error) else math.inf

    def _is_down(self, service: str) -> bool:
        return any(outage.service == service for outage in self._down.values())

    def wait_out(self, call: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
        """Repeat the call as long as it fails because of an outage, and return its result.

        Raises: OutageError if the outage lasts too long. Other errors are raised at once.
        """
        while True:
            began = self._clock.monotonic()
            try:
                with retries_not_logged():
                    result = call()
            except RecordPublisherError as error:
                sleep(self._pause_after(error, took=self._clock.monotonic() - began))
            else:
                self.on_success()
                return result

    async def wait_out_async(self, call: Callable[[], Awaitable[T]], key: str) -> T:
        """Do the same as `wait_out` for an async call. Outages of each `key`, a kind of call, are counted separately."""
        while True:
            try:
                with retries_not_logged():
                    result = await call()
            except RecordPublisherError as error:
                pause = self._pause_after(error, key)
            else:
                self.on_success(key)
                return result
            await asyncio.sleep(pause)

    def _pause_after(self, error: RecordPublisherError, key: str = "", took: float = 0.0) -> float:
        if not is_outage(error):
            raise error
        try:
            return self.on_failure(error, key, took)
        except OutageError as ended:
            raise ended from error


def with_short_retries(properties: Properties) -> Properties:
    """Return the properties with short retries, for calls that `OutageWatch` repeats.

    Each call ends within seconds, so that outages are detected and waited for in one place.
    """
    counted = {
        each.max_retries.key: each.max_retries.default
        for each in ALL_RETRIES
        if not properties.is_set(each.max_retries)
    }
    return properties.merged({**counted, MAX_OUTAGE.key: CALL_RETRIES_MS})


@contextmanager
def retries_not_logged() -> Iterator[None]:
    """Do not log the retries of calls inside this block. `OutageWatch` logs the outage once instead."""
    token = logs_outages.set(False)
    try:
        yield
    finally:
        logs_outages.reset(token)


def is_outage(error: BaseException | None) -> bool:
    """Return whether the error means that a service is unreachable, so that waiting may help.

    Two kinds of errors are judged by their cause: RetriesExhaustedError and ConfigurationError (for a location that was never reached).
    """
    if isinstance(error, KinesisError):
        return error.remedy is Remedy.RETRY
    if isinstance(error, RetriesExhaustedError | ConfigurationError):
        return is_outage(error.__cause__)
    return isinstance(error, StoreUnavailableError)


def failing_service(error: object) -> str:
    """Return the name of the service that the error comes from, for messages: "Kinesis" or "the store of claims"."""
    while isinstance(error, RetriesExhaustedError | ConfigurationError):
        error = error.__cause__
    return "the store of claims" if isinstance(error, StoreUnavailableError) else "Kinesis"


def _last_error(error: object) -> str:
    """Return the text of the last call's error, with the remedy, and without the number of attempts."""
    remedies = []
    while isinstance(error, RetriesExhaustedError) and error.__cause__ is not None:
        remedies.append(error.remedy)
        error = error.__cause__
    return "; ".join([str(error), *filter(None, remedies)])
