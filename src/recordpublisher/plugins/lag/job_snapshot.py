"""The state of a job at one moment, as `lag`, the dashboard and their JSON show it."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import msgspec


class JobSnapshot(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The state of a job at one moment. Values that are not known are None.

    - `job`: the name of the job, if it has one.
    - `time_ms`: the moment (epoch ms).
    - `global_watermark`: the global watermark (epoch ms).
    - `alignment`: a sentence that says for which shard alignment waits, and why.
    """

    job: str | None = None
    time_ms: int
    shards: list[ShardSnapshot]
    workers: list[WorkerSnapshot] | None = None
    global_watermark: int | None = None
    alignment: str | None = None

    @property
    def records_per_second(self) -> float | None:
        """Records per second, summed over the shards whose rate is known."""
        rates = [shard.records_per_second for shard in self.shards if shard.records_per_second is not None]
        return sum(rates) if rates else None

    @property
    def counts(self) -> Counter[str]:
        """The sum of each counter of `WorkerSnapshot.counts` over all workers, by the title of the counter."""
        total: Counter[str] = Counter()
        for each in self.workers or ():
            total.update(each.counts or {})
        return total

    @property
    def lag_ms(self) -> int | None:
        """Largest known lag of a shard (ms)."""
        return max((shard.lag_ms for shard in self.shards if shard.lag_ms is not None), default=None)


class ShardSnapshot(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One shard. Durations are in ms. A value that is not known is None.

    - `process`: the number of the worker that reads the shard. `worker`: its name in a group, if it is known.
    - `checkpoint_age_ms`: time since the last checkpoint of the shard's reader.
    - `stage`: WAITING for its parents, READING, DRAINING or ENDED. `parents`: the ids of the shards that were split or merged
      into it. `is_closed`: whether the shard gets no more records, and is listed because it may have unread ones; None for a running job.
    - `lag_ms`: age of the oldest record that is not finished. From stored positions: age of the oldest record that no checkpoint
      covers. `unread`: whether there is such a record. `position`: the stored position.
    - `loss_ms`: time until a record that is not finished may be past retention.
    - `watermark`: watermark after the last record written (epoch ms). `is_held`, `is_excluded`: whether alignment holds or
      excludes the shard.
    - `is_idle`: whether no record arrived for `IdleIntervals.shown_ms`. `idle_ms`: time since the last record.
    - `records_per_second`, `bytes_per_second`: records finished and bytes written lately; without stored positions, records
      and bytes that arrive.
    - `tip`, `tip_age_ms`: without stored positions the sequence number of the newest record, and its age.
    - `counts`: the counters that people see, by title, such as `{"skipped": 2, "dead letters": 0}`, since the worker began to read the
      shard. `in_flight`: records of a queue that are not acknowledged.
    - `has_alarm`: whether the shard needs attention; None if this was not checked. `alarm`: why it does.
    """

    stream: str
    shard: str
    process: int | None = None
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
    counts: dict[str, int] | None = None
    in_flight: int | None = None
    has_alarm: bool | None = None
    alarm: str | None = None
    parents: list[str] | None = None
    tip: str | None = None
    tip_age_ms: int | None = None
    checkpoint_age_ms: int | None = None
    is_closed: bool | None = None


class CommitSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """The last commit of a sink.

    - `files`, `bytes`: how many were committed; 0 for rows of a database.
    - `age_ms`: how long ago the commit was (ms), or None before the first commit.
    - `waiting_records`: records that wait for the next commit.
    """

    files: int
    bytes: int
    age_ms: int | None
    waiting_records: int


class WorkerSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """One worker: its number `process`, or in a group its name `worker`.

    - `responds`: whether its event loop responds. `not_ready`: why it is not ready; empty if it is ready.
    - `checkpoint_age_ms`: how long ago its last checkpoint was (ms).
    - `commit`: the last commit, if the worker is running and its sink commits.
    - `alarms`: number of active alarms.
    - `counts`: the counters of `ShardSnapshot.counts` since the worker started, over all shards that it has read.
    """

    process: int | None = None
    responds: bool | None = None
    not_ready: list[str] | None = None
    checkpoint_age_ms: int | None = None
    worker: str | None = None
    commit: CommitSnapshot | None = None
    alarms: int | None = None
    counts: dict[str, int] | None = None


class SnapshotSource(Protocol):
    """An object that returns snapshots of a job."""

    async def snapshot(self) -> JobSnapshot:
        """Return the current state of the job. Raises: RecordPublisherError if it cannot be read."""


class HistoryPoint(msgspec.Struct, frozen=True, rename="camel"):
    """The totals at one moment (epoch ms): records written per second, and the largest lag of a shard (ms). Unknown values are None."""

    time_ms: int
    records_per_second: float | None = None
    lag_ms: int | None = None


def point_of(snapshot: JobSnapshot) -> HistoryPoint:
    """Return the totals of a snapshot."""
    return HistoryPoint(snapshot.time_ms, snapshot.records_per_second, snapshot.lag_ms)
