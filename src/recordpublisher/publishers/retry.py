"""Retries: RetryPolicy (full-jitter backoff) and `call_with_retries`, which everything here uses."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from .errors import RetriesExhaustedError, TransientError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How one operation is retried: `max_retries` failures in a row without progress, delays in ms.

    The delay is `random(0, 1) * min(max_ms, base_ms * exponent ** attempt)`, Flink's FullJitterBackoff.
    """

    max_retries: int
    base_ms: int
    max_ms: int
    exponent: float

    def delay_seconds(self, attempt: int, draw: Callable[[], float] = random.random) -> float:
        """Seconds to wait before try number `attempt` (from 0)."""
        # the exponent is capped so that a long outage cannot overflow a float
        return draw() * min(self.max_ms, self.base_ms * self.exponent ** min(attempt, 100)) / 1000


async def call_with_retries(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    on_retry: Callable[[TransientError], None] = lambda error: None,
    min_pause: Callable[[TransientError], float] = lambda error: 0.0,
) -> T:
    """Call until it succeeds, waiting between tries by `policy`, and return its result.

    Only TransientError is retried (ThrottledError is one). The retry budget belongs to this call: the next call has a full one.
    `on_retry` gets each error that is retried. `min_pause` returns seconds to wait in addition to the jitter (the window of a quota).

    Raises: RetriesExhaustedError after `policy.max_retries` retries, with the last error as its cause; every other error at once.
    """
    for attempt in itertools.count():
        try:
            return await call()
        except TransientError as error:
            if attempt >= policy.max_retries:
                raise _exhausted(error, attempt + 1) from error
            on_retry(error)
            pause = min_pause(error) + policy.delay_seconds(attempt)
        await asyncio.sleep(pause)
    raise AssertionError("count() has no end")


def _exhausted(error: TransientError, attempts: int) -> RetriesExhaustedError:
    return RetriesExhaustedError(f"{error.api} failed {attempts} times in a row; the last error: {error}")
