"""Metrics of a program that only produces, or that serves them on a page of its own."""

import json

import aiohttp
import pytest

import recordpublisher as rp
from recordpublisher.plugins.metrics.export import export_metrics, metrics_text
from recordpublisher.plugins.metrics.prometheus.exporter import PrometheusExporter

from fakes.monitoring.measured_fetcher import MeasuredFetcher

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
    assert pages["/healthz"] == pages["/readyz"] == (200, "ok\n")
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
    assert "Subtask" not in line


def test_the_text_is_the_page(producer):
    text = metrics_text(producer)
    assert "# TYPE recordpublisher_sink_written_records_total counter\n" in text
    assert 'recordpublisher_producer_ready{producer="out"} 1\n' in text
    assert 'recordpublisher_sink_failing_seconds{producer="out"} 0.0\n' in text
    assert "subtask" not in text
    assert "recordpublisher_shard_" not in text


def test_producers_have_the_names_of_their_streams_beside_fetchers():
    of_an_arn = rp.KinesisSink("arn:aws:kinesis:eu-west-1:123456789012:stream/a", ACCESS)
    text = metrics_text(rp.Producer("a", ACCESS), MeasuredFetcher(3), rp.Producer("b", ACCESS), of_an_arn)
    ready = [line.split("{")[1] for line in text.splitlines() if line.startswith("recordpublisher_producer_ready{")]
    assert ready == ['producer="a"} 1', 'producer="b"} 1', 'producer="a-2"} 1']
    assert 'recordpublisher_subtask_up{subtask="3"} 1\n' in text


async def test_what_has_no_metrics_is_refused_at_once():
    with pytest.raises(TypeError, match="MemorySink has no metrics to export"):
        metrics_text(rp.MemorySink())
    with pytest.raises(TypeError, match="MemorySink has no metrics to export"):
        async with export_metrics({}, rp.MemorySink()):
            pass
