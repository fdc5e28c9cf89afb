"""`flink.metrics.exporters=prometheus`: the pages of metrics and of health."""

import socket
from dataclasses import replace

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from recordpublisher.fetcher.monitoring.metrics_exporter import WorkerHealth, WorkerMetrics
from recordpublisher.plugins.metrics.export import FetchersOfProcess, export_metrics, open_exporters
from recordpublisher.plugins.metrics.prometheus.exporter import PrometheusExporter, metrics_page
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import PROMETHEUS_ADDRESS
from recordpublisher.publishers.properties.properties import Properties

from fakes.monitoring.measured_fetcher import METRICS, SINK, MeasuredFetcher

ADDRESS = "flink.metrics.prometheus.address"
ANY_PORT = {"flink.metrics.exporters": "prometheus", ADDRESS: "127.0.0.1:0"}


class Workers(FetchersOfProcess):
    """Some fetchers, one of which may hang."""

    silent = None

    async def health(self):
        return [
            each if each.process != self.silent else type(each)(each.process, False, [])
            for each in await super().health()
        ]


@pytest.fixture
async def served():
    workers = Workers([MeasuredFetcher(0), MeasuredFetcher(1)])
    exporter = PrometheusExporter(Properties(ANY_PORT))
    async with open_exporters([exporter], workers):
        yield workers, exporter.url


async def get(url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_one_page_has_every_worker(served):
    _, url = served
    status, page = await get(f"{url}/metrics")

    assert status == 200
    assert 'recordpublisher_worker_records_total{process="0"} 4\n' in page
    assert 'recordpublisher_worker_records_total{process="1"} 4\n' in page


async def test_a_job_that_runs_is_alive_and_ready(served):
    _, url = served

    assert await get(f"{url}/healthz") == (200, "ok\n")
    assert await get(f"{url}/readyz") == (200, "ok\n0.0 s behind\n")


async def test_a_worker_that_is_not_ready_is_alive(served):
    workers, url = served
    workers._fetchers[1].reasons.append("no shard could be read for 60 s")

    assert await get(f"{url}/healthz") == (200, "ok\n")
    assert await get(f"{url}/readyz") == (503, "worker 1: no shard could be read for 60 s\n")


async def test_a_worker_that_hangs_is_neither(served):
    workers, url = served
    workers.silent = 1
    silence = (503, "worker 1: its event loop does not respond\n")

    assert await get(f"{url}/healthz") == await get(f"{url}/readyz") == silence


@pytest.mark.parametrize(
    "address",
    [
        "9249",
        "localhost",
        "localhost:port",
        "localhost:65536",
        ":9249",
        "::1:9249",
        "localhost:9250-9249",
        "localhost:0-5",
        "localhost:9249-",
        "a:9-65536",
    ],
)
def test_an_address_without_host_or_port_is_named(address):
    with pytest.raises(ConfigurationError, match=rf"(?s){ADDRESS}.*{address}.*host:port"):
        PrometheusExporter(Properties({ADDRESS: address}))


async def test_a_port_in_use_is_an_error_that_says_so():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=f"(?s){ADDRESS}.*{address}.*in use.*free port"):
            async with export_metrics({**ANY_PORT, ADDRESS: address}, MeasuredFetcher()):
                pass


async def test_a_taken_port_that_was_not_set_is_replaced_by_the_next_free_one(caplog, monkeypatch):
    caplog.set_level("INFO")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        default = replace(PROMETHEUS_ADDRESS, default=f"127.0.0.1:{port}-{port + 20}")
        monkeypatch.setattr("recordpublisher.plugins.metrics.prometheus.exporter.PROMETHEUS_ADDRESS", default)
        async with export_metrics({"flink.metrics.exporters": "prometheus"}, MeasuredFetcher()):
            pass
    lines = [(each.levelname, each.message) for each in caplog.records if "another process" in each.message]
    assert [level for level, _ in lines] == ["INFO"], "several workers of a server are meant to use the next ports"
    assert f"another process uses port {port}, so metrics and health are at port" in lines[0][1]


async def test_each_of_several_workers_takes_the_next_free_port_of_a_range():
    """Without a range the second worker of a web server could not start, or was at a port that Prometheus does not know."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        exporters = [PrometheusExporter(Properties({ADDRESS: f"127.0.0.1:{port}-{port + 20}"})) for _ in range(3)]
        async with open_exporters(exporters, FetchersOfProcess([MeasuredFetcher()])):
            ports = [int(exporter.url.rpartition(":")[2]) for exporter in exporters]
            assert [(await get(f"{exporter.url}/healthz"))[0] for exporter in exporters] == [200, 200, 200]

    assert port < ports[0] < ports[1] < ports[2] <= port + 20


async def test_a_range_without_a_free_port_is_an_error_that_names_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        exporter = PrometheusExporter(Properties({ADDRESS: f"127.0.0.1:{port}-{port}"}))
        with pytest.raises(ConfigurationError, match=f"(?s){port}-{port}.*in use.*host:first-last"):
            await exporter.open(None)


async def test_an_unknown_exporter_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ConfigurationError, match=r"(?s)flink.metrics.exporters.*statsd.*prometheus"):
        async with export_metrics({"flink.metrics.exporters": "statsd"}, MeasuredFetcher()):
            pass


async def test_without_the_property_nothing_is_exported():
    async with export_metrics({ADDRESS: "127.0.0.1:1"}, MeasuredFetcher()):
        pass


@pytest.mark.parametrize("host", ["x\0y", "a" * 70])
async def test_a_host_that_is_no_name_is_a_configuration_error(host):
    exporter = PrometheusExporter(Properties({"flink.metrics.prometheus.address": f"{host}:9249"}))
    with pytest.raises(ConfigurationError, match="an address of this machine"):
        await exporter.open(None)


def page(metrics=METRICS, workers=(0, 1), health=()):
    return metrics_page(
        [WorkerMetrics(number, metrics["worker"], metrics["shards"], SINK) for number in workers], health
    )


def samples(text):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Read:
    """The families of a page, for the library to write again."""

    def __init__(self, text):
        self._families = list(text_string_to_metric_families(text))

    def collect(self):
        return self._families


def test_the_library_writes_the_same_page():
    text = page(health=[WorkerHealth(0, True, []), WorkerHealth(1, False, [])])
    registry = CollectorRegistry()
    registry.register(Read(text))

    assert samples(generate_latest(registry).decode()) == samples(text)
    assert [line for line in generate_latest(registry).decode().splitlines() if line.startswith("# ")] == [
        line for line in text.splitlines() if line.startswith("# ")
    ]


def test_each_shard_of_each_worker_has_a_line_with_its_labels():
    found = samples(page())

    for worker in "01":
        for shard in "ab":
            labels = (("process", worker), ("shard", shard), ("stream", "s"))
            assert found["recordpublisher_shard_records_total", labels] == 2
        assert found["recordpublisher_worker_records_total", (("process", worker),)] == 4


def test_a_text_is_a_label():
    labels = (("process", "0"), ("shard", "a"), ("stage", "READING"), ("stream", "s"))

    assert samples(page())["recordpublisher_shard_stage_info", labels] == 1


def test_what_is_not_known_has_no_line():
    unknown = {**METRICS, "worker": {**METRICS["worker"], "globalWatermark": None}}

    assert "recordpublisher_worker_global_watermark_timestamp_seconds{" in page()
    assert "recordpublisher_worker_global_watermark_timestamp_seconds{" not in page(unknown)


def test_labels_are_escaped():
    odd = 'a"b\\c\nd'
    found = samples(page({**METRICS, "shards": {f"{odd}/x": METRICS["shards"]["s/a"]}}, workers=(0,)))

    assert ("recordpublisher_shard_records_total", (("process", "0"), ("shard", "x"), ("stream", odd))) in found


def test_a_worker_that_does_not_respond_is_down():
    found = samples(page(workers=(), health=[WorkerHealth(0, True, ["held"]), WorkerHealth(1, False, [])]))

    assert found == {
        ("recordpublisher_worker_up", (("process", "0"),)): 1,
        ("recordpublisher_worker_up", (("process", "1"),)): 0,
        ("recordpublisher_worker_ready", (("process", "0"),)): 0,
        ("recordpublisher_worker_ready", (("process", "1"),)): 0,
    }


def test_the_metrics_of_a_sink_have_a_line_for_each_worker():
    found = samples(page())

    for worker in "01":
        assert found["recordpublisher_sink_written_records_total", (("process", worker),)] == 0
        assert found["recordpublisher_sink_current_send_time_seconds", (("process", worker),)] == 0
    assert "# TYPE recordpublisher_sink_outstanding_bytes gauge" in page()
    assert page().count("# TYPE recordpublisher_sink_throttles_total ") == 1


def test_a_histogram_counts_in_each_bucket_the_lower_ones_too_in_seconds():
    given = {"bounds": [100, 2_500], "counts": [3, 2, 1], "sum": 9_500.5}
    found = samples(page({**METRICS, "worker": {**METRICS["worker"], "writeDelayMs": given}}, workers=[0]))
    name = "recordpublisher_worker_write_delay_seconds"
    buckets = {dict(labels)["le"]: value for (each, labels), value in found.items() if each == f"{name}_bucket"}

    assert buckets == {"0.1": 3, "2.5": 5, "+Inf": 6}
    assert found[f"{name}_sum", (("process", "0"),)] == 9.5005
    assert found[f"{name}_count", (("process", "0"),)] == 6
