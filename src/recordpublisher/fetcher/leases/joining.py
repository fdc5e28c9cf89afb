"""join_group: writes the first record of a worker. A worker that may have been sealed and deleted meanwhile begins anew (E12)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FencedError, StoreUnavailableError

from .heartbeat import Heartbeat


class LateJoinError(FencedError):
    """The worker must begin anew under another name. Nothing was read under this one."""


async def join_group(
    write_first: Callable[[], Awaitable[None]], heartbeat: Heartbeat, clock: Clock, duration: float
) -> None:
    """Write the first record; `write_first` repeats it until it is confirmed. `duration`: of a lease, in seconds.

    An attempt without an answer may have taken effect. Others seal such a record when it has stood for a lease, and delete it. A later
    attempt would store it again, while deletions of it may still be under way. Time counts by both clocks: one of them may have stood still
    while the process was suspended. Raises: LateJoinError; FencedError when others have sealed the worker.
    """
    began, began_ms = clock.boottime(), clock.now_ms()
    await write_first()
    seconds = max(clock.boottime() - began, (clock.now_ms() - began_ms) / 1000)
    if seconds >= duration:
        with contextlib.suppress(FencedError, StoreUnavailableError):
            await heartbeat.seal()
        raise LateJoinError(
            f"its first record was confirmed after {seconds:.0f} s, and may have been deleted meanwhile"
        )
