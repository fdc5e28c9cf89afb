"""LiveDashboard: serves the snapshots of a job on loopback while it runs (`run --dashboard`)."""

from __future__ import annotations

import logging

from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter, MetricsSource
from recordpublisher.publishers.clock import SystemClock

from .live_snapshot import LiveSnapshots
from .server import DashboardServer

log = logging.getLogger("recordpublisher.metrics")


class LiveDashboard(MetricsExporter):
    """Owns the server. It reads the same metrics as other exporters, and only when a page is asked for."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: DashboardServer | None = None

    async def open(self, source: MetricsSource) -> None:
        """Listen, and log where. Raises: ConfigurationError for `port`."""
        self._server = DashboardServer(LiveSnapshots(source, SystemClock()))
        url = await self._server.open(self._port)
        log.info("the dashboard is at %s", url)

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.close()
