"""How often checkpoints are taken: as said, else as the sink needs, else every ten seconds."""

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.settings import FetcherSettings


@pytest.mark.parametrize(
    ("given", "interval"),
    [
        ({}, 10_000),
        ({"flink.sink": "jsonl"}, 10_000),
        ({"flink.sink": "delta"}, 60_000),
        ({"flink.sink": "delta", "flink.sink.delta.interval": "5m"}, 300_000),
        ({"flink.sink": "delta", "flink.state.checkpoint.interval": 2_000}, 2_000),
        ({"flink.sink": "jsonl", "flink.sink.delta.interval": "5m"}, 10_000),
    ],
)
def test_a_sink_of_tables_commits_less_often_unless_checkpoints_have_an_interval(given, interval):
    assert FetcherSettings.of(rp.Properties(given)).checkpoint_interval_ms == interval
