"""Full-jitter backoff, a pure function, and the budget that progress resets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


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
