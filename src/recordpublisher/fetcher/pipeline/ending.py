"""Ending: how a run ends. The first reason or error wins."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from recordpublisher.publishers.errors import ImpossibleStateError

from .bounds import EndReason


class Ending:
    """Owns the end of a run, and starts what runs in the background of it: an error there ends the run."""

    def __init__(self) -> None:
        self._reason: asyncio.Future[EndReason] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a run has begun and nothing has ended it."""
        return self._reason is not None and not self._reason.done()

    def begin(self) -> None:
        """A run begins."""
        self._reason = asyncio.get_running_loop().create_future()

    async def reached(self) -> EndReason:
        """Wait for the end. Raises: the error that ended the run."""
        assert self._reason is not None
        return await self._reason

    def finish(self, reason: EndReason) -> None:
        """End the run."""
        if self._reason is not None and not self._reason.done():
            self._reason.set_result(reason)

    async def finish_in(self, seconds: float | None) -> None:
        """End the run when the time is up; None: never."""
        if seconds is not None:
            await asyncio.sleep(seconds)
            self.finish(EndReason.MAX_TIME)

    def fail(self, error: BaseException) -> None:
        """End the run with an error, which is raised from it."""
        if self._reason is not None and not self._reason.done():
            self._reason.set_exception(error)

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` in a task."""
        task: asyncio.Task[None] = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if (
            task.cancelled()
        ):  # by us once the run is over; before, a sink let a cancellation of its own escape: do not wait for ever
            self.fail(ImpossibleStateError(f"a part of the run was cancelled from within: {task.get_coro()}"))
        elif (error := task.exception()) is not None:
            self.fail(error)
