"""`flink.metrics.exporters=opentelemetry`: a collector receives the metrics by OTLP."""

import gzip
import sys

import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.metrics.export import (
    EXPORTED_SHARD_METRICS,
    EXPORTED_WORKER_METRICS,
    FetchersOfProcess,
    open_exporters,
)
from recordpublisher.plugins.metrics.opentelemetry import OpenTelemetryExporter
from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.properties.properties import Properties

from fakes.monitoring.measured_fetcher import METRICS, SINK, MeasuredFetcher


class Collector:
    """Owns what was received; refuses it with `status` if that is not 200."""

    def __init__(self):
        self.received = []
        self.status = 200

    async def take(self, request):
        body = await request.read()
        body = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        self.received.append(ExportMetricsServiceRequest.FromString(body))
        return web.Response(status=self.status)

    @property
    def metrics(self):
        (of_resource,) = self.received[-1].resource_metrics
        return {metric.name: metric for scope in of_resource.scope_metrics for metric in scope.metrics}

    @property
    def resource(self):
        return attributes(self.received[-1].resource_metrics[0].resource)


def attributes(given):
    return {each.key: each.value.string_value or each.value.int_value for each in given.attributes}


@pytest.fixture
async def collector(monkeypatch):
    collector = Collector()
    runner = web.ServerRunner(web.Server(collector.take))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield collector
    await runner.cleanup()


async def export(collector, *fetchers):
    """One export, that of the end."""
    exporter = OpenTelemetryExporter(Properties({"flink.job.name": "orders"}))
    async with open_exporters([exporter], FetchersOfProcess(fetchers)):
        pass


async def test_records_have_the_name_and_the_attributes_of_the_conventions(collector):
    await export(collector, MeasuredFetcher(0))
    metric = collector.metrics["messaging.client.consumed.messages"]

    assert metric.unit == "{message}"
    assert metric.sum.is_monotonic
    assert [(point.as_int, attributes(point)) for point in metric.sum.data_points] == [
        (
            2,
            {
                "messaging.system": "aws_kinesis",
                "messaging.operation.name": "poll",
                "messaging.destination.name": "s",
                "messaging.destination.partition.id": shard,
                "recordpublisher.process": 0,
            },
        )
        for shard in "ab"
    ]


async def test_gauges_are_in_base_units(collector):
    await export(collector, MeasuredFetcher())
    metric = collector.metrics["recordpublisher.shard.watermark_timestamp"]

    assert metric.unit == "s"
    assert [point.as_double for point in metric.gauge.data_points] == [1_700_000_000.5] * 2


async def test_the_job_is_the_service(collector):
    await export(collector, MeasuredFetcher())

    assert collector.resource["service.name"] == "orders"


async def test_two_jobs_have_their_names_as_an_attribute(collector):
    await export(collector, MeasuredFetcher(job_name="payments"), MeasuredFetcher(job_name="ledger"))
    of_workers = collector.metrics["recordpublisher.worker.records"].sum.data_points
    of_shards = collector.metrics["messaging.client.consumed.messages"].sum.data_points

    assert [attributes(point)["recordpublisher.job"] for point in of_workers] == ["payments", "ledger"]
    assert {attributes(point)["recordpublisher.job"] for point in of_shards} == {"payments", "ledger"}


async def test_a_collector_that_refuses_is_a_warning_and_the_job_goes_on(collector, caplog):
    collector.status = 400
    await export(collector, MeasuredFetcher())

    assert (
        "metrics were not sent; the next interval tries again: ConnectionError: the collector did not accept the metrics"
        in caplog.text
    )


async def test_nothing_is_sent_when_no_worker_responds(collector):
    await export(collector)

    assert collector.received == []


def test_every_metric_has_a_name_of_its_own():
    every = [one.opentelemetry_name for one in (*EXPORTED_WORKER_METRICS, *EXPORTED_SHARD_METRICS)]

    assert len(set(every)) == len(every)


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.delitem(sys.modules, OpenTelemetryExporter.__module__)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)

    with pytest.raises(PluginError, match=r"pip install .*\[opentelemetry\]'"):
        load_registry().metrics_exporters.get("opentelemetry", "")


async def test_the_metrics_of_the_sink_are_sent_too(collector):
    await export(collector, MeasuredFetcher(0, sink=SINK))

    found = collector.metrics["recordpublisher.sink.throttles"]
    (point,) = found.sum.data_points
    assert (attributes(point), point.as_int) == ({"recordpublisher.process": 0}, 0)
    assert collector.metrics["recordpublisher.sink.outstanding_bytes"].unit == "By"


async def test_a_histogram_is_sent_with_its_buckets_in_seconds(collector):
    given = {"bounds": [100, 2_500], "counts": [3, 2, 1], "sum": 9_500.5}
    await export(collector, MeasuredFetcher(given={**METRICS, "worker": {**METRICS["worker"], "writeDelayMs": given}}))

    metric = collector.metrics["recordpublisher.worker.write_delay"]
    (point,) = metric.histogram.data_points
    assert (metric.unit, point.count, point.sum) == ("s", 6, 9.5005)
    assert (list(point.bucket_counts), list(point.explicit_bounds)) == ([3, 2, 1], [0.1, 2.5])
    assert not point.HasField("min")
    assert not point.HasField("max")
