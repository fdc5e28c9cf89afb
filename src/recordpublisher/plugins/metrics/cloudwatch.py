"""Exports metrics as log lines in CloudWatch's embedded metric format (EMF), to stdout or a file.

CloudWatch makes metrics of such lines when they reach CloudWatch Logs: from Lambda, ECS or the CloudWatch agent. No call is made here.
"""

import asyncio
import sys
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from recordpublisher.fetcher.metric_types import Metric, MetricType, SinkMetric
from recordpublisher.fetcher.monitoring.metrics_exporter import WorkerMetrics
from recordpublisher.fetcher.monitoring.shard_view import SHARD_METRICS
from recordpublisher.fetcher.monitoring.worker_view import WORKER_METRICS
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.histogram import HistogramValue
from recordpublisher.publishers.properties.job_properties import (
    CLOUDWATCH_FILE,
    CLOUDWATCH_NAMESPACE,
    CLOUDWATCH_SHARDS,
    JOB_NAME,
)
from recordpublisher.publishers.properties.properties import Properties

from .export import MetricOrigin, PeriodicExporter, is_known, plain_number, shard_rows

_UNITS = {"ms": "Milliseconds", "bytes": "Bytes", "epoch ms": "None"}


class CloudWatchExporter(PeriodicExporter):
    """Writes a line for each worker and, with `flink.metrics.cloudwatch.shards`, for each shard. CloudWatch bills each metric of a shard.

    Owns the last value of each counter and histogram. CloudWatch adds values up, so a line has the difference to the line before.
    """

    def __init__(self, properties: Properties, clock: Clock | None = None) -> None:
        super().__init__(properties)
        self._file = properties.value(CLOUDWATCH_FILE)
        self._namespace = properties.value(CLOUDWATCH_NAMESPACE)
        self._with_shards = properties.value(CLOUDWATCH_SHARDS)
        self._job = properties.value(JOB_NAME) or "recordpublisher"
        self._clock = clock or SystemClock()
        self._counted: dict[tuple[str, ...], Any] = {}
        self._process_of: dict[tuple[str, ...], int] = {}
        """The process that had each shard when lines were last written. The key has the shard's dimensions."""

    async def send(self, workers: list[WorkerMetrics]) -> None:
        """Write the current lines.

        Raises: OSError, or another error of the file, if they cannot be written. No count is lost then: the next lines include it.
        """
        if self._with_shards:
            self._forget_shards_that_left(workers)
        # Restored if the lines cannot be written, so that the next lines have these counts too.
        before = dict(self._counted)
        try:
            lines = b"".join(msgspec.json.encode(line) + b"\n" for each in workers for line in self._lines_of(each))
            await asyncio.to_thread(self._write, lines)
        except Exception:
            self._counted = before
            raise

    def _forget_shards_that_left(self, workers: list[WorkerMetrics]) -> None:
        """Forget the counts of shards that their processes no longer have. A process that does not respond still has its shards."""
        here = {each.process: {self._shard_dimensions(origin) for origin, _ in shard_rows(each)} for each in workers}
        left = {key for key, process in self._process_of.items() if key not in here.get(process, {key})}
        if left:
            self._counted = {key: value for key, value in self._counted.items() if key[:-1] not in left}
        still = {key: process for key, process in self._process_of.items() if key not in left}
        self._process_of = still | {key: process for process, keys in here.items() for key in keys}

    def _shard_dimensions(self, origin: MetricOrigin) -> tuple[str, ...]:
        return origin.job or self._job, origin.stream, origin.shard

    def _lines_of(self, worker: WorkerMetrics) -> Iterable[dict[str, Any]]:
        own = {"Job": worker.job or self._job, "Process": str(worker.process)}
        if worker.producer:
            own = {"Job": self._job, "Producer": worker.producer}
        sink = [structs.replace(each, name=_sink_name(each)) for each in worker.sink]
        yield self._line(own, [*WORKER_METRICS, *sink], worker.values | {each.name: each.value for each in sink})
        if self._with_shards:
            for origin, values in shard_rows(worker):
                of_shard = dict(zip(("Job", "Stream", "Shard"), self._shard_dimensions(origin), strict=True))
                yield self._line(of_shard, SHARD_METRICS, values)

    def _line(
        self, dimensions: dict[str, str], table: Iterable[Metric[Any] | SinkMetric], values: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return one log line: metrics with their units, and texts as plain fields."""
        found = [
            (metric, values.get(metric.name)) for metric in table if is_known(metric.name, values.get(metric.name))
        ]
        fields = {metric.name: self._field(metric, value, dimensions) for metric, value in found}
        known = [metric for metric, _ in found if fields[metric.name] is not None]
        numbers = [metric for metric in known if metric.type is not MetricType.TEXT]
        directive = {
            "Namespace": self._namespace,
            "Dimensions": [list(dimensions)],
            "Metrics": [{"Name": one.name, "Unit": _UNITS.get(one.unit, "Count")} for one in numbers],
        }
        line = {metric.name: fields[metric.name] for metric in known}
        return {"_aws": {"Timestamp": self._clock.now_ms(), "CloudWatchMetrics": [directive]}, **dimensions, **line}

    def _field(self, metric: Metric[Any] | SinkMetric, value: Any, dimensions: dict[str, str]) -> Any:
        if metric.type is MetricType.TEXT:
            return value
        if metric.type not in (MetricType.COUNTER, MetricType.HISTOGRAM):
            return plain_number(value)
        key = (*dimensions.values(), metric.name)
        before, self._counted[key] = self._counted.get(key, 0), value
        if metric.type is MetricType.HISTOGRAM:
            return _values_and_counts(value, before or None)
        # The counters of a shard that comes back to this worker begin at 0.
        return value - before if value >= before else value

    def _write(self, lines: bytes) -> None:
        if self._file == "-":
            sys.stdout.buffer.write(lines)
            sys.stdout.buffer.flush()
        else:  # The file is opened each time, because another program may have rotated it.
            with Path(self._file).open("ab") as file:
                file.write(lines)


def _values_and_counts(value: HistogramValue, before: HistogramValue | None) -> dict[str, Any] | None:
    """Return the values that a histogram has counted since the line before, or None if it has counted none.

    CloudWatch computes percentiles from the values. Each stands for a bucket: it is the middle of the bucket, or the last bound for the
    bucket above that.
    """
    if before is None or sum(value["counts"]) < sum(before["counts"]):  # The counts begin at 0 with each start.
        before = {**value, "counts": [0] * len(value["counts"]), "sum": 0.0}
    bounds = [0.0, *value["bounds"], value["bounds"][-1]]
    middles = [(low + high) / 2 for low, high in pairwise(bounds)]
    counts = [now - then for now, then in zip(value["counts"], before["counts"], strict=True)]
    counted = {middle: count for middle, count in zip(middles, counts, strict=True) if count}
    if not counted:
        return None
    return {
        "Values": list(counted),
        "Counts": list(counted.values()),
        "Max": max(counted),
        "Min": min(counted),
        "Count": sum(counts),
        "Sum": value["sum"] - before["sum"],
    }


def _sink_name(metric: SinkMetric) -> str:
    """Return the name of a sink's metric next to the metrics of its worker, for example `sinkRequests`."""
    return f"sink{metric.name[0].upper()}{metric.name[1:]}"
