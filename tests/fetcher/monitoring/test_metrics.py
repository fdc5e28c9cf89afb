"""A1: one table has every metric once, and every counter of a shard is in it."""

import asyncio
import sys
import threading
from dataclasses import fields

import pytest

from recordpublisher.fetcher.metric_types import MetricType
from recordpublisher.fetcher.monitoring.shard_view import SHARD_METRICS
from recordpublisher.fetcher.monitoring.worker_view import WORKER_METRICS
from recordpublisher.fetcher.pipeline.emitter import Bounds
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.shards.shard_table import ShardTable
from recordpublisher.publishers.histogram import Histogram, is_histogram
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import EPOCH_MS, run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

A1_SHARD = [
    "millisBehindLatest",
    "bytesPerRead",
    "numberOfAggregatedRecords",
    "numberOfDeaggregatedRecords",
    "records",
    "bytes",
    "queuedRecords",
    "heldMs",
    "retries",
    "throttles",
    "resubscribes",
    "iteratorRefreshes",
    "idle",
    "lastEmitAgeMs",
    "timeToRetentionLossMs",
]
A1_WORKER = [
    "localWatermark",
    "globalWatermark",
    "blockingShard",
    "loopLagMs",
    "budgetUsedBytes",
]


def names(table):
    return [metric.name for metric in table]


def test_every_metric_that_rule_a1_names_exists():
    assert set(A1_SHARD) <= set(names(SHARD_METRICS))
    assert set(A1_WORKER) <= set(names(WORKER_METRICS))


def test_every_name_occurs_once():
    for table in (SHARD_METRICS, WORKER_METRICS):
        assert len(set(names(table))) == len(table)


def test_every_counter_of_a_publisher_is_shown():
    camel = {"".join([word, *(each.capitalize() for each in more)]) for word, *more in _words()}
    assert camel <= set(names(SHARD_METRICS))


def _words():
    # An error, for the outcome of a bounded run, and a histogram of the worker, to which all shards add.
    no_number = {"last_failure", "worker_read_durations"}
    return [field.name.split("_") for field in fields(ShardMetrics) if field.name not in no_number]


def test_numbers_and_histograms_have_units_and_flags_have_none():
    for metric in (*SHARD_METRICS, *WORKER_METRICS):
        assert bool(metric.unit) is (metric.type in (MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM)), (
            metric.name
        )


def test_a_histogram_counts_each_value_once_although_threads_add_and_read_it_together():
    counted, interval = Histogram([10]), sys.getswitchinterval()

    def add():
        for number in range(20_000):
            counted.add(1)
            if number % 500 == 0:
                counted.add_many(20, 2)
                counted.value()

    threads = [threading.Thread(target=add) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert counted.value() == {"bounds": [10.0], "counts": [80_000, 320], "sum": 86_400.0}


def test_a_histogram_counts_a_bound_in_its_bucket_and_a_negative_value_as_0():
    counted = Histogram([10, 100])
    for value, times in ((10, 1), (10.5, 2), (101, 3), (-5, 3)):
        counted.add_many(value, times)
    counted.add(-5)

    assert counted.value() == {"bounds": [10, 100], "counts": [5, 2, 3], "sum": 10 + 21 + 303}


@pytest.mark.parametrize(
    "given",
    [
        3,
        None,
        {},
        {"bounds": [1], "counts": [1], "sum": 0.0},
        {"bounds": [], "counts": [1], "sum": 0.0},
        {"bounds": [1], "counts": ["a", 1], "sum": 0.0},
    ],
)
def test_what_is_no_histogram_is_recognised(given):
    assert not is_histogram(given)


class SlowSink(RecordingSink):
    """A write takes 3 s, a flush 20 s."""

    async def write(self, batch):
        await asyncio.sleep(3)
        await super().write(batch)

    async def flush(self, checkpoint):
        await asyncio.sleep(20)


def test_records_count_with_the_time_from_their_arrival_to_the_sink_and_checkpoints_with_their_duration():
    async def run():
        source = ScriptedSource()
        source.add("a", EPOCH_MS - 2_000, EPOCH_MS)
        fetcher = make_fetcher(source, SlowSink())
        await fetcher.open()
        await fetcher.run_bounded(Bounds(stop_at_tip=True))
        await fetcher.checkpoint()
        worker = fetcher.metrics()["worker"]
        await fetcher.close()
        return worker["writeDelayMs"], worker["checkpointDurationMs"]

    delays, checkpoints = run_virtual(run())
    assert counted(delays) == {5_000: 2}, "both records of the batch count as the last one: 3 s"
    assert set(counted(checkpoints)) == {30_000}


def test_the_worker_has_the_durations_of_the_reads_of_all_its_shards_even_of_removed_ones():
    table = ShardTable()
    for name, duration in (("a", 40.0), ("b", 400.0)):
        table.add(Shard("s", name), ShardState(StartingPosition.trim_horizon())).metrics.saw_duration(duration)
    table.remove("s/a")
    assert counted(table.worker_read_durations.value()) == {50: 1, 500: 1}


def counted(histogram):
    """The buckets that have counted something, by their upper bound."""
    assert is_histogram(histogram)
    return {bound: count for bound, count in zip(histogram["bounds"], histogram["counts"], strict=False) if count}
