"""PrometheusExporter: the pages /metrics, /healthz and /readyz."""

from __future__ import annotations

import logging
import os

from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter, MetricsSource, SubtaskHealth
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.metrics import PROMETHEUS_ADDRESS
from recordpublisher.publishers.properties.properties import Properties

from ..http_pages import LOCAL_NAMES, HttpPages, Page
from .text_format import CONTENT_TYPE, page_of

log = logging.getLogger("recordpublisher.metrics")
_VALID = "host:port, for example 127.0.0.1:9249, or 0.0.0.0:9249 for other machines"


class PrometheusExporter(MetricsExporter):
    """Serves the pages of one machine, at `flink.metrics.prometheus.address`. Raises: ConfigurationError."""

    def __init__(self, properties: Properties) -> None:
        self._address = properties.value(PROMETHEUS_ADDRESS)
        self._host, self._port = host_and_port(self._address)
        pages = {"/metrics": self._metrics, "/healthz": self._alive, "/readyz": self._ready}
        self._pages = HttpPages(pages, is_local=self._host in LOCAL_NAMES)

    @property
    def url(self) -> str:
        """Where the pages are, once it is open."""
        return f"http://{self._host}:{self._port}"

    async def open(self, source: MetricsSource) -> None:
        """Listen. Raises: ConfigurationError when the address cannot be used."""
        self._source = source
        try:
            self._port = await self._pages.listen(self._host.strip("[]"), self._port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigurationError(
                PROMETHEUS_ADDRESS.key, self._address, "an address of this machine with a free port", reason=reason
            ) from error
        log.info("metrics are at %s/metrics, health at /healthz and /readyz", self.url)

    async def close(self) -> None:
        """Stop listening and close every connection."""
        await self._pages.close()

    async def _metrics(self) -> Page:
        page = page_of(await self._source.metrics(), await self._source.health())
        return Page(page.encode(), content_type=CONTENT_TYPE)

    async def _alive(self) -> Page:
        return _health_page([_silence(each) for each in await self._source.health() if not each.responds])

    async def _ready(self) -> Page:
        health = await self._source.health()
        reasons = [f"subtask {each.subtask}: {reason}" for each in health for reason in each.not_ready]
        return _health_page([_silence(each) for each in health if not each.responds] + reasons)


def _silence(health: SubtaskHealth) -> str:
    return f"subtask {health.subtask}: its event loop does not respond"


def _health_page(reasons: list[str]) -> Page:
    return Page("\n".join([*(reasons or ["ok"]), ""]).encode(), status=503 if reasons else 200)


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of an address. Raises: ConfigurationError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) < 65_536:
        raise ConfigurationError(PROMETHEUS_ADDRESS.key, address, _VALID)
    return host, int(port)
