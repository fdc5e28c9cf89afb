"""The page of metrics names exactly what a fetcher shows (A1)."""

import re

from recordpublisher.fetcher.metric_types import MetricType
from recordpublisher.fetcher.monitoring.metrics_exporter import WorkerMetrics
from recordpublisher.fetcher.monitoring.shard_view import SHARD_METRICS
from recordpublisher.fetcher.monitoring.worker_view import WORKER_METRICS
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.plugins.metrics.export import exported_tables
from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher
from processes.command_line import ROOT

PAGE = (ROOT / "docs/reference/metrics.md").read_text()


def named(heading: str) -> list[str]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]


async def metrics_of_a_run():
    source = ScriptedSource()
    source.add("a", 1, 2)
    fetcher = make_fetcher(source, RecordingSink())
    await fetcher.open()
    await fetcher.run_bounded(Bounds(stop_at_tip=True))
    await fetcher.close()
    return fetcher.metrics()


def test_every_metric_is_on_the_page_in_its_order():
    shown = run_virtual(metrics_of_a_run())

    assert named("Of a worker") == list(shown["worker"])
    assert named("Of a shard") == list(shown["shards"]["s/a"])


def test_every_metric_of_the_kinesis_sink_is_on_the_page_in_its_order():
    sink = KinesisSink("out", {"aws.region": "eu-west-1"})
    shown = sink.exported_metrics()
    names = [metric.prometheus_name for metric in exported_tables([WorkerMetrics(0, {}, {}, shown)])[1][0]]

    rows = (ROOT / "docs/reference/kinesis-sink-metrics.md").read_text().splitlines()
    assert [each.name for each in shown] == list(sink.metrics())
    assert [row for row in rows if row.startswith("| `")] == [
        f"| `{each.name}` | {each.type} | {each.unit} | {each.description} | `{name}` |"
        for each, name in zip(shown, names, strict=True)
    ]


def test_the_page_says_about_how_many_metrics_cloudwatch_bills():
    page = (ROOT / "docs/operate/export-metrics.md").read_text()
    numbers = [sum(metric.type is not MetricType.TEXT for metric in table) for table in (WORKER_METRICS, SHARD_METRICS)]

    limits = [int(count) for count in re.findall(r"fewer than (\d+)", page)]
    assert [number < limit <= number + 12 for number, limit in zip(numbers, limits, strict=True)] == [True, True]


def test_each_metric_that_means_loss_is_marked_in_a_table():
    listed = re.findall(r"^    - `(\w+)`: ", PAGE, re.MULTILINE)
    marked = re.findall(r"^\| `(\w+)` \| [^|]* \| \*\*Loss:\*\* ", PAGE, re.MULTILINE)
    of_sink = [metric.name for metric in KinesisSink("out", {"aws.region": "eu-west-1"}).exported_metrics()]

    assert len(listed) > 5
    assert set(listed) == {*marked, "numRecordsOutErrors"}
    assert "numRecordsOutErrors" in of_sink
