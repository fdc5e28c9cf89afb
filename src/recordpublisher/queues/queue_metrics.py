"""Computes the metrics, the progress and the readiness of a queue job.

A queue has no shards, so each receiver (a part of the job that receives records) has metrics instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec

from recordpublisher.fetcher.monitoring.shard_view import SHARD_METRICS
from recordpublisher.publishers.clock import Clock

from ..fetcher.checkpoints.checkpoint_schedule import CheckpointAge
from ..fetcher.metric_types import Metric, MetricType, camel_case
from ..fetcher.monitoring.readiness import FAILED_READ_LIMIT_MS, READ_LIMIT_MS, reasons_not_ready
from ..fetcher.monitoring.worker_view import WORKER_METRICS, WorkerProgress
from ..fetcher.pipeline.bounded_runs import RunCompletion
from ..fetcher.pipeline.checked_sink_calls import unfinished_of
from ..fetcher.pipeline.dead_letters import DeadLetterHandler
from ..fetcher.pipeline.process_suspension import SuspensionDetector
from ..fetcher.sink import Sink, Unfinished
from ..publishers.shard_metrics import SUMMED_COUNTERS, ShardMetrics
from .in_flight import InFlight
from .job_alarms import QueueAlarms
from .receivers import Receiver, Receivers


class QueueMetrics(msgspec.Struct, frozen=True):
    """Computes the metrics, the progress and the readiness of a queue job. Its fields are the parts of the job that are measured."""

    receivers: Receivers
    in_flight: InFlight
    sink: Sink
    completion: RunCompletion
    flushes: CheckpointAge
    alarms: QueueAlarms
    suspension: SuspensionDetector
    clock: Clock
    dead_letters: DeadLetterHandler

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the worker and of each receiver. Those of a receiver have the names of a shard's metrics.

        A metric that a queue does not have is 0 or None.
        """
        unfinished, oldest = unfinished_of(self.sink), self.in_flight.oldest_arrivals()
        shards = {each.shard.key: self._metrics_of(each, unfinished, oldest) for each in self.receivers}
        worker = {metric.name: _nothing(metric) for metric in WORKER_METRICS} | {
            "loopLagMs": self.suspension.lag_ms,
            "records": self.receivers.records,
            "checkpointAgeMs": self.flushes.age_ms,
            "checkpointRunningMs": self.flushes.running_ms,
            "checkpointDurationMs": self.flushes.durations.value(),
            "budgetUsedBytes": sum(each.held_bytes for each in self.receivers),
            "shards": len(shards),
            "openShards": len(shards),
            "idleShards": len(shards) - self.receivers.wanted,
            **{camel_case(counter): self._total(counter) for counter in SUMMED_COUNTERS},
            "uncommittedRecords": None,
            "alarms": len(self.alarms.active),
        }
        return {"worker": worker, "shards": shards}

    def progress(self) -> WorkerProgress:
        """Return the figures of this job for a progress line."""
        unfinished, oldest = unfinished_of(self.sink), self.in_flight.oldest_arrivals()
        unread = [(age_ms, each) for each in self.receivers if (age_ms := self._unread_ms(each)) is not None]
        longest_ms, failed = max(unread, key=lambda one: one[0], default=(None, None))
        failure = None if failed is None else failed.metrics.last_failure
        count = len(list(self.receivers))
        skipped, letters = self._total("skipped_records"), self._total("dead_letters")
        return WorkerProgress(
            0,
            self.receivers.records + skipped + letters - self.dead_letters.rejected,
            count,
            count - self.receivers.wanted,
            0,
            skipped,
            letters,
            max((lag for each in self.receivers if (lag := self._lag_ms(each, oldest)) is not None), default=None),
            None if unfinished is None else unfinished.records,
            longest_ms,
            None if failure is None else str(failure),
            0 if unfinished is None else unfinished.left,
        )

    def reasons_not_ready(self) -> list[str]:
        """Return why the job is not ready, as sentences for people. The list is empty if it is ready.

        The run, the flushes, the calls of the sink and the receives are considered.
        """
        now_ms = self.clock.now_ms()
        reasons = reasons_not_ready(self.completion, (), self.flushes, self.alarms.active, now_ms)
        return [*reasons, *self._why_nothing_is_received(now_ms)] if self.completion.is_running else reasons

    def has_received(self) -> bool:
        """Return whether a call of the queue has succeeded in this run."""
        return self.completion.is_running and any(each.last_read_ms is not None for each in self.receivers)

    def _why_nothing_is_received(self, now_ms: int) -> list[str]:
        """Return a sentence in a list if no receive has succeeded lately, or else an empty list.

        A receiver that waits for the sink does not count.
        """
        calling = [each for each in self.receivers if each.receiving_since_ms is not None]
        for each in calling:
            limit_ms = READ_LIMIT_MS if each.metrics.last_failure is None else FAILED_READ_LIMIT_MS
            if each.last_read_ms is not None and now_ms - (each.receiving_since_ms or 0) <= limit_ms:
                return []
        if not calling:
            return []
        last_ms = max((each.last_read_ms for each in self.receivers if each.last_read_ms is not None), default=None)
        since = "yet" if last_ms is None else f"for {(now_ms - last_ms) / 1000:.0f} s"
        failure = next((each.metrics.last_failure for each in calling if each.metrics.last_failure is not None), None)
        return [f"nothing was received {since}" + ("" if failure is None else f": {failure}")]

    def _metrics_of(
        self, receiver: Receiver, unfinished: Unfinished | None, oldest: Mapping[int, float]
    ) -> dict[str, Any]:
        now_ms, key, metrics = self.clock.now_ms(), receiver.shard.key, receiver.metrics
        of_shard = None if unfinished is None else unfinished.shards.get(key)
        silent_ms = 0
        if metrics.millis_behind_latest == 0 and receiver.last_read_ms is not None:
            silent_ms = now_ms - (receiver.last_record_ms or receiver.last_read_ms)
        queued = receiver.queued
        return {metric.name: _nothing(metric) for metric in SHARD_METRICS} | {
            **{name: getattr(metrics, field) for name, field in _READ_FIELDS.items()},
            "lagMs": self._lag_ms(receiver, oldest),
            "millisBehindLatest": self._behind_ms(receiver),
            "records": receiver.records,
            "bytes": receiver.payload_bytes,
            "stage": "READING",
            "queuedRecords": 0 if queued is None else len(queued),
            "queuedBytes": receiver.held_bytes,
            "unfinishedRecords": 0 if of_shard is None else of_shard.records,
            "idle": receiver.index >= self.receivers.wanted,
            "silentMs": silent_ms,
            "lastEmitAgeMs": None if receiver.last_write_ms is None else now_ms - receiver.last_write_ms,
            "alarm": key in self.alarms.active,
        }

    def _behind_ms(self, receiver: Receiver) -> int:
        """Return the age of the oldest record of the last receive (ms); 0 after an empty receive, -1 before the first one.

        It grows until the next receive.
        """
        last, now_ms = receiver.metrics.millis_behind_latest, self.clock.now_ms()
        if last < 0 or receiver.last_read_ms is None:
            return last
        if receiver.index >= self.receivers.wanted and receiver.receiving_since_ms is None:
            return 0  # This receiver does not call, because another one has found the queue empty.
        age_ms = max(0, now_ms - receiver.last_read_ms)
        is_cut_off = receiver.metrics.last_failure is not None
        if receiver.receiving_since_ms is not None:
            is_cut_off |= now_ms - receiver.receiving_since_ms > READ_LIMIT_MS
        return last + age_ms if last > 0 or is_cut_off else last

    def _lag_ms(self, receiver: Receiver, oldest: Mapping[int, float]) -> int | None:
        ages = [behind] if (behind := self._behind_ms(receiver)) >= 0 else []
        if (arrival := oldest.get(id(receiver.metrics))) is not None:
            ages.append(self.clock.now_ms() - round(arrival * 1000))
        return max(0, *ages) if ages else None

    def _unread_ms(self, receiver: Receiver) -> int | None:
        """Return for how long the receiver's call has had no answer (ms).

        Return None if the receiver makes no call now. Also return None for a recent call, unless the call before it failed.
        """
        if receiver.receiving_since_ms is None:
            return None
        age_ms = max(0, self.clock.now_ms() - receiver.receiving_since_ms)
        return age_ms if age_ms > READ_LIMIT_MS or receiver.metrics.last_failure is not None else None

    def _total(self, counter: str) -> int:
        return sum(getattr(each.metrics, counter) for each in self.receivers)


def _nothing(metric: Metric[Any]) -> Any:
    if metric.type is MetricType.FLAG:
        return False
    is_unknown = metric.type in (MetricType.TEXT, MetricType.HISTOGRAM) or (
        metric.type is MetricType.GAUGE and metric.unit in _UNKNOWN
    )
    return None if is_unknown else 0


_READ_FIELDS = {camel_case(each.name): each.name for each in fields(ShardMetrics) if each.metadata}
"""The metrics that are counted at a receive, each with the name of its field in `ShardMetrics`."""
_UNKNOWN = ("ms", "epoch ms", "files", "bytes", "worker", "workers")
"""Gauges in these units are None, because a queue does not have them."""
