"""Ends a run: waits for the sink, but not endlessly for a call of user code that does not return."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from recordpublisher.publishers.clock import Clock

from ..sink import Unfinished

POLL_SECONDS = 0.5
FLUSH_MS = 5_000


async def cancel_if_hung(
    ending: Coroutine[Any, Any, None],
    unfinished: Callable[[], Unfinished | None],
    checkpoint_running_ms: Callable[[], int],
    seconds: float,
    clock: Clock,
) -> Unfinished | None:
    """Await `ending`.

    If one call (`Unfinished.call`) has run for `seconds` in that time, cancel it and return the sink's unfinished records.

    A checkpoint is not interrupted while it may be being stored: only a checkpoint that has run for `FLUSH_MS` is assumed to wait for the
    sink. Return None if `ending` has finished. Raises: the errors of `ending`.
    """
    task = asyncio.create_task(ending)
    call, since = None, clock.monotonic()
    try:
        while not (await asyncio.wait([task], timeout=POLL_SECONDS))[0]:
            left = unfinished()
            if left is None or left.call is None or left.call != call:
                call, since = None if left is None else left.call, clock.monotonic()
            elif clock.monotonic() - since >= seconds and not 0 < checkpoint_running_ms() < FLUSH_MS:
                task.cancel()
                await asyncio.wait([task])
                return left if task.cancelled() else task.result()
        return task.result()
    finally:
        if not task.done():  # this coroutine was cancelled
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
