"""Exported names follow Prometheus's conventions, and none is lost."""

import pytest

from recordpublisher.fetcher.monitoring.shard_view import SHARD_METRICS
from recordpublisher.fetcher.monitoring.subtask_view import SUBTASK_METRICS
from recordpublisher.plugins.metrics.exported_metrics import EXPORTED_SHARD_METRICS, EXPORTED_SUBTASK_METRICS

EXPORTED = {(one.scope, one.source): one for one in (*EXPORTED_SUBTASK_METRICS, *EXPORTED_SHARD_METRICS)}


@pytest.mark.parametrize(
    ("scope", "source", "name", "value", "exported"),
    [
        ("shard", "millisBehindLatest", "recordpublisher_shard_behind_latest_seconds", 1500, 1.5),
        ("shard", "heldMs", "recordpublisher_shard_held_seconds_total", 20, 0.02),
        ("shard", "bytesRead", "recordpublisher_shard_read_bytes_total", 7, 7),
        ("shard", "bytes", "recordpublisher_shard_bytes_total", 7, 7),
        ("shard", "queuedBytes", "recordpublisher_shard_queued_bytes", 7, 7),
        ("shard", "idle", "recordpublisher_shard_idle", True, 1),
        ("shard", "watermark", "recordpublisher_shard_watermark_timestamp_seconds", 1500, 1.5),
        ("subtask", "records", "recordpublisher_subtask_records_total", 7, 7),
    ],
)
def test_units_are_base_units_and_counters_end_in_total(scope, source, name, value, exported):
    metric = EXPORTED[scope, source]

    assert (metric.prometheus_name, metric.number(value)) == (name, exported)


def test_what_is_not_known_has_no_value():
    assert EXPORTED["subtask", "localWatermark"].number(None) is None
    assert EXPORTED["shard", "millisBehindLatest"].number(-1) is None
    assert EXPORTED["shard", "timeToRetentionLossMs"].number(-1000) == -1


def test_every_metric_is_exported_under_a_name_of_its_own():
    assert len(EXPORTED) == len(SUBTASK_METRICS) + len(SHARD_METRICS)
    assert len({one.prometheus_name for one in EXPORTED.values()}) == len(EXPORTED)
