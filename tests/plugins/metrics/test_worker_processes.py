"""The metrics of workers in processes of their own reach the supervisor's page."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from recordpublisher.plugins.metrics import worker_processes
from recordpublisher.plugins.metrics.export import FetchersHere, exporters_opened
from recordpublisher.plugins.metrics.worker_processes import (
    WorkerProcesses,
    WorkerSocket,
    exported_from_processes,
)
from recordpublisher.publishers.properties.properties import Properties

from fakes.monitoring.measured_fetcher import MeasuredFetcher


@pytest.fixture
def folder():
    with TemporaryDirectory() as folder:  # the path of a Unix socket must be short
        yield Path(folder)


def serving(folder, *subtasks):
    fetchers = [FetchersHere([fetcher]) for fetcher in subtasks]
    sockets = [WorkerSocket(folder, number) for number in range(len(subtasks))]
    return [exporters_opened([socket], fetcher) for socket, fetcher in zip(sockets, fetchers, strict=True)]


async def test_metrics_and_health_arrive_as_they_were_sent(folder):
    first, second = MeasuredFetcher(0), MeasuredFetcher(1, reasons=["no"])
    serving_first, serving_second = serving(folder, first, second)
    async with serving_first, serving_second:
        processes = WorkerProcesses(folder, 2)

        assert await processes.metrics() == await FetchersHere([first, second]).metrics()
        assert await processes.health() == await FetchersHere([first, second]).health()


async def test_a_subtask_that_has_not_started_does_not_respond(folder):
    (serving_first,) = serving(folder, MeasuredFetcher(0))
    async with serving_first:
        processes = WorkerProcesses(folder, 2)

        assert [each.subtask for each in await processes.metrics()] == [0]
        assert [(each.subtask, each.responds) for each in await processes.health()] == [(0, True), (1, False)]


async def test_a_subtask_that_hangs_does_not_respond(folder, monkeypatch):
    monkeypatch.setattr(worker_processes, "RESPONSE_SECONDS", 0.05)
    is_asked = asyncio.Event()

    async def accept(reader, writer):
        is_asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(accept, folder / "0.sock"):
        assert not (await WorkerProcesses(folder, 1).health())[0].responds
        assert is_asked.is_set()


async def test_without_an_exporter_there_are_no_sockets():
    async with exported_from_processes(Properties(), 2) as folder:
        assert folder is None


async def test_the_folder_is_private_and_goes_with_the_job():
    properties = Properties(
        {"flink.metrics.exporters": "prometheus", "flink.metrics.prometheus.address": "127.0.0.1:0"}
    )
    async with exported_from_processes(properties, 2) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


class OpenedExporter:
    """Remembers the source that it was opened with."""

    source = None

    async def open(self, source):
        self.source = source

    async def close(self):
        pass


async def test_an_exporter_that_no_property_names_reads_the_subtasks_too():
    exporter = OpenedExporter()
    async with exported_from_processes(Properties(), 2, [exporter]) as folder:
        (serving_first,) = serving(folder, MeasuredFetcher(0))
        async with serving_first:
            assert [each.subtask for each in await exporter.source.metrics()] == [0]
