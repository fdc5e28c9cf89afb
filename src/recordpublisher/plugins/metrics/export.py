"""`rp.export_metrics` and `rp.metrics_text`: export the metrics of fetchers and producers (A1). Base of periodic exporters."""

import asyncio
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, runtime_checkable

from recordpublisher.fetcher.metric_types import SinkMetric
from recordpublisher.fetcher.monitoring.metrics_exporter import (
    MetricsExporter,
    MetricsSource,
    SubtaskHealth,
    SubtaskMetrics,
)
from recordpublisher.publishers.properties.groups.job import METRICS_INTERVAL
from recordpublisher.publishers.properties.properties import Properties

from ..host.build_from_properties import build_metrics_exporters
from ..host.manager import load_registry


@runtime_checkable
class MeasuredFetcher(Protocol):
    """The part of a `DataFetcher` that is exported."""

    @property
    def subtask(self) -> int:
        """Number of the subtask."""

    def metrics(self) -> dict[str, Any]:
        """Return the current metrics."""

    def sink_metrics(self) -> list[SinkMetric]:
        """Return the metrics of its sink."""

    def reasons_not_ready(self) -> list[str]:
        """Return why it is not ready."""


@runtime_checkable
class MeasuredProducer(Protocol):
    """The part of a `Producer`, or of a `KinesisSink` that is used without a job, that is exported."""

    @property
    def stream(self) -> str:
        """Name of the stream that it puts into."""

    def exported_metrics(self) -> list[SinkMetric]:
        """Return the current metrics."""

    def reasons_not_ready(self) -> list[str]:
        """Return why it takes no records."""


@asynccontextmanager
async def export_metrics(
    properties: Mapping[str, object], *sources: MeasuredFetcher | MeasuredProducer
) -> AsyncIterator[None]:
    """Export metrics while the block runs: `async with rp.export_metrics(properties, fetcher), fetcher:`.

    - `properties`: `flink.metrics.exporters` says where to export.
    - `sources`: fetchers, producers, and Kinesis sinks that are not the sink of a job; see `metrics_text`.

    `recordpublisher run` does this by itself.

    Raises: ConfigurationError if an exporter's properties are invalid; TypeError if a source has no metrics.
    """
    exporters = build_metrics_exporters(load_registry(), Properties(properties))
    async with exporters_opened(exporters, FetchersHere(_as_fetchers(sources))):
        yield


def metrics_text(*sources: MeasuredFetcher | MeasuredProducer) -> str:
    """Return the metrics in the text format of Prometheus, for a page `/metrics` that the application serves itself.

    - `sources`: fetchers, whose event loop must make the call, producers, and Kinesis sinks that are not the sink of a job. The label
      `producer` of a producer or sink is its stream, and `orders-2` for the second one of the stream `orders`.

    Raises: TypeError if a source has no metrics.
    """
    from .prometheus.exporter import page_of  # imported here because it loads the HTTP server

    here = FetchersHere(_as_fetchers(sources))
    return page_of(here.measure(), here.check())


class _ProducerAsFetcher:
    """A producer with its name."""

    subtask = 0

    def __init__(self, name: str, producer: MeasuredProducer) -> None:
        self.producer = name
        self.sink_metrics = producer.exported_metrics
        self.reasons_not_ready = producer.reasons_not_ready

    def metrics(self) -> dict[str, Any]:
        """Return no metrics of shards, because a producer reads none."""
        return {"subtask": {}, "shards": {}}


def _as_fetchers(sources: Sequence[object]) -> list[MeasuredFetcher]:
    fetchers = [source for source in sources if isinstance(source, MeasuredFetcher)]
    producers = [source for source in sources if isinstance(source, MeasuredProducer)]
    if len(fetchers) + len(producers) < len(sources):
        names = ", ".join(type(each).__name__ for each in sources if each not in [*fetchers, *producers])
        raise TypeError(
            f"{names} has no metrics to export: give a DataFetcher, a Producer, or a KinesisSink without a job"
        )
    made: Counter[str] = Counter()
    named: list[MeasuredFetcher] = []
    for each in producers:
        made[each.stream] += 1
        number = made[each.stream]
        named.append(_ProducerAsFetcher(each.stream if number == 1 else f"{each.stream}-{number}", each))
    return [*fetchers, *named]


def _name(fetcher: MeasuredFetcher) -> str:
    return fetcher.producer if isinstance(fetcher, _ProducerAsFetcher) else ""


@asynccontextmanager
async def exporters_opened(exporters: Iterable[MetricsExporter], source: MetricsSource) -> AsyncIterator[None]:
    """Keep exporters open while the block runs."""
    async with AsyncExitStack() as opened:
        for exporter in exporters:
            opened.push_async_callback(exporter.close)
            await exporter.open(source)
        yield


class FetchersHere:
    """The fetchers of this process, as a MetricsSource. If it can be asked, the event loop responds."""

    def __init__(self, fetchers: Sequence[MeasuredFetcher]) -> None:
        self._fetchers = fetchers

    async def metrics(self) -> list[SubtaskMetrics]:
        """Return the metrics of each fetcher."""
        return self.measure()

    async def health(self) -> list[SubtaskHealth]:
        """Return the health of each fetcher."""
        return self.check()

    def measure(self) -> list[SubtaskMetrics]:
        """Return the metrics of each fetcher."""
        read = [(fetcher, fetcher.metrics()) for fetcher in self._fetchers]
        return [
            SubtaskMetrics(
                fetcher.subtask, metrics["subtask"], metrics["shards"], fetcher.sink_metrics(), _name(fetcher)
            )
            for fetcher, metrics in read
        ]

    def check(self) -> list[SubtaskHealth]:
        """Return the health of each fetcher."""
        return [
            SubtaskHealth(fetcher.subtask, True, fetcher.reasons_not_ready(), _name(fetcher))
            for fetcher in self._fetchers
        ]


log = logging.getLogger("recordpublisher.metrics")


class PeriodicExporter(MetricsExporter):
    """Owns the task that sends metrics after each `flink.metrics.interval`. A failure is logged, and the next interval tries again."""

    def __init__(self, properties: Properties) -> None:
        self._seconds = properties.value(METRICS_INTERVAL) / 1000
        self._sending: asyncio.Task[None] | None = None

    @abstractmethod
    async def send(self, subtasks: list[SubtaskMetrics]) -> None:
        """Send the metrics of this moment. Raises: any error if that fails; the caller logs it."""

    async def open(self, source: MetricsSource) -> None:
        """Start the task that sends."""
        self._source = source
        self._sending = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Send a last time, then stop."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
            await self._send_once()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            await self._send_once()

    async def _send_once(self) -> None:
        try:
            await self.send(await self._source.metrics())
        except Exception as error:
            log.warning("metrics were not sent: %s: %s", type(error).__name__, error)
