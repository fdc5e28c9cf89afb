"""LiveSnapshots: snapshots of a running job, from the metrics of its subtasks on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsSource, SubtaskHealth, SubtaskMetrics
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError

from ..metrics.exported_metrics import is_known
from .alignment_sentence import alignment_sentence
from .rates import Rates
from .snapshot import JobSnapshot, ShardSnapshot, SubtaskSnapshot

OLD_SECONDS = 1.0
"""A snapshot is computed at most this often, however many readers ask for it."""


class LiveSnapshots:
    """Owns the last snapshot, and the counters of earlier ones for the rates. Nothing is computed while nobody asks."""

    def __init__(self, source: MetricsSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._rates = Rates()
        self._making = asyncio.Lock()
        self._last: tuple[float, JobSnapshot] | None = None

    async def snapshot(self) -> JobSnapshot:
        """The job now. Raises: RecordPublisherError while no subtask responds."""
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
        self._rates.add(self._clock.monotonic(), _written(subtasks))
        values_of = {each.subtask: each.values for each in subtasks}
        values = [*values_of.values()]
        watermarks = [value["globalWatermark"] for value in values if value["globalWatermark"] is not None]
        return JobSnapshot(
            time_ms=self._clock.now_ms(),
            shards=[self._shard(key, each, of) for each in subtasks for key, of in each.shards.items()],
            subtasks=[_subtask(each, values_of.get(each.subtask, {})) for each in health],
            global_watermark=max(watermarks, default=None),
            alignment=alignment_sentence(subtasks),
        )

    def _shard(self, key: str, reader: SubtaskMetrics, values: dict[str, Any]) -> ShardSnapshot:
        stream, _, shard = key.rpartition("/")
        records, payload = self._rates.per_second(key) or (None, None)
        lag_ms = values["millisBehindLatest"]
        return ShardSnapshot(
            stream=stream,
            shard=shard,
            subtask=reader.subtask,
            worker=reader.values["worker"],
            stage=values["stage"],
            lag_ms=lag_ms if is_known("millisBehindLatest", lag_ms) else None,
            records_per_second=records,
            bytes_per_second=payload,
            watermark=values["watermark"],
            is_idle=values["idle"],
            is_held=values["held"],
            is_excluded=values["excluded"],
            loss_ms=values["timeToRetentionLossMs"],
            alarm=values["alarm"],
            parents=(values["parents"] or "").split(),
        )


def _subtask(health: SubtaskHealth, values: dict[str, Any]) -> SubtaskSnapshot:
    age_ms, worker = values.get("checkpointAgeMs"), values.get("worker")
    return SubtaskSnapshot(health.subtask, health.responds, health.not_ready, age_ms, worker)


def _written(subtasks: Sequence[SubtaskMetrics]) -> dict[str, tuple[int, int]]:
    return {key: (shard["records"], shard["bytes"]) for each in subtasks for key, shard in each.shards.items()}
