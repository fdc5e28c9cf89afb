"""`rp.export_metrics`: exports the metrics of fetchers while a block runs (A1). PeriodicExporter: for exporters that write now and then."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from recordpublisher.fetcher.metric_types import SinkMetric
from recordpublisher.fetcher.monitoring.metrics_exporter import (
    MetricsExporter,
    MetricsSource,
    SubtaskHealth,
    SubtaskMetrics,
)
from recordpublisher.publishers.properties.groups.metrics import METRICS_INTERVAL
from recordpublisher.publishers.properties.properties import Properties

from ..host.build_from_properties import build_metrics_exporters
from ..host.manager import load_registry


class MeasuredFetcher(Protocol):
    """What is exported of a `DataFetcher`."""

    @property
    def subtask(self) -> int:
        """Its number."""

    def metrics(self) -> dict[str, Any]:
        """Its metrics now."""

    def sink_metrics(self) -> list[SinkMetric]:
        """Those of its sink."""

    def reasons_not_ready(self) -> list[str]:
        """Why it is not ready."""


@asynccontextmanager
async def export_metrics(properties: Mapping[str, object], *fetchers: MeasuredFetcher) -> AsyncIterator[None]:
    """Export metrics while the block runs: `async with rp.export_metrics(properties, fetcher), fetcher:`.

    `flink.metrics.exporters` says where to. `recordpublisher run` does this by itself. Raises: ConfigurationError.
    """
    exporters = build_metrics_exporters(load_registry(), Properties(properties))
    async with exporters_opened(exporters, FetchersHere(fetchers)):
        yield


@asynccontextmanager
async def exporters_opened(exporters: Iterable[MetricsExporter], source: MetricsSource) -> AsyncIterator[None]:
    """Keep exporters open while the block runs."""
    async with AsyncExitStack() as opened:
        for exporter in exporters:
            opened.push_async_callback(exporter.close)
            await exporter.open(source)
        yield


class FetchersHere:
    """The fetchers of this process, as a MetricsSource. Whoever can ask them sees that the event loop responds."""

    def __init__(self, fetchers: Sequence[MeasuredFetcher]) -> None:
        self._fetchers = fetchers

    async def metrics(self) -> list[SubtaskMetrics]:
        """The metrics of each."""
        read = [(fetcher, fetcher.metrics()) for fetcher in self._fetchers]
        return [
            SubtaskMetrics(fetcher.subtask, metrics["subtask"], metrics["shards"], fetcher.sink_metrics())
            for fetcher, metrics in read
        ]

    async def health(self) -> list[SubtaskHealth]:
        """The health of each."""
        return [SubtaskHealth(fetcher.subtask, True, fetcher.reasons_not_ready()) for fetcher in self._fetchers]


log = logging.getLogger("recordpublisher.metrics")


class PeriodicExporter(MetricsExporter):
    """Owns the task that sends after each `flink.metrics.interval`. What fails is logged, and the next interval tries again."""

    def __init__(self, properties: Properties) -> None:
        self._seconds = properties.value(METRICS_INTERVAL) / 1000
        self._sending: asyncio.Task[None] | None = None

    @abstractmethod
    async def send(self, subtasks: list[SubtaskMetrics]) -> None:
        """Send the metrics of this moment. Raises: any error, which is logged."""

    async def open(self, source: MetricsSource) -> None:
        """Start to send."""
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
