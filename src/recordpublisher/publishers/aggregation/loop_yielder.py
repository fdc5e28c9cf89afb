"""LoopYielder lets the event loop run other tasks now and then during long work (F1)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

STEP = 4096
"""Sub-records or keys that are handled in one step of about 2 ms."""
STEP_BYTES = 2**20
"""Bytes of messages that are verified and parsed in one step of about the same time."""
T = TypeVar("T")
R = TypeVar("R")


class LoopYielder:
    """Owns the amount of work since the event loop last ran other tasks."""

    def __init__(self) -> None:
        self._steps = 0.0

    def is_due(self, items: int, size: int) -> bool:
        """Count `items` more with `size` bytes together, and return whether it is time to yield.

        The caller then awaits `asyncio.sleep(0)`.
        """
        self._steps += items / STEP + size / STEP_BYTES
        if self._steps < 1:
            return False
        self._steps = 0.0
        return True


async def in_steps(work: Callable[[Sequence[T]], list[R]], items: Sequence[T]) -> list[R]:
    """Return the results of `work`, which receives the items step by step. Between two steps the event loop runs other tasks."""
    results: list[R] = []
    for first in range(0, len(items), STEP):
        results += work(items[first : first + STEP])
        if first + STEP < len(items):
            await asyncio.sleep(0)
    return results
