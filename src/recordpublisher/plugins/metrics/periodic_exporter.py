"""PeriodicExporter: an exporter that sends the metrics after each interval, and once more at its end."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod

from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter, MetricsSource, SubtaskMetrics
from recordpublisher.publishers.properties.groups.metrics import METRICS_INTERVAL
from recordpublisher.publishers.properties.properties import Properties

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
