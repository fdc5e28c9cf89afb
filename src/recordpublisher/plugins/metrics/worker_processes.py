"""Collects the metrics of workers that a supervisor runs. Each worker serves its metrics on a Unix socket, which the supervisor reads."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import aiohttp
import msgspec

from recordpublisher.fetcher.monitoring.metrics_exporter import (
    MetricsExporter,
    MetricsSource,
    WorkerHealth,
    WorkerMetrics,
)
from recordpublisher.publishers.properties.job_properties import JOB_NAME
from recordpublisher.publishers.properties.properties import Properties

from ..host.build_from_properties import build_metrics_exporters
from ..host.plugin_loading import load_registry
from .export import open_exporters
from .http_pages import HttpPages, Page

T = TypeVar("T")
RESPONSE_SECONDS = 5.0
"""A worker that does not answer within this time (seconds) counts as not responding. Prometheus itself waits 10 s by default."""
METRICS_PATH, HEALTH_PATH = "/metrics", "/health"


class WorkerProcesses:
    """The workers of a supervisor, numbered from 0, as a MetricsSource."""

    def __init__(self, folder: Path, count: int, job: str = "") -> None:
        self._job = job
        self._paths = [_socket_path(folder, number) for number in range(count)]

    async def metrics(self) -> list[WorkerMetrics]:
        """Return the metrics of every worker that responds."""
        found = await asyncio.gather(*(_read(path, METRICS_PATH, WorkerMetrics) for path in self._paths))
        return [
            msgspec.structs.replace(metrics, process=number)
            for number, answer in enumerate(found)
            for metrics in answer or ()
        ]

    async def health(self) -> list[WorkerHealth]:
        """Return the health of every worker, including workers that do not respond."""
        found = await asyncio.gather(*(_read(path, HEALTH_PATH, WorkerHealth) for path in self._paths))
        return [
            msgspec.structs.replace(health, process=number)
            for number, answer in enumerate(found)
            for health in answer or [WorkerHealth(number, False, [], job=self._job)]
        ]


@asynccontextmanager
async def exported_from_processes(
    properties: Properties, count: int, more: Sequence[MetricsExporter] = ()
) -> AsyncIterator[Path | None]:
    """Export the metrics of all workers while the block runs. The supervisor calls this.

    Yield the folder for the workers' sockets, or None if there is no exporter. Only this user can read the folder.

    - `properties`: `flink.metrics.exporters` names the exporters.
    - `count`: the number of workers.
    - `more`: further exporters, such as a dashboard.

    Raises: ConfigurationError if an exporter's properties are invalid.
    """
    exporters = [*build_metrics_exporters(load_registry(), properties), *more]
    if not exporters:
        yield None
        return
    # Only this user can read a temporary folder, so other users of the machine cannot read the metrics.
    with TemporaryDirectory(prefix="recordpublisher-") as folder:
        job = properties.value(JOB_NAME) or ""
        async with open_exporters(exporters, WorkerProcesses(Path(folder), count, job)):
            yield Path(folder)


class WorkerSocket(MetricsExporter):
    """Serves the metrics and health of a worker to the supervisor, from the process of the worker. Owns the socket."""

    def __init__(self, folder: Path, number: int) -> None:
        self._path = _socket_path(folder, number)
        self._pages = HttpPages({METRICS_PATH: self._metrics, HEALTH_PATH: self._health})

    async def open(self, source: MetricsSource) -> None:
        """Listen on the socket."""
        self._source = source
        await self._pages.listen_on_path(self._path)

    async def close(self) -> None:
        """Stop listening."""
        await self._pages.close()

    async def _metrics(self) -> Page:
        return Page(msgspec.json.encode(await self._source.metrics()))

    async def _health(self) -> Page:
        return Page(msgspec.json.encode(await self._source.health()))


async def _read(path: Path, page: str, kind: type[T]) -> list[T] | None:
    """Return the content of a worker's page, or None if the worker does not respond in time, or responds with something else."""
    connector = aiohttp.UnixConnector(str(path))
    timeout = aiohttp.ClientTimeout(total=RESPONSE_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get(f"http://worker{page}", raise_for_status=True) as response,
        ):
            return msgspec.json.decode(await response.read(), type=list[kind])  # type: ignore[valid-type]
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        # The process may have ended, its event loop may be blocked, or it cannot make the page. The other workers are shown nevertheless.
        return None


def _socket_path(folder: Path, number: int) -> Path:
    return folder / f"{number}.sock"
