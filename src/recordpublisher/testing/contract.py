"""What the contracts have in common: a case for each test, a loop of its own, a deadline."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

Case = TypeVar("Case")


class Contract(ABC, Generic[Case]):
    """Tests of one port. Implement `open_case`; override `execute` to run them on virtual time (`run_virtual`)."""

    deadline = 60.0
    """Seconds of the loop's time that one test may take."""

    @abstractmethod
    def open_case(self) -> AbstractAsyncContextManager[Case]:
        """A fresh case for one test; leaving it closes what it opened."""

    def execute(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a test's coroutine on a loop of its own."""
        asyncio.run(work)

    def _check(self, check: Callable[[Case], Awaitable[None]]) -> None:
        async def run() -> None:
            async with self.open_case() as case, asyncio.timeout(self.deadline):
                await check(case)

        self.execute(run())
