"""Serves snapshots of a running job (`run --dashboard`), made from the metrics of its subtasks on this machine."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from recordpublisher.fetcher.monitoring.metrics_exporter import (
    MetricsExporter,
    MetricsSource,
    SubtaskHealth,
    SubtaskMetrics,
)
from recordpublisher.fetcher.watermark_functions import is_idle
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import RecordPublisherError

from ..lag.job_snapshot import CommitSnapshot, JobSnapshot, ShardSnapshot, SubtaskSnapshot
from ..lag.rates import Rates
from .history import History
from .server import DashboardServer

log = logging.getLogger("recordpublisher.metrics")
HISTORY_INTERVAL_SECONDS = 10.0
"""Time between two points. One point costs as much as one read of a page: 10 ms of CPU at 1,000 shards."""
OLD_SECONDS = 1.0
"""A snapshot is computed at most this often (seconds), however many readers request it."""
UNREAD = "has unread records and wrote none for the alarm interval"


class LiveSnapshots:
    """Owns the last snapshot, and the counters of earlier ones for the rates. Without readers nothing is computed.

    - `job`: the name of the job, if it has one.
    """

    def __init__(self, source: MetricsSource, clock: Clock, idle_interval_ms: int, job: str | None = None) -> None:
        self._source = source
        self._job = job
        self._clock = clock
        self._idle_interval_ms = idle_interval_ms
        self._rates = Rates()
        self._making = asyncio.Lock()
        self._last: tuple[float, JobSnapshot] | None = None

    async def snapshot(self) -> JobSnapshot:
        """Return the current state of the job. Raises: RecordPublisherError while no subtask responds."""
        async with self._making:
            if self._last is None or self._clock.monotonic() - self._last[0] >= OLD_SECONDS:
                made = await self._make()
                self._last = self._clock.monotonic(), made
            return self._last[1]

    async def _make(self) -> JobSnapshot:
        subtasks = sorted(await self._source.metrics(), key=lambda each: each.subtask)
        if not subtasks:
            raise RecordPublisherError("no subtask of the job responds")
        health = await self._source.health()
        written = {
            key: (of["records"] - of["unfinishedRecords"], of["bytes"])
            for each in subtasks
            for key, of in each.shards.items()
        }
        self._rates.add(self._clock.monotonic(), written)
        values_of = {each.subtask: each.values for each in subtasks}
        values = [*values_of.values()]
        watermarks = [value["globalWatermark"] for value in values if value["globalWatermark"] is not None]
        return JobSnapshot(
            job=self._job,
            time_ms=self._clock.now_ms(),
            shards=[self._shard(key, each, of) for each in subtasks for key, of in each.shards.items()],
            subtasks=[_subtask(each, values_of.get(each.subtask, {})) for each in health],
            global_watermark=max(watermarks, default=None),
            alignment=alignment_sentence(subtasks),
        )

    def _shard(self, key: str, reader: SubtaskMetrics, values: dict[str, Any]) -> ShardSnapshot:
        stream, _, shard = key.rpartition("/")
        records, payload = self._rates.per_second(key) or (None, None)
        return ShardSnapshot(
            stream=stream,
            shard=shard,
            subtask=reader.subtask,
            worker=reader.values["worker"],
            stage=values["stage"],
            lag_ms=values["lagMs"],
            records_per_second=records,
            bytes_per_second=payload,
            watermark=values["watermark"],
            is_idle=values["stage"] == "READING" and is_idle(values["silentMs"], self._idle_interval_ms),
            idle_ms=values["silentMs"],
            is_held=values["held"],
            is_excluded=values["excluded"],
            loss_ms=values["timeToRetentionLossMs"],
            skipped_records=values["skippedRecords"],
            dead_letters=values["deadLetters"],
            in_flight=values["unacknowledged"],
            has_alarm=values["alarm"],
            alarm=UNREAD if values["alarm"] else None,
            parents=(values["parents"] or "").split(),
        )


def _subtask(health: SubtaskHealth, values: dict[str, Any]) -> SubtaskSnapshot:
    age_ms, worker, files = values.get("checkpointAgeMs"), values.get("worker"), values.get("committedFiles")
    commit = None
    if files is not None:
        commit = CommitSnapshot(files, values["committedBytes"], values["committedAgeMs"], values["uncommittedRecords"])
    left_out = values.get("skippedRecords"), values.get("deadLetters")
    return SubtaskSnapshot(
        health.subtask, health.responds, health.not_ready, age_ms, worker, commit, values.get("alarms"), *left_out
    )


def alignment_sentence(subtasks: Sequence[SubtaskMetrics]) -> str:
    """Return which shard alignment waits for now and why, in one sentence."""
    held = sum(each.values["heldShards"] for each in subtasks)
    shards = sum(each.values["openShards"] for each in subtasks)
    if not held:
        return "Alignment holds no shard back."
    held_back = "is held back: it waits" if held == 1 else "are held back: they wait"
    beginning = f"{held} of {shards} shards {held_back} for"
    blocking = _lowest_shard(subtasks)
    if blocking is None:
        return f"{beginning} a shard of another process."
    subtask, shard, values = blocking
    return f"{beginning} {shard} of subtask {subtask}, {_reason(values)}."


def _lowest_shard(subtasks: Sequence[SubtaskMetrics]) -> tuple[int, str, Mapping[str, Any]] | None:
    found = [
        (each.subtask, shard, each.shards[shard])
        for each in subtasks
        if (shard := each.values["blockingShard"]) in each.shards
    ]
    return min(found, key=lambda one: _watermark(one[2]), default=None)


def _watermark(shard: Mapping[str, Any]) -> float:
    """Return the value with which the shard counts for the global watermark. A shard without a watermark holds all others back."""
    watermark = shard["watermark"] if shard["nextWatermark"] is None else shard["nextWatermark"]
    return float("-inf") if watermark is None else watermark


def _reason(shard: Mapping[str, Any]) -> str:
    """Return why the shard's watermark does not rise."""
    if shard["stage"] == "ENDED":
        return "which has ended and whose children are not read yet"
    if shard["alarm"]:
        return f"which {UNREAD}"
    if shard["queuedRecords"]:
        return "whose records are read and wait to be written"
    behind_ms = shard["millisBehindLatest"]
    if behind_ms < 0:
        return "which has not been read yet"
    if behind_ms > 0:
        return f"which is {behind_ms / 1000:,.1f} s behind its newest record"
    return "which has no new records and is not idle yet"


class LiveDashboard(MetricsExporter):
    """Owns the server. It reads the same metrics as other exporters, when a page is open, and from time to time for the charts."""

    def __init__(self, port: int, idle_interval_ms: int, job: str | None = None) -> None:
        self._port = port
        self._job = job
        self._idle_interval_ms = idle_interval_ms
        self._server: DashboardServer | None = None

    async def open(self, source: MetricsSource) -> None:
        """Listen, and log the URL. Raises: ConfigurationError if the port cannot be used."""
        clock = SystemClock()
        snapshots = LiveSnapshots(source, clock, self._idle_interval_ms, self._job)
        self._server = DashboardServer(snapshots, History(snapshots, clock, HISTORY_INTERVAL_SECONDS))
        url = await self._server.open(self._port)
        log.info("the dashboard is at %s", url)

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.close()
