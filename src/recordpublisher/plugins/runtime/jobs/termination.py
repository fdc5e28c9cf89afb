"""Ends a job's process: the first SIGTERM or SIGINT drains it, the second ends it at once. Defines exit codes."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable

from recordpublisher.publishers.errors import RecordPublisherError

from ..stop_signals import FirstSignal

FAILED, BAD_CONFIGURATION = 1, 2
"""Exit codes of a job."""
CLOSING_SECONDS = 20.0
"""Time that a job gets after its drain timeout, for a checkpoint and for handlers that clean up."""
log = logging.getLogger("recordpublisher.run")


def stop_on_signals(drain: Callable[[], None], give_up: Callable[[], None] = lambda: None) -> None:
    """Call `drain` at the first signal. At the second call `give_up` and exit with code 1 at once, even while user code blocks the loop."""
    loop = asyncio.get_running_loop()
    first = FirstSignal()

    def on_signal(_number: int, _frame: object) -> None:
        if first.is_this():
            loop.call_soon_threadsafe(drain)
        elif not first.is_repeated():
            try:
                log.warning("second signal: the process ends at once, without a last checkpoint")
                give_up()
            finally:
                os._exit(FAILED)

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows has no such handlers.
            loop.add_signal_handler(number, lambda: None)  # makes the loop remove our handler when it is closed
        signal.signal(number, on_signal)


def call_on_eof(descriptor: int, ended: Callable[[], None]) -> None:
    """Call `ended` when the other end of a pipe is closed, for any reason."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            ended()

    loop.add_reader(descriptor, readable)


class WorkerFailedError(RecordPublisherError):
    """A worker failed (it has logged the error itself) or was killed.

    - `code`: its exit code; below 0 it is a negative signal number.
    - `exit_code`: the exit code of the job.
    """

    def __init__(self, number: int, code: int) -> None:
        self.code = code
        self.exit_code = BAD_CONFIGURATION if code == BAD_CONFIGURATION else FAILED
        how = f"was killed by {_name(-code)}" if code < 0 else f"failed with exit code {code}"
        super().__init__(f"worker {number} {how}; the job ends")


def _name(number: int) -> str:
    """Return the name of a signal. Real-time signals between SIGRTMIN and SIGRTMAX do not have one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
