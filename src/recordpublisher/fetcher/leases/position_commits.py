"""Stores the positions of a worker's shards: one checkpoint at a time, and the positions prepared for shards that it acquires."""

from __future__ import annotations

import asyncio

from recordpublisher.publishers.errors import FencedError

from ..checkpoints.checkpoint_schedule import CheckpointAge
from .owned_leases import OwnedLeases
from .position_documents import Positions
from .position_store import PositionStore, ShardReaders


class PositionCommits:
    """Stores the positions of a worker's shards, one checkpoint at a time.

    Positions of shards that the worker is about to acquire are stored at once, even while a checkpoint waits for the sink.
    """

    def __init__(
        self, owned: OwnedLeases, readers: ShardReaders, positions: PositionStore, times: CheckpointAge
    ) -> None:
        self._owned = owned
        self._readers = readers
        self._positions = positions
        self._times = times
        self._checkpoint = asyncio.Lock()
        self._commit = asyncio.Lock()
        self._has_ended = False

    def end(self) -> None:
        """End the worker: later commits raise FencedError.

        A commit in progress may still take effect. It stores positions and rows together.
        """
        self._has_ended = True

    async def take_checkpoint(self, *, may_be_partial: bool) -> None:
        """Flush the sink, then store how far each shard was written to it.

        With `may_be_partial`, store how far the sink has finished the records of each shard.

        Raises: FencedError if the worker was replaced or has ended, even while the sink was flushed; StateError if the positions cannot be
        stored.
        """
        async with self._checkpoint:
            with self._times.measured():
                scope = self._owned.checkpoint_scope()
                async with self._readers.checkpoint(may_be_partial=may_be_partial) as current:
                    if current.is_before_commit:
                        # No write runs here, so these are exactly the leases whose records will be staged.
                        scope = self._owned.checkpoint_scope()
                    async with self._commit:
                        await self._positions.settle()
                    await self._positions.stage()
                    async with self._commit:
                        await self._positions.settle()
                        positions = self._owned.positions(scope, current)
                        await self._store(positions, is_checkpoint=True)
                await self._positions.publish()
                self._owned.on_published(positions)

    async def store_prepared(self) -> None:
        """Store the positions of shards that this worker is about to acquire, in addition to the positions that are stored already.

        Raises: FencedError if the worker was replaced or has ended; StateError if the positions cannot be stored.
        """
        async with self._commit:
            await self._positions.settle()
            await self._store(self._owned.positions_with_prepared())

    async def _store(self, positions: Positions, *, is_checkpoint: bool = False) -> None:
        if self._has_ended:
            raise FencedError(
                "this worker has ended; the next worker reads again the records after its last stored positions"
            )
        self._owned.on_commit(positions)
        with self._times.storing():
            await self._positions.commit(positions, is_checkpoint=is_checkpoint)
