"""Checkpointer: when the positions of a fetcher are stored, and where. SnapshotCheckpointer: as the snapshot of a subtask."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from .checkpoints.checkpoint_times import CheckpointTimes
from .checkpoints.snapshot import snapshot_to_json
from .dependencies import FetcherDependencies
from .pipeline.bad_record_handler import BadRecordHandler
from .pipeline.emitter import Emitter
from .shards.owned_shards import OwnedShards
from .shards.shard_state import ShardState
from .shards.shard_table import ShardTable
from .sink import Checkpoint, State
from .startup import OpenedJob


class Snapshotter:
    """Owns what a snapshot has beside the states of the shards: generation, pinned start, states kept for other subtasks."""

    def __init__(self, job: FetcherDependencies, table: ShardTable) -> None:
        self._job = job
        self._table = table
        self._generation = 0
        self._pinned_ms: int | None = None
        self._states_for_others: Sequence[State] = ()

    def resume_from(self, opened: OpenedJob) -> None:
        """Take over what the job starts from: it is part of all later snapshots."""
        self._generation, self._pinned_ms = opened.generation, opened.pinned_ms
        self._states_for_others = opened.states_for_others

    def snapshot(self, kept: Mapping[str, ShardState] = MappingProxyType({})) -> dict[str, Any]:
        """The state of exactly the records for which `write` has returned (S1). `kept`: states of shards that are not read now.

        Raises: StateError before the job was opened.
        """
        return snapshot_to_json(
            {**kept, **self._table.states()},
            self._pinned_ms,
            self._generation,
            self._job.subtask,
            self._job.parallelism,
            self._states_for_others,
            self._job.clock.now_ms(),
        )


class Checkpointer(ABC):
    """Stores how far each shard was emitted: only what the sink has confirmed (S6). `times`: of its checkpoints."""

    times: CheckpointTimes

    @abstractmethod
    def resume_from(self, opened: OpenedJob) -> None:
        """The job was opened: what it starts from is part of all later snapshots."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """The state of exactly the records for which the sink's `write` has returned (S1), as a plain JSON-able dict."""

    @abstractmethod
    async def checkpoint(self) -> dict[str, Any]:
        """Flush the sink, then store all positions. Returns a snapshot of them. Raises: FencedError, StateError, SinkError."""

    @abstractmethod
    async def take_first(self) -> None:
        """The job was opened, and nothing is read yet (P3)."""

    @abstractmethod
    async def take_periodic(self) -> None:
        """One of those that the scheduler asks for: the sink need not be done with everything written (`Sink.flush`)."""

    @abstractmethod
    async def take_last(self) -> None:
        """The run is over."""


class SnapshotCheckpointer(Checkpointer):
    """Stores a snapshot of the subtask, in the store and in a sink that keeps positions. One checkpoint is taken at a time."""

    def __init__(
        self,
        job: FetcherDependencies,
        table: ShardTable,
        owned: OwnedShards,
        emitter: Emitter,
        bad_records: BadRecordHandler,
    ) -> None:
        self._job = job
        self._snapshotter = Snapshotter(job, table)
        self._owned = owned
        self._emitter = emitter
        self._bad_records = bad_records
        self._lock = asyncio.Lock()
        self.times = CheckpointTimes(job.clock)

    def resume_from(self, opened: OpenedJob) -> None:
        """Takes over generation and pinned start."""
        self._snapshotter.resume_from(opened)

    def snapshot(self) -> dict[str, Any]:
        """Those of streams that left the list are in it, too (S10)."""
        return self._snapshotter.snapshot(self._owned.kept_states)

    async def checkpoint(self) -> dict[str, Any]:
        """Take a snapshot, flush the sink, then store the snapshot."""
        return await self._checkpoint(may_be_partial=False)

    async def take_first(self) -> None:
        """Store what the job starts from."""
        await self.checkpoint()

    async def take_periodic(self) -> None:
        """Store a snapshot, or the older one with which the sink replaces it."""
        await self._checkpoint(may_be_partial=True)

    async def take_last(self) -> None:
        """Store everything."""
        await self.checkpoint()

    async def _checkpoint(self, *, may_be_partial: bool) -> dict[str, Any]:
        async with self._lock:
            with self.times.measured():
                state = await self._flush_and_store(may_be_partial)
            ended = {key: entry.get("watermark") for key, entry in state["shards"].items() if entry.get("ended")}
            self._job.tracker.announce_finished(ended)
        return state

    async def _flush_and_store(self, may_be_partial: bool) -> dict[str, Any]:
        async with self._emitter.between_writes():
            state = self.snapshot()
            await self._bad_records.flush()
            confirmed = await self._job.sink.flush(Checkpoint(state, may_be_partial))
            state = state if confirmed is None else dict(confirmed)
        if self._job.checkpoints is not None:
            await self._job.checkpoints.store(state)
        return state
