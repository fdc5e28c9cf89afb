"""`rp.export_metrics`: exports the metrics of fetchers while a block runs, to where the properties say (A1)."""

from __future__ import annotations

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
    """Export the metrics of these fetchers while the block runs: `async with rp.export_metrics(properties, fetcher), fetcher:`.

    `flink.metrics.exporters` in the properties says where to; without it nothing is exported. `recordpublisher run` does this by itself.
    Raises: ConfigurationError.
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
