"""LiveDashboard: serves the snapshots of a job on loopback while it runs (`run --dashboard`)."""

from __future__ import annotations

import logging

from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter, MetricsSource
from recordpublisher.publishers.clock import SystemClock

from .history import History
from .live_snapshot import LiveSnapshots
from .server import DashboardServer

HISTORY_INTERVAL_SECONDS = 10.0
"""A point costs what a page's reading costs: 10 ms of CPU at 1,000 shards."""
log = logging.getLogger("recordpublisher.metrics")


class LiveDashboard(MetricsExporter):
    """Owns the server. It reads the same metrics as other exporters: when a page is open, and now and then for its charts."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: DashboardServer | None = None

    async def open(self, source: MetricsSource) -> None:
        """Listen, and log where. Raises: ConfigurationError for `port`."""
        snapshots, clock = LiveSnapshots(source, SystemClock()), SystemClock()
        self._server = DashboardServer(snapshots, History(snapshots, clock, HISTORY_INTERVAL_SECONDS))
        url = await self._server.open(self._port)
        log.info("the dashboard is at %s", url)

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.close()
