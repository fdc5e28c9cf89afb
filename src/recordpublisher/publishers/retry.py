"""Retries of all calls: `call_with_retries`; RetryPolicy (full-jitter backoff); Failures, which decides when a call is tried again; and the
log of outages.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from .errors import RetriesExhaustedError, StreamNotActiveError, TransientError
from .safe_text import text_of

log = logging.getLogger("recordpublisher.outages")

T = TypeVar("T")

CREATION_PAUSE_SECONDS = 2.0
CREATION_TRIES = 150
"""The most attempts of a call while its stream is being created. They take about five minutes, and a creation takes seconds to minutes."""
FEW_RETRIES = 3
"""How often a call is retried if the cause of its error is probably a mistyped name, and not an outage."""
MAX_RISING_TRIES = 100
"""After this many attempts the backoff grows no further. Otherwise the power in its formula could become too large for a float."""
_SUSPENDED_SECONDS = 5.0
"""If a pause ends later than planned by more than this, the process was suspended (seconds)."""
_LOOK_SECONDS = 1.0
"""Seconds between two looks at the clock during an outage. They show whether the process was suspended."""
_RESOLUTION_SECONDS = 0.001

LONGEST_ASKED_PAUSE = 900.0
"""The longest pause that an error may ask for (seconds): as long as the default of `flink.job.max.outage`."""
RetryListener = Callable[[Exception, float, float], None]
"""A function that is called before a retry with three arguments: the error, the seconds from the call's first failure to its next attempt,
and the most seconds for which the call is still retried.
"""
retry_listener: ContextVar[RetryListener | None] = ContextVar("retry_listener", default=None)
"""The listener that is notified of each retry in this context. With it a command shows the retries to the person who waits."""
logs_outages: ContextVar[bool] = ContextVar("logs_outages", default=True)
"""Whether failed calls of this context are logged. A caller that repeats its calls itself sets it to False, and logs the outage once."""
_enclosing: ContextVar[Failures | None] = ContextVar("enclosing", default=None)
"""The failures of the enclosing call, if a call is made within another one. Both belong to one outage, whose time counts once."""


async def call_with_retries(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    on_retry: Callable[[TransientError], None] = lambda error: None,
    min_pause: Callable[[TransientError], float] = lambda error: min(asked_pause(error), LONGEST_ASKED_PAUSE),
    needs_few: Callable[[TransientError], bool] = lambda error: False,
    service: str = "Kinesis",
) -> T:
    """Make a call until it succeeds, with the pauses of `policy` between the attempts, and return its result.

    Only TransientError is retried (ThrottledError is one). Attempts while a stream is being created are not counted.

    - `on_retry`: receives each error after which the call is retried.
    - `min_pause`: returns the seconds to wait in addition to the backoff, such as the window of a quota. By default that is `retry_after`
      of the error, at most 15 minutes.
    - `needs_few`: returns whether to retry an error at most `FEW_RETRIES` times.
    - `service`: the name of the service in the log.

    Raises: RetriesExhaustedError, caused by the last error, if the policy allows no further retry; every other error at once.
    """
    failures, creation_tries = Failures(policy, service), 0
    with failures.around_calls():
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


def asked_pause(error: Exception) -> float:
    """Return how long the service asks to wait before the next call (seconds): `TransientError.retry_after`. Return 0 if it does not."""
    asked: object = None
    # `retry_after` may be a property of a user's class, which reads a header that is missing.
    with suppress(Exception):
        asked = getattr(error, "retry_after", None) if issubclass(type(error), TransientError) else None
    return max(0.0, asked) if isinstance(asked, int | float) else 0.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How one operation is retried: `max_retries` failures in a row, with pauses of at most `max_ms`.

    - `max_outage_ms`: if it is set, the call is retried for this long, and `max_retries` does not count.
    - `decided_by`: the key of the property that limits the retries, for messages.

    The pause is `random(0, 1) * min(max_ms, base_ms * exponent ** attempt)`, Flink's FullJitterBackoff.
    """

    max_retries: int
    base_ms: int
    max_ms: int
    exponent: float
    max_outage_ms: int | None = None
    decided_by: str = ""

    def is_used_up(self, failures: int, lasted: float) -> bool:
        """Return whether an operation must not be tried again. It has failed `failures` times in a row, in `lasted` seconds."""
        if self.max_outage_ms is None:
            return failures >= self.max_retries
        return lasted > self.max_outage_ms / 1000 - _RESOLUTION_SECONDS

    def delay_seconds(self, attempt: int, draw: Callable[[], float] = random.random) -> float:
        """Return the pause before attempt number `attempt`, counted from 0 (seconds)."""
        return draw() * self._longest_delay_seconds(attempt)

    def longest_seconds(self, attempt: int) -> float:
        """Return the longest time that all pauses from attempt `attempt` on can take (seconds). Only for a policy that counts retries."""
        rising = sum(map(self._longest_delay_seconds, range(attempt, min(self.max_retries, MAX_RISING_TRIES))))
        # There is a limit, because a task of Spark has two thousand million retries.
        rest = max(0, self.max_retries - max(attempt, MAX_RISING_TRIES))
        return rising + rest * self._longest_delay_seconds(MAX_RISING_TRIES)

    def _longest_delay_seconds(self, attempt: int) -> float:
        try:
            return min(self.max_ms, self.base_ms * self.exponent ** min(attempt, MAX_RISING_TRIES)) / 1000
        except OverflowError:  # The exponent itself is a large number.
            return self.max_ms / 1000


class Failures:
    """Counts the failures in a row of one operation. Decides whether it is tried again, and after which pause.

    `service`: the name of the service in the log.

    All times are times of the event loop. If this process is suspended in a pause or in a call, that time does not count as outage.
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
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._look: asyncio.TimerHandle | None = None
        self._draw = draw
        self._outer = _enclosing.get()
        self._is_over = False
        self._begun_by: weakref.ref[Failures] | None = None
        """The failures of the call within this one that have begun this outage. None if this call itself has failed."""

    @property
    def is_timed(self) -> bool:
        """Whether a time limits the retries, and not a number."""
        return self._policy.max_outage_ms is not None

    def backoff(self) -> float:
        """Return the next pause (seconds), without counting a failure."""
        return self._policy.delay_seconds(self.count, self._draw)

    def pause_after(self, error: Exception, min_pause: float = 0.0, *, needs_few: bool = False) -> float:
        """Count a failure, and return the pause before the next attempt (seconds).

        - `min_pause`: seconds to wait in addition to the backoff.
        - `needs_few`: whether to retry at most `FEW_RETRIES` times.

        Raises: RetriesExhaustedError if no further retry is allowed.
        """
        policy, now = self._policy, self._clock()
        # 1. The outage began with this operation's first failure, or with that of the enclosing call if both are limited by time.
        if self.began is None:
            self.began = now if self._outer is None else self._outer.begin_with(self, now)
            self._look_later()
        self._leave_out_suspension()
        # 2. End if the retries or the time are used up.
        lasted = now - self.began
        is_used_up = policy.is_used_up(self.count, lasted)
        if is_used_up or (needs_few and self.count >= FEW_RETRIES):
            exhausted = self._exhausted_error(error, lasted, is_few=not is_used_up)
            self.end(is_exhausted=True)
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
        if logs_outages.get():
            OUTAGES.on_failure(self, self._service, error, lasted, left, policy.decided_by)
        self.count += 1
        return pause

    @contextmanager
    def around_calls(self) -> Iterator[None]:
        """Return a context manager. Calls with retries in its block are a part of this operation, and share its outage."""
        enclosing = _enclosing.get()
        _enclosing.set(self)
        try:
            yield
        finally:
            self.end()
            # A task that the block has started inherits the context, and may run for hours.
            self._is_over = True
            # `reset` would fail, because a coroutine that is discarded ends in another context.
            _enclosing.set(enclosing)

    def begin_with(self, inner: Failures, now: float) -> float:
        """Return when the outage of a call within this one began. If both are limited by time, it is the outage of this one too.

        Otherwise an outage would last for the whole limit within this call, and then once more when this call is repeated.
        """
        if self._is_over or not (self.is_timed and inner.is_timed):
            return now
        if self.began is None:
            self.began = now if self._outer is None else self._outer.begin_with(self, now)
            self._begun_by = weakref.ref(inner)
            self._look_later()
        return self.began

    def on_inner_end(self, inner: Failures) -> None:
        """Forget an outage that `inner` has begun, because `inner` has succeeded or was given up, and this call has not failed."""
        if self._begun_by is not None and self._begun_by() is inner and not self.count:
            self.end()

    async def sleep(self, seconds: float) -> None:
        """Wait until the next attempt."""
        await asyncio.sleep(seconds)

    def on_success(self) -> None:
        """Count failures from zero again."""
        self.end(is_success=True)

    def end(self, *, is_success: bool = False, is_exhausted: bool = False) -> None:
        """Forget the failures. With `is_success`, the log may say that the service answers again.

        - `is_exhausted`: whether no further retry is allowed. Then the outage continues in the enclosing call.
        """
        if self.began is not None:
            OUTAGES.on_end(self, is_success=is_success)
            if self._outer is not None and not is_exhausted:
                self._outer.on_inner_end(self)
        if self._look is not None:
            self._look.cancel()
        self.count, self.began, self._look, self._begun_by = 0, None, None, None

    def _look_later(self) -> None:
        # The timer does not keep this object alive, because a reader that is cancelled does not end its failures.
        self._look = self._loop.call_later(_LOOK_SECONDS, _look_at_clock, weakref.ref(self))

    def _leave_out_suspension(self) -> None:
        """Move the beginning of the outage forward by the time in which the process was suspended: a timer has fired late by that time."""
        if self._look is None or self.began is None:
            return
        self.began += suspended_seconds(self._clock() - self._look.when())
        self._look.cancel()
        self._look_later()

    def _exhausted_error(self, error: Exception, lasted: float, *, is_few: bool) -> RetriesExhaustedError:
        if not self.count:
            return RetriesExhaustedError(text_of(error))
        what = getattr(error, "api", "") or self._service  # A plugin may give the message of its error alone.
        limit = "" if is_few or not self._policy.decided_by else f" ({self._policy.decided_by} decides)"
        return RetriesExhaustedError(
            f"{what} failed {self.count + 1} times in a row, for {duration_words(lasted)}{limit}; the last error: {text_of(error)}"
        )


def _look_at_clock(failures: weakref.ref[Failures]) -> None:
    if (found := failures()) is not None:
        found._leave_out_suspension()


def suspended_seconds(late: float) -> float:
    """Return for how long the process was suspended (seconds), or 0 if it was not.

    `late`: the seconds by which a pause has ended too late.
    """
    return late if late > _SUSPENDED_SECONDS else 0.0


# --- the log of outages -------------------------------------------------------------------------------------------------------------

UNLOGGED_SECONDS = 2.0
"""A call that fails for a shorter time than this is not logged (seconds): it was only throttled, or has lost a connection."""
LOG_INTERVAL_SECONDS = 60.0
"""The longest time between two log lines about an outage (seconds). It is shorter for a call that is retried only for a short time."""
SAME_OUTAGE_SECONDS = 15.0
"""A call that begins to fail at most this long after the last failure belongs to the same outage (seconds).

It is longer than the pause between two heartbeats of a worker, which gives up a heartbeat that takes too long, and sends the next one.
"""
DAY_SECONDS = 86_400.0
"""The log says for how much longer a call is retried, if that is less than this (seconds). In a task of Spark it may be much more."""


def words_of_rest(seconds: float) -> str:
    """Return in words, for a message, for how much longer a call is retried. That is never `0 s`, because the call is still retried."""
    return duration_words(seconds) if seconds >= 1 else "less than 1 s"


class OutageLog:
    """Logs the outages of this process. Keeps the calls that fail now, by event loop and service.

    Any thread may call it. Calls to the same service share a log line, even if they are of different jobs.
    """

    def __init__(self) -> None:
        self._of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Outage]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    def on_failure(
        self, call: object, service: str, error: object, lasted: float, left: float, decided_by: str
    ) -> None:
        """Note that a call has failed for `lasted` seconds and is retried for at most `left` more. Call this in the call's event loop."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        with self._lock:
            outages = self._of_loops.setdefault(loop, {})
            outage = outages.get(service)
            # The calls of an outage may all have ended without a success, because a caller gave them up, and calls again soon. If that
            # was longer ago, this is another outage.
            is_over = outage is not None and not outage.calls and now - lasted - outage.failed_at > SAME_OUTAGE_SECONDS
            if outage is None or is_over:
                outage = outages[service] = _Outage(now - lasted)
            # The error itself would keep the records of the call in memory, by its traceback.
            outage.failed_at, outage.error = now, text_of(error)
            outage.calls.add(call)
            outage.began = min(outage.began, now - lasted)
            has_failed = now - outage.began
            # The pause grows with the outage, because an outage may last much longer than each call is retried.
            pause = min(LOG_INTERVAL_SECONDS, max(lasted + left, has_failed) / 3)
            is_due = outage.logged_at is None or now - outage.logged_at >= pause
            if has_failed < UNLOGGED_SECONDS or not is_due:
                return
            outage.logged_at, calls = now, len(outage.calls)
        log.warning(
            "calls to %s have failed for %s; calls that are retried: %d%s%s: %s",
            service,
            duration_words(has_failed),
            calls,
            f", for {words_of_rest(left)} more" if left < DAY_SECONDS else "",
            f" ({decided_by})" if decided_by else "",
            error,
        )

    def sentences(self) -> list[str]:
        """Return a sentence for each service whose calls fail now, without a period at its end. Outages below 2 s are left out."""
        with self._lock:
            failing = [
                (service, outage.failed_at - outage.began, outage.error)
                for loop, outages in self._of_loops.items()
                for service, outage in outages.items()
                if outage.calls and not loop.is_closed()
            ]
        return [
            f"calls to {service} have failed for {duration_words(lasted)}: {error}"
            for service, lasted, error in failing
            if lasted >= UNLOGGED_SECONDS
        ]

    def on_end(self, call: object, *, is_success: bool) -> None:
        """Note that a call is no longer retried. If it has succeeded, and no other call fails, log that the service answers again."""
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
            if outage.calls or not is_success:
                return
            del outages[service]
        if outage.logged_at is not None:
            log.warning("calls to %s succeed again, after %s", service, duration_words(loop.time() - outage.began))


@dataclass(slots=True)
class _Outage:
    """An outage of one service: when it began, when a call last failed, the text of its error, the calls that fail, and when it was logged.

    All times are times of the event loop.
    """

    began: float
    failed_at: float = 0.0
    error: str = ""
    calls: weakref.WeakSet[object] = field(default_factory=weakref.WeakSet)
    logged_at: float | None = None


OUTAGES = OutageLog()
"""The outage log of the process. Jobs share it, because a thousand shards that cannot be read are one outage."""


def duration_words(seconds: float) -> str:
    """Return a duration for people, as `30 ms`, `42 s`, `3.5 min`, `5 h` or `2.5 d`."""
    if 0 < seconds < 0.9995:
        return f"{max(seconds * 1000, 1):.0f} ms"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{round(seconds / size, 1):,}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"
