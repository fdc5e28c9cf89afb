"""Snapshotter: takes the snapshots of one subtask and stores them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from .checkpoints.checkpoint_times import CheckpointTimes
from .checkpoints.snapshot import snapshot_to_json
from .dependencies import FetcherDependencies
from .pipeline.bad_record_handler import BadRecordHandler
from .pipeline.emitter import Emitter
from .shards.owned_shards import OwnedShards
from .shards.shard_table import ShardTable
from .sink import Checkpoint, State
from .startup import OpenedJob


class Snapshotter:
    """Owns what a snapshot has beside the states of the shards: generation, pinned start, states kept for other subtasks.

    One checkpoint is taken at a time.
    """

    def __init__(
        self,
        dependencies: FetcherDependencies,
        table: ShardTable,
        owned: OwnedShards,
        emitter: Emitter,
        bad_records: BadRecordHandler,
    ) -> None:
        self._dependencies = dependencies
        self._table = table
        self._owned = owned
        self._emitter = emitter
        self._bad_records = bad_records
        self._checkpoint_lock = asyncio.Lock()
        self.times = CheckpointTimes(dependencies.clock)
        self._generation = 0
        self._pinned_ms: int | None = None
        self._states_for_others: Sequence[State] = ()

    def resume_from(self, opened: OpenedJob) -> None:
        """Take over what the job starts from: it is part of all later snapshots."""
        self._generation, self._pinned_ms, self._states_for_others = (
            opened.generation,
            opened.pinned_ms,
            opened.states_for_others,
        )

    def snapshot(self) -> dict[str, Any]:
        """The state of exactly the records for which `write` has returned (S1). Raises: StateError before the job was opened."""
        subtask, parallelism = self._dependencies.subtask, self._dependencies.parallelism
        states = {**self._owned.kept_states, **self._table.states()}
        return snapshot_to_json(
            states,
            self._pinned_ms,
            self._generation,
            subtask,
            parallelism,
            self._states_for_others,
            self._dependencies.clock.now_ms(),
        )

    async def checkpoint(self, *, may_be_partial: bool = False) -> dict[str, Any]:
        """Take a snapshot, flush the sink, then store the snapshot: never state that the sink has not confirmed (S6).

        `may_be_partial`: a sink that is not done with everything written may replace the snapshot by an older one (`Sink.flush`).

        Raises: FencedError, SinkError.
        """
        async with self._checkpoint_lock:
            with self.times.measured():
                state = await self._flush_and_store(may_be_partial)
            ended = {key: entry.get("watermark") for key, entry in state["shards"].items() if entry.get("ended")}
            self._dependencies.tracker.announce_finished(ended)
        return state

    async def _flush_and_store(self, may_be_partial: bool) -> dict[str, Any]:
        async with self._emitter.between_writes():
            state = self.snapshot()
            await self._bad_records.flush()
            confirmed = await self._dependencies.sink.flush(Checkpoint(state, may_be_partial))
            state = state if confirmed is None else dict(confirmed)
        if self._dependencies.checkpoints is not None:
            await self._dependencies.checkpoints.store(state)
        return state
