"""Exported metrics: their names, those of producers, and those of workers in other processes."""

import asyncio
import contextlib
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

import recordpublisher as rp
from recordpublisher.fetcher.monitoring.shard_view import SHARD_METRICS
from recordpublisher.fetcher.monitoring.worker_view import WORKER_METRICS
from recordpublisher.local import in_memory
from recordpublisher.plugins.metrics import worker_processes
from recordpublisher.plugins.metrics.cloudwatch import CloudWatchExporter
from recordpublisher.plugins.metrics.export import (
    EXPORTED_SHARD_METRICS,
    EXPORTED_WORKER_METRICS,
    FetchersOfProcess,
    as_measured_fetchers,
    export_metrics,
    open_exporters,
)
from recordpublisher.plugins.metrics.prometheus.exporter import PrometheusExporter, metrics_text
from recordpublisher.plugins.metrics.worker_processes import WorkerProcesses, WorkerSocket, exported_from_processes
from recordpublisher.publishers.properties.properties import Properties

from fakes.monitoring.measured_fetcher import MeasuredFetcher

EXPORTED = {(one.scope, one.source): one for one in (*EXPORTED_WORKER_METRICS, *EXPORTED_SHARD_METRICS)}


@pytest.mark.parametrize(
    ("scope", "source", "name", "value", "exported"),
    [
        ("shard", "millisBehindLatest", "recordpublisher_shard_behind_latest_seconds", 1500, 1.5),
        ("shard", "heldMs", "recordpublisher_shard_held_seconds_total", 20, 0.02),
        ("shard", "bytesRead", "recordpublisher_shard_read_bytes_total", 7, 7),
        ("shard", "bytes", "recordpublisher_shard_bytes_total", 7, 7),
        ("shard", "queuedBytes", "recordpublisher_shard_queued_bytes", 7, 7),
        ("shard", "idle", "recordpublisher_shard_idle", True, 1),
        ("shard", "watermark", "recordpublisher_shard_watermark_timestamp_seconds", 1500, 1.5),
        ("worker", "records", "recordpublisher_worker_records_total", 7, 7),
        ("worker", "workersWanted", "recordpublisher_worker_workers_wanted", 1.33, 1.33),
    ],
)
def test_units_are_base_units_and_counters_end_in_total(scope, source, name, value, exported):
    metric = EXPORTED[scope, source]

    assert (metric.prometheus_name, metric.number(value)) == (name, exported)


def test_what_is_not_known_has_no_value():
    assert EXPORTED["worker", "localWatermark"].number(None) is None
    assert EXPORTED["shard", "millisBehindLatest"].number(-1) is None
    assert EXPORTED["shard", "timeToRetentionLossMs"].number(-1000) == -1


def test_no_name_says_twice_what_a_metric_is_of():
    assert [
        one.prometheus_name for (scope, _), one in EXPORTED.items() if f"{scope}_{scope}_" in one.prometheus_name
    ] == []


def test_every_metric_is_exported_under_a_name_of_its_own():
    assert len(EXPORTED) == len(WORKER_METRICS) + len(SHARD_METRICS)
    assert len({one.prometheus_name for one in EXPORTED.values()}) == len(EXPORTED)


ACCESS = {"aws.region": "eu-west-1"}


@pytest.fixture(params=[rp.KinesisSink, rp.Producer])
def producer(request):
    return request.param("out", ACCESS)


async def test_a_program_that_only_produces_has_all_pages(producer, monkeypatch):
    made = []
    listen = PrometheusExporter.open
    monkeypatch.setattr(PrometheusExporter, "open", lambda self, source: made.append(self) or listen(self, source))
    given = {"flink.metrics.exporters": "prometheus", "flink.metrics.prometheus.address": "127.0.0.1:0"}
    async with export_metrics(given, producer), aiohttp.ClientSession() as session:
        pages = {}
        for path in ("/metrics", "/healthz", "/readyz"):
            async with session.get(made[0].url + path) as response:
                pages[path] = response.status, await response.text()
    assert pages["/healthz"] == (200, "ok\n")
    assert pages["/readyz"][0] == (200 if isinstance(producer, rp.Producer) else 503)  # a sink is ready when it is open
    assert pages["/metrics"][0] == 200
    assert 'recordpublisher_sink_written_records_total{producer="out"} 0\n' in pages["/metrics"][1]


def test_cloudwatch_writes_the_metrics_of_a_producer(producer, tmp_path):
    import asyncio

    file = tmp_path / "metrics.log"

    async def run():
        given = {"flink.metrics.exporters": "cloudwatch", "flink.metrics.cloudwatch.file": str(file)}
        async with export_metrics(given, producer):
            pass

    asyncio.run(run())
    line = json.loads(file.read_text())
    assert (line["sinkNumRecordsOut"], line["Producer"]) == (0, "out")
    assert "Process" not in line


def test_the_text_is_the_page(producer):
    text = metrics_text(producer)
    assert "# TYPE recordpublisher_sink_written_records_total counter\n" in text
    assert 'recordpublisher_producer_ready{producer="out"} ' in text
    assert 'recordpublisher_sink_failing_seconds{producer="out"} 0.0\n' in text
    assert "recordpublisher_worker_" not in text
    assert "process=" not in text
    assert "recordpublisher_shard_" not in text


def test_no_two_producers_have_one_name():
    """Two series of one name would be one counter that falls and rises."""
    producers = [rp.KinesisSink(stream, ACCESS) for stream in ("orders", "orders", "orders-2", "orders")]
    text = rp.metrics_text(*producers)
    names = re.findall(r'^recordpublisher_sink_written_records_total.producer="(.*)"', text, re.MULTILINE)
    assert names == ["orders", "orders-3", "orders-2", "orders-4"]


def test_producers_have_the_names_of_their_streams_beside_fetchers():
    of_an_arn = rp.KinesisSink("arn:aws:kinesis:eu-west-1:123456789012:stream/a", ACCESS)
    text = metrics_text(rp.Producer("a", ACCESS), MeasuredFetcher(0), rp.Producer("b", ACCESS), of_an_arn)
    ready = [line.split("{")[1] for line in text.splitlines() if line.startswith("recordpublisher_producer_ready{")]
    assert ready == ['producer="a"} 1', 'producer="b"} 1', 'producer="a-2"} 0']  # a sink that is not open is not ready
    assert 'recordpublisher_worker_up{process="0"} 1\n' in text


async def test_two_jobs_of_one_process_are_told_apart():
    """Both jobs may read the same shards, and the number of a process is only the place of its fetcher in the arguments."""
    names = {"process": "0", "job_name": "payments"}, {"process": "1", "job_name": "ledger"}
    fetchers = [rp.DataFetcher("s", ACCESS, sink=rp.MemorySink(), job_name=each["job_name"]) for each in names]
    measured = [MeasuredFetcher(job_name=each.job_name) for each in fetchers]
    text = metrics_text(*measured, rp.Producer("a", ACCESS))
    of_jobs = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    of_jobs = [sample for sample in of_jobs if "producer" not in sample.labels]

    assert {sample.name for sample in of_jobs} >= {
        "recordpublisher_worker_up",
        "recordpublisher_worker_ready",
        "recordpublisher_worker_records_total",
        "recordpublisher_shard_records_total",
    }
    assert {(sample.labels["process"], sample.labels.get("job_name")) for sample in of_jobs} == {
        tuple(each.values()) for each in names
    }
    assert [each.name for each in await FetchersOfProcess(measured).health()] == [
        "worker 0 of job payments",
        "worker 1 of job ledger",
    ]


async def test_what_has_no_metrics_is_refused_at_once():
    with pytest.raises(TypeError, match="MemorySink has no metrics to export"):
        metrics_text(rp.MemorySink())
    with pytest.raises(TypeError, match="MemorySink has no metrics to export"):
        async with export_metrics({}, rp.MemorySink()):
            pass


@pytest.fixture
def folder():
    with TemporaryDirectory() as folder:  # the path of a Unix socket must be short
        yield Path(folder)


def serving(folder, *workers):
    fetchers = [FetchersOfProcess([fetcher]) for fetcher in workers]
    sockets = [WorkerSocket(folder, number) for number in range(len(workers))]
    return [open_exporters([socket], fetcher) for socket, fetcher in zip(sockets, fetchers, strict=True)]


async def test_metrics_and_health_arrive_as_they_were_sent(folder):
    first, second = MeasuredFetcher(0), MeasuredFetcher(1, reasons=["no"])
    serving_first, serving_second = serving(folder, first, second)
    async with serving_first, serving_second:
        processes = WorkerProcesses(folder, 2)

        assert await processes.metrics() == await FetchersOfProcess([first, second]).metrics()
        assert await processes.health() == await FetchersOfProcess([first, second]).health()


async def test_a_worker_that_has_not_started_does_not_respond(folder):
    (serving_first,) = serving(folder, MeasuredFetcher(0))
    async with serving_first:
        processes = WorkerProcesses(folder, 2)

        assert [each.process for each in await processes.metrics()] == [0]
        assert [(each.process, each.responds) for each in await processes.health()] == [(0, True), (1, False)]


async def test_a_worker_that_hangs_does_not_respond(folder, monkeypatch):
    monkeypatch.setattr(worker_processes, "RESPONSE_SECONDS", 0.05)
    is_asked = asyncio.Event()

    async def accept(reader, writer):
        is_asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(accept, folder / "0.sock"):
        assert not (await WorkerProcesses(folder, 1).health())[0].responds
        assert is_asked.is_set()


async def test_a_worker_that_cannot_make_its_page_hides_no_other(folder, monkeypatch):
    def fails(_):
        raise RuntimeError("no")

    fine, broken = MeasuredFetcher(0), MeasuredFetcher(1)
    monkeypatch.setattr(broken, "metrics", fails.__get__(broken))
    monkeypatch.setattr(broken, "reasons_not_ready", fails.__get__(broken))
    serving_fine, serving_broken = serving(folder, fine, broken)
    async with serving_fine, serving_broken:
        processes = WorkerProcesses(folder, 2)

        assert [each.process for each in await processes.metrics()] == [0]
        assert [(each.process, each.responds) for each in await processes.health()] == [(0, True), (1, False)]


class Measuring:
    """A program that only produces, with one gauge."""

    stream = "orders"

    def __init__(self, value):
        self._value = value

    def exported_metrics(self):
        return [rp.SinkMetric("fill", rp.MetricType.GAUGE, "", "how full it is", self._value)]

    def reasons_not_ready(self):
        return []


@pytest.mark.parametrize(
    ("value", "lines"), [(0.75, ["0.75"]), (True, ["1"]), (3, ["3"]), (float("nan"), []), (float("inf"), [])]
)
def test_a_gauge_keeps_its_fraction_and_one_that_is_no_number_has_no_line(value, lines, tmp_path):
    text = metrics_text(Measuring(value))
    found = [line.split()[1] for line in text.splitlines() if line.startswith("recordpublisher_sink_fill{")]
    assert found == lines

    file = tmp_path / "metrics.emf"
    exporter = CloudWatchExporter(Properties({"flink.metrics.cloudwatch.file": str(file)}))
    asyncio.run(exporter.send(FetchersOfProcess(as_measured_fetchers([Measuring(value)])).measure()))
    (line,) = map(json.loads, file.read_text().splitlines())
    assert [str(line[name]) for name in line if name == "sinkFill"] == lines


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


async def test_an_exporter_that_no_property_names_reads_the_workers_too():
    exporter = OpenedExporter()
    async with exported_from_processes(Properties(), 2, [exporter]) as folder:
        (serving_first,) = serving(folder, MeasuredFetcher(0))
        async with serving_first:
            assert [each.process for each in await exporter.source.metrics()] == [0]


@pytest.mark.parametrize(("exports", "lines"), [(False, 1), (True, 0)])
async def test_a_fetcher_whose_properties_name_exporters_says_that_a_program_starts_them(
    caplog, tmp_path, exports, lines
):
    properties = {"flink.metrics.exporters": "cloudwatch", "flink.metrics.cloudwatch.file": str(tmp_path / "metrics")}
    with in_memory({"orders": 1}):
        fetcher = rp.DataFetcher("orders", properties, sink=rp.MemorySink(), region="us-east-1")
        async with rp.export_metrics(properties, fetcher) if exports else contextlib.nullcontext(), fetcher:
            running = asyncio.create_task(fetcher.run())
            await asyncio.sleep(0.1)
            fetcher.stop()
            await running
    assert len([line for line in caplog.messages if "flink.metrics.exporters has no effect yet" in line]) == lines
