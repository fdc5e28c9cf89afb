"""`flink.metrics.exporters=cloudwatch`: lines in the embedded metric format."""

import asyncio
import io
import json
import sys

import pytest

from recordpublisher.fetcher.monitoring.metrics_exporter import WorkerMetrics
from recordpublisher.plugins.metrics.cloudwatch import CloudWatchExporter
from recordpublisher.plugins.metrics.export import FetchersOfProcess, open_exporters
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual

from fakes.monitoring.measured_fetcher import METRICS, SINK, MeasuredFetcher


class FixedClock(VirtualClock):
    def now_ms(self):
        return EPOCH_MS


def with_records(records):
    return {**METRICS, "worker": {**METRICS["worker"], "records": records}}


def written(tmp_path, *counts, **properties):
    """The lines of a job whose worker has these counts of records, one in each interval, then the last once more."""
    file = tmp_path / "metrics.log"
    given = {"flink.metrics.cloudwatch.file": str(file), "flink.job.name": "orders", **properties}

    async def run():
        fetcher = MeasuredFetcher(0, sink=SINK)
        exporter = CloudWatchExporter(Properties(given), FixedClock())
        async with open_exporters([exporter], FetchersOfProcess([fetcher])):
            for count in counts:
                fetcher.given = with_records(count)
                await exporter.send(await FetchersOfProcess([fetcher]).metrics())

    asyncio.run(run())
    return [json.loads(line) for line in file.read_text().splitlines()]


def metrics_of(line):
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    return {metric["Name"]: (line[metric["Name"]], metric["Unit"]) for metric in directive["Metrics"]}


def test_a_job_with_a_name_of_its_own_is_another_dimension(tmp_path):
    file = tmp_path / "metrics.log"
    properties = Properties({"flink.metrics.cloudwatch.file": str(file), "flink.metrics.cloudwatch.shards": True})
    fetchers = FetchersOfProcess([MeasuredFetcher(job_name="payments"), MeasuredFetcher(job_name="ledger")])

    async def run():
        async with open_exporters([CloudWatchExporter(properties, FixedClock())], fetchers):
            pass

    asyncio.run(run())
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    found = [(line["Job"], line.get("Process"), line.get("Shard"), line["records"]) for line in lines]
    assert found == [
        ("payments", "0", None, 4),
        ("payments", None, "a", 2),
        ("payments", None, "b", 2),
        ("ledger", "1", None, 4),
        ("ledger", None, "a", 2),
        ("ledger", None, "b", 2),
    ]


def test_a_line_has_the_metrics_of_a_worker_with_units_and_dimensions(tmp_path):
    line, _ = written(tmp_path, 4)
    (directive,) = line["_aws"]["CloudWatchMetrics"]

    assert line["_aws"]["Timestamp"] == EPOCH_MS
    assert (directive["Namespace"], directive["Dimensions"]) == ("recordpublisher", [["Job", "Process"]])
    assert (line["Job"], line["Process"]) == ("orders", "0")
    assert metrics_of(line)["records"] == (4, "Count")
    assert metrics_of(line)["loopLagMs"] == (0, "Milliseconds")
    assert metrics_of(line)["budgetUsedBytes"] == (0, "Bytes")
    assert len(directive["Metrics"]) <= 100, "CloudWatch's limit"


def test_a_text_is_a_field_and_no_metric(tmp_path):
    line, *_ = written(tmp_path, 4, **{"flink.metrics.cloudwatch.shards": True})[1:]

    assert line["stage"] == "READING"
    assert "stage" not in metrics_of(line)


def test_a_counter_is_what_was_counted_since_the_line_before(tmp_path):
    lines = written(tmp_path, 4, 10, 3)

    assert [line["records"] for line in lines] == [4, 6, 3, 0]


def test_shards_have_lines_only_if_it_is_asked_for(tmp_path):
    (tmp_path / "all").mkdir()
    without = written(tmp_path, 4)
    every = written(tmp_path / "all", 4, **{"flink.metrics.cloudwatch.shards": True})

    assert [line.get("Shard") for line in without] == [None, None]
    assert [line.get("Shard") for line in every] == [None, "a", "b"] * 2
    assert metrics_of(every[1])["records"] == (2, "Count")
    assert every[1]["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["Job", "Stream", "Shard"]]


@pytest.mark.parametrize(
    ("steps", "records"),
    [
        ([{0: {"s/a": 100}}, {0: {}}, {0: {"s/a": 150}}], [100, 150]),
        ([{0: {"s/a": 100}}, {0: {}, 1: {"s/a": 150}}], [100, 150]),
        ([{0: {"s/a": 100}}, {}, {0: {"s/a": 150}}], [100, 50]),
    ],
    ids=["it comes back", "another process takes it", "its process does not respond for a while"],
)
async def test_the_counters_of_a_shard_begin_at_0_where_it_was_taken(tmp_path, steps, records):
    file = tmp_path / "metrics.log"
    given = {"flink.metrics.cloudwatch.file": str(file), "flink.metrics.cloudwatch.shards": "true"}
    exporter = CloudWatchExporter(Properties(given))
    for step in steps:
        await exporter.send(
            [
                WorkerMetrics(process, {}, {key: {"records": count} for key, count in shards.items()}, [], "")
                for process, shards in step.items()
            ]
        )

    lines = map(json.loads, file.read_text().splitlines())
    assert [line["records"] for line in lines if "Shard" in line] == records


async def test_memory_does_not_grow_with_the_shards_that_have_ended(tmp_path):
    given = {"flink.metrics.cloudwatch.file": str(tmp_path / "log"), "flink.metrics.cloudwatch.shards": "true"}
    exporter = CloudWatchExporter(Properties(given))
    for number in range(100):
        await exporter.send([WorkerMetrics(0, {}, {f"s/{number}": {"records": 1}}, [], "")])

    assert (len(exporter._counted), len(exporter._process_of)) == (1, 1)


def test_lines_go_to_stdout_unless_a_file_is_named(capfdbinary):
    async def run():
        async with open_exporters([CloudWatchExporter(Properties())], FetchersOfProcess([MeasuredFetcher()])):
            pass

    asyncio.run(run())

    assert json.loads(capfdbinary.readouterr().out)["records"] == 4


def test_metrics_are_written_after_each_interval(tmp_path):
    class Counting(CloudWatchExporter):
        sent = 0

        async def send(self, workers):
            self.sent += 1

    async def run():
        exporter = Counting(Properties({"flink.metrics.interval": 10_000}))
        async with open_exporters([exporter], FetchersOfProcess([MeasuredFetcher()])):
            await asyncio.sleep(35)
        return exporter.sent

    assert run_virtual(run()) == 4


async def test_a_file_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    properties = Properties({"flink.metrics.cloudwatch.file": str(tmp_path / "missing" / "metrics.log")})
    async with open_exporters([CloudWatchExporter(properties)], FetchersOfProcess([MeasuredFetcher()])):
        pass

    assert "metrics were not sent; the next interval tries again: FileNotFoundError" in caplog.text


async def test_what_was_counted_while_the_file_could_not_be_written_is_in_the_next_line(tmp_path):
    file = tmp_path / "later" / "metrics.log"
    exporter = CloudWatchExporter(Properties({"flink.metrics.cloudwatch.file": str(file)}))
    fetcher = MeasuredFetcher()
    fetcher.given = with_records(4)
    with pytest.raises(FileNotFoundError):
        await exporter.send(await FetchersOfProcess([fetcher]).metrics())

    file.parent.mkdir()
    fetcher.given = with_records(10)
    await exporter.send(await FetchersOfProcess([fetcher]).metrics())

    assert json.loads(file.read_text())["records"] == 10


async def test_what_was_counted_while_the_program_had_closed_its_stdout_is_in_the_next_line(monkeypatch):
    class Out:
        def __init__(self):
            self.buffer = io.BytesIO()

    def with_out():
        monkeypatch.setattr("sys.stdout", Out())
        return sys.stdout.buffer

    exporter, source = CloudWatchExporter(Properties({}), FixedClock()), MeasuredFetcher(0)
    source.given = with_records(4)
    with_out().close()
    with pytest.raises(ValueError, match="closed file"):
        await exporter.send(await FetchersOfProcess([source]).metrics())
    out = with_out()
    source.given = with_records(6)
    await exporter.send(await FetchersOfProcess([source]).metrics())
    assert json.loads(out.getvalue())["records"] == 6


def test_a_wrong_setting_is_named():
    with pytest.raises(ConfigurationError, match=r"flink.metrics.interval.*100.*at least 1000"):
        CloudWatchExporter(Properties({"flink.metrics.interval": 100}))


def test_the_metrics_of_the_sink_are_in_the_line_of_its_worker(tmp_path):
    line, _ = written(tmp_path, 4)

    assert metrics_of(line)["sinkNumRecordsOut"] == (0, "Count")
    assert metrics_of(line)["sinkOutstandingBytes"] == (0, "Bytes")
    assert metrics_of(line)["sinkCurrentSendTimeMs"] == (0, "Milliseconds")
    assert metrics_of(line)["records"] == (4, "Count")


def test_a_histogram_is_what_was_counted_since_the_line_before_and_left_out_if_that_is_nothing(tmp_path):
    given = [[3, 2, 1], [3, 2, 5], [3, 2, 5], [1, 0, 0]]  # the last one is that of a new start
    file = tmp_path / "metrics.log"

    async def run():
        exporter = CloudWatchExporter(Properties({"flink.metrics.cloudwatch.file": str(file)}), FixedClock())
        for counts in given:
            value = {"bounds": [100, 500], "counts": counts, "sum": 10.0 * sum(counts)}
            fetcher = MeasuredFetcher(0, {**METRICS, "worker": {**METRICS["worker"], "writeDelayMs": value}})
            await exporter.send(await FetchersOfProcess([fetcher]).metrics())

    asyncio.run(run())
    lines = [json.loads(line) for line in file.read_text().splitlines()]

    assert [line.get("writeDelayMs") for line in lines] == [
        {"Values": [50, 300, 500], "Counts": [3, 2, 1], "Max": 500, "Min": 50, "Count": 6, "Sum": 60},
        {"Values": [500], "Counts": [4], "Max": 500, "Min": 500, "Count": 4, "Sum": 40},
        None,
        {"Values": [50], "Counts": [1], "Max": 50, "Min": 50, "Count": 1, "Sum": 10},
    ]
    assert [metrics_of(line).get("writeDelayMs", (0, 0))[1] for line in lines] == [
        "Milliseconds",
        "Milliseconds",
        0,
        "Milliseconds",
    ]
