"""Stopping: the first SIGTERM or SIGINT drains, the second ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from recordpublisher.publishers.errors import RecordPublisherError

FAILED = 1


def stop_on_signals(drain: Callable[[], None], give_up: Callable[[], None] = lambda: None) -> None:
    """Call `drain` at the first signal; at the second `give_up`, then exit 1 without any further word to anybody."""
    loop = asyncio.get_running_loop()
    signals = 0

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            drain()
        else:
            give_up()
            os._exit(FAILED)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


def call_on_eof(descriptor: int, ended: Callable[[], None]) -> None:
    """Call `ended` when the other end of a pipe is closed, by whatever means: nobody has to say good-bye."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            ended()

    loop.add_reader(descriptor, readable)


FAILED, BAD_CONFIGURATION = 1, 2


class SubtaskFailedError(RecordPublisherError):
    """A subtask ended by an error, which it has told itself, or was killed.

    Attributes: `code`, its exit code, below 0 a signal; `exit_code`, the job's.
    """

    def __init__(self, subtask: int, code: int) -> None:
        self.code = code
        self.exit_code = BAD_CONFIGURATION if code == BAD_CONFIGURATION else FAILED
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
        super().__init__(f"subtask {subtask} {how}; the job ends")
