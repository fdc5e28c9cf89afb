"""Runs an asyncio event loop in a thread of its own, for synchronous callers.

`JobsInThreads` lets an interpreter that exits wait for the jobs of other threads, and `LoopWatch` logs a call that blocks a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, TypeVarTuple, Unpack

import msgspec

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.user_code import running_line

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PATIENCE_SECONDS = 5.0
_SLICE_SECONDS = 0.5
"""The longest single wait of a thread, after which it checks for an interruption (seconds, see `_wait`)."""


class BackgroundLoop:
    """Owns a thread and its event loop between `__enter__` and `__exit__`. Any thread may call `run`.

    The first interruption (Ctrl-C) cancels the work. Further interruptions within `patience_seconds` wait until everything is closed. An
    interruption after that ends the waiting, for a user whose network hangs.

    - `kept`: an object that stays alive as long as the thread runs.
    """

    def __init__(
        self,
        name: str,
        patience_seconds: float = PATIENCE_SECONDS,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
        kept: object = None,
    ) -> None:
        self._kept = kept
        self._loop_factory = loop_factory
        self._patience_seconds = patience_seconds
        self._interrupted_at: float | None = None
        self._tasks: set[_BackgroundTask] = set()
        """The work that has not ended. Each task is added before the loop starts it."""
        self._ready = threading.Event()
        self._thread = OwnedThread(target=self._run_loop, name=name, daemon=True)
        self._own_threads: set[threading.Thread] = {self._thread}
        """The thread of the loop, and the threads of its pool. At its end, the loop waits for its pool."""
        self._closing: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        """Why the loop could not be made, for example because the process has too many open files."""

    @property
    def is_alive(self) -> bool:
        """Whether the loop runs. A KeyboardInterrupt or SystemExit in the loop ends it. After a fork, the new process does not have it."""
        return self._thread.is_alive()

    def __enter__(self) -> Self:
        """Start the thread, and wait until its loop runs. Raises: OSError, or another error of the loop's factory, if there is no loop."""
        try:
            self._thread.start()
            _wait(self._ready)
        except KeyboardInterrupt:  # On a busy machine the thread may not have started yet.
            self._until_ended(lambda: _wait(self._ready))
            self._stop()
            raise
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine to its end and return its result. If the caller is interrupted, cancel the coroutine and wait until it has ended.

        The coroutine is also cancelled after `timeout` seconds. Work that can end without waiting is finished even with a timeout of 0.

        Raises: TimeoutError if the coroutine was cancelled after the timeout; RecordPublisherError if the loop does not run, or if the
        caller runs in it.
        """
        if not self.is_alive or self._thread is threading.current_thread():
            coroutine.close()
            self.refuse_own_thread()
            raise RecordPublisherError(
                f"{self._thread.name} was started before a fork, or has ended: start it in this process"
            )
        task = _BackgroundTask(coroutine)
        self._tasks.add(task)
        try:
            self._begin(task)
            interruption = None if _wait(task.ended, timeout) else self._end(task)
        except BaseException:
            self._interrupted_at = time.monotonic()
            self._end(task)
            raise
        finally:
            if task.ended.is_set():
                self._tasks.discard(task)
        if interruption is not None:
            raise interruption
        result: T = task.result()
        return result

    def cancel(self) -> None:
        """Cancel the work that runs now. Any thread may call this, and the thread that waits for the work gets a TimeoutError."""
        for task in list(self._tasks):
            self.call_soon(task.cancel)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function soon. Do nothing if the loop does not run."""
        if self.is_alive:
            with contextlib.suppress(RuntimeError):  # The loop was closed at this moment.
                self._loop.call_soon_threadsafe(function)

    def refuse_own_thread(self) -> None:
        """Check that the caller does not run in the loop.

        Raises: RecordPublisherError if it does, because it cannot wait for its own loop.
        """
        if self._thread is threading.current_thread():
            reason = "calls this function, and cannot wait for itself: make the call in another thread"
            raise RecordPublisherError(f"{self._thread.name} {reason}")

    def close(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that closes something. Before that, end the work that an interruption may have left running.

        A further interruption does not cancel the coroutine. If the caller runs in the loop, or in one of its threads, this method does not
        wait: the coroutine runs later, and the loop then ends.
        """
        # The garbage collector may run in any thread, and close a read that was left half-way. A wait in a thread of this loop would
        # never end, and the process would collect no more garbage.
        if threading.current_thread() in self._own_threads and self.is_alive:
            self._loop.call_soon_threadsafe(self._start_closing, coroutine)
            return
        for left in list(self._tasks):
            self._end(left)
        if not self.is_alive:  # In a forked process the resources belong to the parent, which closes them.
            coroutine.close()
            return
        task = _BackgroundTask(coroutine)

        def ended() -> None:
            self._loop.call_soon_threadsafe(task.start)
            _wait(task.ended)

        interruption = self._until_ended(ended)
        task.result()
        if interruption is not None:
            raise interruption

    def _start_closing(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._closing = asyncio.ensure_future(coroutine)
        self._closing.add_done_callback(lambda _: self._stopping.set())

    def _begin(self, task: _BackgroundTask) -> None:
        try:
            self._loop.call_soon_threadsafe(task.start)
        except RuntimeError:  # The loop was closed at this moment.
            task.cancel()

    def _end(self, task: _BackgroundTask) -> KeyboardInterrupt | None:
        def ended() -> None:
            if not task.ended.is_set() and self.is_alive:
                with contextlib.suppress(RuntimeError):  # The loop was closed at this moment, and has set `ended`.
                    self._loop.call_soon_threadsafe(task.cancel)
                _wait(task.ended)

        return self._until_ended(ended)

    def _until_ended(self, wait: Callable[[], object]) -> KeyboardInterrupt | None:
        """Wait until the work has ended.

        Return an interruption that came during the wait, or raise it if the user has waited for `patience_seconds`.
        """
        interruption = None
        while True:
            try:
                wait()
            except KeyboardInterrupt as error:
                interruption = error
                self._raise_if_out_of_patience()
            else:
                return interruption

    def _raise_if_out_of_patience(self) -> None:
        now = time.monotonic()
        self._interrupted_at = now if self._interrupted_at is None else self._interrupted_at
        if now - self._interrupted_at > self._patience_seconds:
            raise KeyboardInterrupt

    def _stop(self) -> None:
        if not self.is_alive:  # Otherwise a forked process would wake the loop of its parent.
            return
        with contextlib.suppress(RuntimeError):  # The loop was closed at this moment.
            self._loop.call_soon_threadsafe(self._end_loop)
        if threading.current_thread() not in self._own_threads:
            self._until_ended(self._thread.join)

    def _end_loop(self) -> None:
        if self._closing is None:  # Otherwise the loop ends when it has closed.
            self._stopping.set()

    def _run_loop(self) -> None:
        try:
            with (
                contextlib.suppress(KeyboardInterrupt, SystemExit),  # The caller gets the error from its task.
                asyncio.Runner(loop_factory=self._loop_factory) as runner,
            ):
                runner.run(self._run_until_stopped())
        except Exception as error:
            if self._ready.is_set():
                raise
            self._failure = error
        finally:
            # The caller waits for this even if there is no loop.
            self._ready.set()
            for task in list(self._tasks):
                task.ended.set()

    async def _run_until_stopped(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(
            ThreadPoolExecutor(initializer=lambda: self._own_threads.add(threading.current_thread()))
        )
        self._stopping = asyncio.Event()
        self._ready.set()
        await self._stopping.wait()


class EarlyEnd:
    """Lets any thread end a read early. The read runs in an event loop of its own, and another thread may wait for its next item."""

    def __init__(self) -> None:
        self.is_requested = False
        self.loop: BackgroundLoop | None = None
        self.ended = threading.Event()

    def close(self, read: Generator[Any, None, None]) -> None:
        """Close the generator of a read, and wait until everything is closed.

        Raises: RecordPublisherError if the call comes from the read itself, in the thread of its loop.
        """
        while True:
            try:
                return read.close()
            except ValueError:  # Another thread is in the generator, and waits for the next item.
                self.is_requested = True
            if self.loop is not None:
                self.loop.refuse_own_thread()
                self.loop.cancel()
            self.ended.wait(_SLICE_SECONDS / 10)  # Then again, because the other thread may begin to wait only now.


def _wait(event: threading.Event, timeout: float | None = None) -> bool:
    """Wait for an event, `timeout` seconds at most. Return whether it is set.

    The wait is made of slices, because a signal that arrives just before this thread sleeps does not wake it. Without slices, Ctrl-C
    would then have no effect until the event is set.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _SLICE_SECONDS if deadline is None else min(_SLICE_SECONDS, deadline - time.monotonic())
        if event.wait(max(left, 0)):
            return True
        if deadline is not None and time.monotonic() >= deadline:
            return False


class LoopForExit(asyncio.SelectorEventLoop):
    """An event loop that can still look up addresses while the interpreter exits.

    At that time thread pools accept no work, and no thread can start.
    """

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function in a pool. During the exit run it at once, in the thread of the loop."""
        try:
            return super().run_in_executor(executor, func, *args)
        except RuntimeError:
            future: asyncio.Future[T] = self.create_future()
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)
            return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the pool. During the exit do not wait, because the exit has ended the pool."""
        with contextlib.suppress(RuntimeError):
            await super().shutdown_default_executor()


class _BackgroundTask:
    """One coroutine on the loop, with an event on which the calling thread waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False
        self.ended = threading.Event()

    def start(self) -> None:
        """Start the coroutine, unless it was started or cancelled before."""
        if self._task is not None or self._is_cancelled:
            return
        self._task = asyncio.ensure_future(self._coroutine)
        self._task.add_done_callback(lambda _: self.ended.set())

    def cancel(self) -> None:
        """Cancel the task. Further calls do nothing, because a second cancellation would interrupt the clean-up after the first."""
        if self._is_cancelled:
            return
        self._is_cancelled = True
        if self._task is not None:
            # Steps that are ready run before the cancellation, so that work that can end without waiting ends normally.
            self._task.get_loop().call_soon(self._task.cancel)
        else:  # The coroutine was never started.
            self._coroutine.close()
            self.ended.set()

    def result(self) -> Any:
        if self._task is None or not self._task.done():
            raise RecordPublisherError("the event loop ended before this call was finished")
        if self._is_cancelled and self._task.cancelled():
            raise TimeoutError
        return self._task.result()


# --- the jobs in threads for which the process waits when it exits --------------------------------------------------------------------

log = logging.getLogger("recordpublisher.fetcher")
CHECK_SECONDS = 0.2


def call_before_pools_close(function: Callable[[], None]) -> bool:
    """Arrange that the interpreter's exit calls a function once, before it closes thread pools. Return False if the exit has begun.

    `atexit` functions are called too late for that.
    """
    try:
        threading._register_atexit(function)  # type: ignore[attr-defined]
    except RuntimeError:
        return False
    return True


class OwnedThread(threading.Thread):
    """A thread that works for its `owner`, the thread that has made it.

    At its exit, the process waits for a job in this thread only while the owner runs.
    """

    def __init__(self, *, target: Callable[[], object], name: str, daemon: bool) -> None:
        super().__init__(target=target, name=name, daemon=daemon)
        self.owner = threading.current_thread()


class _Run(msgspec.Struct, frozen=True):
    """An open job: the thread that owns it, the function that stops it, and how long the exit waits for it."""

    owner: threading.Thread
    stop: Callable[[], object]
    seconds: float
    closed: threading.Event = msgspec.field(default_factory=threading.Event)


class JobsInThreads:
    """The jobs that are open in threads other than the main one. A process needs only one instance.

    When the main thread has ended, Python closes every thread pool before it waits for threads. A job that is still running could then not
    store its last checkpoint. Therefore this class makes the exit wait for each job before the pools are closed. It first stops the jobs of
    daemon threads, and waits for these for a limited time.
    """

    def __init__(self) -> None:
        self._runs: dict[object, _Run] = {}
        self._is_registered = False

    def add(self, job: object, stop: Callable[[], None], seconds: float) -> None:
        """Make the exit wait for `job` until `remove` is called. Call it in the loop and thread of the job.

        - `seconds`: how long the exit waits if the thread is a daemon.
        """
        thread = threading.current_thread()
        owner = thread.owner if isinstance(thread, OwnedThread) else thread
        if owner is threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        self._runs[job] = _Run(owner, lambda: loop.call_soon_threadsafe(stop), seconds if owner.daemon else inf)
        if not self._is_registered:
            self._is_registered = True
            call_before_pools_close(self.wait)

    def remove(self, job: object) -> None:
        """Let the exit no longer wait for `job`."""
        if (run := self._runs.pop(job, None)) is not None:
            run.closed.set()

    def wait(self) -> None:
        """Wait until every job is closed. Stop the jobs of daemon threads first."""
        runs = list(self._runs.values())
        for run in runs:
            if run.owner.daemon:
                with contextlib.suppress(RuntimeError):  # The job's loop has been closed.
                    run.stop()
        for run in runs:
            until = time.monotonic() + run.seconds
            # A thread that ended without closing its job will never close it.
            while run.owner.is_alive() and not run.closed.wait(CHECK_SECONDS):
                if time.monotonic() > until:
                    log.error(
                        "a job in a daemon thread did not end within %.0f s, and the process exits without it: the next start reads the "
                        "records after its last checkpoint again",
                        run.seconds,
                    )
                    break


JOBS_IN_THREADS = JobsInThreads()


# --- the call that blocks the event loop of a job -------------------------------------------------------------------------------------

run_log = logging.getLogger("recordpublisher.run")
LOOP_CHECK_SECONDS = 1.0
BLOCKED_CHECKS = 10
"""The loop counts as blocked if it gives no sign during this number of checks in a row.

Checks are counted instead of time, because a process that is suspended makes no checks either.
"""
MAX_STACK_FRAMES = 12
_ASYNCIO = str(Path(asyncio.__file__).parent)
"""The folder of asyncio's code. Calls in it are left out, because they do not say what blocks the loop."""


class LoopWatch:
    """Logs once which call blocks the event loop for 10 s or more, and the stack of the loop's thread at level DEBUG.

    Reading, heartbeats, checkpoints, metrics and the stop wait for the call too. Use: `with LoopWatch():` in the loop's thread.
    """

    def __init__(self, check_seconds: float = LOOP_CHECK_SECONDS) -> None:
        self._check_seconds = check_seconds
        self._has_run = False
        self._has_ended = threading.Event()
        self._tick: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._note()
        self._watch = threading.Thread(target=self._check, name="recordpublisher loop watch", daemon=True)
        self._watch.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_ended.set()
        self._watch.join(1)  # The thread ends at once, so that a program finds no thread of ours after a run.
        if self._tick is not None:
            self._tick.cancel()

    def _note(self) -> None:
        self._has_run = True
        self._tick = self._loop.call_later(self._check_seconds / 2, self._note)

    def _check(self) -> None:
        missed = 0
        while not self._has_ended.wait(self._check_seconds):
            if self._has_run:
                self._has_run, missed = False, 0
                continue
            missed += 1
            if missed == BLOCKED_CHECKS:
                frame = sys._current_frames().get(self._thread)
                run_log.error(
                    "%s blocks the event loop: for %.0f s reading, heartbeats and the stop have waited. Make it `await`, or run it in a "
                    "thread",
                    running_line(frame),
                    missed * self._check_seconds,
                )
                run_log.debug("the calls that block the event loop:\n%s", _stack_of(frame))


def _stack_of(frame: types.FrameType | None) -> str:
    if frame is None:
        return "its thread has ended"
    calls = [call for call in traceback.extract_stack(frame) if not call.filename.startswith(_ASYNCIO)]
    return "".join(traceback.format_list(calls[-MAX_STACK_FRAMES:])).rstrip()
