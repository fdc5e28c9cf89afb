"""How often a queue job flushes its sink."""

import pytest

import recordpublisher as rp
from recordpublisher.queues.job import QueueSettings


@pytest.mark.parametrize(
    ("given", "interval"),
    [
        ({}, 1_000),
        ({"flink.state.checkpoint.interval": 5_000}, 1_000),
        ({"flink.sink": "map", "flink.state.checkpoint.interval": -1}, 1_000),
        ({"flink.sink": "jsonl", "flink.sink.jsonl.path": "folder"}, 1_000),
        ({"flink.sink": "parquet", "flink.sink.parquet.path": "s3://bucket"}, 60_000),
        ({"flink.sink": "delta"}, 60_000),
        ({"flink.sink": "delta", "flink.state.checkpoint.interval": 2_000}, 2_000),
        ({"flink.sink": "delta", "flink.state.checkpoint.interval": -1}, 1_000),
    ],
)
def test_a_sink_is_flushed_each_second_unless_it_commits_less_often(given, interval):
    assert QueueSettings.of(rp.Properties(given)).flush_interval_ms == interval
