"""Retries of all calls: `call_with_retries`, RetryPolicy (full-jitter backoff), Failures (when to try again) and the log of outages."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from .errors import RetriesExhaustedError, StreamNotActiveError, TransientError
from .log_fields import text_of

log = logging.getLogger("recordpublisher.outages")

T = TypeVar("T")

CREATION_PAUSE_SECONDS = 2.0
CREATION_TRIES = 150
"""Tries while a stream is being created: the call waits for five minutes; the service takes seconds to minutes (CreateStream)."""
FEW_RETRIES = 3
"""The retries of an error that a mistyped name explains better than an outage."""
RISING_TRIES = 100
"""The number of tries after which the exponent rises no further, so that a long outage cannot overflow a float."""
_SUSPENDED_SECONDS = 5.0
"""A pause that ends more than this late shows that the process was suspended."""
_RESOLUTION_SECONDS = 0.001

RetryListener = Callable[[Exception, float, float], None]
"""Receives the error, the seconds from the call's first failure to its next try, and the seconds of back-off left at most."""
retry_listener: ContextVar[RetryListener | None] = ContextVar("retry_listener", default=None)
"""Is notified of each retry in its context, so that a command can inform the person who waits."""
_enclosing: ContextVar[Failures | None] = ContextVar("enclosing", default=None)
"""The failures of the call that this call is a part of. Both belong to one outage, whose time counts only once."""


async def call_with_retries(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    on_retry: Callable[[TransientError], None] = lambda error: None,
    min_pause: Callable[[TransientError], float] = lambda error: 0.0,
    needs_few: Callable[[TransientError], bool] = lambda error: False,
    service: str = "Kinesis",
) -> T:
    """Call until it succeeds, waiting between tries by `policy`, and return its result.

    Only TransientError is retried (ThrottledError is one). The retry budget belongs to this call: the next call has a full one.
    Waiting for a stream that is being created uses none of it.

    - `on_retry`: receives each error that is retried.
    - `min_pause`: returns the seconds to wait in addition to the jitter, such as the window of a quota.
    - `needs_few`: returns whether `FEW_RETRIES` are enough for an error.
    - `service`: the name of the service in the log.

    Raises: RetriesExhaustedError, caused by the last error, if the retries or the time of the policy are used up; every other error
    at once.
    """
    failures, creation_tries = Failures(policy, service), 0
    enclosing = _enclosing.get()
    _enclosing.set(failures)
    try:
        while True:
            try:
                result = await call()
            except StreamNotActiveError as error:
                creation_tries += 1
                if creation_tries > CREATION_TRIES:
                    words = f"{error.api} failed {creation_tries} times in a row; the last error: {error}"
                    raise RetriesExhaustedError(words) from error
                await asyncio.sleep(CREATION_PAUSE_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 (jitter)
            except TransientError as error:
                pause = failures.pause_after(error, min_pause(error), needs_few=needs_few(error))
                on_retry(error)
                await failures.sleep(pause)
            else:
                failures.on_success()
                return result
    finally:
        failures.end()
        _enclosing.set(enclosing)  # `reset` would fail: a coroutine that is thrown away ends in another context.


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How one operation is retried: `max_retries` failures in a row without progress, delays in ms.

    - `max_outage_ms`: if set, the call is retried for this long, and `max_retries` does not count.
    - `decided_by`: the key of the property that limits the retries.

    The delay is `random(0, 1) * min(max_ms, base_ms * exponent ** attempt)`, Flink's FullJitterBackoff.
    """

    max_retries: int
    base_ms: int
    max_ms: int
    exponent: float
    max_outage_ms: int | None = None
    decided_by: str = ""

    def is_used_up(self, failures: int, lasted: float) -> bool:
        """Return whether an operation that failed this often before, and for `lasted` seconds, is not tried again."""
        if self.max_outage_ms is None:
            return failures >= self.max_retries
        return lasted > self.max_outage_ms / 1000 - _RESOLUTION_SECONDS

    def delay_seconds(self, attempt: int, draw: Callable[[], float] = random.random) -> float:
        """Return the seconds to wait before try number `attempt` (from 0)."""
        return draw() * self._longest_delay_seconds(attempt)

    def longest_seconds(self, attempt: int) -> float:
        """Return the longest time (seconds) of all waits from try number `attempt` on, if retries are counted."""
        rising = sum(map(self._longest_delay_seconds, range(attempt, min(self.max_retries, RISING_TRIES))))
        rest = max(
            0, self.max_retries - max(attempt, RISING_TRIES)
        )  # A task of Spark has two thousand million retries.
        return rising + rest * self._longest_delay_seconds(RISING_TRIES)

    def _longest_delay_seconds(self, attempt: int) -> float:
        try:
            return min(self.max_ms, self.base_ms * self.exponent ** min(attempt, RISING_TRIES)) / 1000
        except OverflowError:  # The exponent is a large number itself.
            return self.max_ms / 1000


class Failures:
    """Failures of one operation in a row: decides whether it is tried again, and after which pause.

    Time is the time of the event loop. `service` is the name of the service in the log.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        service: str = "Kinesis",
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.count = 0
        self.began: float | None = None
        self._policy = policy
        self._service = service
        self._clock = asyncio.get_running_loop().time
        self._draw = draw
        self._outer = _enclosing.get()

    def backoff(self) -> float:
        """Return the next pause (seconds), for a failure that does not count."""
        return self._policy.delay_seconds(self.count, self._draw)

    def pause_after(self, error: Exception, min_pause: float = 0.0, *, needs_few: bool = False) -> float:
        """Count a failure, and return the pause before the next try (seconds).

        - `needs_few`: whether `FEW_RETRIES` are enough.

        Raises: RetriesExhaustedError if the operation has used up its retries or its time.
        """
        policy, now = self._policy, self._clock()
        # 1. The outage began with the first failure, or with that of the enclosing call if both are limited by time.
        if self.began is None:
            outer = self._outer
            is_timed = outer is not None and None not in (outer._policy.max_outage_ms, policy.max_outage_ms)
            self.began = outer.began if outer is not None and is_timed and outer.began is not None else now
        # 2. End if the retries or the time are used up.
        lasted = now - self.began
        is_used_up = policy.is_used_up(self.count, lasted)
        if is_used_up or (needs_few and self.count >= FEW_RETRIES):
            exhausted = self._exhausted_error(error, lasted, is_few=not is_used_up)
            self.end()
            raise exhausted from error
        # 3. Compute the pause, which ends with the time that is left.
        pause = min_pause + self.backoff()
        if policy.max_outage_ms is None:
            left = policy.longest_seconds(self.count)
        else:
            left = policy.max_outage_ms / 1000 - lasted
            pause = min(pause, max(left, min_pause))
        # 4. Notify the listener and the log.
        if (listener := retry_listener.get()) is not None:
            listener(error, lasted + pause, left)
        OUTAGES.on_failure(self, self._service, error, lasted, left, policy.decided_by)
        self.count += 1
        return pause

    async def sleep(self, seconds: float) -> None:
        """Wait until the next try. Time in which this process was suspended does not count as part of the outage."""
        until = self._clock() + seconds
        await asyncio.sleep(seconds)
        if self.began is not None:
            self.began += suspended_seconds(self._clock() - until)

    def on_success(self) -> None:
        """Start to count again from zero."""
        self.end(is_success=True)

    def end(self, *, is_success: bool = False) -> None:
        """Forget the failures. Unless `is_success`, the log does not say that the service is back."""
        if self.began is not None:
            OUTAGES.on_end(self, is_success=is_success)
        self.count, self.began = 0, None

    def _exhausted_error(self, error: Exception, lasted: float, *, is_few: bool) -> RetriesExhaustedError:
        if not self.count:
            return RetriesExhaustedError(text_of(error))
        what = getattr(error, "api", "") or self._service  # A plugin may give the message of its error alone.
        limit = "" if is_few or not self._policy.decided_by else f" ({self._policy.decided_by} decides)"
        return RetriesExhaustedError(
            f"{what} failed {self.count + 1} times in a row, for {duration_words(lasted)}{limit}; the last error: {text_of(error)}"
        )


def suspended_seconds(late: float) -> float:
    """Return for how long the process was suspended, if a pause ended `late` seconds too late; 0 if it was not."""
    return late if late > _SUSPENDED_SECONDS else 0.0


# --- the log of outages -------------------------------------------------------------------------------------------------------------

GRACE_SECONDS = 2.0
"""The log does not mention a call that fails for a shorter time: it met a throttle or a lost connection."""
LINE_SECONDS = 60.0
"""Time between two lines about an outage that lasts. It is shorter if the caller waits for a short time only."""
DAY_SECONDS = 86_400.0
"""A call that is retried for longer is retried without end, as in a task of Spark, and the log names no time."""


class OutageLog:
    """Logs the outages of this process. It owns the calls that fail at present, by event loop and service.

    Any thread may call it. Calls of different jobs to the same service share its lines.
    """

    def __init__(self) -> None:
        self._of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Outage]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    def on_failure(
        self, call: object, service: str, error: object, lasted: float, left: float, decided_by: str
    ) -> None:
        """Remember that a call has failed for `lasted` seconds, and is retried for at most `left` more. Called in its event loop."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        with self._lock:
            outages = self._of_loops.setdefault(loop, {})
            outage = outages.get(service)
            if outage is None or not outage.calls:  # The calls of a cancelled reader are gone.
                outage = outages[service] = _Outage(now - lasted)
            outage.calls.add(call)
            outage.began = min(outage.began, now - lasted)
            has_failed = now - outage.began
            is_due = outage.logged_at is None or now - outage.logged_at >= min(LINE_SECONDS, (lasted + left) / 3)
            if has_failed < GRACE_SECONDS or not is_due:
                return
            outage.logged_at, calls = now, len(outage.calls)
        log.warning(
            "calls to %s have failed for %s; calls that are retried: %d%s%s: %s",
            service,
            duration_words(has_failed),
            calls,
            f", for {duration_words(left)} more" if left < DAY_SECONDS else "",
            f" ({decided_by})" if decided_by else "",
            error,
        )

    def on_end(self, call: object, *, is_success: bool) -> None:
        """Remember that a call is no longer retried. The service is back when a call has succeeded, and no other one fails."""
        with self._lock:
            found = [
                (loop, outages, service)
                for loop, outages in self._of_loops.items()
                for service, outage in outages.items()
                if call in outage.calls
            ]
            if not found:
                return
            ((loop, outages, service),) = found
            outage = outages[service]
            outage.calls.discard(call)
            if outage.calls:
                return
            del outages[service]
        if is_success and outage.logged_at is not None:
            log.warning("calls to %s succeed again, after %s", service, duration_words(loop.time() - outage.began))


@dataclass(slots=True)
class _Outage:
    """An outage of one service: when it began, the calls that fail, and when it was last logged (event-loop time)."""

    began: float
    calls: weakref.WeakSet[object] = field(default_factory=weakref.WeakSet)
    logged_at: float | None = None


OUTAGES = OutageLog()
"""The log of the whole process: a thousand shards that cannot be read are one outage."""


def duration_words(seconds: float) -> str:
    """Return a duration for people, as `42 s` or `3.5 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{round(seconds / 60, 1):g} min"
