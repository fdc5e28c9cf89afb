"""Lets an interpreter that exits wait for the jobs of other threads, because their last checkpoints need thread pools."""

import asyncio
import concurrent.futures.thread  # noqa: F401 - its own function for the exit must be registered before ours, and so runs after it
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from math import inf

import msgspec

log = logging.getLogger("recordpublisher.fetcher")
CHECK_SECONDS = 0.2


def call_before_pools_close(function: Callable[[], None]) -> None:
    """Have an exit of the interpreter call a function once, before it closes thread pools. `atexit` functions are called after that."""
    with contextlib.suppress(RuntimeError):  # the exit has begun
        threading._register_atexit(function)  # type: ignore[attr-defined]


class OwnedThread(threading.Thread):
    """A thread that works for the thread that has made it.

    - `owner`: the thread that has made it. The exit waits for a job until its owner has ended.
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


class RunsInThreads:
    """The jobs that are open in threads other than the main one. A process needs only one instance.

    When the main thread has ended, Python first closes every thread pool, and waits for threads only after that. A job that is still
    running could not store its last checkpoint. So the exit waits for each job before the pools are closed. It stops the job of a daemon
    thread, for which Python would not wait, and waits for it for a limited time.
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
                    log.error("the job of a daemon thread did not end within %.0f s and is cut off", run.seconds)
                    break


RUNS_IN_THREADS = RunsInThreads()
