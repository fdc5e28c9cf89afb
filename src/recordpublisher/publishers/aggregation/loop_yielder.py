"""LoopYielder: long work lets the event loop run other tasks now and then (F1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

STEP = 4096
"""Sub-records, or keys, that are handled in one step: about 2 ms."""
T = TypeVar("T")
R = TypeVar("R")


class LoopYielder:
    """Owns how much was done since the event loop last ran other tasks."""

    def __init__(self) -> None:
        self._done = 0

    def is_due(self, items: int) -> bool:
        """`items` more were handled: whether it is time to yield. The caller then awaits `asyncio.sleep(0)`."""
        self._done += items
        if self._done < STEP:
            return False
        self._done = 0
        return True


async def in_steps(work: Callable[[Sequence[T]], list[R]], items: Sequence[T]) -> list[R]:
    """The results of `work`, which is given the items step by step. Between two steps the event loop runs other tasks."""
    results: list[R] = []
    for first in range(0, len(items), STEP):
        results += work(items[first : first + STEP])
        if first + STEP < len(items):
            await asyncio.sleep(0)
    return results
