"""Takes the checkpoints of a worker of a group. They store positions under the worker's leases, and no snapshot."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from recordpublisher.publishers.errors import (
    FencedError,
    StoreUnavailableError,
)
from recordpublisher.publishers.safe_text import with_notes

from ..checkpointer import Checkpointer, Snapshotter
from ..checkpoints.staged_commits import CommitCounts
from ..pipeline.process_suspension import SuspensionDetector
from .group_membership import GroupMembership

log = logging.getLogger("recordpublisher.fetcher")


class LeaseCheckpointer(Checkpointer):
    """Takes the checkpoints of a worker of a group."""

    def __init__(
        self,
        membership: GroupMembership,
        snapshotter: Snapshotter,
        suspension: SuspensionDetector,
        commit_counts: CommitCounts | None,
    ) -> None:
        self._membership = membership
        self._snapshotter = snapshotter
        self._suspension = suspension
        self.times = membership.times
        self.commit_counts = commit_counts

    async def checkpoint(self) -> dict[str, Any]:
        """Flush the sink, store how far each shard was written to it, and return a snapshot of that."""
        await self._membership.checkpoint(may_be_partial=False)
        return self._snapshotter.snapshot()

    async def take_first(self) -> None:
        """Do nothing: the lease table of the group already has the position at which the job starts."""

    async def take_periodic(self) -> None:
        """Take a checkpoint. If it fails, the next one tries again.

        While checkpoints fail, the worker continues to read. It writes only while its heartbeats are confirmed.
        """
        await self._take(may_be_partial=True)

    async def _take(self, *, may_be_partial: bool) -> None:
        try:
            await self._membership.checkpoint(may_be_partial=may_be_partial)
        except StoreUnavailableError as error:
            self.times.warn_of_failure(error)
        except FencedError as error:
            text = "a checkpoint was not stored: %s. The process joins again as a new worker, and records since the last one are read again"
            log.warning(text, with_notes(error))

    async def take_last(self, *, is_stopped: bool) -> None:
        """Take the last checkpoint and leave the group.

        `is_stopped`: whether the run was stopped. If so, the worker takes the checkpoint while it leaves.

        The sink may write queued records during this call, but not after another worker has acquired the shards.
        """
        # Another worker may acquire the shards while this process is suspended.
        self._suspension.reset()
        watching = asyncio.create_task(self._suspension.run())
        try:
            if not is_stopped:
                await self._take(may_be_partial=False)
            await self._membership.leave()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
