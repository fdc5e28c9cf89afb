"""The common parts of the contracts: a case for each test, an event loop of its own, a deadline."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from functools import update_wrapper
from typing import Any, Generic, TypeVar

from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.user_code import end_or_leave, waiting_line

Case = TypeVar("Case")


class Contract(ABC, Generic[Case]):
    """Tests of one port. Implement `open_case`; override `execute` to run them on virtual time (`run_virtual`)."""

    deadline = 60.0
    """The most seconds of the loop's time that one test may take."""

    @abstractmethod
    def open_case(self) -> AbstractAsyncContextManager[Case]:
        """Return a fresh case for one test; leaving it closes everything that it opened."""

    def execute(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a test's coroutine on a loop of its own."""
        asyncio.run(work)


EARLIEST_MS, LATEST_MS = 946_684_800_000, 4_102_444_800_000
"""The years 2000 and 2100. Seconds that are read as ms, or ms as seconds, are outside of them."""


def check_arrival_times(batches: Iterable[RecordBatch]) -> None:
    """Check the times of arrival. Raises: AssertionError if a record has no plausible one."""
    for record in (each for batch in batches for each in batch.records):
        arrival = record.arrival
        is_time = isinstance(arrival, (int, float)) and EARLIEST_MS <= arrival * 1000 <= LATEST_MS
        assert is_time, f"the arrival of record {record.sequence_number} is {arrival!r}, not seconds since 1970"


Test = Callable[[Any, Case], Coroutine[Any, Any, None]]
GRACE_SECONDS = 1.0
"""Time that a cancelled task of a test gets to end."""


def on_case(test: Test[Case]) -> Callable[[Contract[Case]], None]:
    """Return a method that pytest runs without a plugin, made from a test that is a coroutine function of a case."""

    def run(self: Contract[Case]) -> None:
        async def run_in_time() -> None:
            async with self.open_case() as case:
                # The test runs in a task of its own, because code that catches CancelledError would catch a cancellation by a
                # timeout too.
                before = asyncio.all_tasks()
                testing = asyncio.create_task(test(self, case))
                try:
                    await asyncio.wait([testing], timeout=self.deadline)
                    waits_at = waiting_line(testing)
                    is_hung = not testing.done()
                finally:
                    if not testing.done():
                        left = asyncio.all_tasks() - before
                        for task in left:
                            task.cancel()
                        await end_or_leave(left, GRACE_SECONDS)
                assert not is_hung, (
                    f"the test has not ended after {self.deadline:g} s: a call that it awaits does not return. It waits at {waits_at}"
                )
                testing.result()

        self.execute(run_in_time())

    vars(update_wrapper(run, test)).pop("__wrapped__")  # Without this, pytest takes the case for a fixture.
    return run
