"""LeaseCheckpointer: positions are stored with the leases of a group, and not as the snapshot of a subtask."""

import asyncio
import logging
from typing import Any

from recordpublisher.publishers.errors import FencedError, StoreUnavailableError

from ..checkpointer import Checkpointer, Snapshotter
from ..checkpoints.commit_counts import CommitCounts
from ..pipeline.suspension import SuspensionDetector
from .worker_lives import WorkerLives

log = logging.getLogger("recordpublisher.fetcher")


class LeaseCheckpointer(Checkpointer):
    """Lets the worker of this process store how far each shard was emitted."""

    def __init__(
        self,
        lives: WorkerLives,
        snapshotter: Snapshotter,
        suspension: SuspensionDetector,
        commit_counts: CommitCounts | None,
    ) -> None:
        self._lives = lives
        self._snapshotter = snapshotter
        self._suspension = suspension
        self.times = lives.times
        self.commit_counts = commit_counts

    async def checkpoint(self) -> dict[str, Any]:
        """Flush the sink, then commit."""
        await self._lives.checkpoint(may_be_partial=False)
        return self._snapshotter.snapshot()

    async def take_first(self) -> None:
        """Nothing: the lease table of the group has its start."""

    async def take_periodic(self) -> None:
        """One that fails is tried again: the worker reads on, and writes nothing without a confirmed heartbeat (E9)."""
        await self._take(may_be_partial=True)

    async def _take(self, *, may_be_partial: bool) -> None:
        try:
            await self._lives.checkpoint(may_be_partial=may_be_partial)
        except StoreUnavailableError as error:
            log.warning("a checkpoint was not stored: %s", error)
        except FencedError as error:
            log.warning("a checkpoint was not stored, the worker begins anew under another name: %s", error)

    async def take_last(self, *, is_stopped: bool) -> None:
        """The sink may still write from its queue: a suspension is looked for until it has."""
        self._suspension.reset()
        watching = asyncio.create_task(self._suspension.run())
        try:
            if not is_stopped:
                await self._take(may_be_partial=False)
            await self._lives.leave()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
