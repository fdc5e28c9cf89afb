"""The job counts the records that `MapSink` skips, as it counts those that it skips itself."""

import pytest

import recordpublisher as rp

from fakes.memory_streams import PROPERTIES, install

SINKS = {
    "bad": lambda: rp.MapSink(lambda record: 1 / 0, on_failure="SKIP", retries=0),
    "too old": lambda: rp.MapSink(lambda record: None, max_age="1ms", on_failure="SKIP"),
}


@pytest.mark.parametrize("why", [*SINKS])
async def test_the_metrics_of_the_job_and_its_last_line_count_each_once(monkeypatch, caplog, why):
    install(monkeypatch, {"a": [b"1", b"2", b"3"]}, closed=True)
    async with rp.DataFetcher(["orders"], PROPERTIES, sink=SINKS[why]()) as fetcher:
        await fetcher.run()
        metrics = fetcher.metrics()
        assert metrics["worker"]["skippedRecords"] == metrics["shards"]["orders/a"]["skippedRecords"] == 3
        assert fetcher._fetcher.progress().records == 3, "a skipped record counts as read once"
    assert "this run left out records: 3 skipped, 0 written as dead letters" in caplog.text
