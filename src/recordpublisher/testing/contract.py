"""The common parts of all contracts. Each test gets a fresh case (a plugin with its data), an event loop and a deadline."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import update_wrapper
from types import FrameType, TracebackType
from typing import Any, Generic, TypeVar

from recordpublisher.publishers.base import RecordSource
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.user_code import describe_error, end_or_leave, running_line, waiting_line

Case = TypeVar("Case")


class Contract(ABC, Generic[Case]):
    """The tests of one kind of plugin. Implement `open_case`. To run the tests on virtual time (`run_virtual`), override `execute`.

    An error that a plugin raises during a test gets a note with the rule that the test checks. pytest shows the note.
    """

    deadline = 10.0
    """The most seconds for each of three steps: opening the case, the test itself, and closing the case. Default: 10; 60 for a queue.

    These are seconds of the event loop. A call that blocks the loop for as long also fails the test.
    """

    @abstractmethod
    def open_case(self) -> AbstractAsyncContextManager[Case]:
        """Return an async context manager with a fresh case for one test. At its end it closes everything that it has opened."""

    def execute(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a test's coroutine on a loop of its own. Do not wait for a thread of `asyncio.to_thread` that has not returned by then."""

        async def run() -> None:
            asyncio.get_running_loop().set_default_executor(_LeavingExecutor())
            await work

        asyncio.run(run())


class _LeavingExecutor(ThreadPoolExecutor):
    """An executor that leaves a call which hangs in its thread. Otherwise the end of the loop would wait for it, beyond the deadline."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=cancel_futures)


EARLIEST_MS, LATEST_MS = 946_684_800_000, 4_102_444_800_000
"""The beginnings of the years 2000 and 2100 (epoch ms). A time that is given in the wrong unit is not between them."""


def check_arrival_times(batches: Iterable[RecordBatch]) -> None:
    """Check the arrival times of all records. Raises: AssertionError if one is not from 2000 to 2100."""
    for record in (each for batch in batches for each in batch.records):
        arrival = record.arrival
        is_time = isinstance(arrival, (int, float)) and EARLIEST_MS <= arrival * 1000 <= LATEST_MS
        assert is_time, f"the arrival of record {record.sequence_number} is {arrival!r}, not seconds since 1970"


async def check_answers_for_doctor(source: RecordSource, stream: str) -> None:
    """Call the methods of a source that `recordpublisher doctor` calls.

    Raises: AssertionError if a result has the wrong type; the errors of the source's checks.
    """
    name = type(source).__name__
    url: Any = await source.endpoint_url()
    assert url is None or isinstance(url, str), f"`{name}.endpoint_url` returned {url!r}: return a URL, or None"
    checks: Any = source.checks(stream)
    assert isinstance(checks, Mapping), f"`{name}.checks` returned {checks!r}: return a dict of checks by name"
    for each, check in checks.items():
        found: Any = await check()
        assert found is None or isinstance(found, str), (
            f"the check '{each}' of {name} returned {found!r}: return a sentence, or None"
        )


CLOSE_SECONDS = 0.1
"""How long a test waits after a `close`, because transports close in later steps of the event loop (seconds)."""


async def check_that_close_releases(use: Callable[[], Awaitable[None]]) -> None:
    """Check that a plugin that was used and closed leaves no socket, transport, session or file open.

    Python and libraries warn of such an object (ResourceWarning) when it is deleted. The check therefore finds nothing that is still
    referred to.

    `use`: opens a plugin, uses and closes it, and keeps no reference to it.

    Raises: AssertionError if there was such a warning; the errors of `use`.
    """
    # Objects of earlier tests are deleted now, because they must not count.
    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        await use()
        await asyncio.sleep(CLOSE_SECONDS)
        gc.collect()
    left = [str(each.message) for each in found if issubclass(each.category, ResourceWarning)]
    assert not left, (
        f"after `close`, Python warned: {'; '.join(left)}. Close in `close` what the plugin has opened, such as an HTTP session, and await "
        "that"
    )


@contextmanager
def errors_naming_rule(rule: str) -> Iterator[None]:
    """Turn an error of a plugin into an AssertionError that begins with the rule which the plugin breaks."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{rule}; it raised {describe_error(error)}") from error


Test = Callable[[Any, Case], Coroutine[Any, Any, None]]
GRACE_SECONDS = 1.0
"""How long a cancelled task of a test may take to end (seconds)."""


def on_case(test: Test[Case]) -> Callable[[Contract[Case]], None]:
    """Turn a test into a method that pytest runs. The test is a coroutine function with a case as its argument."""

    def run(self: Contract[Case]) -> None:
        self.execute(_CaseRun(self, test).run())

    # Without this, pytest would take the argument `case` for a fixture.
    vars(update_wrapper(run, test)).pop("__wrapped__")
    return run


class _CaseRun(Generic[Case]):
    """One run of a test: opens the case, tests it, and closes it. Each step has the contract's deadline.

    The steps run in a task of their own. If they ran in the task that waits for them, their code could catch the cancellation by a timeout.
    """

    def __init__(self, contract: Contract[Case], test: Test[Case]) -> None:
        self._contract, self._test = contract, test
        self._step = ""
        self._before: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        """Run the test.

        Raises: AssertionError if a step takes too long or blocks the event loop; the errors of the test.
        """
        hung = ""
        with _BlockedLoop(self._contract.deadline) as blocked:
            testing = asyncio.create_task(self._run_steps())
            # The error is retrieved, because Python would log it too if the test fails for its deadline or for a blocked loop.
            testing.add_done_callback(lambda task: task.cancelled() or task.exception())
            try:
                while not testing.done() and (left := self._seconds_left()) > 0:
                    await asyncio.wait([testing], timeout=left)
                if not testing.done():
                    lines = waiting_line(*self._tasks_of_test(testing))
                    hung = (
                        f"{self._step} has not ended after {self._contract.deadline:g} s: a call that it awaits does not return. It waits "
                        f"at {lines}"
                    )
            finally:
                if not testing.done():
                    tasks = self._tasks_of_test(testing)
                    for task in tasks:
                        task.cancel()
                    await end_or_leave(tasks, GRACE_SECONDS)
        assert not blocked.fault, blocked.fault
        assert not hung, hung
        testing.result()

    async def _run_steps(self) -> None:
        self._begin("opening the case")
        async with self._contract.open_case() as case:
            self._before = asyncio.all_tasks()
            self._begin("the test")
            try:
                await self._test(self._contract, case)
            except Exception as error:
                # The error may be of another library, which says nothing of the rule that the plugin breaks.
                if rule := inspect.getdoc(self._test):
                    error.add_note(f"{self._test.__name__}: {rule}")
                raise
            self._begin("closing the case")

    def _begin(self, step: str) -> None:
        self._step, self._began = step, asyncio.get_running_loop().time()

    def _seconds_left(self) -> float:
        if not self._step:  # The task has not begun.
            return self._contract.deadline
        return self._began + self._contract.deadline - asyncio.get_running_loop().time()

    def _tasks_of_test(self, testing: asyncio.Task[None]) -> list[asyncio.Task[Any]]:
        """Return the test's task, and the tasks that the test has started.

        Tasks that the case has started, such as those of a server, are left out. They end with the case.
        """
        started = asyncio.all_tasks() - self._before if self._before else set()
        return [testing, *(started - {testing})]


class _StillBlocked(BaseException):
    """A call has caught the errors that interrupted it, and blocks the event loop again."""


class _BlockedLoop:
    """A context manager that interrupts a call which blocks the event loop for `seconds`. The call then raises AssertionError.

    A thread watches whether the loop still runs its timers, and interrupts the loop's thread by a signal. This works only in the main
    thread of a system that has signals, which is where pytest runs tests. Elsewhere nothing is watched.

    `fault`: the text of the error. It is kept, because the interrupted code may catch the error.
    """

    CHECKS = 10
    """The loop counts as blocked if no timer has run during this number of checks. No check is made while the process is suspended."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pause = seconds / self.CHECKS
        self.fault = ""
        self._interrupts = 0
        self._has_run = self._is_blocked = False
        self._has_ended = threading.Event()

    def __enter__(self) -> _BlockedLoop:
        self._can_interrupt = threading.current_thread() is threading.main_thread() and hasattr(signal, "pthread_kill")
        if self._can_interrupt:
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
            self._previous = signal.signal(signal.SIGALRM, self._interrupt)
            self._note()
            self._watch = threading.Thread(target=self._check, name="recordpublisher contract watch", daemon=True)
            self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._can_interrupt:
            self._has_ended.set()
            self._watch.join()
            self._tick.cancel()
            signal.signal(signal.SIGALRM, self._previous)

    def _note(self) -> None:
        self._has_run = True
        self._tick = self._loop.call_later(self._pause / 2, self._note)

    def _check(self) -> None:
        missed = 0
        while not self._has_ended.wait(self._pause):
            missed = 0 if self._has_run else missed + 1
            self._has_run = False
            if missed >= self.CHECKS:
                missed, self._is_blocked = 0, True
                signal.pthread_kill(self._thread, signal.SIGALRM)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise AssertionError in the call that blocks. If another program sent the signal, such as pytest-timeout, call its handler."""
        if self._is_blocked:
            self._is_blocked = False
            self.fault = (
                f"a call has blocked the event loop for {self._seconds:g} s: make it `await`, or call what blocks with "
                f"asyncio.to_thread. It is at {running_line(frame)}"
            )
            self._interrupts += 1
            # A driver may retry after any Exception, and would block the loop again and again.
            raise AssertionError(self.fault) if self._interrupts < 3 else _StillBlocked(self.fault)
        if callable(self._previous):
            self._previous(number, frame)
