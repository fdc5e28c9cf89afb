"""Runs a command's coroutine until it ends or somebody stops it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_until_signal(work: Coroutine[Any, Any, T]) -> T | None:
    """Run `work` and answer its result; SIGINT (Ctrl-C) and SIGTERM cancel it, which lets it close what it opened, and count as a good
    end (None)."""
    return asyncio.run(_run(work))


async def _run(work: Coroutine[Any, Any, T]) -> T | None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()
