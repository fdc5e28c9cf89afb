"""A1: one table has every metric once, and every counter of a shard is in it."""

from dataclasses import fields

from recordpublisher.fetcher.metric_types import MetricType
from recordpublisher.fetcher.monitoring.shard_view import SHARD_METRICS
from recordpublisher.fetcher.monitoring.worker_view import WORKER_METRICS
from recordpublisher.publishers.shard_metrics import ShardMetrics

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
    no_number = {"last_failure"}  # an error, for the outcome of a bounded run
    return [field.name.split("_") for field in fields(ShardMetrics) if field.name not in no_number]


def test_numbers_have_units_and_flags_have_none():
    for metric in (*SHARD_METRICS, *WORKER_METRICS):
        assert bool(metric.unit) is (metric.type in (MetricType.COUNTER, MetricType.GAUGE)), metric.name
