"""Each skipped record counts once, when the position moves past it, however often it is read (S7)."""

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.runtime.bounded_reader import BoundedReader
from recordpublisher.plugins.spark.arrow_rows import ArrowRows
from recordpublisher.publishers.positions import StartingPosition

from fakes.memory_streams import PROPERTIES, MemoryFactory, install

START = ShardState(StartingPosition.trim_horizon())
SHARD = rp.Shard("orders", "a")
GIVEN = {**PROPERTIES, "flink.deserializer": "json", "flink.deserializer.error": "SKIP"}
LAYOUTS = {
    "alternating": [b"1", b"{"] * 100,
    "in runs": ([b"1"] * 3 + [b"{"] * 20) * 5,
    "whole responses": ([b"1"] * 7 + [b"{"] * 14) * 7,
    "at both ends": [b"{"] * 30 + [b"1"] * 40 + [b"{"] * 30,
}


@pytest.fixture(params=LAYOUTS)
def payloads(request, monkeypatch):
    """A stream that ends. A response has seven records."""
    install(monkeypatch, {"a": LAYOUTS[request.param]}, closed=True)
    monkeypatch.setattr(MemoryFactory, "per_read", 7)
    return LAYOUTS[request.param]


@pytest.mark.parametrize("most", [1, 5])
async def test_bounded_runs_of_one_job_count_each_once_although_they_read_ahead(payloads, most):
    sink = rp.MemorySink()
    async with rp.DataFetcher(["orders"], GIVEN, sink=sink) as fetcher:
        for _ in range(payloads.count(b"1") // most):
            await fetcher.run_bounded(max_records=most)
        await fetcher.run()
        metrics, done = fetcher.metrics(), fetcher.progress()
    assert len(sink.records) == payloads.count(b"1")
    assert (
        metrics["worker"]["skippedRecords"] == metrics["shards"]["orders/a"]["skippedRecords"] == payloads.count(b"{")
    )
    assert done.records == len(payloads)


async def test_each_start_after_a_bounded_run_counts_what_it_moves_past(payloads):
    counted, read, stored = 0, 0, None
    while read < payloads.count(b"1"):
        sink = rp.MemorySink()
        async with rp.DataFetcher(["orders"], GIVEN, sink=sink, restore=stored) as fetcher:
            await fetcher.run_bounded(max_records=11)
            counted += fetcher.metrics()["worker"]["skippedRecords"]
            read, stored = read + len(sink.records), fetcher.snapshot()
    async with rp.DataFetcher(["orders"], GIVEN, sink=rp.MemorySink(), restore=stored) as fetcher:
        await fetcher.run()
        counted += fetcher.metrics()["worker"]["skippedRecords"]
    assert (read, counted) == (payloads.count(b"1"), payloads.count(b"{"))


async def test_windows_of_spark_count_each_once(payloads):
    reader, state, counted, read = BoundedReader(rp.Properties(GIVEN)), START, 0, 0
    at_tip = False
    while not at_tip:
        outcome = (await reader.read({SHARD: state}, rp.MemorySink(), Bounds(max_records=3, stop_at_tip=True))).shards[
            "orders/a"
        ]
        state, counted, read = outcome.state, counted + outcome.seen.skipped, read + outcome.records
        at_tip = outcome.seen.at_tip or state.ended
    await reader.close()
    assert (read, counted) == (payloads.count(b"1"), payloads.count(b"{"))


class Before:
    """The end of a read: the first record that is not read."""

    def __init__(self, number):
        self.number = number

    def records_before(self, batch):
        return sum(int(number) < self.number for number in batch.sequence_numbers)


@pytest.mark.parametrize("end", range(0, 40))
async def test_a_read_to_an_end_counts_nothing_behind_it_and_does_not_decode_it(payloads, end):
    reader, state, counted, rows, is_past = BoundedReader(rp.Properties(GIVEN)), START, 0, ArrowRows(), False
    while not is_past:
        bounds = Bounds(max_records=3, stop_at_tip=True, ends={"orders/a": Before(end)})
        outcome = (await reader.read({SHARD: state}, rows, bounds)).shards["orders/a"]
        state, counted, is_past = outcome.state, counted + outcome.seen.skipped, outcome.first_past_end is not None
    await reader.close()
    assert (len(rows), counted) == (payloads[:end].count(b"1"), payloads[:end].count(b"{"))


async def test_a_bad_record_behind_the_end_of_a_read_does_not_fail_it(monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2", b"{"]}, closed=True)
    reader, sink = BoundedReader(rp.Properties({**GIVEN, "flink.deserializer.error": "FAIL"})), rp.MemorySink()
    await reader.read({SHARD: START}, sink, Bounds(stop_at_tip=True, ends={"orders/a": Before(2)}))
    await reader.close()
    assert [record.value for record in sink.records] == [1, 2]
