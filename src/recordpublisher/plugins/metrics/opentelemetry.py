"""Sends the metrics over OTLP (HTTP) with the official SDK, extra `opentelemetry`."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

from recordpublisher.fetcher.metric_types import MetricType
from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsSource, WorkerMetrics
from recordpublisher.install_commands import install_command
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.histogram import HistogramValue
from recordpublisher.publishers.properties.job_properties import JOB_NAME
from recordpublisher.publishers.properties.properties import Properties

from .export import ExportedMetric, MetricOrigin, PeriodicExporter, exported_tables

try:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        HistogramDataPoint,
        Metric,
        MetricExportResult,
        MetricsData,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
        Sum,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
except ImportError as error:
    raise ImportError(
        f"the opentelemetry exporter needs the extra 'opentelemetry': {install_command('opentelemetry')}"
    ) from error

Row = tuple[dict[str, str | int], dict[str, Any]]
"""The attributes of a worker or shard, and its values."""

SYSTEM = "aws_kinesis"
"""The value of `messaging.system`. The conventions define no value for Kinesis."""


class OpenTelemetryExporter(PeriodicExporter):
    """Sends metrics to the address in the environment variables of OpenTelemetry's SDK (`OTEL_EXPORTER_OTLP_ENDPOINT` and the like).

    It does not use the SDK's instruments. An instrument drops series above 2,000, and keeps shards that have ended.
    """

    def __init__(self, properties: Properties, clock: Clock | None = None) -> None:
        super().__init__(properties)
        job = properties.value(JOB_NAME)
        self._exporter = OTLPMetricExporter()
        self._resource = Resource.create({} if job is None else {"service.name": job})
        self._clock = clock or SystemClock()

    async def open(self, source: MetricsSource) -> None:
        """Start to send. The time of this call is reported as the start of all counters."""
        self._started_ms = self._clock.now_ms()
        await super().open(source)

    async def send(self, workers: list[WorkerMetrics]) -> None:
        """Send the current metrics. Raises: OSError if the collector did not accept them."""
        # The exporter of the SDK blocks, so it runs in a thread. Without workers there is nothing to send yet.
        if (
            workers
            and await asyncio.to_thread(self._exporter.export, self._data(workers)) is not MetricExportResult.SUCCESS
        ):
            raise ConnectionError("the collector did not accept the metrics; log lines of opentelemetry say why")

    async def close(self) -> None:
        """Send a last time, then close the connection."""
        await super().close()
        await asyncio.to_thread(self._exporter.shutdown)

    def _data(self, workers: list[WorkerMetrics]) -> MetricsData:
        metrics = []
        for exported, rows in exported_tables(workers):
            with_attributes = [(_attributes(origin), values) for origin, values in rows]
            metrics += [self._metric(metric, with_attributes) for metric in exported]
        scope = ScopeMetrics(InstrumentationScope("recordpublisher"), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metric(self, metric: ExportedMetric, rows: list[Row]) -> Metric:
        now = self._clock.now_ms() * 1_000_000
        if metric.type is MetricType.HISTOGRAM:
            found = [(attributes, metric.histogram(values.get(metric.source))) for attributes, values in rows]
            histograms = [self._histogram(attributes, now, value) for attributes, value in found if value is not None]
            return self._named(metric, Histogram(histograms, AggregationTemporality.CUMULATIVE))
        points = [
            NumberDataPoint(attributes, self._started_ms * 1_000_000, now, value)
            for attributes, value in _values(metric, rows)
        ]
        if metric.type is MetricType.COUNTER:
            return self._named(metric, Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True))
        return self._named(metric, Gauge(points))

    def _histogram(self, attributes: dict[str, str | int], now: int, value: HistogramValue) -> HistogramDataPoint:
        counts, unknown = value["counts"], cast("float", None)  # The protocol leaves the lowest and highest value out.
        return HistogramDataPoint(
            attributes,
            self._started_ms * 1_000_000,
            now,
            sum(counts),
            value["sum"],
            counts,
            value["bounds"],
            min=unknown,
            max=unknown,
        )

    def _named(self, metric: ExportedMetric, data: Sum | Gauge | Histogram) -> Metric:
        return Metric(metric.opentelemetry_name, metric.description, metric.opentelemetry_unit, data)


def _attributes(origin: MetricOrigin) -> dict[str, str | int]:
    if origin.producer:
        return {"messaging.system": SYSTEM, "messaging.operation.name": "send", "messaging.client.id": origin.producer}
    worker: dict[str, str | int] = {"recordpublisher.process": origin.process}
    if origin.job:
        worker["recordpublisher.job"] = origin.job
    if not origin.shard:
        return worker
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "poll",
        "messaging.destination.name": origin.stream,
        "messaging.destination.partition.id": origin.shard,
        **worker,
    }


def _values(metric: ExportedMetric, rows: list[Row]) -> Iterator[tuple[dict[str, str | int], int | float]]:
    """Yield the attributes and value of each known value. A text becomes an attribute, with 1 as the value."""
    for attributes, values in rows:
        value = values.get(metric.source)
        if metric.type is MetricType.TEXT:
            if value is not None:
                yield {**attributes, f"recordpublisher.{metric.stem}": value}, 1
        elif (number := metric.number(value)) is not None:
            yield attributes, number
