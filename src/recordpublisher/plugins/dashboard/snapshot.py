"""JobSnapshot: a job at one moment, as people look at it. What is not known is None."""

from __future__ import annotations

from typing import Protocol

import msgspec


class ShardSnapshot(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One shard; times in ms.

    - `subtask` reads it; with ELASTIC assignment `worker`, where its name is known.
    - `lag_ms`: how far its reader is behind the newest record. `loss_ms`: until a record that was not written may be past retention.
    - `watermark`: of the last record written, epoch ms. `records_per_second`, `bytes_per_second`: written lately.
    - `stage`: WAITING for its parents, READING, DRAINING, ENDED. `parents`: the ids of the shards that were split or merged into it.
    """

    stream: str
    shard: str
    subtask: int | None = None
    worker: str | None = None
    stage: str | None = None
    lag_ms: int | None = None
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    watermark: int | None = None
    is_idle: bool | None = None
    is_held: bool | None = None
    is_excluded: bool | None = None
    loss_ms: int | None = None
    alarm: bool | None = None
    parents: list[str] | None = None


class SubtaskSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """One subtask, or with ELASTIC assignment one `worker`: whether its event loop responds, why it is not ready (none: it is), and how
    long ago (ms) its last checkpoint was."""

    subtask: int | None = None
    responds: bool | None = None
    not_ready: list[str] | None = None
    checkpoint_age_ms: int | None = None
    worker: str | None = None


class JobSnapshot(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A job at `time_ms` (epoch ms). `alignment`: what alignment waits for and why, in one sentence."""

    time_ms: int
    shards: list[ShardSnapshot]
    subtasks: list[SubtaskSnapshot] | None = None
    global_watermark: int | None = None
    alignment: str | None = None


class SnapshotSource(Protocol):
    """Where snapshots come from."""

    async def snapshot(self) -> JobSnapshot:
        """The job now. Raises: RecordPublisherError when it cannot be read."""
        ...
