"""Retries: RetryPolicy (full-jitter backoff) and `call_with_retries`, which everything here uses."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from .errors import RetriesExhaustedError, StreamNotActiveError, TransientError

T = TypeVar("T")

CREATION_PAUSE_SECONDS = 2.0
CREATION_TRIES = 150
"""A stream that is being created is waited for five minutes; the service takes seconds to minutes (CreateStream)."""

FEW_RETRIES = 3
"""Enough for an error that a mistyped name explains better than an outage."""
RISING_TRIES = 100
"""The exponent rises no further, so that a long outage cannot overflow a float."""
_LOG_SECONDS = 10.0
"""Between two log lines about one call that is tried again."""

RetryListener = Callable[[TransientError, float, float], None]
"""Gets the error, the seconds from the first failure of the call to its next try, and the seconds of back-off that are left at most."""
retry_listener: ContextVar[RetryListener | None] = ContextVar("retry_listener", default=None)
"""Hears of each retry in its context, whoever makes the call: a command tells the person who waits."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How one operation is retried: `max_retries` failures in a row without progress, delays in ms.

    The delay is `random(0, 1) * min(max_ms, base_ms * exponent ** attempt)`, Flink's FullJitterBackoff.
    """

    max_retries: int
    base_ms: int
    max_ms: int
    exponent: float

    @classmethod
    def lasting(cls, seconds: float) -> RetryPolicy:
        """Pauses of up to ten seconds, which take so long in all, on average."""
        tries = math.ceil(seconds / 5)
        longest_ms = round(2_000 * seconds / tries)
        return cls(tries, longest_ms, longest_ms, 1.0)

    def delay_seconds(self, attempt: int, draw: Callable[[], float] = random.random) -> float:
        """Seconds to wait before try number `attempt` (from 0)."""
        return draw() * self._longest_delay_seconds(attempt)

    @property
    def average_seconds(self) -> float:
        """What all waits of one call take together, on average."""
        return self.longest_seconds(0) / 2

    def longest_seconds(self, attempt: int) -> float:
        """The most that all waits from try number `attempt` on can take together."""
        rising = sum(map(self._longest_delay_seconds, range(attempt, min(self.max_retries, RISING_TRIES))))
        rest = max(0, self.max_retries - max(attempt, RISING_TRIES))  # a task of Spark has two thousand million
        return rising + rest * self._longest_delay_seconds(RISING_TRIES)

    def _longest_delay_seconds(self, attempt: int) -> float:
        try:
            return min(self.max_ms, self.base_ms * self.exponent ** min(attempt, RISING_TRIES)) / 1000
        except OverflowError:  # of an exponent that is a large number itself
            return self.max_ms / 1000


async def call_with_retries(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    on_retry: Callable[[TransientError], None] = lambda error: None,
    min_pause: Callable[[TransientError], float] = lambda error: 0.0,
    needs_few: Callable[[TransientError], bool] = lambda error: False,
) -> T:
    """Call until it succeeds, waiting between tries by `policy`, and return its result.

    Only TransientError is retried (ThrottledError is one). The retry budget belongs to this call: the next call has a full one. Waiting
    for a stream that is being created uses none of it.
    `on_retry` gets each error that is retried. `min_pause` returns seconds to wait in addition to the jitter (the window of a quota).
    `needs_few`: whether `FEW_RETRIES` are enough for an error, where the policy has more.

    Raises: RetriesExhaustedError after `policy.max_retries` retries, with the last error as its cause; every other error at once.
    """
    first_failure: float | None = None
    attempt = creation_tries = 0
    while True:
        try:
            return await call()
        except StreamNotActiveError as error:
            creation_tries += 1
            if creation_tries > CREATION_TRIES:
                raise _exhausted(error, creation_tries) from error
            pause = CREATION_PAUSE_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311 (jitter)
        except TransientError as error:
            if attempt >= policy.max_retries or (attempt >= FEW_RETRIES and needs_few(error)):
                raise _exhausted(error, attempt + 1) from error
            on_retry(error)
            pause = min_pause(error) + policy.delay_seconds(attempt)
            listener = retry_listener.get()
            if listener is not None:
                now = asyncio.get_running_loop().time()
                first_failure = now if first_failure is None else first_failure
                listener(error, now + pause - first_failure, policy.longest_seconds(attempt))
            attempt += 1
        await asyncio.sleep(pause)


def tries_logged(log: logging.Logger, policy: RetryPolicy, level: int = logging.WARNING) -> Callable[[Exception], None]:
    """For `on_retry` of one call: logs the first error at once and later ones at most every ten seconds, with the number of the try."""
    tries, log_at, clock = count(1), float("-inf"), asyncio.get_running_loop().time

    def log_retry(error: Exception) -> None:
        nonlocal log_at
        number = next(tries)
        if clock() >= log_at:
            log.log(level, "%s; try %d of %d, trying again", error, number, policy.max_retries + 1)
            log_at = clock() + _LOG_SECONDS

    return log_retry


def _exhausted(error: TransientError, attempts: int) -> RetriesExhaustedError:
    if attempts == 1:
        return RetriesExhaustedError(str(error))
    return RetriesExhaustedError(f"{error.api} failed {attempts} times in a row; the last error: {error}")
