"""Collects the metrics of subtasks that run as processes: each serves its metrics on a Unix socket, where the supervisor reads them."""

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
    SubtaskHealth,
    SubtaskMetrics,
)
from recordpublisher.publishers.properties.properties import Properties

from ..host.build_from_properties import build_metrics_exporters
from ..host.manager import load_registry
from .export import exporters_opened
from .http_pages import HttpPages, Page

T = TypeVar("T")
RESPONSE_SECONDS = 5.0
"""A subtask that takes longer counts as not responding. Prometheus itself waits 10 s by default."""
METRICS_PATH, HEALTH_PATH = "/metrics", "/health"


@asynccontextmanager
async def exported_from_processes(
    properties: Properties, parallelism: int, more: Sequence[MetricsExporter] = ()
) -> AsyncIterator[Path | None]:
    """Export the metrics of all subtasks while the block runs. The supervisor calls this.

    Yield the folder for the subtasks' sockets, which only this user can read, or None if there is no exporter.

    - `properties`: `flink.metrics.exporters` names the exporters.
    - `more`: further exporters, such as a dashboard.

    Raises: ConfigurationError if an exporter's properties are invalid.
    """
    exporters = [*build_metrics_exporters(load_registry(), properties), *more]
    if not exporters:
        yield None
        return
    # Only this user can read a temporary folder, so other users of the machine cannot read the metrics.
    with TemporaryDirectory(prefix="recordpublisher-") as folder:
        async with exporters_opened(exporters, SubtaskProcesses(Path(folder), parallelism)):
            yield Path(folder)


class SubtaskSocket(MetricsExporter):
    """Serves the metrics and health of a subtask to the supervisor, from the process of the subtask. Owns the socket."""

    def __init__(self, folder: Path, subtask: int) -> None:
        self._path = _socket_path(folder, subtask)
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


class SubtaskProcesses:
    """The subtasks of a supervisor, as a MetricsSource."""

    def __init__(self, folder: Path, parallelism: int) -> None:
        self._paths = {subtask: _socket_path(folder, subtask) for subtask in range(parallelism)}

    async def metrics(self) -> list[SubtaskMetrics]:
        """Return the metrics of every subtask that responds."""
        found = await asyncio.gather(*(_read(path, METRICS_PATH, SubtaskMetrics) for path in self._paths.values()))
        return [metrics for of_subtask in found if of_subtask for metrics in of_subtask]

    async def health(self) -> list[SubtaskHealth]:
        """Return the health of every subtask, including subtasks that do not respond."""
        found = await asyncio.gather(*(_read(path, HEALTH_PATH, SubtaskHealth) for path in self._paths.values()))
        silent = [SubtaskHealth(subtask, False, []) for subtask in self._paths]
        return [health for no_answer, answer in zip(silent, found, strict=True) for health in answer or [no_answer]]


async def _read(path: Path, page: str, kind: type[T]) -> list[T] | None:
    """Return a subtask's page, or None if the subtask does not respond in time."""
    connector = aiohttp.UnixConnector(str(path))
    timeout = aiohttp.ClientTimeout(total=RESPONSE_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get(f"http://subtask{page}") as response,
        ):
            return msgspec.json.decode(await response.read(), type=list[kind])  # type: ignore[valid-type]
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None  # The process may have ended, or its event loop is blocked. The others are shown all the same.


def _socket_path(folder: Path, subtask: int) -> Path:
    return folder / f"{subtask}.sock"
