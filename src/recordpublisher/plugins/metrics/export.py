"""Exports the metrics of fetchers and producers (`rp.export_metrics`), with their names in monitoring systems.

Exported values are in base units: seconds and bytes.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from math import isfinite
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from recordpublisher.fetcher.metric_types import Metric, MetricType, SinkMetric
from recordpublisher.fetcher.monitoring.metrics_exporter import (
    MetricsExporter,
    MetricsSource,
    WorkerHealth,
    WorkerMetrics,
)
from recordpublisher.fetcher.monitoring.shard_view import SHARD_METRICS
from recordpublisher.fetcher.monitoring.worker_view import WORKER_METRICS
from recordpublisher.publishers.histogram import HistogramValue
from recordpublisher.publishers.properties.job_properties import METRICS_INTERVAL
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.user_code import PluginCall, describe_error

from ..host.build_from_properties import build_metrics_exporters
from ..host.plugin_loading import load_registry
from ..only_async_with import OnlyAsyncWith

log = logging.getLogger("recordpublisher.metrics")
Scope = Literal["worker", "shard", "sink"]
_STEMS = {
    "numberOfAggregatedRecords": "aggregated_records",
    "numberOfDeaggregatedRecords": "deaggregated_records",
    "millisBehindLatest": "behind_latest",
    "bytesRead": "read",
    "bytesPerRead": "last_read",
    "worker": "name",
    "workerReplaced": "replaced",
    "outstandingRecordsCount": "outstanding_records",
    "numRecordsOut": "written_records",
    "numBytesOut": "written",
    "numRecordsOutErrors": "failed_records",
}
"""The stems (names without unit) of metrics whose own name contains a unit or a verb."""
_UNITS = {"ms": "seconds", "epoch ms": "timestamp_seconds", "bytes": "bytes"}


def export_metrics(
    properties: Mapping[str, object], *sources: MeasuredFetcher | MeasuredProducer
) -> AbstractAsyncContextManager[None]:
    """Export metrics while the block runs: `async with rp.export_metrics(properties, fetcher), fetcher:`.

    - `properties`: `flink.metrics.exporters` says where to export.
    - `sources`: fetchers, producers, and Kinesis sinks that are not the sink of a job. A producer or sink counts as a worker. It is
      numbered after the fetchers, in the order of the arguments.

    `recordpublisher run` calls this itself.

    Raises: ConfigurationError if an exporter's properties are invalid; TypeError if a source has no metrics.
    """
    return _Export(properties, sources)


class _Export(OnlyAsyncWith, AbstractAsyncContextManager[None]):
    """Owns the exporters while its block runs."""

    _called = "rp.export_metrics"

    def __init__(self, properties: Mapping[str, object], sources: Sequence[object]) -> None:
        self._properties, self._sources = properties, sources
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> None:
        exporters = build_metrics_exporters(load_registry(), Properties(self._properties))
        source = FetchersOfProcess(as_measured_fetchers(self._sources))
        await self._opened.enter_async_context(open_exporters(exporters, source))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.aclose()


@runtime_checkable
class MeasuredFetcher(Protocol):
    """The part of a `DataFetcher` that exporters need."""

    @property
    def job_name(self) -> str:
        """`flink.job.name`; empty if it is not set."""

    def metrics(self) -> dict[str, Any]:
        """Return the current metrics."""

    def sink_metrics(self) -> list[SinkMetric]:
        """Return the metrics of the fetcher's sink."""

    def reasons_not_ready(self) -> list[str]:
        """Return why the fetcher is not ready; an empty list if it is."""


@runtime_checkable
class MeasuredProducer(Protocol):
    """The methods that exporters need of a `Producer`, or of a `KinesisSink` without a job."""

    @property
    def stream(self) -> str:
        """Name of the stream that the producer puts into."""

    def exported_metrics(self) -> list[SinkMetric]:
        """Return the current metrics."""

    def reasons_not_ready(self) -> list[str]:
        """Return why the producer accepts no records; an empty list if it does."""


def as_measured_fetchers(sources: Sequence[object]) -> list[MeasuredFetcher]:
    """Return all sources as fetchers: the fetchers first, then the producers and sinks.

    Raises: TypeError if a source has no metrics.
    """
    objects = [source for source in sources if not isinstance(source, type)]  # A class has the methods too.
    fetchers = [source for source in objects if isinstance(source, MeasuredFetcher)]
    producers = [source for source in objects if isinstance(source, MeasuredProducer)]
    if len(fetchers) + len(producers) < len(sources):
        names = ", ".join(
            repr(each) if isinstance(each, type) else type(each).__name__
            for each in sources
            if each not in [*fetchers, *producers]
        )
        raise TypeError(
            f"{names} has no metrics to export; pass a DataFetcher, a Producer, or a KinesisSink without a job"
        )
    streams = {each.stream for each in producers}
    named: dict[str, MeasuredFetcher] = {}
    for each in producers:
        further = (f"{each.stream}-{number}" for number in count(2))
        # Another producer may have a stream of that name, and two series of one name would be taken for one.
        name = each.stream if each.stream not in named else next(n for n in further if n not in named.keys() | streams)
        named[name] = _ProducerAsFetcher(name, each)
    return [*fetchers, *named.values()]


def _name(fetcher: MeasuredFetcher) -> str:
    return fetcher.producer if isinstance(fetcher, _ProducerAsFetcher) else ""


class _ProducerAsFetcher:
    """Makes a producer look like a fetcher that reads no shard."""

    def __init__(self, name: str, producer: MeasuredProducer) -> None:
        self.producer, self.job_name = name, ""
        self.sink_metrics = producer.exported_metrics
        self.reasons_not_ready = producer.reasons_not_ready

    def metrics(self) -> dict[str, Any]:
        """Return no metrics of shards, because a producer reads none."""
        return {"worker": {}, "shards": {}}


class FetchersOfProcess:
    """The fetchers of this process, numbered from 0, as a MetricsSource.

    The calls run on the event loop, so a response shows that the loop is not blocked.
    """

    def __init__(self, fetchers: Sequence[MeasuredFetcher]) -> None:
        self._fetchers = fetchers

    async def metrics(self) -> list[WorkerMetrics]:
        """Return the metrics of each fetcher."""
        return self.measure()

    async def health(self) -> list[WorkerHealth]:
        """Return the health of each fetcher."""
        return self.check()

    def measure(self) -> list[WorkerMetrics]:
        """Return the metrics of each fetcher."""
        read = [(fetcher, fetcher.metrics()) for fetcher in self._fetchers]
        return [
            WorkerMetrics(
                number,
                metrics["worker"],
                metrics["shards"],
                fetcher.sink_metrics(),
                _name(fetcher),
                fetcher.job_name,
            )
            for number, (fetcher, metrics) in enumerate(read)
        ]

    def check(self) -> list[WorkerHealth]:
        """Return the health of each fetcher."""
        return [
            WorkerHealth(number, True, each.reasons_not_ready(), _name(each), each.job_name)
            for number, each in enumerate(self._fetchers)
        ]


_sources: list[MetricsSource] = []
"""The sources whose exporters are open in this process."""


def is_exporting() -> bool:
    """Return whether this process exports metrics now."""
    return bool(_sources)


@asynccontextmanager
async def open_exporters(exporters: Iterable[MetricsExporter], source: MetricsSource) -> AsyncIterator[None]:
    """Keep exporters open while the block runs."""
    async with AsyncExitStack() as opened:
        for exporter in exporters:
            # The callback comes first, so that an exporter whose `open` fails is closed as well.
            opened.push_async_callback(_close, exporter)
            with PluginCall(exporter, "open"):
                await exporter.open(source)
        _sources.append(source)
        try:
            yield
        finally:
            _sources.remove(source)


async def _close(exporter: MetricsExporter) -> None:
    with PluginCall(exporter, "close"):
        await exporter.close()


class PeriodicExporter(MetricsExporter):
    """Base class of exporters that push metrics. Owns the task that sends the metrics after each `flink.metrics.interval`.

    A failure is logged, and the next interval tries again.
    """

    def __init__(self, properties: Properties) -> None:
        self._seconds = properties.value(METRICS_INTERVAL) / 1000
        self._sending: asyncio.Task[None] | None = None

    @abstractmethod
    async def send(self, workers: list[WorkerMetrics]) -> None:
        """Send the current metrics. Raises: any error if that fails; the caller logs it."""

    async def open(self, source: MetricsSource) -> None:
        """Start the task that sends the metrics."""
        self._source = source
        self._sending = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Send a last time, then stop."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])  # An interrupted send may still run in a thread.
            await self._send_once()  # The counts since the last interval would be lost otherwise.

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            await self._send_once()

    async def _send_once(self) -> None:
        try:
            await self.send(await self._source.metrics())
        except Exception as error:  # A monitoring system that does not respond must not end the job.
            log.warning("metrics were not sent; the next interval tries again: %s", describe_error(error))


@dataclass(frozen=True, slots=True)
class ExportedMetric:
    """One metric for other systems.

    - `source`: the name of the metric in `fetcher.metrics()`.
    - `stem`: the name of the metric in lower case, without unit.
    - `unit`: seconds, timestamp_seconds (since 1970), bytes, or "".
    - `divisor`: the number by which source values are divided.
    """

    scope: Scope
    source: str
    stem: str
    unit: str
    divisor: int
    type: MetricType
    description: str

    @property
    def prometheus_name(self) -> str:
        """The metric's name in Prometheus, with the unit if there is one.

        The name of a counter ends in `_total`, and the name of a text in `_info`.
        """
        parts = ["recordpublisher", self.scope, self.stem]
        # The unit is not added to a stem that ends in it, as `committed_bytes` does.
        if self.unit and not self.stem.endswith(self.unit):
            parts.append(self.unit)
        endings = {MetricType.COUNTER: ["total"], MetricType.TEXT: ["info"]}
        return "_".join(parts + endings.get(self.type, []))

    @property
    def opentelemetry_name(self) -> str:
        """The metric's name in OpenTelemetry, without the unit.

        The semantic conventions of OpenTelemetry define a name for one metric, the records of a shard. Every other name consists of
        `recordpublisher`, the scope and the stem.
        """
        if (self.scope, self.source) == ("shard", "records"):
            # This is the only metric for which the conventions have a name.
            return "messaging.client.consumed.messages"
        ending = "_timestamp" if self.unit == "timestamp_seconds" else ""
        is_duration = self.type is MetricType.COUNTER and self.unit == "seconds"
        return f"recordpublisher.{self.scope}.{self.stem}{'_time' if is_duration else ending}"

    @property
    def opentelemetry_unit(self) -> str:
        """The metric's unit in OpenTelemetry, in the notation of UCUM."""
        if (self.scope, self.source) == ("shard", "records"):
            return "{message}"
        return {"seconds": "s", "timestamp_seconds": "s", "bytes": "By"}.get(self.unit, "1")

    def number(self, value: Any) -> int | float | None:
        """Return a number in the exported unit, or None if it is not known."""
        if not is_known(self.source, value):
            return None
        return plain_number(value) if self.divisor == 1 else value / self.divisor

    def histogram(self, value: HistogramValue | None) -> HistogramValue | None:
        """Return a histogram in the exported unit, or None if it is not known."""
        if value is None:
            return None
        bounds = [bound / self.divisor for bound in value["bounds"]]
        return {"bounds": bounds, "counts": value["counts"], "sum": value["sum"] / self.divisor}


def is_known(name: str, value: Any) -> bool:
    """Return whether a value of `fetcher.metrics()` or of a sink is known. As in Flink, `millisBehindLatest` is -1 before the first read.

    Infinity and NaN count as unknown, because most monitoring systems refuse them.
    """
    if isinstance(value, float) and not isfinite(value):
        return False
    return value is not None and not (name == "millisBehindLatest" and value < 0)


def plain_number(value: Any) -> int | float:
    """Return a number as it is, and a flag as 1 or 0. A fraction of a sink's gauge stays a fraction."""
    return int(value) if isinstance(value, bool) else value


def _export_metric(scope: Scope, metric: Metric[Any] | SinkMetric) -> ExportedMetric:
    words = re.sub(r"([A-Z])", r"_\1", metric.name.removesuffix("Ms")).lower()
    unit = _UNITS.get(metric.unit, "")
    divisor = 1000 if metric.unit in ("ms", "epoch ms") else 1
    stem = _STEMS.get(metric.name, words)
    return ExportedMetric(scope, metric.name, stem, unit, divisor, metric.type, metric.description)


EXPORTED_WORKER_METRICS = tuple(_export_metric("worker", metric) for metric in WORKER_METRICS)
EXPORTED_SHARD_METRICS = tuple(_export_metric("shard", metric) for metric in SHARD_METRICS)


class MetricOrigin(NamedTuple):
    """Where values come from: a worker and its sink, a shard that a worker reads (`shard` is not empty), or a producer."""

    process: int
    stream: str = ""
    shard: str = ""
    producer: str = ""
    job: str = ""


Row = tuple[MetricOrigin, dict[str, Any]]
"""The values of one origin, by the names of its metrics."""


def shard_rows(worker: WorkerMetrics) -> Iterator[Row]:
    """Return the rows of the shards of a worker."""
    for key, values in worker.shards.items():
        stream, _, shard = key.rpartition("/")
        yield MetricOrigin(worker.process, stream, shard, job=worker.job), values


def exported_tables(workers: Sequence[WorkerMetrics]) -> list[tuple[Iterable[ExportedMetric], list[Row]]]:
    """Return three tables of metrics, each with its rows: of workers, of their sinks (each metric once), and of shards.

    A program that only produces has only the table of sinks.
    """
    jobs = [each for each in workers if not each.producer]
    of_sinks = {metric.name: _export_metric("sink", metric) for each in workers for metric in each.sink}
    in_sinks = [
        (MetricOrigin(each.process, producer=each.producer, job=each.job), {one.name: one.value for one in each.sink})
        for each in workers
    ]
    if workers and not jobs:
        return [(of_sinks.values(), in_sinks)]
    return [
        (EXPORTED_WORKER_METRICS, [(MetricOrigin(each.process, job=each.job), each.values) for each in jobs]),
        (of_sinks.values(), in_sinks),
        (EXPORTED_SHARD_METRICS, [row for each in jobs for row in shard_rows(each)]),
    ]
