"""JobSnapshot: a job at one moment, as `lag`, the dashboard and their JSON show it. What is not known is None."""

from typing import Protocol

import msgspec


class ShardSnapshot(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One shard; times in ms.

    - `subtask` reads it; with ELASTIC assignment `worker`, where its name is known. `checkpoint_age_ms`: since its last checkpoint.
    - `stage`: WAITING for its parents, READING, DRAINING, ENDED. `parents`: the ids of the shards that were split or merged into it.
    - `lag_ms`: the age of the oldest record that is not finished; from stored positions, of the oldest one that no checkpoint covers.
      `unread`: whether there is one. `position`: the stored one.
    - `loss_ms`: until a record that is not finished may be past retention.
    - `watermark`: of the last record written, epoch ms. `is_held`, `is_excluded`: by alignment.
    - `is_idle`: nothing arrived for `IdleIntervals.shown_ms`; `idle_ms`: since the last record.
    - `records_per_second`: finished lately, `bytes_per_second`: written lately; or without stored positions, what arrives.
      `tip`, `tip_age_ms`: then the sequence number of the newest record, and its age.
    - `skipped_records`, `dead_letters`: since its reader has it. `in_flight`: records of a queue that are not acknowledged.
    - `has_alarm`: whether the shard needs attention; None where nobody looked. `alarm`: why it does.
    """

    stream: str
    shard: str
    subtask: int | None = None
    worker: str | None = None
    stage: str | None = None
    position: str | None = None
    unread: bool | None = None
    lag_ms: int | None = None
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    watermark: int | None = None
    is_idle: bool | None = None
    idle_ms: int | None = None
    is_held: bool | None = None
    is_excluded: bool | None = None
    loss_ms: int | None = None
    skipped_records: int | None = None
    dead_letters: int | None = None
    in_flight: int | None = None
    has_alarm: bool | None = None
    alarm: str | None = None
    parents: list[str] | None = None
    tip: str | None = None
    tip_age_ms: int | None = None
    checkpoint_age_ms: int | None = None


class CommitSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """The last commit of a sink: files and bytes (0: rows of a database), how long ago it was (ms; None: there was none yet), and how many
    records wait for the next one."""

    files: int
    bytes: int
    age_ms: int | None
    waiting_records: int


class SubtaskSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """One subtask, or with ELASTIC assignment one `worker`: whether its event loop responds, why it is not ready (none: it is), and how
    long ago (ms) its last checkpoint was; of a running one whose sink commits, `commit`; `alarms`: active ones; `skipped_records` and
    `dead_letters` since it started, of all shards that it had."""

    subtask: int | None = None
    responds: bool | None = None
    not_ready: list[str] | None = None
    checkpoint_age_ms: int | None = None
    worker: str | None = None
    commit: CommitSnapshot | None = None
    alarms: int | None = None
    skipped_records: int | None = None
    dead_letters: int | None = None


class JobSnapshot(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The job of this name at `time_ms` (epoch ms). `alignment`: what alignment waits for and why, in one sentence."""

    job: str | None = None
    time_ms: int
    shards: list[ShardSnapshot]
    subtasks: list[SubtaskSnapshot] | None = None
    global_watermark: int | None = None
    alignment: str | None = None

    @property
    def records_per_second(self) -> float | None:
        """Of all shards whose rate is known."""
        rates = [shard.records_per_second for shard in self.shards if shard.records_per_second is not None]
        return sum(rates) if rates else None

    @property
    def lag_ms(self) -> int | None:
        """The largest one that is known."""
        return max((shard.lag_ms for shard in self.shards if shard.lag_ms is not None), default=None)


class SnapshotSource(Protocol):
    """Where snapshots come from."""

    async def snapshot(self) -> JobSnapshot:
        """The job now. Raises: RecordPublisherError when it cannot be read."""
