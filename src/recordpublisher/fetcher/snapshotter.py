"""The snapshots of one subtask: what one says beside the states of the shards, and how it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from .checkpoints.snapshot import snapshot_to_json
from .dependencies import FetcherDependencies
from .pipeline.dead_letters import BadRecordHandler
from .pipeline.emitter import Emitter
from .shards.shard_table import ShardTable
from .sink import Checkpoint, State
from .startup import OpenedJob


class Snapshotter:
    """Owns the generation, the pinned start and what is still kept for others; one checkpoint is taken at a time."""

    def __init__(
        self, parts: FetcherDependencies, table: ShardTable, emitter: Emitter, rejections: BadRecordHandler
    ) -> None:
        self._parts = parts
        self._table = table
        self._emitter = emitter
        self._rejections = rejections
        self._one_at_a_time = asyncio.Lock()
        self._generation = 0
        self._pinned_ms: int | None = None
        self._earlier: Sequence[State] = ()

    def goes_on_from(self, opened: OpenedJob) -> None:
        """What a job starts from is part of all its snapshots."""
        self._generation, self._pinned_ms, self._earlier = opened.generation, opened.pinned_ms, opened.earlier

    def take(self) -> dict[str, Any]:
        """Exactly what `write` has returned for (S1). Raises: StateError before the job was opened."""
        parts, states = self._parts, self._table.states()
        return snapshot_to_json(
            states, self._pinned_ms, self._generation, parts.subtask, parts.parallelism, self._earlier
        )

    async def keep(self) -> dict[str, Any]:
        """Flush, take, store: kept only after the sink confirmed everything before it (S6). Raises: FencedError, SinkError."""
        async with self._one_at_a_time:
            async with self._emitter.sink_calls:
                state = self.take()
                await self._rejections.flush()
                await self._parts.sink.flush(Checkpoint(state))
            if self._parts.checkpoints is not None:
                await self._parts.checkpoints.store(state)
            ended = {key: entry.get("watermark") for key, entry in state["shards"].items() if entry.get("ended")}
            self._parts.tracker.announce_finished(ended)
        return state
