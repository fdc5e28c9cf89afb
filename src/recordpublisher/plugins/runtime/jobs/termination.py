"""Stopping: the first SIGTERM or SIGINT drains, the second ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

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


def call_at_end_of(descriptor: int, ended: Callable[[], None]) -> None:
    """Call `ended` when the other end of a pipe is closed, by whatever means: nobody has to say good-bye."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            ended()

    loop.add_reader(descriptor, readable)
