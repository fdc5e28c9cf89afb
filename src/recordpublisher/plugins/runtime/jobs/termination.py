"""How a job's process ends: the first SIGTERM or SIGINT drains, the second ends it at once; exit codes."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable

from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.publishers.errors import RecordPublisherError

from ..stop_signals import FirstSignal

FAILED, BAD_CONFIGURATION = 1, 2
"""Exit codes."""
CLOSING_SECONDS = 20.0
"""For what a job does after its drain timeout: a checkpoint, and handlers that clean up."""
NOTICE_SECONDS = 10.0
log = logging.getLogger("recordpublisher.run")


def stop_on_signals(drain: Callable[[], None], give_up: Callable[[], None] = lambda: None) -> None:
    """Call `drain` at the first signal; at the second, also while user code blocks the loop, call `give_up` and exit 1 at once."""
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
        with contextlib.suppress(NotImplementedError):  # as on Windows
            loop.add_signal_handler(number, lambda: None)  # so that the loop forgets ours when it is closed
        signal.signal(number, on_signal)


def call_on_eof(descriptor: int, ended: Callable[[], None]) -> None:
    """Call `ended` when the other end of a pipe is closed, for whatever reason."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            ended()

    loop.add_reader(descriptor, readable)


async def tell_what_drains(subtask: int, sink: str | None, unfinished: Callable[[], Unfinished | None]) -> None:
    """Log every `NOTICE_SECONDS` what a drain waits for, until it is cancelled. `unfinished`: what the sink knows of it."""
    waited = 0.0
    while True:
        await asyncio.sleep(NOTICE_SECONDS)
        waited += NOTICE_SECONDS
        left = unfinished()
        log.warning(
            "subtask %d has been draining for %.0f s: it waits for the sink '%s' (%s). "
            "A second signal ends it at once; what came after the last checkpoint is then read again",
            subtask,
            waited,
            sink,
            "a call that runs, a lock in a database" if left is None else left.reason,
        )


class SubtaskFailedError(RecordPublisherError):
    """A subtask failed (it has logged the error itself) or was killed.

    Attributes: `code`, its exit code, below 0 a signal number; `exit_code`, that of the job.
    """

    def __init__(self, subtask: int, code: int) -> None:
        self.code = code
        self.exit_code = BAD_CONFIGURATION if code == BAD_CONFIGURATION else FAILED
        how = f"was killed by {_name(-code)}" if code < 0 else f"failed with exit code {code}"
        super().__init__(f"subtask {subtask} {how}; the job ends")


def _name(number: int) -> str:
    """Return the name of a signal. Real-time signals between SIGRTMIN and SIGRTMAX have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
