"""One call of the control plane, tried again while that can help."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..backoff import RetryPolicy
from ..errors import RetriesExhaustedError, TransientError

T = TypeVar("T")


async def retried(
    policy: RetryPolicy, call: Callable[[], Awaitable[T]], draw: Callable[[], float] = random.random
) -> T:
    """The answer of `call`, tried again with full-jitter backoff after a TransientError.

    Raises: RetriesExhaustedError after `policy.max_retries` retries, and at once whatever a retry cannot help.
    """
    for attempt in itertools.count():
        try:
            return await call()
        except TransientError as error:
            if attempt >= policy.max_retries:
                message = (
                    f"Retries exceeded for {error.api}: all {policy.max_retries} retries failed, the last with {error}"
                )
                raise RetriesExhaustedError(message) from error
        await asyncio.sleep(policy.delay_seconds(attempt, draw))
    raise AssertionError("unreachable")  # pragma: no cover
