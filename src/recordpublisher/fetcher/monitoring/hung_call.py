"""`cancel_if_hung`: the end of a run waits for the sink, and not without end for a call of user code that does not return."""

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
    """Await `ending`. When one call (`Unfinished.call`) has gone on for so long meanwhile, cancel it, and return what the sink says.

    A checkpoint is not cut off while it may be stored: only one that has run for `FLUSH_MS` waits for the sink. None: it has ended.
    Raises: what it raises.
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
        if not task.done():  # this was cancelled
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
