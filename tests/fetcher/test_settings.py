"""How often checkpoints are taken, and after how much silence a shard is idle."""

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.settings import FetcherSettings, IdleIntervals
from recordpublisher.publishers.properties.properties import Properties


@pytest.mark.parametrize(
    ("given", "interval"),
    [
        ({}, 10_000),
        ({"flink.sink": "jsonl"}, 10_000),
        ({"flink.sink": "delta"}, 60_000),
        ({"flink.sink": "iceberg"}, 60_000),
        ({"flink.sink": "delta", "flink.state.checkpoint.interval": 2_000}, 2_000),
        ({"flink.sink": "jsonl", "flink.sink.jsonl.path": "folder"}, 10_000),
        ({"flink.sink": "jsonl", "flink.sink.jsonl.path": "file:///folder"}, 10_000),
        ({"flink.sink": "parquet", "flink.sink.parquet.path": "s3://bucket/x"}, 60_000),
        ({"flink.sink": "parquet", "flink.sink.parquet.path": "s3://b", "flink.state.checkpoint.interval": 500}, 500),
    ],
)
def test_a_sink_of_tables_commits_less_often_unless_checkpoints_have_an_interval(given, interval):
    assert FetcherSettings.of(rp.Properties(given)).checkpoint_interval_ms == interval


@pytest.mark.parametrize(
    ("idle", "alarm", "shown_after"), [(5_000, 60_000, 5_000), (-1, 60_000, 60_000), (-1, -1, 300_000)]
)
def test_a_shard_is_shown_as_idle_by_the_idle_interval_or_without_one_by_the_alarm_interval(idle, alarm, shown_after):
    properties = Properties({"flink.shard.idle.interval": idle, "flink.alarm.interval": alarm})

    assert IdleIntervals.of(properties).shown_ms == shown_after


@pytest.mark.parametrize(("interval", "waits"), [(-1, True), (5_000, False)])
def test_w2_watermarks_wait_for_every_shard_where_no_interval_is_set(interval, waits):
    intervals = IdleIntervals.of(Properties({"flink.shard.idle.interval": interval}))

    assert (intervals.watermarks_ms, intervals.waits_for_every_shard) == (interval, waits)
